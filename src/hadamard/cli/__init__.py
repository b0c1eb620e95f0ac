"""The command line: `hadamard COMMAND ...`. Each command is a module here with a ``main``."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from hadamard.cli import output
from hadamard.cli.common import WRONG, Named, UserError, allow_modules, named_and_rest
from hadamard.core import lock, plugins, renamed, stopping
from hadamard.core.files import RunError
from hadamard.text import install, unknown

_COMMANDS = {
    "train": "train an agent, or resume a run: hadamard train ALGORITHM ... | --resume RUN",
    "demo": "train tanh and tanh + HR side by side and write the page that compares them",
    "sweep": "train every variant on every environment with every seed, many runs at a time",
    "reproduce": "run the paper's experiments: hadamard reproduce NAME ... --scale SCALE | --list",
    "report": "write the page that compares finished or running runs",
    "pack": "write each run as one small file that reports can read: hadamard pack RUNS -o DIR",
    "evaluate": "play whole greedy episodes with a run's agent",
    "play": "film greedy episodes of a run's agent, as MP4 or GIF",
    "card": "write an agent's card, a folder for a model hub: hadamard card RUN -o DIR",
    "analyze": "diagnose the hidden layers of a run's agent",
    "relearn": "fine-tune networks of kept checkpoints on new targets, beside their measures",
    "envs": "list the environments, with install commands for missing ones",
    "algos": "list the algorithms",
    "assets": "download the model files of an environment suite: hadamard assets humanoidbench",
    "bench": "measure the speed of training on this machine, part by part",
}


_TRAINING = ("train", "demo", "sweep", "reproduce", "bench")
"""Commands that train, which not every operating system can."""
_WITHOUT_PLUGINS = ("pack", "assets", "reproduce")
"""Commands that build nothing, or nothing but what the paper names."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    with stopping.stop_at_once():
        return _run_until_stopped(sys.argv[1:] if arguments is None else arguments)


def program() -> NoReturn:
    """Run the command of this process and end it; signals are handled to the very end."""
    with stopping.stop_at_once(restore=False):
        output.outlive_readers()
        sys.exit(_run_until_stopped(sys.argv[1:]))


def _run_until_stopped(words: Sequence[str]) -> int:
    try:
        try:
            return _run(words)
        finally:
            stopping.ignore_signals()
    except stopping.Stopped as stop:
        stopping.ignore_signals()
        resumes = "train" in words[:1] and any(word.startswith("--resume") for word in words)
        code = stopping.INTERRUPTED if resumes else stop.exit_code
        return _fail("stopped: nothing to save", code)


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] == "--version":
        from hadamard import __version__

        print(f"hadamard {__version__}")
        return 0
    warnings.showwarning = _show_warning
    command = renamed.command(words[0])
    if command not in _COMMANDS:
        return _fail(unknown("command", command, _COMMANDS))
    core_alone = importlib.util.find_spec("tyro") is None
    if core_alone and command != "report":
        return _fail(f"`hadamard {command}` needs more packages: {install('train')}")
    try:
        if core_alone:
            from hadamard.cli import text_report

            return text_report.main(words[1:])
        named, rest = Named([], []), renamed.words(command, words[1:])
        if command not in _WITHOUT_PLUGINS:
            named, rest = named_and_rest(rest)
        if command in _TRAINING and not {"-h", "--help"} & set(rest):
            lock.require_supported()
        allow_modules(named.modules)
        with plugins.named(named.files):
            code: int = importlib.import_module(f"hadamard.cli.{command}").main(rest)
            return code
    except (UserError, ValueError, ImportError, OSError, RuntimeError, MemoryError) as error:
        return _explain(error)
    except KeyboardInterrupt:
        stopping.ignore_signals()
        return _fail("interrupted at once, without saving", code=130)


def _explain(error: Exception) -> int:
    """Print an error that the user can do something about; raise any other."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" ({error.filename})" if error.filename else ""
        return _fail(
            f"no space left on the disk{where}: free some and continue with "
            "`hadamard train --resume RUN`; the last checkpoint is intact",
            code=1,
        )
    if isinstance(error, RunError | UserError | ValueError | ImportError):
        return _fail(str(error))
    if isinstance(error, MemoryError):
        return _fail("out of memory: ask for less at a time, or free some", code=1)
    if isinstance(error, OSError):
        return _fail(str(error), code=1)

    from hadamard.core.checkpoint import CheckpointError
    from hadamard.envs.common import EnvironmentFailure
    from hadamard.training.fit import GpuFailure
    from hadamard.training.memory import OutOfMemory, is_out_of_memory
    from hadamard.training.outcomes import Diverged

    if isinstance(error, CheckpointError):
        return _fail(str(error))
    failures = Diverged | EnvironmentFailure | GpuFailure | OutOfMemory
    if isinstance(error, failures) or is_out_of_memory(error):
        return _fail(str(error), code=1)
    raise error


def _fail(message: str, code: int = WRONG) -> int:
    print(f"hadamard: {message}", file=sys.stderr)
    return code


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"hadamard: warning: {message}", file=sys.stderr)


def _overview() -> str:
    width = max(map(len, _COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in _COMMANDS.items()]
    return "\n".join(
        [
            "usage: hadamard COMMAND ...",
            "",
            "Healthy representations in deep RL.",
            "",
            *lines,
            "",
            "hadamard COMMAND --help explains a command's options. Most take --plugin: a file",
            "with an algorithm, a suite, a layer or a remedy of yours, or a module with tasks for",
            "Gymnasium.",
        ]
    )
