"""Fleets: many runs of one shape trained as one computation.

A run is trained in this form (``train.fleet`` is on) if its games can be played on the device and
its algorithm's functions can be stacked; also if it is the only run of its fleet. So a run gives
the same results alone and beside others, and may be taken out of a fleet or added to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hadamard import envs
from hadamard.core import discover, machine
from hadamard.core.config import RunSpec, flattened, to_dict

_OWN = ("seed", "run_dir", "remedy", "train.until", "train.tensorboard", "train.wandb")
"""Settings in which the runs of a fleet may differ, beside the algorithm's ``per_run``."""
Item = TypeVar("Item")


def obstacle(algorithm: str, spec: RunSpec[Any]) -> str | None:
    """Say why a run cannot be trained in a fleet; None if it can."""
    agent = discover.find(discover.ALGORITHMS, algorithm, "algorithm").build
    if not hasattr(agent, "per_run"):
        return f"{algorithm} has no form for stacked runs yet"
    if not envs.plays_on_device(spec.env):
        return f"{spec.env} is not played on the device"
    if spec.train.eval_every:
        return f"--train.eval-every {spec.train.eval_every} plays evaluations outside the fleet"
    return None


def resolved(algorithm: str, spec: RunSpec[Any]) -> RunSpec[Any]:
    """Return a new run's settings with ``train.fleet`` on or off."""
    choice = spec.train.fleet
    reason = obstacle(algorithm, spec) if choice != "off" else ""
    if choice == "on" and reason is not None:
        raise ValueError(f"--train.fleet on is not possible: {reason}. Leave the option out")
    if choice == "auto":
        on_gpu = machine.choose_device(spec.device).type == "cuda"
        choice = "on" if reason is None and on_gpu else "off"
    return replace(spec, train=replace(spec.train, fleet=choice))


def grouped(items: Sequence[Item], algorithms: Sequence[str], specs: Sequence[Any]) -> list[list[Item]]:
    """Divide runs into those that can be trained as one computation, in their order."""
    groups: dict[str, list[Item]] = {}
    for item, algorithm, spec in zip(items, algorithms, specs, strict=True):
        groups.setdefault(_shape(algorithm, spec), []).append(item)
    return list(groups.values())


def _shape(algorithm: str, spec: RunSpec[Any]) -> str:
    """Return what the runs of a fleet have in common."""
    agent = discover.find(discover.ALGORITHMS, algorithm, "algorithm").build
    own = {*_OWN, *(f"algo.{name}" for name in agent.per_run)}
    settings = flattened(to_dict(replace(spec, remedies={})))
    settings = {name: value for name, value in settings.items() if name not in own}
    return repr((algorithm, sorted(settings.items())))
