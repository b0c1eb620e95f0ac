"""`hadamard train`."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from hadamard import train
from hadamard.cli.algos import algorithms, listing
from hadamard.cli.common import INTERRUPTED, UserError, parse, value_of
from hadamard.core import discover
from hadamard.core.config import RunSpec, SeedsSpec
from hadamard.progress import duration
from hadamard.trainer import ALGORITHMS, Interrupted


def main(words: list[str]) -> int:
    """Run the command."""
    if not words or words[0] in ("-h", "--help"):
        return _train_help()
    if words[0] == "--resume" or words[0].startswith("--resume="):
        paths, until = _paths_and_until([words[0].partition("=")[2], *words[1:]])
        return _run_training(lambda: train.resume_together(paths, until=until), paths)
    algorithm, rest = words[0], words[1:]
    if algorithm.startswith("-"):
        raise UserError(
            "say which algorithm first: hadamard train ALGORITHM [options]; "
            f"there are: {', '.join(algorithms())}"
        )
    specs = _spec_of_kind(SeedsSpec, algorithm, rest).runs()
    names = [spec.run_dir or train.default_run_dir(algorithm, spec) for spec in specs]
    return _run_training(lambda: train.train_together(algorithm, specs), names)


def _paths_and_until(words: Sequence[str]) -> tuple[list[str], int | None]:
    """Read what follows --resume: run folders, and --until N among them."""
    usage = "usage: hadamard train --resume RUN... [--until N] (a run keeps its other settings)"
    paths: list[str] = []
    until: int | None = None
    rest = iter([word for word in words if word])
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--until":
            number = value if equals else next(rest, "")
            try:
                until = int(number.replace("_", ""))
            except ValueError:
                raise UserError(f"--until must be a number of steps, got {number!r}") from None
        elif word.startswith("-"):
            raise UserError(usage)
        else:
            paths.append(word)
    if not paths:
        raise UserError(usage)
    return paths, until


def spec_from(algorithm: str, words: Sequence[str]) -> RunSpec[Any]:
    """Return the settings that flags ask for; the suite's own defaults fill the rest."""
    spec: RunSpec[Any] = _spec_of_kind(RunSpec, algorithm, words)
    return spec


def _spec_of_kind(kind: Any, algorithm: str, words: Sequence[str]) -> Any:
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    default = train.default_spec(algorithm, value_of("--env", words))
    return parse(
        kind[module.Config],
        words,
        f"hadamard train {algorithm}",
        default=kind(**{name: getattr(default, name) for name in default.__dataclass_fields__}),
        description=module.__doc__,
    )


def _run_training(work: Callable[[], list[dict[str, Any]]], names: Sequence[str]) -> int:
    try:
        summaries = work()
    except Interrupted as stopped:
        print(f"stopped and saved; go on with: hadamard train --resume {' '.join(stopped.args)}")
        return INTERRUPTED
    for name, summary in zip(names, summaries, strict=True):
        score, greedy = summary["score"], summary["greedy_score"]
        told = "no episode ended" if score is None else f"score {score:.2f} (last 100 episodes)"
        told += "" if greedy is None else f", greedy {greedy:.2f}"
        which = f"{name}: " if len(names) > 1 else ""
        print(f"{which}done: {summary['steps']:,} steps, {told}, {duration(summary['seconds'])}")
    return 0


def _train_help() -> int:
    print(
        "usage: hadamard train ALGORITHM [options]\n"
        "       hadamard train ALGORITHM --seeds 5 [options]\n"
        "       hadamard train --resume RUN... [--until N]\n"
    )
    print(textwrap.indent(listing(), "  "))
    print(
        "\nhadamard train ALGORITHM --help also shows the algorithm's own options (--algo.*) and "
        "its\ndefaults. SIGTERM and SIGINT save and exit with code 75. Options of every "
        "algorithm:\n"
    )

    @dataclass(frozen=True)
    class Shared(SeedsSpec[None]):
        algo: tyro.conf.Suppress[None] = None

    with contextlib.suppress(SystemExit):
        parse(Shared, ["--help"], "hadamard train ALGORITHM", description="")
    return 0
