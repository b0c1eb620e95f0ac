"""Fleets whose Atari games are emulated on a GPU. Needs a CUDA device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ale_py")

from hadamard.core.run import Run
from hadamard.training import fleet
from tests.support.fleets import resume, scores, sizes_of_fleets, spec_of, stopping_at, train
from tests.support.gpu import DEVICE
from tests.training.fleet.test_fleet_gpu import (
    PLAIN,
    assert_close_weights,
    assert_same_episodes,
    fleet_of,
    two_blocks,
)

pytestmark = pytest.mark.gpu

EMULATED: dict[str, Any] = {
    "train.emulators": "gpu",
    "train.atari_reset": "envpool",
    "algo.num_envs": 64,
    "algo.rollout_steps": 64,
    "algo.minibatches": 4,
    "algo.epochs": 1,
    "device": str(DEVICE),
}


def test_a_compiled_and_captured_fleet_plays_and_learns_as_an_eager_one(tmp_path: Path) -> None:
    # Random actions, so that no rounding changes a game, and rollouts in which games end.
    changes = {
        **EMULATED,
        "algo.epsilon_initial": 1.0,
        "algo.epsilon_final": 1.0,
        "algo.learning_rate": 2e-3,
        "algo.num_envs": 32,
        "algo.rollout_steps": 256,
        "algo.epochs": 2,
        "algo.minibatches": 8,
    }
    results = []
    for name, own in {"fast": {"train.compile": "on"}, "plain": PLAIN}.items():
        games = {"env": "atari/Breakout"}
        with fleet_of("pqn", tmp_path / name, [3, 4], {**changes, **own, **games}) as runs:
            results.append(two_blocks(runs))
    (ours, before, weights), (theirs, _, expected) = results
    assert_same_episodes(ours, theirs)
    assert_close_weights(weights, expected, before)


def test_several_games_train_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    games = ("Asterix", "MsPacman", "Breakout")  # two of them have as many actions
    sizes = sizes_of_fleets(monkeypatch)
    changes = {**EMULATED, "train.steps": 16_384, "train.checkpoint_every": 8_192}
    specs = [spec_of("pqn", tmp_path / game, 0, changes, f"atari/{game}") for game in games]
    stopping_at(8_192, monkeypatch)
    with pytest.raises(Exception, match=str(tmp_path)):
        train("pqn", specs)
    monkeypatch.undo()
    summaries = resume(*(tmp_path / game for game in games))
    assert sorted(sizes) == [1, 2]
    assert [summary["steps"] for summary in summaries] == [16_384] * 3
    assert scores(tmp_path / "Breakout")  # whose games are short
    for game in games:
        rows = (tmp_path / game / "train.jsonl").read_text().splitlines()
        assert json.loads(rows[-1])["loss"] < 100
        assert Run.open(tmp_path / game).config["spec"]["train"]["emulators"] == "gpu"


def test_many_environments_are_emulated_on_the_gpu_by_themselves(tmp_path: Path) -> None:
    changes = {**EMULATED, "train.emulators": "auto", "train.fleet": "auto"}
    many, few = (
        spec_of("pqn", tmp_path, 0, {**changes, "algo.num_envs": count}, "atari/Breakout")
        for count in (512, 8)
    )
    assert fleet.resolved("pqn", many).train.emulators == "gpu"
    assert fleet.resolved("pqn", many).train.fleet == "on"
    assert fleet.resolved("pqn", few).train.emulators == "cpu"
    assert fleet.resolved("pqn", few).train.fleet == "off"
