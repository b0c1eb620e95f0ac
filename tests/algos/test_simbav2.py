"""SimbaV2: its schedule, statistics and targets, the tasks it learns, and its errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import diagnose, envs
from hadamard.algos.simbav2 import Config, SimbaV2
from hadamard.compute.jit import Captured
from hadamard.core.config import NetSpec, RunSpec, overridden
from hadamard.core.types import EnvSpec
from hadamard.learning.distributions import cross_entropy, sample_squashed_gaussian
from hadamard.learning.normalize import ObservationNormalizer, RewardScaler
from hadamard.learning.replay import Batch
from hadamard.nets.simba import sphere_weights
from hadamard.training import start
from hadamard.training.health_stream import hidden_layers
from tests.support.arrays import split_between_bins

CPU = torch.device("cpu")
ENV = EnvSpec((7,), torch.float32, action_size=3, max_steps=500)


def test_without_a_time_limit_the_discount_must_be_set() -> None:
    env = replace(ENV, max_steps=0)
    with pytest.raises(ValueError, match="--algo.gamma"):
        SimbaV2(env, RunSpec(algo=Config()), CPU)


SMALL = {
    "algo.actor_width": 16,
    "algo.critic_blocks": 1,
    "algo.batch_size": 32,
    "algo.learning_starts": 64,
    "algo.num_envs": 4,
    "net.width": 16,
}


def small(task: str = "track", **changes: Any) -> tuple[SimbaV2, Any]:
    spec = overridden(
        start.default_spec("simbav2", f"probe/{task}"),
        {**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}},
    )
    spec.check()
    env = envs.make(spec.env, spec.seed, spec.algo.num_envs)
    return SimbaV2(env.spec, spec, CPU), env


def play(agent: SimbaV2, env: Any, steps: int) -> list[Any]:
    obs = env.reset()
    agent.begin(obs)
    metrics = []
    for _ in range(steps):
        action, extra = agent.act(obs, 0)
        step = env.step(action)
        metrics.append(agent.observe(obs, action, extra, step))
        obs = step.obs
    return metrics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algo__bins": 1}, "--algo.bins of at least 2 .got 1"),
        ({"algo__return_limit": 0.0}, "--algo.return-limit .got 0"),
        ({"algo__actor_width": 0}, "--algo.actor-width must be at least 1, got 0"),
        ({"algo__critic_blocks": 0}, "--algo.critic-blocks must be at least 1, got 0"),
        ({"net__layer": "layernorm"}, "--net.layer layernorm"),
        ({"net__where": "conv"}, "--net.where conv"),
    ],
)
def test_impossible_networks_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_learning_starts_late_and_its_rate_falls() -> None:
    agent, env = small(train__steps=400, algo__learning_starts=80)
    metrics = play(agent, env, 100)
    assert [row is not None for row in metrics] == [i >= 19 for i in range(100)]
    assert agent.counters["updates"] == 2 * 4 * 81  # two for each step of four environments
    # The rate after 647 of 800 planned updates is that of the 648th.
    expected = 1e-4 - 5e-5 * 647 / 800
    assert agent.rate.rate.item() == pytest.approx(expected)
    assert agent.schedules()["learning_rate"] == pytest.approx(expected)
    for module in (agent.actor, agent.critic):
        for weight in sphere_weights(module):
            assert torch.allclose(weight.norm(dim=-2), torch.tensor(1.0), atol=1e-6)


def test_the_statistics_are_those_of_training() -> None:
    agent, env = small("track")
    obs = env.reset()
    agent.begin(obs)
    observations, rewards, done = [], [], []
    for _ in range(30):
        observations.append(obs)
        action, extra = agent.act(obs, 0)
        step = env.step(action)
        agent.observe(obs, action, extra, step)
        rewards.append(step.reward)
        done.append(step.terminated | step.truncated)
        agent.act_greedily(obs)  # must not change the statistics
        obs = step.obs
    by_hand = ObservationNormalizer((1,))
    by_hand.update(torch.cat(observations))
    torch.testing.assert_close(agent.network.normalizer.variance, by_hand.variance)
    scaler = RewardScaler(4, agent.gamma, 5.0)
    for reward, ended in zip(rewards, done, strict=True):
        scaler.update(reward, ended)
    torch.testing.assert_close(agent.rewards.moments.variance, scaler.moments.variance)
    assert any(bool(ended.any()) for ended in done)


def test_one_critic_has_the_shape_of_one_network() -> None:
    agent, _ = small(algo__double_critic=False)
    log_probability = agent.critic(torch.zeros(3, 1), torch.zeros(3, 2))
    assert log_probability.shape == (1, 3, 101)
    pair, _ = small()
    assert pair.critic(torch.zeros(3, 1), torch.zeros(3, 2)).shape == (2, 3, 101)
    first, second = pair.critic.trunk.embedding.weight.detach()
    assert not torch.allclose(first, second)


def test_the_target_is_the_distribution_of_the_smaller_mean() -> None:
    """Equal to a loop over samples, critics and bins in double precision."""
    config = Config(actor_width=8, critic_blocks=1)
    agent = SimbaV2(ENV, RunSpec(algo=config, net=NetSpec(width=8)), CPU)
    draw = torch.Generator().manual_seed(0)
    for module in (agent.actor, agent.critic, agent.target, agent.temperature):
        module.double()
    with torch.no_grad():
        for parameter in agent.target.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
        agent.target.head.bias.zero_()
    batch = Batch(
        torch.randn(40, 7, generator=draw).double(),
        torch.rand(40, 3, generator=draw).double(),
        torch.randn(40, generator=draw).double(),
        torch.rand(40, generator=draw) < 0.3,
        torch.randn(40, 7, generator=draw).double(),
    )
    noise = torch.randn(40, 3, generator=draw).double()
    predicted = agent.critic(batch.obs, batch.action)
    loss = cross_entropy(agent._critic_target(batch, noise), predicted).item()
    bins = agent.critic.bins.numpy()
    with torch.no_grad():
        mean, deviation = agent.actor(batch.next_obs)
        action, log_probability = sample_squashed_gaussian(mean, deviation, noise)
        returns = agent.target(batch.next_obs, action).exp().numpy()
        predicted = agent.critic(batch.obs, batch.action).numpy()
        temperature = agent.temperature().item()
    chosen, total = set(), 0.0
    for i in range(40):
        means = [(returns[c, i] * bins).sum() for c in range(2)]
        smaller = int(np.argmin(means))
        chosen.add(smaller)
        soft = bins - temperature * log_probability[i].item()
        discount = 0.0 if batch.terminated[i] else agent.gamma
        values = batch.reward[i].item() + discount * soft
        target = split_between_bins(returns[smaller, i][None], values[None], bins)[0]
        total -= sum((target * predicted[c, i]).sum() for c in range(2)) / 40
    assert chosen == {0, 1}
    assert loss == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize(
    ("layer", "activation"),
    [
        ("plain", "relu"),
        ("hadamard", "relu"),
        ("hadamard", "tanh"),
        ("hadamard2", "relu"),
        ("widened", "relu"),
        ("crelu", "relu"),
    ],
)
def test_every_variant_learns_to_steer(layer: str, activation: str) -> None:
    agent, env = small(
        "steer",
        net__layer=layer,
        net__activation=activation,
        net__width=32,
        algo__double_critic=False,
        algo__learning_rate=1e-2,
        algo__learning_rate_final=1e-3,
        algo__learning_starts=400,
        algo__batch_size=64,
        algo__target_entropy=-1.5,
        algo__tau=0.05,
        train__steps=1_200,
    )
    play(agent, env, 300)
    sides = torch.tensor([[-1.0], [1.0]])
    action, _ = agent.network(sides)
    reward = 1 - (action - sides / 2).square().mean(1)
    assert reward.min() > 0.93  # the action 0 earns 0.75


def test_a_time_limit_does_not_end_the_return() -> None:
    """Steps of reward 1, truncated after eight, have the value 1 / (1 - gamma)."""
    agent, env = small(
        "track",
        algo__gamma=0.5,
        algo__learning_rate=1e-2,
        algo__learning_rate_final=1e-3,
        algo__target_entropy=-1.5,
        algo__tau=0.05,
        algo__learning_starts=400,
        train__steps=3_200,
    )
    play(agent, env, 800)
    _, value = agent.network(torch.tensor([[-1.0], [1.0]]))
    scaled = value / agent.rewards(torch.ones(2))
    assert scaled.tolist() == pytest.approx([2.0, 2.0], rel=0.12)


def test_every_blocks_hidden_layer_is_diagnosed() -> None:
    agent, _ = small(algo__critic_blocks=2)
    obs = torch.randn(256, 1, generator=torch.Generator().manual_seed(0))
    layers = diagnose(agent.network, obs, hidden_layers(agent.network, "all"))
    widths = {layer.name: layer.neurons for layer in layers}
    assert widths == {
        "actor.trunk.blocks.0.representations.0": 64,
        **{
            f"critic.trunk.blocks.{block}.representations.{critic}": 64
            for block in (0, 1)
            for critic in (0, 1)
        },
    }
    ranks = [layer.effective_rank for layer in layers]
    assert len(set(ranks)) > 1


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("track84", {}, "reads vectors.*mrq"),
        ("track", {"net__norm": "layer"}, "--net.norm must be none"),
        ("track", {"algo__batch_size": 0}, "--algo.batch-size must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(task: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(task, **changes)


def test_discrete_actions_and_redo_are_refused(tmp_path: Path) -> None:
    spec = start.default_spec("simbav2", "probe/both")
    with pytest.raises(ValueError, match="needs continuous actions.*2 discrete.*dqn"):
        start.train("simbav2", replace(spec, run_dir=str(tmp_path / "a")))
    spec = overridden(start.default_spec("simbav2", "probe/track"), {"remedy": "redo"})
    with pytest.raises(ValueError, match="--remedy redo does not work with simbav2"):
        start.train("simbav2", replace(spec, run_dir=str(tmp_path / "b")))
    spec = start.default_spec("dqn", "probe/track")
    with pytest.raises(ValueError, match="dqn needs discrete actions.*2 continuous.*simbav2"):
        start.train("dqn", replace(spec, run_dir=str(tmp_path / "c")))


@pytest.mark.gpu
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
@pytest.mark.parametrize("compile", ["off", "auto"])
def test_captured_learning_equals_eager_learning(layer: str, compile: str) -> None:
    device = torch.device("cuda")
    spec = overridden(
        start.default_spec("simbav2", "probe/track"),
        {**SMALL, "net.layer": layer, "train.compile": compile, "train.steps": 4_000},
    )
    agents = []
    eager_spec = overridden(spec, {"train.capture": False, "train.compile": "off"})
    for variant in (eager_spec, spec):
        env = envs.make(spec.env, 0, 4, device)
        agent = SimbaV2(env.spec, variant, device)
        play(agent, env, 60)
        agents.append(agent)
    eager, captured = agents
    assert not isinstance(eager.learn, Captured)
    assert captured.counters["updates"] > 80
    torch.testing.assert_close(captured.network.normalizer.mean, eager.network.normalizer.mean)
    for (name, weight), expected in zip(
        captured.network.named_parameters(), eager.network.parameters(), strict=True
    ):
        torch.testing.assert_close(weight, expected, atol=2e-4, rtol=1e-3, msg=name)
