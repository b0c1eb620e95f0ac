"""Agents of every algorithm on toy tasks, small and quick."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hadamard import envs
from hadamard.core import discover
from hadamard.core.config import RunSpec, overridden
from hadamard.core.types import Agent
from hadamard.training import start
from hadamard.training.setup import make_agent

MODULES = {
    name: discover.find("hadamard.algos", name, "") for name in discover.names("hadamard.algos")
}
ALGORITHMS = tuple(name for name, module in MODULES.items() if "discrete" in module.ACTIONS)
CPU = torch.device("cpu")

# Small and quick; an algorithm that is not named here runs with its own defaults.
QUICK: dict[str, dict[str, Any]] = {
    "dqn": {
        "algo.num_envs": 8,
        "algo.learning_rate": 3e-3,
        "algo.update_period": 8,
        "algo.target_period": 64,
        "algo.learning_starts": 128,
        "algo.epsilon_steps": 1_000,
        "algo.epsilon_final": 0.2,
        "train.steps": 3_200,
    },
    "ppo": {
        "algo.rollout_steps": 16,
        "algo.learning_rate": 5e-3,
        "algo.clip": 0.3,
        "train.steps": 3_840,
    },
    "pqn": {
        "algo.num_envs": 8,
        "algo.rollout_steps": 8,
        "algo.minibatches": 4,
        "algo.learning_rate": 5e-3,
        "algo.epsilon_fraction": 0.5,
        "algo.epsilon_final": 0.1,
        "train.steps": 3_840,
    },
}


def settings(algorithm: str, task: str, changes: Mapping[str, Any] = {}) -> RunSpec[Any]:
    small = {**QUICK.get(algorithm, {}), "net.width": 32, "train.greedy_envs": 0}
    spec = start.default_spec(algorithm, f"probe/{task}")
    changed: RunSpec[Any] = overridden(spec, {**small, **changes})
    return changed


def build_agent(
    algorithm: str, spec: RunSpec[Any], device: torch.device = CPU
) -> tuple[Agent, Any]:
    env = envs.make(spec.env, spec.seed, spec.algo.num_envs, device)
    return make_agent(algorithm, spec, env, device), env


def play(agent: Agent, env: Any, steps: int) -> None:
    obs = env.reset()
    agent.begin(obs)
    for i in range(steps):
        action, extra = agent.act(obs, i * agent.num_envs)
        step = env.step(action)
        agent.observe(obs, action, extra, step)
        obs = step.obs


def recorded_batches(agent: Any, env: Any, steps: int) -> list[tuple[Tensor, ...]]:
    """Let an agent play and return what it learns from, update by update."""
    batches: list[tuple[Tensor, ...]] = []
    learn = agent.learn

    def recording(*inputs: Tensor) -> Any:
        batches.append(tuple(tensor.clone() for tensor in inputs))
        return learn(*inputs)

    agent.learn = recording
    play(agent, env, steps)
    agent.learn = learn
    return batches
