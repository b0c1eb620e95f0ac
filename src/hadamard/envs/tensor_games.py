"""Environments as tensor programs: a batch of games that lives where the learner lives.

The games themselves are modules such as those of ``minatar_tensors``. Here they get what a suite
adds: sticky actions, a time limit, new episodes and scores. All randomness is a function of the
seed, the number of the step and the game's place in the batch (``core.counter``), so a batch
plays the same games alone and beside others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.counter import uniforms
from hadamard.core.types import EnvSpec, Episode, State, Step
from hadamard.envs.common import check_actions, check_num_envs, check_saved
from hadamard.envs.minatar_tensors import Game, select

Tensors = dict[str, Tensor]
_RUNNING = ("last_action", "score", "length")
"""What the state holds beside the game's own: the action in force, and the running episode."""


@dataclass(frozen=True)
class Rules:
    """A game, and what the suite adds to it."""

    game: Game
    sticky: float
    """Probability of repeating the last action."""
    max_steps: int
    """Steps after which an episode is truncated."""
    ramping: bool = False
    """Whether the game becomes harder."""

    @property
    def lanes(self) -> int:
        """How many random numbers a step of one game needs."""
        return 1 + 2 * self.game.DRAWS


class Outcome(NamedTuple):
    """What a step of all games led to, before ended games were replaced by new ones."""

    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    obs: Tensor
    score: Tensor
    """Of the episode so far, this step included."""
    length: Tensor

    @property
    def finished(self) -> Tensor:
        """Whether an episode ended, which is reported."""
        return self.terminated | self.truncated


def play(
    rules: Rules, state: Tensors, action: Tensor, actions: Tensor, draws: Tensor
) -> tuple[Tensors, Outcome]:
    """Play one step of all games, and start a new episode where one ended.

    Args:
        rules: The game.
        state: One row for each game.
        action: A number below ``len(actions)`` for each game.
        actions: The game's own numbers of these actions.
        draws: (games, rules.lanes) uniform random numbers.
    """
    game, count = rules.game, rules.game.DRAWS
    # As in the package, an action can also be repeated across a reset.
    action = torch.where(draws[:, 0] < rules.sticky, state["last_action"], actions[action])
    before = {name: value for name, value in state.items() if name not in _RUNNING}
    after, reward, terminated = game.step(
        before, action, draws[:, 1 : 1 + count], ramping=rules.ramping
    )
    score, length = state["score"] + reward, state["length"] + 1
    truncated = (length >= rules.max_steps) & ~terminated
    outcome = Outcome(reward, terminated, truncated, game.observe(after), score, length)
    ended = terminated | truncated
    after = select(ended, game.new(draws[:, 1 + count :], ramping=rules.ramping), after)
    running = {
        "last_action": action,
        "score": torch.where(ended, 0.0, score),
        "length": torch.where(ended, 0, length),
    }
    return {**after, **running}, outcome


