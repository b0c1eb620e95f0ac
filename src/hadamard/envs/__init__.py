"""Environments: one file is one suite, and a task is named ``suite/task``.

A suite is a file here with ``tasks()``, ``make(...)``, ``REQUIRES`` (what it imports) and
``EXTRA`` (what installs that). It is imported only when it is named; dashes in a suite's public
name are underscores in the file's. A suite may also have:

- ``prepare()``, called once before workers start; ``trouble()``, which says whether anything else
  is missing; ``AFTERWARDS``, a second command that an installation needs;
- ``OPTIONS``, the names of options that it alone takes;
- ``SLOW``: several environments are spread over worker processes unless asked otherwise;
  ``PRELOAD``, the packages to load once for all workers;
- ``make_part`` and ``assemble``: what a worker holds, and what makes the suite's environments of
  all workers' together.

Examples:
    >>> envs = make("probe/constant", seed=0, num_envs=2)
    >>> envs.reset().shape
    torch.Size([2, 1])
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from hadamard.core.types import Envs
from hadamard.envs.common import spread, usable_cores

__all__ = [
    "MissingExtra",
    "automatic_workers",
    "install_command",
    "make",
    "make_part",
    "missing",
    "prepare_to_draw",
    "suites",
    "tasks",
    "trouble",
]


class MissingExtra(ImportError):
    """A suite was named whose packages are not installed."""


def suites() -> dict[str, str]:
    """Return the suites by name, each with a one-line description. Imports none of them."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        tree = ast.parse(Path(__path__[0], f"{info.name}.py").read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "make" for node in tree.body):
            description = (ast.get_docstring(tree) or "").partition("\n")[0]
            found[info.name.replace("_", "-")] = description
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(by_lower[n]) for n in near)}?" if near else "."


def _suite(name: str) -> Any:
    known = suites()
    public = name.lower().replace("_", "-")
    if public not in known:
        raise ValueError(
            f"unknown suite {name!r}{_nearest(public, known)} Known: {', '.join(known)}"
        )
    return importlib.import_module(f"{__name__}.{public.replace('-', '_')}")


def missing(suite: str) -> tuple[str, ...]:
    """Return the packages that a suite imports and that are not installed."""
    return tuple(name for name in _suite(suite).REQUIRES if importlib.util.find_spec(name) is None)


def trouble(suite: str) -> str | None:
    """Say what keeps a suite from being played, as far as a quick look shows."""
    absent = missing(suite)
    if absent:
        return f"not installed ({', '.join(absent)}): {install_command(suite)}"
    look: Callable[[], str | None] = getattr(_suite(suite), "trouble", lambda: None)
    return look()


def install_command(suite: str) -> str:
    """Return what installs a suite's packages."""
    module = _suite(suite)
    command = f"pip install 'hadamard-rl[{module.EXTRA}]'"
    afterwards = getattr(module, "AFTERWARDS", "")
    return f"{command} && {afterwards}" if afterwards else command


def tasks(suite: str) -> tuple[str, ...]:
    """Return a suite's tasks."""
    found: tuple[str, ...] = _suite(suite).tasks()
    return found


def _plain(task: str) -> str:
    """Return a task's name as it is compared: dm_control writes swingup_sparse."""
    return task.lower().replace("_", "-")


def _resolve(name: str) -> tuple[str, str]:
    """Return the suite and the task as they spell themselves, or say what is wrong."""
    suite, slash, task = name.partition("/")
    if not slash or not suite or not task:
        raise ValueError(
            f"an environment is named 'suite/task', such as 'minatar/breakout'; got {name!r}"
        )
    known = tasks(suite)
    public = suite.lower().replace("_", "-")
    spelled = {_plain(candidate): candidate for candidate in known}.get(_plain(task))
    if spelled is None:
        raise ValueError(
            f"{public} has no task {task!r}{_nearest(task, known)} "
            "All tasks are listed by: hadamard envs"
        )
    absent = missing(suite)
    if absent:
        raise MissingExtra(
            f"{public}/{spelled} needs {', '.join(absent)}. Install it with: "
            f"{install_command(suite)}"
        )
    return public, spelled


