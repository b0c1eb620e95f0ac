"""Fleets: many runs of one shape trained as one computation.

A run is trained in this form (``train.fleet`` is on) if its games can be played on the device and
its algorithm's functions can be stacked; also if it is the only run of its fleet. So a run gives
the same results alone and beside others, and may be taken out of a fleet or added to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

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
    limit = envs.make_on_device(spec.env, 0, 1, "cpu").rules.max_steps
    if getattr(spec.algo, "rollout_steps", 0) > limit:
        return (
            f"--algo.rollout-steps {spec.algo.rollout_steps} is longer than an episode of "
            f"{spec.env}, which ends after {limit} steps"
        )
    if spec.train.film_every:
        return f"--train.film-every {spec.train.film_every} films games outside the fleet"
    if spec.train.eval_every:
        return f"--train.eval-every {spec.train.eval_every} plays evaluations outside the fleet"
    return None


def resolved(algorithm: str, spec: RunSpec[Any]) -> RunSpec[Any]:
    """Return a new run's settings with ``train.fleet`` on or off."""
    on_gpu = spec.train.fleet == "auto" and machine.choose_device(spec.device).type == "cuda"
    return with_form(spec, "on" if begins_on(algorithm, spec, on_gpu=on_gpu) else "off")


def begins_on(algorithm: str, spec: RunSpec[Any], *, on_gpu: bool) -> bool:
    """Tell whether a new run is trained in the form of a fleet on such a device."""
    choice = spec.train.fleet
    if choice == "off" or (choice == "auto" and not on_gpu):
        return False
    reason = obstacle(algorithm, spec)
    if choice == "on" and reason is not None:
        raise ValueError(f"--train.fleet on is not possible: {reason}. Leave the option out")
    return reason is None


def with_form(spec: RunSpec[Any], form: Literal["on", "off"]) -> RunSpec[Any]:
    """Return the settings with ``train.fleet`` on or off."""
    return replace(spec, train=replace(spec.train, fleet=form))


def without(spec: RunSpec[Any]) -> RunSpec[Any]:
    """Return the settings with ``train.fleet`` off, for ``--no-fleet``."""
    if spec.train.fleet == "on":
        raise ValueError("--no-fleet and --train.fleet on contradict each other: leave one out")
    return with_form(spec, "off")


def grouped(
    items: Sequence[Item],
    algorithms: Sequence[str],
    specs: Sequence[RunSpec[Any]],
    steps: Sequence[int],
) -> list[list[Item]]:
    """Divide runs into those that can be trained as one computation, in their order.

    They are those of one shape that have been trained for the same number of steps.
    """
    groups: dict[tuple[str, int], list[Item]] = {}
    for item, algorithm, spec, step in zip(items, algorithms, specs, steps, strict=True):
        groups.setdefault((_shape(algorithm, spec), step), []).append(item)
    return list(groups.values())


def _shape(algorithm: str, spec: RunSpec[Any]) -> str:
    """Return what the runs of a fleet have in common."""
    agent = discover.find(discover.ALGORITHMS, algorithm, "algorithm").build
    own = {*_OWN, *(f"algo.{name}" for name in agent.per_run)}
    settings = flattened(to_dict(replace(spec, remedies={})))
    settings = {name: value for name, value in settings.items() if name not in own}
    return repr((algorithm, sorted(settings.items())))
