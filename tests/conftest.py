"""Settings and fixtures of all tests."""

from __future__ import annotations

import os
import signal
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
