"""What a fleet learns from games on the host is what each agent learns by its own code."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hadamard.core.config import overridden
from hadamard.core.types import EnvSpec, Step
from hadamard.training import start
from hadamard.training.fleet.hosted_replay import HostedReplay
from hadamard.training.setup import make_agent

CPU = torch.device("cpu")
IMAGES = EnvSpec((4, 36, 36), torch.uint8, 3, frames=4)
"""The smallest images that Atari's encoder takes."""
RUNS, ENVS, ROUNDS = 2, 2, 60
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "train.fleet": "on",
    "train.steps": 1_000,
    "net.width": 8,
    "algo.num_envs": ENVS,
    "algo.learning_starts": 40,
    "algo.batch_size": 6,
    "algo.replay_capacity": 100,
    "algo.update_period": 4,
    "algo.target_period": 30,
    "algo.learning_rate": 1e-3,
}
VARIANTS: list[Mapping[str, str]] = [
    {"layer": "plain", "activation": "relu"},
    {"layer": "plain", "activation": "tanh", "norm": "layer", "where": "all"},
    {"layer": "hadamard", "activation": "tanh"},
    {"layer": "hadamard", "activation": "tanh", "norm": "layer_map", "where": "all"},
    {"layer": "hadamard2", "activation": "tanh"},
    {"layer": "crelu", "activation": "relu", "where": "all"},
    {"layer": "layernorm", "activation": "relu"},
    {"layer": "widened", "activation": "tanh"},
]


def agents_of(net: Mapping[str, str], changes: Mapping[str, Any] = {}) -> list[Any]:
    """Agents that compute in double precision."""
    own = {f"net.{name}": value for name, value in net.items()} | dict(changes)
    spec = overridden(start.default_spec("dqn", "atari/Pong"), {**SETTINGS, **own})
    environments: Any = SimpleNamespace(spec=IMAGES)
    agents: list[Any] = []
    torch.set_default_dtype(torch.float64)
    for seed in range(RUNS):
        agents.append(make_agent("dqn", overridden(spec, {"seed": seed}), environments, CPU))
        for network in (agents[-1].network, agents[-1].target):
            network.encoder.dtype = torch.float64
    torch.set_default_dtype(torch.float32)
    return agents


def round_of(generator: torch.Generator) -> Step:
    """A step of all games, some of which end."""
    count = RUNS * ENVS
    numbers = torch.rand(3, count, generator=generator)
    ended = (numbers[0] < 0.1).nonzero().squeeze(1)
    shape = (2, count, *IMAGES.obs_shape)
    obs, final_obs = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
    return Step(
        obs,
        numbers[1],
        numbers[0] < 0.1,
        torch.zeros(count, dtype=torch.bool),
        ended if len(ended) else None,
        final_obs[ended] if len(ended) else None,
    )


@pytest.mark.parametrize("net", VARIANTS, ids=lambda net: "-".join(net.values()))
def test_stacked_updates_are_those_of_the_agent(net: Mapping[str, str]) -> None:
    agents, alone = agents_of(net), agents_of(net)
    starts = [agent.weights.vector.detach().clone() for agent in alone]
    generator = torch.Generator().manual_seed(0)
    obs = round_of(generator).obs.unflatten(0, (RUNS, ENVS))
    for agent, first in zip(agents, obs, strict=True):
        agent.begin(first)
    computation = HostedReplay(agents, range(RUNS), start.default_spec("dqn").train)
    learn_from = computation._learn_from

    def both(drawn: Any) -> None:
        frames, *values = computation.replay.batch(drawn)
        before, after = computation.replay.observations(frames)
        learn_from(drawn)
        for run, agent in enumerate(alone):
            batch = [value[run] for value in (before, *values, after)]
            metrics = agent.learn(*batch)
            agent.counters["updates"] += 1
            assert abs(computation.metrics["loss"][run] - metrics["loss"]) < 1e-10
            assert abs(computation.metrics["value"][run] - metrics["value"]) < 1e-10

    computation._learn_from = both  # type: ignore[method-assign]
    delayed = 0
    for number in range(ROUNDS):
        step = number * ENVS
        action = computation.act(obs, np.full(RUNS, step))
        for run, agent in enumerate(alone):  # the same choice, of the agent's own network
            values = agent.network(obs[run].to(torch.float64))
            chosen = values.gather(1, action[run].unsqueeze(1)).squeeze(1)
            draws = computation._choice[run, number]
            greedy = draws[:, 0] >= agent.epsilon(step)
            assert (values.amax(1) - chosen)[greedy].abs().sum() < 1e-10
        outcome, after = round_of(generator), step + ENVS
        ahead = computation.learn(after, np.ones(RUNS, dtype=bool))
        computation.store(action.flatten(0, 1), outcome)
        assert computation.learn(after, np.zeros(RUNS, dtype=bool))
        delayed += not ahead
        obs = outcome.obs.unflatten(0, (RUNS, ENVS))
        for agent in alone:
            if agent.target_due(step, step + ENVS):
                agent.target.load_state_dict(agent.network.state_dict())
    assert 0 < delayed < 20
    assert computation.updates == agents[0].updates_due(ROUNDS * ENVS) == 20
    for agent, other, begin in zip(agents, alone, starts, strict=True):
        assert other.counters["updates"] == 20
        assert (other.weights.vector - begin).abs().max() > 1e-3
        assert (agent.weights.vector - other.weights.vector).abs().max() < 1e-10
        for name, weight in other.target.state_dict().items():
            assert (agent.target.state_dict()[name] - weight).abs().max() < 1e-10