class TensorGames:
    """The games of one run."""

    exact = True

    def __init__(
        self, rules: Rules, seed: int, num_envs: int, device: torch.device | str = "cpu"
    ) -> None:
        check_num_envs(num_envs)
        self.rules, self.num_envs, self.device = rules, num_envs, torch.device(device)
        game = rules.game
        shape = game.CHANNELS, 10, 10
        self.spec = EnvSpec(shape, torch.uint8, len(game.ACTIONS), on_device=True)
        self.actions = torch.tensor(game.ACTIONS, device=device)
        self.seed = torch.tensor([seed], device=device)
        self.steps = torch.zeros(1, dtype=torch.int64, device=device)
        """How often the games were stepped or reset: the counter of their random numbers."""
        self.state = self._new_state()
        self._action: Tensor | None = None

    def draws(self) -> Tensor:
        """Return the random numbers of the next step."""
        return uniforms(self.seed, self.steps, self.num_envs, self.rules.lanes)[0]

    def _new_state(self) -> Tensors:
        draws = self.draws()[:, 1 + self.rules.game.DRAWS :]
        zeros = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        running = {"last_action": zeros, "score": zeros.float(), "length": zeros.clone()}
        self.steps += 1
        return {**self.rules.game.new(draws, ramping=self.rules.ramping), **running}

    def _store(self, state: Tensors) -> None:
        """Keep the state's place in memory, which a fleet shares."""
        for name, value in state.items():
            self.state[name].copy_(value)

    def observation(self) -> Tensor:
        """Return the observations to act on next."""
        return self.rules.game.observe(self.state)

    def reset(self) -> Tensor:
        """Start new episodes everywhere."""
        self._store(self._new_state())
        return self.observation()

    def send(self, action: Tensor) -> None:
        """Keep the actions; the games are played in ``receive``."""
        check_actions(action, self.num_envs, self.spec)
        self._action = action.to(self.device)

    def receive(self) -> Step:
        """Play one step of every game."""
        if self._action is None:
            raise RuntimeError("receive() without send(): no step was started")
        state, outcome = play(self.rules, self.state, self._action, self.actions, self.draws())
        self._action = None
        self.steps += 1
        self._store(state)
        ended = (outcome.terminated | outcome.truncated).nonzero().squeeze(1)
        scores, lengths = outcome.score[ended].tolist(), outcome.length[ended].tolist()
        truncated = outcome.truncated.cpu()
        return Step(
            obs=self.observation(),
            reward=outcome.reward.cpu(),
            terminated=outcome.terminated.cpu(),
            truncated=truncated,
            final_index=ended.cpu() if len(ended) else None,
            final_obs=outcome.obs[ended] if len(ended) else None,
            any_truncated=bool(truncated.any()),
            episodes=tuple(
                Episode(*episode) for episode in zip(ended.tolist(), scores, lengths, strict=True)
            ),
        )

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Refuse: pictures are the suite's own environments' business."""
        raise RuntimeError("these games are not drawn: make the environment on the CPU")

    def close(self) -> None:
        """Nothing to free."""

    def state_dict(self) -> State:
        """Return the games and the counter of their random numbers."""
        return {"games": {**self.state}, "steps": self.steps}

    def load_state_dict(self, state: State) -> Tensor:
        """Load a state; return the observations to act on."""
        games: Tensors = state["games"]
        check_saved(len(games["length"]), self.num_envs)
        if unknown := sorted(set(games) ^ set(self.state)):
            raise ValueError(f"the saved games have other fields: {', '.join(unknown)}")
        self._store(games)
        self.steps.copy_(state["steps"])
        return self.observation()


class StackedGames:
    """The games of several runs as one batch; each run's ``TensorGames`` hold its rows.

    A run has one ``TensorGames`` or several, such as those of training and those that the greedy
    policy plays beside it.
    """

    traceable = True
    """Whether torch.compile can compile a step as a whole."""

    def __init__(self, runs: Sequence[Sequence[TensorGames]]) -> None:
        first = runs[0][0]
        self.device, self.lanes = first.seed.device, first.rules.lanes
        self.rules, self.actions, self.spec = first.rules, first.actions, first.spec
        self.count, self.sizes = len(runs), [part.num_envs for part in runs[0]]
        self.seed = torch.stack([torch.cat([part.seed for part in run]) for run in runs])
        """Of each run and part; so are the steps."""
        self.steps = torch.stack([torch.cat([part.steps for part in run]) for run in runs])
        self.state = {
            name: torch.stack([torch.cat([part.state[name] for part in run]) for run in runs])
            for name in first.state
        }
        for row, run in enumerate(runs):
            end = 0
            for place, part in enumerate(run):
                start, end = end, end + part.num_envs
                part.steps = self.steps[row, place : place + 1]
                part.state = {name: value[row, start:end] for name, value in self.state.items()}

    @property
    def tensors(self) -> list[Tensor]:
        """All that a step changes."""
        return [self.steps, *self.state.values()]

    def observation(self) -> Tensor:
        """Return the observations to act on next, (runs, games, ...)."""
        state = {name: value.flatten(0, 1) for name, value in self.state.items()}
        obs = self.rules.game.observe(state)
        stacked: Tensor = obs.unflatten(0, (self.count, sum(self.sizes)))
        return stacked

    def counters(self, step: int) -> Tensor:
        """Return the counters of random numbers of each run and part, at a step of the runs."""
        del step  # the games have counted
        return self.steps

    def launch(self, action: Tensor) -> None:
        """Do nothing: ``step`` plays the games."""

    def step(self, action: Tensor, draws: Tensor) -> tuple[Tensor, Outcome]:
        """Play one step of all games; return the next observations and what the step led to.

        Args:
            action: (runs, games).
            draws: (runs, games, rules.lanes): what each run's own games would draw.
        """
        state = {name: value.flatten(0, 1) for name, value in self.state.items()}
        state, outcome = play(
            self.rules, state, action.flatten(), self.actions, draws.flatten(0, 1)
        )
        self.steps += 1
        for name, value in state.items():
            self.state[name].copy_(value.unflatten(0, action.shape))
        obs = self.rules.game.observe(state).unflatten(0, action.shape)
        return obs, Outcome(*(value.unflatten(0, action.shape) for value in outcome))
