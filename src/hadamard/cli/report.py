"""`hadamard report`. Needs no torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from hadamard.cli.common import UserError, parse
from hadamard.cli.text_report import print_report
from hadamard.core import discover
from hadamard.report.data.imported import ImportedCurve, read_curves
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import gather
from hadamard.report.draw.pictures import save_figure
from hadamard.report.pages.comparison import overview, write_comparison
from hadamard.report.pages.full_report import write_report
from hadamard.report.pages.output import check_figure, check_output
from hadamard.report.statistics.normalize import NORMALIZATIONS


@dataclass(frozen=True)
class _Report:
    """Compare runs: scores, dormancy, rank, hidden bias.

    A name that ends in .html is one plain page, with the range of the seeds. Any other is a
    folder, with the full report in index.html: tasks taken together, 95 % intervals and the
    paper's numbers, every figure as SVG and PNG too, every table as CSV and LaTeX.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, packed runs (.hrun), or folders that contain either."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The plain page (.html), or the folder of the full report.
    Without matplotlib the default is to print the comparison instead."""
    title: str = "Runs compared"
    """Title of the page or of the report."""
    normalize: Literal["auto", *NORMALIZATIONS] = "auto"  # type: ignore[valid-type]
    """The full report's scale to take tasks together on; auto: the paper's for the algorithm."""
    curves: Path | None = None
    """Curves of other methods for the full report: CSV with method, env, seed, step and score."""
    figure: Path | None = None
    """Also draw score, dormancy, rank and hidden bias into this file (.png, .svg, .pdf)."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(_Report, words, "hadamard report")
    if not options.runs:
        raise UserError("nothing to compare: name run folders, or a folder that contains runs")
    without_figures = importlib.util.find_spec("matplotlib") is None
    if without_figures and options.figure is None and options.output == _Report.output:
        print_report(*gather(options.runs))
        return 0
    check_output(options.output)
    if options.figure is not None:
        check_figure(options.figure)
    runs, troubles = gather(options.runs)
    if options.output.suffix == ".html":
        if options.curves is not None or options.normalize != "auto":
            raise UserError(
                "--curves and --normalize belong to the full report: name a folder with -o, not "
                f"the page {options.output}"
            )
        page = options.output
        write_comparison(page, runs, options.title, _default_settings(), troubles)
    else:
        page = write_report(
            options.output, runs, options.title, _default_settings(), troubles,
            normalization=None if options.normalize == "auto" else options.normalize,
            curves=[] if options.curves is None else _curves(options.curves, runs),
        )  # fmt: skip
    print(f"wrote {page} from {len(runs)} run{'s' if len(runs) != 1 else ''}")
    if wrong := len(troubles) + sum(bool(run.troubles) for run in runs):
        message = f"{wrong} of the runs could not be used, or not in full"
        print(f"{message}; the page says which and why", file=sys.stderr)
    if options.figure is not None:
        save_figure(overview(runs), options.figure, dpi=130)
        print(f"wrote {options.figure}")
    return 0


def _curves(path: Path, runs: Sequence[RunData]) -> list[ImportedCurve]:
    """Read other methods' curves, and refuse a file without a curve on any of the runs' tasks."""
    curves = read_curves(path)
    tasks = sorted({run.env for run in runs})
    if not any(curve.env in tasks for curve in curves):
        raise UserError(
            f"{path} has curves on {', '.join(sorted({c.env for c in curves}))}, and the runs are "
            f"on {', '.join(tasks)}"
        )
    return curves


def _default_settings() -> Callable[[str, str], dict[str, Any]] | None:
    """Return a function for an algorithm's defaults, for shorter commands; None without torch."""
    try:
        from hadamard.core.config import to_dict
        from hadamard.training.start import default_spec
    except ImportError:
        return None

    def defaults(algorithm: str, env: str) -> dict[str, Any]:
        # An installed package is not imported because a run names it.
        if algorithm not in discover.names(discover.ALGORITHMS, installed=False):
            raise LookupError(algorithm)
        return to_dict(default_spec(algorithm, env))

    return defaults
