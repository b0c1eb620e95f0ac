"""`hadamard envs`."""

from __future__ import annotations

from collections.abc import Sequence

from hadamard import envs
from hadamard.cli.common import takes_no_words


def main(words: list[str]) -> int:
    """Run the command."""
    if not takes_no_words(words, "hadamard envs", "List the environment suites and their tasks."):
        return 0
    for suite, description in envs.suites().items():
        print(f"{suite}: {description}")
        trouble = envs.trouble(suite)
        if trouble is not None:
            print(f"  {trouble}")
        names = [f"{suite}/{task}" for task in envs.tasks(suite)]
        print(_columns(names))
        print("".join(f"  ({note})\n" for note in envs.notes(suite)))
    return 0


def _columns(names: Sequence[str], width: int = 96) -> str:
    """Arrange names in lines of equally wide columns."""
    column = max(map(len, names)) + 2
    per_line = max(1, width // column)
    lines = [names[i : i + per_line] for i in range(0, len(names), per_line)]
    return "\n".join("  " + "".join(f"{n:<{column}}" for n in line).rstrip() for line in lines)
