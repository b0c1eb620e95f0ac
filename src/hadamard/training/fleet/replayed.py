"""Playing and updates of many runs that learn from a replay.

A block is a fixed number of steps of every run, and the updates that fall due between them. Nothing
in it waits for the host, which meanwhile records the block before::

    GPU    play | play | play | play | learn | play | ...
    host   queue the next block's    | episodes of the block before | ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hadamard.compute.draws import uniforms
from hadamard.compute.jit import compiler, jit
from hadamard.compute.stack import Stack, StackedAdam
from hadamard.core.config import TrainSpec
from hadamard.core.random import child_seed
from hadamard.core.types import Metrics
from hadamard.envs.tensor_games import StackedGames
from hadamard.learning.replay.bits import StackedBitReplay
from hadamard.learning.replay.packing import Batch
from hadamard.training.fleet.failure import Failure
from hadamard.training.fleet.playing import Pending, Player
from hadamard.training.fleet.stacked_remedies import FleetRemedies

BLOCK = 1_000
"""Steps of a run in a block; fewer, if they are no whole number of steps of all environments."""
_SAMPLE = 2
"""Purpose of random numbers, see ``child_seed``."""


class Replayed:
    """The computation of a fleet of runs with a replay."""

    failures: Mapping[int, Failure] = {}  # tensor programs do not fail

    def __init__(
        self, agents: Sequence[Any], seeds: Sequence[int], games: StackedGames, train: TrainSpec
    ) -> None:
        self.agents, self.config = list(agents), agents[0].config
        config = self.config
        self.stack = Stack(agents, frozen=["target"])
        self.optimizer = StackedAdam(self.stack, agents)
        rounds = max(1, BLOCK // config.num_envs)
        self.player = Player(agents, seeds, games, self.stack, rounds, train)
        self.device = device = self.player.device
        self.block = rounds * config.num_envs
        """Steps of a run in a block."""
        self.replay = StackedBitReplay([agent.parts["replay"] for agent in agents])
        self._gradient = self.stack.gradient("_loss")
        self._sample_seed = torch.tensor([[child_seed(s, _SAMPLE)] for s in seeds], device=device)
        self._rates = torch.tensor(
            [agent.config.learning_rate for agent in agents], dtype=torch.float64, device=device
        )
        self._remedies = FleetRemedies(agents, self.stack)
        self._position = torch.zeros(1, dtype=torch.int64, device=device)
        """Of the update in the block."""
        updates = self.block // config.update_period + 1
        self._draws = torch.zeros(len(agents), updates, config.batch_size, 2, device=device)
        obs = self.player.obs[:, : config.num_envs]
        self._obs = obs.new_zeros(len(obs), rounds, *obs.shape[1:])
        """The observations of the block, for diagnoses."""
        # What else the replay holds may change in warm-up calls: the first steps write there again.
        self.player.stores_with(self._store, [self.replay.written])
        changed = [*self.optimizer.tensors, self._position, *self._remedies.tensors]
        compiled = compiler(train.compile, device)
        learn, self._parts = compiled(self._learn), (self._loss_gradients, self._step)
        if self._remedies.in_update:  # they act between two compiled parts
            learn, self._parts = self._learn, (compiled(self._parts[0]), compiled(self._parts[1]))
        self._update = jit(learn, device, changed, train.capture, reuse_output=True)
        self.metrics: Metrics = {}
        """Of the newest update."""

    def _store(self, step: Metrics) -> None:
        """Keep a step of all games."""
        self._obs.index_copy_(1, self.player.position, step["obs"].unsqueeze(1))
        names = ("obs", "action", "reward", "terminated", "final_obs")
        self.replay.store(Batch(*(step[name] for name in names)))

    def close(self) -> None:
        """Nothing to end."""

    def queue_block(self, step: int, updates: int) -> tuple[Pending, int]:
        """Queue a block of runs that are at this step and have made so many updates.

        Returns the episodes that end in it, and the number of updates of each run.
        """
        agent, before = self.agents[0], updates
        self.player.begin(step)
        number = updates + torch.arange(self._draws.shape[1], device=self.device)
        self._draws.copy_(uniforms(self._sample_seed, number, self.config.batch_size, 2))
        self._position.zero_()
        output: Metrics | None = None
        for _ in range(self.player.steps):
            self.player.step()
            previous, step = step, step + self.config.num_envs
            while updates < agent.updates_due(step):
                output = self._update()
                updates += 1
                if self._remedies.after_updates:
                    self._remedies(updates, output["obs"])
            if agent.target_due(previous, step):
                self._copy_to_target()
        if output is not None:
            self.metrics = {name: output[name] for name in output if name != "obs"}
        return self.player.ends(), updates - before

    def recent(self, index: int) -> Tensor:
        """Return the observations of a run's block, oldest first."""
        return self._obs[index].flatten(0, 1)

    def timed(self, timer: Callable[[Callable[[], object], int], float]) -> dict[str, float]:
        """Return the seconds of playing and of learning in a block, for measurements only."""
        updates = self.block // self.config.update_period
        self.player.position.zero_()
        playing = timer(self.player.step, self.player.steps) * self.player.steps
        self._position.zero_()
        learning = timer(self._update, updates) * updates
        return {"playing": playing, "learning": learning}

    @torch.no_grad()
    def _copy_to_target(self) -> None:
        for name, weight in self.stack.weights["network"].items():
            self.stack.weights["target"][name].copy_(weight)

    def _learn(self) -> Metrics:
        """Make one update of every run."""
        gradients, step = self._parts
        gradient, output = gradients()
        self._remedies.change_gradient(gradient)
        step(gradient)
        self._remedies.change_weights(self._rates)
        return output

    def _loss_gradients(self) -> tuple[Tensor, Metrics]:
        """Return the gradients of all runs and the measurements."""
        batch = self.replay.sample(self._draws.index_select(1, self._position).squeeze(1))
        gradient, loss, value = self._gradient(*batch)
        obs = {"obs": batch.obs} if self._remedies.after_updates else {}
        return gradient, {"loss": loss, "value": value} | obs

    @torch.no_grad()
    def _step(self, gradient: Tensor) -> None:
        self.optimizer.step(gradient, self._rates)
        self._position += 1
