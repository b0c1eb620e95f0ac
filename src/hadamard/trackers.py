"""Trackers: services that show scalars, each behind the same two methods.

TensorBoard, Weights & Biases, Trackio and MLflow, for `hadamard train` and for `Monitor`. Each
imports its library when it is opened, and says how to install it.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import re
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

_EXTRAS = {"tensorboard": "report", "wandb": "wandb", "trackio": "trackio", "mlflow": "mlflow"}
NAMES = {
    "tensorboard": "TensorBoard",
    "wandb": "Weights & Biases",
    "trackio": "Trackio",
    "mlflow": "MLflow",
}
"""What the trackers are called, by the names of their settings."""


class Tracker(Protocol):
    """A service that shows a run's scalars."""

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""

    def close(self) -> None:
        """Finish."""


def library(name: str) -> Any:
    """Import a tracker's library; raise an error that says how to install it."""
    try:
        # torch's writer needs the package tensorboard, which is imported with it.
        return importlib.import_module({"tensorboard": "torch.utils.tensorboard"}.get(name, name))
    except ImportError as error:
        raise ImportError(
            f"{NAMES[name]} cannot be imported ({error}): pip install "
            f"'hadamard-rl[{_EXTRAS[name]}]'"
        ) from error


class TensorBoard:
    """Scalars as TensorBoard event files in a folder, or by a writer of the caller's."""

    def __init__(self, folder: str | os.PathLike[str] | Any, step: int = 0) -> None:
        self.owned = not hasattr(folder, "add_scalar")
        self.writer: Any = folder
        if self.owned:
            # A resumed run repeats the steps after its checkpoint; TensorBoard drops their old
            # values.
            purge = step + 1 if step else 0
            self.writer = library("tensorboard").SummaryWriter(os.fspath(folder), purge_step=purge)

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish; a writer of the caller's stays open."""
        if self.owned:
            self.writer.close()


class WandB:
    """Scalars in a Weights & Biases project, or in a run of the caller's.

    With an id, a run of that id is continued.
    """

    def __init__(
        self,
        project: str | Any,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> None:
        self.owned = not hasattr(project, "log")
        self.run: Any = project
        if self.owned:
            self.run = library("wandb").init(
                project=project,
                name=name,
                config=dict(config or {}),
                id=run_id,
                resume="allow",
                reinit="create_new",  # beside those of other runs in this process
            )
            # By default the service plots over its own count of calls: use the run's steps.
            self.run.define_metric("*", step_metric="step")

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""
        self.run.log({**values, "step": step})

    def close(self) -> None:
        """Finish; a run of the caller's stays open."""
        if self.owned:
            self.run.finish()


class Trackio:
    """Scalars in a Trackio project; a run of the same name is continued."""

    def __init__(
        self, project: str, name: str | None = None, config: Mapping[str, Any] | None = None
    ) -> None:
        with _printing_to_stderr():
            self.run = library("trackio").init(
                project=project,
                name=name,
                config=dict(config or {}),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        """Finish."""
        with _printing_to_stderr():
            self.run.finish()


class MLflow:
    """Scalars in an MLflow experiment, at the tracking address that MLflow is set to."""

    def __init__(
        self, experiment: str, name: str | None = None, config: Mapping[str, Any] | None = None
    ) -> None:
        mlflow = library("mlflow")
        self._entities = importlib.import_module("mlflow.entities")
        self.client = mlflow.MlflowClient()
        there = self.client.get_experiment_by_name(experiment)
        experiment_id = (
            self.client.create_experiment(experiment) if there is None else there.experiment_id
        )
        self.run_id = self.client.create_run(experiment_id, run_name=name).info.run_id
        for key, value in _flat(config or {}).items():
            self.client.log_param(self.run_id, _mlflow_name(key), value)

    def add(self, values: Mapping[str, float], step: int) -> None:
        """Show the values of a row."""
        now = int(time.time() * 1_000)
        metric = self._entities.Metric
        self.client.log_batch(
            self.run_id,
            metrics=[metric(_mlflow_name(name), v, now, step) for name, v in values.items()],
        )

    def close(self) -> None:
        """Finish."""
        self.client.set_terminated(self.run_id)


def _mlflow_name(name: str) -> str:
    """Return a name with the characters only that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", name)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        elif value is not None:
            flat[f"{prefix}{key}"] = value
    return flat


@contextlib.contextmanager
def _printing_to_stderr() -> Any:
    """Let a library that prints greetings print them beside the output, not into it."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the values that trackers can show: finite numbers.

    Examples:
        >>> numbers({"loss": 0.5, "name": "3", "rank": float("nan"), "dead": 2})
        {'loss': 0.5, 'dead': 2}
    """
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
