"""Atari: 57 games on the ALE, with the preprocessing of the published results.

Frame skip 4, the brighter of the last two frames, 84x84 grayscale, 4 frames stacked (black before
the first), up to 29 frames of no-ops at the start of a game (FIRE first, where the game has it),
no sticky actions, minimal action set, games truncated after 108,000 frames. In training, rewards
are clipped to [-1, 1] and a lost life that does not end the game terminates, without a reset;
scores are always those of whole games, unclipped.

There are two forms, with the same rules and the same frames:

- fast (``exact=False``): ale-py's vector environment, its own threads. Emulators cannot be saved:
  the state holds the seed and a clock that advances with every step. After ``load_state_dict``,
  ``reset`` starts new games, seeded by that clock, so that a resumed run is reproducible and does
  not replay its first games; games that were under way are lost.
- strict (``exact=True``): one emulator after another in this process. The state holds every
  emulator, its count of games and the frame stacks, and play continues bit for bit, in another
  process too. A single game is always played so: handing it to a thread takes longer.

Either hands over single frames; they are stacked on the learner's device, which takes a quarter
of the copying.

They differ in one frame: when a game ends, the vector environment repeats an older frame instead
of showing the last one. That step is terminated, so nothing bootstraps from it.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Envs, EnvSpec, Episode, State, Step
from hadamard.envs.common import (
    Tally,
    check_actions,
    check_num_envs,
    check_saved,
    check_task,
    copied,
    spread,
)

REQUIRES = ("ale_py", "gymnasium", "cv2")
EXTRA = "atari"

FRAME_SKIP = 4
FRAMES = 4
FRAMES_PER_SECOND = 60
SIDE = 84
NOOP_MAX = 30
MAX_STEPS = 27_000
"""Steps of 4 frames after which a game is truncated."""

# The vector environment's own limit must never be reached: it counts frames, and shows a stale
# frame as the truncated game's last, from which a learner would bootstrap.
_NO_LIMIT = 1_000_000_000

_Lives = NDArray[np.int32]
_Frames = NDArray[np.uint8]

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
    seed: int,
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    exact: bool = False,
) -> Envs:
    """Make a batch of one game, fast or strict; see the module for what sets them apart."""
    check_task("atari", task, tasks())
    check_num_envs(num_envs)
    form = _OneByOne if exact or num_envs == 1 else _Vector
    return AtariEnvs(form(rom(task), seed, num_envs), device, training=training)


class _Emulators(Protocol):
    """A batch of preprocessed games: frames and lives, and no rules of learning.

    Frames are the newest of every game, (num_envs, 1, 84, 84).
    """

    num_envs: int
    num_actions: int
    exact: bool

    def reset(self) -> tuple[_Frames, _Lives]:
        """Start new games everywhere."""

    def restart(self, chosen: NDArray[np.bool_]) -> tuple[_Frames, _Lives]:
        """Start new games where chosen; return the frames and lives of all."""

    def send(self, action: NDArray[np.int64]) -> None:
        """Start a step."""

    def receive(
        self,
    ) -> tuple[_Frames, NDArray[Any], NDArray[np.bool_], _Lives, _Frames | None]:
        """Return frames, rewards, which games were over (and start anew), lives, last frames.

        The caller may keep the arrays. Where a game was over, its frame is the first of the next
        game; the last frames are valid only there.
        """

    def screen(self) -> _Frames | None:
        """Return the first game's screen in colour, where it can be had."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> _Lives | None:
        """Return to that state, and return the lives there where the games were saved."""

    def close(self) -> None: ...


