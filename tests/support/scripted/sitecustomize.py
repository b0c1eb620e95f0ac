"""Makes training follow a script, in processes that have this folder on PYTHONPATH.

Python imports this module at its start. A file ``NAME.script`` beside the run folder NAME holds a
step and an action as JSON: each process of the run takes the action once, when it begins a step at
or after that one. The helpers that write such files are in `tests.support.sweep`.
"""

from __future__ import annotations

import importlib.abc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

TRAINER = "hadamard.training.trainer"
LONGEST_HOLD = 300.0
followed: set[Path] = set()


def follow_script(trainer: Any) -> None:
    """Take the action of a run's script if it is due."""
    script = trainer.run.path.with_name(f"{trainer.run.path.name}.script")
    try:
        values = json.loads(script.read_text())
    except FileNotFoundError:
        return
    if trainer.step >= values["step"] and script not in followed:
        followed.add(script)
        ACTIONS[values["action"]](script)


def hold(script: Path) -> None:
    """Wait until the script is removed or a stop is requested.

    ``NAME.held`` names the waiting process.
    """
    stops: list[int] = []
    handler: Any = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: Any) -> None:
        handler(number, frame)
        stops.append(number)

    signal.signal(signal.SIGTERM, handle)
    held = script.with_suffix(".held")
    part = script.with_suffix(".part")
    part.write_text(str(os.getpid()))
    part.replace(held)
    start = time.monotonic()
    while script.exists() and not stops:
        assert time.monotonic() - start < LONGEST_HOLD, "nobody released this run"
        time.sleep(0.01)
    held.unlink()
    signal.signal(signal.SIGTERM, handler)


def kill(_: Path) -> None:
    """End the process as the system does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail(_: Path) -> None:
    """Raise an error that another attempt may not meet."""
    raise OSError("the network drive is gone")


def allocate(_: Path) -> None:
    """Ask for more memory than any machine has."""
    import torch

    torch.empty(2**50, dtype=torch.uint8)


def limit_files(script: Path) -> None:
    """Let the system refuse to write beyond 10,000 bytes in a file, in the middle of the write."""
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (10_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    )


ACTIONS = {action.__name__: action for action in (hold, kill, fail, allocate, limit_files)}


class TrainerFinder(importlib.abc.MetaPathFinder):
    """Finds the trainer's module, and makes its trainers follow scripts."""

    def find_spec(
        self, name: str, path: Any, _: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != TRAINER:
            return None
        spec = PathFinder.find_spec(name, path)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_patch(module: Any) -> None:
            execute(module)
            one_step = module.Trainer.one_step

            def scripted_step(trainer: Any, *arguments: Any) -> Iterator[None]:
                follow_script(trainer)
                yield from one_step(trainer, *arguments)

            module.Trainer.one_step = scripted_step
            advance_to = module.Trainer.advance_to

            def scripted_advance(trainer: Any, *arguments: Any, **options: Any) -> None:
                advance_to(trainer, *arguments, **options)
                follow_script(trainer)

            module.Trainer.advance_to = scripted_advance

        loader.exec_module = execute_and_patch
        return spec


sys.meta_path.insert(0, TrainerFinder())
