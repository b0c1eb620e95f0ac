"""The page that compares runs: complete, escaped, and in a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.browser import CHROMIUM
from tests.support.runs import measured, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import load
from hadamard.report.pages import comparison
from hadamard.report.pages.comparison import write_comparison


def example(folder: Path) -> list[RunData]:
    healthy = [measured(0.1, 3.0, 0.05), measured(0.2, 3.0, 0.1)]
    hostile = "suite/<script>alert(1)</script>&"
    for env in ("minatar/breakout", hostile):
        for seed in (0, 1):
            name = f"{env[:8].replace('/', '-')}{seed}"
            snapshots = [100, 900] if env != hostile else []
            health = healthy if env != hostile else []
            write_run(folder / f"a{name}", seed, env=env, health=health, snapshots=snapshots)
            write_run(folder / f"b{name}", seed, "hadamard", env=env, score=2.0, health=health)
    write_run(folder / "c", 0, "<b>&", health=[measured(None, None, None)], finished=False)
    return load([folder])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    path = folder / "new" / "page.html"
    write_comparison(path, example(folder / "runs"), title="A <title>")
    return path


def test_page_is_complete_escaped_and_reproducible(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    write_comparison(tmp_path / "two.html", load([page.parents[1] / "runs"]), title="A <title>")
    assert text == (tmp_path / "two.html").read_text()
    assert "<script" not in text
    assert "<b>" not in text
    assert "A &lt;title&gt;" in text
    assert "PQN on suite/&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in text
    assert not re.search(r'(src|href)="?(https?:)?//', text.replace("http://www.w3.org", ""))
    assert "9 runs, 8 finished" in text
    assert "after 10% of the budget (100 steps)" in text
    assert "after 90% of the budget (900 steps)" in text
    assert "(1 at 1,000 steps)" in text  # the unfinished run in the table
    assert "Not measured at the end: tanh + &lt;b&gt;&amp;" in text
    assert "1 to 2 seeds for each variant." in text
    assert "The runs have no diagnosis of the representation" in text  # of the second environment
    assert text.count("hadamard train pqn --env") == 9
    # Legends of 3 and 2, curves of 3 and 1, hidden bias over training and in parts, 2 densities.
    assert text.count("<svg") == 5 + 4 + 2 + 2
    assert "nan" not in re.sub("<svg.*?</svg>", "", text, flags=re.DOTALL)


def test_the_curves_show_the_runs_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_figures = []
    real = comparison.figures.curves

    def spy(*arguments: Any, **options: Any) -> Any:
        drawn_figures.append(real(*arguments, **options))
        return drawn_figures[-1]

    monkeypatch.setattr(comparison.figures, "curves", spy)
    runs = [run for run in example(tmp_path / "runs") if run.finished and "minatar" in run.env]
    write_comparison(tmp_path / "page.html", runs, title="Curves")
    scores, dormant, ranks, hidden = drawn_figures
    # Per variant a thin line for each of the two seeds, then the mean.
    tanh, hr = scores.axes[0].lines[2], scores.axes[0].lines[5]
    assert (tanh.get_ydata()[-1], hr.get_ydata()[-1]) == (1, 2)
    assert tanh.get_color() != hr.get_color()
    assert tanh.get_marker() != hr.get_marker()
    np.testing.assert_allclose(dormant.axes[0].lines[2].get_ydata(), [10, 20])
    np.testing.assert_allclose(ranks.axes[0].lines[2].get_ydata(), [3, 3])
    np.testing.assert_allclose(hidden.axes[0].lines[2].get_ydata(), [5, 10])
    assert ranks.axes[0].get_ylabel() == "directions (of 4)"
    assert scores.axes[0].get_xlabel() == "training steps"


def test_reading_runs_needs_no_torch() -> None:
    script = "import sys, hadamard.report.pages.comparison; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_page_in_a_real_browser(page: Path, tmp_path: Path) -> None:
    """It loads without a console message and nothing sticks out sideways, on a phone either."""
    opened = page.read_text().replace("<details>", "<details open>")
    (tmp_path / "page.html").write_text(opened)
    widths = (1200, 400)
    frames = "".join(
        f'<iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe>'
        for width in widths
    )
    (tmp_path / "probe.html").write_text(
        f"{frames}<script>window.onload = () => {{ document.title = "
        "[...document.querySelectorAll('iframe')].map(f => { const d = f.contentDocument;"
        "const e = d.documentElement; return [e.scrollWidth, e.clientWidth,"
        "d.querySelectorAll('svg').length].join(' ') }).join(' ') }</script>"
    )
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--allow-file-access-from-files", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
            (tmp_path / "probe.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    title = re.search(r"<title>([\d ]+)</title>", done.stdout)
    assert title, done.stdout[:500] + done.stderr[-2000:]
    numbers = list(map(int, title.group(1).split()))
    assert len(numbers) == 3 * len(widths)
    for scroll_width, client_width, svgs in zip(*[iter(numbers)] * 3, strict=True):
        assert scroll_width <= client_width, f"{scroll_width - client_width} px stick out"
        assert svgs == 13
    assert "CONSOLE" not in done.stderr
