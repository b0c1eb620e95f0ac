"""The device, the environments and the agent of a run, built from its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from hadamard import envs, plasticity
from hadamard.compute.jit import also_changes
from hadamard.core import discover, machine, remedies
from hadamard.core.config import RunSpec
from hadamard.core.random import child_seed
from hadamard.core.types import ActsWithGreedy, Agent, Envs
from hadamard.envs.groups import GroupedEnvs
from hadamard.plasticity import Remedies
from hadamard.text import joined
from hadamard.training import emulators, filming, health_stream, memory, trackers
from hadamard.training.evaluate import GreedyPlay

ALGORITHMS = discover.ALGORITHMS
TRAINING = 10
"""Purpose of the seeds of the environments that a run learns from, see ``child_seed``."""


class Setup:
    """A run's device, environments and agent.

    Wrong settings are errors here, before a run folder exists.
    """

    def __init__(self, algorithm: str, spec: RunSpec[Any]) -> None:
        spec.check()
        health_stream.chosen(spec.train)
        self.algorithm, self.spec = algorithm, spec
        self.device = machine.choose_device(spec.device)
        filming.check(spec, self.device)
        memory.check(spec, self.device)
        trackers.check(spec.train)
        self.greedy: GreedyPlay | None = None
        self.acts_with_greedy: ActsWithGreedy | None = None
        """The agent, if it chooses the greedy actions in the same call as those of training."""
        self.evaluation: Envs | None = None
        train, count = spec.train, spec.algo.num_envs
        workers, groups = train.env_workers, train.env_groups
        emulators.check(spec, self.device)
        if train.fleet == "on" or train.emulators == "gpu":  # which need no workers, or their own
            workers, groups = 0, 1
        groups = max(1, min(groups, count, workers or count))
        self.envs = self._make_envs(count, TRAINING, workers, groups)
        self.groups = self.envs.groups if isinstance(self.envs, GroupedEnvs) else [self.envs]
        try:
            memory.check(spec, self.device, self.envs.spec)
            self.agent = make_agent(algorithm, spec, self.envs, self.device)
            self.agent.after_update = self._remedies()
            if train.greedy_envs:
                workers = 0 if train.env_workers == 0 else None
                greedy_envs = self._make_envs(train.greedy_envs, 11, workers, training=False)
                self.greedy = GreedyPlay(self.agent, greedy_envs)
                self.acts_with_greedy = self._joined_greedy_call()
            if train.eval_every:
                workers = train.eval_workers
                if workers is not None:
                    workers = min(workers, train.eval_episodes)
                self.evaluation = self._make_envs(train.eval_episodes, 12, workers, training=False)
        except BaseException:
            self.close()
            raise

    def _make_envs(
        self,
        count: int,
        purpose: int,
        workers: int | None,
        groups: int = 1,
        *,
        training: bool = True,
    ) -> Envs:
        train = self.spec.train
        on_device = envs.plays_on_device(self.spec.env, train.emulators)
        if on_device and (train.fleet == "on" or train.emulators == "gpu"):
            return envs.make_on_device(
                self.spec.env,
                child_seed(self.spec.seed, purpose),
                count,
                self.device,
                training=training,
                atari_reset=train.atari_reset,
            )
        return envs.make(
            self.spec.env,
            child_seed(self.spec.seed, purpose),
            count,
            self.device,
            training=training,
            atari_reset=self.spec.train.atari_reset,
            workers=workers,
            groups=groups,
        )

    def _remedies(self) -> Remedies | None:
        """Return the run's remedies, which act on the agent from now on."""
        spec, agent = self.spec, self.agent
        configs = remedies.configs(spec.remedy, spec.remedies)
        if not configs:
            return None
        assert agent.optimizer is not None
        built = plasticity.build(agent.network, agent.optimizer, configs, spec.seed)
        if built.tensors:
            agent.parts["remedies"] = built
            also_changes(agent, built.tensors)
        return built

    def _joined_greedy_call(self) -> ActsWithGreedy | None:
        """Return the agent if it should choose greedy and exploring actions in one call."""
        train, agent = self.spec.train, self.agent
        workers = train.env_workers
        if workers is None:
            workers = envs.automatic_workers(self.spec.env, self.envs.num_envs)
        faster = self.device.type == "cuda" and not workers
        if train.greedy_call == "own" or (train.greedy_call == "auto" and not faster):
            return None
        if isinstance(agent, ActsWithGreedy):
            return agent
        if train.greedy_call == "joined":
            raise ValueError(
                f"--train.greedy-call joined: {self.algorithm} cannot choose greedy and exploring "
                "actions in one call: leave the option out"
            )
        return None

    def title(self, path: Path) -> str:
        """Return what the progress display says of a run in a folder."""
        spec, net = self.spec, self.spec.net
        device = f"{self.device}{' with emulators' if spec.train.emulators == 'gpu' else ''}"
        return (
            f"{self.algorithm} on {spec.env}: {net.layer}, {net.activation}, "
            f"seed {spec.seed}, {device} -> {path}"
        )

    def close(self) -> None:
        """Close all environments."""
        self.envs.close()
        if self.greedy is not None:
            self.greedy.envs.close()
        if self.evaluation is not None:
            self.evaluation.close()


def make_agent(
    algorithm: str, spec: RunSpec[Any], environments: Envs, device: torch.device
) -> Agent:
    """Build an algorithm's agent for some environments."""
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    env = environments.spec
    if env.actions not in module.ACTIONS:
        names = discover.names(ALGORITHMS, installed=False)
        actions = {name: discover.find(ALGORITHMS, name, "algorithm").ACTIONS for name in names}
        suitable = [name for name in names if env.actions in actions[name]]
        raise ValueError(
            f"{algorithm} needs {module.ACTIONS} actions and this environment has "
            f"{env.action_size or env.num_actions} {env.actions} ones: train "
            f"{joined(suitable, 'or')} on it, or choose another --env"
        )
    agent: Agent = module.build(env, spec, device)
    if spec.remedy != "none" and agent.optimizer is None:
        raise ValueError(
            f"--remedy {spec.remedy} does not work with {algorithm}, which allows no other "
            "changes to its weights: leave --remedy out, or choose another algorithm"
        )
    for name in remedies.chosen(spec.remedy):
        if hasattr(remedy := discover.find(discover.REMEDIES, name, "remedy"), "prepare"):
            for network in {agent.network, getattr(agent, "target", agent.network)}:
                remedy.prepare(network)
    return agent
