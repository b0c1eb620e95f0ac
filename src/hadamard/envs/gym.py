"""Gymnasium: its own tasks (classic control, Box2D, MuJoCo, toy text) and any that is registered.

``gym/CartPole-v1`` is a task that Gymnasium knows by this name; ``gym/my_tasks:Grid-v0`` is one
that the module ``my_tasks`` registers when it is imported, and ``register`` makes a task of a
function. A module is imported only if the user names it (see ``named_modules``).

Rewards, terminations and time limits (as truncations) are those that are registered. Observations
and actions are converted as ``gym_spaces`` says. MuJoCo's tasks, version 5, have an exact state of
their own (``gym_mujoco``); others are restored by playing the running episode again, where that
gives the same numbers (``gym_task``), and otherwise go on with a new episode.
"""

from __future__ import annotations

import functools
import importlib
import pickle
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from hadamard.core.types import Envs
from hadamard.envs import gl, gym_mujoco, named_modules
from hadamard.envs.batch import BatchEnvs
from hadamard.envs.common import check_num_envs, environment_seeds
from hadamard.text import did_you_mean

REQUIRES = ("gymnasium",)
EXTRA = "gym"
NOTE = "also any other task that Gymnasium knows, and gym/MODULE:ID, registered by your own module"

_CLASSIC = (
    "Acrobot-v1",
    "CartPole-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
)
_BOX2D = (
    "BipedalWalker-v3",
    "BipedalWalkerHardcore-v3",
    "CarRacing-v3",
    "LunarLander-v3",
    "LunarLanderContinuous-v3",
)
_TOY_TEXT = ("Blackjack-v1", "CliffWalking-v1", "FrozenLake-v1", "FrozenLake8x8-v1")


def tasks() -> tuple[str, ...]:
    """Return Gymnasium's own tasks, named as there; others are known too (``find_task``)."""
    return (*_CLASSIC, *_BOX2D, *gym_mujoco.TASKS, *_TOY_TEXT)


def requirements(task: str) -> tuple[tuple[str, ...], str]:
    """Return the packages that a task needs, and the extra that installs them."""
    if task in gym_mujoco.TASKS:
        return gym_mujoco.PACKAGES, "mujoco"
    return (("gymnasium", "Box2D"), "box2d") if task in _BOX2D else (REQUIRES, EXTRA)


def find_task(task: str) -> str:
    """Return a task's name as it is registered; a name without a version means the newest."""
    module, _, name = task.rpartition(":")
    if module:
        named_modules.load(module, f"gym/{task}")
    registered = _registered()
    names = {*registered, *tasks()}
    by_lower = {known.lower(): known for known in sorted(names, key=_by_version)}
    found = by_lower.get(name.lower()) or {
        _without_version(lower): known for lower, known in by_lower.items()
    }.get(name.lower())
    if found is None or (module and found not in registered):
        where = f"the module {module} registers" if module else "gym has"
        raise ValueError(
            f"{where} no task {name!r}{_hint(name, names) or '.'} List Gymnasium's own with: "
            "hadamard envs. A task of yours is gym/MODULE:ID, or made by hadamard.envs.gym.register"
        )
    return f"{module}:{found}" if module else found


def _registered() -> dict[str, Any]:
    """Return what Gymnasium has registered, nothing if it is not installed."""
    try:
        import gymnasium
    except ImportError:
        return {}
    registry: dict[str, Any] = gymnasium.registry
    return registry


def _by_version(name: str) -> tuple[str, int]:
    version = re.search(r"-v(\d+)$", name)
    return _without_version(name), int(version[1]) if version else -1


def _without_version(name: str) -> str:
    return re.sub(r"-v\d+$", "", name)


def _hint(name: str, known: set[str]) -> str:
    """Return the names most like this one, whose versions do not make names alike."""
    # Gymnasium's copies of its tasks in JAX would be offered beside them.
    own = {other for other in known if not other.startswith(("phys2d/", "tabular/"))}
    newest = {_without_version(other): other for other in sorted(own, key=_by_version)}
    hint = did_you_mean(_without_version(name), newest)
    return re.sub(r"'([^']*)'", lambda match: repr(newest[match[1]]), hint)


def register(function: Callable[..., Any], name: str, max_steps: int | None = None) -> str:
    """Register a function or class that makes a ``gymnasium.Env``; return the environment's name.

    ``max_steps`` is the time limit, whose end is a truncation. Worker processes need a function
    of a module, not of a notebook or a lambda.

    Examples:
        >>> from gymnasium.envs.classic_control import CartPoleEnv
        >>> register(CartPoleEnv, "LongCartPole-v0", max_steps=2_000)
        'gym/LongCartPole-v0'
    """
    import gymnasium

    gymnasium.registry.pop(name, None)
    _exact.cache_clear()
    gymnasium.register(name, entry_point=function, max_episode_steps=max_steps)
    return f"gym/{name}"


def worker_options(task: str) -> dict[str, Any]:
    """Return what a worker process must know of a task that this process has registered."""
    if task in gym_mujoco.TASKS:
        return {}
    registered = _registered()[task.rpartition(":")[2]]
    try:
        pickle.dumps(registered)
    except Exception as error:  # pickle raises whatever the object's own methods raise
        raise ValueError(
            f"gym/{task} cannot be made in worker processes ({error}): register a function or a "
            "class of a module, or step it in this process with --train.env-workers 0"
        ) from None
    return {"registered": registered, "exact": _exact_or_said(task)}


def make(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    registered: Any = None,
    exact: bool | None = None,
) -> Envs:
    """Make a batch of one task; training and evaluation differ in that the latter has pictures.

    A worker process gets the task's registration, and whether its state is exact.
    """
    check_num_envs(num_envs)
    seeds = environment_seeds(seed, num_envs)
    if task in gym_mujoco.TASKS:
        renderer = gl.Renderer(*gym_mujoco.PICTURE)
        return BatchEnvs([gym_mujoco.MujocoTask(task, s, renderer) for s in seeds], device)
    if task in _BOX2D:
        with warnings.catch_warnings():
            # Its import warns, and crashes where warnings are errors.
            warnings.simplefilter("ignore")
            importlib.import_module("Box2D")
    from gymnasium.error import DependencyNotInstalled, Error

    from hadamard.envs.gym_task import RegisteredTask

    try:
        if registered is None:
            registered = _registered()[find_task(task).rpartition(":")[2]]
            exact = _exact_or_said(task)
        made = [
            RegisteredTask(registered, s, exact=bool(exact), pictures=not training) for s in seeds
        ]
    except DependencyNotInstalled as error:
        raise ImportError(f"gym/{task} needs more packages: {error}") from error
    except Error as error:
        raise ValueError(f"gym/{task} cannot be made: {error}") from error
    return BatchEnvs(made, device, exact=bool(exact))


@functools.cache
def _exact(task: str) -> bool:
    from hadamard.envs.gym_task import plays_again

    return plays_again(_registered()[task.rpartition(":")[2]])


def _exact_or_said(task: str) -> bool:
    """Return whether a task's state is exact; warn if it is not, once."""
    exact = _exact(task)
    if not exact and task not in _SAID:
        _SAID.add(task)
        warnings.warn(
            f"an episode of gym/{task} cannot be continued exactly: a resumed run starts a new "
            "one. It can if the task has a time limit and all its random numbers follow from "
            "reset(seed=...), or if it has methods state_dict and load_state_dict",
            stacklevel=4,
        )
    return exact


_SAID: set[str] = set()
"""Tasks of which a warning says that they cannot be continued."""
