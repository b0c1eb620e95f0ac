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
import ctypes
import subprocess
import tempfile
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
    power_on_values,
)
from hadamard.envs.atari2600.source import write_sources

GAMES = (
    *("asterix", "beam_rider", "breakout", "ms_pacman"),
    *("qbert", "seaquest", "space_invaders", "video_pinball"),
)
COUNTS = (128, 1024, 4096, 16384)

LAUNCHERS = """
#include "device.cu"
extern "C" int launch_step(void *envs, int count, const void *games, const void *game_of,
                           Settings settings, const void *actions, void *outcomes, void *screens,
                           const void *gray, void *observations, void *ended, int block) {
  atari2600_step<<<(count + block - 1) / block, block>>>(
      (Environment *)envs, count, (const Game *)games, (const u8 *)game_of, settings,
      (const i64 *)actions, (Outcome *)outcomes, (u8 *)screens, (const u8 *)gray,
      (u8 *)observations, (u8 *)ended);
  return cudaGetLastError();
}
extern "C" int launch_begin(void *envs, int count, const void *games, const void *game_of,
                            Settings settings, const void *seeds, const void *ram, void *screens,
                            const void *gray, void *observations, void *ended, int block) {
  atari2600_begin<<<(count + block - 1) / block, block>>>(
      (Environment *)envs, count, (const Game *)games, (const u8 *)game_of, settings,
      (const u32 *)seeds, (const u8 *)ram, (u8 *)screens, (const u8 *)gray, (u8 *)observations,
      (u8 *)ended);
  return cudaGetLastError();
}
"""


def build(nvcc: str, architecture: str) -> ctypes.CDLL:
    """Compile the device form; print its registers and spills."""
    folder = Path(tempfile.mkdtemp())
    write_sources(folder)
    (folder / "launchers.cu").write_text(LAUNCHERS)
    flags = f"-O3 -std=c++17 --fmad=false -arch={architecture} -Xptxas -v --shared -Xcompiler -fPIC"
    command = [nvcc, *flags.split(), str(folder / "launchers.cu"), "-o", str(folder / "gpu.so")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    print(
        "\n".join(
            line for line in done.stderr.splitlines() if "registers" in line or "spill" in line
        )
    )
    return ctypes.CDLL(str(folder / "gpu.so"))


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    """Return where a tensor is."""
    return ctypes.c_void_p(tensor.data_ptr())


class Batch:
    """Environments of one game on the GPU."""

    def __init__(self, library: ctypes.CDLL, rom: str, count: int, block: int) -> None:
        actions = minimal_actions(rom)
        self.library, self.count, self.block = library, count, block
        self.host = Emulators(rom, [0], actions)
        self.num_actions = len(actions)
        self.parts = {
            "rom": torch.from_numpy(self.host._rom).cuda(),
            "opcodes": torch.from_numpy(self.host._opcodes.view(np.uint8)).cuda(),
            "timers": torch.from_numpy(power_on_values()[1]).cuda(),
        }
        game = CGame.from_buffer_copy(self.host.game)
        for name, tensor in self.parts.items():
            setattr(game, name, tensor.data_ptr())
        self.game = torch.frombuffer(bytearray(game), dtype=torch.uint8).cuda()
        self.game_of = torch.zeros(count, dtype=torch.uint8, device="cuda")
        self.gray = torch.from_numpy(GRAYS.copy()).cuda()
        self.ram = torch.from_numpy(power_on_values()[0]).cuda()
        self.seeds = torch.arange(count, dtype=torch.int32, device="cuda")
        self.state = torch.zeros(count, self.host.state.shape[1], dtype=torch.uint8, device="cuda")
        self.screens = torch.zeros(count, 2 * 210 * 160, dtype=torch.uint8, device="cuda")
        self.observations = torch.zeros(count, 84, 84, dtype=torch.uint8, device="cuda")
        self.ended = torch.zeros_like(self.observations)
        self.outcomes = torch.zeros(count, OUTCOME.itemsize, dtype=torch.uint8, device="cuda")
        self.settings = Settings(protocol=1, training=1, most_steps=27_000, most_frames=0)
        self.check(
            library.launch_begin(
                pointer(self.state), count, pointer(self.game), pointer(self.game_of),
                self.settings, pointer(self.seeds), pointer(self.ram), *self.buffers(), block,
            )
        )  # fmt: skip

    def buffers(self) -> tuple[ctypes.c_void_p, ...]:
        """Return where screens, grays and observations are."""
        return tuple(map(pointer, (self.screens, self.gray, self.observations, self.ended)))

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
                self.block,
            )
        )  # fmt: skip


def minimal_actions(rom: str) -> list[int]:
    """Return a game's actions."""
    from hadamard.envs.atari_game import open_emulator

    return [int(action.value) for action in open_emulator(rom, 0, "envpool").getMinimalActionSet()]


def compare(library: ctypes.CDLL, rom: str, block: int, steps: int) -> bool:
    """Return whether eight environments are equal on host and device."""
    device = Batch(library, rom, 8, block)
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


def milliseconds(batch: Batch, apart: int, steps: int) -> float:
    """Return the time of a step."""
    shape = (steps + apart, batch.count)
    actions = torch.randint(batch.num_actions, shape, device="cuda")
    for row in actions[:apart]:
        batch.step(row)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for row in actions[apart:]:
        batch.step(row)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / steps


def main() -> None:
    """Print one line for each game and number of environments."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--games", nargs="*", default=GAMES)
    parser.add_argument("--counts", nargs="*", type=int, default=COUNTS)
    parser.add_argument("--block", type=int, default=32, help="threads in a block")
    parser.add_argument("--apart", type=int, default=50)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--check", type=int, default=100, help="steps to compare with the host")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--architecture", default="sm_90")
    options = parser.parse_args()
    assert set(options.games) <= {atari.rom(task) for task in atari.tasks()}
    library = build(options.nvcc, options.architecture)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for rom in options.games:
        if options.check:
            equal = compare(library, rom, options.block, options.check)
            print(f"{rom}: host and device {'equal' if equal else 'DIFFER'}", flush=True)
        for count in options.counts:
            batch = Batch(library, rom, count, options.block)
            ms = milliseconds(batch, options.apart, options.steps)
            rate = count / ms * 1000
            print(f"{rom:16}{count:8}{ms:10.2f} ms{rate:14,.0f} steps/s", flush=True)
            del batch


if __name__ == "__main__":
    main()
