"""Overlapping acting, playing and learning changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.core.types import Agent
from hadamard.training.setup import Setup
from tests.support.agents import ALGORITHMS, settings
from tests.support.trainers import trainer_of


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_observing_while_environments_play_changes_nothing(
    algorithm: str, groups: int, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)

    def run(name: str) -> tuple[Agent, int, list[dict[str, Any]]]:
        changes = {"run_dir": str(tmp_path / name), "train.steps": 1_280, "train.log_every": 250}
        changes |= {"train.tensorboard": False, "algo.num_envs": 8, "train.greedy_envs": 2}
        changes |= {"train.env_groups": groups, "device": device}
        changes |= {"train.compile": "off", "train.conv_search": False}
        changes |= {"algo.update_period": 16} if algorithm == "dqn" else {}
        late = 0

        def count_late_steps() -> bool:
            nonlocal late
            late += not trainer.pipeline.settled
            return False

        spec = settings(algorithm, "image", changes)
        with trainer_of(algorithm, spec, tmp_path / name) as trainer:
            for _ in trainer.loop(count_late_steps):
                pass
        return trainer.agent, late, list(Run.open(tmp_path / name).rows("train"))

    ours, late, rows = run("late")
    assert late > 60  # of 160
    monkeypatch.setattr(type(ours), "learns_next", True)
    at_once, none, theirs = run("at once")
    assert none == 0
    assert rows == theirs
    assert len(rows) == 6
    for a, b in zip(ours.network.parameters(), at_once.network.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "changes",
    [
        {"algo.num_envs": 1, "algo.update_period": 4},
        {"algo.num_envs": 2, "algo.update_period": 1, "train.env_groups": 2},
        {"algo.num_envs": 1, "algo.update_period": 2, "remedy": "redo", "redo.period": 20},
    ],
    ids=["one", "several", "redo"],
)
def test_learning_ahead_of_a_step_changes_nothing(
    changes: dict[str, Any], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)

    def run(ahead: bool) -> tuple[Any, list[int], dict[str, list[dict[str, Any]]]]:
        folder = tmp_path / str(ahead)
        more = {"run_dir": str(folder), "train.steps": 600, "train.log_every": 50}
        more |= {"train.tensorboard": False, "train.compile": "off", "train.conv_search": False}
        more |= {"train.learn_ahead": ahead, "train.greedy_envs": 2, "device": device}
        # Small enough for the newest step to be drawn now and then.
        more |= {"algo.replay_capacity": 400, "algo.batch_size": 4, "algo.target_period": 40}
        missing = []  # updates that are still to be made when each step is observed

        with trainer_of("dqn", settings("dqn", "image", {**more, **changes}), folder) as trainer:
            agent: Any = trainer.agent
            observe = agent.observe

            def observe_and_count(*step: Any) -> Any:
                due = agent.updates_due(agent.counters["steps"] + agent.num_envs)
                missing.append(due - agent.counters["updates"])
                return observe(*step)

            agent.observe = observe_and_count
            for _ in trainer.loop(lambda: False):
                pass
        streams = ("train", "eval", "episodes")
        return agent, missing, {name: list(Run.open(folder).rows(name)) for name in streams}

    ours, missing, rows = run(True)
    theirs, all_missing, other_rows = run(False)
    learned = [i for i, count in enumerate(all_missing) if count > 0]
    ahead = sum(missing[i] == 0 for i in learned)
    assert 0.5 * len(learned) < ahead < len(learned)
    assert rows == other_rows
    assert ours.counters.values == theirs.counters.values
    for mine, other in zip(ours.network.parameters(), theirs.network.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("groups", [1, 3])
def test_greedy_environments_change_nothing_in_training(
    groups: int, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)

    def run(name: str, **more: Any) -> tuple[Any, dict[str, list[dict[str, Any]]]]:
        changes = {"run_dir": str(tmp_path / name), "train.steps": 1_280, "train.log_every": 100}
        changes |= {"train.tensorboard": False, "device": device, "train.env_groups": groups}
        changes |= {"train.compile": "off", "train.conv_search": False}
        spec = settings("pqn", "both", {**changes, **more})
        rows = set()

        def look_at_each(setup: Setup) -> None:
            agent: Any = setup.agent
            choose = agent.choose_greedily

            def choose_singly(obs: Tensor) -> dict[str, Tensor]:
                # How many observations share a call may change the rounding of each.
                rows.add(len(obs))
                outputs = [choose(one) for one in obs.split(1)]
                return {key: torch.cat([one[key] for one in outputs]) for key in outputs[0]}

            agent.choose_greedily = choose_singly

        spec = overridden(spec, {"env": "minatar/breakout"})
        with trainer_of("pqn", spec, tmp_path / name, prepare=look_at_each) as trainer:
            agent: Any = trainer.agent
            for _ in trainer.loop(lambda: False):
                pass
        run = Run.open(tmp_path / name)
        agent.rows = rows
        return agent, {name: list(run.rows(name)) for name in ("train", "episodes", "eval")}

    alone, rows = run("alone", **{"train.greedy_envs": 0})
    own, own_rows = run("own", **{"train.greedy_envs": 5, "train.greedy_call": "own"})
    joined, joined_rows = run("joined", **{"train.greedy_envs": 5, "train.greedy_call": "joined"})
    last = 8 // groups  # environments of the last group
    assert (5 in own.rows, last + 5 in own.rows) == (True, False)
    assert (5 in joined.rows, last + 5 in joined.rows) == (False, True)
    assert len(joined_rows["eval"]) > 5
    assert joined_rows == own_rows
    assert rows == {**joined_rows, "eval": []}
    assert joined.rollout.data["value"].shape == (8, 8)
    for agent in (own, joined):
        assert torch.equal(agent.random.generator.get_state(), alone.random.generator.get_state())
        for mine, other in zip(agent.network.parameters(), alone.network.parameters(), strict=True):
            assert torch.equal(mine, other)


def test_only_pqn_chooses_greedy_and_exploring_actions_in_one_call() -> None:
    spec = settings("dqn", "both", {"train.greedy_envs": 2, "train.greedy_call": "joined"})
    with pytest.raises(ValueError, match="--train.greedy-call joined: dqn cannot choose greedy"):
        Setup("dqn", spec)
