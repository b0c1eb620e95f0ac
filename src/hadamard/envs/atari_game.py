"""One Atari game: an emulator, the frames it shows, and how games and lives begin.

Forced actions start a new game and play after a lost life, in one of two ways (``atari_reset``):

- ``cleanrl`` (CleanRL's environments, which are Stable-Baselines3's wrappers): a new game begins
  with 1 to 30 frames of no-ops; a lost life with one no-op step of 4 frames. Then, in games that
  have FIRE, FIRE and the action after it are held for a step each. The stack becomes four copies
  of the new first frame. The score includes what these actions earn. A game is truncated 108,000
  frames after its reset.
- ``envpool``: a new game and a lost life alike begin with 1 to 30 single frames of no-ops; in games
  that have FIRE, the last of them is FIRE instead. The stack becomes four copies of the new first
  frame in a new game, and continues after a lost life. The score counts only chosen actions. A game
  is truncated after 27,000 steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.core.types import State

FRAME_SKIP = 4
SIDE = 84
NOOP_MAX = 30
MAX_FRAMES = 108_000
"""Frames of the emulator since a game's reset after which ``cleanrl`` truncates it."""
MAX_STEPS = 27_000
"""Chosen actions after which ``envpool`` truncates a game."""

Frame = NDArray[np.uint8]


def open_emulator(game: str, seed: int, atari_reset: str) -> Any:
    """Return an emulator that has loaded a game."""
    from ale_py import ALEInterface, LoggerMode, roms

    ALEInterface.setLoggerMode(LoggerMode.Error)
    emulator = ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.setInt("random_seed", seed >> 1)  # 31 bits
    if atari_reset == "cleanrl":
        emulator.setInt("max_num_frames_per_episode", MAX_FRAMES)
    path = roms.get_rom_path(game)
    if path is None:
        raise ValueError(f"this ale-py has no ROM called {game!r}: install ale-py>=0.12")
    emulator.loadROM(path)
    return emulator


class End(NamedTuple):
    """A life or a game that ended in a step, after which a new one has begun."""

    frame: Frame
    """The last frame before the end."""
    terminated: bool
    truncated: bool
    game: tuple[int, int] | None = None
    """Score and length of the game, if a whole game ended."""


