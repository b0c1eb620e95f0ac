"""Probe: toy tasks with known values, to test learners.

| task | observation | episode | known values |
|---|---|---|---|
| constant | 1 | one step, reward 1 | V = 1 |
| observed | -1 or 1 | one step, reward = observation | V = observation |
| delayed | 0, then 1 | two steps, reward 1 at the end | V = gamma, then 1 |
| action | 1 | one step, action 1 gives 1 and action 0 gives -1 | Q = -1, 1 |
| both | -1 or 1 | one step, 1 if the action is its sign, else -1 | V = 1, Q = -1 or 1 |
| truncation | 1 | reward 1, truncated after 4 steps | V = 1 / (1 - gamma) |
| image | a lit column, left or right | one step, 1 if the action is its side, else -1 | V = 1 |
| image84 | the same as four 84x84 frames | the same | V = 1 |
| steer | -1 or 1 | one step, 1 - mean((action - observation / 2)^2) | V = 1, actions of +-0.5 |
| track | -1 or 1 | the same, truncated after 8 steps | V = 1 / (1 - gamma) |
| track84 | the side as three 84x84 frames in color | the same | V = 1 / (1 - gamma) |

In ``steer``, ``track`` and ``track84`` an action is two numbers in [-1, 1]. A learner that treats
truncation as termination learns at most V = 4 in ``truncation``. The state is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Envs, EnvSpec, Episode, State, Step
from hadamard.envs.common import (
    RunningEpisodes,
    check_actions,
    check_num_envs,
    check_saved,
    check_task,
    environment_seeds,
)

REQUIRES: tuple[str, ...] = ()
EXTRA = ""

PIXELS = 240
"""Width and height of a picture."""


@dataclass(frozen=True)
class _Task:
    """Observations and length of a task; its reward is in ``ProbeEnvs._reward``."""

    steps: int = 1
    sided: bool = False
    """Whether every episode has a random side, -1 or 1, which the observation shows."""
    image: tuple[int, ...] = ()
    colors: int = 1
    """Channels of a frame."""
    truncates: bool = False
    steered: bool = False
    """Whether an action is two numbers, each best at half the side."""


_TASKS = {
    "constant": _Task(),
    "observed": _Task(sided=True),
    "delayed": _Task(steps=2),
    "action": _Task(),
    "both": _Task(sided=True),
    "truncation": _Task(steps=4, truncates=True),
    "image": _Task(sided=True, image=(1, 10, 10)),
    "image84": _Task(sided=True, image=(4, 84, 84)),
    "steer": _Task(sided=True, steered=True),
    "track": _Task(steps=8, sided=True, steered=True, truncates=True),
    "track84": _Task(
        steps=8, sided=True, steered=True, truncates=True, image=(9, 84, 84), colors=3
    ),
}


def tasks() -> tuple[str, ...]:
    """Return the toy tasks."""
    return tuple(_TASKS)


def make(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
) -> Envs:
    """Make a batch of one toy task; training and evaluation do not differ."""
    del training
    return ProbeEnvs(task, seed, num_envs, device)


class ProbeEnvs:
    """A batch of one toy task; all environments advance and end together."""

    exact = True

    def __init__(
        self,
        task: str,
        seed: int | Sequence[int],
        num_envs: int,
        device: torch.device | str = "cpu",
    ) -> None:
        check_task("probe", task, tasks())
        check_num_envs(num_envs)
        self.name = task
        self.num_envs = num_envs
        self.device = torch.device(device)
        self._task = _TASKS[task]
        image = self._task.image
        self.spec = EnvSpec(
            obs_shape=image or (1,),
            obs_dtype=torch.uint8 if image else torch.float32,
            num_actions=0 if self._task.steered else 2,
            frames=image[0] // self._task.colors if image else 1,
            action_size=2 if self._task.steered else 0,
            max_steps=self._task.steps,
        )
        # Always on the CPU, so that the random numbers are the same on every device.
        self._random = torch.Generator().manual_seed(environment_seeds(seed, 1)[0])
        self._running = RunningEpisodes(num_envs)
        self._action: Tensor | None = None
        self._begin()

    def _begin(self) -> None:
        """Start an episode everywhere."""
        self._time = 0
        self._side = 2.0 * torch.randint(2, (self.num_envs,), generator=self._random) - 1.0
        # A random column of that half, so that each side has more than one image.
        half = max(1, self.spec.obs_shape[-1] // 2)
        column = torch.randint(half, (self.num_envs,), generator=self._random)
        self._column = column + half * (self._side > 0)

    def _observe(self) -> Tensor:
        if self._task.image:
            # 1 on the small grid, as in MinAtar; 255 in the frames, as in Atari.
            brightness = 255 if self.spec.frames > 1 else 1
            lit = torch.arange(self._task.image[-1]) == self._column[:, None]
            obs = (brightness * lit[:, None, None].byte()).expand(-1, *self._task.image)
        elif self._task.sided:
            obs = self._side[:, None]
        else:
            obs = torch.full((self.num_envs, 1), float(self.name != "delayed" or self._time > 0))
        return obs.to(self.device).clone(memory_format=torch.contiguous_format)

    def _reward(self, action: Tensor) -> Tensor:
        """Return the reward of an action at the current time."""
        if self.name in ("constant", "truncation"):
            return torch.ones(self.num_envs)
        if self.name == "delayed":
            return torch.full((self.num_envs,), float(self._time == 1))
        if self.name == "observed":
            return self._side.clone()
        if self._task.steered:
            return 1.0 - (action - self._side[:, None] / 2).square().mean(1)
        signed = 2.0 * action - 1.0
        return signed if self.name == "action" else signed * self._side

    def _flags(self, value: bool) -> Tensor:
        return torch.full((self.num_envs,), value)

    def reset(self) -> Tensor:
        """Start new episodes everywhere; the generator is not reseeded."""
        self._begin()
        self._running.clear()
        self._action = None
        return self._observe()

    def send(self, action: Tensor) -> None:
        """Keep the actions for ``receive``."""
        self._action = torch.from_numpy(check_actions(action, self.num_envs, self.spec))

    def receive(self) -> Step:
        """Take the step."""
        if self._action is None:
            raise RuntimeError("receive() without send(): no step was started")
        reward = self._reward(self._action)
        self._action = None
        self._time += 1
        self._running.add(reward.numpy())
        ended = self._time == self._task.steps
        truncated = ended and self._task.truncates
        final_index = final_obs = None
        episodes: tuple[Episode, ...] = ()
        if ended:
            final_index = torch.arange(self.num_envs)
            final_obs = self._observe()
            episodes = tuple(self._running.finish(env) for env in range(self.num_envs))
            self._begin()
        return Step(
            obs=self._observe(),
            reward=reward,
            terminated=self._flags(ended and not truncated),
            truncated=self._flags(truncated),
            final_index=final_index,
            final_obs=final_obs,
            any_truncated=truncated,
            episodes=episodes,
        )

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first environment: its side, and a bar of the time passed."""
        width = self.spec.obs_shape[-1] if self._task.image else 2
        lit = int(self._column[0]) if self._task.image else int(self._side[0] > 0)
        picture = np.full((PIXELS, PIXELS, 3), 40, dtype=np.uint8)
        if self._task.sided:
            picture[:, lit * PIXELS // width : (lit + 1) * PIXELS // width] = 230
        passed = self._time * PIXELS // self._task.steps
        picture[-PIXELS // 12 :] = 90
        picture[-PIXELS // 12 :, :passed] = (230, 159, 0)
        return picture

    def close(self) -> None:
        """Nothing to free."""

    def state_dict(self) -> State:
        """Return the time, the sides, the random generator and the running scores."""
        return {
            "time": self._time,
            "side": self._side.clone(),
            "column": self._column.clone(),
            "random": self._random.get_state(),
            **self._running.state_dict(),
        }

    def load_state_dict(self, state: State) -> Tensor:
        """Load a state; return the observations to act on."""
        check_saved(len(state["side"]), self.num_envs)
        self._time = state["time"]
        self._side = torch.as_tensor(state["side"]).cpu().clone()
        self._column = torch.as_tensor(state["column"]).cpu().clone()
        self._random.set_state(torch.as_tensor(state["random"]).cpu())
        self._running.load_state_dict(state)
        self._action = None
        return self._observe()
