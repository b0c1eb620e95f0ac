"""A rollout keeps steps in order and reuses its memory."""

from __future__ import annotations

import torch

from hadamard.learning.rollout import Rollout

CPU = torch.device("cpu")


def test_a_rollout_keeps_steps_in_order_and_reuses_its_memory() -> None:
    rollout = Rollout(3, CPU)
    for t in range(3):
        assert not rollout.full
        rollout.add(reward=torch.tensor([t, 10.0 + t]), end=torch.tensor([t == 1, False]))
    assert rollout.full
    assert rollout.data["reward"].tolist() == [[0, 10], [1, 11], [2, 12]]
    assert rollout.data["end"].dtype == torch.bool
    memory = rollout.data["reward"].data_ptr()
    rollout.clear()
    rollout.add(reward=torch.tensor([7.0, 8.0]))
    assert rollout.length == 1
    assert rollout.data["reward"][0].tolist() == [7, 8]
    assert rollout.data["reward"].data_ptr() == memory
