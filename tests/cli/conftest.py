"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadamard import cli
from tests.support.commands import small


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "finished"
    words = small("dqn", path, {"--train.steps": 1_500, "--algo.epsilon-steps": 500})
    assert cli.main([*words, "--algo.learning-rate", "0.003", "--net.layer", "hadamard"]) == 0
    return path
