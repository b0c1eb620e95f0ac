"""PPO updates by its formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support.formulas import HandAdam, clipped, exact, flat, forward, vector_agent


def test_ppos_update_is_the_formula() -> None:
    clip, entropy_weight, value_weight, largest = 0.2, 0.03, 0.7, 0.4
    agent = vector_agent(
        "ppo",
        learning_rate=0.01,
        adam_epsilon=1e-3,
        clip=clip,
        entropy_coefficient=entropy_weight,
        value_coefficient=value_weight,
        max_grad_norm=largest,
    )
    with torch.no_grad():
        agent.network.logits.weight.normal_()  # else all ratios are near 1
    named = dict(agent.network.named_parameters())
    heads = [name for name in named if "encoder" not in name]
    assert heads == ["logits.weight", "logits.bias", "value.weight", "value.bias"]
    adam = HandAdam(sum(p.numel() for p in named.values()), epsilon=1e-3)
    for _ in range(3):
        obs, action = torch.randn(32, 3), torch.randint(4, (32,))
        old_value, advantage = 0.3 * torch.randn(32), 2 * torch.randn(32) + 1
        weights = exact(named.values())
        body, logit_weights, value_weights = weights[:4], weights[4:6], weights[6:]
        logits = forward(body + logit_weights, obs.double())
        values = forward(body + value_weights, obs.double())[:, 0]
        log_probabilities = logits - logits.exp().sum(1, keepdim=True).log()
        new = log_probabilities[torch.arange(32), action]
        old = (new.detach() + 0.4 * torch.randn(32)).float()

        returns = (advantage + old_value).double()
        normalized = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).double()
        gains, errors = [], []
        for i in range(32):
            ratio = (new[i] - old[i].double()).exp()
            within = min(max(ratio.item(), 1 - clip), 1 + clip)
            plain, limited = normalized[i] * ratio, normalized[i] * within
            gains.append(plain if plain.item() <= limited.item() else limited.detach())
            move = values[i] - old_value[i].double()
            near = old_value[i].double() + torch.clamp(move, -clip, clip)
            far, close = (values[i] - returns[i]) ** 2, (near - returns[i]) ** 2
            errors.append(far if far.item() >= close.item() else close)
        policy_loss = -torch.stack(gains).mean()
        value_loss = torch.stack(errors).mean() / 2
        entropy = -(log_probabilities.exp() * log_probabilities).sum(1).mean()
        loss = policy_loss - entropy_weight * entropy + value_weight * value_loss
        gradient = flat(torch.autograd.grad(loss, weights))
        assert np.linalg.norm(gradient) > largest  # the clipping is at work
        expected = flat(weights) + adam.change(clipped(gradient, largest), 0.01)
        metrics = agent.learn(obs, action, old, old_value, advantage)
        for name, ours in (
            ("loss", loss),
            ("policy_loss", policy_loss),
            ("value_loss", value_loss),
            ("entropy", entropy),
        ):
            assert float(metrics[name]) == pytest.approx(ours.item(), rel=2e-5, abs=1e-6), name
        outside = ((new.exp() / old.double().exp() - 1).abs() > clip).double().mean()
        assert 0.1 < outside.item() < 0.9
        assert float(metrics["clipped"]) == pytest.approx(outside.item(), abs=1e-6)
        weights_after = flat(agent.network.parameters())
        np.testing.assert_allclose(weights_after, expected, rtol=0, atol=2e-6)
