"""Rollouts and updates of many on-policy runs at once.

A block is one rollout of every run and the updates that learn from it. Nothing in it waits for the
host, which meanwhile records the block before::

    GPU    play x steps | targets | learn x updates | play x steps | ...
    host   queue them   | episodes of the block before             | ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hadamard.compute.jit import compiler, jit
from hadamard.compute.stack import Stack, StackedAdam, clipped
from hadamard.core.config import TrainSpec
from hadamard.core.counter import permutations
from hadamard.core.random import child_seed
from hadamard.core.types import Metrics
from hadamard.envs.atari_on_device import StackedEmulators
from hadamard.envs.tensor_games import StackedGames
from hadamard.training.fleet.failure import Failure
from hadamard.training.fleet.playing import Pending, Player, send
from hadamard.training.fleet.stacked_remedies import FleetRemedies

_ORDER = 5
"""Purpose of random numbers, see ``child_seed``."""


class OnPolicy:
    """The computation of a fleet of on-policy runs."""

    failures: Mapping[int, Failure] = {}  # games on the device do not fail

    def __init__(
        self,
        agents: Sequence[Any],
        seeds: Sequence[int],
        games: StackedGames | StackedEmulators,
        train: TrainSpec,
    ) -> None:
        self.agents, self.config = list(agents), agents[0].config
        config, count = self.config, len(agents)
        self.stack = Stack(agents)
        self.optimizer = StackedAdam(self.stack, agents)
        self.player = Player(agents, seeds, games, self.stack, config.rollout_steps, train)
        self.device = device = self.player.device
        self.block = config.rollout_steps * config.num_envs
        """Steps of a run in a block."""
        self._updates = config.epochs * config.minibatches
        self._targets = self.stack.over_agents("targets")
        self._gradient = self.stack.gradient("_loss")
        self._order_seed = torch.tensor([child_seed(s, _ORDER) for s in seeds], device=device)
        self._members = torch.arange(count, device=device).unsqueeze(1)
        self._remedies = FleetRemedies(agents, self.stack)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        """Of the update in the block."""
        self._rates = torch.zeros(count, self._updates, dtype=torch.float64, device=device)
        self._order = torch.zeros(
            count,
            self._updates,
            self.block // config.minibatches,
            dtype=torch.int64,
            device=device,
        )
        obs = self.player.obs[:, : config.num_envs]
        self._final_obs = obs.clone()
        """The last observations of truncated episodes; an episode is longer than a rollout."""
        self.rollout = self._empty_rollout(obs)
        self.player.stores_with(self._store, [self._final_obs, *self.rollout.values()])
        self._finish = jit(self._finish_rollout, device, [], train.capture, reuse_output=True)
        compiled = compiler(train.compile, device)
        changed = [*self.optimizer.tensors, self._position, *self._remedies.tensors]
        learn, self._parts = compiled(self._learn), (self._loss_gradients, self._step)
        if self._remedies.in_update:  # they act between two compiled parts
            learn, self._parts = self._learn, (compiled(self._parts[0]), compiled(self._parts[1]))
        self._update = jit(learn, device, changed, train.capture, reuse_output=True)

    @torch.no_grad()
    def _empty_rollout(self, obs: Tensor) -> dict[str, Tensor]:
        """Make the tensors that hold a rollout, each (runs, steps, games, ...)."""
        draws = torch.zeros(*obs.shape[:2], self.agents[0].choice_draws, device=self.device)
        values = dict(self.player.choose(obs, draws, draws.new_zeros(len(obs))))
        del values["greedy"]
        number = draws.new_zeros(obs.shape[:2])
        values |= {"obs": obs, "reward": number}
        values |= {"terminated": number.bool(), "truncated": number.bool()}
        steps = self.config.rollout_steps
        return {
            name: value.new_zeros(len(value), steps, *value.shape[1:])
            for name, value in values.items()
        }

    def _store(self, step: Metrics) -> None:
        """Keep a step of all games."""
        values = dict(step)
        final_obs, truncated = values.pop("final_obs"), values["truncated"]
        truncated = truncated[(...,) + (None,) * (final_obs.dim() - 2)]
        self._final_obs.copy_(torch.where(truncated, final_obs, self._final_obs))
        for name, value in values.items():
            self.rollout[name].index_copy_(1, self.player.position, value.unsqueeze(1))

    def close(self) -> None:
        """Nothing to end."""

    def queue_block(self, step: int, updates: int) -> tuple[Pending, int]:
        """Queue a block of runs that are at this step and have made so many updates.

        Returns the episodes that end in it, and the number of updates of each run.
        """
        self.player.begin(step)
        for _ in range(self.config.rollout_steps):
            self.player.step()
        ends = self.player.ends()
        self.rollout |= dict(self._finish())
        rates = [
            [agent.learning_rate(updates + update) for update in range(self._updates)]
            for agent in self.agents
        ]
        send(rates, self._rates)
        self._shuffle(updates)
        self._position.zero_()
        for update in range(1, self._updates + 1):
            output = self._update()
            if self._remedies.after_updates:
                self._remedies(updates + update, output["obs"])
        self.metrics: Metrics = {name: output[name] for name in output if name != "obs"}
        return ends, self._updates

    def recent(self, index: int) -> Tensor:
        """Return the observations of a run's block, oldest first."""
        return self.rollout["obs"][index].flatten(0, 1)

    def timed(self, timer: Callable[[Callable[[], object], int], float]) -> dict[str, float]:
        """Return the seconds of playing and of learning in a block, for measurements only."""
        self.player.position.zero_()
        playing = timer(self.player.step, self.player.steps) * self.player.steps
        self._position.zero_()
        learning = timer(self._update, self._updates) * self._updates
        return {"playing": playing, "learning": learning}

    @torch.no_grad()
    def _finish_rollout(self) -> Metrics:
        """Compute what the loss compares with."""
        obs = self.player.obs[:, : self.config.num_envs]
        last, final = (self.player.values(obs) for obs in (obs, self._final_obs))
        names = ("reward", "terminated", "truncated", "value")
        data = {name: self.rollout[name] for name in names}
        targets: Metrics = self._targets(data, last, final)
        return targets

    def _shuffle(self, updates: int) -> None:
        """Draw the order of the transitions for every pass over the rollout."""
        minibatches = self.config.minibatches
        for epoch in range(self.config.epochs):
            number = torch.full_like(self._order_seed, updates // minibatches + epoch)
            order = permutations(self._order_seed, number, self.block)
            parts = order.unflatten(1, (minibatches, self._order.shape[2]))
            self._order[:, epoch * minibatches : (epoch + 1) * minibatches].copy_(parts)

    def _learn(self) -> Metrics:
        """Make one update of every run."""
        gradients, step = self._parts
        gradient, rates, output = gradients()
        self._remedies.change_gradient(gradient)
        step(gradient, rates)
        self._remedies.change_weights(rates)
        return output

    def _loss_gradients(self) -> tuple[Tensor, Tensor, Metrics]:
        """Return the gradients of all runs, their learning rates and the measurements."""
        index = self._order.index_select(1, self._position).squeeze(1)
        rates = self._rates.index_select(1, self._position).squeeze(1)
        names = self.agents[0].learns_from
        batch = [self.rollout[name].flatten(1, 2)[self._members, index] for name in names]
        gradient, loss, metrics = self._gradient(*batch)
        with torch.no_grad():
            gradient, norm = clipped(gradient, self.config.max_grad_norm)
        named = metrics if isinstance(metrics, dict) else {"value": metrics}
        output = {"loss": loss, **named, "gradient_norm": norm}
        obs = {"obs": batch[0]} if self._remedies.after_updates else {}
        return gradient, rates, output | obs

    @torch.no_grad()
    def _step(self, gradient: Tensor, rates: Tensor) -> None:
        self.optimizer.step(gradient, rates)
        self._position += 1
