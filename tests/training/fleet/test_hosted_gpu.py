"""Captured fleets whose games are played on the host. Needs a CUDA device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hadamard import envs
from hadamard.experiments.bench import Quiet
from hadamard.training import start
from tests.support.fleets import rows_of, spec_of, train
from tests.support.gpu import DEVICE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(envs.missing("atari")), reason="needs the extra atari"),
]

SETTINGS: dict[str, Any] = {
    "device": str(DEVICE),
    "train.tf32": False,
    "train.greedy_envs": 0,
    "train.steps": 400,
    "algo.num_envs": 1,
    "algo.learning_starts": 200,
    "algo.update_period": 4,
    "algo.target_period": 60,
    "algo.epsilon_initial": 0.5,
    "train.checkpoint_every": 200,
}


@pytest.mark.parametrize("storage", ["auto", "memory"])
def test_graphs_learn_what_plain_calls_learn(storage: str, tmp_path: Path) -> None:
    losses = {}
    for name, changes in {
        "captured": {"train.compile": "auto"},
        "plain": {"train.compile": "off", "train.capture": False},
    }.items():
        own = {**SETTINGS, "algo.replay_storage": storage, **changes}
        paths = [tmp_path / name / str(seed) for seed in range(2)]
        specs = [
            spec_of("dqn", path, seed, own, env="atari/Breakout") for seed, path in enumerate(paths)
        ]
        train("dqn", specs)
        rows = [[json.loads(line) for line in rows_of(path)["train"]] for path in paths]
        losses[name] = [[row["loss"] for row in own_rows if "loss" in row] for own_rows in rows]
        assert all(len(values) >= 2 for values in losses[name])
    for ours, theirs in zip(losses["captured"], losses["plain"], strict=True):
        assert ours[0] == pytest.approx(theirs[0], rel=0.05, abs=1e-4)


def test_a_captured_fleet_is_resumed(tmp_path: Path) -> None:
    paths = [tmp_path / str(seed) for seed in range(3)]
    own = {**SETTINGS, "train.compile": "off", "train.until": 200}
    train(
        "dqn",
        [spec_of("dqn", path, i, own, env="atari/Breakout") for i, path in enumerate(paths)],
    )
    summaries = start.resume_together([str(path) for path in paths[1:]], Quiet, until=0)
    assert [summary["steps"] for summary in summaries] == [400, 400]
