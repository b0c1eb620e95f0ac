"""Fixtures of the training tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from hadamard import cli
from tests.support.resume import words


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Sums depend on how they are split, and the subprocesses have one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Uninterrupted runs, each trained once and only read."""
    runs: dict[str, Path] = {}

    def get(algorithm: str) -> Path:
        if algorithm not in runs:
            path = tmp_path_factory.mktemp("whole") / algorithm
            assert cli.main(words(algorithm, path)) == 0
            runs[algorithm] = path
        return runs[algorithm]

    return get
