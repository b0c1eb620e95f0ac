"""Every algorithm solves every toy task, with every layer variant and with ReDo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from hadamard.core.types import Agent, EnvSpec, Step
from hadamard.layers import variants
from hadamard.plasticity.redo import ReDo
from hadamard.training.setup import make_agent
from tests.support.agents import ALGORITHMS, build_agent, play, settings

CPU = torch.device("cpu")


def trained(
    algorithm: str,
    task: str,
    changes: Mapping[str, Any] = {},
    prepare: Callable[[Agent], None] | None = None,
) -> Agent:
    """Train without a run folder."""
    spec = settings(algorithm, task, changes)
    agent, env = build_agent(algorithm, spec)
    if prepare is not None:
        prepare(agent)
    play(agent, env, spec.train.steps // agent.num_envs)
    assert agent.settled
    return agent


@torch.no_grad()
def value(agent: Agent, obs: Tensor) -> list[float]:
    """Return the agent's values of states: the best action's, or the critic's."""
    output = agent.network(obs)
    values: Tensor = output[1] if isinstance(output, tuple) else output.amax(1)
    return values.tolist()


def choices(agent: Agent, obs: Tensor) -> list[int]:
    return agent.act_greedily(obs).tolist()


def sides(width: int, frames: int = 1) -> tuple[Tensor, list[int]]:
    """All images of the image tasks, and the right action for each."""
    light = 255 if frames > 1 else 1
    images = light * torch.eye(width, dtype=torch.uint8)[:, None, None]
    return images.expand(-1, frames, width, -1), [int(i >= width // 2) for i in range(width)]


SIGNS = torch.tensor([[-1.0], [1.0]])
ONE = torch.ones(1, 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_constant_reward_is_valued(algorithm: str) -> None:
    assert value(trained(algorithm, "constant"), ONE) == pytest.approx([1.0], abs=0.03)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_value_is_that_of_the_observation(algorithm: str) -> None:
    assert value(trained(algorithm, "observed"), SIGNS) == pytest.approx([-1.0, 1.0], abs=0.1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_a_delayed_reward_is_discounted_once(algorithm: str, gamma: float) -> None:
    agent = trained(algorithm, "delayed", {"algo.gamma": gamma})
    assert value(agent, torch.tensor([[0.0], [1.0]])) == pytest.approx([gamma, 1.0], abs=0.05)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_better_action_is_found(algorithm: str) -> None:
    agent = trained(algorithm, "action")
    assert choices(agent, ONE) == [1]
    with torch.no_grad():
        output = agent.network(ONE)
    if isinstance(output, tuple):
        assert float(output[0].softmax(1)[0, 1]) > 0.95
    else:
        assert output[0].tolist() == pytest.approx([-1.0, 1.0], abs=0.05)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_action_follows_the_observation(algorithm: str) -> None:
    agent = trained(algorithm, "both")
    assert choices(agent, SIGNS) == [0, 1]
    assert value(agent, SIGNS) == pytest.approx([1.0, 1.0], abs=0.05)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_time_limit_is_not_an_end(algorithm: str) -> None:
    # V = 1 / (1 - 0.9) = 10. A truncation treated as an end leaves at most 3.44.
    (learned,) = value(trained(algorithm, "truncation", {"algo.gamma": 0.9}), ONE)
    assert 9.0 < learned < 10.1


class Switch:
    """Games of one step. State 1 pays 1 and ends; state 0 leads to state 1 and is truncated there.

    V(1) = 1 and V(0) = gamma. Bootstrapping from the next game's first state, 0 or 1 at random,
    would make it gamma / (2 - gamma).
    """

    spec = EnvSpec((1,), torch.float32, 2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs, self.random = num_envs, torch.Generator().manual_seed(0)

    def reset(self) -> Tensor:
        self.state = torch.randint(2, (self.num_envs, 1), generator=self.random).float()
        return self.state.clone()

    def step(self, action: Tensor) -> Step:
        paying = self.state[:, 0] == 1
        final = torch.ones_like(self.state)
        everyone = torch.arange(self.num_envs)
        return Step(
            self.reset(), paying.float(), paying, ~paying, everyone, final, bool((~paying).any())
        )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_truncated_game_bootstraps_from_its_own_last_state(algorithm: str) -> None:
    spec = settings(algorithm, "both", {"algo.gamma": 0.5})
    env = Switch(spec.algo.num_envs)
    agent = make_agent(algorithm, spec, env, CPU)
    play(agent, env, spec.train.steps // agent.num_envs)
    assert value(agent, torch.tensor([[0.0], [1.0]])) == pytest.approx([0.5, 1.0], abs=0.05)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_images_are_distinguished(algorithm: str) -> None:
    agent = trained(algorithm, "image")
    obs, right = sides(10)
    assert choices(agent, obs) == right
    assert value(agent, obs) == pytest.approx([1.0] * 10, abs=0.05)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_stacked_frames_are_distinguished(algorithm: str) -> None:
    changes = {"train.steps": 768, "net.width": 16, "algo.learning_rate": 1e-3}
    obs, right = sides(84, frames=4)
    actions = choices(trained(algorithm, "image84", changes), obs)
    assert sum(a == b for a, b in zip(actions, right, strict=True)) >= 0.9 * len(right)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize(("activation", "task"), [("relu", "image"), ("tanh", "both")])
def test_every_layer_variant_learns(
    algorithm: str, variant: str, activation: str, task: str
) -> None:
    changes: dict[str, Any] = {"net.layer": variant, "net.activation": activation}
    if algorithm == "ppo":  # at twice the rate, one value of ten is sometimes off
        changes["algo.learning_rate"] = 2.5e-3
    agent = trained(algorithm, task, changes)
    obs, right = (SIGNS, [0, 1]) if task == "both" else sides(10)
    assert choices(agent, obs) == right
    assert value(agent, obs) == pytest.approx([1.0] * len(right), abs=0.15)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("variant", ["plain", "hadamard"])
def test_learning_survives_redo(algorithm: str, variant: str) -> None:
    recycled: list[int] = []
    updates_heard: list[tuple[int, int]] = []

    def prepare(agent: Agent) -> None:
        redo = ReDo(agent.network, agent.optimizer, tau=0.1, period=20)

        def after_update(updates: int, obs: Tensor) -> None:
            redo(updates, obs)
            updates_heard.append((updates, len(obs)))
            if updates % 20 == 0:
                recycled.append(redo.recycled)

        agent.after_update = after_update

    agent = trained(algorithm, "both", {"net.layer": variant}, prepare)
    assert choices(agent, SIGNS) == [0, 1]
    assert sum(recycled) > 0
    # It is called after every update, in order, with a batch of observations.
    assert [updates for updates, _ in updates_heard] == list(range(1, len(updates_heard) + 1))
    assert min(size for _, size in updates_heard) >= 8
