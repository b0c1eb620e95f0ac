"""Mirrors of a run show its numbers, and their failures stay their own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hadamard import train
from hadamard.core.config import overridden
from hadamard.experiments.bench import Quiet
from hadamard.trackers import Mirrors


class Service:
    """What Weights & Biases hands out, as far as it is used."""

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


def mirrors(
    service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch, step: int = 0
) -> tuple[Mirrors, str]:
    """Return the mirrors of a run, and what the service is to call it."""
    asked: dict[str, Any] = {}

    def init(**options: Any) -> Service:
        asked.update(options)
        return service

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    folder.mkdir(exist_ok=True)
    made = Mirrors(folder, step, tensorboard=False, wandb="project", config={"seed": 3})
    name: str = asked.pop("id")
    expected = {"project": "project", "name": folder.name, "config": {"seed": 3}}
    assert asked == {**expected, "resume": "allow"}
    return made, name


def test_numbers_are_shown_and_the_rest_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    shown, _ = mirrors(service, tmp_path / "run", monkeypatch)
    shown.add({"loss": 0.5, "score": None, "name": "x", "value": 2}, step=7)
    shown.add({"score": None}, step=8)
    shown.close()
    # A row is one call, and all charts are over its step.
    assert service.logged == [{"loss": 0.5, "value": 2, "step": 7}]
    assert service.axes == {"*": "step"}
    assert service.finished


def test_a_run_that_goes_on_is_the_same_run_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, name = mirrors(Service(), tmp_path / "run", monkeypatch)
    assert mirrors(Service(), tmp_path / "run", monkeypatch, step=100)[1] == name
    # A folder's name is not its own, as in seeds side by side.
    (tmp_path / "other").mkdir()
    assert mirrors(Service(), tmp_path / "other" / "run", monkeypatch)[1] != name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("saved", [True, False])
def test_tensorboard_shows_every_step_of_a_resumed_run_once(tmp_path: Path, saved: bool) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    changes = {"device": "cpu", "net.width": 16, "run_dir": str(tmp_path), "train.steps": 400}
    changes |= {"algo.learning_starts": 40, "algo.replay_capacity": 200, "train.health_every": 0}
    changes |= {"train.log_every": 50, "train.checkpoint_every": 100, "train.eval_every": 200}
    changes |= {"train.eval_episodes": 1}
    train.train("dqn", overridden(train.default_spec("dqn", "probe/both"), changes), Quiet)
    # As if it had been killed at the last step, with a checkpoint of step 300 or with none.
    (tmp_path / "DONE").unlink()
    kept = sorted((tmp_path / "checkpoints").glob("step-*"))
    assert [int(path.name.removeprefix("step-")) for path in kept] == [300, 400]
    for path in kept[1 if saved else 0 :]:
        shutil.rmtree(path)
    train.resume(str(tmp_path), Quiet)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    for name, every in (("train/loss", 50), ("eval/score", 200)):
        steps = [event.step for event in events.Scalars(name)]
        assert steps == [step for step in range(0, 401, every) if step or name == "eval/score"]


def test_a_mirror_that_fails_is_dropped_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(broken_after=1)
    shown, _ = mirrors(service, tmp_path / "run", monkeypatch)
    shown.add({"loss": 0.5}, step=1)
    with pytest.warns(UserWarning, match="WandB is off from step 2: the service is away"):
        shown.add({"loss": 0.4}, step=2)
    shown.add({"loss": 0.3}, step=3)
    assert [row["step"] for row in service.logged] == [1]


def test_a_mirror_that_cannot_open_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.warns(UserWarning, match="training goes on without a mirror: .*wandb"):
        shown = Mirrors(tmp_path, 0, tensorboard=False, wandb="project", config={})
    shown.add({"loss": 0.5}, step=1)
    shown.close()
