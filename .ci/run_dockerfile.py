"""Run the Dockerfile's commands in a fresh virtual environment, where there is no Docker.

python .ci/run_dockerfile.py                     # as the Dockerfile has it
python .ci/run_dockerfile.py --arg EXTRAS=minatar --arg TORCH_INDEX=URL
python .ci/run_dockerfile.py --list              # only print the commands

COPY and WORKDIR act on a temporary folder, RUN on a shell in it, in which python and pip are those
of the new environment. Commands for the system (apt-get, useradd) are printed and left out, unless
--system is given, which changes this machine. The entry point with its default words is run last.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYSTEM = ("apt-get", "useradd")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the Dockerfile's instructions: the word in capitals, and the rest."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


class Container:
    """A folder that stands for a container, with a virtual environment in it."""

    def __init__(self, folder: Path, arguments: dict[str, str], *, system: bool) -> None:
        self.folder, self.arguments, self.system = folder, arguments, system
        self.place = folder
        self.entry: list[str] = []
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)

    def arg(self, rest: str) -> None:
        """Declare an argument and its default."""
        name, _, value = rest.partition("=")
        self.arguments.setdefault(name, value)

    def workdir(self, rest: str) -> None:
        """Go to a folder, which is made."""
        self.place = self.folder / rest.lstrip("/")
        self.place.mkdir(parents=True, exist_ok=True)

    def copy(self, rest: str) -> None:
        """Copy from the checkout; only what .dockerignore lets through."""
        *sources, target = shlex.split(rest)
        allowed = (ROOT / ".dockerignore").read_text().splitlines()
        for source in sources:
            if f"!{source}" not in allowed:
                raise SystemExit(f".dockerignore keeps {source} out")
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, self.place / target, ignore=ignored)
            else:
                shutil.copy(ROOT / source, self.place / target)

    def run(self, rest: str) -> None:
        """Run a command in a shell."""
        if any(word in rest.split() for word in SYSTEM) and not self.system:
            print(f"left out (--system): {rest}", flush=True)
            return
        print(f"RUN {rest}", flush=True)
        path = f"{self.folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment = {**kept, **self.arguments, "PATH": path}
        subprocess.run(["/bin/sh", "-c", rest], cwd=self.place, env=environment, check=True)

    def entrypoint(self, rest: str) -> None:
        """Set the program."""
        self.entry = json.loads(rest)

    def cmd(self, rest: str) -> None:
        """Run the program with its default words."""
        self.run(shlex.join([*self.entry, *json.loads(rest)]))

    def user(self, rest: str) -> None:
        """Stay who one is."""


def main() -> None:
    """Run all instructions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arg", action="append", default=[], help="NAME=VALUE of an ARG")
    parser.add_argument("--system", action="store_true", help="run apt-get and useradd too")
    parser.add_argument("--list", action="store_true", help="print the instructions")
    options = parser.parse_args()
    steps = list(instructions((ROOT / "Dockerfile").read_text()))
    if options.list:
        print("\n".join(f"{word} {rest}" for word, rest in steps))
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = dict(word.split("=", 1) for word in options.arg)
        container = Container(Path(folder), arguments, system=options.system)
        for word, rest in steps:
            if word != "FROM":
                getattr(container, word.lower())(rest)
    print("all commands of the Dockerfile ran")


if __name__ == "__main__":
    main()
