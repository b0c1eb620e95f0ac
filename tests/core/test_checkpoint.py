"""Checkpoints give back what was saved; damage, crashes and pickles are noticed."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hadamard.core import checkpoint
from hadamard.core.checkpoint import CheckpointError
from hadamard.learning.replay import Replay
from tests.support.checkpoints import Holder, flip_a_byte, same, three_saves
from tests.support.replay import Transitions

CPU = torch.device("cpu")


def roundtrip(folder: Path, state: Any) -> Any:
    checkpoint.save(folder, 1, {"part": Holder(state)})
    loaded = Holder()
    assert checkpoint.load(folder, {"part": loaded}) == (1, [])
    return loaded.state


TENSORS = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8"]
TENSORS += ["uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize(
    "state",
    [
        {"a": {"b": [1, 2.5, None, True, "x", (1, (2, []))]}, "": {}, "c": ()},
        {0: {"step": torch.tensor(3.0)}, 1: {"step": torch.tensor(4.0)}},
        {0: torch.zeros(1), "0": torch.ones(1)},
        {"a": {"b": torch.zeros(1)}, "a/b": torch.ones(1)},
        {name: torch.arange(6).view(2, 3).to(getattr(torch, name)) for name in TENSORS},
        {name: np.arange(6).reshape(2, 3).astype(name) for name in TENSORS if name != "bfloat16"},
        {"tensor": torch.tensor(2.5), "array": np.array(2.5), "nested": [np.array(7, "uint32")]},
        {"tensor": torch.empty(0, 3), "array": np.empty((2, 0), np.uint32)},
        {"strided": torch.arange(12).view(3, 4).T, "array": np.arange(12).reshape(3, 4).T},
        {"array": np.arange(12).reshape(3, 4)[::-1, ::2]},
        {"nan": float("nan"), "inf": [-math.inf, math.inf], "tensor": torch.tensor([math.nan])},
        {"tiny": 5e-324, "third": 1 / 3, "long": 2**80},
        torch.Generator().manual_seed(3).get_state(),
        np.random.RandomState(3).get_state(legacy=False),
        np.random.default_rng(3).bit_generator.state,
    ],
    ids=[
        "nested",
        "int keys",
        "keys alike",
        "slashes",
        "tensors",
        "arrays",
        "no dimensions",
        "empty",
        "strided",
        "backwards",
        "not finite",
        "numbers",
        "torch generator",
        "RandomState",
        "PCG64",
    ],
)
def test_a_checkpoint_gives_back_what_it_was_given(tmp_path: Path, state: Any) -> None:
    assert same(roundtrip(tmp_path, {"state": state})["state"], state)


def test_tensors_that_share_memory_are_saved_apart(tmp_path: Path) -> None:
    whole = torch.arange(10.0)
    state = {"head": whole[:5], "part": whole[3:5], "tail": whole[3:]}
    loaded = roundtrip(tmp_path, state)
    assert same(loaded, state)
    loaded["head"][3] = -1
    assert loaded["part"][0] == loaded["tail"][0] == 3


def test_numpy_scalars_become_plain_numbers(tmp_path: Path) -> None:
    state = roundtrip(tmp_path, {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True)})
    assert same(state, {"a": 3, "b": 0.5, "c": True})


@pytest.mark.parametrize(
    ("value", "named"),
    [({1, 2}, "set"), (nn.Linear(1, 1), "Linear"), (1j, "complex"), (b"x", "bytes")],
)
def test_what_json_cannot_hold_is_refused_by_name(tmp_path: Path, value: Any, named: str) -> None:
    with pytest.raises(TypeError, match=f"cannot hold /part/inner/1, a {named}"):
        checkpoint.save(tmp_path, 1, {"part": Holder({"inner": [0, value]})})


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped tensor": lambda path: flip_a_byte(path / "tensors.safetensors"),
    "short tensors": lambda path: cut_short(path / "tensors.safetensors"),
    "no tensors": lambda path: (path / "tensors.safetensors").unlink(),
    "flipped state": lambda path: flip_a_byte(path / "state.json"),
    "short state": lambda path: cut_short(path / "state.json"),
    "empty state": lambda path: (path / "state.json").write_bytes(b""),
    "no state": lambda path: (path / "state.json").unlink(),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "empty manifest": lambda path: (path / "manifest.json").write_bytes(b""),
    "short manifest": lambda path: cut_short(path / "manifest.json"),
    "binary manifest": lambda path: (path / "manifest.json").write_bytes(b"\xff\xfe\x00"),
}


def test_a_damaged_older_checkpoint_does_not_stop_the_next_save(tmp_path: Path) -> None:
    class Kept:
        def save_increment(self, folder: Path) -> dict[str, Any]:
            return {"chunks": []}

        def prune(self, folder: Path, kept: list[Any]) -> None:
            pruned.append(len(kept))

    pruned: list[int] = []
    checkpoint.save(tmp_path, 1, {"replay": Kept()})
    (tmp_path / "step-000000000001" / "state.json").write_text('{"parts": {')
    checkpoint.save(tmp_path, 2, {"replay": Kept()})
    assert (tmp_path / "step-000000000002").is_dir()
    assert pruned == [1]  # what the damaged one needs is not known
    checkpoint.save(tmp_path, 3, {"replay": Kept()})
    assert pruned == [1, 2]


def test_only_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    kept = three_saves(tmp_path)
    assert [path.name for path in kept] == ["step-000000000003", "step-000000000002"]
    names = ["record.json", *(path.name for path in kept[::-1])]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert checkpoint.newest(tmp_path) == kept[0]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    newest, other = three_saves(tmp_path)
    DAMAGES[damage](newest)
    part = Holder()
    step, troubles = checkpoint.load(tmp_path, {"part": part})
    assert step == 2
    assert same(part.state, {"step": 2, "weight": torch.full((3,), 2.0)})
    (trouble,) = troubles
    assert newest.name in trouble
    assert "damaged" in trouble
    words = f"an older checkpoint is used: .*{newest.name}.*damaged"
    with pytest.warns(UserWarning, match=words) as seen:
        assert checkpoint.newest(tmp_path) == other
    assert seen[0].filename == __file__  # of who asks
    DAMAGES[damage](other)
    with pytest.raises(CheckpointError, match="nothing to resume from: .*damaged.*; .*damaged"):
        checkpoint.load(tmp_path, {"part": part})
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        checkpoint.newest(tmp_path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_that_fell_back_goes_on_saving(tmp_path: Path, damage: str) -> None:
    # The damaged checkpoint is of a later step than the next ones that are saved.
    stream = Transitions(1, 2)
    replay = Replay(stream.spec, 1, 20, CPU)
    replay.begin(stream.obs())
    for step in (10, 20):
        checkpoint.save(tmp_path, step, {"replay": replay})
        replay.add(*stream.step())
    DAMAGES[damage](tmp_path / "step-000000000020")
    assert checkpoint.load(tmp_path, {"replay": replay})[0] == 10
    for step in (13, 16):
        checkpoint.save(tmp_path, step, {"replay": replay})
        loaded = Replay(stream.spec, 1, 20, CPU)
        assert checkpoint.load(tmp_path, {"replay": loaded})[0] == step
    # Both of the two that count are whole.
    DAMAGES["flipped tensor"](tmp_path / "step-000000000016")
    assert checkpoint.load(tmp_path, {"replay": loaded})[0] == 13


@pytest.mark.parametrize(
    ("left_out", "listed"),
    [(["state.json"], "tensors.safetensors"), (["state.json", "tensors.safetensors"], "none")],
)
def test_a_manifest_that_lists_other_files_is_refused(
    tmp_path: Path, left_out: list[str], listed: str
) -> None:
    path = checkpoint.save(tmp_path, 1, {"part": Holder(1)})
    digests = dict(checkpoint.manifest(path).digests)
    for name in left_out:
        del digests[name]
    (path / "manifest.json").write_text(json.dumps(digests))  # as earlier versions wrote it
    with pytest.raises(CheckpointError, match=f"it lists the files {listed}"):
        checkpoint.load(tmp_path, {"part": Holder()})


def test_a_checkpoint_under_another_steps_name_is_refused(tmp_path: Path) -> None:
    """Its files are whole, but the run would go on at another step than the folder says."""
    _, older = three_saves(tmp_path)
    older.rename(tmp_path / "step-000000000009")
    step, (trouble,) = checkpoint.load(tmp_path, {"part": Holder()})
    assert step == 3
    assert "step-000000000009 is damaged: its state is of step 2" in trouble


def test_nothing_to_load_is_an_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match="there is no checkpoint in"):
            checkpoint.load(folder, {})


def test_a_checkpoint_of_other_parts_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"one": Holder(1), "two": Holder(2)})
    with pytest.raises(CheckpointError, match="holds one, two; this run has one"):
        checkpoint.load(tmp_path, {"one": Holder()})


class Crash(Exception):
    """Stands for the power going out."""


CALLS = {"replace": 3, "fsync": 9, "mkdir": 3}
"""How often a save calls each: for the record twice, three files and two folders."""
RENAMED = {"replace": 2, "fsync": 6, "mkdir": 3}
"""Which call is the first after the checkpoint has its name."""


@pytest.mark.parametrize(
    ("name", "call"), [(name, call) for name, count in CALLS.items() for call in range(count)]
)
def test_a_crash_while_saving_leaves_the_last_checkpoint(
    tmp_path: Path, name: str, call: int
) -> None:
    three_saves(tmp_path)
    real, calls = getattr(os, name), iter(range(100))

    def crashing(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise Crash
        return real(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, crashing)
        with pytest.raises(Crash):
            checkpoint.save(tmp_path, 4, {"part": Holder({"weight": torch.full((3,), 4.0)})})
    part = Holder()
    step, troubles = checkpoint.load(tmp_path, {"part": part})
    assert troubles == []
    assert step == (3 if call < RENAMED[name] else 4)
    assert torch.equal(part.state["weight"], torch.full((3,), float(step)))
    # What the crash left behind is cleared away by the next save.
    checkpoint.save(tmp_path, 5, {"part": Holder({})})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "record.json",
        f"step-{step:012d}",
        "step-000000000005",
    ]


def test_the_crashes_above_do_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_saves(tmp_path)
    calls = dict.fromkeys(CALLS, 0)
    for name in calls:
        real = getattr(os, name)

        def counting(*arguments: Any, real: Any = real, name: str = name, **options: Any) -> Any:
            calls[name] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(os, name, counting)
    checkpoint.save(tmp_path, 4, {"part": Holder({"weight": torch.zeros(3)})})
    assert calls == CALLS


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_a_pickle_is_never_loaded(tmp_path: Path, writer: str) -> None:
    path = checkpoint.save(tmp_path, 1, {"part": Holder({"weight": torch.zeros(2)})})
    target, mark = path / "tensors.safetensors", tmp_path / "mark"
    if writer == "pickle":
        target.write_bytes(pickle.dumps(Trap(mark)))
    else:
        torch.save({"/part/weight": Trap(mark)}, target)
    digests = dict(checkpoint.manifest(path).digests)
    digests["tensors.safetensors"] = hashlib.sha256(target.read_bytes()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(digests))  # as earlier versions wrote it
    with pytest.raises(CheckpointError, match="tensors.safetensors is damaged"):
        checkpoint.load(tmp_path, {"part": Holder()})
    assert not mark.exists()
