"""The score of greedy games."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from hadamard.core.scores import greedy_window_mean, greedy_window_means


def test_the_greedy_window_by_hand() -> None:
    steps = [*range(10, 201, 10), 900, 1000]
    scores = np.arange(22.0)
    means = greedy_window_means(steps, scores, [5, 10, 160, 200, 999, 1000], 1000)
    # None; the first; all 16; the last 16 of 20; the last 16; the same, one further.
    np.testing.assert_allclose(means, [np.nan, 0, 7.5, 11.5, 12.5, 13.5])
    assert greedy_window_mean(steps, scores, 1000, 1000) == 13.5
    # A long window holds more than 16: the steps from 1000 - 5 % of 20,000.
    assert greedy_window_mean(steps, scores, 1000, 20_000) == 10.5
    assert np.isnan(greedy_window_mean([], [], 1000, 1000))


def by_hand(steps: list[int], scores: list[float], now: float, budget: float) -> float:
    """The score of greedy games, game by game from the newest back."""
    games = [(step, score) for step, score in zip(steps, scores, strict=True) if step <= now]
    taken: list[float] = []
    last = math.inf
    for step, score in reversed(games):
        late = step > now - 0.05 * budget
        if not late and len(taken) >= 16 and step != last:
            break
        taken.append(score)
        last = step
    return sum(taken) / len(taken) if taken else math.nan


def test_the_score_of_greedy_games_is_that_of_the_last_twentieth() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        count, budget = int(rng.integers(0, 120)), int(rng.integers(100, 4_000))
        steps = sorted(int(step) for step in rng.integers(0, budget // 10 + 1, count) * 10)
        scores = [float(score) for score in rng.integers(-50, 50, count)]
        at = [0, budget // 3, budget // 2, budget]
        expected = [by_hand(steps, scores, now, budget) for now in at]
        np.testing.assert_allclose(greedy_window_means(steps, scores, at, budget), expected)
        one = [greedy_window_mean(np.array(steps), np.array(scores), now, budget) for now in at]
        np.testing.assert_array_equal(greedy_window_means(steps, scores, at, budget), one)
    # A game at the window's very beginning is outside of it; sixteen later ones are enough.
    steps, scores = [950, *range(951, 967)], [1e6, *range(16)]
    assert greedy_window_mean(steps, scores, 1_000, 1_000) == 7.5
    assert greedy_window_mean(steps[:-1], scores[:-1], 1_000, 1_000) == (1e6 + 105) / 16
    with pytest.raises(ValueError, match="2 games ended and 1 have a score"):
        greedy_window_mean([1, 2], [1.0], 5, 10)
    with pytest.raises(ValueError, match="budget must be above 0, got 0"):
        greedy_window_mean([1], [1.0], 5, 0)


def test_scores_need_no_torch() -> None:
    code = "import sys, hadamard.core.scores; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
