"""Environments: one file is one suite, and a task is named ``suite/task``.

A file of this folder that defines ``make`` is a suite; the other files and folders are parts that
suites share. A suite is imported only when it is named. Dashes in its name are underscores in the
file's.
What its environments return is checked (see ``checked.py``), so that no NaN is learned from; a
suite sends observations to a GPU with ``common.copy_to_device``, which checks them before.
It defines:

- ``tasks()``, the names of its tasks;
- ``make(task, seed, num_envs, device, *, training)``, a batch of environments of one task.

A plugin's module that defines these is a suite, too. A suite may also define:

- ``REQUIRES``, the packages it imports, and ``EXTRA``, the extra of hadamard-rl that installs them;
- ``OPTIONS``, the names of options that only this suite takes;
- ``find_task(name)``, which returns the spelling of a task that ``tasks`` need not list, or raises
  ValueError;
- ``requirements(task)``, the packages and the extra of one task, where they differ;
- ``NOTE``, a line that ``hadamard envs`` shows below the tasks;
- ``worker_options(task)``, further arguments of ``make`` in worker processes;
- ``AFTER_INSTALL``, a second command that completes the installation;
- ``trouble()``, which says what else is missing, such as files, or returns None;
- ``prepare()``, called once in the main process before workers start;
- ``SLOW``, whether several environments are spread over worker processes by default;
- ``PRELOAD``, the packages to load once for all workers;
- ``make_on_device``, which makes environments that are played on the learner's device: tensor
  programs (``tensor_games``), for fleets of runs, or emulators. ``longest_rollout(task)`` belongs
  to it: a number of steps in which no game is truncated twice;
- ``emulator_trouble(task, device)``, where ``--train.emulators`` chooses between ``make`` and
  ``make_on_device``: it says why the second is not possible;
- ``make_part``, which makes the environments of one worker, and ``assemble``, which wraps those
  of all workers into the suite's batch.

Examples:
    >>> envs = make("probe/constant", seed=0, num_envs=2)
    >>> envs.reset().shape
    torch.Size([2, 1])
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from hadamard.core import discover
from hadamard.core.cores import usable_cores
from hadamard.core.types import Envs
from hadamard.envs.checked import CheckedEnvs
from hadamard.envs.common import EnvironmentFailure, environment_seeds
from hadamard.envs.tensor_games import TensorGames
from hadamard.text import did_you_mean, unknown

if TYPE_CHECKING:
    from hadamard.envs.atari_on_device import EmulatedGames

__all__ = [
    "MissingExtra",
    "automatic_workers",
    "emulator_trouble",
    "has_emulators",
    "install_command",
    "longest_rollout",
    "make",
    "make_on_device",
    "make_part",
    "missing",
    "plays_on_device",
    "prepare_to_draw",
    "suites",
    "tasks",
    "trouble",
]


class MissingExtra(ImportError):
    """The packages of a named suite are not installed."""


def suites() -> dict[str, str]:
    """Return every suite's name and one-line description, without importing any."""
    return {
        _normalized(name): discover.summary(__name__, name) for name in discover.names(__name__)
    }


def _normalized(name: str) -> str:
    """Return a name in the form in which names are compared: lower case, with dashes."""
    return name.lower().replace("_", "-")


def _import_suite(suite: str) -> Any:
    """Import a suite."""
    name = _normalized(suite)
    module = name.replace("-", "_")
    if not discover.known(__name__, module):
        raise ValueError(unknown("suite", suite, suites()))
    return discover.find(__name__, module, "suite")


def missing(suite: str, task: str | None = None) -> tuple[str, ...]:
    """Return the packages that a suite, or one of its tasks, needs and that are not installed."""
    packages, _ = _requirements(suite, task)
    return tuple(name for name in packages if importlib.util.find_spec(name) is None)


def _requirements(suite: str, task: str | None) -> tuple[tuple[str, ...], str]:
    """Return the packages that a suite or a task needs, and the extra that installs them."""
    module = _import_suite(suite)
    needed: tuple[tuple[str, ...], str]
    needed = getattr(module, "REQUIRES", ()), getattr(module, "EXTRA", "")
    if task is not None and hasattr(module, "requirements"):
        needed = module.requirements(task)
    return needed


def trouble(suite: str) -> str | None:
    """Say what is missing before a suite can be used; None if a quick check finds nothing."""
    missing_packages = missing(suite)
    if missing_packages:
        return f"not installed ({', '.join(missing_packages)}): {install_command(suite)}"
    check: Callable[[], str | None] = getattr(_import_suite(suite), "trouble", lambda: None)
    return check()


