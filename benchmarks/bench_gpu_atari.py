"""Measure the Atari emulators on a GPU: how long a step of many games takes.

    python benchmarks/bench_gpu_atari.py                    # nvcc and a GPU
    python benchmarks/bench_gpu_atari.py --games ms_pacman --counts 128 1024

A step is four frames of every environment with its observation, games that end and begin included;
actions are random. Environments begin with different seeds and have played ``--apart`` steps before
anything is measured. ``--check`` first compares the device with the host: state, observations,
rewards and ends must be equal after every step.

nvcc compiles the source into a library that this script calls, so nothing else is needed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from hadamard.envs import atari
from hadamard.envs.atari2600.emulators import (
    GRAYS,
    OUTCOME,
    CGame,
    Emulators,
    Settings,
    entry,
    power_on_values,
)
from hadamard.envs.atari2600.source import write_sources

GAMES = (
    *("asterix", "beam_rider", "breakout", "ms_pacman"),
    *("qbert", "seaquest", "space_invaders", "video_pinball"),
)
COUNTS = (128, 1024, 4096, 16384)
TIMERS = 75
BEGUN = 6
"""Where Outcome::begun is."""

LAUNCHERS = """
#include "device.cu"
static int blocks(int count) { return (count + ENVIRONMENTS - 1) / ENVIRONMENTS; }
extern "C" int launch_step(void *envs, int count, const void *games, const void *game_of,
                           Settings settings, const void *actions, void *outcomes, void *screens,
                           void *recordings, const void *gray, void *observations, void *ended) {
  atari2600_step<<<blocks(count), BLOCK>>>(
      (Environment *)envs, count, (const Game *)games, (const u8 *)game_of, settings,
      (const i64 *)actions, (Outcome *)outcomes, (u8 *)screens, (Recording *)recordings,
      (const u8 *)gray, (u8 *)observations, (u8 *)ended);
  return cudaGetLastError();
}
extern "C" int launch_begin(void *envs, int count, const void *games, const void *game_of,
                            Settings settings, const void *seeds, const void *ram, void *screens,
                            void *recordings, const void *gray, void *observations, void *ended) {
  atari2600_begin<<<blocks(count), BLOCK>>>(
      (Environment *)envs, count, (const Game *)games, (const u8 *)game_of, settings,
      (const u32 *)seeds, (const u8 *)ram, (u8 *)screens, (Recording *)recordings,
      (const u8 *)gray, (u8 *)observations, (u8 *)ended);
  return cudaGetLastError();
}
extern "C" int launch_boot(const void *games, void *booted, void *screens, void *recordings) {
  atari2600_boot<<<blocks(TIMER_VALUES), BLOCK>>>((const Game *)games, 1, (Booted *)booted,
                                                  (u8 *)screens, (Recording *)recordings);
  return cudaGetLastError();
}
#ifdef TIMES
extern "C" int read_times(u64 *times) {
  u64 zeros[8] = {};
  cudaMemcpyFromSymbol(times, atari2600_times, sizeof zeros);
  cudaMemcpyToSymbol(atari2600_times, zeros, sizeof zeros);
  return cudaGetLastError();
}
#endif
"""

# Where a step's time goes: clocks of the GPU, added up by the first thread of each environment.
# Name of the part, file, and the call that is timed.
PARTS = (
    ("processor", "frame.h", "lanes.once([&] { run_processor(console, game, recording); });"),
    (
        "collisions",
        "frame.h",
        "paints = false;\n    latch_collisions(lanes, frame, game, recording);",
    ),
    (
        "both",
        "frame.h",
        "paint_frame(lanes, frame, game, recording, true, film.screens + frame.page * SCREEN);",
    ),
    (
        "painting",
        "agent.h",
        "  paint_pages(play);\n  View view;",
    ),
    (
        "resizing",
        "agent.h",
        "observe_column(view, column, out);\n  play.lanes.sync();",
    ),
)


def add_clocks(folder: Path) -> None:
    """Rewrite a copy of the source so that its parts are timed."""
    types = folder / "types.h"
    declared = "\n__device__ unsigned long long atari2600_times[8];\n"
    types.write_text(types.read_text() + declared)
    for number, (_, name, call) in enumerate(PARTS):
        text = (folder / name).read_text()
        lanes = "play.lanes" if "play." in call else "lanes"
        start = "for (i32 column = play.lanes.lane" if "column" in call else call
        assert text.count(call) == text.count(start) == 1, call
        text = text.replace(call, f"{call}\n{clock_after(number, lanes)}")
        text = text.replace(start, f"{clock_before(number)}\n{start}")
        (folder / name).write_text(text)


def clock_before(number: int) -> str:
    """Return source that notes the time."""
    return f"#ifdef __CUDA_ARCH__\n  i64 before{number} = clock64();\n#endif"


def clock_after(number: int, lanes: str) -> str:
    """Return source that adds the time that has passed."""
    passed = f"(unsigned long long)(clock64() - before{number})"
    add = f"atomicAdd(&atari2600_times[{number}], {passed})"
    return f"#ifdef __CUDA_ARCH__\n  if ({lanes}.is_first()) {add};\n#endif"


@dataclass(frozen=True)
class Variant:
    """How the kernels are compiled: ``LANES=8,BLOCK=32,RESIDENT=16,boots=0,begin=0,times=1``."""

    text: str

    def value(self, name: str, default: int) -> int:
        """Return one of the numbers."""
        parts = dict(part.split("=") for part in self.text.split(",") if part)
        return int(parts.get(name, default))

    def flags(self) -> list[str]:
        """Return options of nvcc."""
        flags = [f"-DLANES={self.value('LANES', 32)}", f"-DBLOCK={self.value('BLOCK', 32)}"]
        flags.append(f"-DRESIDENT={self.value('RESIDENT', 1)}")
        if self.value("times", 0):
            flags.append("-DTIMES")
        return flags


def build(nvcc: str, architecture: str, variant: Variant) -> tuple[str, Path]:
    """Compile the device form; return its registers and spills, and the library."""
    folder = Path(tempfile.mkdtemp())
    write_sources(folder)
    (folder / "launchers.cu").write_text(LAUNCHERS)
    if not variant.value("begin", 1):  # lives and games end, and nothing begins
        agent = folder / "agent.h"
        call = "  begin(play, game_ended);\n"
        assert agent.read_text().count(call) == 1
        agent.write_text(agent.read_text().replace(call, ""))
    if variant.value("times", 0):
        add_clocks(folder)
    flags = f"-O3 -std=c++17 --fmad=false -arch={architecture} -Xptxas -v --shared -Xcompiler -fPIC"
    names = [str(folder / "launchers.cu"), "-o", str(folder / "gpu.so")]
    command = [nvcc, *flags.split(), *variant.flags(), *names]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    lines = done.stderr.splitlines()
    entry = next(i for i, line in enumerate(lines) if "atari2600_step' for" in line)
    facts = " ".join(line.strip() for line in lines[entry + 2 : entry + 4])
    return facts, folder / "gpu.so"


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    """Return where a tensor is."""
    return ctypes.c_void_p(tensor.data_ptr())


def zeros(*shape: int) -> torch.Tensor:
    """Return bytes on the GPU."""
    return torch.zeros(shape, dtype=torch.uint8, device="cuda")


class Batch:
    """Environments of one game on the GPU."""

    def __init__(self, library: ctypes.CDLL, rom: str, count: int, keeps_boots: bool) -> None:
        actions = minimal_actions(rom)
        self.library, self.count = library, count
        self.host = Emulators(rom, [0], actions)
        self.num_actions = len(actions)
        self.parts = {
            "rom": torch.from_numpy(self.host._rom).cuda(),
            "program": torch.from_numpy(self.host._program.view(np.uint8)).cuda(),
            "timers": torch.from_numpy(power_on_values()[1]).cuda(),
        }
        game = CGame.from_buffer_copy(self.host.game)
        for name, tensor in self.parts.items():
            setattr(game, name, tensor.data_ptr())
        self.game = torch.frombuffer(bytearray(game), dtype=torch.uint8).cuda()
        if keeps_boots and not entry(rom).boots_anew:
            self.booted = self.boots()
            game.booted = self.booted.data_ptr()
            self.game = torch.frombuffer(bytearray(game), dtype=torch.uint8).cuda()
        self.game_of = torch.zeros(count, dtype=torch.uint8, device="cuda")
        self.gray = torch.from_numpy(GRAYS.copy()).cuda()
        self.ram = torch.from_numpy(power_on_values()[0]).cuda()
        self.seeds = torch.arange(count, dtype=torch.int32, device="cuda")
        self.state = zeros(count, self.host.state.shape[1])
        self.screens = zeros(count, 2 * 210 * 160)
        recording_bytes = self.host.library.atari2600_recording_bytes()
        self.recordings = zeros(count, recording_bytes)
        self.observations = zeros(count, 84, 84)
        self.ended = torch.zeros_like(self.observations)
        self.outcomes = zeros(count, OUTCOME.itemsize)
        self.settings = Settings(protocol=1, training=1, most_steps=27_000, most_frames=0)
        self.check(
            library.launch_begin(
                pointer(self.state), count, pointer(self.game), pointer(self.game_of),
                self.settings, pointer(self.seeds), pointer(self.ram), *self.buffers(),
            )
        )  # fmt: skip

    def boots(self) -> torch.Tensor:
        """Return the game as it is just switched on."""
        booted = zeros(self.host.library.atari2600_booted_bytes())
        screens = zeros(TIMERS, 2 * 210 * 160)
        recordings = zeros(TIMERS, self.host.library.atari2600_recording_bytes())
        self.check(
            self.library.launch_boot(*map(pointer, (self.game, booted, screens, recordings)))
        )
        torch.cuda.synchronize()
        return booted

    def buffers(self) -> tuple[ctypes.c_void_p, ...]:
        """Return where screens, grays and observations are."""
        parts = (self.screens, self.recordings, self.gray, self.observations, self.ended)
        return tuple(map(pointer, parts))

    def check(self, error: int) -> None:
        """Raise the error of a launch."""
        if error:
            raise RuntimeError(f"CUDA error {error}")

    def step(self, actions: torch.Tensor) -> None:
        """Play one step."""
        self.check(
            self.library.launch_step(
                pointer(self.state), self.count, pointer(self.game), pointer(self.game_of),
                self.settings, pointer(actions), pointer(self.outcomes), *self.buffers(),
            )
        )  # fmt: skip


def minimal_actions(rom: str) -> list[int]:
    """Return a game's actions."""
    from hadamard.envs.atari_game import open_emulator

    return [int(action.value) for action in open_emulator(rom, 0, "envpool").getMinimalActionSet()]


