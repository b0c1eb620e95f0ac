"""Heads are initialized as in the baselines."""

from __future__ import annotations

import torch

from hadamard.core.config import NetSpec
from hadamard.nets.heads import ActorCritic
from tests.support.nets import FRAMES


def test_heads_start_orthogonal_with_the_baselines_gains() -> None:
    network = ActorCritic(FRAMES, NetSpec(width=64))
    for head, gain in ((network.logits, 0.01), (network.value, 1.0)):
        weight = head.weight.detach()
        expected = gain**2 * torch.eye(len(weight))
        torch.testing.assert_close(weight @ weight.T, expected, rtol=0, atol=1e-6 * gain)
        assert not head.bias.any()
