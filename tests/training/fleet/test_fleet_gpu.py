"""Compiled and captured fleets. Needs a CUDA device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.run import Run
from hadamard.experiments.bench import Quiet
from hadamard.training import start
from hadamard.training.fleet.fleet import Fleet
from tests.support.fleets import BLOCK, scores, spec_of, train
from tests.support.gpu import DEVICE
from tests.support.trainers import trainer_of

pytestmark = pytest.mark.gpu

# Mostly greedy actions, so that they depend on the network; the second block learns in all cases.
SETTINGS: dict[str, dict[str, Any]] = {
    "pqn": {"algo.epsilon_initial": 0.1, "algo.learning_rate": 2e-3, "algo.num_envs": 16},
    "dqn": {
        "algo.epsilon_initial": 0.1,
        "algo.learning_rate": 1e-3,
        "algo.num_envs": 4,
        "algo.update_period": 8,
        "algo.learning_starts": BLOCK,
        "algo.batch_size": 16,
    },
}
ON_GPU = {"device": str(DEVICE), "train.tf32": False, "train.steps": 100_000}
PLAIN = {"train.compile": "off", "train.capture": False}


@contextmanager
def fleet_of(
    algorithm: str, folder: Path, seeds: Sequence[int], changes: Mapping[str, Any]
) -> Iterator[Fleet]:
    with ExitStack() as stack:
        trainers = []
        for seed in seeds:
            path = folder / str(seed)
            spec = spec_of(
                algorithm, path, seed, {**ON_GPU, **SETTINGS.get(algorithm, {}), **changes}
            )
            trainers.append(stack.enter_context(trainer_of(algorithm, spec, path)))
        yield Fleet(trainers)


def two_blocks(fleet: Fleet) -> tuple[list[NDArray[Any]], Tensor, Tensor]:
    """Return the episodes of the first block, and the weights before it and after the second."""
    computation = fleet.computation
    before = computation.stack.matrix.detach().cpu().clone()
    ends, first = computation.queue_block(0, 0)
    episodes = ends.arrays()
    _, second = computation.queue_block(computation.block, first)
    assert second > 0
    return episodes, before, computation.stack.matrix.detach().cpu().clone()


def assert_same_episodes(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> None:
    assert theirs[0].any()
    for values, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(values[theirs[0]], expected[theirs[0]])
    np.testing.assert_array_equal(ours[0], theirs[0])


def assert_close_weights(ours: Tensor, theirs: Tensor, before: Tensor) -> None:
    assert ((theirs - before).abs().amax(1) > 1e-3).all()
    assert (ours - theirs).abs().max() < 1e-4


@pytest.mark.parametrize("algorithm", ["dqn", "pqn"])
def test_a_compiled_and_captured_fleet_plays_and_learns_as_a_plain_one(
    algorithm: str, tmp_path: Path
) -> None:
    with fleet_of(algorithm, tmp_path / "plain", range(3), PLAIN) as fleet:
        episodes, before, expected = two_blocks(fleet)
    fast = {"train.compile": "on", "train.capture": True}
    with fleet_of(algorithm, tmp_path / "fast", range(3), fast) as fleet:
        fast_episodes, same_before, weights = two_blocks(fleet)
    assert torch.equal(before, same_before)
    assert_same_episodes(fast_episodes, episodes)
    assert_close_weights(weights, expected, before)


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_a_run_in_a_captured_fleet_is_the_run_alone(algorithm: str, tmp_path: Path) -> None:
    captured = {"train.compile": "off", "train.capture": True}
    with fleet_of(algorithm, tmp_path / "three", range(3), captured) as fleet:
        episodes, before, weights = two_blocks(fleet)
    with fleet_of(algorithm, tmp_path / "one", [1], captured) as fleet:
        own_episodes, own_before, own = two_blocks(fleet)
    assert torch.equal(before[1:2], own_before)
    assert_same_episodes([values[1:2] for values in episodes], own_episodes)
    assert_close_weights(weights[1:2], own, own_before)


def test_a_captured_fleet_is_ended_early_and_carried_on(tmp_path: Path) -> None:
    paths = [tmp_path / str(seed) for seed in range(2)]
    changes = {**ON_GPU, "train.capture": True, "train.steps": 512, "train.until": 256}
    train("pqn", [spec_of("pqn", path, seed, changes) for seed, path in enumerate(paths)])
    start.resume_together([str(path) for path in paths], Quiet, until=0)
    for path in paths:
        end = Run.open(path).done
        assert end is not None
        assert end["steps"] == 512
        steps = [row["step"] for row in Run.open(path).rows("train")]
        assert steps == sorted(set(steps))


def test_a_compiled_fleet_learns(tmp_path: Path) -> None:
    changes = {
        "device": str(DEVICE),
        "train.compile": "on",
        "train.steps": 200_000,
        "train.log_every": 20_000,
        "train.health_every": 0,
        "train.checkpoint_every": 0,
        "net.width": 64,
        "net.norm": "layer",
        "algo.num_envs": 64,
        "algo.rollout_steps": 16,
        "algo.minibatches": 8,
        "algo.learning_rate": 1e-3,
        "algo.epsilon_fraction": 0.2,
    }
    paths = [tmp_path / str(seed) for seed in range(3)]
    train("pqn", [spec_of("pqn", path, seed, changes) for seed, path in enumerate(paths)])
    for path in paths:
        episodes = scores(path)
        first, last = np.mean(episodes[:200]), np.mean(episodes[-200:])
        assert first < 1.0
        assert last > 4.0
