"""Environments in worker processes: the same steps as in one process, and failures."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from hadamard import envs as suites
from hadamard.envs import make, worker_process, workers
from hadamard.envs.checked import InvalidStep
from hadamard.envs.common import EnvironmentFailure
from hadamard.envs.workers import WorkerEnvs
from tests.support import broken_workers
from tests.support.environments import check_parts, play
from tests.support.resume import assert_same

PATIENT = 600.0
"""Seconds after which a worker that should answer, however busy the machine is, counts as hung."""
SHORT = 0.2
"""The same for a worker that never answers."""


@contextmanager
def open_workers(name: str) -> Iterator[WorkerEnvs]:
    envs = WorkerEnvs(name, 3, 5, workers=2, timeout=PATIENT)
    yield envs
    envs.close()
    assert not multiprocessing.active_children()


@pytest.fixture
def envs() -> Iterator[WorkerEnvs]:
    with open_workers("probe/both") as batch:
        yield batch


def assert_closed(envs: WorkerEnvs) -> None:
    """Check that all workers were ended, and that the environments say so."""
    assert not multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="closed"):
        envs.reset()


@pytest.mark.skipif(bool(suites.missing("minatar")), reason="needs the minatar extra")
def test_workers_give_the_same_steps_as_one_process() -> None:
    with open_workers("minatar/asterix") as envs:
        check_parts(envs, "workers")


Call = Callable[[WorkerEnvs, Any], Any]
CALLS: dict[str, Call] = {
    "step": lambda envs, state: play(envs, 1),
    "reset": lambda envs, state: envs.reset(),
    "state": lambda envs, state: envs.state_dict(),
    "load": lambda envs, state: envs.load_state_dict(state),
    "render": lambda envs, state: envs.render(),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@every_call
def test_a_dead_worker_is_named(call: Call, envs: WorkerEnvs) -> None:
    envs.reset()
    state = envs.state_dict()
    envs._processes[1].kill()
    envs._processes[1].join()
    # It "died" rather than "did not answer": its death is noticed at once.
    with pytest.raises(
        EnvironmentFailure, match=r"worker 1 .*3 to 4 of probe/both\) died with exit code -9"
    ):
        call(envs, state)
    assert_closed(envs)


def test_a_worker_that_dies_in_a_step_is_named(envs: WorkerEnvs) -> None:
    envs.reset()
    process = envs._processes[1]
    assert process.pid is not None
    # Stopped, it cannot finish the step before it is killed.
    os.kill(process.pid, signal.SIGSTOP)
    envs.send(torch.zeros(5, dtype=torch.int64))
    process.kill()
    with pytest.raises(EnvironmentFailure, match="worker 1 .* died with exit code -9"):
        envs.receive()
    assert_closed(envs)


@pytest.mark.skipif(bool(suites.missing("minatar")), reason="needs the minatar extra")
@pytest.mark.parametrize("when", ["before", "in flight"])
def test_other_workers_go_on_where_failures_are_collected(when: str) -> None:
    failures: dict[int, EnvironmentFailure] = {}
    whole = make("minatar/breakout", 3, 5)
    envs = WorkerEnvs("minatar/breakout", 3, 5, workers=3, timeout=PATIENT, failures=failures)
    for batch in (whole, envs):
        batch.reset()
    actions = torch.arange(5) % 3
    for number in range(30):
        if number == 10 and when == "before":
            envs._processes[1].kill()
            envs._processes[1].join()
        if number == 10 and when == "in flight":
            pid = envs._processes[1].pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
        for batch in (whole, envs):
            batch.send(actions)
        envs._processes[1].kill() if number == 10 else None
        expected, step = whole.receive(), envs.receive()
        alive = [0, 1, 4] if number >= 10 else [*range(5)]
        for name in ("obs", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(step, name)[alive], getattr(expected, name)[alive])
        assert [e for e in expected.episodes if e.env in alive] == [*step.episodes]
        if number >= 10:
            assert sorted(failures) == [2, 3]
            assert step.reward[2:4].tolist() == [0, 0]
    assert "worker 1 (of 3; environments 2 to 3 of" in str(failures[2])
    assert failures[2] is failures[3]
    ours, theirs = envs.state_dict(), whole.state_dict()
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        assert len(ours[name]) == 5
        for env in (0, 1, 4):
            assert_same(ours[name][env], values[env])
    envs.close()
    assert not multiprocessing.active_children()


@every_call
def test_a_hung_worker_is_named(call: Call, envs: WorkerEnvs) -> None:
    envs.reset()
    state = envs.state_dict()
    pid = envs._processes[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    envs.timeout = SHORT
    with pytest.raises(EnvironmentFailure, match=r"worker 0 .*0 to 2 .* answer within 0.2 s"):
        call(envs, state)
    assert_closed(envs)


def test_closing_does_not_wait_for_a_hung_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "run", broken_workers.that_do_not_close)
    with open_workers("probe/both") as envs:
        envs.reset()
        envs.timeout = SHORT
    assert_closed(envs)


def test_workers_that_do_not_start_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for run, timeout, message in (
        (broken_workers.that_end_at_once, PATIENT, "died with exit code 3"),
        (broken_workers.that_never_start, SHORT, "did not answer within 0.2 s"),
        (broken_workers.that_cannot_make_environments, PATIENT, "failed:\nTraceback.*no such game"),
    ):
        monkeypatch.setattr(worker_process, "run", run)
        monkeypatch.setattr(workers, "START_TIMEOUT", timeout)
        with pytest.raises(EnvironmentFailure, match=rf"(?s)worker 0 .*probe/both\) {message}"):
            WorkerEnvs("probe/both", 3, 5, workers=2, timeout=timeout)
        assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (broken_workers.with_nan_reward, "environment 4 of probe/both returned a reward of nan"),
        (
            broken_workers.with_infinite_observation,
            r"environment 4 of probe/both returned an observation of inf \(entry 0\)",
        ),
        (
            broken_workers.with_wrong_shape,
            r"probe/both returned rewards of type torch.float32 and shape \(1,\)",
        ),
    ],
)
def test_bad_steps_of_a_worker_name_the_environment(
    run: Callable[..., None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "run", run)
    with open_workers("probe/both") as envs:
        envs.reset()
        with pytest.raises(InvalidStep, match=f"^{message}"):
            play(envs, 1)
        assert_closed(envs)


def test_workers_of_a_later_group_number_their_environments_after_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_process, "run", broken_workers.with_nan_reward)
    envs = make("probe/both", 0, 8, training=False, workers=4, groups=2)
    envs.reset()
    with pytest.raises(InvalidStep, match=r"environment 3 of probe/both \(greedy play\) returned"):
        play(envs, 1)
    with pytest.raises(InvalidStep, match="environment 7 of probe/both"):
        envs.groups[1].receive()  # type: ignore[attr-defined]
    envs.close()
    assert not multiprocessing.active_children()


def test_workers_ignore_signals_to_stop(envs: WorkerEnvs) -> None:
    envs.reset()
    for process in envs._processes:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
    assert len(play(envs, 3)) == 3


def test_an_error_in_a_worker_comes_with_its_traceback(envs: WorkerEnvs) -> None:
    with pytest.raises(EnvironmentFailure, match=r"(?s)worker . .*Traceback.*KeyError: 'side'"):
        envs.load_state_dict({"workers": [{}, {}]})
    assert_closed(envs)


def test_a_state_that_cannot_be_split_needs_the_same_number_of_workers(envs: WorkerEnvs) -> None:
    envs.reset()
    state = envs.state_dict()
    with pytest.raises(ValueError, match="workers=1"):
        envs.load_state_dict({"workers": state["workers"][:1]})
    assert envs.load_state_dict(state) is not None


def test_workers_are_limited_by_the_environments() -> None:
    with pytest.raises(ValueError, match="1..2.*got 3"):
        make("probe/constant", 0, 2, workers=3)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_workers_die_with_their_parent() -> None:
    code = """
import sys
from hadamard.envs import make
if __name__ == "__main__":
    envs = make("probe/both", 0, 2, workers=2)
    print(*[process.pid for process in envs.envs._processes], flush=True)
    sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    descriptors = [os.pidfd_open(pid) for pid in pids]
    parent.kill()
    parent.communicate()
    for descriptor in descriptors:
        # Readable once the process has ended.
        assert select.select([descriptor], [], [], PATIENT)[0]
        os.close(descriptor)
