"""Atari: 57 games on the ALE, with the preprocessing of the published results.

Frame skip 4, the brighter of the last two frames, 84x84 grayscale, 4 frames stacked, no sticky
actions, minimal action set. In training, rewards are clipped to [-1, 1] and a lost life terminates;
scores are always those of whole games, unclipped.

Some games wait for FIRE, so a new game, and play after a lost life, begin with forced actions.
``atari_reset`` chooses which: ``cleanrl`` or ``envpool``, both described in ``atari_game.py``. They
are played within the step in which the life ended, in training and in greedy play alike.

A learner never sees the forced actions: in training, the step in which a life is lost returns the
frame it was lost in as the true successor, and the first observation after them to act on. In
greedy play, the step simply returns that observation.

``AtariGames`` plays the games and returns single frames, in this process or in workers;
``AtariEnvs`` stacks the frames on the learner's device, so that only a quarter of each observation
is copied there. The state is exact. ``EmulatedGames`` (``atari_on_device.py``) are the same games
on a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Envs, EnvSpec, Episode, State, Step
from hadamard.envs.atari2600 import roms
from hadamard.envs.atari2600.batch import refusal
from hadamard.envs.atari2600.nvrtc import NoGpuEmulators, check_gpu
from hadamard.envs.atari_game import FRAME_SKIP, SIDE, Frame, Game, open_emulator
from hadamard.envs.atari_on_device import SHORTEST_CUT, EmulatedGames
from hadamard.envs.common import (
    check_actions,
    check_num_envs,
    check_saved,
    check_task,
    copy_to_device,
    environment_seeds,
)

REQUIRES = ("ale_py", "gymnasium", "cv2")
EXTRA = "atari"
OPTIONS = ("atari_reset",)
SLOW = True
PRELOAD = ("ale_py", "cv2")

RESETS = ("cleanrl", "envpool")
FRAMES = 4
FRAMES_PER_SECOND = 60

_GAMES = """
Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling
Boxing Breakout Centipede ChopperCommand CrazyClimber Defender DemonAttack DoubleDunk Enduro
FishingDerby Freeway Frostbite Gopher Gravitar Hero IceHockey Jamesbond Kangaroo Krull
KungFuMaster MontezumaRevenge MsPacman NameThisGame Phoenix Pitfall Pong PrivateEye Qbert
Riverraid RoadRunner Robotank Seaquest Skiing Solaris SpaceInvaders StarGunner Surround Tennis
TimePilot Tutankham UpNDown Venture VideoPinball WizardOfWor YarsRevenge Zaxxon
"""


def tasks() -> tuple[str, ...]:
    """Return the games."""
    return tuple(_GAMES.split())


def rom(task: str) -> str:
    """Return ale-py's name of a game.

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


def make_on_device(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    atari_reset: str = "cleanrl",
) -> EmulatedGames:
    """Make a batch of one game that plays on the learner's device: ``--train.emulators gpu``."""
    check_task("atari", task, tasks())
    check_reset(atari_reset)
    return EmulatedGames(
        [rom(task)] * num_envs,
        environment_seeds(seed, num_envs),
        device,
        training=training,
        atari_reset=atari_reset,
    )


def longest_rollout(task: str) -> int:
    """Return a number of steps in which no game on the device is truncated twice."""
    del task
    return SHORTEST_CUT


def emulator_trouble(task: str, device: torch.device) -> str | None:
    """Say why a game cannot be played by the emulators of a GPU; None if it can.

    The first call on a machine compiles them, which takes some seconds.
    """
    name = rom(task)
    if (reason := refusal(name)) is not None:
        return f"{task} is not played on a GPU: {reason}"
    try:
        roms.read(name)
        check_gpu(device)
    except (roms.UnknownRom, NoGpuEmulators) as error:
        return str(error)
    return None


def make_part(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    atari_reset: str = "cleanrl",
) -> Envs:
    """Make the games of one process, which return single frames."""
    del device  # single frames stay on the CPU until they are stacked
    check_task("atari", task, tasks())
    check_num_envs(num_envs)
    check_reset(atari_reset)
    games = []
    for game_seed in environment_seeds(seed, num_envs):
        emulator = open_emulator(rom(task), game_seed, atari_reset)
        games.append(Game(emulator, game_seed, atari_reset, training=training))
    return AtariGames(games, training=training)


def check_reset(atari_reset: str) -> None:
    """Refuse a protocol that does not exist."""
    if atari_reset not in RESETS:
        raise ValueError(
            f"atari_reset (--train.atari-reset) must be {' or '.join(RESETS)}, got {atari_reset!r}"
        )


def assemble(
    games: Envs,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    atari_reset: str = "cleanrl",
) -> Envs:
    """Wrap games that return single frames into environments that stack them."""
    del training
    return AtariEnvs(games, device, refill_after_life=atari_reset == "cleanrl")


