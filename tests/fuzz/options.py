"""Cases for the options: every command with every option it has, and a hostile value for it.

The options are read from each command's help, so a new one is tried by itself.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hadamard import cli
from hadamard.core import discover
from tests.fuzz.isolated import Case
from tests.support.commands import OWN, flags

VALUES = (
    "",
    " ",
    "text",
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1",
    "1.5",
    "1e400",
    "1e18",
    "0" * 400,
    "9" * 400,
    str(10**30),
    str(10**9),
    str(2**63 - 1),
    "ünïcødé ☃ 🎉",
    "/",
    "-",
    "--",
    "../..",
    "\x1b[31m\x07\x08",
    "two\nlines",
    "\udcff\udcfe",  # bytes that are no UTF-8
    "a_folder",
    "a_file",
    "missing/file",
    "a_file/below",
    "/dev/full",
    "x" * 5_000,
    "../" * 2_000,
    r"$\bad{$",
    "{}",
    "None",
    "True",
    ",",
    "a,a",
    "%s%n",
    "<b>&amp;",
)

_LONG = {("report", "/"), ("pack", "/"), ("bench", "--")}
"""Commands that work for minutes: on all files of the machine, and on all games."""
_LONGER = {"-o": "--output"}
"""The names that messages have for short options."""
TINY = {
    "--net.width": 4,
    "--train.steps": 40,
    "--train.log-every": 10,
    "--train.health-every": 20,
    "--train.health-samples": 8,
    "--train.checkpoint-every": 20,
    "--train.eval-episodes": 2,
}
REMEDY = {"--remedy": "redo"}
TINY_OWN = {
    "dqn": {"--algo.learning-starts": 10, **REMEDY},
    "ppo": REMEDY,
    "pqn": REMEDY,
    "mrq": {"--algo.random-steps": 10, "--algo.batch-size": 8},
    "simbav2": {"--algo.learning-starts": 10},
}


@dataclass(frozen=True)
class Base:
    """A command that succeeds; ``positions`` are those of its words without an option."""

    words: tuple[str, ...]
    positions: tuple[int, ...] = ()
    help: tuple[str, ...] = ()
    """The words before --help."""
    options: tuple[str, ...] = ()
    """Options beside those in the help."""
    refused: tuple[str, ...] = ()
    """What it says if it cannot succeed here, whatever its options are."""

    @property
    def name(self) -> str:
        """Its first words."""
        return " ".join(self.words[:2])


def settings(algorithm: str) -> dict[str, Any]:
    """Return the settings of a run that takes a fraction of a second."""
    own = {**OWN.get(algorithm, {}), **TINY, **TINY_OWN.get(algorithm, {})}
    return {"--env": "probe/both", **own}


def tiny(algorithm: str, run: str) -> tuple[str, ...]:
    """Return the command of such a run."""
    options = {**settings(algorithm), "--run-dir": run}
    return ("train", algorithm, *flags(options), "--train.no-tensorboard")


def bases() -> list[Base]:
    """Return every command, with options that make it short."""
    grid = ("--envs", "probe/both", "--variants", "relu,redo", "--seeds", "2")
    sweep = ("sweep", "dqn", *grid)
    return [
        *(
            Base(words := tiny(name, "new"), (1,), ("train", name, *_remedy(words)))
            for name in discover.names(discover.ALGORITHMS)
        ),
        Base(("train", "--resume", "interrupted"), (2,), options=("--until", "--resume")),
        Base(("demo", "--env", "probe/both", "--steps", "2000", "--jobs", "1"), (), ("demo",)),
        Base((*sweep, "--dry-run"), (1,), ("sweep",)),
        Base(sweep, (1,), ("sweep",)),
        Base((*sweep, "--launcher", "slurm"), (), ("sweep",), refused=("no Slurm here",)),
        Base(("reproduce", "--list"), (), ("reproduce",)),
        Base(("reproduce", "fig-dqn", "--dry-run"), (1,), ("reproduce",)),
        Base(("reproduce", "fig-dqn"), (1,), ("reproduce",)),
        Base(("report", "finished", "interrupted"), (1, 2), ("report",)),
        Base(("report", "finished", "-o", "pages"), (1,), ("report",)),
        Base(("pack", "finished", "-o", "packed"), (1,), ("pack",)),
        Base(("evaluate", "finished", "--episodes", "2"), (1,), ("evaluate",)),
        Base(("play", "finished", "--output", "film.gif"), (1,), ("play",)),
        Base(("analyze", "finished", "--samples", "8"), (1,), ("analyze",)),
        Base(("card", "finished", "-o", "card", "--episodes", "2"), (1,), ("card",)),
        Base(("relearn", "finished", "--batch-size", "8"), (1,), ("relearn",)),
        Base(("envs",), (), ("envs",)),
        Base(("algos",), (), ("algos",)),
        Base(("assets",), (), ("assets",)),
        Base(
            ("assets", "humanoidbench", "--source", "a_folder"),
            (1,),
            ("assets",),
            refused=("LICENSE",),
        ),
        Base(
            ("bench", "--algorithms", "pqn", "--env", "probe/both", "--seconds", "0.001"),
            (),
            ("bench",),
        ),
    ]


def _remedy(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that choose a remedy, whose settings are options then."""
    return ("--remedy", "redo") if "--remedy" in words else ()


