"""Fixtures of the sweeps' tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hadamard.core.lock import holder
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, launch
from tests.support.sweep import SCRIPTED, small_job


@pytest.fixture(autouse=True, scope="module")
def scripted() -> Iterator[None]:
    """Runs that sweeps start follow their scripts, see `tests.support.sweep.script`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SCRIPTED), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A finished run that was never interrupted."""
    job = small_job(tmp_path_factory.mktemp("undisturbed"))
    assert launch([job], Options(jobs=1)).exit_code == 0
    return job


@pytest.fixture
def start_sweep(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start sweeps in separate processes; end those that a test leaves running."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | Path, **environment: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "hadamard", "sweep", *map(str, words)],
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    for lock in tmp_path.rglob("lock"):
        if pid := holder(lock.parent):
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(pid, signal.SIGKILL)
