"""Fixtures of the tests of fleets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hadamard.training.fleet import replayed
from tests.support.fleets import BLOCK, spec_of, train


@pytest.fixture(autouse=True, scope="package")
def short_blocks() -> Iterator[None]:
    """Short runs with a replay have several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replayed, "BLOCK", BLOCK)
        yield


@pytest.fixture(scope="package")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Runs that were trained alone, each once."""
    runs: dict[tuple[str, int], Path] = {}

    def get(algorithm: str, seed: int) -> Path:
        if (algorithm, seed) not in runs:
            path = tmp_path_factory.mktemp("alone") / f"{algorithm}{seed}"
            train(algorithm, [spec_of(algorithm, path, seed)])
            runs[algorithm, seed] = path
        return runs[algorithm, seed]

    return get
