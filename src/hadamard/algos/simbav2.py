"""SimbaV2: soft actor-critic on the hypersphere, with a categorical value."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.compute import optimizers
from hadamard.compute.jit import compiler, in_parallel, jit
from hadamard.compute.sphere import SphereAdam
from hadamard.core import require
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Metrics, Part, Step
from hadamard.learning.distributions import (
    cross_entropy,
    project_on_bins,
    sample_squashed_gaussian,
)
from hadamard.learning.normalize import RewardScaler
from hadamard.learning.replay import Batch, Replay, capacity_for
from hadamard.learning.returns import discount_for_length
from hadamard.nets.simba import ActorCritic, Shape, Temperature, sphere_weights

ACTIONS, ENV = "continuous", "humanoid/h1-walk"
NET = NetSpec(width=512)
SUITES = {
    # SimbaV2's protocol: a million control steps are half a million actions.
    "*": {
        "train.steps": 500_000,
        "train.eval_every": 50_000,
        "train.health_every": 50_000,
        "train.health_layers": "all",
        "train.checkpoint_every": 50_000,
        "train.log_every": 5_000,
    },
    "humanoid": {"train.eval_workers": 5},
    # Episodes end at the time limit only: a single critic.
    "dmc-state": {"algo.double_critic": False, "train.eval_workers": 5},
    "probe": {"train.eval_every": 0, "train.health_every": 5_000},
}
SHORT_WARM_UP = {"learning_starts": 300}
"""Settings with which a speed measurement is soon past the warm-up."""


@dataclass(frozen=True)
class Config:
    """SimbaV2's settings; the defaults are the published ones for HumanoidBench."""

    num_envs: int = 1
    """Environments stepped together."""
    learning_rate: float = 1e-4
    """Adam's learning rate at the start, for actor, critic and temperature."""
    learning_rate_final: float = 5e-5
    """Adam's learning rate at the end; it decreases linearly over all updates."""
    gamma: float | None = None
    """Discount; by default its effective horizon is a fifth of an episode's length."""
    tau: float = 0.005
    """Share of the way that the target critic moves towards the critic at each update."""
    batch_size: int = 256
    """Transitions in an update."""
    updates_per_step: int = 2
    """Updates for every step of an environment."""
    learning_starts: int = 5_000
    """Steps of random actions before the first update."""
    initial_temperature: float = 0.01
    """Weight of the entropy at the start."""
    target_entropy: float = -0.5
    """Entropy that the temperature aims at, per dimension of an action."""
    double_critic: bool = True
    """Use the smaller value of two critics; best where episodes can end early."""
    actor_width: int = 128
    """Width of the actor (--net.width is the critic's)."""
    actor_blocks: int = 1
    """Blocks of the actor."""
    critic_blocks: int = 2
    """Blocks of the critic."""
    expansion: int = 4
    """Width of a block's hidden layer in multiples of the block's width."""
    bins: int = 101
    """Bins of the return's distribution."""
    return_limit: float = 5.0
    """Value of the outermost bins; rewards are scaled so that returns stay within."""
    replay_capacity: int = 1_000_000
    """Transitions kept, on the learner's device."""

    def check(self, train: TrainSpec) -> None:
        """Refuse settings out of range."""
        require.fraction(self, "gamma", "tau")
        require.learning(self, "learning_starts", train)
        require.positive(self, "batch_size", "updates_per_step", "expansion")
        require.at_most(self, 10_000, "updates_per_step")
        require.positive(self, "actor_width", "actor_blocks", "critic_blocks")


