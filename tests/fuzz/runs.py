"""Tiny runs to damage: one that is finished, one that was stopped."""

from __future__ import annotations

from pathlib import Path

from hadamard.core.stopping import INTERRUPTED
from tests.fuzz import isolated
from tests.fuzz.isolated import Case
from tests.fuzz.options import tiny

STOPS = {"dqn": 30, "mrq": 30, "pqn": 6, "ppo": 18, "simbav2": 30}
"""Steps of the environments after which a run is stopped, about three quarters of it."""


def write(folder: Path, algorithm: str = "dqn") -> Path:
    """Train both runs, and return the folder that holds ``finished`` and ``interrupted``."""
    runs = folder / "runs" / algorithm
    whole = Case("train", tiny(algorithm, str(runs / "finished")))
    stopped = Case(
        "train and stop", tiny(algorithm, str(runs / "interrupted")), steps=STOPS[algorithm]
    )
    ends = [end for _, end in isolated.run([whole, stopped], folder)]
    if [end.code for end in ends] != [0, INTERRUPTED]:
        raise RuntimeError(f"the runs to damage were not made: {ends}")
    return runs