def prepare_to_draw(name: str) -> None:
    """Find what draws an environment's pictures, or say what is missing.

    To be called before the environment is made: MuJoCo settles it when it is imported.
    """
    suite, _ = _resolve(name)
    if "mujoco" in _suite(suite).REQUIRES:
        from hadamard.envs import gl

        gl.choose()


def automatic_workers(name: str, num_envs: int) -> int:
    """Return in how many processes environments are stepped where nobody says.

    Several of a slow suite's have two processes for each core: while one plays a long reset or
    waits, another has the core. A single environment, and a fast suite's, stay in this process.
    """
    suite, _ = _resolve(name)
    slow = getattr(_suite(suite), "SLOW", False)
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
) -> Envs:
    """Make a batch of environments by name.

    Args:
        name: ``suite/task``; upper and lower case, dashes and underscores do not matter.
        seed: Everything random in the environments follows from it, in whatever processes and
            groups they are (only ``probe`` draws anew in each). A sequence gives every
            environment a seed of its own.
        num_envs: How many are stepped together.
        device: Where observations, rewards and ends are handed over.
        training: Whether to apply what the protocol applies in training only (on Atari, clipped
            rewards and an end at every lost life).
        atari_reset: On Atari, how a game begins and how it goes on after a lost life: ``cleanrl``
            or ``envpool``. Other suites have one way.
        workers: Spread the environments over this many processes; 0 keeps them in this one, None
            asks ``automatic_workers``.
        groups: Make a ``GroupedEnvs`` of this many, which can also be stepped one by one.
    """
    suite, task = _resolve(name)
    name, module = f"{suite}/{task}", _suite(suite)
    if workers is None:
        automatic = automatic_workers(name, num_envs)
        workers = max(automatic, groups) if automatic else 0
    if workers < 0:
        raise ValueError(f"workers must be 0 (none) or more, got {workers}")
    if groups != 1:
        grouped = {"training": training, "atari_reset": atari_reset}
        return _grouped(name, seed, num_envs, device, groups, workers, **grouped)
    options = _options(module, training=training, atari_reset=atari_reset)
    if not workers:
        envs: Envs = module.make(task, seed, num_envs, device, **options)
        return envs
    from hadamard.envs.workers import WorkerEnvs

    if hasattr(module, "prepare"):
        module.prepare()
    preload = getattr(module, "PRELOAD", ())
    envs = WorkerEnvs(
        name, seed, num_envs, device, workers=workers, options=options, preload=preload
    )
    if not hasattr(module, "assemble"):
        return envs
    assembled: Envs = module.assemble(envs, device, **options)
    return assembled


def make_part(name: str, seed: int | Sequence[int], num_envs: int, **options: Any) -> Envs:
    """Make what a worker process holds of a batch; the name must be spelled as listed."""
    suite, _, task = name.partition("/")
    module: Any = importlib.import_module(f"{__name__}.{suite.replace('-', '_')}")
    part: Envs = getattr(module, "make_part", module.make)(task, seed, num_envs, "cpu", **options)
    return part


def _options(module: Any, **options: Any) -> dict[str, Any]:
    """Return those that a suite takes."""
    taken = ("training", *getattr(module, "OPTIONS", ()))
    return {name: value for name, value in options.items() if name in taken}


def _grouped(
    name: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str,
    groups: int,
    workers: int,
    **options: Any,
) -> Envs:
    from hadamard.envs.groups import GroupedEnvs

    most = min(num_envs, workers or num_envs)
    if not 1 <= groups <= most:
        raise ValueError(
            f"groups (--train.env-groups) must lie in 1..{most}, as many as there are "
            f"environments and worker processes at most, got {groups}"
        )
    seeds, made = spread(seed, num_envs), list[Envs]()
    try:
        for group in range(groups):
            count, processes = (n // groups + (group < n % groups) for n in (num_envs, workers))
            first = sum(part.num_envs for part in made)
            own = seeds[first : first + count]
            made.append(make(name, own, count, device, workers=processes, **options))
    except BaseException:
        for part in made:
            part.close()
        raise
    return GroupedEnvs(made)
