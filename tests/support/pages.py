"""The pages of the documentation: their prose, code and tables."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted(DOCS.rglob("*.md")),
]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def name(page: Path) -> str:
    """The page's path, as the name of a test."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language and the text of every block of code."""
    return _FENCED.findall(page.read_text())


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _FENCED.sub("", page.read_text())


def inline_code(page: Path) -> list[str]:
    """What stands in backquotes, with line breaks as spaces."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


def section(page: Path, heading: str) -> str:
    """The text under a second-level heading."""
    return page.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]


def table(text: str, first: str) -> list[list[str]]:
    """The rows, without backquotes, of the first table whose head begins with this cell."""
    body = text.partition(f"| {first} |")[2]
    lines = itertools.takewhile(lambda line: line.startswith("|"), body.splitlines()[1:])
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines][1:]
