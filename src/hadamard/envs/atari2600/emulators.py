"""Atari games on the host: a batch of one game, played by the library of ``source.py``."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadamard.envs.atari2600.games import TABLE, Game
from hadamard.envs.atari2600.source import host_library

HEIGHT, WIDTH, SIDE = 210, 160, 84
TIMER_VALUES = 65536
"""Power-ons with a timer value of their own; later ones repeat the last."""
_SEED = 4753849
"""ALE's console draws from std::mt19937 with this seed, whatever its random_seed."""
_PRESSED = {"": 0, "UP": 1, "DOWN": 2, "LEFT": 4, "RIGHT": 8, "FIRE": 16, "RESET": 32, "SELECT": 64}
_CARTRIDGES = ("CART_2K", "CART_4K", "CART_F8", "CART_F6", "CART_E0", "CART_FE")
_CONTROLLERS = ("JOYSTICK_LEFT", "JOYSTICK_RIGHT", "PADDLE_0", "PADDLE_1")
_MAX_ACTIONS, _BOOT_ENTRIES = 18, 12

# ALE's actions, by number, as what is pressed.
ACTIONS = tuple(
    sum(_PRESSED[part] for part in name.split("+"))
    for name in (
        "",
        *("FIRE", "UP", "RIGHT", "LEFT", "DOWN"),
        *("UP+RIGHT", "UP+LEFT", "DOWN+RIGHT", "DOWN+LEFT"),
        *("FIRE+UP", "FIRE+RIGHT", "FIRE+LEFT", "FIRE+DOWN"),
        *("FIRE+UP+RIGHT", "FIRE+UP+LEFT", "FIRE+DOWN+RIGHT", "FIRE+DOWN+LEFT"),
    )
)
FIRE = 1

GRAYS = np.frombuffer(
    bytes.fromhex(
        "004a6f8eaac0d6ec405f7a94acc1d6e93f576e8396a7b8c73b556b8194a7b7c7"
        "2c445a6e8092a1b0334a5f738495a4b2273f556b7d8f9fae16314960748899a9"
        "1129405568798999203c556d8296a8ba28455f788da2b6c82b4a657f97adc1d4"
        "2847627c93a9bdcf294a68849db5cbdf2f4f6b859db3c8dc2f4f6b859db3c8dc"
    ),
    dtype=np.uint8,
).repeat(2)
"""ALE's gray value of each color, which is an even number; read from its screens."""


class CGame(ctypes.Structure):
    """The struct Game of ``console.h``."""

    _fields_ = (
        ("rom", ctypes.c_void_p),
        ("program", ctypes.c_void_p),
        ("timers", ctypes.c_void_p),
        ("booted", ctypes.c_void_p),
        ("timer_count", ctypes.c_uint32),
        ("number", ctypes.c_int32),
        ("cartridge", ctypes.c_int32),
        ("controller", ctypes.c_int32),
        ("first_line", ctypes.c_int32),
        ("has_comb", ctypes.c_int32),
        ("num_actions", ctypes.c_int32),
        ("fire", ctypes.c_int32),
        ("actions", ctypes.c_uint8 * _MAX_ACTIONS),
        ("boot", ctypes.c_uint8 * (4 * _BOOT_ENTRIES)),
    )


class Settings(ctypes.Structure):
    """The struct of ``agent.h``."""

    _fields_ = tuple(
        (name, ctypes.c_int32) for name in ("protocol", "training", "most_steps", "most_frames")
    )


OUTCOME = np.dtype(
    [
        ("reward", np.int32),
        ("terminated", np.uint8),
        ("truncated", np.uint8),
        ("begun", np.uint8),
        ("finished", np.uint8),
        ("score", np.int32),
        ("length", np.int32),
    ]
)


@functools.cache
def power_on_values() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return RAM as it is first switched on, and the timer's value at each power-on since then."""
    generator = np.random.MT19937()
    generator._legacy_seeding(_SEED)
    draws = generator.random_raw(130 + TIMER_VALUES)
    timers = 25 + draws[130:] % 75
    return (draws[:128] & 0xFF).astype(np.uint8), timers.astype(np.uint8)


def entry(rom: str) -> Game:
    """Return a game's entry in the table."""
    return next(game for game in TABLE if game.rom == rom)


def c_game(game: Game, rom_bytes: int, actions: Sequence[int]) -> CGame:
    """Return a game as the source has it, without the addresses of what it refers to.

    ``actions`` are ALE's numbers of those that an agent has.
    """
    filled = CGame(
        number=TABLE.index(game),
        cartridge=_CARTRIDGES.index(game.cartridge_of(rom_bytes)),
        controller=_CONTROLLERS.index(game.controller),
        first_line=game.first_line,
        has_comb=game.comb,
        num_actions=len(actions),
        fire=list(actions).index(FIRE) if FIRE in actions else -1,
    )
    for place, action in enumerate(actions):
        filled.actions[place] = ACTIONS[action]
    for place, (pressed, *counts) in enumerate(game.boot):
        filled.boot[4 * place : 4 * place + 4] = [_PRESSED[pressed], *counts]
    return filled


