"""Acting and learning of many soft actor-critic runs (SimbaV2), whose games the host plays.

In a round ``act`` chooses the actions of all runs, and ``observe`` stores what came of them and
queues the updates that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hadamard.compute.draws import normals, uniforms
from hadamard.compute.jit import compiler, jit
from hadamard.compute.stack import StackedModules
from hadamard.compute.stacked_sphere import StackedSphereAdam
from hadamard.core.config import TrainSpec
from hadamard.core.random import child_seed
from hadamard.core.types import Metrics, Step
from hadamard.learning.replay.on_device import StackedDeviceReplay
from hadamard.learning.replay.packing import Batch

_CHOICE, _SAMPLE, _RANDOM_ACTION, _UPDATE = 1, 2, 6, 7
"""Purposes of random numbers, see ``child_seed``."""
_MODULES = "network", "target", "temperature", "rewards", "rate"


class SoftActorCritic:
    """The computation of a fleet of soft actor-critic runs.

    ``one_by_one``, by default on a CPU: see ``StackedModules``.
    """

    def __init__(
        self,
        agents: Sequence[Any],
        seeds: Sequence[int],
        train: TrainSpec,
        *,
        one_by_one: bool | None = None,
    ) -> None:
        first = agents[0]
        self.config, self.device, self.num_envs = first.config, first.device, first.num_envs
        self.action_size: int = first.action_size
        self.steps: int = first.counters["steps"]
        self.updates: int = first.counters["updates"]
        self.metrics: Metrics = {}
        """Of the newest update, each (runs,)."""
        if one_by_one is None:
            one_by_one = self.device.type == "cpu"
        self.stack = stack = StackedModules(agents, _MODULES, one_by_one=one_by_one)
        self.replay = StackedDeviceReplay([agent.replay for agent in agents])
        self._seeds = {
            purpose: torch.tensor([child_seed(s, purpose) for s in seeds], device=self.device)
            for purpose in (_CHOICE, _SAMPLE, _RANDOM_ACTION, _UPDATE)
        }

        def adam(name: str, part: str, **options: Any) -> StackedSphereAdam:
            own = [agent.optimizers[name] for agent in agents]
            return StackedSphereAdam(stack.parameters(part), own, **options)

        targets = list(stack.parameters("target").values())
        self._adam_of_actor = adam("actor", "network.actor")
        self._adam_of_temperature = adam("temperature", "temperature")
        self._adam_of_critic = adam(
            "critic", "network.critic", targets=targets, tau=first.config.tau
        )

        device, capture = self.device, train.capture
        compiled = compiler(train.compile, device)
        self._sample = stack.over_agents("_explore")
        self._normalized = compiled(stack.over_agents("_normalized"))
        self._actor_gradient = compiled(stack.gradients("_actor_loss", "network.actor"))
        self._temperature_gradient = stack.gradients("_temperature_loss", "temperature")
        self._critic_target = compiled(stack.over_agents("_critic_target"))
        self._critic_gradient = compiled(stack.gradients("_critic_loss", "network.critic"))
        self._advance_rates = stack.over_agents("rate.advance")
        self._update_scales = stack.over_agents("rewards.update")
        adams = self._adam_of_actor, self._adam_of_temperature, self._adam_of_critic
        learned = [tensor for optimizer in adams for tensor in optimizer.tensors]
        normalizers, scales, rates = (
            list(stack.weights[name].values()) for name in ("network", "rewards", "rate")
        )
        self._explore = jit(self._choose, device, normalizers, capture)
        self._store = jit(self.replay.store, device, [], capture)
        self._learn = jit(self._draw_and_learn, device, [*learned, *rates], capture)
        self._scale = jit(self._update_reward_scales, device, scales, capture)

    def act(self, obs: Tensor, step: int) -> Tensor:
        """Sample from the policies; in the first steps act at random."""
        return self._explore(obs, torch.tensor([step]))["action"].cpu()

    def learn_ahead(self) -> None:
        """Do nothing: every update may draw the step in flight."""

    def observe(self, obs: Tensor, action: Tensor, step: Step) -> None:
        """Store a step of all games and make the updates that follow it."""
        del obs  # the replays have the observations already
        packed = self.replay.pack(step)
        self._store(action.flatten(0, 1), step.next_obs, step.obs, packed)
        self.steps += self.num_envs
        if self.steps >= self.config.learning_starts:
            for _ in range(self.num_envs):
                self.metrics = self._learn(torch.tensor([self.updates]))
                self.updates += self.config.updates_per_step
        # After learning: the reward scale lags one step, as published.
        shape = self.replay.runs, self.num_envs
        self._scale(step.reward.view(shape), (step.terminated | step.truncated).view(shape))

    @torch.no_grad()
    def _choose(self, obs: Tensor, step: Tensor) -> Metrics:
        shape = self.num_envs, self.action_size
        action = self._sample(obs, normals(self._seeds[_CHOICE], step, *shape))["action"]
        random = 2 * uniforms(self._seeds[_RANDOM_ACTION], step, *shape) - 1
        action = torch.where(step < self.config.learning_starts, random, action)
        # Environments refuse NaN; a run that diverged is set aside at the end of the block.
        return {"action": action.nan_to_num()}

    @torch.no_grad()
    def _draw_and_learn(self, number: Tensor) -> Metrics:
        """Draw and normalize the batches of all updates of a step at once, then update."""
        size, count = self.config.batch_size, self.config.updates_per_step
        raw = self.replay.sample(uniforms(self._seeds[_SAMPLE], number, count * size, 2))
        batch: Batch = self._normalized(raw)
        rows = 2 * count * size
        noise = normals(self._seeds[_UPDATE], number, rows, self.action_size).split(size, dim=1)
        for i in range(count):
            part = slice(i * size, (i + 1) * size)
            minibatch = Batch(*(tensor[:, part] for tensor in batch))
            metrics = self._update(minibatch, noise[2 * i], noise[2 * i + 1])
        return metrics

    def _update(self, batch: Batch, noise: Tensor, next_noise: Tensor) -> Metrics:
        """Update actors, temperatures, critics and targets, in the order of SimbaV2's update."""
        self._advance_rates()
        rates = self.stack.weights["rate"]["rate"]
        gradient, actor_loss, entropy = self._actor_gradient(batch.obs, noise)
        self._adam_of_actor.step(gradient, rates)
        gradient, _, temperature = self._temperature_gradient(entropy)
        self._adam_of_temperature.step(gradient, rates)
        target = self._critic_target(batch, next_noise)
        gradient, loss, _ = self._critic_gradient(batch, target)
        self._adam_of_critic.step(gradient, rates)
        metrics = {"loss": loss, "actor_loss": actor_loss, "entropy": entropy}
        return metrics | {"temperature": temperature}

    @torch.no_grad()
    def _update_reward_scales(self, reward: Tensor, done: Tensor) -> Metrics:
        self._update_scales(reward, done)
        return {}
