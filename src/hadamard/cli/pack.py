"""`hadamard pack`. Needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import tyro

from hadamard.cli.common import UserError, parse
from hadamard.core import lock
from hadamard.core.run import RunError
from hadamard.report.data.fields import WrongField
from hadamard.report.data.from_record import run_with_densities
from hadamard.report.data.packed import SUFFIX, packed, read_packed, record_of, write_packed
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import run_paths


@dataclass(frozen=True)
class _Pack:
    """Make one small file of each run, with all that reports and figures show of it.

    A packed run (.hrun, about 10 KB) holds the run's settings, versions, machine and summary, its
    scores at 200 places of the budget, every diagnosis, and the densities that figures use. All
    commands that read runs for a report take it in place of the folder and give the same numbers.
    It holds no weights: what was packed can be shown, not trained on or played.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that contain runs; packed ones are left as they are."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """The folder to write RUN.hrun files into; it is created if it is missing."""
    finished: bool = False
    """Refuse to pack anything if a run is not finished."""
    force: bool = False
    """Replace existing packed runs whose content differs."""


class _Packing(NamedTuple):
    run: RunData
    target: Path
    data: bytes


def main(words: list[str]) -> int:
    """Run the command."""
    request = parse(_Pack, words, "hadamard pack", plugins=False)
    if not request.runs:
        raise UserError("nothing to pack: name run folders, or a folder that contains runs")
    _check_output(request.output)
    sources = run_paths(request.runs)
    for trouble in sources.troubles:
        print(trouble, file=sys.stderr)
    folders = [path for path in sources.paths if path.is_dir()]
    for path in sources.paths:
        if path not in folders:
            print(f"{path} is packed already: left as it is")
    plan = list(_plan(folders, request.output))
    if request.finished:
        _refuse_unfinished(plan)
    # Everything is checked before anything is written.
    unchanged = [packing for packing in plan if _is_packed(packing, force=request.force)]
    request.output.mkdir(parents=True, exist_ok=True)
    for packing in plan:
        if packing not in unchanged:
            write_packed(packing.target, packing.data)
        state = "" if packing.run.finished else f"  {_progress(packing.run)}"
        note = "  unchanged" if packing in unchanged else ""
        print(f"{packing.target}  {len(packing.data) / 1000:.1f} KB{state}{note}")
        for trouble in packing.run.troubles:
            print(f"  {trouble}; the rest of it is packed", file=sys.stderr)
    total = sum(len(packing.data) for packing in plan) / 1000
    written = len(plan) - len(unchanged)
    print(f"{written} of {len(plan)} runs written to {request.output}, {total:,.1f} KB in all")
    return 0


def _check_output(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file: name a folder for the packed runs with -o")
    full = output.resolve()
    for folder in (full, *full.parents):
        if (folder / "config.json").exists():
            raise UserError(
                f"{output} lies inside the run {folder}, which holds only the run: name "
                "another folder with -o"
            )


def _plan(folders: Sequence[Path], output: Path) -> Iterator[_Packing]:
    """Read the runs, and return the file to write for each."""
    folder_of: dict[str, Path] = {}
    for folder in folders:
        record = record_of(folder)
        name = record["name"]
        if name in folder_of:
            raise UserError(
                f"{folder_of[name]} and {folder} would both become {name}{SUFFIX}: pack them into "
                "different folders"
            )
        folder_of[name] = folder
        try:
            run = run_with_densities(folder, record)
        except WrongField as error:
            raise UserError(f"{folder} cannot be packed: {error}; leave it out") from error
        yield _Packing(run, output / f"{name}{SUFFIX}", packed(record))


def _refuse_unfinished(plan: Sequence[_Packing]) -> None:
    unfinished = [packing.run for packing in plan if not packing.run.finished]
    if unfinished:
        lines = "\n".join(f"  {run.path}: {_progress(run)}" for run in unfinished)
        raise UserError(
            f"{len(unfinished)} of {len(plan)} runs are not finished, so none is packed "
            f"(--finished):\n{lines}\nFinish them with `hadamard train --resume RUN`, or leave "
            "them out"
        )


def _progress(run: RunData) -> str:
    """Say how far an unfinished run came."""
    state = "being trained" if lock.holder(run.path) is not None else "unfinished"
    return f"{state}, {min(run.reached / run.horizon, 1):.0%} of its steps"


def _is_packed(packing: _Packing, *, force: bool) -> bool:
    """Tell whether a run's file already exists; refuse to replace another without ``force``."""
    target = packing.target
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise UserError(f"{target} is a link or not a file: remove it, or choose another folder")
    if not target.exists():
        return False
    try:
        same = packed(read_packed(target)) == packing.data
    except RunError:
        same = False  # damaged
    if not same and not force:
        raise UserError(
            f"{target} already exists with other content: choose another folder with -o, or "
            "replace it with --force"
        )
    return same
