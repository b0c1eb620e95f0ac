// Draws the page's charts from their data. Hovering or the arrow keys read values; dragging or
// + and - zoom; double-click, 0 or Escape reset the zoom; the legend's entries hide variants.
(() => {
  'use strict';
  const SVG = 'http://www.w3.org/2000/svg';
  const HEIGHT = 250, LEFT = 52, RIGHT = 10, TOP = 26, BOTTOM = 40;
  const DASHES = { '-': '', '--': '7 4', ':': '2 3', '-.': '8 3 2 3' };
  const hidden = new Set();
  const charts = [];

  const svgElement = (name, attributes, parent, text) => {
    const element = document.createElementNS(SVG, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };

  const tickValues = (low, high, count) => {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const values = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
      values.push(i * step);
    }
    return values;
  };

  const shortNumber = (value) => {
    for (const [unit, letter] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
      if (Math.abs(value) >= unit) return `${+(value / unit).toPrecision(4)}${letter}`;
    }
    return `${+value.toPrecision(4)}`;
  };

  const markerPath = (kind, x, y) => {
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
      this.fullRange = [0, 1.02 * Math.max(1e-9, ...last)]; // room for a marker at the end
      this.visibleRange = this.fullRange;
      this.cursorStep = null;
      this.steps = [...new Set(data.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
      figure.querySelector('.static').hidden = true;
      this.svg = svgElement('svg', {
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
      this.button.addEventListener('click', () => this.zoom(this.fullRange));
      bar.append(this.readout, this.button);
      figure.append(this.svg, bar);
      this.listen();
      new ResizeObserver(() => this.draw()).observe(figure);
    }

    listen() {
      const { svg } = this;
      svg.addEventListener('pointerdown', (event) => {
        if (event.button) return;
        this.dragStart = this.step(event);
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener('pointermove', (event) => {
        this.cursorStep = this.nearest(this.step(event));
        this.dragEnd = this.dragStart === undefined ? undefined : this.step(event);
        this.drawOverlay();
      });
      svg.addEventListener('pointerup', (event) => {
        const start = this.dragStart, end = this.step(event);
        this.dragStart = this.dragEnd = undefined;
        const dragged = start !== undefined && Math.abs(this.x(end) - this.x(start)) > 8;
        if (dragged) this.zoom([Math.min(start, end), Math.max(start, end)]);
        else this.drawOverlay();
      });
      svg.addEventListener('pointercancel', () => {
        this.dragStart = this.dragEnd = undefined;
        this.drawOverlay();
      });
      svg.addEventListener('pointerleave', () => {
        if (this.dragStart === undefined) { this.cursorStep = null; this.drawOverlay(); }
      });
      svg.addEventListener('dblclick', () => this.zoom(this.fullRange));
      svg.addEventListener('blur', () => { this.cursorStep = null; this.drawOverlay(); });
      svg.addEventListener('keydown', (event) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const [low, high] = this.visibleRange;
        const steps = this.steps.filter((s) => s >= low && s <= high);
        const index = steps.indexOf(this.cursorStep), last = steps.length - 1;
        const center = this.cursorStep ?? (low + high) / 2;
        const half = (high - low) / 2;
        switch (event.key) {
          case 'ArrowLeft':
            this.cursorStep = steps[index < 0 ? last : Math.max(0, index - 1)];
            break;
          case 'ArrowRight': this.cursorStep = steps[Math.min(last, index + 1)]; break;
          case 'Home': this.cursorStep = steps[0]; break;
          case 'End': this.cursorStep = steps[last]; break;
          case '+': case '=': this.zoom([center - half / 2, center + half / 2]); break;
          case '-': this.zoom([center - half * 2, center + half * 2]); break;
          case '0': case 'Escape': this.zoom(this.fullRange); break;
          default: return;
        }
        event.preventDefault();
        this.drawOverlay();
      });
    }

    zoom([low, high]) {
      low = Math.max(low, this.fullRange[0]);
      high = Math.min(high, this.fullRange[1]);
      if (high - low < (this.fullRange[1] - this.fullRange[0]) * 1e-3) return;
      this.visibleRange = [low, high];
      this.button.hidden = low === this.fullRange[0] && high === this.fullRange[1];
      this.draw();
    }

    step(event) {
      const box = this.svg.getBoundingClientRect();
      const share = (event.clientX - box.left - LEFT) / (this.width - LEFT - RIGHT);
      const [low, high] = this.visibleRange;
      return low + Math.min(1, Math.max(0, share)) * (high - low);
    }

    nearest(step) {
      const [low, high] = this.visibleRange;
      let best = null;
      for (const s of this.steps) {
        if (s < low || s > high) continue;
        if (best === null || Math.abs(s - step) < Math.abs(best - step)) best = s;
      }
      return best;
    }

    x(step) {
      const [low, high] = this.visibleRange;
      return LEFT + (step - low) / (high - low) * (this.width - LEFT - RIGHT);
    }

    y(value) {
      const [low, high] = this.limits;
      return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM);
    }

    visibleLines() {
      return this.data.lines.filter((line) => !hidden.has(line.label));
    }

    // The range of the visible values; with everything visible, that of the static picture.
    valueLimits() {
      const lines = this.visibleLines();
      const [first, last] = this.visibleRange;
      const isFullRange = first === this.fullRange[0] && last === this.fullRange[1];
      if (isFullRange && lines.length === this.data.lines.length) return this.data.limits;
      let low = Infinity, high = -Infinity;
      for (const line of lines) {
        for (const values of [line.y, ...line.seeds]) {
          values.forEach((value, i) => {
            if (value === null || line.x[i] < first || line.x[i] > last) return;
            low = Math.min(low, value);
            high = Math.max(high, value);
          });
        }
      }
      if (low > high) return this.data.limits;
      const margin = 0.15 * ((high - low) || Math.abs(high) || 1);
      const top = high + margin;
      return [this.data.zero && isFullRange ? -0.03 * top : low - margin, top];
    }

    path(xs, ys) {
      let path = '', penDown = false;
      ys.forEach((value, i) => {
        if (value === null) { penDown = false; return; }
        path += `${penDown ? 'L' : 'M'}${this.x(xs[i]).toFixed(1)} ${this.y(value).toFixed(1)}`;
        penDown = true;
      });
      return path;
    }

    area(line) {
      const indices = line.x.map((_, i) => i)
        .filter((i) => line.low[i] !== null && line.low[i] !== undefined);
      if (!indices.length) return '';
      const point = (i, values) =>
        `${this.x(line.x[i]).toFixed(1)} ${this.y(values[i]).toFixed(1)}`;
      return `M${indices.map((i) => point(i, line.low)).join('L')}` +
        `L${indices.reverse().map((i) => point(i, line.high)).join('L')}z`;
    }

    draw() {
      this.width = this.figure.clientWidth;
      if (!this.width) return;
      this.limits = this.valueLimits();
      const { svg, width, data } = this;
      svg.replaceChildren();
      svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
      svg.setAttribute('height', HEIGHT);
      const clip = `clip-${data.name}`;
      svgElement('rect', { x: LEFT, y: TOP, width: Math.max(1, width - LEFT - RIGHT),
        height: HEIGHT - TOP - BOTTOM }, svgElement('clipPath', { id: clip }, svg));
      svgElement('text', { x: LEFT, y: 14, class: 'title' }, svg, data.title);
      for (const value of tickValues(...this.limits, 5)) {
        const y = this.y(value);
        svgElement('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y, y2: y }, svg);
        svgElement('text', { class: 'ytick', x: LEFT - 6, y: y + 4, 'text-anchor': 'end' }, svg,
          shortNumber(value));
      }
      for (const value of tickValues(...this.visibleRange, Math.max(2, Math.floor(width / 90)))) {
        const x = this.x(value);
        svgElement('text', { class: 'xtick', x, y: HEIGHT - BOTTOM + 16,
          'text-anchor': x > width - RIGHT - 16 ? 'end' : 'middle' }, svg, shortNumber(value));
      }
      svgElement('text', { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6,
        'text-anchor': 'middle' }, svg, data.xlabel);
      svgElement('text', { x: 0, y: 0, 'text-anchor': 'middle',
        transform: `translate(11 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)` }, svg, data.ylabel);
      const plot = svgElement('g', { 'clip-path': `url(#${clip})`, fill: 'none' }, svg);
      for (const line of this.visibleLines()) {
        const group = svgElement('g', { class: 'variant', 'data-variant': line.label,
          stroke: line.color }, plot);
        svgElement('path', { d: this.area(line), fill: line.color, stroke: 'none', opacity: 0.15 },
          group);
        for (const seed of line.seeds) {
          svgElement('path', { d: this.path(line.x, seed), opacity: 0.45,
            'stroke-width': 0.8 }, group);
        }
        svgElement('path', { d: this.path(line.x, line.y), 'stroke-width': 2,
          'stroke-dasharray': DASHES[line.dashes] }, group);
        const every = Math.max(1, Math.ceil(line.x.length / 8));
        let markers = '';
        line.y.forEach((value, i) => {
          if (value !== null && i % every === 0) {
            markers += markerPath(line.marker, this.x(line.x[i]), this.y(value));
          }
        });
        svgElement('path', { d: markers, fill: line.color, stroke: 'none' }, group);
      }
      this.overlayGroup = svgElement('g', { 'pointer-events': 'none' }, svg);
      this.drawOverlay();
    }

    // Draws what follows the pointer: the step, its values, and the range of a drag.
    drawOverlay() {
      if (!this.overlayGroup) return;
      this.overlayGroup.replaceChildren();
      if (this.dragStart !== undefined && this.dragEnd !== undefined) {
        const start = this.x(this.dragStart), end = this.x(this.dragEnd);
        svgElement('rect', { class: 'brush', x: Math.min(start, end), y: TOP,
          width: Math.abs(start - end), height: HEIGHT - TOP - BOTTOM }, this.overlayGroup);
      }
      this.readout.replaceChildren();
      if (this.cursorStep === null || this.cursorStep === undefined) return;
      const x = this.x(this.cursorStep);
      svgElement('line', { class: 'cursor', x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM },
        this.overlayGroup);
      const stepLabel = document.createElement('span');
      const step = this.cursorStep.toLocaleString('en');
      stepLabel.textContent = `${cursorLabel(this.data.xlabel)} ${step}`;
      this.readout.append(stepLabel, ' ');
      for (const line of this.visibleLines()) {
        const i = line.x.indexOf(this.cursorStep);
        const value = i < 0 ? null : line.y[i];
        if (value === null || value === undefined) continue;
        svgElement('path', { d: markerPath('o', x, this.y(value)), fill: line.color },
          this.overlayGroup);
        const item = document.createElement('span');
        const dot = document.createElement('i');
        dot.style.background = line.color;
        const number = document.createElement('b');
        number.textContent = shortNumber(value);
        item.append(dot, `${line.label} `, number);
        if (line.low.length && line.low[i] !== null) {
          item.append(` (${shortNumber(line.low[i])} to ${shortNumber(line.high[i])})`);
        }
        this.readout.append(item, ' ');
      }
    }
  }

  const cursorLabel = (label) => (label === 'training steps' ? 'step' : `${label}:`);

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
