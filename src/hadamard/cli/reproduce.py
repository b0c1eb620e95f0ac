"""`hadamard reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from hadamard.cli.common import INTERRUPTED, parse
from hadamard.experiments import drawing, reproduce
from hadamard.experiments.paper import listing
from hadamard.experiments.sweep import Options


@dataclass(frozen=True)
class _Reproduce:
    """Make the paper's figures and tables: train what they need, then draw them.

    Each ends as a folder of its name: the figure (SVG, PNG, PDF), its tables (CSV, LaTeX) and a
    page with the paper's numbers and claims beside ours. Runs that several need are made once,
    finished ones not again. --draw trains nothing and draws what is there.
    """

    options: Annotated[Options, tyro.conf.arg(name="")]
    drawing: Annotated[drawing.Options, tyro.conf.arg(name="")]
    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Figures and tables by their names, or all."""
    list: bool = False
    """Only list the experiments, one a line: name, place in the paper, what it shows."""
    scale: str = "smoke"
    """smoke: seconds a run, to see that all works; minatar: a laptop; paper: as published;
    minatar-full: MinAtar's games at published budgets, ten seeds."""
    folder: Path = Path("runs/paper")
    """Where the runs go, in a folder named after the scale."""
    seeds: int | None = None
    """How many seeds; by default as many as the scale has."""
    tasks: str = ""
    """Only these tasks, with commas between them."""
    share: float = 1.0
    """How much of the scale's steps a run is trained for.
    Schedules, warm-up, logging and diagnoses shrink along."""
    until: int | None = None
    """Stop every run after this many steps, with its full-length schedules.
    A later call with more steps carries on, one without this to the end."""
    dry_run: bool = False
    """Only print the grid, how many runs are finished, and what the rest would take here."""


def main(words: list[str]) -> int:
    """Run the command."""
    asked = parse(_Reproduce, words, "hadamard reproduce")
    if asked.list:
        print(listing())
        return 0
    tasks = tuple(asked.tasks.split(",")) if asked.tasks else ()
    wanted = reproduce.Asked(
        asked.names, asked.scale, asked.folder, asked.seeds, tasks, asked.share, asked.until
    )
    if asked.dry_run:
        print(reproduce.dry_run(wanted, asked.options))
        return 0
    asked.drawing.check()
    code = 0
    if not asked.drawing.draw:
        code = reproduce.make_runs(wanted, asked.options).code
        if code == INTERRUPTED:
            return code
    for page in drawing.draw(wanted, asked.drawing):
        print(f"wrote {page}")
    return code
