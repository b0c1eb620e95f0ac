"""MR.Q's encoder losses against numbers computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hadamard.algos.mrq import MRQ, Config
from hadamard.core.config import NetSpec, RunSpec
from hadamard.core.types import EnvSpec


def small_agent(actions: int) -> MRQ:
    net = NetSpec(activation="elu", where="all", width=8)
    spec = RunSpec(algo=Config(hidden_width=8, replay_capacity=100), net=net)
    return MRQ(EnvSpec((3,), torch.float32, action_size=actions), spec, torch.device("cpu"))


def test_the_encoders_losses_by_hand() -> None:
    """Two draws of three steps; the task of the first one ends at its second step."""
    agent = small_agent(actions=1)
    predicted = torch.tensor([[[1.0, 2], [0, 1]], [[3, 0], [1, 1]], [[9, 9], [2, 0]]])
    done = torch.tensor([[0.5, 0.0], [0.75, 0.25], [9.0, 1.0]])
    logits = torch.randn(3, 2, 65)
    next_zs = torch.tensor([[[0.0, 0], [1, 0], [math.nan, math.nan]], [[0, 0], [0, 0], [0, 0]]])
    reward = torch.tensor([[0.0, 1.0, 1e6], [2.0, -1.0, 0.5]])
    ends = torch.tensor([[False, True, False], [False, False, False]])
    losses = agent._encoder_losses((predicted, done, logits), next_zs, reward, ends)
    # Means of squares over two features and two draws: (1 + 4 + 0 + 1 + 4 + 0 + 1 + 1 + 4 + 0) / 4
    assert losses["dynamics_loss"].item() == pytest.approx(16 / 4)
    # 0.25 + 0.0625 for the first, 0 + 0.0625 + 1 for the second
    assert losses["done_loss"].item() == pytest.approx((0.3125 + 1.0625) / 2)
    cross_entropy, error, two_hot = 0.0, 0.0, agent.two_hot
    for draw, step in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]:
        probability = logits[step, draw].softmax(0).double()
        code = two_hot.encode(reward[draw, step]).double()
        cross_entropy -= float((code * probability.log()).sum())
        mean = float((probability * two_hot.bins.double()).sum())
        error += abs(mean - float(reward[draw, step]))
    assert losses["reward_loss"].item() == pytest.approx(cross_entropy / 2, rel=1e-5)
    assert losses["reward_error"].item() == pytest.approx(error / 5, rel=1e-4)


def test_steps_after_an_end_have_no_gradient() -> None:
    agent = small_agent(actions=2)
    encoder = agent.network.encoder
    obs, action = torch.randn(6, 3), torch.rand(6, 4, 2)
    reward, next_zs = torch.randn(6, 4), torch.randn(6, 4, 8)
    ends = torch.zeros(6, 4, dtype=torch.bool)
    ends[:4, 1] = True
    gradients = []
    for junk in (0.0, 1.0, math.nan):
        next_zs[:4, 2:], reward[:4, 2:], action[:4, 2:] = junk, 3 * np.nan_to_num(junk), 0.5
        predictions = encoder.predict(obs, action)
        losses = agent._encoder_losses(predictions, next_zs, reward, ends)
        losses.pop("reward_error")
        weights = list(encoder.parameters())
        loss = sum(losses.values())
        gradients.append(torch.autograd.grad(loss, weights, retain_graph=True))
        if junk == 1.0:  # the steps before the end do matter
            changed = agent._encoder_losses(predictions, next_zs + 1, reward, ends)
            assert abs(changed["dynamics_loss"] - losses["dynamics_loss"]) > 0.1
    for first, second, third in zip(*gradients, strict=True):
        assert torch.isfinite(first).all()
        assert torch.equal(first, second)
        assert torch.equal(first, third)
