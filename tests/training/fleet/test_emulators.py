"""Runs whose Atari games are emulated on the device; the host stands in for the GPU here."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

from hadamard import envs
from hadamard.core import machine
from hadamard.core.config import RunSpec, overridden
from hadamard.core.run import Run
from hadamard.envs import atari
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, fleets
from hadamard.training import emulators, fleet, start
from hadamard.training.trainer import Interrupted
from tests.support.fleets import (
    assert_same_rows,
    assert_same_run,
    resume,
    sizes_of_fleets,
    spec_of,
    stopping_at,
    train,
)

if shutil.which("g++") is None:
    pytest.skip("needs g++", allow_module_level=True)

EMULATED = {"train.emulators": "gpu", "train.greedy_envs": 1, "train.health_every": 0}
SMALL: dict[str, dict[str, Any]] = {
    "pqn": {
        "algo.num_envs": 2,
        "algo.minibatches": 2,
        "algo.epochs": 1,
        "train.steps": 80,
        "train.checkpoint_every": 30,
    },
    "ppo": {"algo.num_envs": 2, "algo.minibatches": 2, "algo.epochs": 1, "train.steps": 64},
    "dqn": {
        "algo.num_envs": 1,
        "algo.update_period": 40,
        "algo.learning_starts": 100,
        "train.steps": 300,
        "train.greedy_envs": 0,
    },
}


@pytest.fixture(autouse=True)
def host_instead_of_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "check_gpu", lambda device: None)


def run_of(
    algorithm: str, path: Path, seed: int = 0, game: str = "Breakout", **changes: Any
) -> RunSpec[Any]:
    own = {name.replace("__", "."): value for name, value in changes.items()}
    settings = {**EMULATED, **SMALL[algorithm], **own}
    return spec_of(algorithm, path, seed, settings, f"atari/{game}")


@pytest.mark.parametrize("algorithm", ["pqn", "ppo", "dqn"])
def test_a_run_in_a_fleet_of_several_games_is_the_run_alone(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sizes_of_fleets(monkeypatch)
    games = ["SpaceInvaders", "Qbert"]  # which have as many actions
    games += ["Breakout"] if algorithm == "pqn" else []
    paths = [tmp_path / game for game in games]
    train(algorithm, [run_of(algorithm, p, 1, g) for p, g in zip(paths, games, strict=True)])
    assert sizes == {"pqn": [2, 1], "ppo": [2], "dqn": [2]}[algorithm]
    train(algorithm, [run_of(algorithm, tmp_path / "alone", 1, "Qbert")])
    assert_same_run(tmp_path / "alone", tmp_path / "Qbert")


@pytest.mark.parametrize("algorithm", ["pqn", "dqn"])
def test_a_stopped_fleet_is_resumed_exactly(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [run_of(algorithm, tmp_path / str(seed), seed) for seed in range(2)]
    with monkeypatch.context() as patch:
        stopping_at(20, patch)
        with pytest.raises(Interrupted):
            train(algorithm, specs)
    stopped = [start.trained_steps(Run.open(spec.run_dir or "")) for spec in specs]
    assert 0 < min(stopped) <= max(stopped) < specs[0].train.steps
    resume(tmp_path / "0", tmp_path / "1")
    train(algorithm, [run_of(algorithm, tmp_path / "whole", 1)])
    if algorithm == "dqn":  # whose replay is in more files
        assert_same_rows(tmp_path / "1", tmp_path / "whole")
    else:
        assert_same_run(tmp_path / "1", tmp_path / "whole")


@pytest.mark.parametrize("algorithm", ["pqn", "dqn"])
def test_without_a_fleet_a_run_does_not_depend_on_its_emulators(
    algorithm: str, tmp_path: Path
) -> None:
    own = {"train__fleet": "off", "train__env_groups": 1, "train__env_workers": 0}
    for place in ("gpu", "cpu"):
        train(algorithm, [run_of(algorithm, tmp_path / place, train__emulators=place, **own)])
    assert_same_rows(tmp_path / "gpu", tmp_path / "cpu")


def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "choose_device", lambda name: torch.device("cuda"))


def choices(specs: Sequence[RunSpec[Any]], algorithm: str = "pqn") -> list[tuple[str, str]]:
    resolved = fleet.resolved_together(algorithm, specs)
    return [(spec.train.emulators, spec.train.fleet) for spec in resolved]


def automatic(algorithm: str = "pqn", game: str = "Breakout", **changes: Any) -> RunSpec[Any]:
    settings = {name.replace("__", "."): value for name, value in changes.items()}
    spec: RunSpec[Any] = overridden(start.default_spec(algorithm, f"atari/{game}"), settings)
    return spec


def test_many_environments_are_emulated_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    one = automatic()
    assert emulators.environments(one) == 136 < emulators.MANY <= 272
    assert choices([one, one]) == [("cpu", "off")] * 2  # on a CPU
    on_gpu(monkeypatch)
    assert choices([one]) == [("cpu", "off")]
    assert choices([one, one]) == [("gpu", "on")] * 2
    assert choices([one, automatic(game="Qbert")]) == [("gpu", "on")] * 2
    assert choices([automatic(algo__num_envs=256)]) == [("gpu", "on")]
    assert choices([automatic("ppo")] * 24, "ppo") == [("cpu", "off")] * 24
    assert choices([automatic("ppo")] * 32, "ppo") == [("gpu", "on")] * 32
    # What was chosen by hand stays, and what a fleet cannot do is left alone.
    assert choices([automatic(train__emulators="gpu")]) == [("gpu", "on")]
    assert choices([automatic(train__emulators="cpu")] * 2) == [("cpu", "off")] * 2
    assert choices([automatic(train__fleet="off")] * 2) == [("cpu", "off")] * 2
    filmed = automatic(train__film_every=1_000)
    assert choices([filmed, filmed]) == [("cpu", "off")] * 2
    other = overridden(start.default_spec("pqn", "minatar/breakout"), {})
    assert fleet.resolved("pqn", other).train.emulators == "auto"
    # A process of a sweep makes its runs one by one.
    assert fleet.resolved("pqn", one, together=True, count=2).train.emulators == "gpu"


def test_what_cannot_be_emulated_is_said_and_played_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_gpu(monkeypatch)
    monkeypatch.setattr(atari, "refusal", lambda rom: "of its menu" if rom == "pong" else None)
    with pytest.warns(UserWarning, match="play on the CPU: Pong is not played on a GPU: of its"):
        assert choices([automatic(), automatic(), automatic(game="Pong")]) == [
            ("gpu", "on"),
            ("gpu", "on"),
            ("cpu", "off"),
        ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choices([automatic(game="Pong")]) == [("cpu", "off")]


@pytest.mark.parametrize(
    ("env", "changes", "reason"),
    [
        ("minatar/breakout", {}, "is for Atari, and not for minatar/breakout"),
        ("atari/Breakout", {}, "not possible: the device is cpu.*--train.emulators cpu"),
        ("atari/Breakout", {"algo.num_envs": 10**9}, r"needs at least .* of .*--algo\.num-envs"),
    ],
)
def test_what_is_not_possible_is_refused_before_a_run_exists(
    env: str, changes: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    settings = {"train.emulators": "gpu", "train.fleet": "off", **changes}
    with pytest.raises(ValueError, match=reason):
        train("pqn", [spec_of("pqn", tmp_path / "run", 0, settings, env)])
    assert not (tmp_path / "run").exists()


def test_a_sweep_joins_games_of_as_many_actions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    games = "Asterix", "BeamRider", "Breakout", "MsPacman"
    jobs = [Job("pqn", automatic(game=game, run_dir=str(tmp_path / game))) for game in games]
    units = fleets.groups(jobs, Options(), 1, gpus=True)
    assert [[job.name for job in unit] for unit in units] == [
        ["Asterix", "BeamRider", "MsPacman"],
        ["Breakout"],
    ]
    assert all(job.spec.train.emulators == "auto" for unit in units for job in unit)
    apart = fleets.groups(jobs, Options(), 4, gpus=True)  # 136 environments in each slot
    assert [len(unit) for unit in apart] == [1] * 4
    on_cpu = fleets.groups(jobs, Options(), 1, gpus=False)
    assert [len(unit) for unit in on_cpu] == [1] * 4


def test_a_run_that_was_begun_on_a_gpu_is_not_continued_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("pqn", [run_of("pqn", tmp_path / "run", train__until=32)])
    monkeypatch.undo()
    assert envs.emulator_trouble("atari/Breakout", torch.device("cpu")) is not None
    with pytest.raises(ValueError, match="begun on a GPU is continued on one"):
        start.resume_together([str(tmp_path / "run")], until=64)
