"""A run is a folder: training writes it, reports only read it.

    config.json      all settings, package versions and the commit; written first
    episodes.jsonl   one row for each finished training episode
    train.jsonl      losses and scheduled values
    eval.jsonl       greedy episodes: of evaluations, or played beside training
    health.jsonl     diagnoses of the network's hidden representations
    kde.jsonl        densities of 16 neurons, at the first diagnosis after each checkpoint
    timing.jsonl     seconds by part of the work; the only stream that differs between equal runs
    checkpoints/     the newest two checkpoints
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

from hadamard.core import renamed

PROTOCOL = 2
"""Version of the training rules that are not settings: resets, schedules, constants.

It is recorded in config.json; runs without it have protocol 1. It rises with every change after
which equal settings give different results. A run is never continued under another protocol, and
reports never pool runs of two protocols. Changes of rounding or speed alone do not raise it.

2: PQN's learning rate falls with every update and its exploration with every rollout; the epsilon
of LayerNorm is 1e-6; episodes begin as in the public baselines; PQN is scored by greedy games.
"""
FORMAT = 2
"""Version of the weights' layout in checkpoints. Format 1 flattened images channel by channel."""
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
    """A run folder cannot be used as requested; the message says why and what to do."""


class InUse(RunError):
    """Another process is training in the folder."""


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
            raise RunError(_already_exists(run, config))
        # A crash before config.json is complete leaves these two files.
        leftovers = {run.path / "lock", run.path / ".config.json.part"}
        if run.path.exists() and (not run.path.is_dir() or set(run.path.iterdir()) - leftovers):
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
        """The settings the run was started with, under their present names."""
        try:
            config = json.loads((self.path / "config.json").read_text())
        except ValueError as error:
            raise RunError(
                f"{self.path / 'config.json'} is damaged ({error}): restore the file, or remove "
                f"the folder {self.path} to run it anew"
            ) from error
        current: dict[str, Any] = renamed.config(config)
        return current

    @property
    def protocol(self) -> int:
        """The version of the rules the run is trained under, see ``PROTOCOL``."""
        protocol: int = self.config.get("protocol", 1)
        return protocol

    def train_until(self, until: int) -> None:
        """Record the step the run is trained until, and that it is not finished."""
        config = self.config
        if config["spec"]["train"].get("until") != until:
            config["spec"]["train"]["until"] = until
            self._record(config)
        # Second, so that the new end is recorded even if the process dies in between.
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
        """Lock the folder for training until this process ends."""
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
        """Append a row to a stream; it is written at the next ``flush``."""
        if stream not in self._writers:
            path = self.path / f"{stream}.jsonl"
            self._writers[stream] = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self._writers[stream].write(json.dumps(_to_json(row)) + "\n")

    def flush(self, *, to_disk: bool = False) -> None:
        """Write all rows; with ``to_disk``, wait until they are on the disk."""
        for file in self._writers.values():
            file.flush()
            if to_disk:
                os.fsync(file.fileno())

    def rows(self, stream: str) -> Iterator[dict[str, Any]]:
        """Read a stream, without a last line that a crash left incomplete."""
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
        """Drop all rows after a step, so that a resumed run writes no row twice.

        Keyword arguments name streams that are cut at another step.
        """
        for stream in STREAMS:
            path, last = self.path / f"{stream}.jsonl", earlier.get(stream, step)
            if path.exists():
                kept = [json.dumps(row) + "\n" for row in self.rows(stream) if row["step"] <= last]
                write_atomically(path, "".join(kept))

    def close(self) -> None:
        """Close the streams and unlock the folder."""
        for file in self._writers.values():
            file.close()
        self._writers.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def write_atomically(path: Path, text: str) -> None:
    """Replace a file so that readers see the old or the new content, never a part of it."""
    part = path.with_name(f".{path.name}.part")
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Write a folder's entries to the disk, after a rename in it."""
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
            lines.append(f"  {prefix}{key}: {before!r} there, {after!r} here")
    return lines


def _already_exists(run: Run, config: Mapping[str, Any]) -> str:
    # Versions, commit and machine do not count.
    old, new = ({key: c.get(key) for key in ("algorithm", "spec")} for c in (run.config, config))
    changed = [line for line in differences(old, new) if not line.startswith(_UNTIL)]
    if changed:
        return "\n".join(
            [f"{run.path} holds a run with other settings:", *changed, "Choose another --run-dir."]
        )
    state = "is finished" if run.done else "was started"
    train = (config.get("spec") or {}).get("train") or {}
    until = f" --until {train['until']}" if train.get("until") else ""
    return (
        f"{run.path} {state} with exactly these settings: continue it with "
        f"`hadamard train --resume {run.path}{until}`, or choose another --run-dir"
    )


_UNTIL = "  spec.train.until: "  # a run may be trained further


def _to_json(value: Any) -> Any:
    """Replace floats that are not finite, which JSON cannot hold, by null."""
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str | None:
    """Return the commit of the source tree this package runs from, None when it is installed.

    It ends in -dirty if tracked files have changed. The variable HADAMARD_COMMIT names the commit
    of a source tree that was copied without its history.
    """
    if named := os.environ.get("HADAMARD_COMMIT"):
        return named
    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    try:
        described = subprocess.run(
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
    return described.stdout.strip() or None
