"""`hadamard relearn`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from hadamard.cli.common import UserError, parse
from hadamard.report.data.runs import run_paths
from hadamard.training.relearning import Budget, relearn


@dataclass(frozen=True)
class _Relearn:
    """Fine-tune the networks of kept checkpoints on new targets, beside their measures.

    The targets are random ones on the network's own observations, and the returns of another game
    of the suite. Results go to relearning.json in each run's folder, which `hadamard pack` keeps;
    `hadamard reproduce measures` draws which measure predicts them. Train the runs with
    --train.keep-every, which keeps more checkpoints than the newest two.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that contain runs."""
    budget: Annotated[Budget, tyro.conf.arg(name="")] = field(default_factory=Budget)
    again: bool = False
    """Replace results of the same budget, which are otherwise left as they are."""
    device: str = "auto"
    """cpu, cuda, ...; auto uses a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(_Relearn, words, "hadamard relearn")
    if not options.runs:
        raise UserError("nothing to relearn: name run folders, or a folder that contains runs")
    sources = run_paths(options.runs)
    folders = [path for path in sources.paths if path.is_dir()]
    packed = len(sources.paths) - len(folders)
    problems = list(sources.troubles)
    if packed:
        problems.append(f"{packed} packed runs hold no weights: name their folders")
    try:
        problems += relearn(folders, options.budget, options.device, again=options.again)
    except ValueError as error:
        raise UserError(str(error)) from None
    for problem in problems:
        print(f"hadamard: left out: {problem}", file=sys.stderr)
    return 0
