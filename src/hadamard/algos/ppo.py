"""PPO: clipped policy gradients with generalized advantages."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hadamard.compute import optimizers
from hadamard.compute.adam import Adam
from hadamard.compute.flat import FlatParameters
from hadamard.compute.jit import compiler, jit
from hadamard.core import require
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Metrics, Part, Step
from hadamard.learning.normalize import RewardScaler
from hadamard.learning.returns import generalized_advantages, successor_values
from hadamard.learning.rollout import Rollout, check_minibatches
from hadamard.learning.schedule import linear
from hadamard.nets.heads import ActorCritic

ACTIONS, ENV = ("discrete", "continuous"), "minatar/breakout"
NET = NetSpec(where="last")
SUITES = {
    # While one half of the emulators play, the other half is acted on.
    "atari": {"train.env_groups": 2},
    "minatar": {"net.width": 128},
    # The PPO paper's settings for MuJoCo, as in CleanRL's ppo_continuous_action.py, which are also
    # Stable-Baselines3's defaults; its rollout of 2,048 steps is played in eight environments.
    "gym": {
        "net.width": 64,
        "net.activation": "tanh",
        "algo.rollout_steps": 256,
        "algo.epochs": 10,
        "algo.minibatches": 32,
        "algo.learning_rate": 3e-4,
        "algo.clip": 0.2,
        "algo.entropy_coefficient": 0.0,
        "algo.shared_encoder": False,
        "algo.normalize": True,
        "train.steps": 1_000_000,
        "train.threads": 1,
    },
}


@dataclass(frozen=True)
class Config:
    """PPO's settings; the defaults are the paper's for Atari."""

    num_envs: int = 8
    """Environments stepped together."""
    rollout_steps: int = 128
    """Steps of each environment between updates."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatches: int = 4
    """Parts of a rollout, one update each."""
    learning_rate: float = 2.5e-4
    """Adam's learning rate at the start; it decreases linearly to 0."""
    adam_epsilon: float = 1e-5
    """Adam's epsilon."""
    gamma: float = 0.99
    """Discount."""
    gae_lambda: float = 0.95
    """Lambda of the generalized advantages."""
    clip: float = 0.1
    """How far the policy's ratio, and the value, may move in an update."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Largest global norm of a gradient."""
    shared_encoder: bool = True
    """Let policy and value share an encoder, instead of having one each."""
    normalize: bool = False
    """Normalize vectors of observations and scale rewards, by statistics of all rollouts so far."""

    def check(self, train: TrainSpec) -> None:
        """Refuse settings out of range."""
        del train  # learning starts with the first rollout
        require.fraction(self, "gamma", "gae_lambda")
        require.above_zero(self, "max_grad_norm", "clip")
        require.positive(self, "rollout_steps", "epochs", "minibatches")
        require.at_most(self, 10_000, "epochs")


