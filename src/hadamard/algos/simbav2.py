"""SimbaV2: soft actor-critic on the hypersphere, with a categorical value."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.core import optimisers
from hadamard.core.config import NetSpec, RunSpec, require_positive
from hadamard.core.distributions import cross_entropy, project_on_bins, squashed
from hadamard.core.jit import beside, compiler, jit
from hadamard.core.normalise import RewardScaler
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.replay import Batch, Replay
from hadamard.core.returns import discount
from hadamard.core.sphere import SphereAdam
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Incremental, Metrics, Stateful, Step
from hadamard.nets.simba import ActorCritic, Shape, Temperature, projected

ACTIONS, ENV = "continuous", "humanoid/h1-walk"
NET = NetSpec(width=512)


@dataclass(frozen=True)
class Config:
    """SimbaV2's settings; the defaults are the published ones for HumanoidBench."""

    num_envs: int = 1
    """Environments stepped together."""
    learning_rate: float = 1e-4
    """Adam's learning rate at the start, for actor, critic and temperature."""
    learning_rate_final: float = 5e-5
    """And in the end; it falls linearly over all updates."""
    gamma: float | None = None
    """Discount; by default it follows from the length of an episode: a fifth of it is seen."""
    tau: float = 0.005
    """How far the target critic moves towards the critic at each update."""
    batch_size: int = 256
    """Transitions in an update."""
    updates_per_step: int = 2
    """Updates for every step of an environment."""
    learning_starts: int = 5_000
    """Steps of random actions before the first update."""
    initial_temperature: float = 0.01
    """Weight of the entropy at the start."""
    target_entropy: float = -0.5
    """Entropy to hold, for each number of an action."""
    double_critic: bool = True
    """Judge by the smaller of two critics; best where episodes can end early."""
    actor_width: int = 128
    """Width of the actor (--net.width is the critic's)."""
    actor_blocks: int = 1
    """Blocks of the actor."""
    critic_blocks: int = 2
    """Blocks of the critic."""
    expansion: int = 4
    """A block's hidden layer is so many times as wide as the block."""
    bins: int = 101
    """Bins of the return's distribution."""
    return_limit: float = 5.0
    """The outermost bins; rewards are scaled so that returns stay within."""
    replay_capacity: int = 1_000_000
    """Transitions kept, on the learner's device."""


