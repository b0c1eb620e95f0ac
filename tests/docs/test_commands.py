"""The commands in the pages name commands, options, settings and scripts that are there."""

from __future__ import annotations

import functools
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from hadamard.core import discover
from hadamard.core.config import flattened, to_dict
from hadamard.training.start import default_spec
from tests.support.commands import Command
from tests.support.pages import PAGES, blocks, inline_code, name
from tests.support.paths import ROOT
from tests.support.plugins import files_of

# The changelog names settings that were renamed or removed.
PRESENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
FOREIGN = {"--no-deps"}  # pip's
ALGORITHMS = discover.names(discover.ALGORITHMS)


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every command line in blocks of code and in backquotes."""
    shown = [text for language, text in blocks(page) if language == "bash"]
    for text in (*shown, *inline_code(page)):
        for line in text.replace("\\\n", " ").splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:  # a quotation mark in prose
                continue
            while words and "=" in words[0]:  # variables of the environment
                words = words[1:]
            if words:
                yield words


def options(words: list[str]) -> set[str]:
    """The options among a command's words."""
    return {word.strip("[]").partition("=")[0] for word in words if re.match(r"\[?--?[a-z]", word)}


@functools.cache
def script_options(path: Path) -> set[str]:
    """The options that a script declares."""
    return set(re.findall(r'"(--?[a-z-]+)"', path.read_text()))


def own_options(page: Path) -> set[str]:
    """The options of the remedies that a page shows."""
    return {
        f"--{file.removesuffix('.py')}.{field}".replace("_", "-")
        for file, text in files_of(page).items()
        for field in re.findall(r"^    (\w+): \w+ = ", text, re.M)
    }


def script(word: str) -> Path | None:
    """The script of the repository that a word names, if it names one."""
    if not word.endswith(".py"):
        return None
    places = (ROOT / word, ROOT / "benchmarks" / word)
    return next((place for place in places if place.is_file()), None)


class Help:
    """The options of our commands, read from their help; each is asked for once."""

    known: ClassVar[dict[tuple[str, ...], set[str]]] = {}

    def __init__(self, command: Command) -> None:
        self.command = command

    def of(self, *words: str) -> set[str]:
        """The options of a command."""
        if words not in self.known:
            answer = self.command(*words, "--help")
            assert answer.code == 0, answer.err
            self.known[words] = set(re.findall(r"--?[a-z][\w.-]*", answer.out))
        return self.known[words]

    def training_options(self) -> set[str]:
        """The options of all algorithms and remedies."""
        every = [self.of("train", algorithm) for algorithm in ALGORITHMS]
        return self.of("train").union(self.remedy_options(), *every)

    def remedy_options(self) -> set[str]:
        """The options of all remedies, which do not all go together."""
        names = discover.names(discover.REMEDIES)
        every = [self.of("train", "dqn", "--remedy", name) for name in names]
        return set().union(*every) - self.of("train", "dqn")


@pytest.fixture
def help_of(command: Command) -> Help:
    return Help(command)


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_commands_of_ours_have_these_options(page: Path, help_of: Help) -> None:
    overview = help_of.command("--help").out
    ours = set(re.findall(r"^  (\w+)  ", overview, re.M))
    of_every_command = set(re.findall(r"^(--[a-z]+)", overview, re.M))
    assert "train" in ours
    for program, *words in commands(page):
        if program != "hadamard" or not words or words[0].startswith("-"):
            continue
        subject, *rest = words
        assert subject in ours, words
        if subject == "train":
            known = help_of.training_options()
            algorithm = rest[0] if rest else ""
            if algorithm in ALGORITHMS:
                known = help_of.of("train", algorithm)
                known |= help_of.of("train") | help_of.remedy_options()
            known |= own_options(page)
        else:
            known = help_of.of(subject)
        before, _, after = " ".join(rest).partition(" -- ")
        assert options(before.split()) <= known | of_every_command, words
        assert options(after.split()) <= help_of.training_options(), words


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_options_named_alone_are_known(page: Path, help_of: Help) -> None:
    alone = (words for words in commands(page) if words[0].startswith("--"))
    named = {word for words in alone for word in options(words)}
    if not named:
        return
    overview = help_of.command("--help").out
    known = help_of.training_options() | FOREIGN | own_options(page)
    known |= set(re.findall(r"^(--[a-z]+)", overview, re.M))
    for subject in re.findall(r"^  (\w+)  ", overview, re.M):
        known |= help_of.of(subject)
    for folder in ("benchmarks", "examples"):
        for path in (ROOT / folder).glob("*.py"):
            known |= script_options(path)
    assert named <= known


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_scripts_and_targets_are_there(page: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    for words in commands(page):
        if words[0] == "make" and len(words) > 1:
            assert words[1] in targets, words
        if words[0] == "python":
            words = words[1:]
        if not words or not words[0].endswith(".py"):
            continue
        path = script(words[0])
        if words[0].startswith(("benchmarks/", "examples/", "docs/", "bench_")):
            assert path is not None, words
        if path is not None:
            # Another program's words follow it.
            own = itertools.takewhile(lambda word: not word.endswith(".py"), words[1:])
            assert options([*own]) <= script_options(path), words


@pytest.mark.parametrize("page", PRESENT, ids=name)
def test_settings_given_to_benchmarks_are_there(page: Path) -> None:
    known = {
        setting
        for algorithm in ALGORITHMS
        for setting in flattened(to_dict(default_spec(algorithm)))
    }
    for words in commands(page):
        for setting in re.findall(r"\b((?:algo|net|train)\.\w+)=", " ".join(words)):
            assert setting in known, words
