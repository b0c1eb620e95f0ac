"""What README and docs show is run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), flags=re.M | re.S)


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run_and_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("matplotlib", "tensorboard", "stable_baselines3"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    printed = ""
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, f"{page.name} snippet", "exec"), namespace)
            printed = capsys.readouterr().out
        elif language == "text":
            assert close(text, printed), f"{page.name} shows:\n{text}\nbut it prints:\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_a_stale_number_would_be_noticed() -> None:
    assert close("dormant 37.5%  37/64", "dormant  37.5% 36/64")
    assert not close("dormant 37.5%", "dormant 42.5%")
    assert not close("dormant 37.5%", "dead 37.5%")
