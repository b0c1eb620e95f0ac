"""Cases for the fields: every value in every file of a run, replaced by a hostile one.

The files are those that are in the folders of a finished and of a stopped run, and in a packed one.
Checksums are made to fit where a stranger could do so: otherwise nothing else would be read.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hadamard.core import files
from hadamard.report.data.packed import SUFFIX
from tests.fuzz import runs
from tests.fuzz.isolated import Case

DAMAGE = {
    "missing": None,
    "null": "null",
    "true": "true",
    "text": '"text"',
    "no text": '""',
    "path up": '"../../../other"',
    "absolute path": '"/etc/passwd"',
    "formula": '"$\\\\bad{$"',
    "page": '"<script>alert(1)</script>"',
    "null character": '"\\u0000"',
    "half a character": '"\\ud800"',
    "long text": '"' + "x" * 100_000 + '"',
    "minus one": "-1",
    "zero": "0",
    "one": "1",
    "fraction": "0.5",
    "huge": "1" + "0" * 30,
    "64 bits": str(2**63 - 1),
    "digits": "9" * 5_000,
    "beyond floats": "1e400",
    "nan": "NaN",
    "infinity": "-Infinity",
    "list": "[]",
    "object": "{}",
    "wrong list": '[null, "x", {}, -1]',
    "wrong object": '{"__tensor__": "x", "step": []}',
    "tensor": '{"__tensor__": "nowhere"}',
    "deep": "[" * 200 + "]" * 200,
    "very deep": "[" * 100_000 + "]" * 100_000,
    "long list": "[" + "0," * 100_000 + "0]",
}
"""What takes a value's place, as JSON; None removes it."""
_PLACE = "@here@"

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """A value in a file of a run."""

    file: str
    keys: Keys
    """Where it is in the file, the number of the line first in a stream."""


def places(run: Path) -> Iterator[Place]:
    """Yield every value of every file below a run's folder, or of a packed run."""
    for path in sorted(run.rglob("*")) if run.is_dir() else [run]:
        if path.is_file() and path.name != "lock":
            name = str(path.relative_to(run)) if run.is_dir() else path.name
            for keys in _walk(_read(path)):
                yield Place(name, keys)


