"""Fleets whose games are played on the host: runs of Atari, each the run it would be alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hadamard import envs
from hadamard.core import checkpoint
from hadamard.core.config import RunSpec
from hadamard.core.run import Run
from hadamard.envs.common import EnvironmentFailure
from hadamard.experiments.bench import Quiet
from hadamard.training import start
from hadamard.training.fleet import hosted
from hadamard.training.fleet.hosted import Hosted
from hadamard.training.fleet.hosted_replay import HostedReplay
from hadamard.training.outcomes import Diverged, Interrupted
from tests.support.commands import checkpoint_names
from tests.support.fleets import (
    REDO,
    assert_same_rows,
    assert_same_run,
    counted,
    resume,
    rows_of,
    sizes_of_fleets,
    spec_of,
    stopping_at,
    train,
)
from tests.support.resume import assert_same

pytestmark = pytest.mark.skipif(bool(envs.missing("atari")), reason="needs the extra atari")

Alone = Callable[..., Path]
SHORT = {
    "train.greedy_envs": 0,
    "train.steps": 350,
    "train.threads": 1,
    "algo.learning_starts": 150,
    "algo.replay_capacity": 260,
    "algo.target_period": 90,
    "train.health_every": 150,
    "train.checkpoint_every": 110,
}


@pytest.fixture(autouse=True, scope="module")
def short_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosted, "ROUNDS", 25)
        yield


APART = {"algo.num_envs": 1, "algo.update_period": 4, "train.steps": 300, "algo.target_period": 70}
"""One game in a run, so that runs may be ahead of others."""


def game(folder: Path, seed: int, changes: Mapping[str, Any] = {}) -> RunSpec[Any]:
    return spec_of("dqn", folder, seed, {**SHORT, **changes}, env="atari/Breakout")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Runs in this form that were trained alone, each once."""
    runs: dict[tuple[int, bool], Path] = {}

    def get(seed: int, *, apart: bool = False) -> Path:
        if (seed, apart) not in runs:
            path = runs[seed, apart] = tmp_path_factory.mktemp("alone") / str(seed)
            train("dqn", [game(path, seed, APART if apart else {})])
        return runs[seed, apart]

    return get


def assert_same_end(ours: Path, theirs: Path) -> None:
    """The same run, with its frames in other files: it was saved at another step too."""
    assert_same_rows(ours, theirs)
    ends = []
    for path in (ours, theirs):
        step, state = checkpoint.read(checkpoint.newest(path / "checkpoints"))
        del state["agent.replay"]["chunks"]
        ends.append({"step": step, **state})
    assert_same(*ends)


