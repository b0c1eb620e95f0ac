"""Load a run's agent from a checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch

from hadamard import envs
from hadamard.core import checkpoint, machine, plugin_records, record
from hadamard.core.config import RunSpec, overridden
from hadamard.core.run import Run
from hadamard.core.types import Agent, EnvSpec
from hadamard.training import start
from hadamard.training.setup import make_agent


class Loaded(NamedTuple):
    """An agent that can act but not learn: its replay is empty and small."""

    agent: Agent
    spec: RunSpec[Any]
    """The run's settings."""
    step: int
    """The step it was saved at."""
    device: torch.device
    env: EnvSpec


def load_agent(path: str, device_name: str, step: int | None = None) -> Loaded:
    """Load an agent from a run's checkpoint at a step, by default from the newest one."""
    run, algorithm, spec = start.open_run(path)
    start.require_settings(run)
    for change in plugin_records.changes(run.config, run.path):
        warnings.warn(change, stacklevel=2)
    device = machine.choose_device(device_name)
    spec = _small(spec)
    agent, env = bare_agent(algorithm, spec, device)
    chosen = checkpoint.newest(run.checkpoints) if step is None else _at(run, step)
    saved, state = checkpoint.read(chosen)
    for name in ("network", "counters"):
        checkpoint.restore(chosen, name, agent.parts[name], state.get(f"agent.{name}"))
    return Loaded(agent, spec, saved, device, env)


def bare_agent(algorithm: str, spec: RunSpec[Any], device: torch.device) -> tuple[Agent, EnvSpec]:
    """Build a run's agent with new weights and a small replay, and describe its environment."""
    environments = envs.make(spec.env, 0, 1, device)
    try:
        return make_agent(algorithm, _small(spec), environments, device), environments.spec
    finally:
        environments.close()


def _small(spec: RunSpec[Any]) -> RunSpec[Any]:
    """Return settings of an agent that acts but does not learn."""
    overrides = {
        "train.compile": "off",
        "algo.replay_capacity": 1_000 * spec.algo.num_envs,
        "algo.replay_storage": "memory",
    }
    present = {name: value for name, value in overrides.items() if _has_setting(spec, name)}
    small: RunSpec[Any] = overridden(spec, present)
    return small


def _at(run: Run, step: int) -> Path:
    """Return a run's checkpoint at a step."""
    saved = {record.step_of(path): path for path in record.checkpoints(run.checkpoints)}
    if step not in saved:
        steps = ", ".join(f"{there:,}" for there in sorted(saved)) or "none"
        raise ValueError(
            f"{run.path} has no checkpoint at step {step:,}; it has: {steps}. "
            "--train.keep-every keeps more than the newest two"
        )
    return saved[step]


def _has_setting(spec: RunSpec[Any], name: str) -> bool:
    section, _, field = name.partition(".")
    return hasattr(getattr(spec, section), field)
