"""The trackers of a run: copies of its streams in the services of `hadamard.trackers`.

The run folder is the record. A tracker that fails is switched off with a warning, and training
continues.
"""

from __future__ import annotations

import importlib.util
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from hadamard.core.config import RunSpec, TrainSpec, to_dict
from hadamard.core.files import write_atomically
from hadamard.core.run import RunError
from hadamard.trackers import (
    NAMES,
    MLflow,
    TensorBoard,
    Tracker,
    Trackio,
    WandB,
    library,
    numbers,
)

_NAMED = ("wandb", "trackio", "mlflow")
"""The trackers that are asked for by name; TensorBoard is used where it is installed."""


def check(train: TrainSpec) -> None:
    """Refuse trackers that are asked for and not installed, before any work is done."""
    for name in _NAMED:
        project = getattr(train, name)
        if project is None:
            continue
        if not project.strip():
            raise RunError(f"--train.{name} needs a name: that of a project, or leave it out")
        try:
            library(name)
        except ImportError as error:
            raise RunError(f"--train.{name} {project}: {error}") from None


def _run_id(file: Path) -> str:
    """Return the run's id at the service, kept in a file; folder names need not be unique."""
    if not file.exists():
        write_atomically(file, f"{uuid.uuid4().hex}\n")
    return file.read_text().strip()


class Trackers:
    """All trackers of a run that starts or resumes at a step; one that fails is dropped."""

    def __init__(
        self,
        folder: Path,
        step: int,
        *,
        tensorboard: bool,
        wandb: str | None,
        config: Mapping[str, Any],
        trackio: str | None = None,
        mlflow: str | None = None,
    ) -> None:
        self.trackers: list[Tracker] = []
        if tensorboard and importlib.util.find_spec("tensorboard") is not None:
            self._open("tensorboard", lambda: TensorBoard(folder / "tensorboard", step))
        if wandb is not None:
            run_id = _run_id(folder / "wandb-id")
            self._open("wandb", lambda: WandB(wandb, folder.name, config, run_id))
        if trackio is not None:
            self._open("trackio", lambda: Trackio(trackio, folder.name, config))
        if mlflow is not None:
            self._open("mlflow", lambda: MLflow(mlflow, folder.name, config))

    @classmethod
    def of_settings(cls, spec: RunSpec[Any], folder: Path, step: int) -> Self:
        """Open the trackers that a run's settings ask for."""
        train = spec.train
        return cls(
            folder,
            step,
            tensorboard=train.tensorboard,
            wandb=train.wandb,
            trackio=train.trackio,
            mlflow=train.mlflow,
            config=to_dict(spec),
        )

    def _open(self, name: str, make: Callable[[], Tracker]) -> None:
        try:
            self.trackers.append(make())
        except Exception as error:
            warnings.warn(f"training continues without {NAMES[name]}: {error}", stacklevel=3)

    def add(self, values: Mapping[str, Any], step: int) -> None:
        """Show all values that are finite numbers."""
        shown = numbers(values)
        if not shown:
            return
        for tracker in list(self.trackers):
            try:
                tracker.add(shown, step)
            except Exception as error:
                name = type(tracker).__name__
                warnings.warn(f"{name} is switched off at step {step}: {error}", stacklevel=2)
                self.trackers.remove(tracker)

    def close(self) -> None:
        """Finish all trackers."""
        for tracker in self.trackers:
            try:
                tracker.close()
            except Exception as error:
                warnings.warn(f"{type(tracker).__name__} did not close: {error}", stacklevel=2)
        self.trackers = []
