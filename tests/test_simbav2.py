"""SimbaV2: the published updates number by number, and each piece by itself."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hadamard import diagnose, envs, train
from hadamard.algos.simbav2 import Config, SimbaV2
from hadamard.analyse import hidden_layers
from hadamard.core.config import NetSpec, RunSpec, TrainSpec, overridden
from hadamard.core.distributions import cross_entropy, project_on_bins, squashed
from hadamard.core.jit import jit
from hadamard.core.normalise import ObservationNormaliser, RewardScaler
from hadamard.core.replay import Batch
from hadamard.core.returns import discount
from hadamard.core.sphere import SphereAdam
from hadamard.core.types import EnvSpec
from hadamard.nets.simba import Block, HyperDense, Scaler, Shape, Trunk, projected

GOLDEN = Path(__file__).parents[2] / "shared/reference/golden/simbav2_updates.npz"
CPU = torch.device("cpu")
ENV = EnvSpec((7,), torch.float32, action_size=3, max_steps=500)

# Where each of our parameters is in the published tree.
HEADS = {"inner": "w1", "outer": "w2"}
ACTOR = {
    "trunk.embedding.weight": "embedder/w/hyper_dense/kernel",
    "trunk.scaler.vector": "embedder/scaler/scaler",
    **{
        f"{head}.{ours}.weight": f"predictor/{theirs}_{w}/hyper_dense/kernel"
        for head, theirs in (("mean", "mean"), ("deviation", "std"))
        for ours, w in HEADS.items()
    },
    "mean.scaler.vector": "predictor/mean_scaler/scaler",
    "mean.bias": "predictor/mean_bias",
    "deviation.scaler.vector": "predictor/std_scaler/scaler",
    "deviation.bias": "predictor/std_bias",
}
CRITIC = {
    "trunk.embedding.weight": "embedder/w/hyper_dense/kernel",
    "trunk.scaler.vector": "embedder/scaler/scaler",
    "head.inner.weight": "predictor/w1/hyper_dense/kernel",
    "head.outer.weight": "predictor/w2/hyper_dense/kernel",
    "head.scaler.vector": "predictor/scaler/scaler",
    "head.bias": "predictor/value_bias",
}
BLOCK = {
    "hidden.affine.weight": "mlp/w1/hyper_dense/kernel",
    "hidden.norm.vector": "mlp/scaler/scaler",
    "out.weight": "mlp/w2/hyper_dense/kernel",
    "alpha.vector": "alpha_scaler/scaler",
}


# One entry of 16,000: its first gradient is 1e-7, the rounding of a sum of terms up to 1e-2, and
# Adam's first step is as long whatever the gradient's size. In double precision the sign is ours.
UNDECIDED = ("trunk.blocks.0.out.weight", (0, 96, 21))


def names(part: str) -> dict[str, str]:
    table, blocks, prefix = (
        (ACTOR, 1, "actor/") if part == "actor" else (CRITIC, 2, f"{part}/VmapSimbaV2Critic_0/")
    )
    found = {ours: prefix + theirs for ours, theirs in table.items()}
    for i in range(blocks):
        for ours, theirs in BLOCK.items():
            found[f"trunk.blocks.{i}.{ours}"] = f"{prefix}encoder/layers_{i}/{theirs}"
    return found


def published(golden: Any, step: int, part: str, module: nn.Module) -> dict[str, Tensor]:
    """The published parameters, in our names and shapes."""
    shapes = {name: p.shape for name, p in module.named_parameters()}
    found = {}
    for ours, theirs in names(part).items():
        value = torch.from_numpy(golden[f"step{step}/{theirs}"])
        found[ours] = value.reshape(shapes[ours])
    assert found.keys() == shapes.keys()
    return found


@pytest.fixture(scope="module")
def golden() -> Any:
    if not GOLDEN.is_file():
        pytest.skip("the reference files are not beside this checkout")
    return np.load(GOLDEN)


def golden_agent(golden: Any, device: torch.device, compile: str = "off") -> SimbaV2:
    told = json.loads(bytes(golden["config"]))
    config = Config(
        actor_width=told["actor_hidden_dim"],
        updates_per_step=1,
        batch_size=16,
        gamma=told["gamma"],
    )
    spec = RunSpec(
        algo=config,
        net=NetSpec(width=told["critic_hidden_dim"]),
        train=TrainSpec(steps=told["learning_rate_decay_step"], compile=compile),
    )
    agent = SimbaV2(ENV, spec, device)
    assert config.learning_rate == told["learning_rate_init"]
    assert config.learning_rate_final == told["learning_rate_end"]
    for part, module in (
        ("actor", agent.actor),
        ("critic", agent.critic),
        ("target_critic", agent.target),
    ):
        with torch.no_grad():
            for name, value in published(golden, 0, part, module).items():
                module.get_parameter(name).copy_(value)
    assert agent.temperature.log.item() == pytest.approx(
        float(golden["step0/temperature/log_temp"])
    )
    return agent


def check_golden(golden: Any, agent: SimbaV2, update: Any) -> None:
    device = agent.device

    def given(name: str) -> Tensor:
        return torch.from_numpy(golden[name]).to(device)

    for i in range(3):
        batch = Batch(
            given(f"batch{i}/observation"),
            given(f"batch{i}/action"),
            given(f"batch{i}/reward"),
            given(f"batch{i}/terminated") > 0,
            given(f"batch{i}/next_observation"),
        )
        told = update(batch, given(f"noise{i}/actor"), given(f"noise{i}/critic_next"))
        for ours, theirs in (
            ("loss", "critic/loss"),
            ("actor_loss", "actor/loss"),
            ("entropy", "actor/entropy"),
            ("temperature", "temperature/value"),
        ):
            assert float(told[ours]) == pytest.approx(float(golden[f"info{i}/{theirs}"]), abs=1e-5)
        for part, module in (
            ("actor", agent.actor),
            ("critic", agent.critic),
            ("target_critic", agent.target),
        ):
            for name, value in published(golden, i + 1, part, module).items():
                ours_now = module.get_parameter(name).detach().cpu().clone()
                if (part, name) == ("critic", UNDECIDED[0]):
                    assert abs(ours_now[UNDECIDED[1]] - value[UNDECIDED[1]]) < 2.1e-4
                    ours_now[UNDECIDED[1]] = value[UNDECIDED[1]]
                torch.testing.assert_close(ours_now, value, atol=1e-5, rtol=0, msg=f"{part} {name}")
        log = float(golden[f"step{i + 1}/temperature/log_temp"])
        assert agent.temperature.log.item() == pytest.approx(log, abs=1e-5)
    obs, action = given("forward/observation"), given("forward/action")
    with torch.no_grad():
        mean, deviation = agent.actor(obs)
        log_probability = agent.critic(obs, action)
    value = agent.critic.value(log_probability)
    for ours_then, theirs in (
        (mean, "actor_mean"),
        (deviation, "actor_std"),
        (log_probability, "log_prob"),
        (value, "q"),
    ):
        expected = given(f"forward/{theirs}")
        torch.testing.assert_close(ours_then, expected, atol=1e-5, rtol=1e-5, msg=theirs)


def test_three_published_updates(golden: Any) -> None:
    agent = golden_agent(golden, CPU)
    check_golden(golden, agent, agent._update)


@pytest.mark.gpu
@pytest.mark.parametrize("compile", ["off", "auto"])
def test_three_published_updates_captured(golden: Any, compile: str) -> None:
    device = torch.device("cuda")
    agent = golden_agent(golden, device, compile=compile)

    def update(*given: Tensor) -> Any:
        return agent._update(Batch(*given[:5]), *given[5:])

    changed = [agent.network, agent.target, agent.temperature, agent.rate, *agent.optimisers]
    captured = jit(update, device, changed)
    check_golden(golden, agent, lambda batch, *noise: captured(*batch, *noise))


# Each piece against numbers worked out in NumPy, in double precision.


def unit(x: Any) -> Any:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-8)


def array(parameter: Tensor) -> Any:
    return parameter.detach().double().numpy()


@pytest.mark.parametrize("layer", ["plain", "hadamard"])
def test_a_block_interpolates_along_the_sphere(layer: str) -> None:
    torch.manual_seed(0)
    block = Block(Shape(8, 2, 4), NetSpec(layer=layer))
    x = unit(np.random.default_rng(0).normal(size=(5, 8)))
    scale = math.sqrt(2 / 8) / 2
    affine = block.hidden.affine.weight
    rows = 32 if layer == "plain" else 64
    assert affine.shape == (8, rows)
    hidden = np.maximum(x @ array(affine) * scale, 0)
    if layer == "hadamard":
        hidden = hidden[:, :32] * hidden[:, 32:]
        assert not torch.equal(affine[:, :32], affine[:, 32:])
    proposed = unit((hidden + 1e-8) @ array(block.out.weight))
    # alpha starts at 1 / (blocks + 1), whatever its learned vector is scaled by
    expected = unit(x + (proposed - x) / 3)
    got = block(torch.from_numpy(x).float()).detach().double().numpy()
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(got, axis=-1), 1, atol=1e-6)


def test_a_scaler_learns_in_units_of_its_scale() -> None:
    scaler = Scaler(3, initial=0.5, scale=0.1)
    x = torch.tensor([[1.0, -2.0, 4.0]])
    assert torch.allclose(scaler(x), 0.5 * x)
    with torch.no_grad():
        scaler.vector += 0.01  # a tenth of the scale is a tenth of the factor
    assert torch.allclose(scaler(x), 0.55 * x)


def test_steps_end_on_the_sphere_and_targets_follow() -> None:
    draw = torch.Generator().manual_seed(0)
    held = [nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((2, 5, 3), (1, 3))]
    theirs = [nn.Parameter(weight.detach().clone()) for weight in held]
    targets = [torch.zeros_like(weight) for weight in held]
    expected = [np.zeros(weight.shape) for weight in held]
    ours = SphereAdam(held, lr=1e-2, sphere=held[:1], targets=targets, tau=0.25)
    adam = torch.optim.Adam(theirs, lr=1e-2)
    for _ in range(5):
        for mine, other in zip(held, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=draw)
            other.grad = mine.grad.clone()
        ours.step()
        adam.step()
        with torch.no_grad():
            lengths = np.linalg.norm(array(theirs[0]), axis=1, keepdims=True)
            theirs[0].copy_(torch.from_numpy(array(theirs[0]) / lengths))
        for before, weight in zip(expected, theirs, strict=True):
            before += 0.25 * (array(weight) - before)
    for found, wanted in zip((*held, *targets), (*map(array, theirs), *expected), strict=True):
        np.testing.assert_allclose(array(found), wanted, atol=1e-6)
    with pytest.raises(ValueError, match="takes no closure"):
        ours.step(lambda: 0.0)
    held[1].grad = None
    with pytest.raises(ValueError, match="a parameter has no gradient"):
        ours.step()


def test_every_unit_is_projected_and_one_without_weights_stays() -> None:
    torch.manual_seed(1)
    dense = HyperDense(6, 4, copies=2)
    assert torch.allclose(dense.weight.norm(dim=-2), torch.ones(2, 4), atol=1e-6)
    with torch.no_grad():
        dense.weight.mul_(3.7)
        dense.weight[1, :, 2] = 0
    before = array(dense.weight)
    dense.weight.grad = torch.zeros_like(dense.weight)
    SphereAdam([dense.weight], lr=0.0, sphere=[dense.weight]).step()
    np.testing.assert_allclose(
        array(dense.weight).swapaxes(1, 2), unit(before.swapaxes(1, 2)), atol=1e-7
    )
    assert not dense.weight[1, :, 2].any()


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 32), (32, 4)])
def test_weights_are_drawn_orthogonal(inputs: int, outputs: int) -> None:
    torch.manual_seed(2)
    weight = array(HyperDense(inputs, outputs).weight)
    if outputs < inputs:  # orthonormal units are on the sphere already
        np.testing.assert_allclose(weight.T @ weight, np.eye(outputs), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(weight, axis=0), 1, atol=1e-6)


def test_the_embedding_keeps_the_length_as_an_angle() -> None:
    torch.manual_seed(3)
    trunk = Trunk(4, Shape(8, 0, 4), NetSpec())
    x = np.array([[1.0, 2.0, -1.0, 0.5], [10.0, 20.0, -10.0, 5.0], [0.0, 0.0, 0.0, 0.0]])
    appended = unit(np.concatenate([x, np.full((3, 1), 3.0)], axis=1))
    expected = unit(appended @ array(trunk.embedding.weight) * math.sqrt(2 / 8))
    np.testing.assert_allclose(trunk(torch.tensor(x).float()).detach(), expected, atol=1e-6)
    assert abs(expected[0] - expected[1]).max() > 0.05


@pytest.mark.parametrize("raw", [-30.0, -10.0, -1.0, 0.0, 0.3, 8.0, 30.0])
@pytest.mark.parametrize("deviation", [math.exp(-10), 0.5, math.exp(2)])
def test_the_squashed_gaussian_far_in_the_tails(raw: float, deviation: float) -> None:
    mean, noise = raw - 1.5 * deviation, 1.5
    action, log_probability = squashed(
        torch.tensor([[mean]], dtype=torch.float64),
        torch.tensor([[deviation]], dtype=torch.float64),
        torch.tensor([[noise]], dtype=torch.float64),
    )
    # 1 - tanh(x)^2 = 4 e^(-2|x|) / (1 + e^(-2|x|))^2
    e = math.exp(-2 * abs(raw))
    volume = math.log(4) - 2 * abs(raw) - 2 * math.log1p(e)
    gaussian = -0.5 * noise**2 - math.log(deviation) - 0.5 * math.log(2 * math.pi)
    assert log_probability.item() == pytest.approx(gaussian - volume, rel=1e-9)
    assert action.item() == pytest.approx(math.tanh(raw))
    single = squashed(*(torch.tensor([[x]]) for x in (mean, deviation, noise)))[1]
    assert single.item() == pytest.approx(gaussian - volume, rel=1e-4)


def test_the_squashed_gaussian_is_a_density() -> None:
    mean, deviation = 0.7, 0.9
    raw = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    noise = ((raw - mean) / deviation)[:, None]
    full = torch.full_like(noise, 1.0)
    action, log_probability = squashed(mean * full, deviation * full, noise)
    area = torch.trapezoid(log_probability.exp(), action[:, 0])
    assert area.item() == pytest.approx(1.0, abs=1e-6)


def shared_out(probability: Any, places: Any, bins: Any) -> Any:
    """The projection as a loop: each atom is split between its neighbours."""
    out = np.zeros_like(probability)
    width = (bins[-1] - bins[0]) / (len(bins) - 1)
    for row in range(len(probability)):
        for mass, place in zip(probability[row], places[row], strict=True):
            position = (min(max(place, bins[0]), bins[-1]) - bins[0]) / width
            low = min(math.floor(position + 1e-12), len(bins) - 1)
            high = min(low + 1, len(bins) - 1)
            out[row, low] += mass * (1 - (position - low))
            out[row, high] += mass * (position - low)
    return out


def test_the_projection_on_bins_at_and_beyond_the_edges() -> None:
    bins = np.linspace(-5, 5, 101)
    draw = np.random.default_rng(0)
    probability = draw.dirichlet(np.ones(101), size=6)
    places = draw.normal(scale=4, size=(6, 101))
    places[1] = 7.0  # all above
    places[2] = -99.0  # all below
    places[3] = bins  # exactly on the bins
    places[4] = 5.0  # exactly on the edge
    places[5] = bins + 0.05  # in the middle
    got = project_on_bins(*(torch.from_numpy(x) for x in (probability, places, bins))).numpy()
    np.testing.assert_allclose(got, shared_out(probability, places, bins), atol=1e-9)
    np.testing.assert_allclose(got.sum(1), 1, atol=1e-9)
    assert got[1, -1] == pytest.approx(1)
    assert got[2, 0] == pytest.approx(1)
    np.testing.assert_allclose(got[3], probability[3], atol=1e-9)
    # The mean moves with the places wherever none was cut off.
    inside = np.clip(places, -5, 5)
    np.testing.assert_allclose((got * bins).sum(1), (probability * inside).sum(1), atol=1e-9)


def test_observation_statistics_are_those_of_two_passes() -> None:
    draw = np.random.default_rng(0)
    samples = draw.normal(size=(1_000_000, 3)) * [1.0, 1e-2, 30.0] + [1e4, -1e5, 0.1]
    seen = samples.astype(np.float32)
    normaliser = ObservationNormaliser((3,))
    for chunk in np.split(seen, 10_000):
        normaliser.update(torch.from_numpy(chunk))
    mean = seen.astype(np.float64).mean(0)
    variance = ((seen.astype(np.float64) - mean) ** 2).mean(0)
    # The stand-in for nothing seen, mean 0 and variance 1 with a weight of 1e-4, is in there too.
    share = 1e-4 / (1e6 + 1e-4)
    expected = variance * (1 - share) + share + mean**2 * share * (1 - share)
    np.testing.assert_allclose(normaliser.mean.numpy(), mean * (1 - share), rtol=1e-12)
    np.testing.assert_allclose(normaliser.variance.numpy(), expected, rtol=1e-9)
    single = normaliser(torch.from_numpy(seen[:1000])).numpy()
    by_hand = (seen[:1000] - mean * (1 - share)) / np.sqrt(expected + 1e-8)
    np.testing.assert_allclose(single, by_hand, atol=1e-5)


def test_one_observation_at_a_time_is_the_same_as_many() -> None:
    draw = torch.Generator().manual_seed(3)
    samples = torch.randn(200, 4, generator=draw)
    one, many = ObservationNormaliser((4,)), ObservationNormaliser((4,))
    for sample in samples:
        one.update(sample[None])
    many.update(samples)
    torch.testing.assert_close(one.variance, many.variance)
    torch.testing.assert_close(one.mean, many.mean)


def test_rewards_are_scaled_across_the_ends_of_episodes() -> None:
    draw = np.random.default_rng(1)
    rewards = draw.normal(size=(60, 2)) * 3
    done = draw.random((60, 2)) < 0.2
    scaler = RewardScaler(2, gamma=0.9, limit=5.0)
    running, returns = np.zeros(2), []
    for reward, ended in zip(rewards, done, strict=True):
        scaler.update(torch.from_numpy(reward), torch.from_numpy(ended))
        # The last reward of an episode starts the count anew.
        running = np.where(ended, reward, 0.9 * running + reward)
        returns.append(running)
    every = np.array(returns)
    count = every.size
    share = 1e-4 / (count + 1e-4)
    variance = every.var() * (1 - share) + share + every.mean() ** 2 * share * (1 - share)
    by = max(math.sqrt(variance + 1e-8), abs(every).max() / 5)
    assert scaler(torch.tensor([2.0])).item() == pytest.approx(2 / by, rel=1e-6)
    assert done.any(0).all()
    # One enormous return, and the limit is what counts.
    scaler.update(torch.tensor([1e4, 0.0]), torch.tensor([False, False]))
    largest = abs(0.9 * running[0] + 1e4)
    assert scaler(torch.tensor([1.0])).item() == pytest.approx(5 / largest, rel=1e-6)


@pytest.mark.parametrize(
    ("steps", "expected"), [(500, 0.99), (1000, 0.995), (5000, 0.995), (50, 0.95), (200, 0.975)]
)
def test_the_discount_sees_a_fifth_of_an_episode(steps: int, expected: float) -> None:
    assert discount(steps) == pytest.approx(expected)


def test_without_a_time_limit_the_discount_must_be_told() -> None:
    env = replace(ENV, max_steps=0)
    with pytest.raises(ValueError, match="--algo.gamma"):
        SimbaV2(env, RunSpec(algo=Config()), CPU)


# The agent.

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
        train.default_spec("simbav2", f"probe/{task}"),
        {**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}},
    )
    played = envs.make(spec.env, spec.seed, spec.algo.num_envs)
    return SimbaV2(played.spec, spec, CPU), played


def play(agent: SimbaV2, played: Any, steps: int) -> list[Any]:
    obs = played.reset()
    agent.begin(obs)
    told = []
    for _ in range(steps):
        action, extra = agent.act(obs)
        step = played.step(action)
        told.append(agent.observe(obs, action, extra, step))
        obs = step.obs
    return told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"algo__bins": 1}, "--algo.bins of at least 2 .got 1"),
        ({"algo__return_limit": 0.0}, "--algo.return-limit .got 0"),
        ({"algo__actor_width": 0}, "--algo.actor-width must be at least 1, got 0"),
        ({"algo__critic_blocks": 0}, "--algo.critic-blocks must be at least 1, got 0"),
        ({"net__layer": "layernorm"}, "--net.layer layernorm"),
        ({"net__where": "conv"}, "--net.where conv"),
    ],
)
def test_impossible_networks_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        small(**changes)


def test_learning_begins_when_it_is_time_and_the_rate_falls() -> None:
    agent, played = small(train__steps=400, algo__learning_starts=80)
    told = play(agent, played, 100)
    assert [metrics is not None for metrics in told] == [i >= 19 for i in range(100)]
    assert agent.counters["updates"] == 2 * 4 * 81  # two for each of four environments' steps
    # 800 updates were planned; the last of 648 was made at the rate of 647.
    expected = 1e-4 - 5e-5 * 647 / 800
    assert agent.rate.rate.item() == pytest.approx(expected)
    assert agent.schedules()["learning_rate"] == pytest.approx(expected)
    for module in (agent.actor, agent.critic):
        for weight in projected(module):
            assert torch.allclose(weight.norm(dim=-2), torch.tensor(1.0), atol=1e-6)


def test_the_statistics_are_of_what_was_seen() -> None:
    agent, played = small("track")
    obs = played.reset()
    agent.begin(obs)
    seen, rewards, done = [], [], []
    for _ in range(30):
        seen.append(obs)
        action, extra = agent.act(obs)
        step = played.step(action)
        agent.observe(obs, action, extra, step)
        rewards.append(step.reward)
        done.append(step.terminated | step.truncated)
        agent.act(obs, explore=False)  # evaluation changes nothing
        obs = step.obs
    by_hand = ObservationNormaliser((1,))
    by_hand.update(torch.cat(seen))
    torch.testing.assert_close(agent.network.normaliser.variance, by_hand.variance)
    scaler = RewardScaler(4, agent.gamma, 5.0)
    for reward, ended in zip(rewards, done, strict=True):
        scaler.update(reward, ended)
    torch.testing.assert_close(agent.rewards.moments.variance, scaler.moments.variance)
    assert any(bool(ended.any()) for ended in done)


def test_the_critic_alone_is_one_network() -> None:
    agent, _ = small(algo__double_critic=False)
    log_probability = agent.critic(torch.zeros(3, 1), torch.zeros(3, 2))
    assert log_probability.shape == (1, 3, 101)
    pair, _ = small()
    assert pair.critic(torch.zeros(3, 1), torch.zeros(3, 2)).shape == (2, 3, 101)
    first, second = pair.critic.trunk.embedding.weight.detach()
    assert not torch.allclose(first, second)


def test_the_target_is_the_distribution_of_the_smaller_mean() -> None:
    """Against a loop in double precision over samples, critics and bins."""
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
    loss = cross_entropy(agent._returns(batch, noise), predicted).item()
    bins = agent.critic.bins.numpy()
    with torch.no_grad():
        mean, deviation = agent.actor(batch.next_obs)
        action, log_probability = squashed(mean, deviation, noise)
        beyond = agent.target(batch.next_obs, action).exp().numpy()
        predicted = agent.critic(batch.obs, batch.action).numpy()
        temperature = agent.temperature().item()
    chosen, total = set(), 0.0
    for i in range(40):
        means = [(beyond[c, i] * bins).sum() for c in range(2)]
        smaller = int(np.argmin(means))
        chosen.add(smaller)
        soft = bins - temperature * log_probability[i].item()
        going_on = 0.0 if batch.terminated[i] else agent.gamma
        places = batch.reward[i].item() + going_on * soft
        target = shared_out(beyond[smaller, i][None], places[None], bins)[0]
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
    agent, played = small(
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
    play(agent, played, 300)
    sides = torch.tensor([[-1.0], [1.0]])
    action, _ = agent.network(sides)
    reward = 1 - (action - sides / 2).square().mean(1)
    assert reward.min() > 0.93  # standing still earns 0.75


def test_a_time_limit_is_not_an_end() -> None:
    """One step of reward 1 in eight, cut by the limit, goes on being worth 1 / (1 - gamma)."""
    agent, played = small(
        "track",
        algo__gamma=0.5,
        algo__learning_rate=1e-2,
        algo__learning_rate_final=1e-3,
        algo__target_entropy=-1.5,
        algo__tau=0.05,
        algo__learning_starts=400,
        train__steps=3_200,
    )
    play(agent, played, 800)
    _, value = agent.network(torch.tensor([[-1.0], [1.0]]))
    scaled = value / agent.rewards(torch.ones(2))
    assert scaled.tolist() == pytest.approx([2.0, 2.0], rel=0.12)


def count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_the_widened_network_has_the_weights_of_hr() -> None:
    env = EnvSpec((51,), torch.float32, action_size=19, max_steps=500)
    sizes = {}
    for layer in ("plain", "hadamard", "widened"):
        agent = SimbaV2(env, RunSpec(algo=Config(), net=NetSpec(layer=layer, width=512)), CPU)
        sizes[layer] = count(agent.network)
        hidden = agent.critic.trunk.blocks[0].hidden.outputs
        assert hidden == (3072 if layer == "widened" else 2048)
    assert sizes["hadamard"] > 1.4 * sizes["plain"]
    assert sizes["widened"] == pytest.approx(sizes["hadamard"], rel=0.01)


def test_every_blocks_hidden_layer_is_diagnosed() -> None:
    agent, _ = small(algo__critic_blocks=2)
    obs = torch.randn(256, 1, generator=torch.Generator().manual_seed(0))
    found = diagnose(agent.network, obs, hidden_layers(agent.network, "all"))
    widths = {layer.name: layer.neurons for layer in found}
    assert widths == {
        "actor.trunk.blocks.0.representations.0": 64,
        **{
            f"critic.trunk.blocks.{block}.representations.{critic}": 64
            for block in (0, 1)
            for critic in (0, 1)
        },
    }
    ranks = [layer.effective_rank for layer in found]
    assert len(set(ranks)) > 1


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("track84", {}, "reads vectors.*mrq"),
        ("track", {"net__norm": "layer"}, "--net.norm must be none"),
        ("track", {"algo__batch_size": 0}, "--algo.batch-size must be at least 1"),
    ],
)
def test_what_cannot_work_is_refused(task: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(task, **changes)


def test_discrete_actions_and_redo_are_refused(tmp_path: Path) -> None:
    spec = train.default_spec("simbav2", "probe/both")
    with pytest.raises(ValueError, match="needs continuous actions.*2 discrete.*dqn"):
        train.train("simbav2", replace(spec, run_dir=str(tmp_path / "a")))
    spec = overridden(train.default_spec("simbav2", "probe/track"), {"redo.enabled": True})
    with pytest.raises(ValueError, match="ReDo does not work with simbav2"):
        train.train("simbav2", replace(spec, run_dir=str(tmp_path / "b")))
    spec = train.default_spec("dqn", "probe/track")
    with pytest.raises(ValueError, match="dqn needs discrete actions.*2 continuous.*simbav2"):
        train.train("dqn", replace(spec, run_dir=str(tmp_path / "c")))


@pytest.mark.gpu
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
@pytest.mark.parametrize("compile", ["off", "auto"])
def test_captured_learning_is_eager_learning(layer: str, compile: str) -> None:
    device = torch.device("cuda")
    spec = overridden(
        train.default_spec("simbav2", "probe/track"),
        {**SMALL, "net.layer": layer, "train.compile": compile, "train.steps": 4_000},
    )
    agents = []
    eagerly = overridden(spec, {"train.capture": False, "train.compile": "off"})
    for asked in (eagerly, spec):
        played = envs.make(spec.env, 0, 4, device)
        agent = SimbaV2(played.spec, asked, device)
        play(agent, played, 60)
        agents.append(agent)
    eager, captured = agents
    assert eager.learn == eager._learn
    assert captured.counters["updates"] > 80
    torch.testing.assert_close(captured.network.normaliser.mean, eager.network.normaliser.mean)
    for (name, ours), theirs in zip(
        captured.network.named_parameters(), eager.network.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3, msg=name)
