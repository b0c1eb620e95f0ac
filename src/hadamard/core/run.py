"""A run is a folder: training writes it, analysis extends it, reports only read it.

    config.json      the resolved settings, versions and commit; written first
    episodes.jsonl   one row for each finished training episode
    train.jsonl      losses and schedules
    eval.jsonl       greedy episodes played beside training
    health.jsonl     diagnoses of the network's hidden representations
    kde.jsonl        densities of 16 neurons, at the checkpoints
    timing.jsonl     where the time went; the one stream that differs between equal runs
    checkpoints/     the newest two
    DONE             the closing summary

Reading a run needs neither torch nor the algorithm's module.
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Self

PROTOCOL = 2
"""What a run's settings mean in training: resets, schedules, constants that are no setting.

It is recorded in config.json; runs without it are of protocol 1. It rises with every change after
which equal settings give other results, so that a run is never carried on under other rules, and
runs of two protocols are not pooled as one. What only changes rounding or speed leaves it alone.

2: PQN's learning rate falls with every update and its exploration with every rollout; the epsilon
of LayerNorm is 1e-6; episodes begin as in the public baselines; PQN is scored by greedy games.
"""
FORMAT = 2
"""What a checkpoint's weights mean; 1 (unnamed) flattened images channel by channel."""
STREAMS = ("episodes", "train", "eval", "health", "kde", "timing")
_PACKAGES = (
    "hadamard-rl",
    "torch",
    "numpy",
    "minatar",
    "ale-py",
    "gymnasium",
    "mujoco",
    "dm_control",
)


class RunError(RuntimeError):
    """A run folder cannot be used as asked; the message says why and what to do."""


class InUse(RunError):
    """Another process trains in the folder."""


