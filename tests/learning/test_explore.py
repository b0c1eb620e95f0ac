"""Epsilon-greedy actions."""

from __future__ import annotations

import torch
from scipy.stats import chisquare
from torch import Tensor

from hadamard.learning.explore import epsilon_greedy


def test_epsilon_is_the_share_of_random_actions() -> None:
    def choose_second(obs: Tensor) -> dict[str, Tensor]:
        return {"action": torch.ones(len(obs), dtype=torch.int64)}

    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    action, choice = epsilon_greedy(choose_second, torch.zeros(5, 1), 3, 0.0, generator)
    assert action.tolist() == [1] * 5
    assert choice is not None
    assert torch.equal(generator.get_state(), before)  # greedy actions draw no random numbers
    action, _ = epsilon_greedy(choose_second, torch.zeros(30_000, 1), 3, 0.3, generator)
    counts = torch.bincount(action, minlength=3).numpy()
    assert chisquare(counts, [3_000, 24_000, 3_000]).pvalue > 0.01
    action, choice = epsilon_greedy(choose_second, torch.zeros(1, 1), 3, 1.0, generator)
    assert choice is None  # the network is not called when the only environment explores


def test_greedy_rows_leave_the_random_numbers_of_others_unchanged() -> None:
    def choose_second(obs: Tensor) -> dict[str, Tensor]:
        return {"action": torch.ones(len(obs), dtype=torch.int64)}

    for count in (1, 40):
        generators = [torch.Generator().manual_seed(0) for _ in range(2)]
        plain, _ = epsilon_greedy(choose_second, torch.zeros(count, 1), 3, 0.9, generators[0])
        with_greedy, choice = epsilon_greedy(
            choose_second, torch.zeros(count + 7, 1), 3, 0.9, generators[1], 7
        )
        assert choice is not None
        assert with_greedy.tolist() == [*plain.tolist(), *[1] * 7]
        assert torch.equal(*(generator.get_state() for generator in generators))
