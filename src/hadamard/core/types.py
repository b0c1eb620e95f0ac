"""The contracts between environments, agents and the loop.

An environment hands over tensors and the true successor of every state; an agent acts and
observes; the loop knows neither's name.
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
"""Called with the number of updates so far and the observations of the last one."""


class Episode(NamedTuple):
    """A finished episode as it is reported: a whole game, its reward unclipped."""

    env: int
    score: float
    length: int


@dataclass(frozen=True)
class EnvSpec:
    """What a learner may know of an environment."""

    obs_shape: tuple[int, ...]
    obs_dtype: torch.dtype
    num_actions: int = 0
    """How many discrete actions there are; 0 where an action is a vector."""
    frames: int = 1
    """Frames stacked along the first dimension of an observation, the newest last."""
    action_size: int = 0
    """Numbers in an action, each in [-1, 1]; 0 where actions are discrete."""
    max_steps: int = 0
    """Steps after which an episode is truncated; 0 where there is no limit."""
    step_seconds: float = 0.0
    """Seconds that pass in the environment's world in a step; 0 where its time has no unit."""

    @property
    def continuous(self) -> bool:
        """Whether an action is a vector."""
        return self.action_size > 0

    @property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of one environment's action."""
        return (self.action_size,) if self.continuous else ()

    @property
    def action_dtype(self) -> torch.dtype:
        """Kind of number an action is made of."""
        return torch.float32 if self.continuous else torch.int64

    def require(self, actions: Literal["discrete", "continuous"], algorithm: str) -> None:
        """Refuse an environment whose actions an algorithm cannot choose."""
        if self.continuous == (actions == "continuous"):
            return
        has = (
            f"{self.action_size} continuous" if self.continuous else f"{self.num_actions} discrete"
        )
        other = "simbav2 or mrq" if self.continuous else "dqn, ppo or pqn"
        raise ValueError(
            f"{algorithm} needs {actions} actions and this environment has {has} ones: "
            f"train {other} on it, or choose another --env"
        )


@dataclass(frozen=True)
class Step:
    """What one action of every environment led to; all tensors lead with the environments.

    Observations are on the learner's device. What else there is stays where the environments are:
    a learner takes it along when it learns, which is cheaper than a little at every step. All of
    it is to be read only: environments may go on from it, or hand it over again.

    Where an episode ended, ``obs`` already is the first observation of the next one, and the
    true successor waits in ``final_obs``: learn from ``next_obs``, act on ``obs``.
    """

    obs: Tensor
    """What to act on next."""
    reward: Tensor
    """What is learned from (clipped where the protocol clips), float32; on the CPU."""
    terminated: Tensor
    """No value beyond this step: the task ended, or a life was lost; on the CPU."""
    truncated: Tensor
    """A time limit ended the episode: bootstrap from ``next_obs``. Never with ``terminated``; on
    the CPU."""
    final_index: Tensor | None = None
    """Which environments were reset after this step, or were led on by forced actions after a
    lost life, on the CPU; None when none was."""
    final_obs: Tensor | None = None
    """Their true successors, in the order of ``final_index``."""
    any_truncated: bool = False
    """Whether any environment was truncated, known without asking the device."""
    episodes: tuple[Episode, ...] = ()

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
        """Return to that state."""


class Incremental(Protocol):
    """Something too large to be saved whole each time: it writes what is new to a folder."""

    def save_increment(self, folder: Path, /) -> State:
        """Write what is new since the last save; return the rest of the state."""

    def load_increment(self, folder: Path, state: State, /) -> None:
        """Return to a saved state."""

    def prune(self, folder: Path, kept: list[State], /) -> None:
        """Remove files that no kept state needs."""


class Envs(Stateful, Protocol):
    """A batch of environments stepped together.

    ``send`` starts a step and ``receive`` waits for it, so that a caller can work in between
    (or act on a second batch).
    """

    spec: EnvSpec
    num_envs: int
    exact: bool
    """Whether ``load_state_dict`` restores the games exactly. Where it does not, it restores
    the random state and the caller starts fresh games with ``reset``."""

    def reset(self) -> Tensor:
        """Start new episodes everywhere and return the first observations."""

    def send(self, action: Tensor) -> None:
        """Start one step with these actions, one for each environment."""

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""

    def step(self, action: Tensor) -> Step:
        """Send and receive."""

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first environment as it is now, (height, width, 3)."""

    def close(self) -> None:
        """Free what the environments hold."""


class Agent(Protocol):
    """What an algorithm hands to the loop."""

    parts: dict[str, Stateful | Incremental]
    """All that a checkpoint must hold, by name."""
    network: nn.Module
    """The network whose representations are diagnosed; takes observations."""
    optimiser: torch.optim.Optimizer | None
    """The optimiser of that network; None where no one else may change its weights."""
    num_envs: int
    after_update: AfterUpdate | None
    """What the loop wants done after every gradient update (an intervention such as ReDo)."""

    @property
    def settled(self) -> bool:
        """Whether nothing is half collected, so that a checkpoint can be taken here."""

    @property
    def learns_next(self) -> bool:
        """Whether observing the next step changes how to act.

        Where it does not, the loop acts first, and lets the agent observe while environments play.
        """

    def begin(self, obs: Tensor) -> None:
        """Hear of fresh episodes everywhere: at the start, and after an inexact resume."""

    def act(self, obs: Tensor, *, explore: bool = True) -> tuple[Tensor, Extra]:
        """Choose actions; ``extra`` carries what ``observe`` will need of the choice."""

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Take in one step, learn if it is time, and return what was measured if so."""

    def schedules(self) -> dict[str, float]:
        """Return what changes over training by plan, for the log."""


@runtime_checkable
class ActsOnBoth(Protocol):
    """An agent that can choose exploring and greedy actions in one call."""

    def act_on_both(self, obs: Tensor, greedy: int) -> tuple[Tensor, Extra]:
        """Choose actions as ``act`` does, but greedy ones in the last ``greedy`` rows.

        ``extra`` is of the other rows alone, whose random draws are those of ``act`` without the
        greedy rows.
        """


@runtime_checkable
class LearnsAhead(Protocol):
    """An agent that can learn from older steps while the environments play the next one."""

    def learn_ahead(self) -> None:
        """Make the updates that are due after the step under way, as far as they do without it.

        Called when the actions of all environments are chosen. Nothing may become of it that would
        not have become of observing the step first and learning then.
        """
