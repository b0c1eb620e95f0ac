"""MR.Q: an encoder trained as a model of the environment, and model-free values and policy."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hadamard.compute import optimizers
from hadamard.compute.jit import compiler, in_parallel, jit
from hadamard.core import require
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Metrics, Part, Step
from hadamard.learning.augment import ShiftedObservations
from hadamard.learning.distributions import TwoHot
from hadamard.learning.replay import Replay, Storage, capacity_for
from hadamard.learning.returns import alive_before, multi_step_returns
from hadamard.learning.state import LearningState
from hadamard.nets.mrq import REWARD_BINS, Network, Widths

ACTIONS, ENV = "continuous", "dmc/walker-walk"
NET = NetSpec(activation="elu", where="all")
SUITES = {
    # MR.Q's protocol: a million frames of the DeepMind Control Suite are half a million actions.
    "*": {
        "train.steps": 500_000,
        "train.eval_every": 5_000,
        "train.eval_workers": 5,
        "train.health_every": 25_000,
        "train.health_layers": "all",
        "train.checkpoint_every": 50_000,
        "train.log_every": 5_000,
    },
    "probe": {
        "algo.hidden_width": 64,
        "algo.batch_size": 64,
        "algo.random_steps": 500,
        "algo.target_period": 50,
        "algo.learning_rate": 3e-3,
        "algo.encoder_learning_rate": 3e-3,
        "train.steps": 5_000,
        "train.eval_every": 0,
        "train.health_every": 5_000,
    },
}
SHORT_WARM_UP = {"random_steps": 300, "target_period": 2}
"""Settings with which a speed measurement is soon past the warm-up; they make as many updates."""
LOSSES = ("dynamics_loss", "reward_loss", "done_loss", "reward_error")
"""The encoder's losses, and the error of its rewards, which is only logged."""


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
    """Rewards in a return before it is completed by a value."""
    encoder_horizon: int = 5
    """Steps that the encoder predicts ahead of a state."""
    target_period: int = 250
    """Steps between copies to the target networks, each followed by as many encoder updates."""
    random_steps: int = 10_000
    """Random steps at the start, before the first update."""
    exploration_noise: float = 0.2
    """Standard deviation of the noise on actions in training."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the actions that value targets are computed with."""
    target_noise_clip: float = 0.3
    """Largest noise on the actions that value targets are computed with."""
    encoder_learning_rate: float = 1e-4
    """AdamW's learning rate for the encoder."""
    learning_rate: float = 3e-4
    """AdamW's learning rate for values and policy."""
    weight_decay: float = 1e-4
    """AdamW's weight decay."""
    max_grad_norm: float = 20.0
    """Largest norm of the values' gradient."""
    outcome_weight: float = 0.1
    """Weight of rewards and ends in the encoder's loss; the next representation's is 1."""
    pre_activation_weight: float = 1e-5
    """Weight of the squared actions, before the tanh, in the policy's loss."""
    priority_exponent: float = 0.4
    """Priorities are errors raised to this power; 0 samples uniformly."""
    shift: int = 4
    """Largest random shift of images, in pixels."""
    hidden_width: int = 512
    """Width of the layers that --net.width does not set; action representations have half of it."""
    replay_capacity: int = 1_000_000
    """Transitions kept; each frame is stored once."""
    replay_storage: Storage = "auto"
    """Where the frames are kept; auto: on the GPU, if they fill at most half of its free memory."""

    def check(self, train: TrainSpec) -> None:
        """Refuse settings out of range."""
        require.fraction(self, "gamma")
        require.above_zero(self, "max_grad_norm")
        require.learning(self, "random_steps", train)
        require.positive(self, "batch_size", "value_horizon", "encoder_horizon", "target_period")
        require.at_most(self, 1_000, "value_horizon", "encoder_horizon", "target_period")


