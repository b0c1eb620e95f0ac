"""The benchmark of fleets measures all runs together."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hadamard.experiments import bench, fleet_bench
from hadamard.experiments.bench import VARIANTS, Timing
from hadamard.experiments.fleet_bench import TimedFleet
from hadamard.training.fleet import replayed
from tests.support.commands import Command

SMALL = {"net.width": 8, "algo.num_envs": 2, "train.health_every": 8, "train.health_samples": 8}
FEW = {
    "pqn": {"algo.rollout_steps": 4, "algo.minibatches": 2, "train.greedy_envs": 1},
    "dqn": {"algo.learning_starts": 50, "algo.replay_capacity": 200, "algo.update_period": 20},
}


@pytest.mark.parametrize("algorithm", ["pqn", "dqn"])
def test_all_runs_of_a_fleet_are_timed(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replayed, "BLOCK", 100)
    changes = {**SMALL, **FEW[algorithm]}
    fleet = TimedFleet(algorithm, "minatar/breakout", "tanh + HR", 2, "cpu", tmp_path, changes)
    try:
        assert fleet.setup_seconds > 0
        assert [trainer.spec.seed for trainer in fleet.trainers] == [0, 1]
        before = [trainer.step for trainer in fleet.trainers]
        timing = fleet.measure(0.05)
        trained = [trainer.step for trainer in fleet.trainers]
    finally:
        fleet.close()
    block = fleet.fleet.computation.block
    assert timing.steps == sum(trained) - sum(before)
    assert timing.steps >= 2 * block
    assert timing.steps % (2 * block) == 0
    assert timing.seconds >= 0.05
    assert set(timing.parts) == set(fleet_bench.PARTS)
    assert all(seconds > 0 for seconds in timing.parts.values())  # a diagnosis in every block


def test_the_command_prints_a_row_for_each_variant(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[Any] = []
    create = TimedFleet.__init__

    def creating(self: TimedFleet, *arguments: Any) -> None:
        sizes.append(arguments[2:4])
        create(self, *arguments[:6], {**SMALL, **FEW["pqn"], **arguments[6]})

    monkeypatch.setattr(TimedFleet, "__init__", creating)
    words = ["bench", "--fleet", "--algorithms", "pqn", "--runs", "1", "2", "--seconds", "0.01"]
    result = command(*words, "--device", "cpu")
    assert (result.code, result.err) == (0, "")
    heading, columns, *rows = result.out.splitlines()
    assert heading.startswith("minatar/breakout, torch ")
    assert heading.endswith("steps/s of all runs, for 1 / 2 runs")
    assert columns.split() == ["1", "2", "parts", "of", "the", "last"]
    number, share = r" +[\d,]+", r"\d+%"
    parts = ", ".join(f"{part} {share}" for part in ("playing", "learning", "health"))
    assert len(rows) == len(VARIANTS)
    for row, variant in zip(rows, VARIANTS, strict=True):
        assert re.fullmatch(rf"pqn {re.escape(variant)}{number}{number}   {parts}", row), row
    assert sizes == [(variant, runs) for variant in VARIANTS for runs in (1, 2)]


def test_a_row_shows_rates_and_the_parts_of_the_last_fleet() -> None:
    parts = {"playing": 0.5, "learning": 1.0, "health": 0.1}
    timings = [Timing(2_000, 4.0, {}), Timing(9_000_000, 2.0, parts)]
    row = fleet_bench.row("dqn ReLU", timings)
    assert row.split() == (
        ["dqn", "ReLU", "500", "4,500,000", "playing", "25%,", "learning", "50%,", "health", "5%"]
    )


def test_a_fleet_without_runs_is_refused(command: Command) -> None:
    result = command("bench", "--fleet", "--runs", "0", "--seconds", "1")
    assert result.code == 2
    assert "--runs must be numbers of at least 1, got 0" in result.err


def test_environments_without_a_form_for_fleets_are_refused(command: Command) -> None:
    result = command("bench", "--fleet", "--algorithms", "pqn", "--env", "probe/both")
    assert (result.code, result.out) == (2, "")
    assert "--fleet measures runs that can be trained together: probe/both is not" in result.err


def test_atari_is_measured_with_the_emulators_of_both(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host stands in for the GPU."""
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    from hadamard.envs import atari

    def places(emulators: Any, env: str = "atari/Breakout") -> list[str]:
        return bench.places_of_emulators(bench.Bench(env=env, emulators=emulators, device="cpu"))

    assert places("auto") == places("cpu") == places("auto", "minatar/breakout") == ["cpu"]
    with pytest.raises(ValueError, match="gpu is for Atari, and not for minatar/breakout"):
        places("gpu", "minatar/breakout")
    with pytest.raises(ValueError, match="not possible: the device is cpu"):
        places("gpu")
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    monkeypatch.setattr(atari, "check_gpu", lambda device: None)
    assert places("auto") == ["cpu", "gpu"]
    assert places("gpu") == ["gpu"]
    create = TimedFleet.__init__

    def creating(self: TimedFleet, *arguments: Any) -> None:
        create(self, *arguments[:6], {**SMALL, **FEW["pqn"], **arguments[6]})

    monkeypatch.setattr(TimedFleet, "__init__", creating)
    monkeypatch.setattr(fleet_bench, "VARIANTS", {"tanh": VARIANTS["tanh"]})
    words = ["bench", "--env", "atari/Breakout", "--seconds", "0.01", "--device", "cpu"]
    result = command(*words, "--emulators", "gpu")
    assert (result.code, result.err) == (0, "")
    heading, _, row = result.out.splitlines()[:3]
    assert heading.startswith("atari/Breakout with the GPU's emulators, torch ")
    assert row.startswith("pqn tanh")
