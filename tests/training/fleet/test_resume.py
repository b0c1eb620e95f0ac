"""Fleets are stopped, resumed, taken apart and put together, and no run notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hadamard.core.run import Run
from hadamard.experiments.bench import Quiet
from hadamard.training import start
from hadamard.training.outcomes import Interrupted
from tests.support.fleets import (
    ALGORITHMS,
    assert_same_run,
    resume,
    sizes_of_fleets,
    spec_of,
    stopping_at,
    train,
)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_stopped_fleet_is_resumed_together_or_apart(
    algorithm: str,
    alone: Callable[[str, int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = [tmp_path / f"seed{seed}" for seed in range(3)]
    specs = [spec_of(algorithm, path, seed) for seed, path in enumerate(paths)]
    with monkeypatch.context() as patch:
        stopping_at(150, patch)
        with pytest.raises(Interrupted) as stopped:
            train(algorithm, specs)
    assert stopped.value.args == tuple(map(str, paths))
    steps = {start.trained_steps(Run.open(path)) for path in paths}
    assert len(steps) == 1
    assert 150 < steps.pop() <= 300
    assert all(Run.open(path).done is None for path in paths)

    # One run goes on alone, and the others without it, in another order.
    sizes = sizes_of_fleets(monkeypatch)
    resume(paths[1])
    resume(paths[2], paths[0])
    assert sizes == [1, 2]
    for seed, path in enumerate(paths):
        assert_same_run(path, alone(algorithm, seed))


@pytest.mark.parametrize("algorithm", ["dqn", "pqn"])
def test_runs_trained_alone_go_on_together(
    algorithm: str,
    alone: Callable[[str, int], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = [tmp_path / f"seed{seed}" for seed in range(3)]
    # The third has been trained for fewer steps: it is a computation of its own.
    for seed, until in enumerate((230, 230, 100)):
        train(algorithm, [spec_of(algorithm, paths[seed], seed, {"train.until": until})])
    steps = [start.trained_steps(Run.open(path)) for path in paths]
    assert steps[0] == steps[1] > steps[2]
    sizes = sizes_of_fleets(monkeypatch)
    start.resume_together([str(path) for path in paths], Quiet, until=0)
    assert sizes == [2, 1]
    for seed, path in enumerate(paths):
        assert_same_run(path, alone(algorithm, seed))


def test_a_finished_run_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose last checkpoint is its end is finished beside one that goes on."""
    paths = [tmp_path / f"seed{seed}" for seed in range(2)]
    train("pqn", [spec_of("pqn", path, seed) for seed, path in enumerate(paths)])
    (paths[0] / "DONE").unlink()  # the process ended between the last save and the end
    sizes = sizes_of_fleets(monkeypatch)
    before = (paths[1] / "DONE").read_text()
    summaries = resume(*paths)
    assert sizes == [1]
    assert [summary["steps"] for summary in summaries] == [320, 320]
    assert (paths[1] / "DONE").read_text() == before
    assert_same_run(paths[0], paths[0])
    rows = [row["step"] for row in Run.open(paths[0]).rows("train")]
    assert rows == sorted(set(rows))
    assert rows[-1] == 320
