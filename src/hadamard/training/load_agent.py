"""Load a run's agent from its newest checkpoint."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from hadamard import envs
from hadamard.core import checkpoint, machine, plugin_records
from hadamard.core.config import RunSpec, overridden
from hadamard.core.types import Agent
from hadamard.training import start
from hadamard.training.setup import make_agent


def load_agent(path: str, device_name: str) -> tuple[Agent, RunSpec[Any], int, torch.device]:
    """Return the agent, the run's settings, the step it was saved at, and the agent's device.

    The agent can act but not learn: its replay is empty and small.
    """
    run, algorithm, spec = start.open_run(path)
    start.require_settings(run)
    for change in plugin_records.changes(run.config, run.path):
        warnings.warn(change, stacklevel=2)
    overrides = {
        "train.compile": "off",
        "algo.replay_capacity": 1_000 * spec.algo.num_envs,
        "algo.replay_storage": "memory",
    }
    present = {name: value for name, value in overrides.items() if _has_setting(spec, name)}
    spec = overridden(spec, present)
    device = machine.choose_device(device_name)
    environments = envs.make(spec.env, 0, 1, device)
    try:
        agent = make_agent(algorithm, spec, environments, device)
    finally:
        environments.close()
    newest = checkpoint.newest(run.checkpoints)
    step, state = checkpoint.read(newest)
    for name in ("network", "counters"):
        checkpoint.restore(newest, name, agent.parts[name], state.get(f"agent.{name}"))
    return agent, spec, step, device


def _has_setting(spec: RunSpec[Any], name: str) -> bool:
    section, _, field = name.partition(".")
    return hasattr(getattr(spec, section), field)