class SimbaV2:
    """The agent: actor, one or two critics, target critics and a learned temperature."""

    optimizer = None  # ReDo is refused: its new weights would not be on the sphere
    settled = True  # every step is stored at once: nothing is half collected
    learns_next = True  # every step is followed by updates
    fleet_kind = "soft_actor_critic"
    per_run = ("learning_rate", "learning_rate_final", "initial_temperature")

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = c = run.algo
        self.num_envs, self.action_size, self.device = c.num_envs, env.action_size, device
        self.gamma = discount_for_length(env.max_steps) if c.gamma is None else c.gamma
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
        self.rate = optimizers.DecayingRate(c.learning_rate, c.learning_rate_final, updates, device)

        def adam(module: nn.Module) -> SphereAdam:
            # Every step ends with the projection of these weights onto the sphere.
            kind = functools.partial(SphereAdam, sphere=sphere_weights(module), fused=True)
            return optimizers.make(kind, module.parameters(), self.rate.rate, device)

        modules = {"actor": self.actor, "temperature": self.temperature, "critic": self.critic}
        self.optimizers = {name: adam(module) for name, module in modules.items()}
        capacity = capacity_for(c.replay_capacity, run.train.steps, c.num_envs)
        self.replay = Replay(env, c.num_envs, capacity, device, "device")
        self.begin = self.replay.begin
        self.random = Random(child_seed(run.seed, 1), device)
        self.counters = Counters(steps=0, updates=0)
        self.after_update: AfterUpdate | None = None
        self.parts: dict[str, Part] = {
            "network": self.network,
            "target": self.target,
            "temperature": self.temperature,
            "rewards": self.rewards,
            "rate": self.rate,
            "replay": self.replay,
            "random": self.random,
            "counters": self.counters,
        }
        for name, optimizer in self.optimizers.items():
            self.parts[f"optimizer.{name}"] = optimizers.OptimizerState(optimizer)
        compiled = compiler(run.train.compile, device)
        self.actor_loss = compiled(self._actor_loss)
        self.critic_target = compiled(self._critic_target)
        self.critic_prediction = compiled(self.critic.forward)
        self.critic_loss = compiled(cross_entropy)
        generator, capture = self.random.generator, run.train.capture
        mutated: list[Any] = [self.network, self.target, self.temperature, self.rate, generator]
        mutated += self.optimizers.values()
        self.learn = jit(self._learn, device, mutated, capture)
        self.explore = jit(self._explore, device, [network.normalizer, generator], capture)
        self.update_reward_scale = jit(self._update_reward_scale, device, [self.rewards], capture)

    def act(self, obs: Tensor, step: int) -> tuple[Tensor, Extra]:
        """Sample from the policy; in the first steps act at random."""
        del step  # every step is observed before the next: the counters are up to date
        action = self.explore(obs)["action"]  # in any case, as it updates the normalizer
        if self.counters["steps"] < self.config.learning_starts:
            generator = self.random.generator
            action = 2 * torch.rand(action.shape, generator=generator, device=self.device) - 1
        return action, {}

    @torch.no_grad()
    def act_greedily(self, obs: Tensor) -> Tensor:
        """Take the mean of the policy."""
        return torch.tanh(self.actor(self.network.normalizer(obs))[0])

    @torch.no_grad()
    def _explore(self, obs: Tensor, noise: Tensor | None = None) -> Metrics:
        """Sample from the policy, after the normalizer has seen the observations."""
        self.network.normalizer.update(obs)
        mean, deviation = self.actor(self.network.normalizer(obs))
        noise = self._noise(len(obs)) if noise is None else noise
        return {"action": sample_squashed_gaussian(mean, deviation, noise)[0]}

    def _noise(self, count: int) -> Tensor:
        generator = self.random.generator
        return torch.randn((count, self.action_size), generator=generator, device=self.device)

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
        # After learning: the reward scale lags one step, as published.
        self.update_reward_scale(step.reward, step.terminated | step.truncated)
        return metrics

    def _update_reward_scale(self, reward: Tensor, done: Tensor) -> Metrics:
        self.rewards.update(reward.to(self.device), done.to(self.device))
        return {}

    def _learn(self) -> Metrics:
        """Draw and normalize the batches of all updates at once, then update."""
        c = self.config
        raw = self.replay.sample(c.updates_per_step * c.batch_size, self.random.generator)
        batch = self._normalized(raw)
        noise = self._noise(2 * c.updates_per_step * c.batch_size).split(c.batch_size)
        for i in range(c.updates_per_step):
            part = slice(i * c.batch_size, (i + 1) * c.batch_size)
            minibatch = Batch(*(tensor[part] for tensor in batch))
            metrics = self._update(minibatch, noise[2 * i], noise[2 * i + 1])
        return metrics

    def _normalized(self, raw: Batch) -> Batch:
        """Normalize observations and rewards with the statistics so far."""
        normalize = self.network.normalizer
        obs, next_obs = normalize(raw.obs), normalize(raw.next_obs)
        return Batch(obs, raw.action, self.rewards(raw.reward), raw.terminated, next_obs)

    def _update(self, batch: Batch, noise: Tensor, next_noise: Tensor) -> Metrics:
        """Update actor, temperature, critic (with the new actor and temperature) and target."""
        self.rate.advance()
        # The predictions do not depend on the actor's update: a GPU computes both side by side.
        (metrics, target), predicted = in_parallel(
            lambda: (self._update_actor(batch.obs, noise), self.critic_target(batch, next_noise)),
            lambda: self.critic_prediction(batch.obs, batch.action),
        )
        critic_loss = self.critic_loss(target, predicted)
        self._update_critic_and_target(critic_loss)
        return {"loss": critic_loss.detach(), **metrics}

    def _update_actor(self, obs: Tensor, noise: Tensor) -> Metrics:
        """Update the actor, then the temperature towards the target entropy."""
        self.critic.requires_grad_(False)  # the loss goes through the critic to the actor
        loss, entropy = self.actor_loss(obs, noise)
        optimizers.descend(self.optimizers["actor"], loss)
        self.critic.requires_grad_(True)
        temperature_loss, temperature = self._temperature_loss(entropy.detach())
        optimizers.descend(self.optimizers["temperature"], temperature_loss)
        metrics = {"actor_loss": loss, "entropy": entropy, "temperature": temperature}
        return {name: value.detach() for name, value in metrics.items()}

    def _update_critic_and_target(self, loss: Tensor) -> None:
        """Take Adam's step, project onto the sphere, target <- target + tau (critic - target)."""
        optimizer, targets = self.optimizers["critic"], list(self.target.parameters())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step_with_targets(targets, self.config.tau)  # one kernel on a GPU

    def _actor_loss(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return temperature * log-probability - smaller value, and the policy's entropy."""
        mean, deviation = self.actor(obs)
        action, log_probability = sample_squashed_gaussian(mean, deviation, noise)
        value = self.critic.value(self.critic(obs, action)).amin(0)
        loss = (self.temperature().detach() * log_probability - value).mean()
        return loss, -log_probability.mean()

    def _temperature_loss(self, entropy: Tensor) -> tuple[Tensor, Tensor]:
        """Return temperature * (entropy - target), and the temperature."""
        temperature = self.temperature()
        excess = entropy - self.config.target_entropy * self.action_size
        return temperature * excess, temperature

    @torch.no_grad()
    def _critic_target(self, batch: Batch, next_noise: Tensor) -> Tensor:
        """Return the distribution of reward + gamma (return - temperature * log-probability).

        The return is that of the next observation, by the target critic with the smaller mean.
        """
        mean, deviation = self.actor(batch.next_obs)
        next_action, log_probability = sample_squashed_gaussian(mean, deviation, next_noise)
        returns = self.target(batch.next_obs, next_action)
        smaller = self.target.value(returns).argmin(0)[None, :, None]
        returns = returns.gather(0, smaller.expand(1, -1, returns.shape[-1]))[0]
        soft_return = self.critic.bins - (self.temperature() * log_probability)[:, None]
        discount = self.gamma * (~batch.terminated).float()
        values = batch.reward[:, None] + discount[:, None] * soft_return
        return project_on_bins(returns.exp(), values, self.critic.bins)

    def _critic_loss(self, batch: Batch, target: Tensor) -> Tensor:
        """Return the critics' loss as one function of their weights, for fleets."""
        return cross_entropy(target, self.critic(batch.obs, batch.action))

    def schedules(self) -> dict[str, float]:
        """Return the learning rate, which changes over training."""
        return {"learning_rate": float(self.rate.rate)}


build = SimbaV2