def install_command(suite: str, task: str | None = None) -> str:
    """Return the command that installs the packages of a suite, or of one of its tasks."""
    module = _import_suite(suite)
    packages, extra = _requirements(suite, task)
    command = (
        f"pip install 'hadamard-rl[{extra}]'" if extra else f"pip install {' '.join(packages)}"
    )
    second_command = getattr(module, "AFTER_INSTALL", "")
    return f"{command} && {second_command}" if second_command else command


def _from_checkout(suite: str, task: str) -> str:
    """Say how the extra is installed where the package itself is no index's."""
    extra = _requirements(suite, task)[1]
    return f" (from a checkout: pip install '.[{extra}]')" if extra else ""


def tasks(suite: str) -> tuple[str, ...]:
    """Return a suite's tasks."""
    names: tuple[str, ...] = _import_suite(suite).tasks()
    return names


def notes(suite: str) -> list[str]:
    """Return what else there is to say of a suite's tasks: which lack packages, and its note."""
    lacking: dict[str, list[str]] = {}
    for task in tasks(suite):
        if missing(suite, task) != missing(suite):
            lacking.setdefault(install_command(suite, task), []).append(task)
    lines = [f"not installed: {', '.join(lacking[command])}: {command}" for command in lacking]
    note: str = getattr(_import_suite(suite), "NOTE", "")
    return [*lines, note] if note else lines


def _resolve(name: str) -> tuple[str, str]:
    """Return suite and task in their own spelling.

    An unknown name or a missing package raises an error that says what to do.
    """
    suite, slash, task = name.partition("/")
    if not slash or not suite or not task:
        raise ValueError(
            f"an environment is named 'suite/task', such as 'minatar/breakout'; got {name!r}"
        )
    known = tasks(suite)
    suite = _normalized(suite)
    task_name = {_normalized(candidate): candidate for candidate in known}.get(_normalized(task))
    if task_name is None and hasattr(_import_suite(suite), "find_task"):
        task_name = _import_suite(suite).find_task(task)
    if task_name is None:
        raise ValueError(
            f"{suite} has no task {task!r}{did_you_mean(task, known) or '.'} "
            "List all tasks with: hadamard envs"
        )
    missing_packages = missing(suite, task_name)
    if missing_packages:
        raise MissingExtra(
            f"{suite}/{task_name} needs {', '.join(missing_packages)}. Install it with: "
            f"{install_command(suite, task_name)}{_from_checkout(suite, task_name)}"
        )
    return suite, task_name


def prepare_to_draw(name: str) -> None:
    """Choose the OpenGL that renders an environment's pictures, or say what is missing.

    Call this before the environment is made: MuJoCo decides on its OpenGL when it is imported.
    """
    if "mujoco" in _requirements(*_resolve(name))[0]:
        from hadamard.envs import gl

        gl.choose()


def automatic_workers(name: str, num_envs: int) -> int:
    """Return the default number of worker processes.

    Several environments of a slow suite get two processes per core, so that a core stays busy
    while one of its processes waits or plays a long reset. A single environment, or a fast suite,
    needs no worker.
    """
    suite, _ = _resolve(name)
    slow = getattr(_import_suite(suite), "SLOW", False)
    return min(num_envs, 2 * usable_cores()) if slow and num_envs > 1 else 0


def make(
    name: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    atari_reset: str = "cleanrl",
    workers: int | None = 0,
    groups: int = 1,
    failures: dict[int, EnvironmentFailure] | None = None,
) -> Envs:
    """Make a batch of environments by name.

    Args:
        name: ``suite/task``; upper and lower case, dashes and underscores do not matter.
        seed: All randomness of the environments follows from it, whatever the numbers of workers
            and groups (except in ``probe``, where each worker and group draws its own numbers). A
            sequence gives every environment its own seed.
        num_envs: How many environments are stepped together.
        device: Where observations are put.
        training: Whether to apply what the protocol applies in training only (on Atari, clipped
            rewards and an end at every lost life).
        atari_reset: On Atari, how a game begins and how it continues after a lost life:
            ``cleanrl`` or ``envpool``. Other suites ignore it.
        workers: Spread the environments over this many processes; 0 keeps them in this process,
            None uses ``automatic_workers``.
        groups: Make a ``GroupedEnvs`` of this many groups, which can be stepped separately.
        failures: Where failures of worker processes are put, by environment, so that the others
            go on; for one group, whose environments then need not wait for each other (see
            ``fleet_workers``). By default the first failure is raised.
    """
    suite, task = _resolve(name)
    name, module = f"{suite}/{task}", _import_suite(suite)
    if workers is None:
        automatic = automatic_workers(name, num_envs)
        workers = max(automatic, groups) if automatic else 0
    if workers < 0:
        raise ValueError(f"workers must be 0 (none) or more, got {workers}")
    options = _options_of(module, training=training, atari_reset=atari_reset)
    if groups != 1:
        return _make_groups(name, seed, num_envs, device, groups, workers, options)
    return _make_batch(name, seed, num_envs, device, workers, options, failures=failures)


