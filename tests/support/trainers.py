"""Trainers that a test drives step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hadamard.core.config import RunSpec, to_dict
from hadamard.core.run import Run
from hadamard.experiments.bench import Quiet
from hadamard.training.setup import Setup
from hadamard.training.trainer import Trainer


@contextmanager
def trainer_of(
    algorithm: str,
    spec: RunSpec[Any],
    folder: Path,
    *,
    resume: bool = False,
    prepare: Callable[[Setup], Any] = lambda setup: None,
) -> Iterator[Trainer]:
    """A trainer of a new or an existing run; ``prepare`` may change its parts first."""
    settings = {"algorithm": algorithm, "spec": to_dict(spec)}
    run = Run.open(folder) if resume else Run.create(folder, settings)
    with closing(run), closing(Setup(algorithm, spec)) as setup:
        prepare(setup)
        with closing(Trainer(setup, run, Quiet, resume=resume)) as trainer:
            yield trainer
