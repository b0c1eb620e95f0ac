"""The figures and the page, in real matplotlib and a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hadamard import HadamardLinear, diagnose
from hadamard.health import Diagnosis, save_comparison

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hadamard.report.draw.figures import RED, new_figure
from hadamard.report.pages.document import svg

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Net(nn.Sequential):
    """A name that HTML would trip over."""


Net.__name__ = "Net<script>&"


def sick() -> Diagnosis:
    net = Net(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 2))
    with torch.no_grad():
        net[2].bias[:10] = 9
    return diagnose(net, 2 * torch.randn(300, 6))


def test_kde_grid_outlines_the_dormant_neurons() -> None:
    report = sick()
    figure = report.plot_kde("3")
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 16
    layer = report["3"]
    for axes, neuron in zip(figure.axes, layer.drawn_neurons, strict=True):
        red = to_hex(axes.spines["left"].get_edgecolor()) == RED
        assert red == bool(layer.dormant_mask[neuron])
        assert f"neuron {neuron}," in axes.get_title()
        assert axes.get_xlim() == (-1.25, 1.25)
    assert 0 < sum(layer.dormant_mask[layer.drawn_neurons]) < 16


def test_kde_grid_of_a_small_or_unbounded_layer() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.ELU(), nn.Linear(5, 1))
    figure = diagnose(net, 5 * torch.randn(100, 3)).plot_kde()
    assert sum(axes.get_visible() for axes in figure.axes) == 5


def test_health_figure_shows_the_reports_numbers() -> None:
    report = sick()
    left, middle, right = report.plot().axes[:3]
    # From the bottom up, the last layer first.
    widths = [bar.get_width() for bar in left.patches]
    np.testing.assert_allclose(widths, [100 * layer.dormant_fraction for layer in report][::-1])
    ranks = [bar.get_width() for bar in middle.patches]
    expected = [100 * layer.effective_rank / layer.full_rank for layer in report]
    np.testing.assert_allclose(ranks, expected[::-1])
    assert [label.get_text() for label in left.get_yticklabels()] == ["3", "1"]
    shares = np.array([bar.get_width() for bar in right.patches]).reshape(3, 2)
    np.testing.assert_allclose(shares.sum(axis=0), 100)
    np.testing.assert_allclose(shares[1], [100 * layer.hidden_bias_share for layer in report][::-1])


def test_page_is_complete_escaped_and_reproducible(tmp_path: Path) -> None:
    report = sick()
    pages = [tmp_path / "new" / "folder" / "one.html", tmp_path / "two.html"]
    for page in pages:
        report.save_html(page)
    text = pages[0].read_text()
    assert text == pages[1].read_text()
    assert "<script" not in text
    assert "Net&lt;script&gt;&amp;" in text
    assert "Measured on 300 observations" in text
    assert text.count("<svg") == 3  # the layers, and the neurons of each
    assert not re.search(r'(src|href)="?(https?:)?//', text.replace("http://www.w3.org", ""))
    for layer in report:
        assert f"<td>{layer.dormant_fraction:.1%}</td>" in text
        assert f"<td>{layer.effective_rank} / {layer.full_rank}</td>" in text
    for line in report.verdict().splitlines():
        assert line.replace("'", "&#x27;") in text


def test_only_coordinates_are_shortened_on_a_page() -> None:
    figure = new_figure(4, 2)
    axes = figure.subplots()
    axes.plot([1 / 3, 2 / 3], [1 / 3, 1])
    axes.set_xticks([1 / 3, 2 / 3], ["learning_rate 0.0001", "0.0002"])
    axes.set_yticks([0.333], ["0.005 > 0.004"])
    text = svg(figure, "small")
    for label in ("learning_rate 0.0001", "0.0002", "0.005 &gt; 0.004"):
        assert f">{label}</text>" in text
    lines = re.findall(r' d="(M[^"]*)"', text)
    assert lines
    assert not any(re.search(r"\d\.\d{3}", line) for line in lines)


def comparison(path: Path) -> None:
    healthy = nn.Sequential(HadamardLinear(6, 20), HadamardLinear(20, 20), nn.Linear(20, 2))
    curve = new_figure(4, 2)
    curve.subplots().plot([1, 2, 3])
    save_comparison(
        path,
        {"tanh": sick(), "tanh + HR": diagnose(healthy, 9 * torch.randn(300, 6))},
        title="Two networks",
        intro="First paragraph.\nSecond.",
        figures={"A curve": curve},
    )


def test_comparison_shows_both_networks(tmp_path: Path) -> None:
    comparison(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("<svg") == 6
    assert "<p>First paragraph.</p><p>Second.</p>" in text
    assert "<figcaption>A curve</figcaption>" in text
    with pytest.raises(ValueError, match="nothing to compare"):
        save_comparison(tmp_path / "none.html", {}, title="Nothing")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [1200, 420])
def test_page_in_a_real_browser(tmp_path: Path, width: int) -> None:
    """It loads without a console message and nothing sticks out sideways, on a phone either."""
    page = tmp_path / "page.html"
    comparison(page)
    probe = tmp_path / "probe.html"
    # Chromium's own window is never narrower than about 500 pixels; a frame can be.
    probe.write_text(
        f'<iframe id="f" src="page.html" style="width:{width}px;height:900px;border:0"></iframe>'
        "<script>window.onload = () => { const d = document.getElementById('f').contentDocument;"
        "const e = d.documentElement; document.title = [e.scrollWidth, e.clientWidth,"
        " d.querySelectorAll('svg').length, d.querySelectorAll('td').length].join(' ') }</script>"
    )
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--allow-file-access-from-files", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", probe.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    title = re.search(r"<title>(\d+) (\d+) (\d+) (\d+)</title>", done.stdout)
    assert title, done.stdout[:500] + done.stderr[-2000:]
    scroll_width, client_width, svgs, cells = map(int, title.groups())
    assert scroll_width <= client_width, f"{scroll_width - client_width} px stick out"
    assert svgs == 6
    assert cells == 4 * 8
    assert "CONSOLE" not in done.stderr


def test_the_demo_runs_and_reads_its_own_numbers(tmp_path: Path) -> None:
    script = Path(__file__).parent.parent / "examples" / "tanh_vs_hadamard.py"
    options = ["--output", str(tmp_path), "--seeds", "1", "--tasks", "2", "--steps", "5"]
    done = subprocess.run([sys.executable, script, *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert {"index.html", "curves.png", "kde_tanh.png", "kde_tanh_hr.png"} <= names
    assert "After the last task, mean of 1 seed:" in done.stdout
    assert "Open" in done.stdout
    bad = subprocess.run([sys.executable, script, "--tasks", "0"], capture_output=True, text=True)
    assert bad.returncode == 2
    assert "--tasks must be at least 1, got 0" in bad.stderr
