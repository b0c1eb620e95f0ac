"""Playing of many runs at once: a block of steps in all their games, without waiting for the host.

A step is one function: it chooses actions, plays the games and lets the learner store what came of
it. On a GPU it is compiled, captured as a CUDA graph and replayed. Emulators are kernels of their
own between two compiled halves of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.compute.draws import uniforms
from hadamard.compute.jit import compiler, jit
from hadamard.compute.stack import Stack
from hadamard.core.config import TrainSpec
from hadamard.core.random import child_seed
from hadamard.core.types import Metrics
from hadamard.envs.atari_on_device import StackedEmulators
from hadamard.envs.tensor_games import StackedGames

_CHOICE = 1
"""Purpose of random numbers, see ``child_seed``."""


class Player:
    """Plays the games of a fleet, block by block.

    The first ``num_envs`` games of a run are those it learns from. In the others, if any, the
    greedy policy plays.
    """

    def __init__(
        self,
        agents: Sequence[Any],
        seeds: Sequence[int],
        games: StackedGames | StackedEmulators,
        stack: Stack,
        steps: int,
        train: TrainSpec,
    ) -> None:
        self.agents, self.games, self.steps = list(agents), games, steps
        self.num_envs = games.sizes[0]
        self.device = device = games.device
        self.choose = stack.over_agents("choose")
        self._choice_draws: int = agents[0].choice_draws
        self._choice_seed = torch.tensor([[child_seed(s, _CHOICE)] for s in seeds], device=device)
        count = len(agents)
        self.obs = games.observation()
        """What to act on next, (runs, games, ...)."""
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        """Of the step in the block."""
        self._exploration = torch.zeros(count, steps, device=device)
        self._choice = torch.zeros(count, steps, self.num_envs, self._choice_draws, device=device)
        self._draws = torch.zeros(count, steps, self.obs.shape[1], games.lanes, device=device)
        everyone = torch.zeros(count, steps, self.obs.shape[1], device=device)
        self._ends = everyone.bool(), everyone, everyone.to(torch.int32)
        self._step: Callable[[], Metrics] | None = None
        self._halves: tuple[Callable[..., Any], ...] = self._choose_actions, self._take_outcome
        """Of a step: before the games are played, and after."""
        self._compiled, self._capture = compiler(train.compile, device), train.capture

    def stores_with(self, store: Callable[[Metrics], None], changed: Sequence[Tensor]) -> None:
        """Let ``store`` keep each step's values; it changes these tensors."""
        self._store = store
        changed = [*changed, *self.games.tensors, self.obs, self.position, *self._ends]
        play: Callable[[], Metrics] = self._play
        if self.games.traceable:
            play = self._compiled(play)
        else:
            self._halves = tuple(self._compiled(half) for half in self._halves)
        self._step = jit(play, self.device, changed, self._capture)

    def begin(self, step: int) -> None:
        """Prepare a block of runs that are at this step."""
        exploration = [
            [agent.exploration(step + t * self.num_envs) for t in range(self.steps)]
            for agent in self.agents
        ]
        send(exploration, self._exploration)
        games, later = self.games, torch.arange(self.steps, device=self.device)
        counters = games.counters(step)
        draws = self._choice_seed, counters[:, :1] + later, self.num_envs, self._choice_draws
        self._choice.copy_(uniforms(*draws))
        if isinstance(games, StackedGames):
            start = 0
            for part, size in enumerate(games.sizes):
                counter, seed = (all_[:, part : part + 1] for all_ in (counters, games.seed))
                numbers = uniforms(seed, counter + later, size, games.lanes)
                self._draws[:, :, start : start + size] = numbers
                start += size
        self.position.zero_()

    def step(self) -> None:
        """Queue one step of all games."""
        assert self._step is not None
        self._step()

    def ends(self) -> Pending:
        """Queue the copy of the block's finished episodes to the host."""
        return Pending(self._ends)

    def values(self, obs: Tensor) -> Tensor:
        """Return the values of observations, (runs, games)."""
        draws = torch.zeros(*obs.shape[:2], self._choice_draws, device=self.device)
        values: Tensor = self.choose(obs, draws, draws.new_zeros(len(obs)))["value"]
        return values

    @torch.no_grad()
    def _play(self) -> Metrics:
        choose_actions, take_outcome = self._halves
        chosen = choose_actions()
        self.games.launch(chosen["actions"])
        outcome: Metrics = take_outcome(chosen)
        return outcome

    @torch.no_grad()
    def _choose_actions(self) -> dict[str, Tensor]:
        """Return the actions of all games, and what the learner keeps of its own games' choice."""
        obs, count = self.obs, self.num_envs
        exploration, choice_draws = (
            kept.index_select(1, self.position).squeeze(1)
            for kept in (self._exploration, self._choice)
        )
        if len(self.games.sizes) > 1:  # the other games' actions are not explored
            rest = obs.shape[1] - count
            choice_draws = torch.nn.functional.pad(choice_draws, (0, 0, 0, rest))
        choice = self.choose(obs, choice_draws, exploration)
        greedy = choice.pop("greedy")
        own = {name: value[:, :count] for name, value in choice.items()}
        actions = torch.cat([own["action"], greedy[:, count:]], 1)
        return {**own, "obs": obs[:, :count].clone(), "actions": actions}

    @torch.no_grad()
    def _take_outcome(self, chosen: dict[str, Tensor]) -> Metrics:
        """Let the learner store the step, and note the episodes that ended."""
        count = self.num_envs
        own = {name: value for name, value in chosen.items() if name != "actions"}
        draws = self._draws.index_select(1, self.position).squeeze(1)
        next_obs, outcome = self.games.step(chosen["actions"], draws)
        self._store(
            {
                **own,
                "reward": outcome.reward[:, :count],
                "terminated": outcome.terminated[:, :count],
                "truncated": outcome.truncated[:, :count],
                "final_obs": outcome.obs[:, :count],
            }
        )
        ends = outcome.finished, outcome.score, outcome.length.to(torch.int32)
        for kept, value in zip(self._ends, ends, strict=True):
            kept.index_copy_(1, self.position, value.unsqueeze(1))
        self.obs.copy_(next_obs)
        self.position += 1
        return {}


def send(values: Sequence[Sequence[float]], tensor: Tensor) -> None:
    """Queue the copy of numbers to a tensor."""
    numbers = torch.tensor(values, dtype=tensor.dtype)
    # A copy from other memory would wait for all that is queued.
    numbers = numbers.pin_memory() if tensor.is_cuda else numbers
    tensor.copy_(numbers, non_blocking=True)


class Pending:
    """Tensors on their way to the host."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        on_gpu = tensors[0].is_cuda
        self._copies = [
            torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=on_gpu).copy_(
                tensor, non_blocking=True
            )
            for tensor in tensors
        ]
        self._event = torch.cuda.Event() if on_gpu else None
        if self._event is not None:
            self._event.record()

    def arrays(self) -> list[NDArray[Any]]:
        """Wait for them, and return them."""
        if self._event is not None:
            self._event.synchronize()
        return [copy.numpy() for copy in self._copies]
