"""Monitor: regular diagnoses in your own training loop."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import nn

from hadamard.health.diagnosis import Diagnosis, check_arguments, diagnose
from hadamard.health.network import NEED_EARLIER_WEIGHTS, Loss, Weights, choose, weights_of
from hadamard.health.recording import open_record
from hadamard.trackers import NAMES, MLflow, TensorBoard, Tracker, Trackio, WandB, library, numbers


class Monitor:
    """Diagnose a network every ``every`` steps; write to a file or a run, and to trackers.

    Call ``step`` once per training step with a batch of inputs, or with a function that returns
    one, which is called only when a diagnosis is due. Keyword arguments of ``diagnose``
    (``layers``, ``forward``, ``positions``, ...) can be passed too.

    A path that ends in ``.jsonl`` is a file with one diagnosis in each line. Any other path is the
    folder of a new run, which `hadamard report` shows beside others; ``about`` says what it is:
    ``algorithm``, ``env``, ``seed``, ``steps`` (the budget), ``layer``, ``activation``,
    ``norm``, and whatever else its results depend on. ``score`` adds an episode's return to it.

    Bad arguments, missing libraries and a path that another monitor writes to are errors here.
    Once training runs, nothing is: a diagnosis that fails (the network has diverged, or the batch
    is too small) becomes a row with its ``error``, and a warning.

    Args:
        model: the network.
        every: training steps between diagnoses.
        path: a file, a folder or None.
        tensorboard: a folder, or a ``SummaryWriter``.
        wandb: a project of Weights & Biases, or a run of it.
        trackio: a Trackio project.
        mlflow: an MLflow experiment.
        prefix: comes before the names of all scalars in trackers.
        about: what a run is.
        example: inputs to try a diagnosis on now, so that unusable ones are an error at once.
        measures: those of ``diagnose``; for ``update`` and ``churn`` the monitor copies the weights
            at the call before a diagnosis.
        loss: the ``loss(network, inputs)`` that the measure ``gradient`` needs.
        options: arguments of ``diagnose``.

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
        wandb: str | Any = None,
        trackio: str | None = None,
        mlflow: str | None = None,
        prefix: str = "health/",
        about: Mapping[str, Any] | None = None,
        example: Any = None,
        measures: str | Sequence[str] = (),
        loss: Loss | None = None,
        **options: Any,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(
                f"every must be a number of steps, an integer from 1 up, got {every!r}"
            )
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a text, got {type(prefix).__name__}: {prefix!r}")
        check_arguments(model, **options)
        self.chosen = choose(measures, loss)
        self._earlier: Weights | None = None  # at the call before a diagnosis
        if example is not None:
            diagnose(model, example, **options)
        self.model, self.every, self.options, self.prefix = model, every, options, prefix
        self.steps = 0
        self.latest: Diagnosis | None = None
        asked = {"tensorboard": tensorboard, "wandb": wandb, "trackio": trackio, "mlflow": mlflow}
        check_trackers(asked)
        self._record = open_record(path, about, model)
        self._trackers: dict[str, Tracker] = {}
        name = None if path is None else Path(path).stem
        try:
            for service, target in asked.items():
                if target is not None:
                    self._trackers[service] = _OPEN[service](target, name, dict(about or {}))
        except BaseException:
            if self._record is not None:
                self._record.discard()
                self._record = None
            self.close()
            raise

    def step(self, inputs: Any, step: int | None = None) -> Diagnosis | None:
        """Count one training step; return a diagnosis if one is due, else None.

        ``step`` sets the step's number, for loops that have their own count (after a resume, for
        example). None is also returned where the diagnosis failed.
        """
        previous, self.steps = self.steps, self.steps + 1 if step is None else step
        diagnosis = None if self.steps % self.every else self.diagnose(inputs)
        is_next = (2 * self.steps - previous) % self.every == 0  # if calls stay as far apart
        keep = is_next and self.chosen.needs_earlier_weights
        self._earlier = weights_of(self.model) if keep else None
        return diagnosis

    def diagnose(self, inputs: Any) -> Diagnosis | None:
        """Diagnose now, whatever the step, and write the result."""
        batch = inputs() if callable(inputs) else inputs
        try:
            self.latest = diagnose(self.model, batch, **self._measures(), **self.options)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            warnings.warn(f"no diagnosis at step {self.steps}: {error}", stacklevel=_outside())
            self._write({"error": message}, {})
            return None
        scalars = {
            f"{layer.name}/{measure}": value
            for layer in self.latest
            for measure, value in layer.to_dict().items()
        }
        scalars |= {f"network/{name}": value for name, value in self.latest.network.items()}
        representation = {"representation": self.latest[-1].name}
        self._write({**representation, **self.latest.to_dict()}, scalars)
        return self.latest

    def _measures(self) -> dict[str, Any]:
        """Return the chosen measures for ``diagnose``, without those that lack earlier weights."""
        names = [
            name
            for name in self.chosen.measures
            if self._earlier is not None or name not in NEED_EARLIER_WEIGHTS
        ]
        return {"measures": names, "loss": self.chosen.loss, "before": self._earlier}

    def score(self, value: float, step: int | None = None) -> None:
        """Record an episode's score, at a step or at the present one."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            value = float(value)  # a number of NumPy's, or a tensor
        at = self.steps if step is None else step
        if self._record is not None:
            self._record.score(value, at)
        if math.isfinite(value):
            self._track({"score": value}, at)

    def _write(self, row: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
        if self._record is not None:
            self._record.write({"step": self.steps, "time": time.time(), **row})
        self._track(scalars, self.steps)

    def _track(self, scalars: Mapping[str, Any], step: int) -> None:
        shown = {f"{self.prefix}{name}": value for name, value in numbers(scalars).items()}
        for service, tracker in list(self._trackers.items()) if shown else ():
            try:
                tracker.add(shown, step)
            except Exception as error:
                # Training continues: the file has all that trackers show.
                self._close_tracker(service)
                message = f"{NAMES[service]} is off from step {step}: {error}"
                warnings.warn(message, stacklevel=_outside())

    def close(self, *, finished: bool = True) -> None:
        """Close the file or the run, and the trackers that this monitor opened."""
        record, self._record = self._record, None
        if record is not None:
            record.close(finished=finished)
        for service in list(self._trackers):
            self._close_tracker(service)

    def _close_tracker(self, service: str) -> None:
        tracker = self._trackers.pop(service)
        try:
            tracker.close()
        except Exception as error:
            message = f"{NAMES[service]} may be incomplete: {error}"
            warnings.warn(message, stacklevel=_outside())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(finished=kind is None)


_OPEN: dict[str, Callable[[Any, str | None, dict[str, Any]], Tracker]] = {
    "tensorboard": lambda target, _name, _about: TensorBoard(target),
    "wandb": lambda target, name, about: WandB(target, name, about),
    "trackio": lambda target, name, about: Trackio(target, name, about),
    "mlflow": lambda target, name, about: MLflow(target, name, about),
}
_METHODS = {"tensorboard": "add_scalar", "wandb": "log"}
_TARGETS = {
    "tensorboard": "a folder or a SummaryWriter",
    "wandb": "the name of a project, or a run of wandb.init",
    "trackio": "the name of a project",
    "mlflow": "the name of an experiment",
}


def check_trackers(asked: Mapping[str, Any]) -> None:
    """Refuse what no tracker can be, and trackers whose library is missing."""
    for service, target in asked.items():
        if service not in _OPEN or target is None:
            continue
        if not isinstance(target, type) and callable(getattr(target, _METHODS.get(service, ""), 0)):
            continue
        kinds = (str, os.PathLike) if service == "tensorboard" else (str,)
        if not isinstance(target, kinds) or not str(target).strip():
            raise TypeError(
                f"{service} must be {_TARGETS[service]}, got {type(target).__name__}: {target!r}"
            )
        library(service)


def _outside() -> int:
    """Return the stack level, for a warning of the caller, of the code that uses this module."""
    import sys

    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        level, frame = level + 1, frame.f_back
    return level
