"""Atari: 57 games on the ALE, with the preprocessing of the published results.

Frame skip 4, the brighter of the last two frames, 84x84 grayscale, 4 frames stacked, no sticky
actions, minimal action set. In training, rewards are clipped to [-1, 1] and a lost life terminates;
scores are always those of whole games, unclipped.

A new game, and the play that follows a lost life, begin with actions that nobody chose, because
some games wait for FIRE. They are played inside the step in which the life ended, in training as
in greedy play, in one of two ways (``atari_reset``):

- ``cleanrl`` (CleanRL's environments, which are Stable-Baselines3's wrappers): a new game begins
  with 1 to 30 frames of no-ops; a lost life with one no-op step of 4 frames. Then FIRE and the
  action after it are held for a step each, in games that have FIRE. The stack becomes four copies
  of the new first frame. The score counts what these actions earn. A game is truncated 108,000
  frames after its reset.
- ``envpool``: a new game and a lost life alike begin with 1 to 30 single frames, no-ops and at
  last FIRE in games that have it. The stack becomes four copies of the new first frame in a new
  game, and goes on after a lost life. The score counts only chosen actions. A game is truncated
  after 27,000 steps.

A learner sees none of these actions: in training the step in which a life is lost hands over the
frame it was lost in as the true successor, and the new first observation to act on. Greedy play
goes on as if nothing had been between the two.

Every emulator can be saved and restored exactly, wherever it runs: ``AtariGames`` plays single
frames, in this process or in workers, and ``AtariEnvs`` stacks them on the learner's device, which
takes a quarter of the copying.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Envs, EnvSpec, Episode, State, Step
from hadamard.envs.common import (
    check_actions,
    check_num_envs,
    check_saved,
    check_task,
    copied,
    spread,
)

REQUIRES = ("ale_py", "gymnasium", "cv2")
EXTRA = "atari"
OPTIONS = ("atari_reset",)
SLOW = True
PRELOAD = ("ale_py", "cv2")

RESETS = ("cleanrl", "envpool")
FRAME_SKIP = 4
FRAMES = 4
FRAMES_PER_SECOND = 60
SIDE = 84
NOOP_MAX = 30
MAX_FRAMES = 108_000
"""Frames of the emulator since a game's reset after which ``cleanrl`` truncates it."""
MAX_STEPS = 27_000
"""Chosen actions after which ``envpool`` truncates a game."""

_Frame = NDArray[np.uint8]

_GAMES = """
Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling
Boxing Breakout Centipede ChopperCommand CrazyClimber Defender DemonAttack DoubleDunk Enduro
FishingDerby Freeway Frostbite Gopher Gravitar Hero IceHockey Jamesbond Kangaroo Krull
KungFuMaster MontezumaRevenge MsPacman NameThisGame Phoenix Pitfall Pong PrivateEye Qbert
Riverraid RoadRunner Robotank Seaquest Skiing Solaris SpaceInvaders StarGunner Surround Tennis
TimePilot Tutankham UpNDown Venture VideoPinball WizardOfWor YarsRevenge Zaxxon
"""


def tasks() -> tuple[str, ...]:
    """Return the games by their usual names."""
    return tuple(_GAMES.split())


def rom(task: str) -> str:
    """Return what ale-py calls a game.

    Examples:
        >>> rom("UpNDown")
        'up_n_down'
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", task).lower()


def make(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    atari_reset: str = "cleanrl",
) -> Envs:
    """Make a batch of one game in this process."""
    games = make_part(task, seed, num_envs, training=training, atari_reset=atari_reset)
    return assemble(games, device, training=training, atari_reset=atari_reset)


def make_part(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    atari_reset: str = "cleanrl",
) -> Envs:
    """Make what a process holds: games that hand over single frames."""
    del device  # single frames stay on the CPU until they are stacked
    check_task("atari", task, tasks())
    check_num_envs(num_envs)
    if atari_reset not in RESETS:
        raise ValueError(
            f"atari_reset (--train.atari-reset) must be {' or '.join(RESETS)}, got {atari_reset!r}"
        )
    games = [
        Game(open_emulator(rom(task), one, atari_reset), one, atari_reset, training=training)
        for one in spread(seed, num_envs)
    ]
    return AtariGames(games, training=training)


def assemble(
    games: Envs,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    atari_reset: str = "cleanrl",
) -> Envs:
    """Make the suite's environments of games that hand over single frames."""
    del training
    return AtariEnvs(games, device, refill_after_life=atari_reset == "cleanrl")


