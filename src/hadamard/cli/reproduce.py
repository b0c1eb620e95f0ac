"""`hadamard reproduce`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from hadamard.cli.common import parse
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments import reproduce
from hadamard.experiments.drawing import DrawingOptions, draw
from hadamard.experiments.paper import listing
from hadamard.experiments.sweep.options import Options


@dataclass(frozen=True)
class _Reproduce:
    """Make the paper's figures and tables: train the runs they need, then draw them.

    Each figure or table is written to a folder of its name: the figure (SVG, PNG, PDF), its tables
    (CSV, LaTeX) and a page with the paper's numbers and claims beside ours. A run that several
    experiments need is trained once, and a finished run is not trained again. With --draw nothing
    is trained.
    """

    options: Annotated[Options, tyro.conf.arg(name=""), tyro.conf.FlagCreatePairsOff]
    drawing: Annotated[DrawingOptions, tyro.conf.arg(name="")]
    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Names of figures and tables, or all of the paper's; --list shows them."""
    list: bool = False
    """List the experiments and do nothing else: name, place in the paper, what each shows."""
    scale: str = "smoke"
    """How large the experiments are.
    smoke: seconds a run, to see that everything works; minatar: for a laptop; paper: as published
(our own experiments: in full);
    minatar-full: MinAtar's games at published budgets, ten seeds."""
    folder: Path = Path("runs/paper")
    """Folder for the runs, which go into a subfolder named after the scale."""
    seeds: int | None = None
    """How many seeds are trained; by default as many as the scale has."""
    tasks: str = ""
    """Only these tasks, separated by commas."""
    share: float = 1.0
    """The share of the scale's steps that every run is trained for, above 0 and at most 1.
    Schedules, warm-up and the intervals of logging and diagnoses are shortened likewise."""
    until: int | None = None
    """Stop every run after this many steps, with the schedules of its full length.
    A later call with more steps continues it, a call without --until trains it to the end."""
    dry_run: bool = False
    """Train nothing: print the runs, how many are finished, and what the rest takes here."""


def main(words: list[str]) -> int:
    """Run the command."""
    flags = parse(_Reproduce, words, "hadamard reproduce", plugins=False)
    if flags.list:
        print(listing())
        return 0
    tasks = tuple(flags.tasks.split(",")) if flags.tasks else ()
    request = reproduce.Request(
        flags.names, flags.scale, flags.folder, flags.seeds, tasks, flags.share, flags.until
    )
    if flags.dry_run:
        print(reproduce.dry_run(request, flags.options))
        return 0
    flags.drawing.check()
    exit_code = 0
    if not flags.drawing.draw:
        exit_code = reproduce.train_runs(request, flags.options).exit_code
        if exit_code == INTERRUPTED:
            return exit_code
        for problem in reproduce.relearn_runs(request):
            print(f"hadamard: left out: {problem}", file=sys.stderr)
    for page in draw(request, flags.drawing):
        print(f"wrote {page}")
    return exit_code
