"""A training run in the form in which a report uses it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hadamard.core import identity
from hadamard.report.data.densities import Snapshot
from hadamard.report.data.relearned import Relearned
from hadamard.report.data.series import FloatArray, IntArray, Series
from hadamard.report.measures import PART_SHARES, RECORDED, SCORES, ScoreKind


@dataclass(frozen=True, eq=False)
class RunData:
    """What a report reads from one run, which is a folder or a packed file."""

    path: Path
    """The run's folder, or its packed file."""
    name: str
    """The name of its folder."""
    label: str
    """The variant in words, such as "tanh + HR"; on one task, its runs differ in the seed only."""
    algorithm: str
    spec: Mapping[str, Any]
    """All settings except the run's folder: ``{"net.layer": "hadamard", ...}``."""
    versions: Mapping[str, str]
    commit: str | None
    protocol: int
    """The version of the training protocol; only runs of one version compare."""
    plugins: Mapping[str, Mapping[str, Any]]
    """What it records of the plugins that it was trained with, see `core.plugin_records`."""
    machine: str
    """The device it ran on, as far as it is recorded."""
    summary: Mapping[str, float] | None
    """The closing summary's numbers; None while the run is not finished."""
    reached: int
    """The last step of which there is a record; a finished run reached at least its horizon."""
    scores: Mapping[ScoreKind, Series]
    """By kind, thinned to a few places of the budget."""
    finals: Mapping[ScoreKind, float]
    """The final score of each kind, from all episodes; NaN where there is none."""
    episodes: int
    lost_episodes: int
    """Training episodes left out because their score is not a finite number."""
    health_steps: IntArray
    layers: Mapping[str, Mapping[str, FloatArray]]
    """Measures of every diagnosed layer at ``health_steps``, NaN where they are missing."""
    network: Mapping[str, FloatArray]
    """Measures of the whole network at ``health_steps``."""
    representation: str
    """The layer whose health is shown; "" if there is no diagnosis."""
    relearned: Relearned | None
    """What the networks of kept checkpoints relearned; None if that was not tried."""
    threshold: float | None
    """The threshold of dormancy of the last diagnosis."""
    delta: float | None
    """The threshold of the effective rank of the last diagnosis."""
    steps_per_second: float
    seconds: float
    """Wall time so far."""
    troubles: Sequence[str]
    """Which parts of it could not be read, and why."""
    read_snapshots: Callable[[], list[Snapshot]]
    """Reads the densities; of a folder this takes long, so it is done when they are drawn."""

    @functools.cached_property
    def snapshots(self) -> list[Snapshot]:
        """Densities after a tenth of the budget and at the end, as in the paper; or fewer."""
        return self.read_snapshots()

    @property
    def finished(self) -> bool:
        """Whether the run has a closing summary."""
        return self.summary is not None

    @property
    def health(self) -> Mapping[str, FloatArray]:
        """Measures of the representation and of the whole network at ``health_steps``."""
        measures = self.layers.get(self.representation)
        if measures is None:
            missing = np.full(self.health_steps.shape, np.nan)
            measures = dict.fromkeys((*RECORDED, *PART_SHARES), missing)
        return {**measures, **self.network}

    @property
    def score_kind(self) -> ScoreKind:
        """What the run is judged by: evaluations, else greedy games, else training episodes."""
        return next(kind for kind in SCORES if kind in self.scores)

    def score_series(self, kind: ScoreKind | None = None) -> Series:
        """Return the scores of a kind over training; by default of the kind it is judged by.

        Empty if the run has no such scores.
        """
        empty = Series(np.empty(0, np.int64), np.empty(0))
        return self.scores.get(kind or self.score_kind, empty)

    @property
    def env(self) -> str:
        """The environment, as suite/task."""
        return str(self.spec["env"])

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.spec["seed"])

    @property
    def steps(self) -> int:
        """The budget, along which schedules run."""
        return int(self.spec["train.steps"])

    @property
    def horizon(self) -> int:
        """The step at which the run ends: its budget, unless it is stopped early."""
        return identity.horizon(self.spec)

    def final(self, measure: str) -> float:
        """Return a measure at the last step the run has reached; NaN if it is missing.

        ``score`` is of the kind the run is judged by; ``training_score``, ``greedy_score`` and
        ``evaluation_score`` are of the kind they name. `measures.SCORES` defines the kinds.
        """
        if measure == "score":
            return self.finals[self.score_kind]
        if measure.endswith("_score"):
            finals = {f"{kind}_score": value for kind, value in self.finals.items()}
            return finals.get(measure, math.nan)
        if measure == "steps_per_second":
            return self.steps_per_second
        values = self.health[measure]
        return float(values[-1]) if values.size else math.nan
