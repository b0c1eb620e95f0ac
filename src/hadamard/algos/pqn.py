"""PQN: Q-learning on lambda-returns of many environments, without replay or target network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from hadamard.core import optimisers
from hadamard.core.adam import RAdam
from hadamard.core.config import NetSpec, RunSpec, require_positive
from hadamard.core.explore import epsilon_greedy
from hadamard.core.flat import FlatParameters
from hadamard.core.jit import compiler, jit
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.returns import lambda_returns, successor_values
from hadamard.core.rollout import Rollout, check_minibatches
from hadamard.core.schedule import linear
from hadamard.core.types import AfterUpdate, EnvSpec, Extra, Incremental, Metrics, Stateful, Step
from hadamard.nets.heads import QNetwork

ACTIONS, ENV = "discrete", "minatar/breakout"
NET = NetSpec(where="all", norm="layer")


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
    """RAdam's learning rate at the start; with every update it falls, linearly to 0."""
    max_grad_norm: float = 10.0
    """Largest global norm of a gradient."""
    gamma: float = 0.99
    """Discount."""
    lambda_: float = 0.65
    """How much of a return comes from later steps rather than the next value."""
    epsilon_initial: float = 1.0
    """Share of random actions at the start."""
    epsilon_final: float = 0.001
    """Share of random actions in the end."""
    epsilon_fraction: float = 0.1
    """Share of the rollouts over which it falls; in a rollout it stays the same."""


class PQN:
    """The agent."""

    def __init__(self, env: EnvSpec, run: RunSpec[Config], device: torch.device) -> None:
        self.config = config = run.algo
        self.num_envs, self.num_actions, self.device = config.num_envs, env.num_actions, device
        require_positive(config, "rollout_steps", "epochs", "minibatches")
        check_minibatches(config.num_envs, config.rollout_steps, config.minibatches)
        self.rollout_size = config.num_envs * config.rollout_steps
        self.total_rollouts = math.ceil(run.train.steps / self.rollout_size)
        self.total_updates = self.total_rollouts * config.epochs * config.minibatches
        with seeded(child_seed(run.seed, 0)):
            self.network = QNetwork(env, run.net, init="he").to(device)
        compiled = compiler(run.train.compile, device)
        self.weights = FlatParameters(self.network, compiled)
        self.optimiser = optimisers.in_one_pass(
            RAdam, self.weights.whole, config.learning_rate, device, compiled
        )
        self.rollout = Rollout(config.rollout_steps, device)
        self.random = Random(child_seed(run.seed, 1))
        self.counters = Counters(steps=0, updates=0)
        self.after_update: AfterUpdate | None = None
        self.parts: dict[str, Stateful | Incremental] = {
            "network": self.network,
            "optimiser": optimisers.OptimiserState(self.optimiser),
            "random": self.random,
            "counters": self.counters,
        }
        self.loss = compiled(self._loss)
        self.learn = jit(self._learn, device, [self.network, self.optimiser], run.train.capture)
        self.look = jit(self._look, device, [], run.train.capture)
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
        """Nothing to prepare."""

    @property
    def epsilon(self) -> float:
        """The share of random actions now."""
        c = self.config
        duration = c.epsilon_fraction * self.total_rollouts
        rollouts = self.counters["steps"] // self.rollout_size
        return linear(c.epsilon_initial, c.epsilon_final, duration, rollouts)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        return linear(self.config.learning_rate, 0.0, self.total_updates, self.counters["updates"])

    def act(self, obs: Tensor, *, explore: bool = True) -> tuple[Tensor, Extra]:
        """Act epsilon-greedily, and remember the best value."""
        return self._choose(obs, self.epsilon if explore else 0.0)

    def act_on_both(self, obs: Tensor, greedy: int) -> tuple[Tensor, Extra]:
        """Act epsilon-greedily, in the last rows greedily."""
        return self._choose(obs, self.epsilon, greedy)

    def _choose(self, obs: Tensor, epsilon: float, greedy: int = 0) -> tuple[Tensor, Extra]:
        generator = self.random.generator
        action, seen = epsilon_greedy(self.look, obs, self.num_actions, epsilon, generator, greedy)
        value = (seen or self.look(obs))["value"]
        return action, {"value": value[: len(obs) - greedy]}

    @torch.no_grad()
    def _look(self, obs: Tensor) -> Metrics:
        value, action = self.network(obs).max(1)
        return {"action": action, "value": value}

    def observe(self, obs: Tensor, action: Tensor, extra: Extra, step: Step) -> Metrics | None:
        """Collect; when the rollout is full, learn from it."""
        truncated_value = extra["value"]  # where nothing is truncated, it is not looked at
        if step.any_truncated:
            truncated_value = self.look(step.next_obs)["value"]
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
        told = (data[name].to(self.device) for name in ("reward", "terminated", "truncated"))
        reward, terminated, truncated = told
        last_value = self.look(obs)["value"]
        following = successor_values(data["value"], last_value, truncated, data["truncated_value"])
        data |= self.returns(reward, following, terminated, truncated)
        for batch in self.rollout.minibatches(
            ("obs", "action", "return"), c.epochs, c.minibatches, self.random.generator
        ):
            optimisers.set_learning_rate(self.optimiser, self.learning_rate)
            metrics = self.learn(*batch)
            self.counters["updates"] += 1
            if self.after_update is not None:
                self.after_update(self.counters["updates"], batch[0])
        return metrics

    def _returns(
        self, reward: Tensor, following: Tensor, terminated: Tensor, truncated: Tensor
    ) -> Metrics:
        told = (reward, following, terminated, truncated)
        return {"return": lambda_returns(*told, self.config.gamma, self.config.lambda_)}

    def _learn(self, obs: Tensor, action: Tensor, returns: Tensor) -> Metrics:
        loss, value = self.loss(obs, action, returns)
        self.weights.backward(loss)
        norm = self.weights.clip(self.config.max_grad_norm)
        self.optimiser.step()
        return {"loss": loss.detach(), "value": value, "gradient_norm": norm}

    def _loss(self, obs: Tensor, action: Tensor, returns: Tensor) -> tuple[Tensor, Tensor]:
        value = self.network(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        return 0.5 * F.mse_loss(value, returns), value.detach().mean()

    def schedules(self) -> dict[str, float]:
        """Return what changes over training by plan."""
        return {"epsilon": self.epsilon}


build = PQN
