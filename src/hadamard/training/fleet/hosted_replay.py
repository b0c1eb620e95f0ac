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
from hadamard.training.fleet.stacked_remedies import FleetRemedies

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
        self._remedies = FleetRemedies(agents, self.stack)
        lanes = agents[0].choice_draws
        self._choice_seed = torch.tensor([[child_seed(s, _CHOICE)] for s in seeds], device=device)
        self._choice = torch.zeros(count, TABLE, config.num_envs, lanes, device=device)
        self._exploration = torch.zeros(count, TABLE, device=device)
        self._table_start = -1
        """The step that these tables begin with."""
        self._runs = torch.arange(count, device=device)
        self._sample_seed = torch.tensor([[child_seed(s, _SAMPLE)] for s in seeds])
        self._samples: NDArray[np.float64] = np.empty(0)
        self._first_sample = -1
        """The update whose numbers are the first of these."""
        compiled = compiler(train.compile, device)
        self._act: Callable[..., Metrics] = jit(
            compiled(self._chosen), device, [], train.capture, reuse_output=True
        )
        changed = [*self.optimizer.tensors, *self._remedies.tensors]
        learn, self._parts = compiled(self._learn), (self._loss_gradients, self._step)
        if self._remedies.in_update:  # they act between two compiled parts
            learn, self._parts = self._learn, (compiled(self._parts[0]), compiled(self._parts[1]))
        self._update = jit(learn, device, changed, train.capture, reuse_output=True)

    def act(self, obs: Tensor, step: NDArray[np.int64]) -> Tensor:
        """Act epsilon-greedily in runs whose steps differ by less than the length of a table."""
        places = (step - self._table_start) // self.config.num_envs
        if self._table_start < 0 or places.max() >= TABLE:
            self._draw_choices(int(step.min()))
            places = (step - self._table_start) // self.config.num_envs
        action: Tensor = self._act(obs, torch.from_numpy(places))["action"]
        return action.cpu()

    def store(self, action: Tensor, step: Step) -> None:
        """Store a step of the games that made one."""
        self.replay.store(action, step)

    def rounds_until_update(self, step: int, limit: int) -> int:
        """Return how many rounds runs at a step can act with the same weights, up to a limit."""
        agent, num_envs = self.agents[0], self.config.num_envs
        made = agent.updates_due(step)
        rounds = 1
        while rounds < limit and agent.updates_due(step + rounds * num_envs) == made:
            rounds += 1
        return rounds

    def learn(self, step: int, in_flight: NDArray[np.bool_]) -> bool:
        """Make the updates up to a step that all runs have acted for, and renew the targets.

        Returns False if an update needs the last step of a run whose step is in flight.
        """
        agent, num_envs = self.agents[0], self.config.num_envs
        while self.steps < step:
            after = self.steps + num_envs
            while self.updates < agent.updates_due(after):
                drawn = self._drawn(self.updates, in_flight.repeat(num_envs))
                if not self.replay.holds(drawn):
                    return False
                self._learn_from(drawn)
            if agent.target_due(self.steps, after):
                self._copy_to_target()
            self.steps = after
        return True

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
        self._table_start = step

    def _drawn(self, update: int, in_flight: NDArray[np.bool_]) -> Drawn:
        """Choose the transitions of an update; of some games the step before it is in flight."""
        if not 0 <= update - self._first_sample < TABLE or self._first_sample < 0:
            numbers = update + torch.arange(TABLE)
            draws = uniforms(self._sample_seed, numbers, self.config.batch_size, DRAWS)
            self._samples, self._first_sample = draws.double().numpy(), update
        return self.replay.draw(self._samples[:, update - self._first_sample], in_flight)

    def _learn_from(self, drawn: Drawn) -> None:
        """Make one update of every run."""
        frames, *values = self.replay.batch(drawn)
        metrics = self._update(frames, *values)
        self.metrics = metrics
        self.updates += 1
        if self._remedies.after_updates:
            obs, _ = self.replay.observations(frames)
            self._remedies(self.updates, obs)

    @torch.no_grad()
    def _chosen(self, obs: Tensor, places: Tensor) -> Metrics:
        """Choose actions; ``places`` are those of the runs' steps in the tables."""
        draws, exploration = (
            table[self._runs, places] for table in (self._choice, self._exploration)
        )
        return {"action": self._choose(obs, draws, exploration)["action"]}

    def _learn(self, frames: Tensor, action: Tensor, reward: Tensor, terminated: Tensor) -> Metrics:
        gradients, step = self._parts
        gradient, output = gradients(frames, action, reward, terminated)
        self._remedies.change_gradient(gradient)
        step(gradient)
        self._remedies.change_weights(self._rates)
        return output

    def _loss_gradients(
        self, frames: Tensor, action: Tensor, reward: Tensor, terminated: Tensor
    ) -> tuple[Tensor, Metrics]:
        obs, next_obs = self.replay.observations(frames)
        gradient, loss, value = self._gradient(obs, action, reward, terminated, next_obs)
        return gradient, {"loss": loss, "value": value}

    @torch.no_grad()
    def _step(self, gradient: Tensor) -> None:
        self.optimizer.step(gradient, self._rates)

    @torch.no_grad()
    def _copy_to_target(self) -> None:
        for name, weight in self.stack.weights["network"].items():
            self.stack.weights["target"][name].copy_(weight)
