"""The networks of kept checkpoints, in groups of one shape."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hadamard.core import checkpoint, record
from hadamard.core.config import RunSpec, flattened, to_dict
from hadamard.core.files import RunError
from hadamard.core.identity import experiment
from hadamard.core.types import EnvSpec
from hadamard.nets.encoders import Encoder
from hadamard.training import start
from hadamard.training.load_agent import bare_agent


@dataclass(frozen=True, eq=False)
class SavedNetwork:
    """A network as a checkpoint has it."""

    path: Path
    """The run's folder."""
    step: int
    network: nn.Module


@dataclass(frozen=True, eq=False)
class Group:
    """Networks of one shape that were trained on one task."""

    algorithm: str
    env: str
    spec: EnvSpec
    saved: list[SavedNetwork] = field(default_factory=list)


def groups(
    paths: Sequence[Path], most: int, device: torch.device, problems: list[str]
) -> Iterator[Group]:
    """Yield the networks of finished runs, one task and shape after the other.

    What cannot be used is left out, and said in ``problems``.
    """
    alike: dict[str, list[tuple[Path, str, RunSpec[Any]]]] = {}
    for path in paths:
        try:
            run, algorithm, spec = start.open_run(str(path))
            if run.done is None:
                raise RunError(f"{path} is not finished: train it to its end first")
        except (RunError, OSError, ValueError) as error:
            problems.append(str(error))
            continue
        settings = experiment(flattened(to_dict(spec)))
        alike.setdefault(f"{algorithm} {spec.env} {settings}", []).append((path, algorithm, spec))
    by_task: dict[tuple[str, str], list[list[tuple[Path, str, RunSpec[Any]]]]] = {}
    for runs in alike.values():
        by_task.setdefault((runs[0][1], runs[0][2].env), []).append(runs)
    for (algorithm, env), variants in by_task.items():
        by_shape: dict[str, Group] = {}
        for runs in variants:
            _add_networks(runs, algorithm, env, most, device, by_shape, problems)
        yield from by_shape.values()


def _add_networks(
    runs: Sequence[tuple[Path, str, RunSpec[Any]]],
    algorithm: str,
    env: str,
    most: int,
    device: torch.device,
    by_shape: dict[str, Group],
    problems: list[str],
) -> None:
    """Add the networks of runs that differ in their seeds only to the groups of a task."""
    try:
        agent, env_spec = bare_agent(algorithm, runs[0][2], device)
    except (RunError, OSError, ValueError) as error:
        problems.append(f"{runs[0][0]}: {error}")
        return
    network = agent.network
    if env_spec.continuous or not isinstance(getattr(network, "encoder", None), Encoder):
        names = ", ".join(str(path) for path, _, _ in runs[:3])
        problems.append(
            f"{names}: relearning needs discrete actions and one encoder, as DQN, PPO and PQN "
            f"have; {algorithm} on {env} has not"
        )
        return
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    group = by_shape.setdefault(f"{network} {shapes}", Group(algorithm, env, env_spec))
    for path, _, _ in runs:
        kept = sorted(record.checkpoints(path / "checkpoints"))
        for chosen in _spaced(kept, most):
            try:
                step, state = checkpoint.read(chosen)
                own = copy.deepcopy(network)
                checkpoint.restore(chosen, "network", own, state.get("agent.network"))
            except (RunError, checkpoint.CheckpointError) as error:
                problems.append(str(error))
                continue
            if not all(bool(torch.isfinite(p).all()) for p in own.parameters()):
                problems.append(f"{chosen}: a weight is not finite")
                continue
            group.saved.append(SavedNetwork(path, step, own))
        if not kept:
            problems.append(f"{path} has no checkpoint")


def _spaced(paths: list[Path], most: int) -> list[Path]:
    """Return so many of the paths at most, evenly spaced and with the last one.

    Examples:
        >>> [int(str(p)) for p in _spaced([Path(str(i)) for i in range(9)], 3)]
        [2, 5, 8]
    """
    if len(paths) <= most:
        return paths
    places = np.linspace(0, len(paths), most + 1)[1:] - 1
    return [paths[round(place)] for place in places]
