"""`hadamard report` where nothing but torch and numpy is installed: the comparison as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from hadamard.cli.common import UserError
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import gather
from hadamard.report.pages.text_report import text_report
from hadamard.text import install

_USAGE = f"""usage: hadamard report RUNS...

Compare runs: scores, dormancy, rank, hidden bias. RUNS are run folders, packed runs (.hrun), or
folders that contain either. Only torch and numpy are installed, so the comparison is printed.
Pages, figures and all options: {install("report")}"""


def main(words: Sequence[str]) -> int:
    """Run the command."""
    if words and words[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    if options := [word for word in words if word.startswith("-")]:
        raise UserError(f"{options[0]} needs more packages: {install('report')}")
    if not words or "" in words:
        raise UserError("nothing to compare: name run folders, or a folder that contains runs")
    print_report(*gather([Path(word) for word in words]))
    return 0


def print_report(runs: Sequence[RunData], troubles: Sequence[str]) -> None:
    """Print the comparison, and how to get the page."""
    print(text_report(runs, troubles))
    print(f"\nFor the page with figures: {install('report')}", file=sys.stderr)