class AtariEnvs:
    """Stacks the frames of a batch of games on a device."""

    def __init__(
        self, games: Envs, device: torch.device | str = "cpu", *, refill_after_life: bool
    ) -> None:
        self.games = games
        self.device = torch.device(device)
        self.num_envs = games.num_envs
        self.exact = True
        self.spec = replace(games.spec, obs_shape=(FRAMES, SIDE, SIDE), frames=FRAMES)
        self._refill_after_life = refill_after_life
        # What was handed over last, which the next stacks continue: read, never written to.
        self._obs = torch.zeros(
            (self.num_envs, *self.spec.obs_shape), dtype=torch.uint8, device=self.device
        )

    def reset(self) -> Tensor:
        """Start new games everywhere, other ones each time."""
        self._obs = self._here(self.games.reset()).repeat(1, FRAMES, 1, 1)
        return self._obs

    def send(self, action: Tensor) -> None:
        """Start one step."""
        self.games.send(action)

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""
        step = self.games.receive()
        newest = self._here(step.obs)
        if step.final_index is None or step.final_obs is None:  # nearly always
            self._obs = _pushed(self._obs, newest)
            return replace(step, obs=self._obs)
        index = step.final_index.to(self.device)
        final_obs = _pushed(self._obs[index], self._here(step.final_obs))
        self._obs = _pushed(self._obs.index_copy(0, index, final_obs), newest)
        new_game = torch.tensor([episode.env for episode in step.episodes], dtype=torch.int64)
        refilled = index if self._refill_after_life else new_game.to(self.device)
        self._obs.index_copy_(0, refilled, newest[refilled].repeat(1, FRAMES, 1, 1))
        # In greedy play a lost life ends nothing.
        told = (step.terminated | step.truncated)[step.final_index]
        if not told.any():
            return replace(step, obs=self._obs, final_index=None, final_obs=None)
        return replace(
            step,
            obs=self._obs,
            final_index=step.final_index[told],
            final_obs=final_obs[told.to(self.device)],
        )

    def _here(self, frames: Tensor) -> Tensor:
        """Bring frames to where they are stacked; stacking copies them."""
        if frames.device.type == self.device.type:
            return frames
        return copied(frames.numpy(), self.device)

    def step(self, action: Tensor) -> Step:
        """Send and receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return the first game's screen in colour."""
        return self.games.render()

    def close(self) -> None:
        """Stop the games."""
        self.games.close()

    def state_dict(self) -> State:
        """Return the games and the stacks."""
        return {"games": self.games.state_dict(), "stacks": self._obs.to("cpu", copy=True)}

    def load_state_dict(self, state: State) -> Tensor:
        """Return to that state, and return the observations to act on there."""
        if "stacks" not in state:
            raise ValueError(
                "the saved Atari games are of an earlier version of hadamard and cannot be "
                "continued: train the run anew"
            )
        check_saved(len(state["stacks"]), self.num_envs)
        self.games.load_state_dict(state["games"])
        self._obs = torch.as_tensor(state["stacks"]).to(self.device)
        return self._obs


def _pushed(stacks: Tensor, newest: Tensor) -> Tensor:
    """Return new stacks, without the oldest frame and with the newest."""
    return torch.cat((stacks[:, 1:], newest), dim=1)


