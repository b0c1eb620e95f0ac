"""A run's agent as its last checkpoint has it."""

from __future__ import annotations

from typing import Any

import torch

from hadamard import envs, train
from hadamard.core import checkpoint
from hadamard.core.config import RunSpec, overridden
from hadamard.core.types import Agent


def load_agent(path: str, device_name: str) -> tuple[Agent, RunSpec[Any], int, torch.device]:
    """Return the agent, the run's settings, the step it was saved at, and the device it is on."""
    run, algorithm, spec = train.open_run(path)
    spec = overridden(spec, {"train.compile": "off"})  # there is nothing to learn
    device = train.choose_device(device_name)
    made = envs.make(spec.env, 0, 1, device)
    try:
        agent = train.make_agent(algorithm, spec, made, device)
    finally:
        made.close()
    step, state = checkpoint.read(checkpoint.newest(run.path / "checkpoints"))
    for name in ("network", "random", "counters"):
        part: Any = agent.parts[name]
        part.load_state_dict(state[f"agent.{name}"])
    return agent, spec, step, device
