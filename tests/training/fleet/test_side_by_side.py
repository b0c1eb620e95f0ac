"""Runs trained as one computation are the runs that each would be alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hadamard.core.run import Run
from hadamard.experiments.bench import Quiet
from hadamard.training import start
from tests.support.fleets import (
    ALGORITHMS,
    REDO,
    assert_same_run,
    counted,
    rows_of,
    sizes_of_fleets,
    spec_of,
    train,
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_runs_together_are_the_runs_they_would_be_alone(
    algorithm: str,
    alone: Callable[[str, int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = [tmp_path / f"seed{seed}" for seed in range(3)]
    sizes = sizes_of_fleets(monkeypatch)
    summaries = train(algorithm, [spec_of(algorithm, path, i) for i, path in enumerate(paths)])
    assert sizes == [3]
    for seed, path in enumerate(paths):
        assert_same_run(path, alone(algorithm, seed))
        done = Run.open(path).done
        assert done is not None
        assert done["score"] == summaries[seed]["score"]
        # The runs have something to lose.
        rows = counted(path)
        assert rows["train"] >= 5
        assert rows["episodes"] >= 15
        assert rows["eval"] >= 10
        assert rows["health"] == rows["kde"] >= 2
        assert "loss" in rows_of(path)["train"][-1]
    assert rows_of(paths[0]) != rows_of(paths[1])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_remedy_acts_on_each_run_alone(
    algorithm: str, alone: Callable[[str, int], Path], tmp_path: Path
) -> None:
    """ReDo in the middle run of three: it is equal to that run alone, and so are the others."""
    changes: list[Mapping[str, Any]] = [{}, REDO, {}]
    paths = [tmp_path / f"seed{seed}" for seed in range(3)]
    specs = [
        spec_of(algorithm, path, seed, own)
        for seed, (path, own) in enumerate(zip(paths, changes, strict=True))
    ]
    train(algorithm, specs)
    train(algorithm, [spec_of(algorithm, tmp_path / "redo", 1, REDO)])
    assert_same_run(paths[1], tmp_path / "redo")
    assert rows_of(paths[1])["health"] != rows_of(alone(algorithm, 1))["health"]
    for seed in (0, 2):
        assert_same_run(paths[seed], alone(algorithm, seed))


def test_runs_with_their_own_settings_are_one_computation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learning rates and explorations that differ change no other run."""
    sizes = sizes_of_fleets(monkeypatch)
    changes: list[dict[str, Any]] = [
        {"algo.learning_rate": 1e-3, "algo.epsilon_final": 0.0},
        {"algo.learning_rate": 5e-3, "algo.epsilon_initial": 0.3},
    ]
    for number, own in enumerate(changes):
        train("pqn", [spec_of("pqn", tmp_path / f"alone{number}", 0, own)])
    specs = [spec_of("pqn", tmp_path / str(i), 0, own) for i, own in enumerate(changes)]
    train("pqn", specs)
    assert sizes == [1, 1, 2]
    for number in range(2):
        assert_same_run(tmp_path / str(number), tmp_path / f"alone{number}")
    assert rows_of(tmp_path / "0")["train"] != rows_of(tmp_path / "1")["train"]


def test_runs_of_two_shapes_are_two_computations(
    alone: Callable[[str, int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = sizes_of_fleets(monkeypatch)
    wide = {"net.width": 12}
    specs = [
        spec_of("pqn", tmp_path / "0", 0),
        spec_of("pqn", tmp_path / "wide", 0, wide),
        spec_of("pqn", tmp_path / "1", 1),
    ]
    # One that is not in a fleet takes turns with them.
    specs.append(spec_of("pqn", tmp_path / "own", 2, {"train.fleet": "off"}))
    start.train_together("pqn", specs, Quiet)
    assert sizes == [2, 1]
    for seed in range(2):
        assert_same_run(tmp_path / str(seed), alone("pqn", seed))
    assert Run.open(tmp_path / "own").done is not None
    # Other games than those of the suite, with other random numbers.
    assert rows_of(tmp_path / "own")["episodes"] != rows_of(alone("pqn", 2))["episodes"]


def test_runs_may_end_at_different_steps(
    alone: Callable[[str, int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [alone("pqn", seed) for seed in range(3)]
    sizes = sizes_of_fleets(monkeypatch)
    paths = [tmp_path / f"seed{seed}" for seed in range(3)]
    ends = 150, 0, 270  # in blocks with a diagnosis: it is of the weights at their ends
    specs = [
        spec_of("pqn", path, seed, {"train.until": end})
        for seed, (path, end) in enumerate(zip(paths, ends, strict=True))
    ]
    summaries = train("pqn", specs)
    assert [summary["steps"] for summary in summaries] == [160, 320, 288]
    assert_same_run(paths[1], expected[1])
    # Those that ended early go on from their own steps, each alone.
    start.resume_together([str(path) for path in paths], Quiet, until=0)
    assert sizes == [3, 1, 1]
    for seed, path in enumerate(paths):
        assert_same_run(path, expected[seed])
