"""A batch of environments on a device, of one game or of several, and what a step leaves there.

On a GPU the kernels of ``device.cu`` play it, and on a CPU the library that g++ makes of the same
source, with the same arguments. All memory is tensors of the device. A step only queues work on a
GPU, so it can be captured in a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.envs.atari2600 import emulators, nvrtc, roms
from hadamard.envs.atari2600.emulators import OUTCOME, CGame, Settings
from hadamard.envs.atari2600.games import TABLE
from hadamard.envs.atari2600.source import Launch, host_library, launch_of

FRAMES = 4
SIDE = emulators.SIDE
SCREEN = emulators.HEIGHT * emulators.WIDTH
MAX_STEPS, MAX_FRAMES = 27_000, 108_000
"""Chosen actions, or frames of the emulator, after which a game is truncated."""
_SIZES = 6
TIMER_VALUES = 75
"""Different values of the timer at power-on."""
_BLOCK = 256
"""Threads of a block that decodes a ROM or checks saved games."""

Tensors = dict[str, Tensor]


def settings_of(atari_reset: str, *, training: bool) -> Settings:
    """Return the rules of a suite's environments; those of ``atari_game.py``."""
    envpool = atari_reset == "envpool"
    return Settings(
        protocol=int(envpool),
        training=int(training),
        most_steps=MAX_STEPS if envpool else 0,
        most_frames=0 if envpool else MAX_FRAMES,
    )


ACTIONS = ("step", "restart", "begin", "boot")


class CCall(ctypes.Structure):
    """The struct Call of ``call.h``."""

    _fields_ = (
        ("action", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("envs", ctypes.c_void_p),
        ("members", ctypes.c_void_p),
        ("game", ctypes.c_void_p),
        ("settings", Settings),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("actions", "outcomes", "seeds", "ram", "screens", "recordings"),
                *("gray", "observations", "ended", "booted"),
            )
        ),
    )

    def point(self, **tensors: Tensor) -> None:
        """Set where these are."""
        for name, tensor in tensors.items():
            setattr(self, name, tensor.data_ptr())


class Player:
    """The functions that play, on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type != "cuda":
            self._library = host_library()
        sizes = torch.zeros(_SIZES, dtype=torch.int32, device=device)
        self._call("sizes", 1, [sizes])
        self.console_bytes, game_bytes, outcome_bytes, *rest = sizes.tolist()
        self.recording_bytes, self._booted_bytes, self._seat_bytes = rest
        assert (game_bytes, outcome_bytes) == (ctypes.sizeof(CGame), OUTCOME.itemsize)

    def decode(self, rom: Tensor) -> Tensor:
        """Return the decoded instructions of a ROM."""
        program = torch.zeros(len(rom), dtype=torch.int64, device=self.device)
        self._call("decode", len(rom), [rom, ctypes.c_uint32(len(rom)), program])
        return program

    def boot(self, rom: str, game: CGame) -> Tensor:
        """Return a game as it is just switched on, with each value of the timer."""

        def empty(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.uint8, device=self.device)

        booted = empty(self._booted_bytes)
        screens = empty(TIMER_VALUES, 2, SCREEN)
        recordings = empty(TIMER_VALUES, self.recording_bytes)
        record = torch.frombuffer(bytearray(game), dtype=torch.uint8).to(self.device)
        call = CCall(action=ACTIONS.index("boot"), count=TIMER_VALUES)
        call.point(game=record, booted=booted, screens=screens, recordings=recordings)
        self.play(rom, call, launch_of(TIMER_VALUES))
        return booted

    def play(self, rom: str, call: CCall, launch: Launch) -> None:
        """Do something with environments of one game."""
        if self.device.type != "cuda":
            self._library.atari2600_batch_play(ctypes.byref(call))
            return
        with torch.cuda.device(self.device):
            nvrtc.kernels(self.device, rom, launch.definitions).launch(
                "atari2600_play",
                launch.blocks(call.count),
                launch.threads,
                [call],
                launch.together * self._seat_bytes,
            )

    def check(self, count: int, arguments: Sequence[Any]) -> None:
        """Call the function that checks saved games."""
        self._call("check", count, arguments)

    def _call(self, name: str, count: int, arguments: Sequence[Any]) -> None:
        """Call a function of so many parts; tensors stand for where they are."""
        values = [
            ctypes.c_void_p(argument.data_ptr()) if isinstance(argument, Tensor) else argument
            for argument in arguments
        ]
        if self.device.type != "cuda":
            getattr(self._library, f"atari2600_batch_{name}")(*values)
            return
        with torch.cuda.device(self.device):
            nvrtc.kernels(self.device).launch(
                f"atari2600_{name}", -(-count // _BLOCK), _BLOCK, values
            )


class Cartridge:
    """A game's ROM and what else all its environments share, on a device."""

    def __init__(self, player: Player, name: str, *, keeps_boots: bool) -> None:
        """Insert it; with ``keeps_boots`` games just switched on are kept ready, if that is exact.

        Otherwise they are switched on anew each time, which takes as long as a hundred frames.
        """
        device, content, entry = player.device, roms.read(name), emulators.entry(name)
        rom = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(device)
        program = player.decode(rom)
        timers = torch.from_numpy(emulators.power_on_values()[1].copy()).to(device)
        self._kept = [rom, program, timers]
        game = emulators.c_game(entry, len(content), roms.minimal_actions(name))
        game.rom, game.program = rom.data_ptr(), program.data_ptr()
        game.timers, game.timer_count = timers.data_ptr(), len(timers)
        self.record = game
        if keeps_boots and not entry.boots_anew:
            booted = player.boot(name, game)
            self._kept.append(booted)
            game.booted = booted.data_ptr()
        if device.type == "cuda":  # other streams use it, too
            torch.cuda.synchronize(device)


