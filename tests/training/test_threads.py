"""Runs in several threads of one process give the results of runs alone, and disturb nothing."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import hadamard
from hadamard.core import machine
from hadamard.core.config import TrainSpec
from hadamard.core.random import seeded
from hadamard.training import progress
from tests.support.resume import assert_same_run

# In a process of its own, so that every thread finds, parses and imports what is not loaded yet.
PROGRAM = """
import sys, threading, traceback
from pathlib import Path
import hadamard

folder, failures = Path(sys.argv[1]), []
barrier = threading.Barrier(6)

def one(number):
    algorithm = ("pqn", "dqn")[number % 2]
    own = {
        "pqn": {"num_envs": 4, "rollout_steps": 4, "minibatches": 2},
        "dqn": {"learning_starts": 40, "replay_capacity": 200},
    }[algorithm]
    try:
        barrier.wait()
        hadamard.train(
            algorithm, "probe/both", own, width=16, steps=600, log_every=50, health_every=100,
            health_samples=32, checkpoint_every=100, tensorboard=False, threads=1,
            run_dir=folder / f"{algorithm}{number // 2}", remedy="redo", period=20,
        )
    except BaseException:
        failures.append(traceback.format_exc())

import torch
torch.set_num_threads(2)
threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("".join(failures))
assert torch.get_num_threads() == 2, torch.get_num_threads()
sys.exit(bool(failures))
"""


def test_runs_in_threads_equal_each_other_and_runs_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for algorithm in ("pqn", "dqn"):
        for other in (1, 2):
            assert_same_run(tmp_path / f"{algorithm}0", tmp_path / f"{algorithm}{other}")
    alone = hadamard.train(
        config=tmp_path / "pqn0" / "config.json", run_dir=tmp_path / "alone", show_progress=False
    )
    assert_same_run(tmp_path / "pqn0", alone.path)


def in_threads(count: int, function: Callable[[int], Any]) -> list[Any]:
    """What a function returns in each of several threads that run at once."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        results[number] = function(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_seeded_numbers_do_not_mix() -> None:
    def draw(_number: int) -> list[torch.Tensor]:
        tensors = []
        for _ in range(50):
            with seeded(7):
                tensors += [torch.rand(200), torch.rand(3)]
        return tensors

    first, *others = in_threads(4, draw)
    for tensors in others:
        for ours, theirs in zip(first, tensors, strict=True):
            assert torch.equal(ours, theirs)


def test_torch_has_its_own_settings_back_in_whatever_order_runs_end() -> None:
    before = torch.get_num_threads()
    cpu = torch.device("cpu")
    first, second = (machine.torch_settings(TrainSpec(threads=n), cpu) for n in (3, 5))
    first.__enter__()
    second.__enter__()
    assert torch.get_num_threads() == 5
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == 5
    with machine.torch_settings(TrainSpec(threads=0), cpu):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == 5
    second.__exit__(None, None, None)
    assert torch.get_num_threads() == before


def test_one_bar_has_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    bar = progress.make_progress("first", 10)
    assert isinstance(bar, progress.LiveBar)
    assert isinstance(progress.make_progress("second", 10), progress.PlainLines)
    bar.close()
    bar.close()
    again = progress.make_progress("third", 10)
    assert isinstance(again, progress.LiveBar)
    again.close()