class AtariGames:
    """A batch of games in this process, which hands over their newest frames.

    A lost life is in ``final_index`` whether or not it terminates, since the stacks need the frame
    it was lost in. Observations are written again by the next step.
    """

    exact = True
    splits = True

    def __init__(self, games: Sequence[Game], *, training: bool) -> None:
        self._games = games
        self.training = training
        self.num_envs = len(games)
        self.spec = EnvSpec(
            (1, SIDE, SIDE),
            torch.uint8,
            len(games[0].actions),
            step_seconds=FRAME_SKIP / FRAMES_PER_SECOND,
        )
        self._frames = np.zeros((self.num_envs, 1, SIDE, SIDE), dtype=np.uint8)
        for game, frame in zip(games, self._frames[:, 0], strict=True):
            game.frame = frame
        self._obs = torch.from_numpy(self._frames)
        self._nowhere = torch.zeros(self.num_envs, dtype=torch.bool)
        self._action: list[int] | None = None

    def reset(self) -> Tensor:
        """Start new games everywhere, other ones each time."""
        self._action = None
        for game in self._games:
            game.reset()
        return self._obs

    def send(self, action: Tensor) -> None:
        """Keep the actions; the games are played in ``receive``."""
        if self._action is not None:
            raise RuntimeError("send() twice: the step under way was not received")
        self._action = check_actions(action, self.num_envs, self.spec).tolist()

    def receive(self) -> Step:
        """Play one step of every game."""
        if self._action is None:
            raise RuntimeError("receive() without send(): no step was started")
        results = [game.step(a) for game, a in zip(self._games, self._action, strict=True)]
        self._action = None
        reward = torch.tensor([result[0] for result in results], dtype=torch.float32)
        if self.training:  # whole numbers: their signs are what clipping to [-1, 1] leaves of them
            reward.sign_()
        ends = {env: end for env, (_, end) in enumerate(results) if end is not None}
        if not ends:
            return Step(self._obs, reward, self._nowhere, self._nowhere)
        terminated, truncated = self._nowhere.clone(), self._nowhere.clone()
        for env, end in ends.items():
            terminated[env], truncated[env] = end.terminated, end.truncated
        return Step(
            obs=self._obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final_index=torch.tensor(list(ends)),
            final_obs=torch.from_numpy(np.stack([end.frame[None] for end in ends.values()])),
            any_truncated=bool(truncated.any()),
            episodes=tuple(Episode(env, *end.game) for env, end in ends.items() if end.game),
        )

    def step(self, action: Tensor) -> Step:
        """Send and receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return the first game's screen in colour."""
        screen: _Frame = self._games[0].emulator.getScreenRGB()
        return screen.repeat(2, axis=0).repeat(2, axis=1)

    def close(self) -> None:
        """Forget the emulators."""
        self._games = ()

    def state_dict(self) -> State:
        """Return every game."""
        if self._action is not None:
            raise RuntimeError("a step is under way: receive() it before saving the state")
        return {"games": [game.state_dict() for game in self._games]}

    def load_state_dict(self, state: State) -> Tensor:
        """Return to that state, and return the newest frames there."""
        check_saved(len(state["games"]), self.num_envs)
        self._action = None
        for game, saved in zip(self._games, state["games"], strict=True):
            game.load_state_dict(saved)
        return self._obs


def open_emulator(game: str, seed: int, atari_reset: str) -> Any:
    """Return an emulator with a game in it."""
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
    """A life or a game that ended in a step; a new one has begun since."""

    frame: _Frame
    """The newest frame when it ended."""
    terminated: bool
    truncated: bool
    game: tuple[int, int] | None = None
    """Score and length of the game, if that ended."""


