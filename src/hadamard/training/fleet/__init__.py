"""Fleets: many runs of one shape trained as one computation.

A run is trained in this form (``train.fleet`` is on) if its algorithm's functions can be stacked,
and either its games are tensor programs on the device, or several runs whose games the host plays
are trained at once. A run keeps its form, also as the only run of its fleet. So it gives the same
results alone and beside others, and may be taken out of a fleet or added to one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

from hadamard import envs
from hadamard.core import discover, machine, remedies
from hadamard.core.config import RunSpec, flattened, to_dict
from hadamard.core.types import EnvSpec
from hadamard.training import emulators

_OWN = (
    *("seed", "run_dir", "remedy", "train.until"),
    *("train.tensorboard", "train.wandb", "train.trackio", "train.mlflow"),
)
"""Settings in which the runs of a fleet may differ, beside the algorithm's ``per_run``."""
Item = TypeVar("Item")


def obstacle(algorithm: str, spec: RunSpec[Any]) -> str | None:
    """Say why a run cannot be trained in a fleet; None if it can."""
    agent = discover.find(discover.ALGORITHMS, algorithm, "algorithm").build
    if not hasattr(agent, "per_run"):
        return f"{algorithm} has no form for stacked runs yet"
    if not plays_on_device(algorithm, spec):
        return _obstacle_on_host(algorithm, agent.fleet_kind, spec)
    limit = envs.longest_rollout(spec.env)
    if getattr(spec.algo, "rollout_steps", 0) > limit:
        return (
            f"--algo.rollout-steps {spec.algo.rollout_steps} is longer than an episode of "
            f"{spec.env}, which ends after {limit} steps"
        )
    if getattr(spec.algo, "normalize", False):
        return "--algo.normalize keeps statistics that a fleet does not compute"
    if spec.train.film_every:
        return f"--train.film-every {spec.train.film_every} films games outside the fleet"
    if spec.train.eval_every:
        return f"--train.eval-every {spec.train.eval_every} plays evaluations outside the fleet"
    return None


def plays_on_device(algorithm: str, spec: RunSpec[Any]) -> bool:
    """Say whether the games of a fleet are played on the device, within its computation."""
    if envs.has_emulators(spec.env):
        return is_emulated(algorithm, spec)
    return envs.plays_on_device(spec.env)


def is_emulated(algorithm: str, spec: RunSpec[Any]) -> bool:
    """Say whether emulators play the games of a fleet on the device, within its computation."""
    from hadamard.training.fleet.kinds import WITH_EMULATORS

    kind = discover.find(discover.ALGORITHMS, algorithm, "algorithm").build.fleet_kind
    return spec.train.emulators == "gpu" and kind in WITH_EMULATORS


def _obstacle_on_host(algorithm: str, kind: str, spec: RunSpec[Any]) -> str | None:
    """Say why a run whose games are played on the host cannot be trained in a fleet."""
    from hadamard.training.fleet.kinds import ON_HOST

    if kind not in ON_HOST:
        emulators = " (--train.emulators gpu)" if envs.has_emulators(spec.env) else ""
        return (
            f"{spec.env} is not played on the device{emulators}, which {algorithm} needs in a fleet"
        )
    if spec.train.greedy_envs:
        return (
            f"--train.greedy-envs {spec.train.greedy_envs} plays greedy games beside training, "
            f"which fleets on {spec.env} do not"
        )
    return None


def resolved(
    algorithm: str, spec: RunSpec[Any], *, together: bool = False, count: int = 1
) -> RunSpec[Any]:
    """Return a new run's settings with ``train.emulators`` decided and ``train.fleet`` on or off.

    ``together`` says that other runs of its shape are trained at the same time, ``count`` in all.
    """
    (spec,) = emulators.resolved([spec], _possible(algorithm), together=count)
    on_gpu = spec.train.fleet == "auto" and machine.choose_device(spec.device).type == "cuda"
    begins = begins_on(algorithm, spec, on_gpu=on_gpu, together=together)
    return with_form(spec, "on" if begins else "off")


def resolved_together(algorithm: str, specs: Sequence[RunSpec[Any]]) -> list[RunSpec[Any]]:
    """Return the settings of new runs that are trained at once, see `resolved`."""
    specs = emulators.resolved(specs, _possible(algorithm))
    settings = [resolved(algorithm, spec, together=True) for spec in specs]
    stacked = [index for index, spec in enumerate(settings) if spec.train.fleet == "on"]
    own = [settings[index] for index in stacked]
    for group in grouped(stacked, [algorithm] * len(own), own, [0] * len(own)):
        if len(group) == 1:
            settings[group[0]] = resolved(algorithm, specs[group[0]])
    return settings


def _possible(algorithm: str) -> Callable[[RunSpec[Any]], bool]:
    """Return a function that says whether a run can be trained in a fleet."""
    return lambda spec: obstacle(algorithm, spec) is None


def begins_on(algorithm: str, spec: RunSpec[Any], *, on_gpu: bool, together: bool = False) -> bool:
    """Tell whether a new run is trained in the form of a fleet on such a device."""
    choice = spec.train.fleet
    if choice == "off" or (choice == "auto" and not on_gpu):
        return False
    reason = obstacle(algorithm, spec)
    if choice == "on" and reason is not None:
        raise ValueError(f"--train.fleet on is not possible: {reason}. Leave the option out")
    # One run alone is faster by its own loop, where the host plays.
    pays = together or plays_on_device(algorithm, spec)
    return reason is None and (choice == "on" or pays)


@functools.cache
def env_spec(name: str) -> EnvSpec:
    """Return what learners know about the environments of a fleet."""
    if envs.plays_on_device(name):
        return envs.make_on_device(name, 0, 1, "cpu").spec
    games = envs.make(name, 0, 1)
    games.close()
    return games.spec


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
    if spec.train.emulators == "gpu":  # one batch plays several games, if they have as many actions
        settings["env"] = env_spec(spec.env).num_actions
    return repr((algorithm, sorted(settings.items()), _structural(spec.remedy)))


def _structural(remedy: str) -> list[str]:
    """Return the remedies that change a network's structure, which all runs of a fleet share."""
    modules = {
        name: discover.find(discover.REMEDIES, name, "remedy") for name in remedies.chosen(remedy)
    }
    return [name for name, module in modules.items() if hasattr(module, "prepare")]
