"""Mirrors of a run's streams in TensorBoard and Weights & Biases.

The run folder is the record. A mirror that fails is switched off with a warning, and training
goes on.
"""

from __future__ import annotations

import importlib.util
import uuid
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hadamard.core.run import write_atomically


class Mirror(Protocol):
    """Where scalars are shown besides the run folder."""

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""

    def close(self) -> None:
        """Finish."""


class TensorBoard:
    """Scalars as TensorBoard event files in the run folder."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What an earlier process showed of later steps is shown again: TensorBoard drops it from
        # this step on. That of the checkpoint itself stays.
        self.writer = SummaryWriter(str(folder), purge_step=step + 1 if step else 0)

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish."""
        self.writer.close()


class WandB:
    """Scalars in a Weights & Biases project; a run that goes on, goes on there too."""

    def __init__(self, project: str, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb

        self.run = wandb.init(
            project=project,
            name=folder.name,
            config=dict(config),
            id=_kept_id(folder / "wandb-id"),
            resume="allow",
        )
        # The service counts calls by itself; all charts are to be over the run's steps.
        self.run.define_metric("*", step_metric="step")

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""
        self.run.log({**values, "step": step})

    def close(self) -> None:
        """Finish."""
        self.run.finish()


def _kept_id(file: Path) -> str:
    """Return the service's name of a run; its folder's may be that of other runs too."""
    if not file.exists():
        write_atomically(file, f"{uuid.uuid4().hex}\n")
    return file.read_text().strip()


class Mirrors:
    """All mirrors of a run, which is at some step; one that fails is dropped."""

    def __init__(
        self,
        folder: Path,
        step: int,
        *,
        tensorboard: bool,
        wandb: str | None,
        config: Mapping[str, Any],
    ) -> None:
        self.mirrors: list[Mirror] = []
        if tensorboard and importlib.util.find_spec("tensorboard") is not None:
            self._open(lambda: TensorBoard(folder / "tensorboard", step))
        if wandb is not None:
            self._open(lambda: WandB(wandb, folder, config))

    def _open(self, make: Any) -> None:
        try:
            self.mirrors.append(make())
        except Exception as error:
            warnings.warn(f"training goes on without a mirror: {error}", stacklevel=3)

    def add(self, values: Mapping[str, Any], step: int) -> None:
        """Show every number among the values."""
        numbers = {name: v for name, v in values.items() if isinstance(v, int | float)}
        if not numbers:
            return
        for mirror in list(self.mirrors):
            try:
                mirror.add(numbers, step)
            except Exception as error:
                name = type(mirror).__name__
                warnings.warn(f"{name} is off from step {step}: {error}", stacklevel=2)
                self.mirrors.remove(mirror)

    def close(self) -> None:
        """Finish all mirrors."""
        for mirror in self.mirrors:
            try:
                mirror.close()
            except Exception as error:
                warnings.warn(f"{type(mirror).__name__} did not close: {error}", stacklevel=2)
        self.mirrors = []
