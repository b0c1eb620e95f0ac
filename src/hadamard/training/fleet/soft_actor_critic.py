"""Acting and learning of many soft actor-critic runs (SimbaV2) at once.

The environments play elsewhere. A round is a step of every run: ``act`` chooses its actions, and
``observe`` stores it and makes the updates that follow. Neither waits for the device.
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
from hadamard.learning.replay.packing import Batch
from hadamard.learning.replay.on_device import StackedDeviceReplay

# Purposes of random numbers, see ``child_seed``.
_CHOICE, _SAMPLE, _RANDOM_ACTION, _UPDATE = 1, 2, 6, 7


class SoftActorCritic:
    """The computation of a fleet of soft actor-critic runs."""

    def __init__(self, agents: Sequence[Any], seeds: Sequence[int], train: TrainSpec) -> None:
        self.agents, self.config = list(agents), agents[0].config
        first, config = agents[0], self.config
        self.num_envs, self.action_size, self.device = (
            first.num_envs,
            first.action_size,
            first.device,
        )
        self.stack = stack = StackedModules(
            agents, ["network", "target", "temperature", "rewards", "rate"]
        )
        self.replay = StackedDeviceReplay([agent.replay for agent in agents])

        def adam(name: str, part: str, **options: Any) -> StackedSphereAdam:
            own = [agent.optimizers[name] for agent in agents]
            return StackedSphereAdam(stack.parameters(part), own, **options)

        targets = list(stack.parameters("target").values())
        self._actor_optimizer = adam("actor", "network.actor")
        self._temperature_optimizer = adam("temperature", "temperature")
        self._critic_optimizer = adam("critic", "network.critic", targets=targets, tau=config.tau)
        self._seeds = {
            purpose: torch.tensor([child_seed(s, purpose) for s in seeds], device=self.device)
            for purpose in (_CHOICE, _SAMPLE, _RANDOM_ACTION, _UPDATE)
        }
        self.metrics: Metrics = {}
        """Of the newest update, each (runs,)."""

        device, capture = self.device, train.capture
        compiled = compiler(train.compile, device)
        self._sampled_action = stack.over_agents("_sampled_action")
        self._normalized = compiled(stack.over_agents("_normalized"))
        self._actor_gradient = compiled(stack.gradients("_actor_loss", "network.actor"))
        self._temperature_gradient = stack.gradients("_temperature_loss", "temperature")
        self._critic_target = compiled(stack.over_agents("_critic_target"))
        self._critic_gradient = compiled(stack.gradients("_critic_loss", "network.critic"))
        rates, statistics, scales = (
            list(stack.weights[name].values()) for name in ("rate", "network", "rewards")
        )
        optimizers = self._actor_optimizer, self._temperature_optimizer, self._critic_optimizer
        learned = [tensor for optimizer in optimizers for tensor in optimizer.tensors]
        self._explore = jit(self._explore_all, device, statistics, capture)
        self._store = jit(self.replay.store, device, [], capture)
        self._learn = jit(self._learn_all, device, [*learned, *rates], capture)
        self._update_reward_scale = jit(self._update_scale_of_all, device, scales, capture)
        self._advance_rate = stack.over_agents("rate.advance")
        self._update_rewards = stack.over_agents("rewards.update")

    def act(self, obs: Tensor, step: int) -> Tensor:
        """Choose actions (runs, environments, ...) at a step; at random in the first steps."""
        return self._explore(obs, torch.tensor([step]))["action"]

    def observe(self, obs: Tensor, action: Tensor, steps: Sequence[Step]) -> Metrics | None:
        """Store a step of every run and make the updates that follow it."""
        del obs  # the replay has the observations already
        config, counters = self.config, self.agents[0].counters
        next_obs = newest = torch.stack([step.obs for step in steps])
        if any(step.final_index is not None for step in steps):
            next_obs = torch.stack([step.next_obs for step in steps])
        packed = self.replay.pack(steps)
        self._store(action, next_obs, newest, packed)
        learns = counters["steps"] + self.num_envs >= config.learning_starts
        if learns:
            for _ in range(self.num_envs):
                self.metrics = self._learn(torch.tensor([counters["updates"]]))
                for agent in self.agents:
                    agent.counters["updates"] += config.updates_per_step
        for agent in self.agents:
            agent.counters["steps"] += self.num_envs
        # After learning: the reward scale lags one step, as published.
        done = torch.stack([step.terminated | step.truncated for step in steps])
        self._update_reward_scale(packed[3], done)
        return self.metrics if learns else None

    def _uniforms(self, purpose: int, number: Tensor, rows: int, lanes: int) -> Tensor:
        return uniforms(self._seeds[purpose], number, rows, lanes)

    def _normals(self, purpose: int, number: Tensor, rows: int) -> Tensor:
        return normals(self._seeds[purpose], number, rows, self.action_size)

    @torch.no_grad()
    def _explore_all(self, obs: Tensor, step: Tensor) -> Metrics:
        action = self._sampled_action(obs, self._normals(_CHOICE, step, self.num_envs))
        uniform = self._uniforms(_RANDOM_ACTION, step, self.num_envs, self.action_size)
        return {"action": torch.where(step < self.config.learning_starts, 2 * uniform - 1, action)}

    @torch.no_grad()
    def _learn_all(self, number: Tensor) -> Metrics:
        """Draw and normalize the batches of all updates of a step at once, then update."""
        size, count = self.config.batch_size, self.config.updates_per_step
        raw = self.replay.sample(self._uniforms(_SAMPLE, number, count * size, 2))
        batch: Batch = self._normalized(raw)
        noise = self._normals(_UPDATE, number, 2 * count * size).split(size, dim=1)
        for i in range(count):
            part = slice(i * size, (i + 1) * size)
            minibatch = Batch(*(tensor[:, part] for tensor in batch))
            metrics = self.update(minibatch, noise[2 * i], noise[2 * i + 1])
        return metrics

    @torch.no_grad()
    def update(self, batch: Batch, noise: Tensor, next_noise: Tensor) -> Metrics:
        """Update actors, temperatures, critics and targets, in the order of SimbaV2's update."""
        self._advance_rate()
        rates = self.stack.weights["rate"]["rate"]
        gradient, actor_loss, entropy = self._actor_gradient(batch.obs, noise)
        self._actor_optimizer.step(gradient, rates)
        gradient, _, temperature = self._temperature_gradient(entropy)
        self._temperature_optimizer.step(gradient, rates)
        target = self._critic_target(batch, next_noise)
        gradient, loss, _ = self._critic_gradient(batch, target)
        self._critic_optimizer.step(gradient, rates)
        metrics = {"loss": loss, "actor_loss": actor_loss, "entropy": entropy}
        return metrics | {"temperature": temperature}

    @torch.no_grad()
    def _update_scale_of_all(self, reward: Tensor, done: Tensor) -> Metrics:
        self._update_rewards(reward, done)
        return {}