class AtariEnvs:
    """A batch of games whose frames are stacked on a device."""

    def __init__(
        self, games: Envs, device: torch.device | str = "cpu", *, refill_after_life: bool
    ) -> None:
        self.games = games
        self.device = torch.device(device)
        self.num_envs = games.num_envs
        self.exact = True
        self.splittable = bool(getattr(games, "splittable", False))
        self.spec = replace(games.spec, obs_shape=(FRAMES, SIDE, SIDE), frames=FRAMES)
        self._refill_after_life = refill_after_life
        # The last stacks. They were handed to the caller, so they are never changed in place.
        self._obs = torch.zeros(
            (self.num_envs, *self.spec.obs_shape), dtype=torch.uint8, device=self.device
        )

    def reset(self) -> Tensor:
        """Start new games everywhere, different ones each time."""
        self._obs = self._to_device(self.games.reset()).repeat(1, FRAMES, 1, 1)
        return self._obs

    def send(self, action: Tensor, **options: Any) -> None:
        """Start one step; options are those of ``fleet_workers``, here and below."""
        self.games.send(action, **options)

    def receive(self, **options: Any) -> Step:
        """Wait for the step that ``send`` started."""
        step = self.games.receive(**options)
        newest = self._to_device(step.obs)
        if step.final_index is None or step.final_obs is None:  # nearly always
            self._obs = self._advanced(self._obs, newest, step)
            return replace(step, obs=self._obs)
        index = step.final_index.to(self.device)
        final_obs = _append_frame(self._obs[index], self._to_device(step.final_obs))
        self._obs = self._advanced(self._obs.index_copy(0, index, final_obs), newest, step)
        new_games = torch.tensor([episode.env for episode in step.episodes], dtype=torch.int64)
        refilled = index if self._refill_after_life else new_games.to(self.device)
        self._obs.index_copy_(0, refilled, newest[refilled].repeat(1, FRAMES, 1, 1))
        # In greedy play a lost life does not end an episode, so its frame is not reported.
        ended = (step.terminated | step.truncated)[step.final_index]
        if not ended.any():
            return replace(step, obs=self._obs, final_index=None, final_obs=None)
        return replace(
            step,
            obs=self._obs,
            final_index=step.final_index[ended],
            final_obs=final_obs[ended.to(self.device)],
        )

    def _advanced(self, stacks: Tensor, newest: Tensor, step: Step) -> Tensor:
        """Append the newest frames to the stacks of the games that made a step."""
        appended = _append_frame(stacks, newest)
        if step.present is None:
            return appended
        present = torch.from_numpy(step.present).to(self.device)
        return torch.where(present[:, None, None, None], appended, self._obs)

    def _to_device(self, frames: Tensor) -> Tensor:
        """Return frames on the device of the stacks."""
        if frames.device.type == self.device.type:
            return frames  # not copied, since stacking does that
        return copy_to_device(frames.numpy(), self.device)

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return the first game's screen in color."""
        return self.games.render()

    def close(self) -> None:
        """Stop the games."""
        self.games.close()

    def state_dict(self) -> State:
        """Return the games and the stacks."""
        return {"games": self.games.state_dict(), "stacks": self._obs.to("cpu", copy=True)}

    def load_state_dict(self, state: State) -> Tensor:
        """Load a state; return the observations to act on."""
        if "stacks" not in state:
            raise ValueError(
                "the saved Atari games come from an earlier version of hadamard and cannot be "
                "continued: start a new run"
            )
        check_saved(len(state["stacks"]), self.num_envs)
        self.games.load_state_dict(state["games"])
        self._obs = torch.as_tensor(state["stacks"]).to(self.device)
        return self._obs


def _append_frame(stacks: Tensor, newest: Tensor) -> Tensor:
    """Return new stacks: the oldest frame leaves, the newest is added."""
    return torch.cat((stacks[:, 1:], newest), dim=1)


class AtariGames:
    """A batch of games in this process; its observations are their newest frames.

    ``final_index`` lists every lost life, whether or not it terminates, because the stacks need the
    frame it was lost in. The next step overwrites the observations in place.
    """

    exact = True
    splittable = True

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
        self._all_false = torch.zeros(self.num_envs, dtype=torch.bool)
        self._action: list[int] | None = None

    def reset(self) -> Tensor:
        """Start new games everywhere, different ones each time."""
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
        if self.training:  # rewards are whole numbers, so the sign is the value clipped to [-1, 1]
            reward.sign_()
        ends = {env: end for env, (_, end) in enumerate(results) if end is not None}
        if not ends:
            return Step(self._obs, reward, self._all_false, self._all_false)
        terminated, truncated = self._all_false.clone(), self._all_false.clone()
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
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return the first game's screen in color."""
        screen: Frame = self._games[0].emulator.getScreenRGB()
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
        """Load a state; return the newest frames."""
        check_saved(len(state["games"]), self.num_envs)
        self._action = None
        for game, saved in zip(self._games, state["games"], strict=True):
            game.load_state_dict(saved)
        return self._obs
