"""Epsilon-greedy actions."""

from __future__ import annotations

import torch
from scipy.stats import chisquare
from torch import Tensor

from hadamard.learning.explore import epsilon_greedy, epsilon_greedy_from


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


def test_given_numbers_decide_whether_and_how_to_explore() -> None:
    greedy = torch.tensor([2, 2, 2, 2, 1])
    draws = torch.tensor([[0.0, 0.0], [0.29, 0.34], [0.31, 0.0], [0.299, 0.999], [0.99, 0.5]])
    action = epsilon_greedy_from(greedy, draws, torch.tensor(0.3), 3)
    assert action.tolist() == [0, 1, 2, 2, 1]
    assert action.dtype == torch.int64
    assert torch.equal(epsilon_greedy_from(greedy, draws, torch.tensor(0.0), 3), greedy)
    everywhere = epsilon_greedy_from(greedy, draws, torch.tensor(1.0), 3)
    assert everywhere.tolist() == [0, 1, 0, 2, 1]


def test_given_numbers_explore_as_often_as_epsilon_says() -> None:
    draws = torch.rand(30_000, 2, generator=torch.Generator().manual_seed(0))
    greedy = torch.ones(30_000, dtype=torch.int64)
    action = epsilon_greedy_from(greedy, draws, torch.tensor(0.3), 3)
    counts = torch.bincount(action, minlength=3).numpy()
    assert chisquare(counts, [3_000, 24_000, 3_000]).pvalue > 0.01
    last = torch.tensor([[0.0, 1 - 2.0**-24]])
    assert epsilon_greedy_from(greedy[:1], last, torch.tensor(0.3), 18).item() == 17
