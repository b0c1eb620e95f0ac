"""Settings of small MR.Q agents, and a loop that trains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hadamard.algos.mrq import MRQ
from hadamard.core.config import RunSpec, overridden
from hadamard.training import start

SMALL = {
    "net.width": 16,
    "algo.hidden_width": 16,
    "algo.batch_size": 8,
    "algo.random_steps": 30,
    "algo.target_period": 10,
    "train.steps": 400,
}


def settings(task: str, changes: Mapping[str, Any] = {}) -> RunSpec[Any]:
    spec: RunSpec[Any] = overridden(
        start.default_spec("mrq", f"probe/{task}"), {**SMALL, **changes}
    )
    return spec


def play(
    agent: MRQ, env: Any, steps: int, after_step: Callable[[int, Any], None] | None = None
) -> list[Any]:
    """Act, step and observe; return what ``observe`` returned."""
    obs, metrics = env.reset(), []
    agent.begin(obs)
    for i in range(steps):
        action, extra = agent.act(obs, i * agent.num_envs)
        step = env.step(action)
        metrics.append(agent.observe(obs, action, extra, step))
        obs = step.obs
        if after_step is not None:
            after_step(i, step)
    return metrics
