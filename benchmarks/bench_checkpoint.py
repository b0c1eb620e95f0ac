"""How long a checkpoint pauses DQN with a replay of a million Atari frames.

    python benchmarks/bench_checkpoint.py [--new 100000] [--folder DIR]

Fills a replay with random frames, saves it, pushes ``--new`` more (the default interval between
checkpoints) and saves again: the second save is what a run pays. Prints the replay's memory, the
pauses, the bytes written, and the time to load it all.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from hadamard.core import checkpoint
from hadamard.core.types import EnvSpec
from hadamard.learning.replay import Replay

ATARI = EnvSpec((4, 84, 84), torch.uint8, 18, frames=4)
GIGA = 1e9


def push(replay: Replay, count: int) -> None:
    """Fill slots as ``add`` does, in bulk."""
    slots = torch.arange(replay.pushed[0], replay.pushed[0] + count) % replay.slots
    block = torch.randint(0, 256, (1_000, *replay.frame_shape), dtype=torch.uint8)
    for part in slots.split(1_000):
        replay.frames[0, part] = block[: len(part)]
    replay.usable[0, slots] = True
    replay.pushed[0] += count


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--filled", type=int, default=1_000_000, help="frames saved at first")
    parser.add_argument("--new", type=int, default=100_000, help="frames between two saves")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder if absent")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        replay = Replay(ATARI, 1, 1_000_000, torch.device("cpu"))
        print(f"1,000,000 transitions: {replay.nbytes / GIGA:.2f} GB")
        push(replay, options.filled)
        for step, count in ((1, 0), (2, options.new), (3, options.new)):
            push(replay, count)
            start = time.perf_counter()
            checkpoint.save(folder, step, {"replay": replay})
            pause = time.perf_counter() - start
            on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            new = count or options.filled
            print(f"save of {new:>9,} new frames: {pause:5.2f} s, on disk {on_disk / GIGA:.2f} GB")
        other = Replay(ATARI, 1, 1_000_000, torch.device("cpu"))
        start = time.perf_counter()
        checkpoint.load(folder, {"replay": other})
        print(f"load: {time.perf_counter() - start:.2f} s")
        assert torch.equal(other.frames[0, :1000], replay.frames[0, :1000])


if __name__ == "__main__":
    main()
