"""Lightning: watch a module's health while it is trained.

from hadamard.integrations.lightning import HealthCallback

Trainer(callbacks=[HealthCallback("runs/mine", every=500)]).fit(module, data)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from hadamard.health import Diagnosis, Monitor
from hadamard.health.monitor import check_trackers
from hadamard.trackers import numbers


class HealthCallback(Callback):
    """Diagnose a module on its own training batches; see ``hadamard.Monitor`` for the arguments.

    Diagnoses are written by the first process only, and shown by the trainer's loggers too.

    Args:
        path: a file that ends in .jsonl, a new run's folder, or None.
        every: optimizer steps between diagnoses.
        inputs: a function that takes the network's inputs out of a batch; by default they are the
            batch, or the first part of a batch with several (observations and targets).
        options: arguments of ``Monitor`` and ``diagnose``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = "health.jsonl",
        every: int = 1_000,
        inputs: Callable[[Any], Any] | None = None,
        *,
        prefix: str = "health/",
        **options: Any,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be an integer from 1 up, got {every!r}")
        if inputs is not None and not callable(inputs):
            raise TypeError(f"inputs must be a function of a batch, got {type(inputs).__name__}")
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a text, got {type(prefix).__name__}: {prefix!r}")
        check_trackers(options)
        self.path, self.every, self.prefix = path, every, prefix
        self._inputs, self._options = inputs or _inputs_of, options
        self.monitor: Monitor | None = None
        self._last = -1

    @property
    def latest(self) -> Diagnosis | None:
        """The newest diagnosis."""
        return None if self.monitor is None else self.monitor.latest

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open what the diagnoses are written to."""
        if trainer.is_global_zero:
            options = {"prefix": self.prefix, **self._options}
            self.monitor = Monitor(pl_module, 1, self.path, **options)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,  # noqa: ARG002
        outputs: Any,  # noqa: ARG002
        batch: Any,
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Diagnose, if a diagnosis is due after this step."""
        step = trainer.global_step
        # Batches whose gradients are accumulated share a step.
        if self.monitor is None or step % self.every or step == self._last:
            return
        self._last = step
        report = self.monitor.step(lambda: self._inputs(batch), step=step)
        for layer in report or ():
            values = numbers(layer.to_dict())
            named = {f"{self.prefix}{layer.name}/{name}": value for name, value in values.items()}
            for logger in trainer.loggers:
                logger.log_metrics(named, step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Close the record."""
        self._close(finished=True)

    def on_exception(
        self,
        trainer: Trainer,  # noqa: ARG002
        pl_module: LightningModule,  # noqa: ARG002
        exception: BaseException,  # noqa: ARG002
    ) -> None:
        """Close the record of a training that broke off."""
        self._close(finished=False)

    def _close(self, *, finished: bool) -> None:
        if self.monitor is not None:
            self.monitor.close(finished=finished)


def _inputs_of(batch: Any) -> Any:
    if isinstance(batch, Tensor | Mapping):
        return batch
    if isinstance(batch, tuple | list) and batch:
        return batch[0]
    raise TypeError(
        f"a batch is {type(batch).__name__}, not a tensor, a dict or a tuple: pass inputs=, a "
        "function that takes the network's inputs out of it"
    )
