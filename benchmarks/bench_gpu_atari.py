"""Measure the Atari emulators on a GPU: how long a step of many games takes.

    python benchmarks/bench_gpu_atari.py                          # eight games, needs a GPU
    python benchmarks/bench_gpu_atari.py --games all --counts 1024 # the worst of all games
    python benchmarks/bench_gpu_atari.py --layouts 32,1,1 32,2,8 8,2,8 --parts

A step is four frames of every environment with its observation, games that end and begin included;
actions are random. Environments begin with different seeds and have played ``--apart`` steps before
anything is measured. Beside it, in the same run, ale-py's vector environment plays the first game
on all cores. ``--parts`` says where the time goes. ``--layouts`` compares ways to divide
environments among threads; see ``Launch``: threads for each, blocks that must fit a multiprocessor,
and environments that begin a frame together.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import statistics
import time
from itertools import pairwise

import torch

from bench_emulators import Vector
from hadamard.envs import atari
from hadamard.envs.atari2600 import batch, nvrtc, roms
from hadamard.envs.atari2600.games import TABLE
from hadamard.envs.atari2600.source import Launch, launch_of
from hadamard.envs.common import environment_seeds
from timing import machine

GAMES = (
    *("Asterix", "BeamRider", "Breakout", "MsPacman"),
    *("Qbert", "Seaquest", "SpaceInvaders", "VideoPinball"),
)
COUNTS = (128, 1024, 16384)
DEVICE = torch.device("cuda")

# Where a step's time goes: clocks of the GPU, added up by the first thread of each environment.
# The part, and the call in the source that is timed; it stands there once.
PARTS = {
    "processor": "lanes.once([&] { run_processor(console, game, recording); });",
    "collisions": "paints = false;\n    latch_collisions(lanes, frame, game, recording);",
    "both": "paint_frame(lanes, frame, game, recording, true, film.screens + frame.page * SCREEN);",
    "painting": "  paint_pages(play);\n  View view;",
    "resizing": "for (i32 column = play.lanes.lane; column < SIDE; column += LANES)\n"
    "    observe_column(view, column, out);",
}
COUNTER = """
__device__ unsigned long long atari2600_times[8];
extern "C" __global__ void atari2600_read_times(unsigned long long *times) {
  for (int i = 0; i < 8; i++) { times[i] = atari2600_times[i]; atari2600_times[i] = 0; }
}
"""


def timed_source(source: str) -> str:
    """Return the source with clocks around its parts."""
    for number, call in enumerate(PARTS.values()):
        assert source.count(call) == 1, call
        lanes = "play.lanes" if "play" in call else "lanes"
        first = f"#ifdef __CUDA_ARCH__\n  i64 before{number} = clock64();\n#endif\n"
        passed = f"(unsigned long long)(clock64() - before{number})"
        last = (
            f"\n#ifdef __CUDA_ARCH__\n  if ({lanes}.is_first()) "
            f"atomicAdd(&atari2600_times[{number}], {passed});\n#endif\n"
        )
        source = source.replace(call, f"{first}{call}{last}")
    return COUNTER + source


def clocks(name: str, layout: Launch) -> list[int]:
    """Return the clocks of the parts since the last call."""
    times = torch.zeros(8, dtype=torch.int64, device=DEVICE)
    kernels = nvrtc.kernels(DEVICE, name, layout.definitions)
    kernels.launch("atari2600_read_times", 1, 1, [ctypes.c_void_p(times.data_ptr())])
    return times.tolist()[: len(PARTS)]


class Games:
    """Environments of one game, at different places of it."""

    def __init__(self, name: str, count: int, apart: int, layout: Launch | None) -> None:
        self.name, self.count, self.layout = name, count, layout or launch_of(count)
        settings = batch.settings_of("envpool", training=True)
        began = time.perf_counter()
        self.batch = batch.Batch([name] * count, settings, DEVICE, launch=self.layout)
        self.batch.begin(environment_seeds(0, count))
        self.num_actions = len(roms.minimal_actions(name))
        for action in self.actions(apart):
            self.batch.play(action)
        torch.cuda.synchronize()
        self.setup_seconds = time.perf_counter() - began

    def actions(self, steps: int) -> torch.Tensor:
        """Return random actions."""
        return torch.randint(self.num_actions, (steps, self.count), device=DEVICE)

    def milliseconds(self, steps: int) -> list[float]:
        """Return the time of each of so many steps."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        events[0].record()
        for action, event in zip(self.actions(steps), events[1:], strict=True):
            self.batch.play(action)
            event.record()
        torch.cuda.synchronize()
        return [before.elapsed_time(after) for before, after in pairwise(events)]


