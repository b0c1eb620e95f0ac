"""Monitor: regular diagnoses in your own training loop."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import nn

from hadamard.health.diagnosis import Diagnosis, diagnose
from hadamard.health.network import NEED_EARLIER_WEIGHTS, Loss, Weights, choose, weights_of
from hadamard.text import install


class Monitor:
    """Diagnose a network every ``every`` steps; write to a JSONL file and optionally TensorBoard.

    Call ``step`` once per training step with a batch of inputs, or with a function that returns
    one, which is called only when a diagnosis is due. Keyword arguments of ``diagnose``
    (``layers``, ``forward``, ``positions``, ...) can be passed too.

    ``measures`` are those of ``diagnose``: ``gradient`` needs a ``loss(network, inputs)``, and for
    ``update`` and ``churn`` the monitor copies the weights at the call before a diagnosis.

    Examples:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        >>> observations = torch.randn(256, 4)
        >>> with Monitor(net, every=100, path=None) as monitor:
        ...     for _ in range(200):  # your training loop
        ...         report = monitor.step(lambda: observations)
        >>> report["1"].neurons
        8
    """

    def __init__(
        self,
        model: nn.Module,
        every: int = 1_000,
        path: str | os.PathLike[str] | None = "health.jsonl",
        tensorboard: str | os.PathLike[str] | Any = None,
        *,
        measures: str | Sequence[str] = (),
        loss: Loss | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(
                f"every must be a number of steps, an integer from 1 up, got {every!r}"
            )
        self.model, self.every, self.options = model, every, options
        self.chosen = choose(measures, loss)
        self._earlier: Weights | None = None  # at the call before a diagnosis
        self.steps = 0
        self.latest: Diagnosis | None = None
        self._writer, self._owns_writer = _tensorboard_writer(tensorboard)
        self._file = None
        if path is not None:
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed in close()
            except OSError:
                self._close_writer()
                raise

    def step(self, inputs: Any, step: int | None = None) -> Diagnosis | None:
        """Count one training step; return a diagnosis if one is due, else None.

        ``step`` sets the step's number, for loops that have their own count (after a resume, for
        example).
        """
        previous, self.steps = self.steps, self.steps + 1 if step is None else step
        is_due = self.steps % self.every == 0
        if is_due:
            batch = inputs() if callable(inputs) else inputs
            self.latest = diagnose(self.model, batch, **self._measures(), **self.options)
            self._write(self.latest)
        is_next = (2 * self.steps - previous) % self.every == 0  # if calls stay as far apart
        keep = is_next and self.chosen.needs_earlier_weights
        self._earlier = weights_of(self.model) if keep else None
        return self.latest if is_due else None

    def _measures(self) -> dict[str, Any]:
        """Return the chosen measures for ``diagnose``, without those that lack earlier weights."""
        names = [
            name
            for name in self.chosen.measures
            if self._earlier is not None or name not in NEED_EARLIER_WEIGHTS
        ]
        return {"measures": names, "loss": self.chosen.loss, "before": self._earlier}

    def _write(self, diagnosis: Diagnosis) -> None:
        if self._file is not None:
            row = {"step": self.steps, "time": time.time(), **diagnosis.to_dict()}
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
        if self._writer is not None:
            try:
                for metric, value in diagnosis.network.items():
                    if value is not None:
                        self._writer.add_scalar(f"network/{metric}", value, self.steps)
                for layer in diagnosis:
                    for metric, value in layer.to_dict().items():
                        if isinstance(value, int | float):
                            self._writer.add_scalar(f"{layer.name}/{metric}", value, self.steps)
            except Exception as error:
                # Training continues: the JSONL file has all that TensorBoard shows.
                self._close_writer()
                warnings.warn(f"TensorBoard is off from step {self.steps}: {error}", stacklevel=3)

    def close(self) -> None:
        """Close the file, and the TensorBoard writer if this monitor opened it."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._close_writer()

    def _close_writer(self) -> None:
        """Close the TensorBoard writer if this monitor opened it, and use none from here on."""
        writer, self._writer = self._writer, None
        if writer is not None and self._owns_writer:
            try:
                writer.close()
            except Exception as error:
                warnings.warn(f"TensorBoard's file may be incomplete: {error}", stacklevel=3)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _tensorboard_writer(target: Any) -> tuple[Any, bool]:
    """Return a writer, and whether it was opened here (for a folder) and must be closed."""
    if target is None or hasattr(target, "add_scalar"):
        return target, False
    if not isinstance(target, str | os.PathLike):
        raise TypeError(
            "tensorboard must be a folder or a SummaryWriter, got "
            f"{type(target).__name__}: {target!r}"
        )
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError(f"TensorBoard is not installed: {install('report')}") from error
    return SummaryWriter(os.fspath(target)), True
