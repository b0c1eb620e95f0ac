"""The behavior of agents with default settings, measured on them or in a game."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from hadamard import envs
from hadamard.core.config import RunSpec, overridden
from hadamard.training.setup import make_agent
from hadamard.training.start import default_spec

pytest.importorskip("ale_py")

BREAKOUT = "atari/Breakout"


@cache
def agent(algorithm: str, **changes: Any) -> Any:
    """Return the agent with default settings for Breakout, with a smaller replay."""
    spec = default_spec(algorithm, BREAKOUT)
    changes = {"device": "cpu", **changes}
    changes |= {"algo.replay_capacity": 1_000} if algorithm == "dqn" else {}
    games = envs.make(BREAKOUT, 0, 1)
    games.close()
    return make_agent(algorithm, overridden(spec, changes), games, torch.device("cpu"))


@cache
def played(*, training: bool) -> tuple[set[float], int, int]:
    """Play MsPacman; return its rewards, and the numbers of terminations and of whole games."""
    games = envs.make("atari/MsPacman", 0, 1, training=training)
    games.reset()
    chance = torch.Generator().manual_seed(0)
    rewards, ends, games_played = set(), 0, 0
    for _ in range(1_500):
        step = games.step(torch.randint(games.spec.num_actions, (1,), generator=chance))
        rewards |= set(step.reward.tolist())
        ends += int(step.terminated.sum())
        games_played += len(step.episodes)
    games.close()
    return rewards, ends, games_played


def clipped_rewards() -> list[float]:
    """Return what rewards of 10 and more become in training; greedy play must leave them."""
    rewards, _, _ = played(training=True)
    raw, _, _ = played(training=False)
    assert max(raw) >= 10
    return [-max(rewards), max(rewards)]


def ends_with_a_life() -> bool:
    """Whether a lost life terminates an episode in training, and only the game in greedy play."""
    _, ends, games_played = played(training=True)
    _, raw_ends, raw_games = played(training=False)
    assert raw_ends == raw_games > 0
    return ends > games_played > 0


def rates_fall(algorithm: str) -> bool:
    """Whether the learning rate has halved after half of the training."""
    spec: RunSpec[Any] = default_spec(algorithm, "probe/both")
    size = spec.algo.num_envs * spec.algo.rollout_steps
    games = envs.make("probe/both", 0, spec.algo.num_envs)
    changes = {"train.steps": 2 * size, "device": "cpu"}
    learner: Any = make_agent(algorithm, overridden(spec, changes), games, torch.device("cpu"))
    rates: list[float] = []
    learner.after_update = lambda *_: rates.append(learner.optimizer.param_groups[0]["lr"])
    obs = games.reset()
    for i in range(2 * spec.algo.rollout_steps):
        action, extra = learner.act(obs, i * spec.algo.num_envs)
        step = games.step(action)
        learner.observe(obs, action, extra, step)
        obs = step.obs
    games.close()
    assert rates[0] == spec.algo.learning_rate
    return bool(rates[len(rates) // 2] == pytest.approx(rates[0] / 2))


def frames(count: int) -> Tensor:
    return torch.randint(256, (count, 4, 84, 84), dtype=torch.uint8)