class Game:
    """One emulator under the rules of a reset; its newest frame is in ``frame``."""

    def __init__(self, emulator: Any, seed: int, atari_reset: str, *, training: bool) -> None:
        import cv2
        from ale_py import Action

        self.emulator = emulator
        self.actions = emulator.getMinimalActionSet()
        self.frame: _Frame = np.zeros((SIDE, SIDE), dtype=np.uint8)
        self.score = 0
        self.length = 0
        """Chosen actions of the running game."""
        self._training = training
        self._begin = self._begin_as_cleanrl if atari_reset == "cleanrl" else self._begin_as_envpool
        self._max_steps = MAX_STEPS if atari_reset == "envpool" else None
        self._noop = Action.NOOP
        self._fire = Action.FIRE if Action.FIRE in self.actions else None
        self._seed = seed
        self._draws = 0
        self._lives = 0
        self._finished: list[tuple[int, int]] = []
        self._last_action = Action.NOOP
        self._screen = np.zeros(emulator.getScreenDims(), dtype=np.uint8)
        self._screen_before = self._screen.copy()
        self._resize = cv2.resize
        self._by_area = cv2.INTER_AREA

    def reset(self) -> None:
        """Start a new game; the one that was running is forgotten."""
        self.length = 0
        self._begin(True)

    def step(self, index: int) -> tuple[int, End | None]:
        """Play a chosen action; return its reward, and what ended."""
        emulator = self.emulator
        reward = self._hold(self.actions[index])
        self.length += 1
        lives = emulator.lives()
        # Some games show no lives left for a while before they are over: that is no lost life.
        lost = 0 < lives < self._lives
        self._lives = lives
        stopped = emulator.game_over() or self.length == self._max_steps
        if not (stopped or lost):
            return reward, None
        terminated = emulator.game_over(with_truncation=False) or (lost and self._training)
        truncated = stopped and not terminated
        frame = self.frame.copy()
        self._finished.clear()
        self._begin(stopped)
        if self._finished and not truncated:
            terminated = True  # in greedy play too, where a forced action ended the game
        return reward, End(frame, terminated, truncated, *self._finished)

    def _begin_as_cleanrl(self, new_game: bool) -> None:
        """Do what the reset of FireResetEnv around EpisodicLifeEnv does."""
        self._begin_life(new_game)
        if self._fire is None:
            return
        for action in self.actions[1:3]:
            self._hold(action)
            lives = self.emulator.lives()
            over = self.emulator.game_over()
            if over or 0 < lives < self._lives:
                # The wrapper resets once more, and still hands over the frame from before that.
                shown = self.frame.copy()
                self._begin_life(over)
                self.frame[:] = shown
            self._lives = self.emulator.lives()

    def _begin_life(self, new_game: bool) -> None:
        """Do what the resets of EpisodicLifeEnv and, in a new game, of NoopResetEnv do."""
        if not new_game:
            self._hold(self._noop)
            new_game = self.emulator.game_over()
        if new_game:
            self._reset_game()
            for _ in range(1 + self._draw()):
                self.score += self._play(self._noop)
                if self.emulator.game_over():
                    self._reset_game()
            self._look()
        self._lives = self.emulator.lives()

    def _begin_as_envpool(self, new_game: bool) -> None:
        """Do what envpool's Reset() does."""
        if new_game:
            self._reset_game()
        for _ in range(self._draw() + (self._fire is None)):
            self._play(self._noop)
            if self.emulator.game_over():
                self._reset_game()
        if self._fire is not None:
            self._play(self._fire)
        self._look()
        self._lives = self.emulator.lives()

    def _reset_game(self) -> None:
        if self.length:  # one in which nothing was chosen is no game
            self._finished.append((self.score, self.length))
        self.score = self.length = 0
        self.emulator.reset_game()

    def _draw(self) -> int:
        """Return the next of the random numbers below 30 that follow from the seed."""
        drawn = np.random.SeedSequence((self._seed, self._draws)).generate_state(1)[0]
        self._draws += 1
        return int(drawn) % NOOP_MAX

    def _hold(self, action: Any) -> int:
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
        self._shrink()
        self.score += reward
        return reward

    def _play(self, action: Any) -> int:
        """Play an action for one frame; return the reward."""
        self._last_action = action
        reward: int = self.emulator.act(action)
        return reward

    def _look(self) -> None:
        """Take the screen as it is for the newest frame."""
        self.emulator.getScreenGrayscale(self._screen)
        self._shrink()

    def _shrink(self) -> None:
        self._resize(self._screen, (SIDE, SIDE), dst=self.frame, interpolation=self._by_area)

    def state_dict(self) -> State:
        """Return all that the next step depends on."""
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
        """Return to that state."""
        from ale_py import Action, ALEState

        self._last_action = Action(state["last_action"])
        saved = ALEState(torch.as_tensor(state["emulator"]).numpy(force=True).tobytes())
        self.emulator.restoreState(saved)
        # What the emulator leaves out of its state (the console's switches, the sprites' masks)
        # it takes from the frame before: play one in that place, and come back.
        for _ in range(FRAME_SKIP):
            self.emulator.act(self._last_action)
        self.emulator.restoreState(saved)
        self.frame[:] = np.asarray(state["frame"])
        self._seed, self._draws = state["seed"], state["draws"]
        self.score, self.length = state["score"], state["length"]
        self._lives = self.emulator.lives()
