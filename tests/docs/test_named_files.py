"""The pages that explain the code name files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hadamard
from tests.support.pages import DOCS, PAGES, name, table
from tests.support.paths import ROOT
from tests.support.plugins import files_of

SOURCE = Path(hadamard.__file__).parent
PATH = re.compile(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+(?:\.py)?|[a-z_0-9/]+\.py)`")


def in_code(page: Path) -> set[str]:
    """Paths in backquotes that lie in a room of the source, or end as Python files do."""
    rooms = {path.name for path in SOURCE.iterdir()} | {"src", "tests", "benchmarks", "examples"}
    named = set(PATH.findall(page.read_text()))
    return {path for path in named if path.endswith(".py") or path.partition("/")[0] in rooms}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_named_are_there(page: Path) -> None:
    own = {path for path in in_code(page) if path.endswith("/x.py")} | {*files_of(page)}
    for path in in_code(page) - own:
        places = (ROOT / path, SOURCE / path, ROOT / "benchmarks" / path)
        assert any(place.exists() for place in places), f"{page.name} names {path}"


def test_a_stop_of_the_walk_names_one_file() -> None:
    walk = DOCS / "walkthrough.md"
    stops = [row[0] for part in walk.read_text().split("\n## ") for row in table(part, "stop")]
    assert len(stops) > 30
    for stop in stops:
        assert (SOURCE / stop).is_file(), stop


def test_the_rooms_of_the_architecture_are_the_folders() -> None:
    drawing = (ROOT / "docs" / "architecture.md").read_text().partition("```")[2]
    rooms = re.findall(r"^  (\w+)/ ", drawing.partition("```")[0], re.M)
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert set(rooms) == folders
