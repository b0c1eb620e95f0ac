"""`hadamard assets`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import tyro

from hadamard.cli.common import UserError, parse
from hadamard.envs import humanoid_assets as assets
from hadamard.text import counted, unknown


@dataclass(frozen=True)
class _Assets:
    """Fetch the model files of an environment suite; without a name, list the sets of files."""

    name: tyro.conf.Positional[str] = ""
    """Which set of files: humanoidbench."""
    check: bool = False
    """Only verify the contents of the files on this machine."""
    source: str = ""
    """Fetch from this URL or folder, laid out like the public repository's assets folder."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(_Assets, words, "hadamard assets", plugins=False)
    files = assets.manifest()
    size = f"{counted(len(files), 'file')}, {sum(file.size for file in files) / 1e6:.1f} MB"
    if not options.name:
        problems = assets.check()
        state = f"{len(problems)} missing or damaged" if problems else "all present"
        print(f"humanoidbench  models of the humanoid suite (MIT license): {size}; {state}")
        print(f"  in {assets.folder()}")
        return 0
    if options.name != "humanoidbench":
        raise UserError(unknown("set of files", options.name, ("humanoidbench",)))
    if not options.check:
        print(f"fetching {size} into {assets.folder()}", flush=True)
        assets.download(options.source, _show_bytes)
    problems = assets.check()
    if problems:
        others = counted(len(problems) - 1, "more damaged or missing file")
        more = f" ({others})" if len(problems) > 1 else ""
        raise assets.AssetsError(f"{problems[0]}{more}. Fetch them with: {assets.COMMAND}")
    print(f"{size}, all verified, in {assets.folder()}")
    return 0


def _show_bytes(present: int, total: int) -> None:
    """Show the progress of the download on a terminal; print nothing to logs."""
    if sys.stdout.isatty():
        end = "\n" if present == total else ""
        print(f"\r{present / 1e6:.1f} of {total / 1e6:.1f} MB", end=end, flush=True)
