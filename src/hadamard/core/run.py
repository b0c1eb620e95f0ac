"""A run is a folder: training writes it, reports only read it.

    config.json      all settings, plugins, package versions and the commit; written first
    episodes.jsonl   one row for each finished training episode
    train.jsonl      losses and scheduled values
    eval.jsonl       greedy episodes: of evaluations, or played beside training
    health.jsonl     diagnoses of the network's hidden representations
    kde.jsonl        densities of 16 neurons, at the first diagnosis after each checkpoint
    timing.jsonl     seconds by part of the work; the only stream that differs between equal runs
    checkpoints/     the newest two checkpoints
    DONE             the closing summary, and how long each stream is

Reading a run needs neither torch nor the algorithm's module.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

from hadamard.core import (
    contents,
    differences,
    ending,
    files,
    identity,
    lock,
    plugin_records,
    provenance,
    record,
    renamed,
    streams,
)
from hadamard.core.config import flattened
from hadamard.core.files import RunError as RunError
from hadamard.core.streams import STREAMS, Extent, Stream
from hadamard.core.typed import WrongType, checked
from hadamard.text import counted

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


class Run:
    """An opened run folder."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._streams: dict[str, Stream] = {}
        self._lock: BinaryIO | None = None

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.path / "checkpoints"

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Mapping[str, Any]) -> Self:
        """Start a run in a new or empty folder."""
        run = cls(path)
        if run.exists:
            raise RunError(_already_exists(run, config))
        if os.path.lexists(run.path) and not (
            run.path.is_dir() and contents.only_leftovers(run.path)
        ):
            raise RunError(
                f"{run.path} exists and is not a run: choose another --run-dir, or remove it"
            )
        run.path.mkdir(parents=True, exist_ok=True)
        run.lock()
        # Before config.json: a run without a record of its checkpoints has lost them.
        record.begin(run.checkpoints)
        full = {**config, "protocol": PROTOCOL, "format": FORMAT}
        full |= {"versions": provenance.versions(), "commit": provenance.commit()}
        run._record(full)
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an existing run."""
        run = cls(path)
        if not run.exists:
            hint = "" if run.path.exists() else " (there is no such folder)"
            raise RunError(f"{run.path} is not a run: it has no config.json{hint}")
        return run

    @property
    def exists(self) -> bool:
        """Whether the folder holds a run, which may be damaged."""
        try:
            return os.path.lexists(self.path / "config.json")
        except ValueError:  # a path with a null character
            return False

    @property
    def config(self) -> dict[str, Any]:
        """The settings the run was started with, under their present names."""
        path = self.path / "config.json"
        try:
            config = files.read_json(path)
            for name, kind in _CONFIG.items():
                if name in config:
                    checked(config[name], kind, name)
            plugin_records.recorded(config)
        except (WrongType, RunError, OSError) as error:
            raise RunError(
                f"{path} is damaged ({error}): restore the file, or remove the folder {self.path} "
                "to run it anew"
            ) from error
        current: dict[str, Any] = renamed.config(config)
        return current

    @property
    def protocol(self) -> int:
        """The version of the rules the run is trained under, see ``PROTOCOL``."""
        protocol: int = self.config.get("protocol", 1)
        return protocol

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that makes the run's results, which each checkpoint repeats."""
        config = self.config
        spec = flattened(config.get("spec", {}))
        kept = {name: value for name, value in spec.items() if name not in identity.ADJUSTABLE}
        made_with = {name: config.get(name) for name in ("algorithm", "protocol", "format")}
        return made_with | kept | plugin_records.settings(config)

    def check(self, saved: Mapping[str, Any]) -> None:
        """Refuse settings other than those a checkpoint was saved with."""
        now = self.settings
        before = plugin_records.at_present(renamed.settings(saved), self.config)
        # A setting that only one of them records was added since, or is no longer one.
        changed = [name for name in now if name in before and now[name] != before[name]]
        if before.get("train.steps") in [earlier["from"] for earlier in self.extensions]:
            changed = [name for name in changed if name != "train.steps"]
        if changed:
            lines = [differences.line(name, before[name], now[name]) for name in changed]
            raise RunError(
                "\n".join(
                    [
                        f"{self.path / 'config.json'} has other settings than the checkpoint "
                        "was trained with:",
                        *lines,
                        "Restore these settings, or train a new run with --run-dir.",
                    ]
                )
            )

    @property
    def extensions(self) -> list[dict[str, int]]:
        """How often the run's budget was raised: at which step, from and to how many steps."""
        extensions = checked(self.config.get("extended", []), list[dict[str, int]], "extended")
        return [entry for entry in extensions if {"at", "from", "to"} <= set(entry)]

    def reopen(self, until: int, steps: int | None = None, at: int = 0) -> None:
        """Record the step the run is trained until, and that it is not finished.

        Args:
            until: The setting ``train.until``.
            steps: The setting ``train.steps``, if it may have changed: the run is extended.
            at: The step from which it goes on.
        """
        config = files.read_json(self.path / "config.json")
        train = config["spec"]["train"]
        before = train.get("steps")
        if steps is not None and before not in (steps, None):
            config["extended"] = [*self.extensions, {"at": at, "from": before, "to": steps}]
            train["steps"] = steps
        if train.get("until") != until or train.get("steps") != before:
            train["until"] = until
            self._record(config)
        # Second, so that the new end is recorded even if the process dies in between.
        done = self.path / "DONE"
        if os.path.lexists(done):
            if not files.is_folder(done):
                done.unlink()
            files.sync_folder(self.path)

    def set_steps(self, steps: int) -> None:
        """Record how long a run is whose length is known only while it goes on."""
        config = files.read_json(self.path / "config.json")
        if config["spec"]["train"].get("steps") != steps:
            config["spec"]["train"]["steps"] = steps
            self._record(config)

    def replace_plugins(self, step: int) -> None:
        """Record that the run goes on with other plugins from a step on."""
        config = files.read_json(self.path / "config.json")
        config["plugins"] = plugin_records.replaced(config, step)
        self._record(config)

    def _record(self, config: Mapping[str, Any]) -> None:
        files.write_atomically(self.path / "config.json", _json(config))

    @property
    def done(self) -> dict[str, Any] | None:
        """The closing summary, or None while the run is not finished."""
        try:
            return self.ending()[0]
        except FileNotFoundError:
            return None
        except (RunError, OSError) as error:
            warnings.warn(f"{self.path} counts as unfinished: {error}", stacklevel=2)
            return None

    def ending(self) -> tuple[dict[str, Any], dict[str, Extent]]:
        """Return what DONE holds: the summary, and how much of each stream there was.

        Raises:
            FileNotFoundError: The run is not finished.
            RunError: The file is damaged.
        """
        return ending.read(self.path)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Mark the run as finished, with how much of each stream there is."""
        ending.write(self.path, summary, self.extents())

    def losses(self) -> list[str]:
        """Say which rows a finished run's streams have lost since its end."""
        return self.problems(self.ending()[1])

    def additions(self) -> list[str]:
        """Say which of a finished run's streams hold more than at its end."""
        extents = self.ending()[1]
        additions = []
        for name in STREAMS if extents else ():  # runs of earlier versions do not know
            path, expected = self._stream(name), extents.get(name, streams.NOTHING)
            if name != "timing" and os.path.lexists(path) and path.lstat().st_size > expected.bytes:
                rows = counted(expected.rows, "row")
                additions.append(f"{path.name} holds more than its {rows}")
        return additions

    def require_removable(self) -> None:
        """Refuse to remove a run that is being trained, or whose folder holds other files too."""
        if self._lock is None:
            self.lock()
            self.close()
        others = [entry for entry in sorted(self.path.iterdir()) if not contents.is_own(entry)]
        others += record.others(self.checkpoints)
        if others:
            names = ", ".join(str(path) for path in others[:3])
            raise RunError(
                f"--overwrite would remove {self.path}, which holds what no run writes: {names}. "
                "Move it, or choose another --run-dir"
            )

    def remove(self) -> None:
        """Remove the run's folder with everything that training wrote."""
        self.lock()
        try:
            self.require_removable()
            for entry in self.path.iterdir():
                # Last, so that what is left after a crash still is a run.
                if entry.name not in ("config.json", "lock"):
                    shutil.rmtree(entry) if files.is_folder(entry) else entry.unlink()
            for name in ("config.json", "lock"):
                (self.path / name).unlink(missing_ok=True)
        finally:
            self.close()

    def lock(self) -> None:
        """Lock the folder for training until this process ends."""
        self._lock = lock.hold(self.path)
        for leftover in self.path.iterdir():
            if contents.is_unfinished(leftover):
                leftover.unlink()

    def write(self, stream: str, row: Mapping[str, Any]) -> None:
        """Append a row to a stream; it is written at the next ``flush``."""
        self._open_stream(stream).write(row)

    def write_lines(self, stream: str, lines: Sequence[str]) -> None:
        """Append many rows, which are JSON already: 20 times faster than one by one."""
        self._open_stream(stream).write_lines(lines)

    def _open_stream(self, name: str) -> Stream:
        if name not in self._streams:
            self._streams[name] = Stream(self._stream(name))
        return self._streams[name]

    def flush(self, *, to_disk: bool = False) -> None:
        """Write all rows; with ``to_disk``, wait until they are on the disk."""
        for stream in self._streams.values():
            stream.flush(to_disk=to_disk)

    def rows(self, stream: str) -> Iterator[dict[str, Any]]:
        """Read a stream, without a last line that a crash left incomplete."""
        return streams.rows(self._stream(stream))

    def extents(self) -> dict[str, Extent]:
        """Return how much of each stream there is; rows not yet flushed count."""
        extents = {}
        for name in STREAMS:
            if name in self._streams:
                extents[name] = self._streams[name].extent
            elif os.path.lexists(path := self._stream(name)):
                extents[name] = streams.measured(path)
        return extents

    def problems(self, extents: Mapping[str, Extent]) -> list[str]:
        """Say what the streams lack of the rows they once had; timing.jsonl may lack any."""
        saved = {name: extent for name, extent in extents.items() if name != "timing"}
        problems = [streams.problem(self._stream(name), saved[name]) for name in saved]
        return [problem for problem in problems if problem is not None]

    def cut(self, extents: Mapping[str, Extent], step: int) -> None:
        """Drop all rows written after a checkpoint, so that a resumed run writes no row twice."""
        for name in STREAMS:
            path, expected = self._stream(name), extents.get(name, streams.NOTHING)
            if name == "timing" and (problem := streams.problem(path, expected)):
                warnings.warn(f"{self.path}: {problem}; timing goes on without it", stacklevel=2)
                streams.keep_until(path, step)
            else:
                streams.cut(path, expected.bytes)

    def cut_after(self, step: int, **earlier: int) -> None:
        """Drop all rows after a step, for checkpoints that do not record the streams' extents.

        Keyword arguments name streams that are cut at another step.
        """
        for name in STREAMS:
            streams.keep_until(self._stream(name), earlier.get(name, step))

    def _stream(self, name: str) -> Path:
        return self.path / f"{name}.jsonl"

    def close(self) -> None:
        """Close the streams and unlock the folder."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


_CONFIG = {
    "algorithm": str,
    "spec": dict[str, Any],
    "protocol": int,
    "format": int,
    "extended": list[dict[str, int]],
}
"""What config.json holds, beside facts that nothing reads again."""


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _already_exists(run: Run, config: Mapping[str, Any]) -> str:
    # Versions, commit and machine do not count.
    old, new = ({key: c.get(key) for key in ("algorithm", "spec")} for c in (run.config, config))
    changed = [line for line in differences.listed(old, new) if not line.startswith(_UNTIL)]
    if changed:
        return "\n".join(
            [f"{run.path} holds a run with other settings:", *changed, "Choose another --run-dir."]
        )
    state = "is finished" if run.done else "was started"
    train = (config.get("spec") or {}).get("train") or {}
    until = f" --until {train['until']}" if train.get("until") else ""
    return (
        f"{run.path} {state} with exactly these settings: continue it with "
        f"`hadamard train --resume {run.path}{until}`, replace it with --overwrite, or choose "
        "another --run-dir"
    )


_UNTIL = "  spec.train.until: "  # a run may be trained further