def has_emulators(name: str) -> bool:
    """Say whether ``--train.emulators`` decides where an environment's games are played."""
    return hasattr(_import_suite(_resolve(name)[0]), "emulator_trouble")


def emulator_trouble(name: str, device: torch.device) -> str | None:
    """Say why an environment's emulators cannot play on a GPU; None if they can."""
    suite, task = _resolve(name)
    trouble: str | None = _import_suite(suite).emulator_trouble(task, device)
    return trouble


def plays_on_device(name: str, emulators: str = "cpu") -> bool:
    """Say whether an environment's games are played on the learner's device.

    ``emulators`` is ``--train.emulators``, which decides it in a suite of emulators.
    """
    module = _import_suite(_resolve(name)[0])
    return hasattr(module, "make_on_device") and (emulators == "gpu" or not has_emulators(name))


def longest_rollout(name: str) -> int:
    """Return a number of steps in which no game on the device is truncated twice."""
    suite, task = _resolve(name)
    module = _import_suite(suite)
    steps: int = module.longest_rollout(task)
    return steps


def make_on_device(
    name: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str,
    *,
    training: bool = True,
    atari_reset: str = "cleanrl",
) -> TensorGames | EmulatedGames:
    """Make a batch of environments that are played on the learner's device; see ``make``."""
    suite, task = _resolve(name)
    module = _import_suite(suite)
    options = _options_of(module, training=training, atari_reset=atari_reset)
    games: TensorGames | EmulatedGames
    games = module.make_on_device(task, seed, num_envs, device, **options)
    return games


def _make_batch(
    name: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str,
    workers: int,
    options: Mapping[str, Any],
    first: int = 0,
    failures: dict[int, EnvironmentFailure] | None = None,
) -> Envs:
    """Make one batch that is checked; ``first`` is the number of its first environment."""
    suite, _, task = name.partition("/")
    module = _import_suite(suite)
    if not workers:
        envs: Envs = module.make(task, seed, num_envs, device, **options)
        return CheckedEnvs(envs, _label(name, options), first)
    from hadamard.envs.fleet_workers import FleetWorkers
    from hadamard.envs.workers import WorkerEnvs

    if hasattr(module, "prepare"):
        module.prepare()
    preload = getattr(module, "PRELOAD", ())
    extra = module.worker_options(task) if hasattr(module, "worker_options") else {}
    kind = WorkerEnvs if failures is None else FleetWorkers
    envs = kind(
        name,
        seed,
        num_envs,
        device,
        workers=workers,
        options={**options, **extra},
        preload=preload,
        first=first,
        failures=failures,
    )
    if hasattr(module, "assemble"):
        envs = module.assemble(envs, device, **options)
    return CheckedEnvs(envs, _label(name, options), first)


def make_part(
    name: str, seed: int | Sequence[int], num_envs: int, options: Mapping[str, Any], first: int = 0
) -> Envs:
    """Make the environments of one worker process; the name must be spelled as listed."""
    suite, _, task = name.partition("/")
    module = _import_suite(suite)
    part: Envs = getattr(module, "make_part", module.make)(task, seed, num_envs, "cpu", **options)
    return CheckedEnvs(part, _label(name, options), first)


def _label(name: str, options: Mapping[str, Any]) -> str:
    """Return what errors call the environments."""
    return name if options.get("training", True) else f"{name} (greedy play)"


def _options_of(module: Any, **options: Any) -> dict[str, Any]:
    """Keep only the options that a suite takes."""
    names = ("training", *getattr(module, "OPTIONS", ()))
    return {name: value for name, value in options.items() if name in names}


def _make_groups(
    name: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str,
    groups: int,
    workers: int,
    options: Mapping[str, Any],
) -> Envs:
    """Divide environments and workers evenly among the groups."""
    from hadamard.envs.groups import GroupedEnvs

    max_groups = min(num_envs, workers or num_envs)
    if not 1 <= groups <= max_groups:
        and_workers = f" and {workers} worker processes" if workers else ""
        raise ValueError(
            f"groups (--train.env-groups) must be in 1..{max_groups}, since there are {num_envs} "
            f"environments{and_workers}; got {groups}"
        )
    seeds, batches = environment_seeds(seed, num_envs), list[Envs]()
    try:
        for group in range(groups):
            size, processes = (n // groups + (group < n % groups) for n in (num_envs, workers))
            first = sum(batch.num_envs for batch in batches)
            group_seeds = seeds[first : first + size]
            batches.append(_make_batch(name, group_seeds, size, device, processes, options, first))
    except BaseException:
        for batch in batches:
            batch.close()
        raise
    return GroupedEnvs(batches)
