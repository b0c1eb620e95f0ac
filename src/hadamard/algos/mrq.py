"""MR.Q: representations learned by predicting, as a model does; values and policy model-free."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard.core import optimisers
from hadamard.core.augment import ShiftedObservations
from hadamard.core.config import NetSpec, RunSpec, require_positive
from hadamard.core.jit import beside, compiler, jit
from hadamard.core.optimisers import OptimiserState
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.replay import Replay, Storage
from hadamard.core.returns import multi_step_returns
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Incremental, Metrics, Stateful, Step
from hadamard.nets.mrq import LearningState, Network, Widths

ACTIONS, ENV = "continuous", "dmc/walker-walk"
NET = NetSpec(activation="elu", where="all")


@dataclass(frozen=True)
class Config:
    """MR.Q's settings; the paper has the same for all of its benchmarks."""

    num_envs: int = 1
    """Environments stepped together."""
    batch_size: int = 256
    """Subsequences in an update."""
    gamma: float = 0.99
    """Discount."""
    value_horizon: int = 3
    """Rewards in a return before the rest is left to the values."""
    encoder_horizon: int = 5
    """Steps the encoder predicts on from a state."""
    target_period: int = 250
    """Steps between copies to the target networks, each followed by as many encoder updates."""
    random_steps: int = 10_000
    """Random steps at the start, before the first update."""
    exploration_noise: float = 0.2
    """Deviation of the noise on actions in training."""
    target_noise: float = 0.2
    """Deviation of the noise on the actions that value targets are computed with."""
    target_noise_clip: float = 0.3
    """Largest such noise."""
    encoder_learning_rate: float = 1e-4
    """AdamW's learning rate for the encoder."""
    learning_rate: float = 3e-4
    """AdamW's learning rate for values and policy."""
    weight_decay: float = 1e-4
    """AdamW's weight decay."""
    max_grad_norm: float = 20.0
    """Largest norm of the values' gradient."""
    outcome_weight: float = 0.1
    """Weight of reward and end in the encoder's loss; that of the next representation is 1."""
    pre_activation_weight: float = 1e-5
    """Weight of the actions' squares before the tanh in the policy's loss."""
    priority_exponent: float = 0.4
    """Power of the error that a priority is; 0 draws all alike."""
    shift: int = 4
    """Largest random shift of images, in pixels."""
    hidden_width: int = 512
    """Width of everything that --net.width does not name; of actions' representations, half."""
    replay_capacity: int = 1_000_000
    """Transitions kept; each frame is stored once."""
    replay_storage: Storage = "auto"
    """Where the frames are kept; auto is on the GPU, if they fill at most half of what is free."""