class Run:
    """An opened run folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._writers: dict[str, io.TextIOWrapper] = {}
        self._lock: io.TextIOWrapper | None = None

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Mapping[str, Any]) -> Self:
        """Start a run in a new or empty folder."""
        run = cls(path)
        if (run.path / "config.json").exists():
            raise RunError(_taken(run, config))
        begun = {run.path / "lock", run.path / ".config.json.part"}  # all of it, before a crash
        if run.path.exists() and (not run.path.is_dir() or set(run.path.iterdir()) - begun):
            raise RunError(
                f"{run.path} exists and is not a run: choose another --run-dir, or remove it"
            )
        run.path.mkdir(parents=True, exist_ok=True)
        run.lock()
        record = {**config, "protocol": PROTOCOL, "format": FORMAT}
        record |= {"versions": _versions(), "commit": _commit()}
        run._record(record)
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing run."""
        run = cls(path)
        if not (run.path / "config.json").is_file():
            hint = "" if run.path.exists() else " (there is no such folder)"
            raise RunError(f"{run.path} is not a run: it has no config.json{hint}")
        return run

    @property
    def config(self) -> dict[str, Any]:
        """The settings the run was started with."""
        try:
            config: dict[str, Any] = json.loads((self.path / "config.json").read_text())
        except ValueError as error:
            raise RunError(
                f"{self.path / 'config.json'} is damaged ({error}): restore the file, or remove "
                f"the folder {self.path} to run it anew"
            ) from error
        return config

    @property
    def protocol(self) -> int:
        """The version of the rules it was trained under, see ``PROTOCOL``."""
        protocol: int = self.config.get("protocol", 1)
        return protocol

    def train_until(self, until: int) -> None:
        """Record that the run goes on until a step, where it had ended before too."""
        config = self.config
        if config["spec"]["train"].get("until") != until:
            config["spec"]["train"]["until"] = until
            self._record(config)
        # After that: if the process ends in between, how far the run is to go is not lost.
        if self.done is not None:
            (self.path / "DONE").unlink()
            sync_folder(self.path)

    def _record(self, config: Mapping[str, Any]) -> None:
        write_atomically(self.path / "config.json", json.dumps(config, indent=2) + "\n")

    @property
    def done(self) -> dict[str, Any] | None:
        """The closing summary, or None while the run is not finished."""
        try:
            summary: dict[str, Any] = json.loads((self.path / "DONE").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return summary

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the run as finished."""
        write_atomically(self.path / "DONE", json.dumps(summary, indent=2) + "\n")

    def lock(self) -> None:
        """Keep other processes from training in this folder, until this one ends."""
        file = open(self.path / "lock", "a+", encoding="utf-8")  # noqa: SIM115 - held open
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise InUse(
                f"{self.path} is in use by process {holder}: wait for it, stop it, or choose "
                "another --run-dir"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._lock = file

    def write(self, stream: str, row: Mapping[str, Any]) -> None:
        """Append a row to a stream; it reaches the disk at the next ``flush``."""
        if stream not in self._writers:
            path = self.path / f"{stream}.jsonl"
            self._writers[stream] = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self._writers[stream].write(json.dumps(_plain(row)) + "\n")

    def flush(self, *, to_disk: bool = False) -> None:
        """Hand all rows to the system, with ``to_disk`` to the disk."""
        for file in self._writers.values():
            file.flush()
            if to_disk:
                os.fsync(file.fileno())

    def rows(self, stream: str) -> Iterator[dict[str, Any]]:
        """Read a stream; a last line torn by a crash is left out."""
        path = self.path / f"{stream}.jsonl"
        if not path.exists():
            return
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    row = json.loads(line)
                except ValueError:
                    if not line.endswith("\n"):
                        return
                    raise RunError(f"line {number} of {path} is damaged") from None
                yield row

    def cut(self, step: int, **earlier: int) -> None:
        """Drop all rows after a step, so that a resumed run writes none twice.

        Streams that are named are cut at a step of their own.
        """
        for stream in STREAMS:
            path, last = self.path / f"{stream}.jsonl", earlier.get(stream, step)
            if path.exists():
                kept = [json.dumps(row) + "\n" for row in self.rows(stream) if row["step"] <= last]
                write_atomically(path, "".join(kept))

    def close(self) -> None:
        """Close the streams and give the folder free."""
        for file in self._writers.values():
            file.close()
        self._writers.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader finds the old one or the new one, never a part."""
    part = path.with_name(f".{path.name}.part")
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring a folder's entries to the disk, after a rename inside it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the settings in which two configurations differ, one line each."""
    lines = []
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"  {prefix}{key}: {before!r} there, {after!r} asked for")
    return lines


def _taken(run: Run, config: Mapping[str, Any]) -> str:
    # The rest says how the run was made, not what it is.
    here, asked = ({key: c.get(key) for key in ("algorithm", "spec")} for c in (run.config, config))
    changed = [line for line in differences(here, asked) if not line.startswith(_UNTIL)]
    if changed:
        return "\n".join(
            [f"{run.path} holds a run with other settings:", *changed, "Choose another --run-dir."]
        )
    state = "is finished" if run.done else "was started"
    train = (config.get("spec") or {}).get("train") or {}
    until = f" --until {train['until']}" if train.get("until") else ""
    return (
        f"{run.path} {state} with these very settings: go on with "
        f"`hadamard train --resume {run.path}{until}`, or choose another --run-dir"
    )


_UNTIL = "  spec.train.until: "  # how far a run is trained for now, which may be told anew


def _plain(value: Any) -> Any:
    """Replace what JSON has no word for: a float that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """Return the commit of the source tree this package runs from, None when it is installed.

    It ends in -dirty when tracked files were changed since. For a copy of a tree without its
    history, the variable HADAMARD_COMMIT names it.
    """
    if named := os.environ.get("HADAMARD_COMMIT"):
        return named
    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    try:
        told = subprocess.run(
            [
                "git",
                "-C",
                str(source),
                "describe",
                "--always",
                "--abbrev=40",
                "--dirty",
                "--exclude=*",
            ],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None