@functools.cache
def player_on(device: torch.device) -> Player:
    """Return the functions that play on a device."""
    return Player(device)


@functools.cache
def cartridge(device: torch.device, name: str) -> Cartridge:
    """Return a game on a device; all batches of a process share it."""
    return Cartridge(player_on(device), name, keeps_boots=device.type == "cuda")


class Outcome(NamedTuple):
    """What a step of every environment led to; see the struct of ``agent.h``."""

    reward: Tensor
    """Not clipped; int32, as the score and the length."""
    terminated: Tensor
    truncated: Tensor
    begun: Tensor
    """A life or a game ended and a new one began: the newest frame is its first."""
    finished: Tensor
    """A whole game ended, and these are its score and its length."""
    score: Tensor
    length: Tensor


class _Group:
    """The environments of a batch that play one game."""

    def __init__(self, device: torch.device, rom: str, names: Sequence[str]) -> None:
        self.rom = rom
        members = [place for place, name in enumerate(names) if name == rom]
        self.count = len(members)
        self._cartridge = cartridge(device, rom)  # whose memory the game refers to
        record = bytearray(self._cartridge.record)
        self.game = torch.frombuffer(record, dtype=torch.uint8).to(device)
        self.members = torch.tensor(members, dtype=torch.int32, device=device)
        alone = self.count == len(names) or device.type != "cuda"
        self._stream = None if alone else torch.cuda.Stream(device)

    def beside_others(self) -> AbstractContextManager[Any]:
        """Return a context whose work runs after what is queued now, beside the other games."""
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        return torch.cuda.stream(self._stream)

    def join(self) -> None:
        """Let what is queued from now on wait for it."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)


class Batch:
    """Environments that step together.

    ``state`` is all that the next step depends on, a row for each environment. ``frames`` are the
    newest frames, and ``ended`` the last ones before a life or a game ended.
    """

    def __init__(
        self,
        names: Sequence[str],
        settings: Settings,
        device: torch.device,
        state: Mapping[str, Tensor] | None = None,
        launch: Launch | None = None,
    ) -> None:
        """Make environments that play the games of these names, one for each."""
        self.count, self.settings, self.device = len(names), settings, device
        self.player, self._launch = player_on(device), launch or launch_of(len(names))
        different = list(dict.fromkeys(names))
        if device.type == "cuda":
            nvrtc.prepare(device, different, self._launch.definitions)
        self._groups = [_Group(device, name, names) for name in different]
        self._ram = torch.from_numpy(emulators.power_on_values()[0].copy()).to(device)
        self._gray = torch.from_numpy(emulators.GRAYS.copy()).to(device)

        def empty(*shape: int) -> Tensor:
            return torch.zeros(self.count, *shape, dtype=torch.uint8, device=device)

        self.state: Tensors = (
            dict(state)
            if state is not None
            else {
                "consoles": empty(self.player.console_bytes),
                "screens": empty(2, SCREEN),
                "recordings": empty(self.player.recording_bytes),
                "stacks": empty(FRAMES, SIDE, SIDE),
            }
        )
        self.frames, self.ended = empty(SIDE, SIDE), empty(SIDE, SIDE)
        # A row is the struct Outcome: reward, four flags in one number, score, length.
        self._outcomes = torch.zeros(self.count, 4, dtype=torch.int32, device=device)
        self._actions = torch.zeros(self.count, dtype=torch.int64, device=device)

    def begin(self, seeds: Sequence[int]) -> None:
        """Insert the cartridges and begin the first games."""
        numbers = np.array(seeds, dtype=np.uint32).view(np.int32)
        seed = torch.from_numpy(numbers).to(self.device)
        self._play("begin", seeds=seed, ram=self._ram)

    def unsound(self, saved: Mapping[str, Tensor]) -> list[int]:
        """Return which environments of a saved state must not be played: see ``saved.h``."""
        consoles, recordings = (
            saved[name].to(self.device, copy=True, memory_format=torch.contiguous_format)
            for name in ("consoles", "recordings")
        )
        sound = torch.zeros(self.count, dtype=torch.uint8, device=self.device)
        for group in self._groups:
            count = ctypes.c_int32(group.count)
            arguments = [consoles, group.members, count, group.game, recordings, sound]
            self.player.check(group.count, arguments)
        unsound: list[int] = (sound == 0).nonzero().flatten().tolist()
        return unsound

    def reset(self) -> None:
        """Drop the running games and begin others."""
        self._play("restart")

    def play(self, action: Tensor) -> None:
        """Play one step of every environment; actions are numbers of the minimal action set."""
        self._actions.copy_(action)
        self._play("step", actions=self._actions, outcomes=self._outcomes)

    def _play(self, action: str, **tensors: Tensor) -> None:
        """Do something with all environments; games play side by side."""
        call = CCall(action=ACTIONS.index(action), settings=self.settings)
        state = self.state
        call.point(
            envs=state["consoles"],
            screens=state["screens"],
            recordings=state["recordings"],
            gray=self._gray,
            observations=self.frames,
            ended=self.ended,
            **tensors,
        )
        for group in self._groups:
            with group.beside_others():
                call.count = group.count
                call.point(members=group.members, game=group.game)
                self.player.play(group.rom, call, self._launch)
        for group in self._groups:
            group.join()

    def outcome(self) -> Outcome:
        """Return what the last step led to."""
        reward, flags, score, length = self._outcomes.unbind(1)
        terminated, truncated, begun, finished = (
            (flags >> shift & 0xFF).bool() for shift in (0, 8, 16, 24)
        )
        return Outcome(reward, terminated, truncated, begun, finished, score, length)

    def outcomes_on_host(self) -> NDArray[Any]:
        """Wait for the last step, and return what it led to as an array of ``OUTCOME``."""
        return self._outcomes.cpu().numpy().view(OUTCOME)[:, 0]

    def fill_stacks(self) -> Tensor:
        """Begin every stack with its newest frame, four times; return the stacks."""
        stacks = self.state["stacks"]
        stacks.copy_(self.frames.unsqueeze(1).expand_as(stacks))
        return stacks

    def advance_stacks(self, outcome: Outcome, *, refill_after_life: bool) -> Tensor:
        """Append the step's frames to the stacks; return the stacks before anything began anew."""
        stacks, newest = self.state["stacks"], self.frames.unsqueeze(1)
        begun, finished = (flag.view(-1, 1, 1, 1) for flag in (outcome.begun, outcome.finished))
        last = torch.where(begun, self.ended.unsqueeze(1), newest)
        final = torch.cat((stacks[:, 1:], last), 1)
        continued = torch.where(begun, torch.cat((final[:, 1:], newest), 1), final)
        refilled = begun if refill_after_life else finished
        stacks.copy_(torch.where(refilled, newest, continued))
        return final


def refusal(rom: str) -> str | None:
    """Say why a game cannot be played by these emulators; None if it can."""
    game = next(game for game in TABLE if game.rom == rom)
    return game.refused or None