class AtariEnvs:
    """A batch of one Atari game under the rules of learning: stacks, lives, clipping, limit."""

    def __init__(
        self, emulators: _Emulators, device: torch.device | str = "cpu", *, training: bool = True
    ) -> None:
        self._emulators = emulators
        self.device = torch.device(device)
        self.training = training
        self.num_envs = emulators.num_envs
        self.exact = emulators.exact
        self.spec = EnvSpec(
            (FRAMES, SIDE, SIDE),
            torch.uint8,
            emulators.num_actions,
            FRAMES,
            step_seconds=FRAME_SKIP / FRAMES_PER_SECOND,
        )
        # What was handed over last, which the next stacks continue: read, never written to.
        self._obs = self._black()
        self._tally = Tally(self.num_envs)
        self._lives: _Lives = np.zeros(self.num_envs, dtype=np.int32)
        self._sent = False
        self._on_cpu = self.device.type == "cpu"
        self._nowhere = torch.zeros(self.num_envs, dtype=torch.bool)

    def reset(self) -> Tensor:
        """Start new games everywhere, other ones each time."""
        if self._sent:
            self.receive()
        frames, self._lives = self._emulators.reset()
        self._tally.clear()
        self._obs = _pushed(self._black(), copied(frames, self.device))
        return self._obs

    def send(self, action: Tensor) -> None:
        """Start one step; the fast form plays it in the background."""
        if self._sent:
            raise RuntimeError("send() twice: the step under way was not received")
        self._emulators.send(check_actions(action, self.num_envs, self.spec))
        self._sent = True

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""
        if not self._sent:
            raise RuntimeError("receive() without send(): no step was started")
        self._sent = False
        frames, reward, over, lives, last_frames = self._emulators.receive()
        self._tally.add(reward)
        # Whole numbers: their signs are what clipping to [-1, 1] leaves of them.
        learned = np.sign(reward) if self.training else reward
        told = torch.from_numpy(learned.astype(np.float32))
        eventful = over | (lives < self._lives) | (self._tally.lengths >= MAX_STEPS)
        if not eventful.any():  # nearly always, and one game's next step waits for this one
            self._lives = lives
            self._obs = _pushed(self._obs, self._there(frames))
            return Step(self._obs, told, self._nowhere, self._nowhere)
        # Some games show no lives left for a while before they are over: that is no lost life.
        lost = ~over & (lives > 0) & (lives < self._lives)
        terminated = over | lost if self.training else over
        capped = (self._tally.lengths >= MAX_STEPS) & ~over
        truncated = capped & ~terminated
        ended = np.flatnonzero(over | capped)
        episodes: list[Episode] = []
        before = self._obs
        final_index = final_obs = None
        if ended.size:
            newest = frames[ended]
            if last_frames is not None:
                is_over = over[ended]
                newest[is_over] = last_frames[ended[is_over]]
            final_index = torch.from_numpy(ended)
            started = copied(ended, self.device)
            final_obs = _pushed(before[started], copied(newest, self.device))
            episodes = [self._tally.finish(env) for env in ended.tolist()]
            if capped.any():
                frames, lives = self._emulators.restart(capped)
            before = before.index_fill(0, started, 0)
        self._lives = lives
        self._obs = _pushed(before, self._there(frames))
        return Step(
            obs=self._obs,
            reward=told,
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            final_index=final_index,
            final_obs=final_obs,
            any_truncated=bool(truncated.any()),
            episodes=tuple(episodes),
        )

    def _there(self, frames: _Frames) -> Tensor:
        """Bring frames to where they are stacked, which copies them anyhow."""
        return torch.from_numpy(frames) if self._on_cpu else copied(frames, self.device)

    def step(self, action: Tensor) -> Step:
        """Send and receive."""
        self.send(action)
        return self.receive()

    def render(self) -> _Frames:
        """Return the first game's screen: in colour (strict), or its newest frame (fast)."""
        screen = self._emulators.screen()
        scale = 2
        if screen is None:
            newest = self._obs[0, -1].numpy(force=True)
            screen, scale = np.repeat(newest[:, :, None], 3, axis=2), 5
        return screen.repeat(scale, axis=0).repeat(scale, axis=1)

    def close(self) -> None:
        """Stop the emulators."""
        if self._sent:
            self.receive()
        self._emulators.close()

    def state_dict(self) -> State:
        """Return the games (strict), or what seeds the next ones (fast)."""
        if self._sent:
            raise RuntimeError("a step is under way: receive() it before saving the state")
        state: State = {"exact": self.exact, "emulators": self._emulators.state_dict()}
        if self.exact:
            state.update(self._tally.state_dict(), obs=self._obs.to("cpu", copy=True))
        return state

    def load_state_dict(self, state: State) -> Tensor | None:
        """Return to that state, and return the observations to act on there (strict only)."""
        if self._sent:
            self.receive()
        if state["exact"] != self.exact:
            raise ValueError(
                f"the saved state is of environments made with exact={state['exact']}: "
                f"make these with exact={state['exact']} too"
            )
        if self.exact and "obs" not in state:
            raise ValueError("the saved state has no frame stacks: it is of an earlier version")
        lives = self._emulators.load_state_dict(state["emulators"])
        if lives is None:
            self._tally.clear()
            return None
        self._lives = lives
        self._tally.load_state_dict(state)
        self._obs = torch.as_tensor(state["obs"]).to(self.device)
        return self._obs

    def _black(self) -> Tensor:
        return torch.zeros(
            (self.num_envs, *self.spec.obs_shape), dtype=torch.uint8, device=self.device
        )