def test_runs_together_are_the_runs_they_would_be_alone(
    alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sizes_of_fleets(monkeypatch)
    paths = [tmp_path / str(seed) for seed in range(3)]
    train("dqn", [game(path, seed) for seed, path in enumerate(paths)])
    assert sizes == [3]
    for seed, path in enumerate(paths):
        assert_same_run(path, alone(seed))
        rows = counted(path)
        assert rows["train"] >= 4
        assert rows["episodes"] >= 1
        assert rows["health"] == 2
        assert "loss" in rows_of(path)["train"][-1]
    assert rows_of(paths[0]) != rows_of(paths[1])


def test_runs_that_are_ahead_of_others_are_the_runs_they_would_be_alone(
    alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[bool]] = []
    act = HostedReplay.act

    def acting(self: HostedReplay, obs: Any, steps: Any) -> Any:
        calls.append((steps > steps.min()).tolist())
        return act(self, obs, steps)

    paths = [tmp_path / str(seed) for seed in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(HostedReplay, "act", acting)
        stopping_at(120, patch)
        with pytest.raises(Interrupted):
            train("dqn", [game(path, seed, APART) for seed, path in enumerate(paths)])
        assert any(map(any, calls))  # one was ahead
    resume(paths[0], paths[2])
    resume(paths[1])
    for seed, path in enumerate(paths):
        assert "loss" in rows_of(path)["train"][-1]
        assert_same_end(path, alone(seed, apart=True))


def test_neither_processes_nor_learning_ahead_change_a_result(alone: Alone, tmp_path: Path) -> None:
    for name, changes in {
        "here": {"train.env_workers": 0},
        "later": {"train.env_workers": 1, "train.learn_ahead": False},
        "apart": {**APART, "train.learn_ahead": False},
    }.items():
        paths = [tmp_path / name / str(seed) for seed in range(2)]
        train("dqn", [game(path, seed, changes) for seed, path in enumerate(paths)])
        for seed, path in enumerate(paths):
            assert rows_of(path) == rows_of(alone(seed, apart=name == "apart"))


def test_a_stopped_fleet_is_resumed_together_or_apart(
    alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / str(seed) for seed in range(3)]
    with monkeypatch.context() as patch:
        stopping_at(220, patch)
        with pytest.raises(Interrupted) as stopped:
            train("dqn", [game(path, seed) for seed, path in enumerate(paths)])
    assert stopped.value.args == tuple(map(str, paths))
    assert {start.trained_steps(Run.open(path)) for path in paths} == {300}
    sizes = sizes_of_fleets(monkeypatch)
    resume(paths[1])  # taken out of the fleet
    resume(paths[2], paths[0])
    assert sizes == [1, 2]
    for seed, path in enumerate(paths):
        assert_same_end(path, alone(seed))


def test_a_run_that_diverges_is_set_aside_and_a_remedy_acts_on_one_run(
    alone: Alone, tmp_path: Path
) -> None:
    paths = [tmp_path / str(seed) for seed in range(3)]
    changes: list[Mapping[str, Any]] = [{}, {"algo.learning_rate": 1e30}, REDO]
    specs = [
        game(path, seed, own) for seed, (path, own) in enumerate(zip(paths, changes, strict=True))
    ]
    with pytest.raises(Diverged, match="dqn diverged") as error:
        train("dqn", specs)
    assert str(error.value).count("diverged") == 1
    assert str(paths[1]) in str(error.value)
    assert_same_run(paths[0], alone(0))
    assert Run.open(paths[2]).done is not None
    assert rows_of(paths[2])["health"] != rows_of(alone(2))["health"]


@pytest.mark.parametrize("apart", [False, True])
def test_a_run_whose_games_fail_is_set_aside(
    apart: bool, alone: Alone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that plays the second run's games is killed; that run goes on later."""
    paths = [tmp_path / str(seed) for seed in range(3)]
    queue_block = Hosted.queue_block

    def killing(self: Hosted, step: int, updates: int) -> Any:
        if step == 200 and len(self.trainers) == 3:
            os.kill(self.games._joined.envs.games._processes[1].pid, signal.SIGKILL)
        return queue_block(self, step, updates)

    with monkeypatch.context() as patch:
        patch.setattr(Hosted, "queue_block", killing)
        patch.setattr("hadamard.training.fleet.host_games._workers", lambda specs, count: 3)
        with pytest.raises(EnvironmentFailure) as error:
            train("dqn", [game(path, i, APART if apart else {}) for i, path in enumerate(paths)])
    message = str(error.value)
    place = "environments 1 to 1" if apart else "environments 2 to 3"
    assert message.startswith(f"{paths[1]}: at step 20")
    assert f"worker 1 (of 3; {place} of atari/Breakout) died with exit code -9" in message
    assert f"the last good checkpoint is {paths[1]}" in message
    for seed in (0, 2):
        assert_same_run(paths[seed], alone(seed, apart=apart))
    assert Run.open(paths[1]).done is None
    assert checkpoint_names(paths[1])
    resume(paths[1])
    assert_same_run(paths[1], alone(1, apart=apart))


def test_evaluations_play_with_the_weights_of_the_fleet(tmp_path: Path) -> None:
    changes = {"train.eval_every": 150, "train.eval_episodes": 1, "train.steps": 300}
    paths = [tmp_path / str(seed) for seed in range(2)]
    train("dqn", [game(path, seed, changes) for seed, path in enumerate(paths)])
    train("dqn", [game(tmp_path / "alone", 1, changes)])
    assert counted(paths[1])["eval"] == 3
    assert rows_of(paths[1]) == rows_of(tmp_path / "alone")


def test_the_form_of_a_run_stays_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sizes_of_fleets(monkeypatch)
    train("dqn", [game(tmp_path / "own", 0, {"train.fleet": "off", "train.until": 200})])
    start.resume_together([str(tmp_path / "own")], Quiet, until=300)
    assert sizes == []
    train("dqn", [game(tmp_path / "stacked", 0, {"train.until": 100})])
    start.resume_together([str(tmp_path / "stacked")], Quiet, until=150)
    assert sizes == [1, 1]
