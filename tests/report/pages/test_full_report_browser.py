"""The report in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import CHROMIUM, Browser

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


FIRST = "document.querySelector('[data-chart=\"score-dqn-on-minatar-breakout\"]')"


def axis(browser: Browser) -> list[str]:
    labels: list[str] = browser.run(
        f"[...{FIRST}.querySelectorAll('.xtick')].map(t => t.textContent)"
    )
    return labels


def area(browser: Browser) -> dict[str, Any]:
    """Bring the first chart into sight and return where it is."""
    browser.run(f"{FIRST}.scrollIntoView({{block: 'center'}})")
    box: dict[str, Any] = browser.run(
        f"{FIRST}.querySelector('svg.live').getBoundingClientRect().toJSON()"
    )
    return box


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_it_renders(browser: Browser, report: Path, width: int, dark: bool) -> None:
    page = report / "index.html"
    browser.open(page, width, dark=dark)
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.requests == [page.as_uri()]
    assert browser.messages == []
    sizes = browser.run("[document.documentElement.scrollWidth, document.body.clientWidth]")
    assert sizes[0] <= width
    assert browser.run("document.querySelectorAll('svg.live').length") == 1 + 3 + 3 * 3
    assert browser.run("[...document.querySelectorAll('.static')].every(s => !s.offsetHeight)")
    paths = "[...document.querySelectorAll('svg.live path')].map(p => p.getAttribute('d')).join('')"
    assert "NaN" not in browser.run(paths)
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)))
    assert brightness < 150 if dark else brightness > 700
    # Text on a figure that matplotlib drew is as light or dark as the page's.
    ink, figure_ink = browser.run(
        "[document.body, document.querySelector('.wide svg text')].map(e => "
        "getComputedStyle(e)[e === document.body ? 'color' : 'fill'])"
    )
    assert ink == figure_ink


def test_the_legend_hides_a_variant(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html")
    curves = "document.querySelectorAll('svg.live g[data-variant=\"tanh + HR\"]').length"
    button = "document.querySelector('.variants button[data-variant=\"tanh + HR\"]')"
    assert browser.run(curves) == 13
    browser.run(f"{button}.focus()")
    browser.run(f"{button}.click()")
    assert browser.run(curves) == 0
    assert browser.run(f"{button}.getAttribute('aria-pressed')") == "false"
    assert browser.run("document.querySelectorAll('svg.live g[data-variant=tanh]').length") == 13
    browser.run(f"{button}.click()")
    assert browser.run(curves) == 13
    assert browser.messages == []


def test_dragging_zooms_and_the_button_shows_all(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html")
    before = axis(browser)
    assert (before[0], before[-1]) == ("0", "1k")
    box = area(browser)
    middle = box["y"] + box["height"] / 2
    browser.drag((box["x"] + 120, middle), (box["x"] + 180, middle))
    zoomed = axis(browser)
    assert zoomed != before
    assert "0" not in zoomed
    button = f"{FIRST}.querySelector('button')"
    assert browser.run(f"{button}.hidden") is False
    browser.run(f"{button}.click()")
    assert axis(browser) == before
    assert browser.run(f"{button}.hidden") is True


def test_pointer_and_keys_read_values(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html")
    box = area(browser)
    browser.mouse("mouseMoved", box["x"] + box["width"] - 10, box["y"] + 100)
    readout = f"{FIRST}.querySelector('.readout').textContent"
    text = browser.run(readout)
    assert "step 1,000" in text
    assert "ReLU 3.375 (2.861 to 3.889)" in text  # 3 + 0.25 * 1.5, and Student's interval
    browser.mouse("mouseMoved", 5, 5)
    assert browser.run(readout) == ""
    browser.run(f"{FIRST}.querySelector('svg.live').focus()")
    browser.key("End")
    assert "step 1,000" in browser.run(readout)
    browser.key("ArrowLeft")
    assert "step 990" in browser.run(readout)
    full_range = axis(browser)
    browser.key("+")
    assert axis(browser) != full_range
    browser.key("Escape")
    assert axis(browser) == full_range
    assert browser.messages == []


def test_without_scripts_there_are_pictures(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html", script=False)
    snapshot = browser.call("DOMSnapshot.captureSnapshot", computedStyles=["display"])
    strings = snapshot["strings"]
    names = [strings[i] for i in snapshot["documents"][0]["nodes"]["nodeName"]]
    assert names.count("BUTTON") == 0
    assert names.count("svg") > 13
    laid_out = snapshot["documents"][0]["layout"]
    assert len(laid_out["nodeIndex"]) > 500
