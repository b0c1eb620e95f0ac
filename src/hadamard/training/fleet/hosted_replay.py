"""Acting and updates of many runs that learn from a replay and whose games the host plays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.compute.draws import uniforms
from hadamard.compute.jit import compiler, jit
from hadamard.compute.stack import Stack, StackedAdam
from hadamard.core.config import TrainSpec
from hadamard.core.random import child_seed
from hadamard.core.types import Metrics, Step
from hadamard.learning.replay.stacked import DRAWS, Drawn, StackedReplay
from hadamard.training.fleet.playing import send

_CHOICE, _SAMPLE = 1, 2
"""Purposes of random numbers, see ``child_seed``."""
TABLE = 128
"""Steps, or updates, whose random numbers are drawn at once."""


class HostedReplay:
    """The computation of a fleet of runs with a replay."""

    def __init__(self, agents: Sequence[Any], seeds: Sequence[int], train: TrainSpec) -> None:
        self.agents, self.config = list(agents), agents[0].config
        config, count = self.config, len(agents)
        self.device = device = agents[0].device
        self.stack = Stack(agents, frozen=["target"])
        self.optimizer = StackedAdam(self.stack, agents)
        self.replay = StackedReplay([a.replay for a in agents], device, capture=train.capture)
        self.steps: int = agents[0].counters["steps"]
        self.updates: int = agents[0].counters["updates"]
        self.metrics: Metrics = {}
        """Of the newest update."""
        self._choose, self._gradient = (
            self.stack.over_agents("choose"),
            self.stack.gradient("_loss"),
        )
        self._rates = torch.tensor(
            [agent.config.learning_rate for agent in agents], dtype=torch.float64, device=device
        )
        self._remedies = any(agent.after_update is not None for agent in agents)
        lanes = agents[0].choice_draws
        self._choice_seed = torch.tensor([[child_seed(s, _CHOICE)] for s in seeds], device=device)
        self._choice = torch.zeros(count, TABLE, config.num_envs, lanes, device=device)
        self._exploration = torch.zeros(count, TABLE, device=device)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        """Of the step in these tables."""
        self._left = 0
        """Steps left in them."""
        self._sample_seed = torch.tensor([[child_seed(s, _SAMPLE)] for s in seeds])
        self._samples: NDArray[np.float64] = np.empty(0)
        self._first_sample = -1
        """The update whose numbers are the first of these."""
        compiled = compiler(train.compile, device)
        position = [self._position]
        self._act: Callable[..., Metrics] = jit(
            compiled(self._chosen), device, position, train.capture, reuse_output=True
        )
        changed = self.optimizer.tensors
        self._update = jit(compiled(self._learn), device, changed, train.capture, reuse_output=True)

    def act(self, obs: Tensor, step: int) -> Tensor:
        """Act epsilon-greedily in all games."""
        if self._left == 0:
            self._draw_choices(step)
        self._left -= 1
        action: Tensor = self._act(obs)["action"]
        return action.cpu()

    def learn_ahead(self) -> None:
        """Make updates that are due after the step in flight, until one would sample it."""
        due = self._due()
        while self.updates < due and self.replay.holds(drawn := self._drawn(self.updates)):
            self._learn_from(drawn)

    def observe(self, obs: Tensor, action: Tensor, step: Step) -> None:
        """Store a step of all games, make the updates that are due, and renew the targets."""
        del obs  # the replays have the frames already
        drawn = [self._drawn(update) for update in range(self.updates, self._due())]
        self.replay.store(action.flatten(0, 1), step)
        for transitions in drawn:
            self._learn_from(transitions)
        before, self.steps = self.steps, self.steps + self.config.num_envs
        if self.agents[0].target_due(before, self.steps):
            self._copy_to_target()

    def _due(self) -> int:
        """Return how many updates a run has made after the next step."""
        due: int = self.agents[0].updates_due(self.steps + self.config.num_envs)
        return due

    def _draw_choices(self, step: int) -> None:
        """Fill the tables of what actions need from a step on."""
        count, num_envs = TABLE, self.config.num_envs
        exploration = [
            [agent.exploration(step + place * num_envs) for place in range(count)]
            for agent in self.agents
        ]
        send(exploration, self._exploration)
        numbers = step // num_envs + torch.arange(count, device=self.device)
        self._choice.copy_(uniforms(self._choice_seed, numbers, *self._choice.shape[2:]))
        self._position.zero_()
        self._left = count

    def _drawn(self, update: int) -> Drawn:
        """Choose the transitions of an update that follows the next step."""
        if not 0 <= update - self._first_sample < TABLE or self._first_sample < 0:
            numbers = update + torch.arange(TABLE)
            draws = uniforms(self._sample_seed, numbers, self.config.batch_size, DRAWS)
            self._samples, self._first_sample = draws.double().numpy(), update
        return self.replay.draw(self._samples[:, update - self._first_sample])

    def _learn_from(self, drawn: Drawn) -> None:
        """Make one update of every run."""
        frames, *values = self.replay.batch(drawn)
        metrics = self._update(frames, *values)
        self.metrics = metrics
        self.updates += 1
        if self._remedies:
            obs, _ = self.replay.observations(frames)
            for index, agent in enumerate(self.agents):
                if agent.after_update is not None:
                    agent.after_update(self.updates, obs[index])

    @torch.no_grad()
    def _chosen(self, obs: Tensor) -> Metrics:
        draws, exploration = (
            table.index_select(1, self._position).squeeze(1)
            for table in (self._choice, self._exploration)
        )
        action = self._choose(obs, draws, exploration)["action"]
        self._position += 1
        return {"action": action}

    def _learn(self, frames: Tensor, action: Tensor, reward: Tensor, terminated: Tensor) -> Metrics:
        obs, next_obs = self.replay.observations(frames)
        gradient, loss, value = self._gradient(obs, action, reward, terminated, next_obs)
        with torch.no_grad():
            self.optimizer.step(gradient, self._rates)
        return {"loss": loss, "value": value}

    @torch.no_grad()
    def _copy_to_target(self) -> None:
        for name, weight in self.stack.weights["network"].items():
            self.stack.weights["target"][name].copy_(weight)