def compare(library: ctypes.CDLL, rom: str, steps: int, keeps_boots: bool) -> bool:
    """Return whether eight environments are equal on host and device."""
    device = Batch(library, rom, 8, keeps_boots)
    host = Emulators(rom, list(range(8)), minimal_actions(rom))
    host.reset(device.settings)
    generator = np.random.default_rng(0)
    for _ in range(steps):
        actions = generator.integers(device.num_actions, size=8)
        host.step(actions.astype(np.int32), device.settings)
        device.step(torch.from_numpy(actions).cuda())
        equal = (device.observations.cpu().numpy() == host.observations).all() and (
            device.outcomes.cpu().numpy() == host.outcomes.view(np.uint8).reshape(8, -1)
        ).all()
        if not equal:
            return False
    return True


def milliseconds(batch: Batch, apart: int, steps: int) -> tuple[list[float], float]:
    """Return the times of steps, and how many lives and games begin in a step."""
    shape = (steps + apart, batch.count)
    actions = torch.randint(batch.num_actions, shape, device="cuda")
    for row in actions[:apart]:
        batch.step(row)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    torch.cuda.synchronize()
    if hasattr(batch.library, "read_times"):
        read_times(batch.library)
    begun = 0
    events[0].record()
    for row, event in zip(actions[apart:], events[1:], strict=True):
        batch.step(row)
        event.record()
        begun += int(batch.outcomes[:, BEGUN].sum())
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in pairwise(events)]
    return times, begun / steps