class SimbaV2:
    """The agent."""

    optimiser = None  # a recycled neuron would not be on the sphere
    settled = True  # every step is stored whole
    learns_next = True  # every step is learned from

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = c = run.algo
        require_positive(c, "batch_size", "updates_per_step", "expansion")
        require_positive(c, "actor_width", "actor_blocks", "critic_blocks")
        self.num_envs, self.actions, self.device = c.num_envs, env.action_size, device
        self.gamma = discount(env.max_steps) if c.gamma is None else c.gamma
        with seeded(child_seed(run.seed, 0)):
            actor = Shape(c.actor_width, c.actor_blocks, c.expansion)
            critics = 2 if c.double_critic else 1
            critic = Shape(run.net.width, c.critic_blocks, c.expansion, critics)
            network = ActorCritic(env, run.net, actor, critic, c.bins, c.return_limit)
        self.network = network.to(device)
        self.actor, self.critic = network.actor, network.critic
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.temperature = Temperature(c.initial_temperature).to(device)
        self.rewards = RewardScaler(c.num_envs, self.gamma, c.return_limit).to(device)
        updates = c.updates_per_step * run.train.steps
        self.rate = optimisers.DecayingRate(c.learning_rate, c.learning_rate_final, updates, device)

        def adam(module: nn.Module, **more: Any) -> torch.optim.Optimizer:
            kind = functools.partial(SphereAdam, sphere=projected(module), fused=True, **more)
            return optimisers.make(kind, module.parameters(), self.rate.rate, device)

        follow = {"targets": self.target.parameters(), "tau": c.tau}
        self.optimisers = [adam(self.actor), adam(self.temperature), adam(self.critic, **follow)]
        capacity = min(c.replay_capacity, 2 * run.train.steps + 64 * c.num_envs)
        self.replay = Replay(env, c.num_envs, capacity, device, "device")
        self.random = Random(child_seed(run.seed, 1), device)
        self.counters = Counters(steps=0, updates=0)
        self.after_update: AfterUpdate | None = None
        self.parts: dict[str, Stateful | Incremental] = {
            "network": self.network,
            "target": self.target,
            "temperature": self.temperature,
            "rewards": self.rewards,
            "rate": self.rate,
            "replay": self.replay,
            "random": self.random,
            "counters": self.counters,
        }
        for name, optimiser in zip(
            ("actor", "temperature", "critic"), self.optimisers, strict=True
        ):
            self.parts[f"optimiser.{name}"] = optimisers.OptimiserState(optimiser)
        compiled = compiler(run.train.compile, device)
        self.actor_loss = compiled(self._actor_loss)
        self.returns, self.predictions = compiled(self._returns), compiled(self.critic.forward)
        self.critic_loss = compiled(cross_entropy)
        generator, capture = self.random.generator, run.train.capture
        changed = [self.network, self.target, self.temperature, self.rate, *self.optimisers]
        self.learn = jit(self._learn, device, [*changed, generator], capture)
        self.explore = jit(self._explore, device, [network.normaliser, generator], capture)
        self.hear = jit(self._hear, device, [self.rewards], capture)

    def begin(self, obs: Tensor) -> None:
        """Start episodes in the replay."""
        self.replay.begin(obs)

    def act(self, obs: Tensor, *, explore: bool = True) -> tuple[Tensor, Extra]:
        """Sample from the policy, or take its mean; at the start explore at random."""
        if not explore:
            with torch.no_grad():
                return torch.tanh(self.actor(self.network.normaliser(obs))[0]), {}
        action = self.explore(obs)["action"]
        if self.counters["steps"] < self.config.learning_starts:
            generator = self.random.generator
            action = 2 * torch.rand(action.shape, generator=generator, device=self.device) - 1
        return action, {}

    @torch.no_grad()
    def _explore(self, obs: Tensor) -> Metrics:
        self.network.normaliser.update(obs)
        mean, deviation = self.actor(self.network.normaliser(obs))
        return {"action": squashed(mean, deviation, self._noise(len(obs)))[0]}

    def _noise(self, count: int) -> Tensor:
        generator = self.random.generator
        return torch.randn((count, self.actions), generator=generator, device=self.device)

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Store the transition and update."""
        del obs, extra  # the replay has the observation already
        c, counters = self.config, self.counters
        self.replay.add(action, step)
        counters["steps"] += self.num_envs
        metrics: Metrics | None = None
        if counters["steps"] >= c.learning_starts:
            for _ in range(self.num_envs):
                metrics = self.learn()
                counters["updates"] += c.updates_per_step
        # Returns are heard of after learning: the reward scale lags one step, as published.
        self.hear(step.reward, step.terminated | step.truncated)
        return metrics

    def _hear(self, reward: Tensor, done: Tensor) -> Metrics:
        self.rewards.update(reward.to(self.device), done.to(self.device))
        return {}

    def _learn(self) -> Metrics:
        """Draw and normalise the transitions of all updates at once, then update."""
        c, normalise = self.config, self.network.normaliser
        drawn = self.replay.sample(c.updates_per_step * c.batch_size, self.random.generator)
        batch = Batch(
            normalise(drawn.obs),
            drawn.action,
            self.rewards(drawn.reward),
            drawn.terminated,
            normalise(drawn.next_obs),
        )
        noise = self._noise(2 * c.updates_per_step * c.batch_size).split(c.batch_size)
        for i in range(c.updates_per_step):
            part = slice(i * c.batch_size, (i + 1) * c.batch_size)
            batch_i = Batch(*(tensor[part] for tensor in batch))
            metrics = self._update(batch_i, noise[2 * i], noise[2 * i + 1])
        return metrics

    def _update(self, batch: Batch, noise: Tensor, next_noise: Tensor) -> Metrics:
        """Update actor, temperature, critic (with the new actor and temperature) and target."""
        self.rate.advance()
        # What the critic says of the batch is known before the actor has learned.
        (metrics, target), predicted = beside(
            lambda: (self._update_actor(batch.obs, noise), self.returns(batch, next_noise)),
            lambda: self.predictions(batch.obs, batch.action),
        )
        critic_loss = self.critic_loss(target, predicted)
        optimisers.descend(self.optimisers[2], critic_loss)
        return {"loss": critic_loss.detach(), **metrics}

    def _update_actor(self, obs: Tensor, noise: Tensor) -> Metrics:
        self.critic.requires_grad_(False)  # only the actor's gradient is wanted
        loss, entropy = self.actor_loss(obs, noise)
        optimisers.descend(self.optimisers[0], loss)
        self.critic.requires_grad_(True)
        excess = entropy.detach() - self.config.target_entropy * self.actions
        temperature = self.temperature()
        optimisers.descend(self.optimisers[1], temperature * excess)
        metrics = {"actor_loss": loss, "entropy": entropy, "temperature": temperature}
        return {name: value.detach() for name, value in metrics.items()}

    def _actor_loss(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = self.actor(obs)
        action, log_probability = squashed(mean, deviation, noise)
        value = self.critic.value(self.critic(obs, action)).amin(0)
        loss = (self.temperature().detach() * log_probability - value).mean()
        return loss, -log_probability.mean()

    @torch.no_grad()
    def _returns(self, batch: Batch, next_noise: Tensor) -> Tensor:
        mean, deviation = self.actor(batch.next_obs)
        next_action, log_probability = squashed(mean, deviation, next_noise)
        beyond = self.target(batch.next_obs, next_action)
        smaller = self.target.value(beyond).argmin(0)
        beyond = beyond.gather(0, smaller[None, :, None].expand(1, -1, beyond.shape[-1]))[0]
        soft = self.critic.bins - (self.temperature() * log_probability)[:, None]
        going_on = self.gamma * (~batch.terminated).float()
        places = batch.reward[:, None] + going_on[:, None] * soft
        return project_on_bins(beyond.exp(), places, self.critic.bins)

    def schedules(self) -> dict[str, float]:
        """Return what changes over training by plan."""
        return {"learning_rate": float(self.rate.rate)}


build = SimbaV2
