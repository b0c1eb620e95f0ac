"""What README and docs show is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import DOCS, PAGES, blocks, name
from tests.support.paths import ROOT


def close(shown: str, printed: str) -> bool:
    """The same words, and numbers that differ by no more than another processor's rounding."""
    number = r"[\d,]+\.?\d*"
    words = [re.sub(number, "#", text).split() for text in (shown, printed)]
    values = [
        [float(v.replace(",", "") or 0) for v in re.findall(number, text)]
        for text in (shown, printed)
    ]
    return words[0] == words[1] and all(
        abs(a - b) <= 0.05 * max(abs(a), 1) for a, b in zip(*values, strict=True)
    )


NEEDED = {"flax": ["flax"], "lightning": ["lightning"], "trackers": ["wandb"]}
"""What the snippets of a page need beside what all pages need."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning")
@pytest.mark.filterwarnings("ignore::UserWarning:lightning")
@pytest.mark.filterwarnings("ignore::FutureWarning:lightning")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.own_process if page.stem == "flax" else ())
        for page in PAGES
    ],
    ids=name,
)
def test_snippets_run_and_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("matplotlib", "tensorboard", "stable_baselines3", *NEEDED.get(page.stem, ())):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    printed = ""
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, f"{page.name} snippet", "exec", dont_inherit=True), namespace)
            printed = capsys.readouterr().out
        elif language == "text":
            assert close(text, printed), f"{page.name} shows:\n{text}\nbut it prints:\n{printed}"


def test_the_home_shows_the_first_screen_of_the_readme() -> None:
    readme, home = (
        path.read_text().partition("# Hadamard\n")[2].partition("## Install")[0]
        for path in (ROOT / "README.md", DOCS / "index.md")
    )
    assert readme.count("![") == 1
    assert readme.replace("](docs/", "](") == home


def test_a_stale_number_would_be_noticed() -> None:
    assert close("dormant 37.5%  37/64", "dormant  37.5% 36/64")
    assert not close("dormant 37.5%", "dormant 42.5%")
    assert not close("dormant 37.5%", "dead 37.5%")
