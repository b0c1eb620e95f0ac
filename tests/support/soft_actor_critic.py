"""Small SimbaV2 agents in made-up environments, stacked and each by its own code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hadamard.algos.simbav2 import SimbaV2
from hadamard.core.config import overridden
from hadamard.core.counter import normals, uniforms
from hadamard.core.random import child_seed
from hadamard.core.types import EnvSpec, Metrics, Step
from hadamard.envs.groups import join_steps
from hadamard.learning.replay import Batch
from hadamard.training import start
from hadamard.training.fleet.soft_actor_critic import SoftActorCritic

CPU = torch.device("cpu")
OBS, ACTIONS = 5, 3
CHOICE, SAMPLE, RANDOM_ACTION, UPDATE = 1, 2, 6, 7
"""Purposes of a run's seed."""
SMALL: dict[str, Any] = {
    "algo.actor_width": 8,
    "algo.batch_size": 8,
    "algo.learning_starts": 20,
    "algo.learning_rate": 1e-3,
    "algo.replay_capacity": 90,
    "algo.bins": 11,
    "net.width": 8,
    "train.steps": 400,
    "train.compile": "off",
}


def agents_of(
    count: int, changes: Mapping[str, Any] = {}, dtype: torch.dtype = torch.float32
) -> list[SimbaV2]:
    """Agents of different seeds and learning rates that compute in this dtype."""
    env = EnvSpec((OBS,), dtype, action_size=ACTIONS, max_steps=30)
    agents = []
    torch.set_default_dtype(dtype)
    for seed in range(count):
        own = {"seed": seed, "algo.learning_rate_final": 1e-4 * (seed + 1)}
        own |= {"algo.initial_temperature": 0.01 * (seed + 1)}
        spec = overridden(start.default_spec("simbav2", "probe/track"), {**SMALL, **own, **changes})
        agents.append(SimbaV2(env, spec, CPU))
    torch.set_default_dtype(torch.float32)
    return agents


def computation_of(
    agents: Sequence[SimbaV2], seeds: Sequence[int], **options: Any
) -> SoftActorCritic:
    spec = overridden(start.default_spec("simbav2", "probe/track"), SMALL)
    return SoftActorCritic(agents, seeds, spec.train, **options)


class MadeUpEnvs:
    """Environments whose episodes end at random, and whose reward depends on the action."""

    def __init__(self, seed: int, num_envs: int, dtype: torch.dtype = torch.float32) -> None:
        self.draw = torch.Generator().manual_seed(seed)
        self.num_envs, self.dtype = num_envs, dtype

    def reset(self) -> Tensor:
        self.obs = self._random(self.num_envs)
        return self.obs

    def _random(self, count: int) -> Tensor:
        return 3 * torch.randn(count, OBS, generator=self.draw).to(self.dtype) + 1

    def step(self, action: Tensor) -> Step:
        successor = 0.8 * self.obs + 0.2 * self._random(self.num_envs)
        reward = 5 - (action - successor[:, :ACTIONS]).square().sum(1)
        happens = torch.rand(self.num_envs, generator=self.draw)
        terminated, truncated = happens < 0.06, (happens > 0.06) & (happens < 0.12)
        (ended,) = (terminated | truncated).nonzero(as_tuple=True)
        self.obs = successor.clone()
        if len(ended):
            self.obs[ended] = self._random(len(ended))
        final = (ended, successor[ended]) if len(ended) else (None, None)
        return Step(self.obs, reward.float(), terminated, truncated, *final, bool(truncated.any()))


class Play:
    """Plays environments of several runs with the protocol of a fleet."""

    def __init__(self, agents: Sequence[SimbaV2], seeds: Sequence[int], **options: Any) -> None:
        self.seeds, self.agents, self.step = list(seeds), list(agents), 0
        dtype = agents[0].replay.frames.dtype
        self.envs = [MadeUpEnvs(seed, agents[0].num_envs, dtype) for seed in seeds]
        for agent, env in zip(agents, self.envs, strict=True):
            agent.begin(env.reset())
        self.computation = computation_of(agents, self.seeds, **options)

    def rounds(self, count: int) -> Metrics:
        for _ in range(count):
            obs = torch.stack([env.obs for env in self.envs])
            action = self.computation.act(obs, self.step)
            steps = [env.step(own) for env, own in zip(self.envs, action, strict=True)]
            self.computation.observe(obs, action, join_steps(steps))
            self.step += self.agents[0].num_envs
        for agent in self.agents:
            agent.counters["steps"] = self.step
            agent.counters["updates"] = self.computation.updates
        return self.computation.metrics


class Alone:
    """One agent that acts and learns by its own code, with a fleet's random numbers."""

    def __init__(self, agent: SimbaV2, seed: int) -> None:
        self.agent, self.seed, self.step = agent, seed, 0
        self.env = MadeUpEnvs(seed, agent.num_envs, agent.replay.frames.dtype)
        agent.begin(self.env.reset())
        agent.replay.sample = self.sample  # type: ignore[method-assign, assignment]
        agent._noise = self.noise  # type: ignore[method-assign]

    def draws(self, f: Any, purpose: int, number: int, rows: int, lanes: int) -> Tensor:
        seed = torch.tensor([child_seed(self.seed, purpose)])
        numbers: Tensor = f(seed, torch.tensor([number]), rows, lanes)[0]
        return numbers

    def noise(self, count: int) -> Tensor:
        agent = self.agent
        if count == agent.num_envs:
            return self.draws(normals, CHOICE, self.step, count, ACTIONS)
        return self.draws(normals, UPDATE, agent.counters["updates"], count, ACTIONS)

    def sample(self, count: int, _: torch.Generator) -> Batch:
        replay = self.agent.replay
        pair = self.draws(uniforms, SAMPLE, self.agent.counters["updates"], count, 2).double()
        usable = replay.usable.nonzero()
        rank = ((pair[:, 0] + pair[:, 1] * 2.0**-24) * len(usable)).long()
        env, slot = usable[rank].unbind(1)
        after = (slot + 1) % replay.slots
        values = replay.action, replay.reward, replay.terminated
        action, reward, terminated = (value[env, slot] for value in values)
        return Batch(
            replay.frames[env, slot], action, reward, terminated, replay.frames[env, after]
        )

    def rounds(self, count: int) -> Metrics | None:
        agent, metrics = self.agent, None
        for _ in range(count):
            obs = self.env.obs
            action, extra = agent.act(obs, self.step)
            if self.step < agent.config.learning_starts:
                uniform = self.draws(uniforms, RANDOM_ACTION, self.step, agent.num_envs, ACTIONS)
                action = 2 * uniform - 1
            metrics = agent.observe(obs, action, extra, self.env.step(action))
            self.step += agent.num_envs
        return metrics


def state_of(agent: SimbaV2) -> dict[str, Any]:
    """All that a checkpoint holds of an agent, but for random generators and files of frames."""
    filled = int(min(agent.replay.pushed))
    state: dict[str, Any] = {"frames": agent.replay.frames[:, :filled]}
    for name, part in agent.parts.items():
        if name == "replay":
            names = ("action", "reward", "terminated", "usable")
            state |= {name: getattr(agent.replay, name) for name in names}
            state |= {name: list(getattr(agent.replay, name)) for name in ("pushed", "ages")}
        elif name != "random":
            state[name] = part.state_dict()  # type: ignore[union-attr]
    return state
