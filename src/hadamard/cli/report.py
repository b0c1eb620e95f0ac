"""`hadamard report`. Needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from hadamard.cli.common import UserError, parse
from hadamard.report.comparison import overview, write_comparison
from hadamard.report.folder import write_report
from hadamard.report.runs import gather


@dataclass(frozen=True)
class _Report:
    """Compare runs: scores, dormancy, rank, hidden bias, with intervals, on one page.

    A name that ends in .html is the page. Any other is a folder, with the full report in
    index.html, every figure as SVG and PNG and every table as CSV and LaTeX.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that contain runs."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page, or the folder."""
    title: str = "Runs compared"
    """Its title."""
    figure: Path | None = None
    """Also draw score, dormancy, rank and hidden bias into this file (.png, .svg, .pdf)."""


def main(words: list[str]) -> int:
    """Run the command."""
    asked = parse(_Report, words, "hadamard report")
    runs, troubles = gather(asked.runs)
    if asked.output.suffix == ".html":
        page = asked.output
        write_comparison(page, runs, asked.title, _default_settings(), troubles)
    else:
        if asked.output.exists() and not asked.output.is_dir():
            raise UserError(f"{asked.output} is a file: name a page (.html) or a folder")
        page = write_report(asked.output, runs, asked.title, _default_settings(), troubles)
    print(f"wrote {page} from {len(runs)} run{'s' if len(runs) != 1 else ''}")
    if wrong := len(troubles) + sum(bool(run.troubles) for run in runs):
        told = f"{wrong} of the runs could not be read in full; the page says which"
        print(told, file=sys.stderr)
    if asked.figure is not None:
        overview(runs).savefig(asked.figure, dpi=130)
        print(f"wrote {asked.figure}")
    return 0


def _default_settings() -> Callable[[str, str], dict[str, Any]] | None:
    """Return what tells an algorithm's defaults, for shorter commands; None without torch."""
    try:
        from hadamard.core.config import to_dict
        from hadamard.train import default_spec
    except ImportError:
        return None
    return lambda algorithm, env: to_dict(default_spec(algorithm, env))
