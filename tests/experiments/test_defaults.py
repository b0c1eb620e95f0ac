"""The paper's Tables 3, 4 and 5, row by row, against the default settings.

A row that is no setting is measured on the agent that the defaults build, or in the game.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hadamard.compute.adam import RAdam
from hadamard.envs import atari_game
from hadamard.training.start import default_spec
from tests.support.defaults import (
    BREAKOUT,
    agent,
    clipped_rewards,
    ends_with_a_life,
    frames,
    rates_fall,
)
from tests.support.paths import SHARED

pytest.importorskip("ale_py")

PAPER = sorted((SHARED / "paper").glob("*.txt"))

Rows = dict[str, tuple[Any, Any]]
"""By the row's text in the paper: the paper's value, and the value here."""


def check(caption: str, rows: Rows) -> None:
    for row, (paper, ours) in rows.items():
        assert ours == pytest.approx(paper), row
    if not PAPER:
        return
    text = "".join(path.read_text() for path in PAPER)
    table = text[text.index(rf"\caption{{{caption}") :].partition(r"\end{table}")[0]
    body = table.partition(r"\midrule")[2].partition(r"\bottomrule")[0]
    cells = [line.split("&") for line in body.splitlines() if line.count("&") == 2]
    assert len(cells) >= 17
    assert {f"{name.strip()} & {value.strip()}" for name, value, _ in cells} == set(rows)


def test_table_3() -> None:
    spec, dqn = default_spec("dqn", BREAKOUT), agent("dqn")
    config = spec.algo
    torch.manual_seed(0)
    obs, action, ended = frames(4), torch.tensor([0, 1, 2, 3]), torch.ones(4, dtype=torch.bool)
    reward = torch.tensor([0.0, 5.0, -9.0, 40.0])  # terminal: the targets
    with torch.no_grad():
        errors = dqn.network(obs).gather(1, action[:, None]).squeeze(1) - reward
        loss = dqn._loss(obs, action, reward, ended, obs)[0].item()
    rows: Rows = {
        r"Learning Rate & $1 \times 10^{-4}$": (1e-4, config.learning_rate),
        r"Discount Factor $(\gamma)$ & 0.99": (0.99, config.gamma),
        "Replay Memory Size & 1,000,000": (1_000_000, config.replay_capacity),
        "Mini-batch Size & 32": (32, config.batch_size),
        "Target Network Update Frequency & 1000": (1_000, config.target_period),
        "Initial Exploration & 1.0": (1.0, config.epsilon_initial),
        "Final Exploration & 0.1": (0.1, config.epsilon_final),
        # Counted in agent steps, as the training start is (and as both are in CleanRL).
        "Final Exploration Frame & 1,000,000": (1_000_000, config.epsilon_steps),
        "Exploration Decay Frame & 1,000,000": (1_000_000, config.epsilon_steps),
        "Action Repeat (Frame Skip) & 4": (4, atari_game.FRAME_SKIP),
        "Reward Clipping & [-1, 1]": ([-1, 1], clipped_rewards()),
        "Input Dimension & 84 x 84": ((84, 84), dqn.replay.frames.shape[-2:]),
        "Latent Dimension & 512": (512, dqn.network.encoder.outputs),
        "Input Frames & 4": (4, dqn.network.encoder.layers[0].affine.in_channels),
        "Training Start Frame & 80,000": (80_000, config.learning_starts),
        "Loss Function & Mean Squared Error": (errors.square().mean().item(), loss),
        "Optimizer & Adam": (True, isinstance(dqn.optimizer, torch.optim.Adam)),
        r"Optimizer $\epsilon$ & $10^{-5}$": (1e-5, dqn.optimizer.param_groups[0]["eps"]),
    }
    check("DQN Hyperparameters", rows)
    assert 0.1 < dqn.epsilon(999_999) < 0.100001
    assert dqn.epsilon(1_000_000) == 0.1
    # Settings that the table omits, as in CleanRL.
    assert (config.num_envs, config.update_period, spec.train.steps) == (1, 4, 10_000_000)


def test_table_4() -> None:
    spec, ppo = default_spec("ppo", BREAKOUT), agent("ppo")
    config = spec.algo
    torch.manual_seed(0)
    obs, action = frames(4), torch.tensor([0, 1, 2, 3])
    with torch.no_grad():
        logits, value = ppo.network(obs)
    old = logits.log_softmax(1).gather(1, action[:, None]).squeeze(1) + 0.3
    advantage = torch.tensor([1.0, -2.0, 0.5, 3.0])
    policy_losses = [
        ppo._loss(obs, action, old, value, scaled)[1]["policy_loss"].item()
        for scaled in (advantage, 10 * advantage + 3)
    ]
    # The value has moved by 1 to its target; the clip counts 0.1 of that.
    moved = ppo._loss(obs, action, old, value - 1, torch.ones(4))[1]["value_loss"].item()
    rows: Rows = {
        r"Learning Rate & $2.5 \times 10^{-4}$": (2.5e-4, config.learning_rate),
        r"Discount Factor $(\gamma)$ & 0.99": (0.99, config.gamma),
        "Number of Steps & 128": (128, config.rollout_steps),
        "Anneal LR & True": (True, rates_fall("ppo")),
        "GAE Lambda & 0.95": (0.95, config.gae_lambda),
        "Number of Minibatches & 4": (4, config.minibatches),
        "Update Epochs & 4": (4, config.epochs),
        "Normalize Advantage & True": (policy_losses[0], policy_losses[1]),
        "Clipping Coefficient & 0.1": (0.1, config.clip),
        "Clip Value Loss & True": (0.5 * 0.9**2, moved),
        "Entropy Coefficient & 0.01": (0.01, config.entropy_coefficient),
        "Value Function Coefficient & 0.5": (0.5, config.value_coefficient),
        "Maximum Gradient Norm & 0.5": (0.5, config.max_grad_norm),
        # No setting limits the KL divergence: every epoch runs.
        "Target KL & None": (False, hasattr(config, "target_kl")),
        "Latent Dimension & 512": (512, ppo.network.encoder.outputs),
        "Optimizer & Adam": (True, isinstance(ppo.optimizer, torch.optim.Adam)),
        r"Optimizer $\epsilon$ & $10^{-5}$": (1e-5, ppo.optimizer.param_groups[0]["eps"]),
    }
    check("PPO Hyperparameters", rows)
    assert (config.num_envs, spec.train.steps) == (8, 10_000_000)


def test_table_5() -> None:
    # A run that stops early has the decays of its whole budget.
    spec, pqn = default_spec("pqn", BREAKOUT), agent("pqn", **{"train.until": 1_000_000})
    config = spec.algo
    torch.manual_seed(0)
    obs = frames(40)
    action, _ = pqn.act_with_greedy(obs, 0, 20)
    with torch.no_grad():
        explored = (action != pqn.network(obs).argmax(1)).float()
    assert pqn.epsilon(0) == 1.0
    assert explored[:20].mean() > 0.5
    rows: Rows = {
        "Total Timesteps & 10,000,000": (10_000_000, spec.train.steps),
        "Timesteps for Decay & 10,000,000": (
            math.ceil(10_000_000 / (128 * 32)),  # in rollouts
            pqn.total_rollouts,
        ),
        "Number of Environments & 128": (128, config.num_envs),
        "Steps per Environment & 32": (32, config.rollout_steps),
        "Number of Epochs & 2": (2, config.epochs),
        "Number of Minibatches & 32": (32, config.minibatches),
        "Starting Epsilon & 1.0": (1.0, config.epsilon_initial),
        "Final Epsilon & 0.001": (0.001, config.epsilon_final),
        "Epsilon Decay Ratio & 0.1": (0.1, config.epsilon_fraction),
        "Epsilon for Test Policy & 0.0": (0.0, explored[20:].mean().item()),
        "Learning Rate & 0.00025": (0.00025, config.learning_rate),
        "Learning Rate Linear Decay & True": (True, rates_fall("pqn")),
        "Max Gradient Norm & 10.0": (10.0, config.max_grad_norm),
        r"Discount Factor $(\gamma)$ & 0.99": (0.99, config.gamma),
        r"Lambda $(\lambda)$ & 0.65": (0.65, config.q_lambda),
        "Episodic Life & True": (True, ends_with_a_life()),
        "Reward Clipping & True": ([-1, 1], clipped_rewards()),
        "Frame Skip & 4": (4, atari_game.FRAME_SKIP),
        "Max No-Ops on Reset & 30": (30, atari_game.NOOP_MAX),
        "Test During Training & True": (True, spec.train.greedy_envs > 0),
        "Number of Test Envs & 8": (8, spec.train.greedy_envs),
    }
    check("PQN Hyperparameters", rows)
    # Settings that the table omits, as in the JAX release.
    norms = [module for module in pqn.network.modules() if hasattr(module, "over")]
    assert [(norm.over, norm.eps) for norm in norms] == [("features", 1e-6)] * 4
    assert isinstance(pqn.optimizer, RAdam)
