"""A run's agent as its last checkpoint has it."""

from __future__ import annotations

from typing import Any

import torch

from hadamard import envs, train
from hadamard.core import checkpoint, machine
from hadamard.core.config import RunSpec, overridden
from hadamard.core.types import Agent
from hadamard.trainer import make_agent


def load_agent(path: str, device_name: str) -> tuple[Agent, RunSpec[Any], int, torch.device]:
    """Return the agent, the run's settings, the step it was saved at, and the device it is on."""
    run, algorithm, spec = train.open_run(path)
    # There is nothing to learn, and nothing to keep.
    small = {"train.compile": "off", "algo.replay_capacity": 1_000 * spec.algo.num_envs}
    small["algo.replay_storage"] = "memory"
    kept = {name: value for name, value in small.items() if _has(spec, name)}
    spec = overridden(spec, kept)
    device = machine.choose_device(device_name)
    made = envs.make(spec.env, 0, 1, device)
    try:
        agent = make_agent(algorithm, spec, made, device)
    finally:
        made.close()
    step, state = checkpoint.read(checkpoint.newest(run.path / "checkpoints"))
    for name in ("network", "counters"):
        part: Any = agent.parts[name]
        part.load_state_dict(state[f"agent.{name}"])
    return agent, spec, step, device


def _has(spec: RunSpec[Any], name: str) -> bool:
    head, _, rest = name.partition(".")
    return hasattr(getattr(spec, head), rest)
