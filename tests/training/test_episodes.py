"""Episodes are recorded in columns, and their rows are those that json would write."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hadamard.core.run import Run
from hadamard.core.types import Episode
from hadamard.training.episodes import Episodes
from hadamard.training.fleet.fleet import _episodes
from hadamard.training.scores import Scores
from hadamard.training.trainer import Trainer

SCORES = [0.0, -0.0, 1.0, -3.0, 0.1, float(np.float32(0.1)), 1e-7, 1e22, 123456789.0, 2.5e-320]
BAD = [math.nan, math.inf, -math.inf]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run.create(tmp_path / "run", {"algorithm": "pqn", "spec": {}})
    yield run
    run.close()


def recorder(run: Run) -> Any:
    """What of a trainer records episodes."""
    return SimpleNamespace(run=run, episodes=0, scores=Scores(1_000, evaluations=False))


def lines(run: Run, stream: str) -> list[str]:
    run.flush()
    return (run.path / f"{stream}.jsonl").read_text().splitlines()


def test_rows_are_those_of_json(run: Run) -> None:
    trainer = recorder(run)
    scores = SCORES + BAD
    count = len(scores)
    columns = Episodes([7] * count, list(range(count)), scores, list(range(1, count + 1)))
    Trainer.record_episodes(trainer, columns)
    expected = [
        {"step": 7, "env": index, "score": score, "length": index + 1}
        for index, score in enumerate(scores)
    ]
    for row in expected[len(SCORES) :]:
        row["score"] = None  # JSON has no such numbers
    assert lines(run, "episodes") == [json.dumps(row) for row in expected]
    assert list(run.rows("episodes")) == expected
    assert trainer.episodes == count
    assert list(trainer.scores.training)[: len(SCORES)] == SCORES


def test_rows_written_together_are_those_written_one_by_one(run: Run, tmp_path: Path) -> None:
    other = Run.create(tmp_path / "other", {"algorithm": "pqn", "spec": {}})
    episodes = [Episode(3, score, 9) for score in SCORES + BAD]
    trainer = recorder(run)
    Trainer.record_episodes(trainer, Episodes.ended_at(40, episodes[:5]))
    Trainer.record_episodes(trainer, Episodes.ended_at(48, []))
    Trainer.record_episodes(trainer, Episodes.ended_at(56, episodes[5:]))
    for number, (env, score, length) in enumerate(episodes):
        step = 40 if number < 5 else 56
        other.write("episodes", {"step": step, "env": env, "score": score, "length": length})
    assert lines(run, "episodes") == lines(other, "episodes")
    assert run.extents() == other.extents()
    other.close()


def test_no_episode_is_no_file(run: Run) -> None:
    Trainer.record_episodes(recorder(run), Episodes.ended_at(40, []))
    run.flush()
    assert not (run.path / "episodes.jsonl").exists()


def test_greedy_episodes_have_no_environment(run: Run) -> None:
    trainer = recorder(run)
    episodes = [Episode(1, 2.0, 5), Episode(0, math.inf, 6)]
    Trainer.record_greedy(trainer, Episodes.ended_at(8, episodes))
    assert lines(run, "eval") == [
        '{"step": 8, "score": 2.0, "length": 5}',
        '{"step": 8, "score": null, "length": 6}',
    ]
    assert trainer.scores.greedy_steps == [8, 8]


def test_episodes_of_a_block_come_in_the_order_in_which_they_ended() -> None:
    ended = np.zeros((4, 3), dtype=bool)
    score, length = np.zeros((4, 3), dtype=np.float32), np.zeros((4, 3), dtype=np.int32)
    for place, game, value in ((2, 0, 5.0), (0, 2, 0.5), (2, 1, -1.0), (3, 0, 7.0)):
        ended[place, game], score[place, game], length[place, game] = True, value, place + 10
    score[1, 1] = 99.0  # of an episode that goes on
    episodes = _episodes(600, 3, ended, score, length)
    assert episodes == Episodes(
        step=[603, 609, 609, 612],
        env=[2, 0, 1, 0],
        score=[0.5, 5.0, -1.0, 7.0],
        length=[10, 12, 12, 13],
    )
    assert {type(value) for column in episodes for value in column} == {int, float}
