"""`hadamard assets`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import tyro

from hadamard.cli.common import UserError, parse
from hadamard.core.discover import unknown
from hadamard.envs import humanoid_assets as assets


@dataclass(frozen=True)
class _Assets:
    """Fetch the model files of an environment suite; without a name, list what there is."""

    name: tyro.conf.Positional[str] = ""
    """Which files: humanoidbench."""
    check: bool = False
    """Fetch nothing; verify the contents of the files that are here."""
    source: str = ""
    """Fetch from this address or folder, laid out as the public repository's assets folder."""


def main(words: list[str]) -> int:
    """Run the command."""
    asked = parse(_Assets, words, "hadamard assets")
    files = assets.listed()
    size = f"{len(files)} files, {sum(file.size for file in files) / 1e6:.1f} MB"
    if not asked.name:
        troubles = assets.check()
        here = f"{len(troubles)} missing or damaged" if troubles else "all there"
        print(f"humanoidbench  models of the humanoid suite (MIT licence): {size}; {here}")
        print(f"  in {assets.folder()}")
        return 0
    if asked.name != "humanoidbench":
        raise UserError(unknown("set of files", asked.name, ("humanoidbench",)))
    if not asked.check:
        print(f"fetching {size} into {assets.folder()}", flush=True)
        assets.download(asked.source, _show_bytes)
    troubles = assets.check()
    if troubles:
        more = f", and {len(troubles) - 1} more files like it" if len(troubles) > 1 else ""
        raise assets.AssetsError(f"{troubles[0]}{more}. Fetch them with: {assets.COMMAND}")
    print(f"{size}, all verified, in {assets.folder()}")
    return 0


def _show_bytes(here: int, total: int) -> None:
    """Show on a terminal how much is here; logs are spared."""
    if sys.stdout.isatty():
        end = "\n" if here == total else ""
        print(f"\r{here / 1e6:.1f} of {total / 1e6:.1f} MB", end=end, flush=True)
