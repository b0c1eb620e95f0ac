"""The page about a diagnosis: complete, escaped, and in a real browser."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

from hadamard import HadamardLinear, diagnose
from hadamard.health import save_comparison
from tests.support.browser import CHROMIUM
from tests.support.health import sick

pytest.importorskip("matplotlib")
from hadamard.report.draw.figures import new_figure


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
