"""Runs in folders and packed files: where they are, and reading them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from hadamard.core.run import Run, RunError
from hadamard.report.data.densities import Snapshot, snapshot, thinned_densities
from hadamard.report.data.fields import Fields, WrongField
from hadamard.report.data.from_record import run_data, run_with_densities
from hadamard.report.data.labels import labeled
from hadamard.report.data.packed import SUFFIX, read_packed
from hadamard.report.data.run_data import RunData
from hadamard.report.data.thin import thinned


class Gathered(NamedTuple):
    """Runs, and sentences about folders and files that could not be used."""

    runs: list[RunData]
    troubles: list[str]


def load(paths: Iterable[str | os.PathLike[str]]) -> list[RunData]:
    """Read runs, each path being a run's folder, a packed run, or a folder with such in it.

    Anything that cannot be read is an error.
    """
    runs, troubles = gather(paths)
    for trouble in (*troubles, *(trouble for run in runs for trouble in run.troubles)):
        raise RunError(trouble)
    return runs


def gather(paths: Iterable[str | os.PathLike[str]]) -> Gathered:
    """Read runs as `load` does, but report what cannot be read and go on.

    A folder without any run in it is still an error.
    """
    sources = run_paths(paths)
    runs, troubles = [], list(sources.troubles)
    for path in sources.paths:
        try:
            runs.append(read_run(path))
        except RunError as error:
            troubles.append(str(error))
    if not runs and troubles:
        raise RunError(troubles[0])
    runs, repeated = labeled(runs)
    return Gathered(runs, troubles + repeated)


class RunPaths(NamedTuple):
    """Folders and packed files of runs, and sentences about links that were not followed."""

    paths: list[Path]
    troubles: list[str]


def run_paths(paths: Iterable[str | os.PathLike[str]]) -> RunPaths:
    """Find the runs in some paths, at any depth, each once."""
    named = [Path(path) for path in paths]
    # A shell's * also names the logs beside runs.
    searched = [p for p in named if not p.is_file() or p.suffix == SUFFIX] or named
    by_target: dict[Path, Path] = {}
    troubles = []
    for path in searched:
        sources = list(_sources(path))
        for source in sources:
            if source.is_symlink() and source != path:
                troubles.append(f"{source} is a link, which is not followed: name its target")
            else:
                by_target.setdefault(source.resolve(), source)
        if not sources:
            raise RunError(
                f"{path} holds no run: nothing in it has a config.json, nor is it a packed run "
                f"({SUFFIX}). `hadamard train` writes runs"
            )
    return RunPaths(list(by_target.values()), troubles)


def _sources(path: Path) -> Iterator[Path]:
    """Find run folders and packed runs in a path, which may be one itself."""
    if not path.exists():
        raise RunError(
            f"{path}: there is no such folder; give a run, a packed run or a folder with runs in it"
        )
    if path.is_file() and path.suffix == SUFFIX:
        yield path
    for name, folders, files in os.walk(path):
        if "config.json" in files:
            yield Path(name)
            folders.clear()  # a run holds no runs
        else:
            yield from (Path(name, file) for file in sorted(files) if file.endswith(SUFFIX))
        folders.sort()


def read_run(path: Path) -> RunData:
    """Read one run, without a label yet: a folder, or a packed run."""
    if path.is_dir():
        record = thinned(Run.open(path))
        snapshots = functools.partial(_folder_snapshots, path, record["spec"]["train.steps"])
        try:
            return run_data(path, record, snapshots)
        except WrongField as error:
            raise RunError(
                f"{path / 'config.json'} cannot be used: {error}; leave the folder out"
            ) from error
    try:
        return run_with_densities(path, read_packed(path))
    except WrongField as error:
        raise RunError(
            f"{path} is damaged: {error}; pack the run again, or leave the file out"
        ) from error


def _folder_snapshots(folder: Path, budget: int) -> list[Snapshot]:
    return [snapshot(Fields(record)) for record in thinned_densities(folder, budget)]