def options_of(base: Base) -> list[str]:
    """Return the options that a command's help lists."""
    if not base.help:
        return list(base.options)
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        cli.main([*base.help, "--help"])
    # Several spellings of an option stand on one line, explanations beside or below them.
    lines = re.findall(r"^[^\w-]{0,4}(--?[a-z].*)", text.getvalue(), re.M)
    spellings = [
        re.match(r"-[a-z]\b|--[a-z][\w.-]*", part.strip())
        for line in lines
        for part in line.split(",")
    ]
    found = dict.fromkeys(match[0] for match in spellings if match)
    return [name for name in found if name not in ("--help", "-h")] + list(base.options)


def commands() -> list[str]:
    """Return every command that the overview names."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        cli.main([])
    return re.findall(r"^  (\w+)  ", text.getvalue(), re.M)


def cases(runs: Path) -> list[Case]:
    """Return every case; ``runs`` holds the runs ``finished`` and ``interrupted``."""
    prepare = partial(_prepare, runs)
    return [
        *(Case(f"{base.name}: as it is", base.words, prepare) for base in bases()),
        *(
            case
            for base in bases()
            for case in (*_with_options(base, prepare), *_with_words(base, prepare))
        ),
        *(Case(f"first word {value!r:.40}", (value,)) for value in VALUES),
        *(
            Case(f"{name} {value!r:.40}", (name, value), prepare)
            for name in commands()
            for value in VALUES
            if (name, value) not in _LONG
        ),
    ]


def _with_options(base: Base, prepare: Callable[[Path], None]) -> Iterator[Case]:
    for option in options_of(base):
        name = _LONGER.get(option, option).lstrip("-")
        spellings = (option, name, name.replace("-", "_"), name.rpartition(".")[2])
        yield Case(f"{base.name}: {option} alone", (*base.words, option), prepare)
        for value in VALUES:
            words = (*base.words, option, value)
            if value.startswith("-"):
                words = (*base.words, f"{option}={value}")
            names = () if value == "--" else ((*spellings, *_spelled(value), *base.refused),)
            yield Case(f"{base.name}: {option} {value!r:.40}", words, prepare, names)


def _with_words(base: Base, prepare: Callable[[Path], None]) -> Iterator[Case]:
    for position in base.positions:
        for value in VALUES:
            if value == "/" and base.words[0] in ("report", "pack"):
                continue  # all runs of the machine are looked for, which takes as long as it takes
            words = list(base.words)
            words[position] = value
            yield Case(
                f"{base.name}: word {position} {value!r:.40}",
                tuple(words),
                prepare,
            )


def _spelled(value: str) -> tuple[str, ...]:
    """Return the ways in which a message may show a value."""
    parts = [value, *re.split("[/,]", value)]
    shown = [text for part in parts for text in (repr(part), ascii(part), part, repr(part)[1:-1])]
    if not value.strip():
        shown.append("Unrecognized options")  # which are blank
    with contextlib.suppress(ValueError, OverflowError):
        number = float(value)
        shown += [f"{number:g}", f"{number:,.0f}", str(int(number))]
    return tuple(text for text in shown if text.strip())


def _prepare(runs: Path, folder: Path) -> None:
    for name in ("finished", "interrupted"):
        shutil.copytree(runs / name, folder / name)
    (folder / "a_folder").mkdir()
    (folder / "a_file").write_text("some text\n")
