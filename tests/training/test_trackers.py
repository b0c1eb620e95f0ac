"""Trackers show a run's numbers, and their failures do not stop it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hadamard.core import record
from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.experiments.bench import Quiet
from hadamard.training import start, trackers
from hadamard.training.trackers import Trackers
from tests.support.commands import Command, small


def test_a_tracker_that_fails_does_not_stop_training(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __init__(self, folder: Path, step: int) -> None:
            pass

        def add(self, values: Mapping[str, float], step: int) -> None:
            if step >= 200:
                raise OSError("no space left")

        def close(self) -> None:
            pass

    monkeypatch.setattr(trackers, "TensorBoard", Broken)
    result = command(*small("dqn", tmp_path / "run", tensorboard=True))
    assert result.code == 0
    warning = "hadamard: warning: Broken is switched off at step 200: no space left\n"
    assert result.err == warning
    assert len(list(Run.open(tmp_path / "run").rows("train"))) == 8

    def refuse(folder: Path, step: int) -> None:
        raise RuntimeError("no tracker today")

    monkeypatch.setattr(trackers, "TensorBoard", refuse)
    result = command(*small("dqn", tmp_path / "other", tensorboard=True))
    assert result.code == 0
    assert (
        result.err
        == "hadamard: warning: training continues without TensorBoard: no tracker today\n"
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_the_scalars(command: Command, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = tmp_path / "run"
    assert command(*small("dqn", path, tensorboard=True)).code == 0
    events = EventAccumulator(str(path / "tensorboard"))
    events.Reload()

    def scalars(name: str) -> dict[int, float]:
        return {event.step: event.value for event in events.Scalars(name)}

    rows = list(Run.open(path).rows("train"))
    for key in ("score", "loss", "value", "epsilon", "episodes"):
        expected = {row["step"]: row[key] for row in rows if key in row}
        assert scalars(f"train/{key}") == pytest.approx(expected, rel=1e-6)
    for row in Run.open(path).rows("health"):
        (layer,) = row["layers"]
        ranks = scalars(f"health/{layer['name']}/effective_rank")
        assert ranks[row["step"]] == layer["effective_rank"]
    assert len(ranks) == 4


class Service:
    """Replaces a run of Weights & Biases."""

    def __init__(self, broken_after: int | None = None) -> None:
        self.logged: list[dict[str, Any]] = []
        self.axes: dict[str, str] = {}
        self.broken_after = broken_after
        self.finished = False

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, values: dict[str, Any]) -> None:
        if len(self.logged) == self.broken_after:
            raise ConnectionError("the service is away")
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


def open_trackers(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch, step: int = 0
) -> tuple[Trackers, str]:
    """Return the trackers of a run, and its id at the service."""
    requested: dict[str, Any] = {}

    def init(**options: Any) -> Service:
        requested.update(options)
        return service

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    folder.mkdir(exist_ok=True)
    opened = Trackers(folder, step, tensorboard=False, wandb="project", config={"seed": 3})
    run_id: str = requested.pop("id")
    expected = {"project": "project", "name": folder.name, "config": {"seed": 3}}
    assert requested == {**expected, "resume": "allow", "reinit": "create_new"}
    return opened, run_id


def test_only_numbers_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    opened, _ = open_trackers(service, tmp_path / "run", monkeypatch)
    opened.add({"loss": 0.5, "score": None, "name": "x", "value": 2}, step=7)
    opened.add({"score": None}, step=8)
    opened.close()
    # Each row is one call, and charts are plotted over its step.
    assert service.logged == [{"loss": 0.5, "value": 2, "step": 7}]
    assert service.axes == {"*": "step"}
    assert service.finished


def test_a_resumed_run_keeps_its_id_at_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run_id = open_trackers(Service(), tmp_path / "run", monkeypatch)
    assert open_trackers(Service(), tmp_path / "run", monkeypatch, step=100)[1] == run_id
    # Another run in a folder of the same name has another id.
    (tmp_path / "other").mkdir()
    assert open_trackers(Service(), tmp_path / "other" / "run", monkeypatch)[1] != run_id


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("saved", [True, False])
def test_tensorboard_shows_every_step_of_a_resumed_run_once(tmp_path: Path, saved: bool) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    changes = {"device": "cpu", "net.width": 16, "run_dir": str(tmp_path), "train.steps": 400}
    changes |= {"algo.learning_starts": 40, "algo.replay_capacity": 200, "train.health_every": 0}
    changes |= {"train.log_every": 50, "train.checkpoint_every": 100, "train.eval_every": 200}
    changes |= {"train.eval_episodes": 1}
    start.train("dqn", overridden(start.default_spec("dqn", "probe/both"), changes), Quiet)
    # As if the run had been killed at the last step, with a checkpoint of step 300 or with none.
    (tmp_path / "DONE").unlink()
    checkpoints = sorted((tmp_path / "checkpoints").glob("step-*"))
    assert [int(path.name.removeprefix("step-")) for path in checkpoints] == [300, 400]
    for path in checkpoints[1 if saved else 0 :]:
        shutil.rmtree(path)
    if not saved:
        shutil.rmtree(tmp_path / "checkpoints")
        record.begin(tmp_path / "checkpoints")
    start.resume(str(tmp_path), Quiet)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    for name, every in (("train/loss", 50), ("eval/score", 200)):
        steps = [event.step for event in events.Scalars(name)]
        assert steps == [step for step in range(0, 401, every) if step or name == "eval/score"]


def test_a_tracker_that_fails_is_dropped_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(broken_after=1)
    opened, _ = open_trackers(service, tmp_path / "run", monkeypatch)
    opened.add({"loss": 0.5}, step=1)
    with pytest.warns(UserWarning, match="WandB is switched off at step 2: the service is away"):
        opened.add({"loss": 0.4}, step=2)
    opened.add({"loss": 0.3}, step=3)
    assert [row["step"] for row in service.logged] == [1]


def test_a_tracker_that_cannot_open_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.warns(UserWarning, match="training continues without Weights & Biases: .*wandb"):
        opened = Trackers(tmp_path, 0, tensorboard=False, wandb="project", config={})
    opened.add({"loss": 0.5}, step=1)
    opened.close()


@pytest.mark.parametrize("service", ["wandb", "trackio", "mlflow"])
def test_a_tracker_that_is_asked_for_must_be_installed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    monkeypatch.setitem(sys.modules, service, None)
    result = command(*small("dqn", tmp_path / "run", {f"--train.{service}": "mine"}))
    assert result.code == 2
    assert f"--train.{service} mine: " in result.err
    assert f"pip install 'hadamard-rl[{service}]'" in result.err
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore")  # of the library's own imports
def test_mlflow_holds_the_scalars(command: Command, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    result = command(*small("dqn", tmp_path / "run", {"--train.mlflow": "mine"}))
    assert result.code == 0, result.err
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("mine")
    (run,) = client.search_runs([experiment.experiment_id])
    losses = {m.step: m.value for m in client.get_metric_history(run.info.run_id, "train/loss")}
    rows = Run.open(tmp_path / "run").rows("train")
    assert losses == {row["step"]: row["loss"] for row in rows if "loss" in row}
