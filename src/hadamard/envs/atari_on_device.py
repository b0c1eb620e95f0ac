"""Atari games that play on the learner's device, with the emulators of ``atari2600``.

Observations, rewards, ends, lives and the cap are those of ``atari.py``, byte for byte, and so are
the random numbers of no-ops: they follow from each environment's seed. Frames never leave the
device, and a state is exact for any number of environments.

``EmulatedGames`` are the environments of one run. ``StackedEmulators`` are those of a fleet: the
games of all its runs, of one ROM or of several, step in one launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import EnvSpec, Episode, State, Step
from hadamard.envs.atari2600 import roms
from hadamard.envs.atari2600.batch import FRAMES, SIDE, Batch, Tensors, settings_of
from hadamard.envs.atari_game import FRAME_SKIP
from hadamard.envs.common import check_actions, check_num_envs, check_saved

STEP_SECONDS = FRAME_SKIP / 60
LAYOUT = 2
"""Of the saved state; raise it when the structs of an environment change."""
SHORTEST_CUT = 26_000
"""Every truncated game has more steps; the frames that ``cleanrl`` counts are of forced actions
too."""


class EmulatedGames:
    """The games of one run on a device; a GPU plays between ``send`` and ``receive``.

    Args:
        names: ALE's name of each environment's game; all have as many actions.
        seeds: A 32-bit seed for each environment.
        device: Where they play.
        training: Whether rewards are clipped and a lost life ends an episode.
        atari_reset: How games and lives begin, see ``atari_game.py``.
    """

    exact = True
    splittable = True

    def __init__(
        self,
        names: Sequence[str],
        seeds: Sequence[int],
        device: torch.device | str = "cpu",
        *,
        training: bool = True,
        atari_reset: str = "cleanrl",
    ) -> None:
        check_num_envs(len(names))
        self.names, self.seeds, self.num_envs = list(names), list(seeds), len(names)
        self.device, self.training, self.atari_reset = torch.device(device), training, atari_reset
        (actions,) = {len(roms.minimal_actions(name)) for name in names}
        self.spec = EnvSpec(
            (FRAMES, SIDE, SIDE), torch.uint8, actions, frames=FRAMES, step_seconds=STEP_SECONDS
        )
        settings = settings_of(atari_reset, training=training)
        self._batch = Batch(names, settings, self.device)
        self._begun = False
        self._final: Tensor | None = None
        """The stacks that the step under way ends with, before anything begins anew."""

    @property
    def state(self) -> Tensors:
        """All that the next step depends on, a row for each environment."""
        return self._batch.state

    @state.setter
    def state(self, state: Tensors) -> None:
        self._batch.state = state

    def observation(self) -> Tensor:
        """Return the observations to act on next."""
        return self.state["stacks"].clone()

    def reset(self) -> Tensor:
        """Start new games everywhere, different ones each time."""
        self._final = None
        if self._begun:
            self._batch.reset()
        else:
            self._batch.begin(self.seeds)
        self._begun = True
        return self._batch.fill_stacks().clone()

    def send(self, action: Tensor) -> None:
        """Start one step of every game."""
        if self._final is not None:
            raise RuntimeError("send() twice: the step under way was not received")
        check_actions(action, self.num_envs, self.spec)
        self._batch.play(action.to(self.device, non_blocking=True))
        refill = self.atari_reset == "cleanrl"
        self._final = self._batch.advance_stacks(self._batch.outcome(), refill_after_life=refill)

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""
        if self._final is None:
            raise RuntimeError("receive() without send(): no step was started")
        final, self._final = self._final, None
        outcomes = self._batch.outcomes_on_host()
        reward = torch.from_numpy(outcomes["reward"].astype(np.float32))
        terminated, truncated = (
            torch.from_numpy(outcomes[name].astype(bool)) for name in ("terminated", "truncated")
        )
        ended = (terminated | truncated).nonzero().squeeze(1)
        return Step(
            obs=self.observation(),
            reward=reward.sign_() if self.training else reward,
            terminated=terminated,
            truncated=truncated,
            final_index=ended if len(ended) else None,
            final_obs=final[ended.to(self.device)] if len(ended) else None,
            any_truncated=bool(truncated.any()),
            episodes=tuple(
                Episode(env, int(outcomes["score"][env]), int(outcomes["length"][env]))
                for env in outcomes["finished"].nonzero()[0].tolist()
            ),
        )

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Refuse: pictures are the suite's other environments' business."""
        raise RuntimeError("these games are not drawn: make the environment with emulators='cpu'")

    def close(self) -> None:
        """Nothing to free."""

    def state_dict(self) -> State:
        """Return every game."""
        if self._final is not None:
            raise RuntimeError("a step is under way: receive() it before saving the state")
        layout = torch.full((self.num_envs,), LAYOUT, dtype=torch.int32)
        return {"emulators": {**self.state}, "layout": layout}

    def load_state_dict(self, state: State) -> Tensor:
        """Load a state; return the observations to act on."""
        layout = torch.as_tensor(state["layout"])
        check_saved(len(layout), self.num_envs)
        saved: Mapping[str, Tensor] = state["emulators"]
        if (layout != LAYOUT).any() or _forms(saved) != _forms(self.state):
            raise ValueError(
                "the saved Atari games are of another version of the emulators and cannot be "
                "continued: start a new run"
            )
        if unsound := self._batch.unsound(saved):
            raise ValueError(
                f"the saved Atari game of environment {unsound[0]} is damaged "
                f"({len(unsound)} of {self.num_envs} are): resume from another checkpoint, or "
                "start a new run"
            )
        self._final, self._begun = None, True
        for name, value in saved.items():
            self.state[name].copy_(value)
        return self.observation()


