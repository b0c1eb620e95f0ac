"""Mirrors of a run's streams in TensorBoard and Weights & Biases.

The run folder is the record. A mirror that fails is switched off with a warning, and training
goes on.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Mirror(Protocol):
    """Where scalars are shown besides the run folder."""

    def add(self, name: str, value: float, step: int) -> None:
        """Show one value."""

    def close(self) -> None:
        """Finish."""


class TensorBoard:
    """Scalars as TensorBoard event files in the run folder."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder))

    def add(self, name: str, value: float, step: int) -> None:
        """Show one value."""
        self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish."""
        self.writer.close()


class WandB:
    """Scalars in a Weights & Biases project."""

    def __init__(self, project: str, name: str, config: Mapping[str, Any]) -> None:
        import wandb

        self.run = wandb.init(project=project, name=name, config=dict(config))

    def add(self, name: str, value: float, step: int) -> None:
        """Show one value."""
        self.run.log({name: value, "step": step})

    def close(self) -> None:
        """Finish."""
        self.run.finish()


class Mirrors:
    """All mirrors of a run; one that fails is dropped."""

    def __init__(
        self, folder: Path, *, tensorboard: bool, wandb: str | None, config: Mapping[str, Any]
    ) -> None:
        self.mirrors: list[Mirror] = []
        if tensorboard and importlib.util.find_spec("tensorboard") is not None:
            self._open(lambda: TensorBoard(folder / "tensorboard"))
        if wandb is not None:
            self._open(lambda: WandB(wandb, folder.name, config))

    def _open(self, make: Any) -> None:
        try:
            self.mirrors.append(make())
        except Exception as error:
            warnings.warn(f"training goes on without a mirror: {error}", stacklevel=3)

    def add(self, values: Mapping[str, Any], step: int) -> None:
        """Show every number among the values."""
        for mirror in list(self.mirrors):
            try:
                for name, value in values.items():
                    if isinstance(value, int | float):
                        mirror.add(name, value, step)
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
