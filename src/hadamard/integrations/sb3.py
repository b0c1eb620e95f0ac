"""Stable-Baselines3: convert a model's policy, and watch its health while it learns.

from hadamard.integrations.sb3 import HealthCallback, convert

model = PPO("MlpPolicy", "CartPole-v1")
convert(model)
model.learn(100_000, callback=HealthCallback(path="runs/ppo-0"))
model.save("ppo")
PPO.load("ppo")
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy

from hadamard.health import Diagnosis, Monitor
from hadamard.health.monitor import check_trackers
from hadamard.layers import Conversion, hadamardize

_POLICIES = (ActorCriticPolicy, DQNPolicy, SACPolicy, TD3Policy)


def convert(model: BaseAlgorithm, **options: Any) -> Conversion:
    """Turn hidden layers of a model's policy into Hadamard layers, before ``learn``.

    ``model.save`` and ``load`` then work as ever: the saved model knows how its policy was
    converted. The options are those of ``hadamardize``; by default every hidden layer is
    converted, and no output (TD3 squashes its actions by a tanh, which makes one look hidden).
    """
    if not isinstance(model, BaseAlgorithm):
        raise TypeError(
            f"model must be a model of Stable-Baselines3, got {type(model).__name__}; for a "
            "network use hadamard.hadamardize"
        )
    if model.num_timesteps:
        raise ValueError(
            f"the model has learned for {model.num_timesteps:,} steps: convert it before learn()"
        )
    conversion = _converted(model.policy, options)
    model.policy_class = _converted_class(type(model.policy), options)
    return conversion


def _converted_class(base: type[BasePolicy], options: Mapping[str, Any]) -> type[BasePolicy]:
    """Return a policy class that converts itself when it is built, as ``load`` builds it."""

    def build(self: Any, lr_schedule: Any) -> None:
        base._build(self, lr_schedule)  # type: ignore[attr-defined]
        _converted(self, options)

    return type(f"Hadamard{base.__name__}", (base,), {"_build": build})


def _converted(policy: Any, options: Mapping[str, Any]) -> Conversion:
    if isinstance(policy, TD3Policy) and options.get("where") is None:
        squashed = {f"{name}.mu.{len(policy.actor.mu) - 2}" for name in ("actor", "actor_target")}
        options = {**options, "where": lambda name, _module: name not in squashed}
    return hadamardize(policy, **options)


class HealthCallback(BaseCallback):
    """Diagnose a model's networks on its own observations while it learns.

    Observations are those of the newest rollout (PPO, A2C) or of the newest part of the replay
    buffer (DQN, SAC, TD3). Diagnoses come at the end of a rollout, once ``every`` steps have passed
    since the last. They and the episodes' scores go to ``path``, as in ``hadamard.Monitor``, whose
    arguments (``tensorboard``, ``wandb``, ``trackio``, ``mlflow``, ``prefix``, ``about``) and
    those of ``diagnose`` can be passed too.

    Args:
        path: a file that ends in .jsonl, a new run's folder, or None.
        every: environment steps between diagnoses.
        samples: observations of a diagnosis, at most.
        forward: a function of observations that runs the networks to diagnose, for a policy that
            is none of Stable-Baselines3's own.
        options: arguments of ``Monitor`` and ``diagnose``.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = "health.jsonl",
        every: int = 10_000,
        samples: int = 2_048,
        *,
        forward: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        for name, value, least in (("every", every, 1), ("samples", samples, 2)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be an integer from {least} up, got {value!r}")
        if forward is not None and not callable(forward):
            raise TypeError(f"forward must be callable, got {type(forward).__name__}")
        check_trackers(options)
        self.path, self.every, self.samples = path, every, samples
        self._forward, self._options = forward, options
        self.monitor: Monitor | None = None
        self._last = 0

    @property
    def latest(self) -> Diagnosis | None:
        """The newest diagnosis."""
        return None if self.monitor is None else self.monitor.latest

    def _on_training_start(self) -> None:
        forward = self._forward or _forward(self.model)
        options = dict(self._options)
        if self.path is not None and not os.fspath(self.path).endswith(".jsonl"):
            options["about"] = {**self._about(), **(options.get("about") or {})}
        self.monitor = Monitor(self.model.policy, 1, self.path, forward=forward, **options)
        self._last = self.num_timesteps

    def _about(self) -> dict[str, Any]:
        specs = self.training_env.get_attr("spec")
        return {
            "algorithm": f"sb3-{type(self.model).__name__.lower()}",
            "env": getattr(specs[0], "id", None) or "custom",
            "seed": self.model.seed or 0,
            "steps": self.model._total_timesteps,
        }

    def _on_step(self) -> bool:
        assert self.monitor is not None
        for info in self.locals.get("infos", ()):
            if "episode" in info:
                self.monitor.score(info["episode"]["r"], step=self.num_timesteps)
        return True

    def _on_rollout_end(self) -> None:
        assert self.monitor is not None
        if self.num_timesteps - self._last >= self.every:
            self._last = self.num_timesteps
            self.monitor.step(self._observations, step=self.num_timesteps)

    def _on_training_end(self) -> None:
        assert self.monitor is not None
        self.monitor.close()

    def _observations(self) -> Any:
        """Return the newest observations as the policy sees them, those of a dict in a tuple."""
        model: Any = self.model
        stored, newest = _stored(model, self.samples)
        if isinstance(stored, dict):
            return ({name: self._flat(stored[name], newest, name) for name in stored},)
        return (self._flat(stored, newest, None),)

    def _flat(self, stored: Any, newest: Any, name: str | None) -> torch.Tensor:
        """Return (samples, ...) of (steps, environments, ...)."""
        space: Any = self.model.observation_space
        shape = (space if name is None else space[name]).shape
        taken = np.asarray(stored[newest])
        flat = taken.reshape(-1, *(shape or taken.shape[2:]))[-self.samples :]
        return torch.as_tensor(flat, device=self.model.device)


def _stored(model: Any, samples: int) -> tuple[Any, Any]:
    """Return a buffer's observations, and the indices of its newest steps in order."""
    if isinstance(model, OnPolicyAlgorithm):
        return model.rollout_buffer.observations, slice(None)
    buffer = model.replay_buffer
    count = min(-(-samples // buffer.n_envs), buffer.buffer_size if buffer.full else buffer.pos)
    newest = np.arange(buffer.pos - count, buffer.pos) % buffer.buffer_size
    stored = buffer.observations
    if model._vec_normalize_env is not None:
        taken = (
            {name: values[newest] for name, values in stored.items()}
            if isinstance(stored, dict)
            else stored[newest]
        )
        return model._vec_normalize_env.normalize_obs(taken), slice(None)
    return stored, newest


def _forward(model: BaseAlgorithm) -> Callable[..., Any]:
    """Return what runs all networks that a model learns; refuse a policy that is not known."""
    policy: Any = model.policy
    if not isinstance(model, OnPolicyAlgorithm | OffPolicyAlgorithm) or not isinstance(
        policy, _POLICIES
    ):
        raise TypeError(
            f"{type(model).__name__} with a {type(policy).__name__} is not known here: pass the "
            "function of observations that runs its networks, for example "
            "forward=model.policy.forward"
        )
    if isinstance(policy, ActorCriticPolicy):
        if getattr(policy, "lstm_actor", None) is not None:
            raise TypeError(
                f"{type(policy).__name__} needs its recurrent state: pass forward=, a function "
                "of observations that gives it one"
            )
        return policy.forward
    if isinstance(policy, DQNPolicy):
        return policy.q_net.forward
    return functools.partial(_actor_and_critic, policy)


def _actor_and_critic(policy: Any, observations: Any) -> Any:
    actor = policy.actor
    if isinstance(policy, SACPolicy):
        before_squashing = actor.get_action_dist_params(observations)[0]
    else:
        features = actor.extract_features(observations, actor.features_extractor)
        before_squashing = actor.mu[:-1](features)
    # tanh(x), written so that the actions do not count as a hidden representation.
    actions = 2 * torch.special.expit(2 * before_squashing) - 1
    return policy.critic(observations, actions)