def _walk(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Yield where the values are; of a long list those at both ends."""
    yield keys
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, (*keys, key))
    elif isinstance(value, list):
        for number in range(len(value)) if len(value) <= 3 else (0, len(value) - 1):
            yield from _walk(value[number], (*keys, number))


def _read(path: Path) -> Any:
    """Return what is written in a file, as a value of JSON."""
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in data.splitlines()]
    if path.suffix == ".safetensors":
        return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    if path.suffix == SUFFIX:
        return [json.loads(line) for line in zlib.decompress(data, 31).splitlines()]
    return json.loads(data)


def _written(path: Path, text: str) -> bytes:
    """Return the bytes of a file whose value is written so."""
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        header, body = text.encode(), data[8 + int.from_bytes(data[:8], "little") :]
        return len(header).to_bytes(8, "little") + header + body
    return text.encode()


def damage(path: Path, keys: Keys, how: str) -> None:
    """Replace a value in a file, or remove it."""
    raw = DAMAGE[how]
    value = _read(path)
    if not keys:
        value = _PLACE
    else:
        container = value
        for key in keys[:-1]:
            container = container[key]
        if raw is None:
            del container[keys[-1]]
        else:
            container[keys[-1]] = _PLACE
    lines = value if path.suffix in (".jsonl", SUFFIX) and keys else [value]
    replaced = [json.dumps(line).replace(f'"{_PLACE}"', raw or "") for line in lines]
    if path.suffix == SUFFIX and len(replaced) == 2:
        body = replaced[1] + "\n"
        if not keys or keys[0] == 1:
            head = json.loads(replaced[0])
            head["sha256"] = hashlib.sha256(body.encode()).hexdigest()
            replaced[0] = json.dumps(head)
        compressor = zlib.compressobj(1, zlib.DEFLATED, 31)
        data = compressor.compress(f"{replaced[0]}\n{body}".encode()) + compressor.flush()
        path.write_bytes(data)
        return
    path.write_bytes(_written(path, "\n".join(replaced) + "\n" * (path.suffix != ".safetensors")))


def vouch(folder: Path, path: Path, before: bytes) -> None:
    """Make all checksums of a file that was changed fit again, and those of the files they are in.

    Args:
        folder: The run's folder.
        path: The file.
        before: What it held.
    """
    data = path.read_bytes()
    if path.name in ("manifest.json", "DONE"):
        try:
            values = json.loads(data)
        except (ValueError, RecursionError):
            return
        if isinstance(values, dict) and "checksum" in values:
            del values["checksum"]
            path.write_text(json.dumps({**values, "checksum": files.checksum_of(values)}))
        return
    old, new = (hashlib.sha256(content).hexdigest().encode() for content in (before, data))
    for other in sorted((folder / "checkpoints").rglob("*.json")):
        content = other.read_bytes()
        if old in content:
            other.write_bytes(content.replace(old, new))
            vouch(folder, other, content)


def commands(algorithm: str) -> dict[str, tuple[str, ...]]:
    """Return the commands that read a run."""
    run = runs.place(algorithm)
    return {
        "resume": ("train", "--resume", run),
        "evaluate": ("evaluate", run, "--episodes", "2"),
        "analyze": ("analyze", run, "--samples", "8"),
        "play": ("play", run, "--output", "film.gif"),
        "pack": ("pack", run, "-o", "packed"),
        "page": ("report", run, "-o", "page.html"),
        "report": ("report", run, "-o", "pages"),
        "sweep": runs.sweep_words(algorithm),
        "grid": runs.sweep_words(algorithm, "--dry-run"),
    }


ALL = ("resume", "evaluate", "analyze", "play", "pack", "page", "report", "sweep", "grid")
READERS = {
    "config.json": ALL,
    "DONE": ("resume", "pack", "page", "report", "sweep", "grid"),
    "record.json": ("resume",),
    "manifest.json": ("resume", "evaluate", "analyze", "play"),
    "state.json": ("resume", "evaluate", "analyze", "play"),
    ".safetensors": ("resume", "evaluate"),
    ".jsonl": ("resume", "pack", "page", "report", "sweep"),
}
"""The commands that read a file, by its name or suffix."""
_WEIGHTS = {"page": 1 / 6, "report": 1 / 6}
"""How often a command is drawn beside others: these draw figures, which takes ten times as long."""


@dataclass(frozen=True)
class Target:
    """A value in a file of a run or of a packed run, and the commands that read it."""

    algorithm: str
    run: Path
    place: Place
    readers: Mapping[str, tuple[str, ...]]

    @property
    def kind(self) -> str:
        """The kind of file."""
        suffix = Path(self.place.file).suffix
        return suffix if suffix in (".safetensors", SUFFIX) else Path(self.place.file).name

    def case(self, reader: str, how: str) -> Case:
        """Return a command that reads this value, which is damaged."""
        shown = ".".join(map(str, self.place.keys))
        copy = self.run.name if self.run.is_file() else runs.place(self.algorithm)
        return Case(
            f"{reader} {self.algorithm} {self.run.name}: {self.place.file} {shown} {how}",
            self.readers[reader],
            partial(_prepare, self, copy, how),
            ((Path(self.place.file).name, copy),),
            kept=copy if reader == "resume" else "",
        )


def targets(folder: Path) -> list[Target]:
    """Return every value there is; ``folder`` holds folders named after algorithms."""
    found = []
    for algorithm in sorted(path.name for path in folder.iterdir()):
        words = commands(algorithm)
        for run in (folder / algorithm / name for name in ("finished", "interrupted")):
            for place in places(run):
                name = Path(place.file)
                readers = READERS[name.name if name.name in READERS else name.suffix]
                chosen = {reader: words[reader] for reader in readers}
                found.append(Target(algorithm, run, place, chosen))
        packed = next((folder / algorithm).glob(f"*{SUFFIX}"))
        chosen = {
            "page": ("report", packed.name, "-o", "page.html"),
            "report": ("report", packed.name, "-o", "pages"),
        }
        found += [Target(algorithm, packed, place, chosen) for place in places(packed)]
    return found


def cases(folder: Path, seed: int) -> Iterator[Case]:
    """Yield every case in the order of a seed: hundreds of thousands for each algorithm."""
    every = [
        (target, reader, how)
        for target in targets(folder)
        for reader in target.readers
        for how in _damage(target)
    ]
    random.Random(seed).shuffle(every)
    yield from (target.case(reader, how) for target, reader, how in every)


def sample(folder: Path, count: int, seed: int) -> list[Case]:
    """Return some cases, as many of each kind of file."""
    chance = random.Random(seed)
    by_kind: dict[str, list[Target]] = {}
    for target in targets(folder):
        by_kind.setdefault(target.kind, []).append(target)
    kinds = sorted(by_kind)
    chosen = []
    for number in range(count):
        target = chance.choice(by_kind[kinds[number % len(kinds)]])
        readers = list(target.readers)
        weights = [_WEIGHTS.get(reader, 1.0) for reader in readers]
        (reader,) = chance.choices(readers, weights)
        chosen.append(target.case(reader, chance.choice(_damage(target))))
    return chosen


def _damage(target: Target) -> list[str]:
    """Return the damage that is possible; that a whole file is missing is tested elsewhere."""
    whole = not target.place.keys or (target.run.is_file() and len(target.place.keys) < 2)
    return [how for how in DAMAGE if not (whole and how == "missing")]


def _prepare(target: Target, name: str, how: str, folder: Path) -> None:
    copy = folder / name
    if target.run.is_file():
        shutil.copy(target.run, copy)
        damage(copy, target.place.keys, how)
        return
    shutil.copytree(target.run, copy)
    path = copy / target.place.file
    before = path.read_bytes()
    damage(path, target.place.keys, how)
    vouch(copy, path, before)
