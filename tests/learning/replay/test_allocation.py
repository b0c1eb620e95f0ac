"""A replay that does not fit is refused with its size and the setting to lower."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.core.types import EnvSpec
from hadamard.learning.replay import Replay, Storage, allocation
from tests.support.commands import Command

CPU = torch.device("cpu")
ATARI = EnvSpec((4, 84, 84), torch.uint8, 6, 4)
SLOT = 84 * 84 + 8 + 4 + 1 + 1
"""Bytes of a frame, its action, reward and two flags."""


def refusal(capacity: int, storage: Storage, folder: Path) -> str:
    with pytest.raises(ValueError) as error:
        Replay(ATARI, 1, capacity, CPU, storage, folder)
    return str(error.value)


def assert_explained(message: str, capacity: int, reason: str) -> None:
    assert message.startswith(
        f"--algo.replay-capacity: a replay of {capacity:,} steps needs {capacity * SLOT:,} bytes "
    )
    assert reason in message
    assert message.endswith(
        "Lower it, or choose another --algo.replay-storage if the algorithm has that option"
    )


@pytest.mark.parametrize("storage", ["memory", "device", "auto"])
def test_more_than_the_machines_memory_is_refused(storage: Storage, tmp_path: Path) -> None:
    message = refusal(10**12, storage, tmp_path)
    assert_explained(message, 10**12, "this machine has ")
    assert "(7,070,000.0 GB)" in message


def test_memory_that_the_system_does_not_give_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocation, "memory_limit", lambda: 2**63)
    # More than a processor can address, so that every system refuses it.
    assert_explained(
        refusal(2**42, "memory", tmp_path), 2**42, "not available: can't allocate memory: you tried"
    )


def test_tensors_beside_the_frames_are_explained_too(tmp_path: Path) -> None:
    tiny = EnvSpec((1,), torch.uint8, action_size=2**20)
    with pytest.raises(ValueError, match="--algo.replay-capacity: a replay of 4,294,967,296 steps"):
        Replay(tiny, 1, 2**32, CPU, "memory", tmp_path)


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "memory.max"
    monkeypatch.setattr(allocation, "_CONTAINER_LIMIT", file)
    machine = allocation.memory_limit()
    assert machine == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    file.write_text("max\n")
    assert allocation.memory_limit() == machine
    file.write_text("1000000\n")
    assert allocation.memory_limit() == 1_000_000
    assert_explained(refusal(1_000, "memory", tmp_path), 1_000, "this machine has 1,000,000 bytes")
    Replay(ATARI, 1, 100, CPU, "memory")


def test_more_than_the_disks_space_is_refused(tmp_path: Path) -> None:
    message = refusal(2**42, "disk", tmp_path)
    assert_explained(message, 2**42, f"the disk of {tmp_path} has ")
    assert list(tmp_path.iterdir()) == []


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_the_disk_refuses_is_explained(tmp_path: Path) -> None:
    with largest_file(2**20):
        message = refusal(1_000, "disk", tmp_path)
    assert_explained(message, 1_000, "File too large")
    assert list(tmp_path.iterdir()) == []


def test_the_disks_space_is_reserved_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[int] = []
    mapped = allocation.mmap.mmap

    def keep_open(file: int, size: int) -> Any:
        files.append(os.dup(file))
        return mapped(file, size)

    monkeypatch.setattr(allocation.mmap, "mmap", keep_open)
    replay = Replay(ATARI, 1, 1_000, CPU, "disk", tmp_path)
    (file,) = files
    assert os.fstat(file).st_blocks * 512 >= replay.frames.nbytes
    assert os.fstat(file).st_size == replay.frames.nbytes
    assert os.fstat(file).st_dev == tmp_path.stat().st_dev
    if Path("/proc/self/fd").is_dir():
        assert os.readlink(f"/proc/self/fd/{file}").startswith(str(tmp_path))
    os.close(file)


def test_frames_on_disk_follow_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / f".replay-{os.getpid()}.map").symlink_to(victim)
    replay = Replay(ATARI, 1, 100, CPU, "disk", folder)
    replay.begin(torch.ones(1, 4, 84, 84, dtype=torch.uint8))
    assert victim.read_text() == "precious"
    assert [path.name for path in folder.iterdir()] == [f".replay-{os.getpid()}.map"]


def test_the_size_of_a_replay_is_that_of_its_tensors() -> None:
    continuous = EnvSpec((9, 8, 8), torch.uint8, frames=3, action_size=5)
    for env, prioritized in ((ATARI, False), (ATARI, True), (continuous, True)):
        replay = Replay(env, 2, 101, CPU, prioritized=prioritized)
        tensors: list[Any] = [replay.frames, replay.action, replay.reward, replay.terminated]
        tensors += [replay.usable, *([replay.priority] if prioritized else [])]
        assert replay.nbytes == sum(tensor.nbytes for tensor in tensors)


def test_a_run_whose_replay_does_not_fit_ends_with_one_line(
    command: Command, tmp_path: Path
) -> None:
    answer = command(
        *("train", "dqn", "--env", "probe/image84", "--run-dir", tmp_path / "run"),
        *("--algo.replay-capacity", str(10**14), "--train.steps", str(10**14)),
    )
    assert answer.code == 2
    assert "lower --algo.replay-capacity 100000000000000" in answer.err
    assert answer.err.count("\n") == 1
