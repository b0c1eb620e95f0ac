"""PQN: Q-learning on lambda-returns of many environments, without replay or target network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hadamard.compute import optimizers
from hadamard.compute.adam import RAdam
from hadamard.compute.flat import FlatParameters
from hadamard.compute.jit import compiler, jit
from hadamard.core import require
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Metrics, Part, Step
from hadamard.learning.explore import epsilon_greedy, epsilon_greedy_from
from hadamard.learning.returns import lambda_returns, successor_values
from hadamard.learning.rollout import Rollout, check_minibatches
from hadamard.learning.schedule import linear
from hadamard.nets.heads import QNetwork

ACTIONS, ENV = "discrete", "minatar/breakout"
NET = NetSpec(where="all", norm="layer")
SUITES = {
    # PQN is scored by games that the greedy policy plays all along.
    "*": {"train.greedy_envs": 8},
    # While one half of the emulators play, the other half is acted on. PQN's public code plays
    # envpool's games.
    "atari": {"train.env_groups": 2, "train.atari_reset": "envpool"},
    # PQN's public MinAtar settings.
    "minatar": {
        "net.width": 128,
        "algo.learning_rate": 5e-4,
        "algo.epsilon_final": 0.05,
    },
    # The settings of CleanRL's pqn.py, whose layers are 120 and 84 wide, but for lambda: with 0.65,
    # there and here, CartPole is solved and unlearned again. The release has 0.95 for CartPole.
    "gym": {
        "net.width": 128,
        "algo.num_envs": 4,
        "algo.rollout_steps": 128,
        "algo.epochs": 4,
        "algo.minibatches": 4,
        "algo.q_lambda": 0.9,
        "algo.epsilon_final": 0.05,
        "algo.epsilon_fraction": 0.5,
        "train.steps": 500_000,
        "train.threads": 1,
    },
}


@dataclass(frozen=True)
class Config:
    """PQN's settings; the defaults are the paper's for Atari."""

    num_envs: int = 128
    """Environments stepped together."""
    rollout_steps: int = 32
    """Steps of each environment between updates."""
    epochs: int = 2
    """Passes over a rollout."""
    minibatches: int = 32
    """Parts of a rollout, one update each."""
    learning_rate: float = 2.5e-4
    """RAdam's learning rate at the start; it decreases with every update, linearly to 0."""
    max_grad_norm: float = 10.0
    """Largest global norm of a gradient."""
    gamma: float = 0.99
    """Discount."""
    q_lambda: float = 0.65
    """Weight of later steps in a return against the value of the next step."""
    epsilon_initial: float = 1.0
    """Share of random actions at the start."""
    epsilon_final: float = 0.001
    """Share of random actions at the end."""
    epsilon_fraction: float = 0.1
    """Share of the rollouts over which it decreases; it is constant within a rollout."""

    def check(self, train: TrainSpec) -> None:
        """Refuse settings out of range."""
        del train  # learning starts with the first rollout
        require.fraction(self, "gamma", "q_lambda")
        require.fraction(self, "epsilon_initial", "epsilon_final", "epsilon_fraction")
        require.above_zero(self, "max_grad_norm")
        require.positive(self, "rollout_steps", "epochs", "minibatches")
        require.at_most(self, 10_000, "epochs")


