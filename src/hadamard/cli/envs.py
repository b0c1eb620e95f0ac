"""`hadamard envs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from hadamard import envs
from hadamard.cli.common import parse
from hadamard.core import plugins
from hadamard.text import unknown


@dataclass(frozen=True)
class _Envs:
    """List the environment suites and their tasks."""

    suites: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only these suites. Those of installed packages are imported, and show their tasks, if they
    are named."""


def main(words: list[str]) -> int:
    """Run the command."""
    request = parse(_Envs, words, "hadamard envs")
    suites = envs.suites()
    for name in request.suites:
        if name not in suites:
            raise ValueError(unknown("suite", name, suites))
    lacking = False
    for suite in request.suites or suites:
        print(f"{suite}: {suites[suite]}")
        installed = [p for p in plugins.called("hadamard.envs", suite.replace("-", "_")) if p.entry]
        if installed and not request.suites:
            package = installed[0].release
            print(f"  of the package {package}: `hadamard envs {suite}` lists its tasks\n")
            continue
        trouble = envs.trouble(suite)
        if trouble is not None:
            print(f"  {trouble}")
        names = [f"{suite}/{task}" for task in envs.tasks(suite)]
        print(_columns(names))
        notes = envs.notes(suite)
        print("".join(f"  ({note})\n" for note in notes))
        lacking = lacking or "hadamard-rl[" in f"{trouble}{notes}"
    if lacking:
        print("In a checkout write '.[EXTRA]' in place of 'hadamard-rl[EXTRA]'.")
    return 0


def _columns(names: Sequence[str], width: int = 96) -> str:
    """Arrange names in lines of equally wide columns."""
    column = max(map(len, names)) + 2
    per_line = max(1, width // column)
    lines = [names[i : i + per_line] for i in range(0, len(names), per_line)]
    return "\n".join("  " + "".join(f"{n:<{column}}" for n in line).rstrip() for line in lines)
