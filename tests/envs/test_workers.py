"""Environments in worker processes: the same steps as in one process, and failures."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hadamard import envs as suites
from hadamard.envs import make
from hadamard.envs.common import EnvironmentFailure
from hadamard.envs.workers import WorkerEnvs
from tests.support.environments import check_parts, play


def processes(envs: WorkerEnvs) -> list[int]:
    return [process.pid for process in envs._processes if process.pid is not None]


@contextmanager
def open_workers(name: str, timeout: float = 60.0) -> Iterator[WorkerEnvs]:
    envs = WorkerEnvs(name, 3, 5, workers=2, timeout=timeout)
    yield envs
    envs.close()
    assert not multiprocessing.active_children()


@pytest.fixture
def workers() -> Iterator[WorkerEnvs]:
    with open_workers("probe/both") as envs:
        yield envs


@pytest.mark.skipif(bool(suites.missing("minatar")), reason="needs the minatar extra")
def test_workers_give_the_same_steps_as_one_process() -> None:
    with open_workers("minatar/asterix") as workers:
        check_parts(workers, "workers")


def test_a_killed_worker_is_named(workers: WorkerEnvs) -> None:
    workers.reset()
    pids = processes(workers)
    os.kill(pids[1], signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"worker 1 .*3 to 4 of probe/both.* -9"):
        play(workers, 3)
    assert time.monotonic() - started < 30.0  # its death is noticed before the timeout
    assert not multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="closed"):
        workers.reset()


def test_workers_ignore_signals_to_stop(workers: WorkerEnvs) -> None:
    workers.reset()
    for pid in processes(workers):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    assert len(play(workers, 3)) == 3


def test_a_hung_worker_is_named() -> None:
    with open_workers("probe/both", timeout=5.0) as workers:
        workers.reset()
        os.kill(processes(workers)[0], signal.SIGSTOP)
        with pytest.raises(EnvironmentFailure, match=r"worker 0 .*0 to 2 .*within 5 s"):
            play(workers, 1)
        assert not multiprocessing.active_children()


def test_an_error_in_a_worker_comes_with_its_traceback(workers: WorkerEnvs) -> None:
    with pytest.raises(EnvironmentFailure, match=r"(?s)worker . .*Traceback.*KeyError: 'side'"):
        workers.load_state_dict({"workers": [{}, {}]})
    assert not multiprocessing.active_children()


def test_a_state_that_cannot_be_split_needs_the_same_number_of_workers(workers: WorkerEnvs) -> None:
    workers.reset()
    state = workers.state_dict()
    with pytest.raises(ValueError, match="workers=1"):
        workers.load_state_dict({"workers": state["workers"][:1]})
    assert workers.load_state_dict(state) is not None


def test_workers_are_limited_by_the_environments() -> None:
    with pytest.raises(ValueError, match="1..2.*got 3"):
        make("probe/constant", 0, 2, workers=3)


def test_workers_die_with_their_parent() -> None:
    code = """
import os, signal
from hadamard.envs import make
if __name__ == "__main__":
    envs = make("probe/both", 0, 2, workers=2)
    print(*[process.pid for process in envs.envs._processes], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pids = [int(pid) for pid in completed.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in pids)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