def _pushed(stacks: Tensor, newest: Tensor) -> Tensor:
    """Return new stacks, without the oldest frame and with the newest."""
    return torch.cat((stacks[:, 1:], newest), dim=1)


class _Vector:
    """The fast form: ale-py's vector environment."""

    exact = False

    def __init__(self, game: str, seed: int, num_envs: int) -> None:
        from ale_py.vector_env import AtariVectorEnv
        from gymnasium.vector import AutoresetMode

        spread(seed, 1)
        self.num_envs = num_envs
        self._seed = seed
        self._clock = 0
        # episodic_life would restart the whole game at every lost life; lives are watched by
        # AtariEnvs instead.
        self._env = AtariVectorEnv(
            game,
            num_envs,
            frameskip=FRAME_SKIP,
            stack_num=1,
            img_height=SIDE,
            img_width=SIDE,
            noop_max=NOOP_MAX,
            max_num_frames_per_episode=_NO_LIMIT,
            repeat_action_probability=0.0,
            reward_clipping=False,
            episodic_life=False,
            life_loss_info=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.num_actions = len(self._env.ale.get_action_set())

    def reset(self) -> tuple[_Frames, _Lives]:
        sequence = np.random.SeedSequence((self._seed, self._clock))
        self._clock += 1
        # ale-py takes 31 bits.
        seeds = (sequence.generate_state(self.num_envs) >> 1).astype(np.int64)
        frames, info = self._env.reset(seed=seeds)
        return frames, info["lives"]

    def restart(self, chosen: NDArray[np.bool_]) -> tuple[_Frames, _Lives]:
        frames, info = self._env.reset(options={"reset_mask": chosen})
        return frames, info["lives"]

    def send(self, action: NDArray[np.int64]) -> None:
        self._clock += 1
        self._env.send(action)

    def receive(
        self,
    ) -> tuple[_Frames, NDArray[Any], NDArray[np.bool_], _Lives, _Frames | None]:
        frames, reward, over, _truncated, info = self._env.recv()
        return frames, reward, over, info["lives"], info.get("final_obs")

    def screen(self) -> None:
        return None

    def state_dict(self) -> State:
        return {"seed": self._seed, "clock": self._clock}

    def load_state_dict(self, state: State) -> None:
        self._seed = state["seed"]
        self._clock = state["clock"]

    def close(self) -> None:
        self._env.close()


class _OneByOne:
    """The strict form: single emulators whose whole state can be saved."""

    exact = True

    def __init__(self, game: str, seed: int, num_envs: int) -> None:
        self.num_envs = num_envs
        self._screens = np.zeros((num_envs, 1, SIDE, SIDE), dtype=np.uint8)
        seeds = spread(seed, num_envs)
        self._games = [_Game(game, *each) for each in zip(seeds, self._screens[:, 0], strict=True)]
        self.num_actions = len(self._games[0].actions)
        self._action: list[int] = []

    def _frames(self) -> _Frames:
        return self._screens.copy()

    def _lives(self) -> _Lives:
        return np.array([game.ale.lives() for game in self._games], dtype=np.int32)

    def reset(self) -> tuple[_Frames, _Lives]:
        for game in self._games:
            game.reset()
        return self._frames(), self._lives()

    def restart(self, chosen: NDArray[np.bool_]) -> tuple[_Frames, _Lives]:
        for env in np.flatnonzero(chosen):
            self._games[env].reset()
        return self._frames(), self._lives()

    def send(self, action: NDArray[np.int64]) -> None:
        self._action = action.tolist()

    def receive(
        self,
    ) -> tuple[_Frames, NDArray[Any], NDArray[np.bool_], _Lives, _Frames | None]:
        played = [game.step(a) for game, a in zip(self._games, self._action, strict=True)]
        rewards, ends = zip(*played, strict=True)
        last_frames = None
        if any(ends):
            last_frames = self._frames()
            for game, ended in zip(self._games, ends, strict=True):
                if ended:
                    game.reset()
        reward, over = np.array(rewards, dtype=np.int64), np.array(ends, dtype=np.bool_)
        return self._frames(), reward, over, self._lives(), last_frames

    def screen(self) -> _Frames:
        screen: _Frames = self._games[0].ale.getScreenRGB()
        return screen

    def state_dict(self) -> State:
        return {"games": [game.state_dict() for game in self._games]}

    def load_state_dict(self, state: State) -> _Lives:
        check_saved(len(state["games"]), self.num_envs)
        for game, saved in zip(self._games, state["games"], strict=True):
            game.load_state_dict(saved)
        return self._lives()

    def close(self) -> None:
        self._games.clear()


class _Game:
    """One emulator, doing what ale-py's vector environment does; shows its newest frame."""

    def __init__(self, game: str, seed: int, frame: _Frames) -> None:
        import cv2
        from ale_py import Action, ALEInterface, LoggerMode, roms

        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.ale = ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("random_seed", seed >> 1)
        path = roms.get_rom_path(game)
        if path is None:
            raise ValueError(f"this ale-py has no ROM called {game!r}: install ale-py>=0.12")
        self.ale.loadROM(path)
        self.actions = self.ale.getMinimalActionSet()
        self.frame = frame  # (84, 84), written to
        self._noop = Action.NOOP
        self._fire = Action.FIRE if Action.FIRE in self.actions else None
        self._seed = seed
        self._played = 0
        self._last_action = 0
        self._screen = np.zeros(self.ale.getScreenDims(), dtype=np.uint8)
        self._screen_before = self._screen.copy()
        self._resize = cv2.resize
        self._by_area = cv2.INTER_AREA

    def reset(self) -> None:
        """Start the next game after a number of no-ops that follows from the seed."""
        drawn = np.random.SeedSequence((self._seed, self._played)).generate_state(1)[0]
        self._played += 1
        self.begin(int(drawn) % NOOP_MAX)

    def begin(self, noops: int) -> None:
        """Start a game; pressing FIRE takes the place of one no-op."""
        ale = self.ale
        ale.reset_game()
        if self._fire is not None:
            ale.act(self._fire)
            noops -= 1
        for _ in range(noops):
            ale.act(self._noop)
            if ale.game_over():
                ale.reset_game()
        ale.getScreenGrayscale(self._screen)
        self._shrink()

    def step(self, index: int) -> tuple[int, bool]:
        """Hold an action for up to four frames; return the reward and whether the game is over."""
        ale, action = self.ale, self.actions[index]
        self._last_action = index
        reward = 0
        self._screen_before.fill(0)
        for frame in range(1, FRAME_SKIP + 1):
            reward += ale.act(action)
            if ale.game_over():
                break
            if frame == FRAME_SKIP - 1:
                ale.getScreenGrayscale(self._screen_before)
        ale.getScreenGrayscale(self._screen)
        np.maximum(self._screen, self._screen_before, out=self._screen)
        self._shrink()
        return reward, ale.game_over()

    def _shrink(self) -> None:
        self._resize(self._screen, (SIDE, SIDE), dst=self.frame, interpolation=self._by_area)

    def state_dict(self) -> State:
        emulator = bytearray(self.ale.cloneState(include_rng=True).serialize())
        return {
            "emulator": torch.frombuffer(emulator, dtype=torch.uint8),
            "seed": self._seed,
            "played": self._played,
            "last_action": self._last_action,
        }

    def load_state_dict(self, state: State) -> None:
        from ale_py import ALEState

        self._last_action = state["last_action"]
        saved = ALEState(torch.as_tensor(state["emulator"]).numpy(force=True).tobytes())
        self.ale.restoreState(saved)
        # What the emulator leaves out of its state (the console's switches, the sprites' masks)
        # it takes from the frame before: play one in that place, and come back.
        for _ in range(FRAME_SKIP):
            self.ale.act(self.actions[self._last_action])
        self.ale.restoreState(saved)
        self._seed = state["seed"]
        self._played = state["played"]