class Game:
    """One game on an emulator; ``frame`` is its newest frame, 84x84."""

    def __init__(self, emulator: Any, seed: int, atari_reset: str, *, training: bool) -> None:
        import cv2
        from ale_py import Action

        self.emulator = emulator
        self.actions = emulator.getMinimalActionSet()
        self.frame: Frame = np.zeros((SIDE, SIDE), dtype=np.uint8)
        self.score = 0
        self.length = 0
        """Chosen actions in the running game."""
        self._training = training
        self._begin = self._begin_as_cleanrl if atari_reset == "cleanrl" else self._begin_as_envpool
        self._max_steps = MAX_STEPS if atari_reset == "envpool" else None
        self._noop = Action.NOOP
        self._fire = Action.FIRE if Action.FIRE in self.actions else None
        self._seed = seed
        self._draws = 0  # random numbers drawn so far
        self._lives = 0
        self._finished_games: list[tuple[int, int]] = []
        self._last_action = Action.NOOP
        self._screen = np.zeros(emulator.getScreenDims(), dtype=np.uint8)
        self._screen_before = self._screen.copy()
        self._resize = cv2.resize
        self._interpolation = cv2.INTER_AREA

    def reset(self) -> None:
        """Start a new game; the running one is dropped."""
        self.length = 0
        self._begin(True)

    def step(self, index: int) -> tuple[int, End | None]:
        """Play a chosen action; return its reward, and the life or game that ended, if any."""
        emulator = self.emulator
        reward = self._repeat(self.actions[index])
        self.length += 1
        lives = emulator.lives()
        # Some games show 0 lives for a while before they are over: that is not a lost life.
        life_lost = 0 < lives < self._lives
        self._lives = lives
        game_ended = emulator.game_over() or self.length == self._max_steps
        if not (game_ended or life_lost):
            return reward, None
        terminated = emulator.game_over(with_truncation=False) or (life_lost and self._training)
        truncated = game_ended and not terminated
        frame = self.frame.copy()
        self._finished_games.clear()
        self._begin(game_ended)
        if self._finished_games and not truncated:
            terminated = True  # a forced action ended the game, which counts in greedy play too
        return reward, End(frame, terminated, truncated, *self._finished_games)

    def _begin_as_cleanrl(self, new_game: bool) -> None:
        """Do what the reset of FireResetEnv around EpisodicLifeEnv does."""
        self._begin_life(new_game)
        if self._fire is None:
            return
        for action in self.actions[1:3]:
            self._repeat(action)
            lives = self.emulator.lives()
            over = self.emulator.game_over()
            if over or 0 < lives < self._lives:
                # The wrapper resets again, but still returns the frame from before that reset.
                frame = self.frame.copy()
                self._begin_life(over)
                self.frame[:] = frame
            self._lives = self.emulator.lives()

    def _begin_life(self, new_game: bool) -> None:
        """Do what the reset of EpisodicLifeEnv does and, in a new game, that of NoopResetEnv."""
        if not new_game:
            self._repeat(self._noop)
            new_game = self.emulator.game_over()
        if new_game:
            self._reset_game()
            for _ in range(1 + self._random_number()):
                self.score += self._act(self._noop)
                if self.emulator.game_over():
                    self._reset_game()
            self._capture()
        self._lives = self.emulator.lives()

    def _begin_as_envpool(self, new_game: bool) -> None:
        """Do what envpool's Reset() does."""
        if new_game:
            self._reset_game()
        for _ in range(self._random_number() + (self._fire is None)):
            self._act(self._noop)
            if self.emulator.game_over():
                self._reset_game()
        if self._fire is not None:
            self._act(self._fire)
        self._capture()
        self._lives = self.emulator.lives()

    def _reset_game(self) -> None:
        if self.length:  # a game without a chosen action is not reported
            self._finished_games.append((self.score, self.length))
        self.score = self.length = 0
        self.emulator.reset_game()

    def _random_number(self) -> int:
        """Return the next random number below 30; the sequence follows from the seed."""
        number = np.random.SeedSequence((self._seed, self._draws)).generate_state(1)[0]
        self._draws += 1
        return int(number) % NOOP_MAX

    def _repeat(self, action: Any) -> int:
        """Play an action for four frames, or until the game ends; return the reward."""
        emulator = self.emulator
        self._last_action = action
        reward = 0
        self._screen_before.fill(0)
        for frame in range(1, FRAME_SKIP + 1):
            reward += emulator.act(action)
            if emulator.game_over():
                break
            if frame == FRAME_SKIP - 1:
                emulator.getScreenGrayscale(self._screen_before)
        emulator.getScreenGrayscale(self._screen)
        np.maximum(self._screen, self._screen_before, out=self._screen)
        self._resize_screen()
        self.score += reward
        return reward

    def _act(self, action: Any) -> int:
        """Play an action for one frame; return the reward."""
        self._last_action = action
        reward: int = self.emulator.act(action)
        return reward

    def _capture(self) -> None:
        """Make the current screen the newest frame."""
        self.emulator.getScreenGrayscale(self._screen)
        self._resize_screen()

    def _resize_screen(self) -> None:
        self._resize(self._screen, (SIDE, SIDE), dst=self.frame, interpolation=self._interpolation)

    def state_dict(self) -> State:
        """Return everything that the next step depends on."""
        emulator = bytearray(self.emulator.cloneState(include_rng=True).serialize())
        return {
            "emulator": torch.frombuffer(emulator, dtype=torch.uint8),
            "frame": self.frame.copy(),
            "seed": self._seed,
            "draws": self._draws,
            "score": self.score,
            "length": self.length,
            "last_action": self._last_action.value,
        }

    def load_state_dict(self, state: State) -> None:
        """Load a state."""
        from ale_py import Action, ALEState

        self._last_action = Action(state["last_action"])
        saved = ALEState(torch.as_tensor(state["emulator"]).numpy(force=True).tobytes())
        self.emulator.restoreState(saved)
        # The emulator's state lacks parts (the console's switches, the sprites' masks) that follow
        # from the frames just played: play some with the last action, then restore again.
        for _ in range(FRAME_SKIP):
            self.emulator.act(self._last_action)
        self.emulator.restoreState(saved)
        self.frame[:] = np.asarray(state["frame"])
        self._seed, self._draws = state["seed"], state["draws"]
        self.score, self.length = state["score"], state["length"]
        self._lives = self.emulator.lives()
