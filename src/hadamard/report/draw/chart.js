// Draws the page's charts from their data: hover or arrow keys read values, dragging or + and -
// zoom, double-click, 0 or Escape show everything again; the legend's entries hide variants.
(() => {
  'use strict';
  const SVG = 'http://www.w3.org/2000/svg';
  const HEIGHT = 250, LEFT = 52, RIGHT = 10, TOP = 26, BOTTOM = 40;
  const DASHES = { '-': '', '--': '7 4', ':': '2 3', '-.': '8 3 2 3' };
  const hidden = new Set();
  const charts = [];

  const make = (name, attributes, parent, text) => {
    const element = document.createElementNS(SVG, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };

  const ticks = (low, high, count) => {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const values = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
      values.push(i * step);
    }
    return values;
  };

  const short = (value) => {
    for (const [unit, letter] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
      if (Math.abs(value) >= unit) return `${+(value / unit).toPrecision(4)}${letter}`;
    }
    return `${+value.toPrecision(4)}`;
  };

  const marker = (kind, x, y) => {
    const r = 3.4;
    switch (kind) {
      case 's': return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
      case 'D': return `M${x} ${y - 1.3 * r}L${x + 1.3 * r} ${y}L${x} ${y + 1.3 * r}` +
        `L${x - 1.3 * r} ${y}z`;
      case '^': return `M${x} ${y - 1.2 * r}L${x + 1.2 * r} ${y + r}H${x - 1.2 * r}z`;
      case 'v': return `M${x} ${y + 1.2 * r}L${x + 1.2 * r} ${y - r}H${x - 1.2 * r}z`;
      case 'P': return `M${x - 1.2} ${y - r}h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2v-2.4h2.2z`;
      case 'X': return `M${x - r} ${y - r}l${2 * r} ${2 * r}l-1 1l${-2 * r} ${-2 * r}z` +
        `M${x + r} ${y - r}l${-2 * r} ${2 * r}l1 1l${2 * r} ${-2 * r}z`;
      default: return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
    }
  };

  class Chart {
    constructor(figure, data) {
      this.figure = figure;
      this.data = data;
      const last = data.lines.map((line) => line.x[line.x.length - 1]);
      this.whole = [0, 1.02 * Math.max(1e-9, ...last)]; // room for a marker at the end
      this.range = this.whole;
      this.at = null;
      this.steps = [...new Set(data.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
      figure.querySelector('.static').hidden = true;
      this.svg = make('svg', {
        class: 'live', tabindex: 0, role: 'group',
        'aria-label': `${data.title}: ${data.ylabel} over ${data.xlabel}. Arrow keys read ` +
          'values, plus and minus zoom, 0 shows everything.',
      });
      const bar = document.createElement('div');
      bar.className = 'bar';
      this.readout = document.createElement('div');
      this.readout.className = 'readout';
      this.readout.setAttribute('aria-live', 'polite');
      this.button = document.createElement('button');
      this.button.type = 'button';
      this.button.textContent = 'Show all';
      this.button.hidden = true;
      this.button.addEventListener('click', () => this.zoom(this.whole));
      bar.append(this.readout, this.button);
      figure.append(this.svg, bar);
      this.listen();
      new ResizeObserver(() => this.draw()).observe(figure);
    }

    listen() {
      const { svg } = this;
      svg.addEventListener('pointerdown', (event) => {
        if (event.button) return;
        this.from = this.step(event);
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener('pointermove', (event) => {
        this.at = this.nearest(this.step(event));
        this.to = this.from === undefined ? undefined : this.step(event);
        this.overlay();
      });
      svg.addEventListener('pointerup', (event) => {
        const { from } = this, to = this.step(event);
        this.from = this.to = undefined;
        const far = from !== undefined && Math.abs(this.x(to) - this.x(from)) > 8;
        if (far) this.zoom([Math.min(from, to), Math.max(from, to)]);
        else this.overlay();
      });
      svg.addEventListener('pointercancel', () => {
        this.from = this.to = undefined;
        this.overlay();
      });
      svg.addEventListener('pointerleave', () => {
        if (this.from === undefined) { this.at = null; this.overlay(); }
      });
      svg.addEventListener('dblclick', () => this.zoom(this.whole));
      svg.addEventListener('blur', () => { this.at = null; this.overlay(); });
      svg.addEventListener('keydown', (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const [low, high] = this.range;
        const seen = this.steps.filter((s) => s >= low && s <= high);
        const place = seen.indexOf(this.at);
        const middle = this.at ?? (low + high) / 2;
        const half = (high - low) / 2;
        switch (event.key) {
          case 'ArrowLeft': this.at = seen[place < 0 ? seen.length - 1 : Math.max(0, place - 1)]; break;
          case 'ArrowRight': this.at = seen[Math.min(seen.length - 1, place + 1)]; break;
          case 'Home': this.at = seen[0]; break;
          case 'End': this.at = seen[seen.length - 1]; break;
          case '+': case '=': this.zoom([middle - half / 2, middle + half / 2]); break;
          case '-': this.zoom([middle - half * 2, middle + half * 2]); break;
          case '0': case 'Escape': this.zoom(this.whole); break;
          default: return;
        }
        event.preventDefault();
        this.overlay();
      });
    }

    zoom([low, high]) {
      low = Math.max(low, this.whole[0]);
      high = Math.min(high, this.whole[1]);
      if (high - low < (this.whole[1] - this.whole[0]) * 1e-3) return;
      this.range = [low, high];
      this.button.hidden = low === this.whole[0] && high === this.whole[1];
      this.draw();
    }

    step(event) {
      const box = this.svg.getBoundingClientRect();
      const share = (event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT);
      const [low, high] = this.range;
      return low + Math.min(1, Math.max(0, share)) * (high - low);
    }

    nearest(step) {
      const [low, high] = this.range;
      let best = null;
      for (const s of this.steps) {
        if (s < low || s > high) continue;
        if (best === null || Math.abs(s - step) < Math.abs(best - step)) best = s;
      }
      return best;
    }

    x(step) {
      const [low, high] = this.range;
      return LEFT + (step - low) / (high - low) * (this.width - LEFT - RIGHT);
    }

    y(value) {
      const [low, high] = this.limits;
      return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
    }

    shown() {
      return this.data.lines.filter((line) => !hidden.has(line.label));
    }

    // The range of the visible values; with everything in view, that of the static picture.
    fit() {
      const lines = this.shown();
      const whole = this.range[0] === this.whole[0] && this.range[1] === this.whole[1];
      if (whole && lines.length === this.data.lines.length) return this.data.limits;
      let low = Infinity, high = -Infinity;
      for (const line of lines) {
        for (const values of [line.y, ...line.seeds]) {
          values.forEach((value, i) => {
            if (value === null || line.x[i] < this.range[0] || line.x[i] > this.range[1]) return;
            low = Math.min(low, value);
            high = Math.max(high, value);
          });
        }
      }
      if (low > high) return this.data.limits;
      const room = 0.15 * ((high - low) || Math.abs(high) || 1);
      return [this.data.zero && whole ? -0.03 * (high + room) : low - room, high + room];
    }

    path(xs, ys) {
      let path = '', pen = false;
      ys.forEach((value, i) => {
        if (value === null) { pen = false; return; }
        path += `${pen ? 'L' : 'M'}${this.x(xs[i]).toFixed(1)} ${this.y(value).toFixed(1)}`;
        pen = true;
      });
      return path;
    }

    area(line) {
      const places = line.x.map((_, i) => i)
        .filter((i) => line.low[i] !== null && line.low[i] !== undefined);
      if (!places.length) return '';
      const point = (i, values) => `${this.x(line.x[i]).toFixed(1)} ${this.y(values[i]).toFixed(1)}`;
      return `M${places.map((i) => point(i, line.low)).join('L')}` +
        `L${places.reverse().map((i) => point(i, line.high)).join('L')}z`;
    }

    draw() {
      this.width = this.figure.clientWidth;
      if (!this.width) return;
      this.limits = this.fit();
      const { svg, width, data } = this;
      svg.replaceChildren();
      svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
      svg.setAttribute('height', HEIGHT);
      const clip = `clip-${data.name}`;
      make('rect', { x: LEFT, y: TOP, width: Math.max(1, width - LEFT - RIGHT),
        height: HEIGHT - TOP - BOTTOM }, make('clipPath', { id: clip }, svg));
      make('text', { x: LEFT, y: 14, class: 'title' }, svg, data.title);
      for (const value of ticks(...this.limits, 5)) {
        const y = this.y(value);
        make('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y, y2: y }, svg);
        make('text', { class: 'ytick', x: LEFT - 6, y: y + 4, 'text-anchor': 'end' }, svg,
          short(value));
      }
      for (const value of ticks(...this.range, Math.max(2, Math.floor(width / 90)))) {
        const x = this.x(value);
        make('text', { class: 'xtick', x, y: HEIGHT - BOTTOM + 16,
          'text-anchor': x > width - RIGHT - 16 ? 'end' : 'middle' }, svg, short(value));
      }
      make('text', { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, 'text-anchor': 'middle' }, svg,
        data.xlabel);
      make('text', { x: 0, y: 0, 'text-anchor': 'middle',
        transform: `translate(11 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)` }, svg, data.ylabel);
      const plot = make('g', { 'clip-path': `url(#${clip})`, fill: 'none' }, svg);
      for (const line of this.shown()) {
        const group = make('g', { class: 'variant', 'data-variant': line.label,
          stroke: line.color }, plot);
        make('path', { d: this.area(line), fill: line.color, stroke: 'none', opacity: 0.15 },
          group);
        for (const seed of line.seeds) {
          make('path', { d: this.path(line.x, seed), opacity: 0.45, 'stroke-width': 0.8 }, group);
        }
        make('path', { d: this.path(line.x, line.y), 'stroke-width': 2,
          'stroke-dasharray': DASHES[line.dashes] }, group);
        const every = Math.max(1, Math.ceil(line.x.length / 8));
        let marks = '';
        line.y.forEach((value, i) => {
          if (value !== null && i % every === 0) {
            marks += marker(line.marker, this.x(line.x[i]), this.y(value));
          }
        });
        make('path', { d: marks, fill: line.color, stroke: 'none' }, group);
      }
      this.over = make('g', { 'pointer-events': 'none' }, svg);
      this.overlay();
    }

    // The parts that follow the pointer: the step, its values, and the range being zoomed into.
    overlay() {
      if (!this.over) return;
      this.over.replaceChildren();
      if (this.from !== undefined && this.to !== undefined) {
        const a = this.x(this.from), b = this.x(this.to);
        make('rect', { class: 'brush', x: Math.min(a, b), y: TOP, width: Math.abs(a - b),
          height: HEIGHT - TOP - BOTTOM }, this.over);
      }
      this.readout.replaceChildren();
      if (this.at === null || this.at === undefined) return;
      const x = this.x(this.at);
      make('line', { class: 'cursor', x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }, this.over);
      const head = document.createElement('span');
      head.textContent = `${pointLabel(this.data.xlabel)} ${this.at.toLocaleString('en')}`;
      this.readout.append(head, ' ');
      for (const line of this.shown()) {
        const i = line.x.indexOf(this.at);
        const value = i < 0 ? null : line.y[i];
        if (value === null || value === undefined) continue;
        make('path', { d: marker('o', x, this.y(value)), fill: line.color }, this.over);
        const item = document.createElement('span');
        const dot = document.createElement('i');
        dot.style.background = line.color;
        const bold = document.createElement('b');
        bold.textContent = short(value);
        item.append(dot, `${line.label} `, bold);
        if (line.low.length && line.low[i] !== null) {
          item.append(` (${short(line.low[i])} to ${short(line.high[i])})`);
        }
        this.readout.append(item, ' ');
      }
    }
  }

  const pointLabel = (label) => (label === 'training steps' ? 'step' : `${label}:`);

  const toggle = (label) => {
    if (hidden.has(label)) hidden.delete(label);
    else hidden.add(label);
    for (const button of document.querySelectorAll('.variants button')) {
      button.setAttribute('aria-pressed', String(!hidden.has(button.dataset.variant)));
    }
    for (const chart of charts) chart.draw();
  };

  for (const entry of document.querySelectorAll('.variants li')) {
    const button = document.createElement('button');
    button.type = 'button';
    button.dataset.variant = entry.dataset.variant;
    button.setAttribute('aria-pressed', 'true');
    button.title = 'show or hide in all charts';
    button.append(...entry.childNodes);
    button.addEventListener('click', () => toggle(button.dataset.variant));
    entry.append(button);
  }
  const data = JSON.parse(document.getElementById('charts').textContent);
  const byName = new Map(data.map((chart) => [chart.name, chart]));
  for (const figure of document.querySelectorAll('.chart')) {
    const chart = byName.get(figure.dataset.chart);
    if (chart) charts.push(new Chart(figure, chart));
  }
})();