def measure(games: Games, steps: int, with_parts: bool) -> float:
    """Print a row; return the median milliseconds of a step."""
    if with_parts:
        clocks(games.name, games.layout)
    times = games.milliseconds(steps)
    median, mean = statistics.median(times), statistics.mean(times)
    cells = (
        *(games.name, f"{games.count:,}", ",".join(map(str, dataclasses.astuple(games.layout)))),
        *(f"{median:.2f} ms", f"{mean:.2f} ms", f"{games.count / mean * 1000:,.0f}"),
        f"{games.setup_seconds:.0f} s",
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    if with_parts:
        thousands = [n / games.count / steps / 1e3 for n in clocks(games.name, games.layout)]
        parts = ", ".join(f"{name} {n:,.0f}" for name, n in zip(PARTS, thousands, strict=True))
        print(f"    thousand clocks of an environment's step: {parts}", flush=True)
    return median


def parse_layout(text: str) -> Launch | None:
    """Return a layout as ``LANES,RESIDENT,TOGETHER``, or None for the usual one."""
    return None if text == "usual" else Launch(*map(int, text.split(",")))


def main() -> None:
    """Print a row for each game and number of environments, and what they come to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", nargs="*", default=GAMES, help="names, or all")
    parser.add_argument("--counts", nargs="*", type=int, default=COUNTS)
    parser.add_argument("--layouts", nargs="*", default=["usual"])
    parser.add_argument("--apart", type=int, default=50)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--parts", action="store_true", help="compile with clocks; a little slower")
    parser.add_argument("--peer-seconds", type=float, default=3.0, help="for ale-py, or 0")
    options = parser.parse_args()
    games = options.games
    if games == ["all"]:
        games = [task for task, game in zip(atari.tasks(), TABLE, strict=True) if not game.refused]
    names = [atari.rom(game) for game in games]
    if options.parts:
        plain = nvrtc.joined_source
        nvrtc.joined_source = lambda rom=None: timed_source(plain(rom))
    print(f"{machine()}; {', '.join(games)}", flush=True)
    layouts = [parse_layout(text) for text in options.layouts]
    for layout in layouts:
        for used in dict.fromkeys(layout or launch_of(count) for count in options.counts):
            nvrtc.prepare(DEVICE, names, used.definitions)
    if options.peer_seconds:
        peer = Vector(games[0], 128)
        peer.rate(1.0)
        rate = peer.rate(options.peer_seconds)
        peer.close()
        print(f"ale-py's vector environment, 128 of {games[0]}: {rate:,.0f} steps/s", flush=True)
    print("| game | environments | layout | median | mean | steps/s | ready in |")
    print("|---|---|---|---|---|---|---|")
    for count in options.counts:
        for layout in layouts:
            medians = {}
            for name in names:
                medians[name] = measure(
                    Games(name, count, options.apart, layout), options.steps, options.parts
                )
                torch.cuda.empty_cache()
            worst = max(medians, key=medians.__getitem__)
            print(
                f"{count:,} environments, layout {layout or 'usual'}: the median game takes "
                f"{statistics.median(medians.values()):.2f} ms a step, the worst "
                f"{medians[worst]:.2f} ms ({worst})",
                flush=True,
            )


if __name__ == "__main__":
    main()