class MRQ:
    """The agent."""

    optimiser = None  # a recycled neuron would not be what the targets know
    settled = True  # every step is stored whole
    learns_next = True  # every step is learned from

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = c = run.algo
        require_positive(c, "batch_size", "value_horizon", "encoder_horizon", "target_period")
        self.num_envs, self.actions, self.device = c.num_envs, env.action_size, device
        widths = Widths.around(c.hidden_width)
        with seeded(child_seed(run.seed, 0)):
            self.network = network = Network(env, run.net, widths).to(device)
            self.target = Network(env, run.net, widths).to(device).requires_grad_(False)
        self.target.load_state_dict(network.state_dict())
        adamw = functools.partial(torch.optim.AdamW, weight_decay=c.weight_decay, fused=True)
        rates = (c.encoder_learning_rate, c.learning_rate, c.learning_rate)
        self.optimisers = {
            name: optimisers.make(adamw, network.get_submodule(name).parameters(), rate, device)
            for name, rate in zip(("encoder", "values", "policy"), rates, strict=True)
        }
        size = min(c.replay_capacity, 2 * run.train.steps + 64 * c.num_envs)
        span, where = max(c.value_horizon, c.encoder_horizon), (c.replay_storage, run.run_dir)
        self.replay = Replay(env, c.num_envs, size, device, *where, horizon=span, prioritised=True)
        self.random = Random(child_seed(run.seed, 1))
        self.luck = Random(child_seed(run.seed, 2), device)  # inside of captured updates
        self.state = LearningState().to(device)
        self.counters = Counters(steps=0, updates=0)
        self.after_update: AfterUpdate | None = None
        self.parts: dict[str, Stateful | Incremental] = {
            f"{name}_optimiser": OptimiserState(made) for name, made in self.optimisers.items()
        }
        for part in ("network", "target", "replay", "random", "luck", "state", "counters"):
            self.parts[part] = getattr(self, part)
        compiled = compiler(run.train.compile, device)
        self.aims, self.goals = compiled(self.target.encoder.states), compiled(self._goals)
        self.predictions, self.valued = compiled(network.encoder.predict), compiled(self._valued)
        self.encoder_losses = compiled(network.encoder.losses)
        self.value_loss = compiled(F.smooth_l1_loss)
        self.policy_loss = compiled(self._policy_loss)
        luck, place = self.luck.generator, self.replay.frames.device
        at_frames = compiler(run.train.compile, place)
        self.observations = ShiftedObservations(self.replay, c.shift, luck, at_frames)
        priorities = self.replay.priority, self.replay.largest_priority
        changes = [network, *self.optimisers.values(), *priorities, luck]
        # Where the frames are at hand, draws are a part of the captured updates.
        self.learn_encoder = jit(self._learn_encoder, place, changes, run.train.capture)
        self.learn = jit(self._learn, place, changes, run.train.capture)
        self.explore = jit(self._explore, device, [], run.train.capture)

    def begin(self, obs: Tensor) -> None:
        """Start episodes in the replay."""
        self.replay.begin(obs)

    def act(self, obs: Tensor, *, explore: bool = True) -> tuple[Tensor, Extra]:
        """Act by the policy, with noise while exploring; at first at random."""
        shape, generator = (len(obs), self.actions), self.random.generator
        if not explore:
            return self._explore(obs, torch.zeros(shape, device=self.device))["action"], {}
        if self.counters["steps"] < self.config.random_steps:
            return (2 * torch.rand(shape, generator=generator) - 1).to(self.device), {}
        noise = self.config.exploration_noise * torch.randn(shape, generator=generator)
        return self.explore(obs, noise.to(self.device))["action"], {}

    @torch.no_grad()
    def _explore(self, obs: Tensor, noise: Tensor) -> Metrics:
        action = self.network.policy(self.network.encoder.state(obs)).tanh()
        return {"action": (action + noise).clamp(-1, 1)}

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Store the step; update values and policy, and the encoder when its time has come."""
        del obs, extra  # the replay has the frames already
        self.replay.add(action, step)
        self.state.ended.logical_or_(step.terminated.any())
        self.counters["steps"] += self.num_envs
        if self.counters["steps"] <= self.config.random_steps:
            return None
        for _ in range(self.num_envs):
            if self.counters["updates"] % self.config.target_period == 0:
                self._renew()
            metrics = self.learn()
            self.counters["updates"] += 1
        return {**metrics, **self.state.measured()}

    def _renew(self) -> None:
        """Copy everything to the targets, then bring the encoder up to date."""
        if self.counters["updates"] == 0:
            self.replay.require_draws()
        self.target.load_state_dict(self.network.state_dict())
        self.replay.forget_largest()
        scale = (self.replay.reward.abs() * self.replay.usable).sum() / self.replay.usable.sum()
        self.state.target_reward_scale.copy_(self.state.reward_scale)
        self.state.reward_scale.copy_(scale.clamp_min(1e-8))  # until there is any reward
        for _ in range(self.config.target_period):
            metrics = self.learn_encoder()
        self.state.keep(metrics)

    def _learn_encoder(self) -> Metrics:
        steps = self.config.encoder_horizon
        drawn = self.replay.draw(self.config.batch_size, self.luck.generator)
        obs = self.observations(drawn, 0, 1).squeeze(1)
        following = self.observations(drawn, 1, steps)
        return self._update_encoder(obs, following, *self.replay.steps(drawn, steps))

    def _update_encoder(self, *batch: Tensor) -> Metrics:
        obs, following, action, reward, terminated = batch
        aims, predictions = beside(
            lambda: self.aims(following), lambda: self.predictions(obs, action)
        )
        losses = self.encoder_losses(predictions, reward, terminated, aims)
        losses["done_loss"] = self.state.ended * losses["done_loss"]  # once there was an end
        outcome = self.config.outcome_weight * (losses["reward_loss"] + losses["done_loss"])
        optimisers.descend(self.optimisers["encoder"], losses["dynamics_loss"] + outcome)
        return {name: measured.detach() for name, measured in losses.items()}

    def _learn(self) -> Metrics:
        c, luck = self.config, self.luck.generator
        drawn = self.replay.draw(c.batch_size, luck)
        action, reward, terminated = self.replay.steps(drawn, c.value_horizon)
        obs = self.observations(drawn, 0, 1).squeeze(1)
        next_obs = self.observations(drawn, c.value_horizon, 1).squeeze(1)
        returns, discount = multi_step_returns(reward, terminated, c.gamma)
        noise = torch.randn(action[:, 0].shape, generator=luck, device=self.device)
        priority, metrics = self._update(obs, action[:, 0], returns, discount, next_obs, noise)
        self.replay.set_priority(drawn, priority)
        return metrics

    def _update(self, *batch: Tensor) -> tuple[Tensor, Metrics]:
        c, network = self.config, self.network
        obs, action, *later = batch
        goal, (values, zs) = beside(lambda: self.goals(*later), lambda: self.valued(obs, action))
        loss = self.value_loss(values, goal.expand_as(values))
        self.optimisers["values"].zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(network.values.parameters(), c.max_grad_norm)
        self.optimisers["values"].step()
        policy_loss = self.policy_loss(zs)
        self.optimisers["policy"].zero_grad()
        policy_loss.backward(inputs=list(network.policy.parameters()))
        self.optimisers["policy"].step()
        priority = (values.detach() - goal).abs().amax(0).clamp_min(1.0) ** c.priority_exponent
        metrics = {"loss": loss, "policy_loss": policy_loss, "gradient_norm": norm}
        metrics["value"] = values.mean()
        return priority, {name: value.detach() for name, value in metrics.items()}

    def _goals(self, returns: Tensor, discount: Tensor, obs: Tensor, noise: Tensor) -> Tensor:
        c, target, state = self.config, self.target, self.state
        zs = target.encoder.state(obs)
        noise = (c.target_noise * noise).clamp(-c.target_noise_clip, c.target_noise_clip)
        action = (target.policy(zs).tanh() + noise).clamp(-1, 1)
        value: Tensor = target.values(target.encoder.both(zs, action)).amin(0)
        later = torch.where(discount > 0, discount * value, 0.0)  # NaN after an end
        return (returns + later * state.target_reward_scale) / state.reward_scale

    def _valued(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            zs = self.network.encoder.state(obs)
            zsa = self.network.encoder.both(zs, action)
        return self.network.values(zsa), zs

    def _policy_loss(self, zs: Tensor) -> Tensor:
        pre: Tensor = self.network.policy(zs)
        value: Tensor = self.network.values(self.network.encoder.both(zs, pre.tanh()))
        return self.config.pre_activation_weight * pre.square().mean() - value.mean()

    def schedules(self) -> dict[str, float]:
        """Nothing changes over training by plan."""
        return {}


build = MRQ