def read_times(library: ctypes.CDLL) -> list[int]:
    """Return the clocks of the parts since the last call."""
    times = (ctypes.c_uint64 * 8)()
    library.read_times(times)
    return list(times)[: len(PARTS)]


def main() -> None:
    """Print one line for each variant, game and number of environments."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", nargs="*", default=GAMES)
    parser.add_argument("--counts", nargs="*", type=int, default=COUNTS)
    parser.add_argument("--variants", nargs="*", default=[""], help=Variant.__doc__)
    parser.add_argument("--apart", type=int, default=50)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--check", type=int, default=100, help="steps to compare with the host")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop measuring after this long")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--architecture", default="sm_90")
    options = parser.parse_args()
    began = time.monotonic()
    assert set(options.games) <= {atari.rom(task) for task in atari.tasks()}
    variants = [Variant(text) for text in options.variants]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        built = list(pool.map(lambda v: build(options.nvcc, options.architecture, v), variants))
    libraries = [ctypes.CDLL(str(path)) for _, path in built]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for variant, (facts, _) in zip(variants, built, strict=True):
        print(f"{variant.text or 'as it is'}: {facts}")
    print(f"compiled after {time.monotonic() - began:.0f} s")
    print("| variant | game | count | median ms | mean ms | steps/s | begun |")
    print("|---|---|---|---|---|---|---|")
    for rom in options.games:
        for variant, library in zip(variants, libraries, strict=True):
            if options.check and variant.value("begin", 1):
                equal = compare(library, rom, options.check, bool(variant.value("boots", 1)))
                print(f"{variant.text} {rom}: host and device {'equal' if equal else 'DIFFER'}")
            for count in options.counts:
                if time.monotonic() - began > options.seconds:
                    continue
                measure(variant, library, rom, count, options.apart, options.steps)


def measure(
    variant: Variant, library: ctypes.CDLL, rom: str, count: int, apart: int, steps: int
) -> None:
    """Print one line."""
    batch = Batch(library, rom, count, bool(variant.value("boots", 1)))
    times, begun = milliseconds(batch, apart, steps)
    mean = statistics.mean(times)
    cells = (
        *(variant.text, rom, count, f"{statistics.median(times):.2f}", f"{mean:.2f}"),
        *(f"{count / mean * 1000:,.0f}", f"{begun:.1f}"),
    )
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if hasattr(library, "read_times"):
        clocks = [n / count / steps / 1e3 for n in read_times(library)]
        names = [name for name, _, _ in PARTS]
        parts = ", ".join(f"{name} {n:.0f}" for name, n in zip(names, clocks, strict=True))
        print(f"    thousand clocks of an environment's step: {parts}", flush=True)


if __name__ == "__main__":
    main()