class PPO:
    """The agent: policy and value on one network, and the rollout it is collecting."""

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = c = run.algo
        self.num_envs, self.num_actions, self.device = c.num_envs, env.num_actions, device
        self.total_steps = run.train.steps
        check_minibatches(c.num_envs, c.rollout_steps, c.minibatches)
        if c.num_envs * c.rollout_steps < 2 * c.minibatches:
            raise ValueError(
                f"--algo.minibatches {c.minibatches} leaves one transition in each: "
                "advantages of one cannot be normalized"
            )
        with seeded(child_seed(run.seed, 0)):
            network = ActorCritic(env, run.net, shared=c.shared_encoder, normalize=c.normalize)
        self.network, self.policy = network.to(device), network.policy
        compiled = compiler(run.train.compile, device)
        self.weights = FlatParameters(self.network, compiled)
        vector, rate, eps = self.weights.vector, c.learning_rate, c.adam_epsilon
        self.optimizer = optimizers.make_for_vector(Adam, vector, rate, device, compiled, eps=eps)
        self.rollout = Rollout(c.rollout_steps, device)
        self.random = Random(child_seed(run.seed, 1))
        self.sampling_random = Random(child_seed(run.seed, 2), device)  # used in captured graphs
        self.counters = Counters(steps=0, updates=0)
        self.after_update: AfterUpdate | None = None
        self.parts: dict[str, Part] = {
            "network": self.network,
            "optimizer": optimizers.OptimizerState(self.optimizer),
            "random": self.random,
            "sampling_random": self.sampling_random,
            "counters": self.counters,
        }
        self.rewards = RewardScaler(c.num_envs, c.gamma).to(device)
        if c.normalize:
            self.parts["rewards"] = self.rewards
        self.loss = compiled(self._loss)
        self.learn = jit(self._learn, device, [self.network, self.optimizer], run.train.capture)
        self.evaluate = jit(self._evaluate, device, [], run.train.capture)
        self.advantages = jit(self._advantages, device, [], run.train.capture)
        generator = self.sampling_random.generator
        self.sample = jit(self._sample, device, [generator], run.train.capture)

    @property
    def settled(self) -> bool:
        """Between rollouts."""
        return self.rollout.length == 0

    @property
    def learns_next(self) -> bool:
        """With the last step of a rollout."""
        return self.rollout.length == self.rollout.steps - 1

    def begin(self, obs: Tensor) -> None:
        """Nothing to start."""

    def learning_rate(self, updates: int) -> float:
        """Return the learning rate after so many updates; it is constant within a rollout."""
        c = self.config
        rollout_start = updates // (c.epochs * c.minibatches) * c.num_envs * c.rollout_steps
        return linear(c.learning_rate, 0.0, self.total_steps, rollout_start)

    @torch.no_grad()
    def act(self, obs: Tensor, step: int) -> tuple[Tensor, Extra]:
        """Sample from the policy; the extra has what was drawn, its probability and the values."""
        del step  # nothing in acting changes over time
        sample = self.sample(obs)
        return self.policy.played(sample["action"]), sample

    def act_greedily(self, obs: Tensor) -> Tensor:
        """Take the likeliest actions."""
        return self.evaluate(obs)["likeliest"]

    @torch.no_grad()
    def _evaluate(self, obs: Tensor) -> Metrics:
        parameters, value = self.network(obs)
        return {"likeliest": self.policy.likeliest(parameters), "value": value}

    @torch.no_grad()
    def _sample(self, obs: Tensor) -> Metrics:
        parameters, value = self.network(obs)
        draws = self.policy.draws(parameters, self.sampling_random.generator)
        return {**self.policy.sample(parameters, draws), "value": value}

    # What a fleet computes for many runs at once: functions of the weights and the arguments.

    fleet_kind = "on_policy"
    per_run = ("learning_rate",)
    learns_from = ("obs", "action", "log_probability", "value", "advantage")

    @property
    def choice_draws(self) -> int:
        """How many uniform numbers the choice of an action needs."""
        return self.num_actions

    def exploration(self, step: int) -> float:
        """Nothing in acting changes over time."""
        del step
        return 0.0

    @torch.no_grad()
    def choose(self, obs: Tensor, draws: Tensor, exploration: Tensor) -> Metrics:
        """Sample from the policy with one uniform number for each action."""
        del exploration
        parameters, value = self.network(obs)
        choice = {"greedy": self.policy.likeliest(parameters), "value": value}
        return {**self.policy.sample(parameters, draws), **choice}

    def targets(self, data: Metrics, last_value: Tensor, truncated_value: Tensor) -> Metrics:
        """Return what the loss compares with, for a rollout."""
        ends = data["terminated"], data["truncated"]
        next_value = successor_values(data["value"], last_value, ends[1], truncated_value)
        return self._advantages(data["reward"], data["value"], next_value, *ends)

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Add the step to the rollout; when the rollout is full, learn from it."""
        truncated_value = extra["value"]  # not used unless an environment was truncated
        if step.any_truncated:
            truncated_value = self.evaluate(step.next_obs)["value"]
        self.rollout.add(
            obs=obs,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            truncated_value=truncated_value,
            **{"action": action, **extra},  # the extra has actions as they were drawn
        )
        self.counters["steps"] += self.num_envs
        if not self.rollout.full:
            return None
        metrics = self._update(step.obs)
        self.rollout.clear()
        return metrics

    def _update(self, obs: Tensor) -> Metrics:
        c, data = self.config, self.rollout.data
        outcomes = ("reward", "terminated", "truncated")  # collected on the CPU
        reward, terminated, truncated = (data[name].to(self.device) for name in outcomes)
        if c.normalize:
            reward = self.rewards.scaled_rollout(reward, terminated | truncated)
        last_value = self.evaluate(obs)["value"]
        next_value = successor_values(data["value"], last_value, truncated, data["truncated_value"])
        data |= self.advantages(reward, data["value"], next_value, terminated, truncated)
        optimizers.set_learning_rate(self.optimizer, self.learning_rate(self.counters["updates"]))
        names = ("obs", "action", "log_probability", "value", "advantage")
        for batch in self.rollout.minibatches(
            names, c.epochs, c.minibatches, self.random.generator
        ):
            metrics = self.learn(*batch)
            self.counters["updates"] += 1
            if self.after_update is not None:
                self.after_update(self.counters["updates"], batch[0])
        if self.network.normalizer is not None:  # constant within a rollout, as the policy is
            self.network.normalizer.update(data["obs"].flatten(0, 1))
        return metrics

    def _advantages(
        self,
        reward: Tensor,
        value: Tensor,
        next_value: Tensor,
        terminated: Tensor,
        truncated: Tensor,
    ) -> Metrics:
        c, ends = self.config, (terminated, truncated)
        advantage = generalized_advantages(reward, value, next_value, *ends, c.gamma, c.gae_lambda)
        return {"advantage": advantage}

    def _learn(self, *batch: Tensor) -> Metrics:
        loss, metrics = self.loss(*batch)
        self.weights.backward(loss)
        self.weights.clip(self.config.max_grad_norm)
        self.optimizer.step()
        return {"loss": loss.detach(), **metrics}

    def _loss(
        self,
        obs: Tensor,
        action: Tensor,
        old_log_probability: Tensor,
        old_value: Tensor,
        advantage: Tensor,
    ) -> tuple[Tensor, Metrics]:
        c = self.config
        returns = advantage + old_value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        parameters, value = self.network(obs)
        log_probability, entropy = self.policy.log_probability_and_entropy(parameters, action)
        entropy = entropy.mean()
        ratio = (log_probability - old_log_probability).exp()
        clipped_ratio = ratio.clamp(1 - c.clip, 1 + c.clip)
        policy_loss = -torch.minimum(advantage * ratio, advantage * clipped_ratio).mean()
        clipped_value = old_value + (value - old_value).clamp(-c.clip, c.clip)
        errors = torch.maximum((value - returns) ** 2, (clipped_value - returns) ** 2)
        value_loss = 0.5 * errors.mean()
        loss = policy_loss - c.entropy_coefficient * entropy + c.value_coefficient * value_loss
        return loss, {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "clipped": ((ratio - 1).abs() > c.clip).float().mean(),
        }

    def schedules(self) -> dict[str, float]:
        """Return the present value of everything that changes on a schedule."""
        return {}


build = PPO