class Emulators:
    """A batch of one game on the host; ``translated`` or played by the interpreter alone."""

    def __init__(
        self, rom: str, seeds: Sequence[int], actions: Sequence[int], *, translated: bool = False
    ) -> None:
        from ale_py import roms

        self.library = host_library(rom if translated else None)
        path = roms.get_rom_path(rom)
        if path is None:
            raise ValueError(f"this ale-py has no ROM called {rom!r}: install ale-py>=0.12")
        game = entry(rom)
        self.count = len(seeds)
        self._rom = np.frombuffer(Path(path).read_bytes(), dtype=np.uint8).copy()
        self._program = np.zeros(len(self._rom), dtype=np.uint64)
        self.library.atari2600_decode(_pointer(self._rom), len(self._rom), _pointer(self._program))
        self._ram, self._timers = power_on_values()
        self._grays = GRAYS.copy()
        self.game = c_game(game, len(self._rom), actions)
        self.game.rom = _pointer(self._rom).value
        self.game.program = _pointer(self._program).value
        self.game.timers = _pointer(self._timers).value
        self.game.timer_count = len(self._timers)
        assert self.library.atari2600_game_bytes() == ctypes.sizeof(CGame)
        assert self.library.atari2600_outcome_bytes() == OUTCOME.itemsize
        size = self.library.atari2600_environment_bytes()
        self.state = np.zeros((self.count, size), dtype=np.uint8)
        self.screens = np.zeros((self.count, 2, HEIGHT, WIDTH), dtype=np.uint8)
        film = self.library.atari2600_recording_bytes()
        self._recordings = np.zeros((self.count, film), dtype=np.uint8)
        self.observations = np.zeros((self.count, SIDE, SIDE), dtype=np.uint8)
        self.ended = np.zeros_like(self.observations)
        self.outcomes = np.zeros(self.count, dtype=OUTCOME)
        self._seeds = np.array(seeds, dtype=np.uint32)
        self.library.atari2600_insert(
            _pointer(self.state),
            self.count,
            ctypes.byref(self.game),
            _pointer(self._ram),
            _pointer(self._seeds),
            *self._film(),
        )

    def keep_boots(self, timers: Sequence[int]) -> None:
        """Keep the game ready as it is just switched on with these values of the timer."""
        self._booted = np.zeros(self.library.atari2600_booted_bytes(), dtype=np.uint8)
        screens, recordings = np.zeros_like(self.screens[0]), np.zeros_like(self._recordings[0])
        for timer in timers:
            self.library.atari2600_boot(
                ctypes.byref(self.game),
                int(timer),
                *map(_pointer, (self._booted, screens, recordings)),
            )
        self.game.booted = _pointer(self._booted).value

    def reset(self, settings: Settings) -> None:
        """Begin new games everywhere."""
        self.library.atari2600_reset(
            _pointer(self.state),
            self.count,
            ctypes.byref(self.game),
            ctypes.byref(settings),
            *self._views(),
        )

    def step(self, actions: NDArray[np.int32], settings: Settings) -> None:
        """Play one step everywhere; what came of it is in ``outcomes`` and ``observations``."""
        self.library.atari2600_step(
            _pointer(self.state),
            self.count,
            ctypes.byref(self.game),
            ctypes.byref(settings),
            _pointer(actions),
            _pointer(self.outcomes),
            *self._views(),
        )

    def _views(self) -> tuple[ctypes.c_void_p, ...]:
        buffers = (self._grays, self.observations, self.ended)
        return (*self._film(), *map(_pointer, buffers))

    def _film(self) -> tuple[ctypes.c_void_p, ...]:
        return _pointer(self.screens), _pointer(self._recordings)

    def new_game(self) -> None:
        """Switch the first environment's game on."""
        self.library.atari2600_new_game(
            _pointer(self.state), ctypes.byref(self.game), *self._film()
        )

    def frame(self, action: int) -> int:
        """Play one frame of the first environment; return the reward."""
        reward: int = self.library.atari2600_frame(
            _pointer(self.state), ctypes.byref(self.game), ACTIONS[action], *self._film()
        )
        return reward

    def look(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int, bool]:
        """Return RAM, screen, lives and end of the first environment."""
        ram, values = np.zeros(128, dtype=np.uint8), np.zeros(3, dtype=np.int32)
        self.library.atari2600_look(
            _pointer(self.state),
            ctypes.byref(self.game),
            *self._film(),
            _pointer(ram),
            _pointer(values),
        )
        return ram, self.screens[0, values[2]], int(values[0]), bool(values[1])


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