class PQN:
    """The agent: one network, and the rollout it is collecting."""

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = config = run.algo
        self.num_envs, self.num_actions, self.device = config.num_envs, env.num_actions, device
        check_minibatches(config.num_envs, config.rollout_steps, config.minibatches)
        self.rollout_size = config.num_envs * config.rollout_steps
        self.total_rollouts = math.ceil(run.train.steps / self.rollout_size)
        self.total_updates = self.total_rollouts * config.epochs * config.minibatches
        with seeded(child_seed(run.seed, 0)):
            self.network = QNetwork(env, run.net, init="he").to(device)
        compiled = compiler(run.train.compile, device)
        self.weights = FlatParameters(self.network, compiled)
        self.optimizer = optimizers.make_for_vector(
            RAdam, self.weights.vector, config.learning_rate, device, compiled
        )
        self.rollout = Rollout(config.rollout_steps, device)
        self.random = Random(child_seed(run.seed, 1))
        self.counters = Counters(steps=0, updates=0)
        self.after_update: AfterUpdate | None = None
        self.parts: dict[str, Part] = {
            "network": self.network,
            "optimizer": optimizers.OptimizerState(self.optimizer),
            "random": self.random,
            "counters": self.counters,
        }
        self.loss = compiled(self._loss)
        self.learn = jit(self._learn, device, [self.network, self.optimizer], run.train.capture)
        self.choose_greedily = jit(self._choose_greedily, device, [], run.train.capture)
        self.returns = jit(self._returns, device, [], run.train.capture)

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

    def epsilon(self, step: int) -> float:
        """Return the share of random actions at a step; it falls from rollout to rollout."""
        c = self.config
        duration = c.epsilon_fraction * self.total_rollouts
        return linear(c.epsilon_initial, c.epsilon_final, duration, step // self.rollout_size)

    def learning_rate(self, updates: int) -> float:
        """Return the learning rate after so many updates."""
        return linear(self.config.learning_rate, 0.0, self.total_updates, updates)

    def act(self, obs: Tensor, step: int) -> tuple[Tensor, Extra]:
        """Act epsilon-greedily; the extra is the best value of each observation."""
        return self.act_with_greedy(obs, step, greedy=0)

    def act_with_greedy(self, obs: Tensor, step: int, greedy: int) -> tuple[Tensor, Extra]:
        """Act epsilon-greedily, and greedily in the last rows."""
        epsilon, generator = self.epsilon(step), self.random.generator
        action, choice = epsilon_greedy(
            self.choose_greedily, obs, self.num_actions, epsilon, generator, greedy
        )
        value = (choice or self.choose_greedily(obs))["value"]
        return action, {"value": value[: len(obs) - greedy]}

    def act_greedily(self, obs: Tensor) -> Tensor:
        """Take the actions of the largest values."""
        return self.choose_greedily(obs)["action"].cpu()

    @torch.no_grad()
    def _choose_greedily(self, obs: Tensor) -> Metrics:
        value, action = self.network(obs).max(1)
        return {"action": action, "value": value}

    # What a fleet computes for many runs at once: functions of the weights and the arguments.

    fleet_kind = "on_policy"
    per_run = ("learning_rate", "epsilon_initial", "epsilon_final", "epsilon_fraction")
    learns_from = ("obs", "action", "return")
    choice_draws = 2
    exploration = epsilon

    @torch.no_grad()
    def choose(self, obs: Tensor, draws: Tensor, epsilon: Tensor) -> Metrics:
        """Choose epsilon-greedily with two uniform numbers for each observation."""
        choice = self._choose_greedily(obs)
        action = epsilon_greedy_from(choice["action"], draws, epsilon, self.num_actions)
        return {"action": action, "greedy": choice["action"], "value": choice["value"]}

    def targets(self, data: Metrics, last_value: Tensor, truncated_value: Tensor) -> Metrics:
        """Return what the loss compares with, for a rollout."""
        next_value = successor_values(data["value"], last_value, data["truncated"], truncated_value)
        return self._returns(data["reward"], next_value, data["terminated"], data["truncated"])

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Add the step to the rollout; when the rollout is full, learn from it."""
        truncated_value = extra["value"]  # not used unless an environment was truncated
        if step.any_truncated:
            truncated_value = self.choose_greedily(step.next_obs)["value"]
        self.rollout.add(
            obs=obs,
            action=action,
            reward=step.reward,
            terminated=step.terminated,
            truncated=step.truncated,
            value=extra["value"],
            truncated_value=truncated_value,
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
        last_value = self.choose_greedily(obs)["value"]
        next_value = successor_values(data["value"], last_value, truncated, data["truncated_value"])
        data |= self.returns(reward, next_value, terminated, truncated)
        for batch in self.rollout.minibatches(
            ("obs", "action", "return"), c.epochs, c.minibatches, self.random.generator
        ):
            optimizers.set_learning_rate(
                self.optimizer, self.learning_rate(self.counters["updates"])
            )
            metrics = self.learn(*batch)
            self.counters["updates"] += 1
            if self.after_update is not None:
                self.after_update(self.counters["updates"], batch[0])
        return metrics

    def _returns(
        self, reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor
    ) -> Metrics:
        c = self.config
        returns = lambda_returns(reward, next_value, terminated, truncated, c.gamma, c.q_lambda)
        return {"return": returns}

    def _learn(self, obs: Tensor, action: Tensor, returns: Tensor) -> Metrics:
        loss, value = self.loss(obs, action, returns)
        self.weights.backward(loss)
        norm = self.weights.clip(self.config.max_grad_norm)
        self.optimizer.step()
        return {"loss": loss.detach(), "value": value, "gradient_norm": norm}

    def _loss(self, obs: Tensor, action: Tensor, returns: Tensor) -> tuple[Tensor, Tensor]:
        value = self.network(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        return 0.5 * F.mse_loss(value, returns), value.detach().mean()

    def schedules(self) -> dict[str, float]:
        """Return the present value of everything that changes on a schedule."""
        return {"epsilon": self.epsilon(self.counters["steps"])}


build = PQN