class MRQ:
    """The agent: encoder, values and policy, and a copy of each as target."""

    optimizer = None  # ReDo is refused: target networks would still have the old neurons
    settled = learns_next = True  # every step is stored at once, and followed by an update

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = c = run.algo
        self.num_envs, self.action_size, self.device = c.num_envs, env.action_size, device
        with seeded(child_seed(run.seed, 0)):
            network = Network(env, run.net, Widths.from_hidden(c.hidden_width)).to(device)
        self.network, self.target = network, copy.deepcopy(network).requires_grad_(False)
        adamw = functools.partial(torch.optim.AdamW, weight_decay=c.weight_decay, fused=True)
        rates = (c.encoder_learning_rate, c.learning_rate, c.learning_rate)
        self.optimizers = {
            name: optimizers.make(adamw, network.get_submodule(name).parameters(), rate, device)
            for name, rate in zip(("encoder", "values", "policy"), rates, strict=True)
        }
        capacity = capacity_for(c.replay_capacity, run.train.steps, c.num_envs)
        horizon = max(c.value_horizon, c.encoder_horizon)
        memory = device, c.replay_storage, run.run_dir
        self.replay = Replay(env, c.num_envs, capacity, *memory, horizon=horizon, prioritized=True)
        self.begin = self.replay.begin
        self.random = Random(child_seed(run.seed, 1))
        self.sampling_random = Random(child_seed(run.seed, 2), device)  # for captured updates
        initial = {"ended": False, "reward_scale": 1.0, "target_reward_scale": 1.0}
        self.state = LearningState(**initial, **dict.fromkeys(LOSSES, 0.0)).to(device)
        self.two_hot, self.counters = TwoHot(REWARD_BINS).to(device), Counters(steps=0, updates=0)
        self.after_update: AfterUpdate | None = None
        parts = ("network", "target", "replay", "random", "sampling_random", "state", "counters")
        self.parts: dict[str, Part] = {name: getattr(self, name) for name in parts}
        for name, optimizer in self.optimizers.items():
            self.parts[f"{name}_optimizer"] = optimizers.OptimizerState(optimizer)
        compiled = compiler(run.train.compile, device)
        self.target_zs = compiled(self.target.encoder.encode_steps)
        self.predict = compiled(network.encoder.predict)
        self.encoder_losses = compiled(self._encoder_losses)
        self.value_target, self.evaluate = compiled(self._value_target), compiled(self._evaluate)
        self.value_loss, self.policy_loss = compiled(F.smooth_l1_loss), compiled(self._policy_loss)
        generator, frames_device = self.sampling_random.generator, self.replay.frames.device
        self.observations = ShiftedObservations(self.replay, c.shift, generator, run.train.compile)
        mutated = [network, *self.optimizers.values(), *self.replay.priorities, generator]
        # Where the frames are on the GPU, a captured update draws its own batch.
        self.learn_encoder = jit(self._learn_encoder, frames_device, mutated, run.train.capture)
        self.learn = jit(self._learn, frames_device, mutated, run.train.capture)
        self.explore = jit(self._explore, device, [], run.train.capture)

    def act(self, obs: Tensor, step: int) -> tuple[Tensor, Extra]:
        """Act by the policy, with noise; in the first steps at random."""
        del step  # every step is observed before the next: the counters are up to date
        shape, generator = (len(obs), self.action_size), self.random.generator
        if self.counters["steps"] < self.config.random_steps:
            return (2 * torch.rand(shape, generator=generator) - 1).to(self.device), {}
        noise = self.config.exploration_noise * torch.randn(shape, generator=generator)
        return self.explore(obs, noise.to(self.device))["action"], {}

    def act_greedily(self, obs: Tensor) -> Tensor:
        """Act by the policy, without noise."""
        return self._explore(obs, torch.zeros((), device=self.device))["action"]

    @torch.no_grad()
    def _explore(self, obs: Tensor, noise: Tensor) -> Metrics:
        action = self.network.policy(self.network.encoder.state(obs)).tanh()
        return {"action": (action + noise).clamp(-1, 1)}

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Store the step and update; targets and encoder once in a period."""
        del obs, extra  # the replay has the frames already
        c, counters = self.config, self.counters
        self.replay.add(action, step)
        self.state.ended.logical_or_(step.terminated.any())
        counters["steps"] += self.num_envs
        if counters["steps"] <= c.random_steps:
            return None
        for _ in range(self.num_envs):
            if counters["updates"] % c.target_period == 0:
                self._update_target()
                for _ in range(c.target_period):
                    losses = self.learn_encoder()
                self.state.record(losses)
            metrics = self.learn()
            counters["updates"] += 1
        return {**metrics, **self.state.copies(("reward_scale", *LOSSES))}

    def _update_target(self) -> None:
        """Copy the networks to their targets; measure reward scale and largest priority anew."""
        self.replay.require_drawable()
        self.target.load_state_dict(self.network.state_dict())
        self.replay.reset_largest_priority()
        scale = (self.replay.reward.abs() * self.replay.usable).sum() / self.replay.usable.sum()
        self.state.target_reward_scale.copy_(self.state.reward_scale)
        self.state.reward_scale.copy_(scale.clamp_min(1e-8))  # the scale is 0 before any reward

    def _learn_encoder(self) -> Metrics:
        steps = self.config.encoder_horizon
        indices = self.replay.draw(self.config.batch_size, self.sampling_random.generator)
        obs = self.observations(indices, 0, 1).squeeze(1)
        next_obs = self.observations(indices, 1, steps)
        return self._update_encoder(obs, next_obs, *self.replay.steps(indices, steps))

    def _update_encoder(self, obs: Tensor, next_obs: Tensor, *steps: Tensor) -> Metrics:
        action, reward, terminated = steps
        next_zs, predictions = in_parallel(
            lambda: self.target_zs(next_obs), lambda: self.predict(obs, action)
        )
        losses = self.encoder_losses(predictions, next_zs, reward, terminated)
        losses["done_loss"] = self.state.ended * losses["done_loss"]  # 0 until a task has ended
        outcome = self.config.outcome_weight * (losses["reward_loss"] + losses["done_loss"])
        optimizers.descend(self.optimizers["encoder"], losses["dynamics_loss"] + outcome)
        return {name: loss.detach() for name, loss in losses.items()}

    def _encoder_losses(
        self, predictions: tuple[Tensor, ...], next_zs: Tensor, reward: Tensor, terminated: Tensor
    ) -> dict[str, Tensor]:
        """Compare predictions, (steps, batch, ...), with what followed, (batch, steps, ...).

        Each loss is a mean over the batch, summed over the steps up to an end: the rest may be NaN.
        """
        predicted_zs, done, logits = predictions
        alive, ends = alive_before(terminated).T, terminated.T.to(predicted_zs.dtype)
        next_zs = torch.where(alive[..., None] > 0, next_zs.transpose(0, 1), 0.0)
        cross_entropy, error = self.two_hot.compare(logits, reward.T)
        return {
            "dynamics_loss": ((predicted_zs - next_zs).square().mean(-1) * alive).mean(1).sum(),
            "reward_loss": (cross_entropy * alive).mean(1).sum(),
            "done_loss": ((done - ends).square() * alive).mean(1).sum(),
            "reward_error": (error * alive).sum() / alive.sum(),
        }

    def _learn(self) -> Metrics:
        c, generator = self.config, self.sampling_random.generator
        indices = self.replay.draw(c.batch_size, generator)
        action, reward, terminated = self.replay.steps(indices, c.value_horizon)
        obs = self.observations(indices, 0, 1).squeeze(1)
        next_obs = self.observations(indices, c.value_horizon, 1).squeeze(1)
        returns, discount = multi_step_returns(reward, terminated, c.gamma)
        noise = torch.randn(action[:, 0].shape, generator=generator, device=self.device)
        priority, metrics = self._update(obs, action[:, 0], returns, discount, next_obs, noise)
        self.replay.set_priority(indices, priority)
        return metrics

    def _update(self, obs: Tensor, action: Tensor, *target_args: Tensor) -> tuple[Tensor, Metrics]:
        """Update the values towards their target, then the policy towards the new values."""
        c = self.config
        target, (values, zs) = in_parallel(
            lambda: self.value_target(*target_args), lambda: self.evaluate(obs, action)
        )
        loss = self.value_loss(values, target.expand_as(values))
        norm = optimizers.descend_clipped(self.optimizers["values"], loss, c.max_grad_norm)
        policy_loss = self.policy_loss(zs)
        optimizers.descend(self.optimizers["policy"], policy_loss)
        priority = (values.detach() - target).abs().amax(0).clamp_min(1.0) ** c.priority_exponent
        metrics = {"loss": loss, "policy_loss": policy_loss, "gradient_norm": norm}
        metrics["value"] = values.mean()
        return priority, {name: value.detach() for name, value in metrics.items()}

    def _value_target(
        self, returns: Tensor, discount: Tensor, next_obs: Tensor, noise: Tensor
    ) -> Tensor:
        """Return the rewards plus the discounted smaller target value, in units of their scale."""
        c, target, state = self.config, self.target, self.state
        zs = target.encoder.state(next_obs)
        noise = (c.target_noise * noise).clamp(-c.target_noise_clip, c.target_noise_clip)
        action = (target.policy(zs).tanh() + noise).clamp(-1, 1)
        value: Tensor = target.values(target.encoder.zsa(zs, action)).amin(0)
        bootstrap = torch.where(discount > 0, discount * value, 0.0)  # may be NaN after an end
        return (returns + bootstrap * state.target_reward_scale) / state.reward_scale

    def _evaluate(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return both values, (2, batch), and zs; the encoder gets no gradient from them."""
        with torch.no_grad():
            zs = self.network.encoder.state(obs)
            zsa = self.network.encoder.zsa(zs, action)
        return self.network.values(zsa), zs

    def _policy_loss(self, zs: Tensor) -> Tensor:
        """Return minus the values of the policy's actions, plus a penalty on large ones."""
        pre_activation: Tensor = self.network.policy(zs)
        value: Tensor = self.network.values(self.network.encoder.zsa(zs, pre_activation.tanh()))
        return self.config.pre_activation_weight * pre_activation.square().mean() - value.mean()

    def schedules(self) -> dict[str, float]:
        """Return nothing: no setting changes over training."""
        return {}


build = MRQ
