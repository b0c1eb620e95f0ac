"""Fleets of SimbaV2 runs, whose environments the host plays: each is the run it would be alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hadamard import envs
from hadamard.core.config import RunSpec
from hadamard.core.run import Run
from hadamard.training import start
from hadamard.training.fleet import hosted
from hadamard.training.outcomes import Diverged, Interrupted
from tests.support.fleets import (
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


@pytest.fixture(autouse=True, scope="module")
def short_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosted, "ROUNDS", 15)
        yield


def run_of(
    folder: Path, seed: int, changes: Mapping[str, Any] = {}, env: str = "probe/steer"
) -> RunSpec[Any]:
    return spec_of("simbav2", folder, seed, {"train.greedy_envs": 0, **changes}, env=env)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Runs in this form that were trained alone, each once."""
    runs: dict[int, Path] = {}

    def get(seed: int) -> Path:
        if seed not in runs:
            runs[seed] = tmp_path_factory.mktemp("alone") / str(seed)
            train("simbav2", [run_of(runs[seed], seed)])
        return runs[seed]

    return get


def test_runs_together_are_the_runs_they_would_be_alone(
    alone: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sizes_of_fleets(monkeypatch)
    paths = [tmp_path / str(seed) for seed in range(3)]
    train("simbav2", [run_of(path, seed) for seed, path in enumerate(paths)])
    assert sizes == [3]
    for seed, path in enumerate(paths):
        assert_same_run(path, alone(seed))
        rows = counted(path)
        assert rows["train"] >= 3
        assert rows["episodes"] >= 10
        assert rows["health"] == 1
        assert "entropy" in rows_of(path)["train"][-1]
    assert rows_of(paths[0]) != rows_of(paths[1])


def test_a_stopped_fleet_is_resumed_together_or_apart(
    alone: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / str(seed) for seed in range(3)]
    with monkeypatch.context() as patch:
        stopping_at(150, patch)
        with pytest.raises(Interrupted) as stopped:
            train("simbav2", [run_of(path, seed) for seed, path in enumerate(paths)])
    assert stopped.value.args == tuple(map(str, paths))
    assert {start.trained_steps(Run.open(path)) for path in paths} == {180}
    sizes = sizes_of_fleets(monkeypatch)
    resume(paths[1])  # taken out of the fleet
    resume(paths[2], paths[0])
    assert sizes == [1, 2]
    for seed, path in enumerate(paths):
        assert_same_run(path, alone(seed))


def test_runs_with_other_rates_and_one_that_diverges_do_not_disturb_each_other(
    alone: Callable[[int], Path], tmp_path: Path
) -> None:
    paths = [tmp_path / str(seed) for seed in range(3)]
    rates = {"algo.learning_rate": 3e-3, "algo.initial_temperature": 0.1}
    too_large = {"algo.learning_rate": 1e30, "algo.learning_rate_final": 1e30}
    changes: list[Mapping[str, Any]] = [{}, too_large, rates]
    with pytest.raises(Diverged, match="simbav2 diverged") as error:
        train("simbav2", [run_of(paths[seed], seed, own) for seed, own in enumerate(changes)])
    assert str(error.value).count("diverged") == 1
    assert str(paths[1]) in str(error.value)
    assert_same_run(paths[0], alone(0))
    assert Run.open(paths[2]).done is not None
    assert rows_of(paths[2])["train"] != rows_of(alone(2))["train"]


def test_evaluations_play_with_the_weights_of_the_fleet(tmp_path: Path) -> None:
    changes = {"train.eval_every": 75, "train.eval_episodes": 2, "train.steps": 150}
    paths = [tmp_path / str(seed) for seed in range(2)]
    train("simbav2", [run_of(path, seed, changes) for seed, path in enumerate(paths)])
    train("simbav2", [run_of(tmp_path / "alone", 1, changes)])
    assert counted(paths[1])["eval"] == 6
    assert_same_rows(paths[1], tmp_path / "alone")


@pytest.mark.skipif(bool(envs.missing("dmc-state")), reason="needs the extra dmc")
def test_worker_processes_play_the_environments_of_all_runs(tmp_path: Path) -> None:
    changes = {"train.steps": 30, "algo.learning_starts": 20}
    forms: dict[str, Mapping[str, Any]] = {
        "workers": {},
        "here": {"train.env_workers": 0},
    }
    for name, own in forms.items():
        specs = [
            run_of(
                tmp_path / name / str(seed), seed, {**changes, **own}, "dmc-state/cartpole-swingup"
            )
            for seed in range(2)
        ]
        train("simbav2", specs)
    for seed in range(2):
        paths = [tmp_path / name / str(seed) for name in forms]
        assert_same_rows(*paths)
        assert counted(paths[0])["train"] >= 1