def _forms(state: Mapping[str, Tensor]) -> dict[str, tuple[Any, ...]]:
    return {name: (value.dtype, *value.shape) for name, value in state.items()}


def joined(parts: Sequence[EmulatedGames]) -> EmulatedGames:
    """Return new games with the seeds of several runs', in order; they have not begun."""
    first = parts[0]
    return EmulatedGames(
        [name for part in parts for name in part.names],
        [seed for part in parts for seed in part.seeds],
        first.device,
        training=first.training,
        atari_reset=first.atari_reset,
    )


class Outcome(NamedTuple):
    """What a step of all games of a fleet led to; see ``tensor_games.Outcome``."""

    reward: Tensor
    """Clipped."""
    terminated: Tensor
    truncated: Tensor
    obs: Tensor
    score: Tensor
    length: Tensor
    finished: Tensor
    """Whether a whole game ended, which is what is reported."""


class StackedEmulators:
    """The games of several runs as one batch; each run's ``EmulatedGames`` hold its rows.

    A run has one ``EmulatedGames`` or several, as in ``tensor_games.StackedGames``. Those of the
    greedy policy play by the rules of training here, which have the same observations and scores.
    """

    lanes = 0
    """Nothing is drawn from outside."""
    traceable = False

    def __init__(self, runs: Sequence[Sequence[EmulatedGames]]) -> None:
        first = runs[0][0]
        self.spec, self.device = first.spec, first.device
        self.count, self.sizes = len(runs), [part.num_envs for part in runs[0]]
        self._refill = first.atari_reset == "cleanrl"
        parts = [part for run in runs for part in run]
        state = {name: torch.cat([part.state[name] for part in parts]) for name in first.state}
        settings = settings_of(first.atari_reset, training=True)
        names = [name for part in parts for name in part.names]
        self._batch = Batch(names, settings, self.device, state)
        end = 0
        for part in parts:
            start, end = end, end + part.num_envs
            part.state = {name: value[start:end] for name, value in state.items()}

    @property
    def tensors(self) -> list[Tensor]:
        """All that a step changes and the next one needs."""
        return [*self._batch.state.values()]

    def counters(self, step: int) -> Tensor:
        """Return how often each run's games were stepped, (runs, 1)."""
        return torch.full((self.count, 1), step // self.sizes[0], device=self.device)

    def observation(self) -> Tensor:
        """Return the observations to act on next, (runs, games, ...)."""
        return self._stacked(self._batch.state["stacks"].clone())

    def launch(self, action: Tensor) -> None:
        """Play one step of all games with these actions, (runs, games)."""
        self._batch.play(action.flatten())

    def step(self, action: Tensor, draws: Tensor) -> tuple[Tensor, Outcome]:
        """Return the observations after the step that was launched, and what it led to."""
        del action, draws  # the actions were launched
        played = self._batch.outcome()
        final = self._batch.advance_stacks(played, refill_after_life=self._refill)
        outcome = Outcome(
            reward=played.reward.sign().float(),
            terminated=played.terminated,
            truncated=played.truncated,
            obs=final,
            score=played.score.float(),
            length=played.length,
            finished=played.finished,
        )
        stacked = Outcome(*(self._stacked(value) for value in outcome))
        return self._stacked(self._batch.state["stacks"]), stacked

    def _stacked(self, values: Any) -> Tensor:
        stacked: Tensor = values.unflatten(0, (self.count, sum(self.sizes)))
        return stacked
