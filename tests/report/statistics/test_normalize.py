"""Normalized scores."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest

from hadamard import envs
from hadamard.report.statistics import normalize as scores
from hadamard.report.statistics.normalize import Scale, baseline_scale, final_mean, normalize
from tests.support.paths import SHARED

NAN = float("nan")


def test_the_two_ends_of_each_normalization() -> None:
    np.testing.assert_allclose(
        normalize([68.4, 42054.7, 21061.55], "atari/Seaquest", "human_normalized"), [0, 1, 0.5]
    )
    np.testing.assert_allclose(
        normalize([2.38, 700.0], "humanoid/h1-walk", "success_normalized"), [0, 1]
    )
    assert normalize(250, "dmc-state/walker-run", "per_thousand") == 0.25
    assert normalize(250, "probe/anything", "raw") == 250
    own = {"minatar/breakout": Scale(2.0, 12.0)}
    normalized = normalize([2.0, 12.0, 17.0], "minatar/breakout", "baseline_min_max", own)
    assert normalized.tolist() == [0, 1, 1.5]


def test_the_names_are_those_of_the_environments() -> None:
    for suite, known in (("atari", scores.ATARI), ("humanoid", scores.HUMANOID)):
        assert sorted(known) == sorted(envs.tasks(suite))
    # A run's config holds the name as it was typed.
    typed = normalize(30.5, "Atari/breakout", "human_normalized")
    assert typed == normalize(30.5, "atari/Breakout", "human_normalized")
    scale = {"minatar/space_invaders": Scale(0, 2)}
    assert normalize(1, "minatar/space-invaders", "baseline_min_max", scale) == 0.5


@pytest.mark.skipif(not SHARED.is_dir(), reason="the reference data is beside the repository")
def test_the_numbers_are_those_of_the_references() -> None:
    with (SHARED / "reference" / "atari_random_human.csv").open() as file:
        rows = {row["game"]: row for row in csv.DictReader(file)}
    assert len(rows) == 57
    assert {
        game: Scale(float(row["random"]), float(row["human"])) for game, row in rows.items()
    } == scores.ATARI
    (paper,) = (SHARED / "paper").glob("*.txt")
    table = re.findall(
        r"texttt\{(h1-[a-z-]+)\}\s*&\s*([\d.]+)\s*&\s*(\d+)", paper.read_text(encoding="utf-8")
    )
    assert {task: Scale(float(low), float(high)) for task, low, high in table} == scores.HUMANOID


@pytest.mark.parametrize(
    ("env", "by", "words"),
    [
        ("atari/Breakout", "human", "unknown normalization 'human'.*raw, human_normalized"),
        (
            "atari/Breakuot",
            "human_normalized",
            "of atari 'Breakuot'.*mean 'Breakout'.*Alien.*Zaxxon",
        ),
        ("minatar/breakout", "human_normalized", "for the tasks of atari, got 'minatar/breakout'"),
        ("humanoid/h1-fly", "success_normalized", "of humanoid 'h1-fly'.*h1-walk"),
        ("atari/Pong", "per_thousand", "dmc and dmc-state.*'atari/Pong'"),
        ("atari/Pong", "baseline_min_max", "scores on 'atari/Pong'; it has scores on no task"),
        ("Pong", "human_normalized", "'suite/task'.*'Pong'"),
    ],
)
def test_what_cannot_be_normalized_is_named(env: str, by: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        normalize(1.0, env, by)


def test_the_range_of_a_baseline() -> None:
    curves = [[NAN, 1.0, 4.0, 11.0], [2.0, 3.0, 8.0, 5.0]]
    assert baseline_scale(curves, "atari/Pong") == (1.0, 11.0)
    assert baseline_scale(curves, "atari/Pong", "mean curve") == (2.0, 8.0)
    # Curves may have different lengths.
    assert baseline_scale([[1.0], [3.0, 2.0]], "atari/Pong") == (1.0, 3.0)
    with pytest.raises(ValueError, match="same steps"):
        baseline_scale([[1.0], [3.0, 2.0]], "atari/Pong", "mean curve")
    for unusable, words in (
        ([], "no scores"),
        ([[NAN]], "no scores"),
        ([[3.0, 3.0]], "atari/Pong: the baseline always scored 3"),
        ([[3.0, np.inf]], "infinite"),
    ):
        with pytest.raises(ValueError, match=words):
            baseline_scale(unusable, "atari/Pong")
    with pytest.raises(ValueError, match="'every seed' or 'mean curve', got 'median'"):
        baseline_scale(curves, "atari/Pong", "median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on 'atari/Pong'; it has scores on atari/Freeway"):
        normalize(1.0, "atari/Pong", "baseline_min_max", {"atari/Freeway": Scale(0, 1)})


def test_the_last_part_of_training() -> None:
    steps, values = [25, 50, 75, 100], [1.0, 2.0, 3.0, 5.0]
    assert final_mean(steps, values, budget=100, share=0.25) == 4.0
    assert final_mean(steps, values, budget=100, share=1) == 2.75
    assert np.isnan(final_mean(steps[:3], values[:3], budget=100))
    for share in (-0.1, 0, 1.01, 5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            final_mean(steps, values, budget=100, share=share)
