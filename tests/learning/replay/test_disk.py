"""A saved replay is restored bit for bit, and damaged files are refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.core import checkpoint
from hadamard.core.checkpoint import CheckpointError
from hadamard.core.typed import WrongType
from hadamard.learning.replay import Indices, Replay
from tests.support.checkpoints import flip_a_byte
from tests.support.replay import Transitions, sample_all

CPU = torch.device("cpu")


def saved_frames(path: Path) -> int:
    return sum(len(frames) for frames in checkpoint.read_tensors(path).values())


def assert_same_replay(replay: Replay, other: Replay) -> None:
    assert replay.pushed == other.pushed
    assert torch.equal(replay.usable, other.usable)
    assert all(map(torch.equal, sample_all(replay)[1], sample_all(other)[1]))
    batches = [r.sample(100, torch.Generator().manual_seed(5)) for r in (replay, other)]
    assert all(map(torch.equal, *batches))


@pytest.mark.parametrize(
    ("num_envs", "between", "saves", "habits"),
    [
        (2, 7, 9, {}),
        (2, 40, 5, {}),
        (1, 1, 40, {"resets": 0.0, "limits": 0.0}),  # one file per frame
    ],
)
def test_incremental_saves_restore_the_replay_bit_for_bit(
    tmp_path: Path, num_envs: int, between: int, saves: int, habits: dict[str, float]
) -> None:
    stream = Transitions(num_envs, 4, **habits)
    capacity = 20 * num_envs
    replay = Replay(stream.spec, num_envs, capacity, CPU)
    replay.begin(stream.obs())
    folder = tmp_path / "checkpoints"
    chunks = folder / "replay"
    previous: Replay | None = None
    saved = [0] * num_envs
    for save in range(1, saves + 1):
        for _ in range(between):
            replay.add(*stream.step())
        files_before = set(chunks.glob("*"))
        new = [min(end - start, 20) for start, end in zip(saved, replay.pushed, strict=True)]
        saved = list(replay.pushed)
        checkpoint.save(folder, save, {"replay": replay})
        (written,) = set(chunks.glob("*")) - files_before
        assert saved_frames(written) == sum(new)

        states = [checkpoint.read(path)[1]["replay"] for path in folder.glob("step-*")]
        named = {chunk["file"] for state in states for chunk in state["chunks"]}
        assert {path.name for path in chunks.iterdir()} == named

        loaded = Replay(stream.spec, num_envs, capacity, CPU)
        assert checkpoint.load(folder, {"replay": loaded}) == (save, [])
        assert_same_replay(loaded, replay)
        if previous is not None:
            # The older of the two checkpoints that are kept can still be read.
            older = Replay(stream.spec, num_envs, capacity, CPU)
            _, state = checkpoint.read(folder / f"step-{save - 1:012d}")
            older.load_increment(chunks, state["replay"])
            assert_same_replay(older, previous)
        previous = copy.deepcopy(replay)
        if save == 4:
            replay = loaded  # a resumed replay continues to save
    assert min(saved) > 40  # the ring was filled twice
    assert len(list(chunks.iterdir())) <= 20 // between + 3


def test_a_file_is_left_out_when_its_last_frame_is_overwritten(tmp_path: Path) -> None:
    stream = Transitions(1, 1, lives=0.0, resets=0.0, limits=0.0)
    replay = Replay(stream.spec, 1, 20, CPU)
    replay.begin(stream.obs())
    counts = []
    for steps in (4, 19, 1):  # 5 frames, 24 and 25: the ring holds the last 20
        for _ in range(steps):
            replay.add(*stream.step())
        counts.append((replay.pushed[0], len(replay.save_increment(tmp_path)["chunks"])))
    assert counts == [(5, 1), (24, 2), (25, 2)]


def test_a_save_without_new_frames_writes_none(tmp_path: Path) -> None:
    stream = Transitions(1, 2)
    replay = Replay(stream.spec, 1, 20, CPU)
    replay.begin(stream.obs())
    replay.save_increment(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    state = replay.save_increment(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert len(state["chunks"]) == 1


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_damaged_file_of_frames_is_refused(tmp_path: Path, damage: str) -> None:
    stream = Transitions(1, 2)
    replay = Replay(stream.spec, 1, 20, CPU)
    replay.begin(stream.obs())
    state = replay.save_increment(tmp_path)
    (chunk,) = tmp_path.iterdir()
    if damage == "missing":
        chunk.unlink()
    else:
        flip_a_byte(chunk)
    with pytest.raises(CheckpointError, match=f"{chunk.name} is missing or damaged"):
        replay.load_increment(tmp_path, state)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("file", 7, "chunks.file must be a text"),
        ("sha256", None, "chunks.sha256 must be a text"),
        ("end", [1.5], r"chunks.end\[0\] must be a whole number"),
        ("file", "../frames-1.safetensors", "must be frames-N.safetensors, got '../frames-1"),
    ],
)
def test_a_list_of_files_of_another_form_is_refused(
    tmp_path: Path, field: str, value: Any, words: str
) -> None:
    """Before any file is read or removed."""
    stream = Transitions(1, 2)
    replay = Replay(stream.spec, 1, 20, CPU)
    replay.begin(stream.obs())
    folder = tmp_path / "new" / "replay"
    state = replay.save_increment(folder)
    assert len(list(folder.iterdir())) == 1
    replay.load_increment(folder, state)
    state["chunks"][0][field] = value
    for use in (
        lambda: replay.load_increment(folder, state),
        lambda: replay.prune(folder, [state]),
    ):
        with pytest.raises(WrongType, match=words):
            use()
    assert len(list(folder.iterdir())) == 1


def test_a_smaller_replay_is_refused(tmp_path: Path) -> None:
    stream = Transitions(1, 2)
    state = Replay(stream.spec, 1, 30, CPU).save_increment(tmp_path)
    with pytest.raises(CheckpointError, match=r"\(1, 30\) slots, this one \(1, 20\)"):
        Replay(stream.spec, 1, 20, CPU).load_increment(tmp_path, state)


@pytest.mark.parametrize("steps", [12, 47])  # the second goes round the smaller ring
def test_a_larger_replay_takes_over_what_can_be_drawn(tmp_path: Path, steps: int) -> None:
    stream = Transitions(1, 2)
    small = Replay(stream.spec, 1, 20, CPU)
    small.begin(stream.obs())
    for _ in range(steps):
        small.add(*stream.step())
    large = Replay(stream.spec, 1, 50, CPU)
    large.load_increment(tmp_path, small.save_increment(tmp_path))
    assert len(large) == len(small) > 0

    def transitions(replay: Replay) -> list[tuple[bytes, ...]]:
        envs, slots = replay.usable.nonzero().unbind(1)
        indices = Indices(envs, slots)
        frames = replay.observations(indices, 0, 2)
        values = (frames, *replay.steps(indices, 1))
        return sorted(tuple(v[i].numpy().tobytes() for v in values) for i in range(len(slots)))

    assert transitions(large) == transitions(small)
