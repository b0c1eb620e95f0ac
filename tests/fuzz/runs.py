"""Tiny runs to damage: one that is finished, one that was stopped, and a packed one."""

from __future__ import annotations

from pathlib import Path

from hadamard.core import discover
from hadamard.core.identity import run_name
from hadamard.core.stopping import INTERRUPTED
from tests.fuzz import isolated
from tests.fuzz.isolated import Case
from tests.fuzz.options import REMEDY, settings, tiny
from tests.support.commands import flags

STOPS = {"dqn": 30, "mrq": 30, "pqn": 6, "ppo": 18, "simbav2": 30}
"""Steps of the environments after which a run is stopped, about three quarters of it."""


def write(folder: Path, algorithm: str = "dqn") -> Path:
    """Train both runs, pack one, and return the folder that holds them."""
    runs = folder / "runs" / algorithm
    finished, interrupted = str(runs / "finished"), str(runs / "interrupted")
    cases = [
        Case("train", tiny(algorithm, finished)),
        Case("train and stop", tiny(algorithm, interrupted), steps=STOPS[algorithm]),
        Case("pack", ("pack", finished, "-o", str(runs))),
    ]
    ends = [end for _, end in isolated.run(cases, folder)]
    if [end.code for end in ends] != [0, INTERRUPTED, 0]:
        raise RuntimeError(f"the runs to damage were not made: {ends}")
    return runs


def write_all(folder: Path) -> Path:
    """Train both runs of every algorithm, and return the folder that holds theirs."""
    for name in discover.names(discover.ALGORITHMS):
        write(folder, name)
    return folder / "runs"


def variant(algorithm: str) -> str:
    """Return the variant of a sweep that the runs belong to."""
    return "redo" if REMEDY.items() <= settings(algorithm).items() else "baseline"


def place(algorithm: str) -> str:
    """Return the folder in which a command, and a sweep, finds the run that was damaged."""
    return f"runs/{run_name(algorithm, settings(algorithm)['--env'], [variant(algorithm)], 0)}"


def sweep_words(algorithm: str, *more: str) -> tuple[str, ...]:
    """Return the command of a sweep that the run belongs to."""
    own = settings(algorithm)
    shared = {name: value for name, value in own.items() if name not in ("--env", *REMEDY)}
    grid = ("--envs", own["--env"], "--variants", variant(algorithm), "--seeds", "1")
    words = ("--", *flags(shared), "--train.no-tensorboard")
    return ("sweep", algorithm, *grid, "--folder", "runs", *more, *words)
