"""Settings and fixtures of all tests."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

# The tensors of tests are small, and threads that wait for each other make a busy machine crawl.
# Before torch is imported; programs that tests start take it over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
import torch

from hadamard import cli
from tests.support.commands import Command, Result

# Under nohup it would be ignored, also by the programs that tests start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Model files that lie beside the repository; elsewhere those in the user's cache are used.
_MODELS = Path(__file__).parents[2] / "shared" / "humanoidbench_assets"
if _MODELS.is_dir():
    os.environ.setdefault("HADAMARD_HUMANOIDBENCH_ASSETS", str(_MODELS))


# The same examples every time, however slow the machine is.
hypothesis.settings.register_profile("tests", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("tests")


_OWN_PROCESS = "HADAMARD_TESTS_IN_OWN_PROCESS"


@functools.cache
def _output_of_failed(path: Path) -> str:
    """Run a file's tests marked `own_process` in a process; return what it prints if they fail."""
    words = [sys.executable, "-m", "pytest", "-q", "-m", "own_process", str(path)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, _OWN_PROCESS: "1", "TRITON_INTERPRET": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests marked `own_process` there, all of a file together."""
    if pyfuncitem.get_closest_marker("own_process") is None or _OWN_PROCESS in os.environ:
        return None
    if output := _output_of_failed(pyfuncitem.path):
        pytest.fail(output, pytrace=False)
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a CUDA device")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run the command line here, as a person sees it: warnings are lines, and most are hidden."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str | Path) -> Result:
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            try:
                code = cli.main([str(word) for word in words])
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run
