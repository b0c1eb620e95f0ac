"""Trackers: copies of a run's streams in TensorBoard and Weights & Biases.

The run folder is the record. A tracker that fails is switched off with a warning, and training
continues.
"""

from __future__ import annotations

import importlib.util
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from hadamard.core.files import write_atomically


class Tracker(Protocol):
    """A service that shows a run's scalars."""

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""

    def close(self) -> None:
        """Finish."""


class TensorBoard:
    """Scalars as TensorBoard event files in the run folder."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # A resumed run repeats the steps after its checkpoint; TensorBoard drops their old values.
        self.writer = SummaryWriter(str(folder), purge_step=step + 1 if step else 0)

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish."""
        self.writer.close()


class WandB:
    """Scalars in a Weights & Biases project; a resumed run continues the same one there."""

    def __init__(self, project: str, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self.run = wandb.init(
            project=project,
            name=folder.name,
            config=dict(config),
            id=_run_id(folder / "wandb-id"),
            resume="allow",
            reinit="create_new",  # beside those of other runs in this process
        )
        # By default the service plots over its own count of calls: use the run's steps.
        self.run.define_metric("*", step_metric="step")

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""
        self.run.log({**values, "step": step})

    def close(self) -> None:
        """Finish."""
        self.run.finish()


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
    ) -> None:
        self.trackers: list[Tracker] = []
        if tensorboard and importlib.util.find_spec("tensorboard") is not None:
            self._open("TensorBoard", lambda: TensorBoard(folder / "tensorboard", step))
        if wandb is not None:
            self._open("Weights & Biases", lambda: WandB(wandb, folder, config))

    def _open(self, name: str, make: Callable[[], Tracker]) -> None:
        try:
            self.trackers.append(make())
        except Exception as error:
            warnings.warn(f"training continues without {name}: {error}", stacklevel=3)

    def add(self, values: Mapping[str, Any], step: int) -> None:
        """Show all values that are numbers."""
        numbers = {name: v for name, v in values.items() if isinstance(v, int | float)}
        if not numbers:
            return
        for tracker in list(self.trackers):
            try:
                tracker.add(numbers, step)
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
