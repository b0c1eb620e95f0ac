"""Fixtures of the report's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.report import SEEDS, TASKS, VARIANTS, score_of
from tests.support.runs import measured, write_run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks, three variants, four seeds; scores rise to `score_of`. Only read."""
    folder = tmp_path_factory.mktemp("runs")
    for task, env in enumerate(TASKS):
        for variant, (layer, activation) in enumerate(VARIANTS.values()):
            for seed in SEEDS:
                end = score_of(task, variant, seed)
                health = [measured(0.5 - 0.1 * variant, 3.0, 0.2)] * 3
                write_run(
                    folder / f"{task}{variant}{seed}", seed, layer, activation, env=env,
                    score=[0.0, *[end * 10 / 9] * 9], health=health, algorithm="dqn",
                    snapshots=[100, 900] if task == 0 and seed == 0 else [],
                )  # fmt: skip
    return folder
