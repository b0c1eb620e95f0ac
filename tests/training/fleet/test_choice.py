"""Which runs are trained in fleets, and which of them together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard import envs
from hadamard.core import machine
from hadamard.core.config import RunSpec, overridden
from hadamard.core.run import Run
from hadamard.training import fleet, start
from tests.support.commands import Command, small

AUTO = {"train.fleet": "auto", "device": "cpu"}


def spec_of(algorithm: str, env: str = "minatar/breakout", **changes: Any) -> RunSpec[Any]:
    settings = {name.replace("__", "."): value for name, value in changes.items()}
    spec: RunSpec[Any] = overridden(
        start.default_spec(algorithm, env), {"device": "cpu", **settings}
    )
    return spec


@pytest.mark.parametrize(
    ("algorithm", "env", "changes", "reason"),
    [
        ("pqn", "probe/both", {}, "probe/both is not played on the device"),
        ("pqn", "atari/Breakout", {}, "atari/Breakout is not played on the device"),
        (
            "simbav2",
            "probe/track",
            {"train__greedy_envs": 2},
            "--train.greedy-envs 2 plays greedy games beside training",
        ),
        ("mrq", "probe/track", {}, "mrq has no form for stacked runs"),
        (
            "dqn",
            "minatar/breakout",
            {"train__eval_every": 500},
            "--train.eval-every 500 plays evaluations outside the fleet",
        ),
        (
            "dqn",
            "atari/Breakout",
            {"train__greedy_envs": 2},
            "--train.greedy-envs 2 plays greedy games beside training",
        ),
        (
            "pqn",
            "minatar/breakout",
            {"algo__rollout_steps": 5_001},
            "--algo.rollout-steps 5001 is longer than an episode of minatar/breakout",
        ),
    ],
)
def test_a_fleet_that_is_not_possible_is_refused(
    algorithm: str, env: str, changes: dict[str, Any], reason: str
) -> None:
    if envs.missing(env.partition("/")[0]):
        pytest.skip(f"needs the extra of {env}")
    spec = spec_of(algorithm, env, train__fleet="on", **changes)
    assert reason in (fleet.obstacle(algorithm, spec) or "")
    with pytest.raises(ValueError, match=f"--train.fleet on is not possible: {reason}"):
        fleet.resolved(algorithm, spec)
    # Otherwise such a run is trained as ever, also on a GPU.
    for choice in ("auto", "off"):
        other = replace(spec, train=replace(spec.train, fleet=choice))
        assert fleet.resolved(algorithm, other).train.fleet == "off"


@pytest.mark.skipif(bool(envs.missing("atari")), reason="needs the extra atari")
def test_runs_whose_games_the_host_plays_are_stacked_where_there_are_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One run alone is faster by its own loop, and stays what it was."""

    def forms(*specs: RunSpec[Any], algorithm: str = "dqn") -> list[str]:
        return [spec.train.fleet for spec in fleet.resolved_together(algorithm, specs)]

    game, other, chosen, never = (
        spec_of("dqn", "atari/Breakout", **changes)
        for changes in ({}, {"net__width": 64}, {"train__fleet": "on"}, {"train__fleet": "off"})
    )
    assert fleet.obstacle("dqn", game) is None
    assert fleet.env_spec("atari/Breakout").obs_shape == (4, 84, 84)
    assert forms(game, game) == ["off", "off"]
    assert forms(chosen, game) == ["on", "off"]
    monkeypatch.setattr(machine, "choose_device", lambda name: torch.device("cuda"))
    assert forms(game) == ["off"]
    assert forms(game, other) == ["off", "off"]
    assert forms(game, other, game) == ["on", "off", "on"]
    assert forms(never, game, game) == ["off", "on", "on"]
    assert forms(chosen) == ["on"]
    assert fleet.resolved("dqn", game).train.fleet == "off"
    assert fleet.resolved("dqn", game, together=True).train.fleet == "on"
    assert fleet.begins_on("dqn", game, on_gpu=True, together=True)
    assert not fleet.begins_on("dqn", game, on_gpu=True)
    assert not fleet.begins_on("dqn", game, on_gpu=False, together=True)
    pqn = spec_of("pqn", "atari/Breakout", train__emulators="cpu")
    assert forms(pqn, pqn, algorithm="pqn") == ["off", "off"]


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
@pytest.mark.parametrize("task", envs.tasks("minatar"))
def test_the_choice_is_made_by_the_device(
    algorithm: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(algorithm, f"minatar/{task}")
    assert spec.train.fleet == "auto"
    assert fleet.obstacle(algorithm, spec) is None
    assert fleet.resolved(algorithm, spec).train.fleet == "off"
    assert fleet.resolved(algorithm, spec_of(algorithm, train__fleet="on")).train.fleet == "on"
    monkeypatch.setattr(machine, "choose_device", lambda name: torch.device("cuda"))
    resolved = fleet.resolved(algorithm, spec)
    assert resolved == replace(spec, train=replace(spec.train, fleet="on"))
    assert fleet.resolved(algorithm, spec_of(algorithm, train__fleet="off")).train.fleet == "off"


def test_a_run_folder_says_which_form_its_run_has(command: Command, tmp_path: Path) -> None:
    settings = {"--env": "minatar/breakout", "--train.steps": 32, "--train.health-every": 0}
    for choice, expected in (("on", "on"), ("auto", "off")):
        words = small("pqn", tmp_path / choice, {**settings, "--train.fleet": choice})
        assert command(*words, "--device", "cpu").code == 0
        assert Run.open(tmp_path / choice).config["spec"]["train"]["fleet"] == expected


def test_a_fleet_that_is_not_possible_is_a_clear_error(command: Command, tmp_path: Path) -> None:
    result = command(*small("pqn", tmp_path / "run", {"--train.fleet": "on"}))
    assert result.code == 2
    assert result.err == (
        "hadamard: --train.fleet on is not possible: probe/both is not played on the device, "
        "which pqn needs in a fleet. Leave the option out\n"
    )
    assert not (tmp_path / "run").exists()


def grouped(*runs: tuple[str, RunSpec[Any], int]) -> list[list[int]]:
    """Return the groups of runs by their numbers."""
    return fleet.grouped(
        range(len(runs)),
        [algorithm for algorithm, _, _ in runs],
        [spec for _, spec, _ in runs],
        [step for _, _, step in runs],
    )


def test_runs_of_one_shape_are_grouped() -> None:
    own: dict[str, list[dict[str, Any]]] = {
        "pqn": [
            {"algo__learning_rate": 0.1},
            {"algo__epsilon_initial": 0.5},
            {"algo__epsilon_final": 0.5},
            {"algo__epsilon_fraction": 0.5},
        ],
        "ppo": [{"algo__learning_rate": 0.1}],
        "dqn": [
            {"algo__learning_rate": 0.1},
            {"algo__epsilon_initial": 0.5},
            {"algo__epsilon_final": 0.5},
            {"algo__epsilon_steps": 7},
        ],
    }
    shared: list[dict[str, Any]] = [
        {},
        {"seed": 5},
        {"run_dir": "elsewhere"},
        {"train__until": 600},
        {"train__tensorboard": False},
        {"train__wandb": "project"},
        {"remedy": "redo"},
        {"remedy": "redo", "redo__tau": 0.5},
    ]
    for algorithm, changes in own.items():
        runs = [(algorithm, spec_of(algorithm, **change), 64) for change in shared + changes]
        assert grouped(*runs) == [[*range(len(runs))]], algorithm


@pytest.mark.parametrize(
    "changes",
    [
        {"net__width": 64},
        {"net__layer": "hadamard"},
        {"net__activation": "tanh"},
        {"algo__gamma": 0.9},
        {"algo__num_envs": 64},
        {"train__steps": 1_000},
        {"train__health_every": 7_000},
        {"train__greedy_envs": 3},
        {"env": "minatar/asterix"},
    ],
)
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_runs_of_other_shapes_are_separate(algorithm: str, changes: dict[str, Any]) -> None:
    plain, other = spec_of(algorithm), spec_of(algorithm, **changes)
    runs = [(algorithm, spec, 0) for spec in (plain, other, plain)]
    assert grouped(*runs) == [[0, 2], [1]]


def test_algorithms_and_steps_are_separate() -> None:
    pqn, ppo = spec_of("pqn"), spec_of("ppo")
    runs = ("pqn", pqn, 0), ("ppo", ppo, 0), ("pqn", pqn, 32), ("ppo", ppo, 0), ("pqn", pqn, 32)
    assert grouped(*runs) == [[0], [1, 3], [2, 4]]
    assert grouped() == []
    # A rate that belongs to each run of one algorithm is a part of the shape of another.
    fractions = [spec_of("ppo", algo__clip=clip) for clip in (0.1, 0.2)]
    assert grouped(*(("ppo", spec, 0) for spec in fractions)) == [[0], [1]]
