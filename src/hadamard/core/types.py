"""The contracts between environments, agents and the training loop.

An environment returns tensors and the true successor of every state. An agent acts and observes.
The training loop knows no environment and no algorithm by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Metrics = Mapping[str, Tensor]
Extra = Mapping[str, Tensor]
State = dict[str, Any]
AfterUpdate = Callable[[int, Tensor], None]
"""Called after an update, with the number of updates so far and that update's observations."""


class Episode(NamedTuple):
    """A finished episode as it is reported: a whole game, with unclipped rewards."""

    env: int
    score: float
    length: int


@dataclass(frozen=True)
class EnvSpec:
    """What a learner may know about an environment."""

    obs_shape: tuple[int, ...]
    obs_dtype: torch.dtype
    num_actions: int = 0
    """Number of discrete actions; 0 if an action is a vector."""
    frames: int = 1
    """Frames stacked along the first dimension of an observation, the newest last."""
    full_range: bool = False
    """Whether the pixels of single frames take values up to 255; those of stacked frames do."""
    action_size: int = 0
    """Length of a continuous action, each entry in [-1, 1]; 0 if actions are discrete."""
    max_steps: int = 0
    """Steps after which an episode is truncated; 0 if there is no limit."""
    step_seconds: float = 0.0
    """Simulated seconds per step; 0 if the environment's time has no unit."""
    on_device: bool = False
    """Whether the environments are tensor programs that play on the learner's device."""

    @property
    def pixel_scale(self) -> float:
        """What pixels are multiplied by, so that they lie between 0 and 1."""
        return 1 / 255 if self.frames > 1 or self.full_range else 1.0

    @property
    def continuous(self) -> bool:
        """Whether an action is a vector."""
        return self.action_size > 0

    @property
    def actions(self) -> Literal["discrete", "continuous"]:
        """The kind of its actions."""
        return "continuous" if self.continuous else "discrete"

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one environment's action."""
        return (self.action_size,) if self.continuous else ()

    @property
    def action_dtype(self) -> torch.dtype:
        """Data type of an action."""
        return torch.float32 if self.continuous else torch.int64


@dataclass(frozen=True)
class Step:
    """The outcome of one action in every environment; the first dimension is the environment.

    Observations are on the learner's device. Rewards and flags stay on the CPU and move in bulk
    at learning time, which is cheaper than a small copy at every step. All tensors are read-only:
    an environment may still use them, or return them again.

    Where an episode ended, ``obs`` already is the first observation of the next episode, and
    ``final_obs`` holds the true successor: learn from ``next_obs``, act on ``obs``.
    """

    obs: Tensor
    """Observations to act on next."""
    reward: Tensor
    """Rewards to learn from (clipped where the protocol clips), float32, on the CPU."""
    terminated: Tensor
    """No value beyond this step: the task ended or a life was lost. On the CPU."""
    truncated: Tensor
    """A time limit ended the episode: bootstrap from ``next_obs``. Never together with
    ``terminated``. On the CPU."""
    final_index: Tensor | None = None
    """Environments whose ``obs`` is not the true successor: they were reset, or continued by
    forced actions after a lost life. On the CPU; None if there are none."""
    final_obs: Tensor | None = None
    """The true successors of these environments, in the order of ``final_index``."""
    any_truncated: bool = False
    """Whether any environment was truncated; known without waiting for the device."""
    episodes: tuple[Episode, ...] = ()
    present: NDArray[np.bool_] | None = None
    """Which environments made a step, in fleets, where some may be ahead of others; None: all.
    The observations of the others are those they had, and their rewards are 0."""

    @property
    def next_obs(self) -> Tensor:
        """The true successor of every environment."""
        if self.final_index is None or self.final_obs is None:
            return self.obs
        successor = self.obs.clone()
        successor[self.final_index.to(successor.device)] = self.final_obs
        return successor


class Stateful(Protocol):
    """Anything a checkpoint can hold."""

    def state_dict(self) -> State:
        """Return the state as nested dicts and lists of tensors, arrays and plain values."""

    def load_state_dict(self, state: State, /) -> Any:
        """Restore that state."""


class Incremental(Protocol):
    """A part too large to be saved whole every time: it saves what is new to a folder."""

    def save_increment(self, folder: Path, /) -> State:
        """Write what is new since the last save, and return the rest of the state."""

    def load_increment(self, folder: Path, state: State, /) -> None:
        """Restore a saved state."""

    def prune(self, folder: Path, kept: list[State], /) -> None:
        """Remove files that none of the kept states needs."""


Part = Stateful | Incremental
"""What a checkpoint holds under one name."""


class Envs(Stateful, Protocol):
    """A batch of environments that step together.

    ``send`` starts a step and ``receive`` waits for it, so that the caller can work in between.
    """

    spec: EnvSpec
    num_envs: int
    exact: bool
    """Whether ``load_state_dict`` restores the games exactly. If not, it restores the random
    state only, and the caller starts new games with ``reset``."""

    def reset(self) -> Tensor:
        """Start new episodes in all environments and return the first observations."""

    def send(self, action: Tensor) -> None:
        """Start a step with these actions, one per environment."""

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""

    def step(self, action: Tensor) -> Step:
        """Send and receive."""

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first environment, (height, width, 3)."""

    def close(self) -> None:
        """Free what the environments hold."""


class Agent(Protocol):
    """What an algorithm gives to the training loop."""

    parts: dict[str, Part]
    """Everything a checkpoint must hold, by name."""
    network: nn.Module
    """The network whose representations are diagnosed; it takes observations."""
    optimizer: torch.optim.Optimizer | None
    """That network's optimizer; None if nothing else may change its weights."""
    num_envs: int
    after_update: AfterUpdate | None
    """Called after every gradient update, for remedies such as ReDo."""

    @property
    def settled(self) -> bool:
        """Whether nothing is half collected, so that a checkpoint can be taken now."""

    @property
    def learns_next(self) -> bool:
        """Whether observing the next step changes how the agent acts.

        If not, the loop acts first, and the agent observes while the environments play.
        """

    def begin(self, obs: Tensor) -> None:
        """Start from new episodes in all environments: at the start, or after an inexact resume."""

    def act(self, obs: Tensor, step: int) -> tuple[Tensor, Extra]:
        """Choose exploring actions.

        ``step`` is the number of environment steps acted on before, for schedules. ``extra``
        carries what ``observe`` needs of the choice, such as the actions' log-probabilities.
        """

    def act_greedily(self, obs: Tensor) -> Tensor:
        """Choose the best actions, as in an evaluation."""

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Store one step, learn if an update is due, and return the measurements of the update."""

    def schedules(self) -> dict[str, float]:
        """Return the present value of everything that changes on a schedule, for the log."""


@runtime_checkable
class ActsWithGreedy(Protocol):
    """An agent that can choose exploring and greedy actions in one call."""

    def act_with_greedy(self, obs: Tensor, step: int, greedy: int) -> tuple[Tensor, Extra]:
        """Choose actions as ``act`` does, but greedy ones in the last ``greedy`` rows.

        ``extra`` covers the other rows only. Their random draws equal those of ``act`` without
        the greedy rows.
        """


@runtime_checkable
class LearnsAhead(Protocol):
    """An agent that can learn from older steps while the environments play the next one."""

    def learn_ahead(self) -> Metrics | None:
        """Make updates that are due after the step in flight and do not need it.

        Called when the actions of all environments are sent. Results must equal observing the
        step first, then learning. Returns the measurements of the last update, if any was made.
        """
