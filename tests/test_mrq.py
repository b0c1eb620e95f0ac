"""MR.Q: its published updates reproduced, every piece of it by hand, and what it learns."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from torch import Tensor, nn

from hadamard import envs, train
from hadamard.algos.mrq import MRQ, NET, Config
from hadamard.analyse import examine, hidden_layers
from hadamard.core.augment import ShiftedObservations, shifted, taken
from hadamard.core.config import NetSpec, RunSpec, TrainSpec, overridden
from hadamard.core.jit import compiler, jit
from hadamard.core.replay import Draw, Replay
from hadamard.core.returns import alive_before, multi_step_returns
from hadamard.core.run import Run
from hadamard.core.types import EnvSpec, Step
from hadamard.experiments.bench import Quiet
from hadamard.layers import HadamardConv2d, HadamardLinear
from hadamard.nets.encoders import encoder
from hadamard.nets.mrq import Encoder, Network, TwoHot, Values, Widths
from hadamard.trained import load_agent

CPU = torch.device("cpu")
GOLDEN = Path(__file__).parents[2] / "shared" / "reference" / "golden"
PIXELS = EnvSpec((9, 84, 84), torch.uint8, frames=3, action_size=6)
VECTOR = EnvSpec((24,), torch.float32, action_size=6)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a GPU, float32 all the way and the same from call to call."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


# The published updates.


@pytest.fixture(params=["state", "pixels"])
def golden(request: pytest.FixtureRequest) -> dict[str, Tensor]:
    path = GOLDEN / f"mrq_updates_{request.param}.npz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return {name: torch.from_numpy(array) for name, array in np.load(path).items()}


def under(golden: Mapping[str, Tensor], folder: str) -> dict[str, Tensor]:
    start = f"{folder}/"
    return {k.removeprefix(start): v for k, v in golden.items() if k.startswith(start)}


def as_ours(encoder: dict[str, Tensor], policy: dict[str, Tensor], value: dict[str, Tensor]) -> Any:
    """Published weights under our names: two maps are cut in parts, two values put in one."""
    names = {
        "state_action.action": "za",
        "state_action.hidden": "zsa.l2",
        "state_action.zsa.layer.affine": "zsa.l3",
    }
    if "zs_lin.weight" in encoder:
        names |= {f"state.layers.{i}.affine": f"zs_cnn{i + 1}" for i in range(4)}
        names["state.layers.4.layer.affine"] = "zs_lin"
    else:
        names |= {f"state.layers.{i}.affine": f"zs_mlp.l{i + 1}" for i in range(2)}
        names["state.layers.2.layer.affine"] = "zs_mlp.l3"
    ours: dict[str, Tensor] = {}
    for kind in ("weight", "bias"):
        ours |= {f"encoder.{a}.{kind}": encoder[f"{b}.{kind}"] for a, b in names.items()}
        for i, layer in enumerate(("first", "second", "action"), start=1):
            ours[f"policy.{layer}.{kind}"] = policy[f"policy.l{i}.{kind}"]
        model = encoder[f"model.{kind}"]
        ours[f"encoder.next_state.{kind}"] = model[1:25]
        ours[f"encoder.outcome.{kind}"] = torch.cat([model[:1], model[25:]])
    first = encoder["zsa.l1.weight"]
    ours["encoder.state_action.from_state.weight"] = first[:, :24]
    ours["encoder.state_action.from_action.weight"] = first[:, 24:]
    ours["encoder.state_action.from_action.bias"] = encoder["zsa.l1.bias"]
    values = {f"hidden.{i}": f"q1.l{i + 1}" for i in range(3)} | {"value": "q2"}
    for layer, theirs in values.items():
        weights = [value[f"q{q}.{theirs}.weight"].T for q in (1, 2)]
        ours[f"values.{layer}.weight"] = torch.stack(weights)
        biases = [value[f"q{q}.{theirs}.bias"][None] for q in (1, 2)]
        ours[f"values.{layer}.bias"] = torch.stack(biases)
    return ours


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_published_updates_are_reproduced(
    golden: dict[str, Tensor], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, near = torch.device(device), 1e-6 if device == "cpu" else 1e-5
    golden = {name: tensor.to(place) for name, tensor in golden.items()}
    states = golden["encoder0/states"]
    pixels = states.dtype == torch.uint8
    env = EnvSpec(tuple(states.shape[2:]), states.dtype, frames=3 if pixels else 1, action_size=3)
    small = Widths(action=12, state_action=20, encoder=16, value=18, policy=14)
    monkeypatch.setattr(Widths, "around", lambda hidden: small)
    agent = MRQ(
        env, RunSpec(algo=Config(), net=replace(NET, width=24), train=TrainSpec(steps=99)), place
    )
    parts = {name: under(golden, f"start/{name}") for name in ("encoder", "policy", "value")}
    agent.network.load_state_dict(as_ours(**parts))
    targets = [under(golden, f"start/{name}_target") for name in ("encoder", "policy", "value")]
    agent.target.load_state_dict(as_ours(*targets))
    now, before = golden["reward_scales"].tolist()
    agent.state.reward_scale.fill_(now)
    agent.state.target_reward_scale.fill_(before)
    agent.state.ended.fill_(not pixels)

    def learn(*batch: Tensor) -> dict[str, Tensor]:
        priority, metrics = agent._update(*batch)
        return {"priority": priority, **metrics}

    changes = [agent.network, *agent.optimisers.values()]
    learn_encoder = jit(agent._update_encoder, place, changes)
    learn_rest = jit(learn, place, changes)

    def check() -> None:
        found, expected = agent.network.state_dict(), as_ours(**parts)
        assert found.keys() == expected.keys()
        for name, weight in expected.items():
            torch.testing.assert_close(found[name], weight, rtol=0, atol=near, msg=name)

    for i in range(2):
        given = under(golden, f"encoder{i}")
        states = given["states"]
        ends = given["not_done"].squeeze(-1) == 0
        assert bool(ends.any()) == (not pixels)
        learn_encoder(
            states[:, 0], states[:, 1:], given["action"], given["reward"].squeeze(-1), ends
        )
        parts["encoder"] = under(golden, f"after_encoder{i}/encoder")
        check()
        given = under(golden, f"rl{i}")
        batch = (
            given["state"],
            given["action"],
            given["multi_step_reward"].squeeze(1),
            0.99**3 * given["multi_step_not_done"].squeeze(1),
            given["next_state"],
            given["noise"],
        )
        with torch.no_grad():
            goal, (values, _) = agent._goals(*batch[2:]), agent._valued(*batch[:2])
        torch.testing.assert_close(values.T, given["Q"], rtol=0, atol=1e-5)
        torch.testing.assert_close(goal, given["Q_target"].squeeze(1), rtol=0, atol=1e-5)
        found = learn_rest(*batch)
        torch.testing.assert_close(found["priority"], given["priority"], rtol=0, atol=1e-5)
        off = (given["Q"] - given["Q_target"]).abs()
        huber = torch.where(off < 1, off.square() / 2, off - 0.5).mean()
        torch.testing.assert_close(found["loss"], huber, rtol=0, atol=1e-5)
        parts |= {name: under(golden, f"after_rl{i}/{name}") for name in ("policy", "value")}
        check()


def test_the_published_two_hot_is_ours(golden: dict[str, Tensor]) -> None:
    found = TwoHot().encode(golden["twohot/x"].squeeze(1))
    torch.testing.assert_close(found, golden["twohot/transform"], rtol=0, atol=1e-6)


# Rewards in two bins.


def test_two_hot_by_hand() -> None:
    two_hot = TwoHot(count=5, largest=2.0)
    edges = [math.e**2 - 1, math.e - 1]
    assert two_hot.bins.tolist() == pytest.approx([-edges[0], -edges[1], 0, edges[1], edges[0]])
    middle = (edges[0] + edges[1]) / 2
    expected = {
        0.0: [0, 0, 1, 0, 0],
        edges[1] / 4: [0, 0, 0.75, 0.25, 0],
        -edges[1] / 4: [0, 0.25, 0.75, 0, 0],
        middle: [0, 0, 0, 0.5, 0.5],
        edges[0]: [0, 0, 0, 0, 1],
        -edges[0]: [1, 0, 0, 0, 0],
        1e9: [0, 0, 0, 0, 1],
        -1e9: [1, 0, 0, 0, 0],
        math.inf: [0, 0, 0, 0, 1],
    }
    found = two_hot.encode(torch.tensor(list(expected)))
    torch.testing.assert_close(found, torch.tensor(list(expected.values())).float())
    assert two_hot.decode(torch.tensor([0.0, 0.25, 0.5, 0.0, 0.25])).item() == pytest.approx(
        0.25 * (edges[0] - edges[1])
    )


def test_what_is_encoded_is_decoded() -> None:
    two_hot = TwoHot()
    values = torch.cat([torch.linspace(-30, 30, 1001), torch.tensor([-2e4, 3e3, 2.2e4])])
    encoded = two_hot.encode(values.view(4, 251))
    assert encoded.shape == (4, 251, 65)
    assert (encoded >= 0).all()
    assert ((encoded > 0).sum(-1) <= 2).all()
    torch.testing.assert_close(encoded.sum(-1), torch.ones(4, 251))
    torch.testing.assert_close(two_hot.decode(encoded).flatten(), values, rtol=1e-4, atol=1e-5)
    outermost = two_hot.bins[-1].item()
    beyond = two_hot.decode(two_hot.encode(torch.tensor([1e6, -1e6])))
    assert beyond.tolist() == pytest.approx([outermost, -outermost])


# Subsequences that end.


def test_alive_is_every_step_up_to_the_end() -> None:
    ends = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 0, 1]]).bool()
    assert alive_before(ends).tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert alive_before(ends[:, :1]).tolist() == [[1]] * 4


def test_returns_of_several_steps_by_hand() -> None:
    reward = torch.tensor([[1.0, 2.0, 4.0]]).repeat(5, 1)
    ends = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]]).bool()
    returns, discount = multi_step_returns(reward, ends, 0.5)
    # The reward of the last step counts, and nothing after it.
    assert returns.tolist() == [3.0, 1.0, 2.0, 3.0, 1.0]
    assert discount.tolist() == [0.125, 0.0, 0.0, 0.0, 0.0]
    returns, discount = multi_step_returns(reward[:, :1], ends[:, :1], 0.5)
    assert returns.tolist() == [1.0] * 5
    assert discount.tolist() == [0.5, 0.0, 0.5, 0.5, 0.0]


def test_the_models_losses_by_hand() -> None:
    """Two draws of three steps; the first ends with its second."""
    net = NetSpec(activation="elu", where="all", width=2)
    model = Encoder(EnvSpec((3,), torch.float32, action_size=1), net, Widths.around(2))
    predicted = torch.tensor([[[1.0, 2], [0, 1]], [[3, 0], [1, 1]], [[9, 9], [2, 0]]])
    done = torch.tensor([[0.5, 0.0], [0.75, 0.25], [9.0, 1.0]])
    logits = torch.randn(3, 2, 65)
    following = torch.tensor([[[0.0, 0], [1, 0], [math.nan, math.nan]], [[0, 0], [0, 0], [0, 0]]])
    reward = torch.tensor([[0.0, 1.0, 1e6], [2.0, -1.0, 0.5]])
    ends = torch.tensor([[False, True, False], [False, False, False]])
    found = model.losses((predicted, done, logits), reward, ends, following)
    # Means of squares over two features and two draws: (1 + 4 + 0 + 1 + 4 + 0 + 1 + 1 + 4 + 0) / 4
    assert found["dynamics_loss"].item() == pytest.approx(16 / 4)
    # 0.25 + 0.0625 for the first, 0 + 0.0625 + 1 for the second
    assert found["done_loss"].item() == pytest.approx((0.3125 + 1.0625) / 2)
    surprise, wrong, steps = 0.0, 0.0, [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    for draw, step in steps:
        chance = logits[step, draw].softmax(0).double()
        shares = model.reward.encode(reward[draw, step]).double()
        surprise -= float((shares * chance.log()).sum())
        wrong += abs(float((chance * model.reward.bins.double()).sum()) - float(reward[draw, step]))
    assert found["reward_loss"].item() == pytest.approx(surprise / 2, rel=1e-5)
    assert found["reward_error"].item() == pytest.approx(wrong / 5, rel=1e-4)


def test_nothing_after_an_end_is_learned_from() -> None:
    net = NetSpec(activation="elu", where="all", width=8)
    model = Encoder(EnvSpec((3,), torch.float32, action_size=2), net, Widths.around(8))
    obs, action = torch.randn(6, 3), torch.rand(6, 4, 2)
    reward, following = torch.randn(6, 4), torch.randn(6, 4, 8)
    ends = torch.zeros(6, 4, dtype=torch.bool)
    ends[:4, 1] = True
    gradients = []
    for junk in (0.0, 1.0, math.nan):
        following[:4, 2:], reward[:4, 2:], action[:4, 2:] = junk, 3 * np.nan_to_num(junk), 0.5
        losses = model.losses(model.predict(obs, action), reward, ends, following)
        losses.pop("reward_error")
        gradients.append(torch.autograd.grad(sum(losses.values()), list(model.parameters())))
        if junk == 1.0:  # what comes before the end does matter
            changed = model.losses(model.predict(obs, action), reward, ends, following + 1)
            assert abs(changed["dynamics_loss"] - losses["dynamics_loss"]) > 0.1
    for first, second, third in zip(*gradients, strict=True):
        assert torch.isfinite(first).all()
        assert torch.equal(first, second)
        assert torch.equal(first, third)


def test_the_gradient_goes_through_all_steps_of_the_unroll() -> None:
    net = NetSpec(activation="elu", where="all", width=8)
    model = Encoder(EnvSpec((3,), torch.float32, action_size=2), net, Widths.around(8))
    zs = torch.randn(5, 8, requires_grad=True)
    action = torch.rand(5, 4, 2, requires_grad=True)
    states, done, logits = model.unroll(zs, action)
    assert states.shape == (4, 5, 8)
    assert done.shape == (4, 5)
    assert logits.shape == (4, 5, 65)
    by_hand, following = zs, []
    for step in range(4):
        zsa = model.both(by_hand, action[:, step])
        by_hand = model.next_state(zsa)
        following.append(model.outcome(zsa))
    torch.testing.assert_close(states[-1], by_hand)
    torch.testing.assert_close(done, torch.stack(following)[..., 0])
    torch.testing.assert_close(logits, torch.stack(following)[..., 1:])
    of_zs, of_action = torch.autograd.grad(states[-1].square().sum(), [zs, action])
    assert (of_zs.abs().sum(1) > 0).all()
    assert (of_action.abs().sum(2) > 0).all()
    (of_action,) = torch.autograd.grad(model.unroll(zs, action)[0][1].square().sum(), [action])
    assert not of_action[:, 2:].any()  # a later action changes no earlier state


# Subsequences in the replay.


class Diary:
    """Made-up environments: every frame is a number that never comes again.

    Keeps for each environment its episodes as lists of steps, each with the place of its newest
    frame among all frames ever pushed; the replay is held against that.
    """

    def __init__(
        self, num_envs: int, stack: int, ends: float, limits: float, seed: int = 0
    ) -> None:
        self.draw = np.random.default_rng(seed)
        self.num_envs, self.stack, self.ends, self.limits = num_envs, stack, ends, limits
        self.spec = EnvSpec((stack, 1, 2), torch.float32, frames=stack, action_size=2)
        self.pushed, self.count = [0] * num_envs, 0
        self.episodes: list[list[list[dict[str, Any]]]] = [[] for _ in range(num_envs)]
        self.shown = [self.fresh(env) for env in range(num_envs)]

    def new(self, env: int) -> int:
        self.count, self.pushed[env] = self.count + 1, self.pushed[env] + 1
        return self.count

    def fresh(self, env: int) -> list[int]:
        self.episodes[env].append([])
        return [self.new(env) for _ in range(self.stack)]

    @staticmethod
    def picture(stack: list[int]) -> Tensor:
        return torch.tensor([[[2.0 * n, 2.0 * n + 1]] for n in stack])

    def obs(self) -> Tensor:
        return torch.stack([self.picture(stack) for stack in self.shown])

    def step(self) -> tuple[Tensor, Step]:
        action = torch.from_numpy(self.draw.normal(size=(self.num_envs, 2)).astype(np.float32))
        reward = torch.from_numpy(self.draw.normal(size=self.num_envs).astype(np.float32))
        ended, cut, final = [], [], []
        for env in range(self.num_envs):
            luck = self.draw.random()
            ended.append(luck < self.ends)
            cut.append(self.ends <= luck < self.ends + self.limits)
            before, place = self.shown[env], self.pushed[env] - 1
            after = [*before[1:], self.new(env)]
            self.episodes[env][-1].append(
                {
                    "place": place,
                    "obs": self.picture(before),
                    "action": action[env],
                    "reward": float(reward[env]),
                    "ended": ended[-1],
                    "next": self.picture(after),
                }
            )
            self.shown[env] = after
            if ended[-1] or cut[-1]:
                final.append((env, self.picture(after)))
                self.shown[env] = self.fresh(env)
        return action, Step(
            self.obs(),
            reward,
            torch.tensor(ended),
            torch.tensor(cut),
            torch.tensor([env for env, _ in final]) if final else None,
            torch.stack([last for _, last in final]) if final else None,
            any(cut),
        )

    def draws(self, slots: int, horizon: int) -> dict[tuple[int, int], list[dict[str, Any]]]:
        """Every subsequence that may be drawn, by environment and slot: up to an end."""
        found = {}
        for env, episodes in enumerate(self.episodes):
            for episode in episodes:
                for i, step in enumerate(episode):
                    rest = episode[i : i + horizon]
                    whole = len(rest) == horizon or rest[-1]["ended"]
                    oldest = step["place"] - self.stack + 1
                    if whole and oldest >= self.pushed[env] - slots:
                        found[env, step["place"] % slots] = rest
        return found


@pytest.mark.parametrize(
    ("stack", "num_envs", "slots", "horizon", "ends", "limits"),
    [
        (3, 1, 40, 5, 0.08, 0.08),
        (1, 2, 23, 5, 0.0, 0.15),
        (3, 2, 16, 3, 0.3, 0.0),
        (2, 3, 31, 4, 0.1, 0.25),
        (1, 1, 12, 5, 0.5, 0.3),  # hardly a subsequence without an end
    ],
)
def test_subsequences_never_cross_a_limit_and_are_what_was_seen(
    stack: int, num_envs: int, slots: int, horizon: int, ends: float, limits: float
) -> None:
    diary = Diary(num_envs, stack, ends, limits)
    replay = Replay(diary.spec, num_envs, slots * num_envs, CPU, horizon=horizon, prioritised=True)
    replay.frames.fill_(math.nan)  # what was never written need not be a number
    replay.begin(diary.obs())
    crossed = 0
    for _ in range(5 * slots):
        replay.add(*diary.step())
        expected = diary.draws(slots, horizon)
        places = replay.usable.nonzero().tolist()
        assert {(env, slot) for env, slot in places} == set(expected)
        if not places:
            continue
        drawn = Draw(*torch.tensor(places).T)
        obs = replay.observations(drawn, 0, horizon + 1)
        action, reward, ended = replay.steps(drawn, horizon)
        assert obs.shape == (len(places), horizon + 1, *diary.spec.obs_shape)
        for i, (env, slot) in enumerate(places):
            rest = expected[env, slot]
            crossed += len(rest) < horizon
            for t, step in enumerate(rest):
                assert torch.equal(obs[i, t], step["obs"])
                assert torch.equal(obs[i, t + 1], step["next"])
                assert torch.equal(action[i, t], step["action"])
                assert reward[i, t].item() == step["reward"]
                assert bool(ended[i, t]) == step["ended"]
    assert min(diary.pushed) > 4 * slots
    assert (crossed > 0) == (ends > 0)


def test_a_draw_is_as_likely_as_its_priority() -> None:
    diary = Diary(2, 1, 0.1, 0.1)
    replay = Replay(diary.spec, 2, 60, CPU, horizon=3, prioritised=True)
    replay.begin(diary.obs())
    for _ in range(50):
        replay.add(*diary.step())
    assert replay.priority is not None
    places = replay.usable.nonzero()
    assert replay.priority[replay.usable].tolist() == [1.0] * len(places)
    chances = torch.linspace(1, 4, len(places))
    replay.set_priority(Draw(*places.T), chances)
    counts = torch.zeros(2, 30)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        drawn = replay.draw(2_000, generator)
        counts.index_put_(tuple(drawn), torch.ones(2_000), accumulate=True)
    assert not counts[~replay.usable].any()
    expected = 40_000 * chances / chances.sum()
    assert chisquare(counts[replay.usable].numpy(), expected.double().numpy()).pvalue > 0.01
    assert chisquare(counts[replay.usable].numpy()).pvalue < 1e-9


@pytest.mark.parametrize("luck", [0.0, 1 - 2.0**-53])
def test_even_the_outermost_luck_draws_what_can_be_drawn(
    luck: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = Diary(1, 3, 0.0, 0.0)
    replay = Replay(diary.spec, 1, 40, CPU, horizon=3, prioritised=True)
    replay.begin(diary.obs())
    for _ in range(12):
        replay.add(*diary.step())
    first, last = replay.usable[0].nonzero()[[0, -1], 0].tolist()
    assert (first, last) == (2, 11)  # neither the first slot of all nor the last
    monkeypatch.setattr(torch, "rand", lambda count, **_: torch.tensor([luck], dtype=torch.float64))
    drawn = replay.draw(1, torch.Generator())
    assert drawn.slots.tolist() == [first if luck == 0 else last]


def test_a_new_step_has_the_largest_priority_there_was() -> None:
    diary = Diary(1, 1, 0.0, 0.0)
    replay = Replay(diary.spec, 1, 12, CPU, horizon=2, prioritised=True)
    replay.begin(diary.obs())

    def add(count: int) -> None:
        for _ in range(count):
            replay.add(*diary.step())

    def at(*slots: int) -> list[float]:
        assert replay.priority is not None
        return replay.priority[0, list(slots)].tolist()

    zeros = torch.zeros(2, dtype=torch.int64)
    add(4)
    replay.set_priority(Draw(zeros, torch.tensor([0, 1])), torch.tensor([5.0, 2.0]))
    add(1)
    assert at(0, 1, 2, 3, 4) == [5, 2, 1, 1, 5]
    replay.set_priority(Draw(zeros, torch.tensor([0, 2])), torch.tensor([3.0, 1.5]))
    add(1)
    assert at(0, 1, 2, 3, 4, 5) == [3, 2, 1.5, 1, 5, 5]  # 5 was the largest, if gone now
    replay.set_priority(Draw(zeros[:1], torch.tensor([4])), torch.tensor([1.0]))
    replay.forget_largest()
    # The last step of all cannot be drawn yet: its 5 does not count.
    assert replay.largest_priority.item() == 3
    add(1)
    assert at(5, 6) == [5, 3]


# Random shifts.


def padded_crop(image: Tensor, down: int, right: int, pad: int) -> Tensor:
    """The other way to write it: cut out of a padded copy."""
    height, width = image.shape[-2:]
    padded = F.pad(image[None].float(), (pad,) * 4, mode="replicate")[0]
    cut = padded[:, pad - down : pad - down + height, pad - right : pad - right + width]
    return cut.to(image.dtype)


def pictures(steps: int = 40) -> Replay:
    """A replay of random frames of 12 x 10 in three colours, two environments, stacks of three."""
    spec = EnvSpec((9, 12, 10), torch.uint8, frames=3, action_size=2)
    draw = torch.Generator().manual_seed(1)
    replay = Replay(spec, 2, 60, CPU, horizon=5, prioritised=True)
    stack = torch.randint(256, (2, 9, 12, 10), generator=draw, dtype=torch.uint8)
    replay.begin(stack)
    none = torch.zeros(2, dtype=torch.bool)
    for _ in range(steps):
        new = torch.randint(256, (2, 3, 12, 10), generator=draw, dtype=torch.uint8)
        stack = torch.cat([stack[:, 3:], new], 1)
        replay.add(torch.zeros(2, 2), Step(stack, torch.zeros(2), none, none))
    return replay


def test_a_shift_is_a_crop_of_a_padded_image() -> None:
    replay, generator = pictures(), torch.Generator().manual_seed(0)
    look = ShiftedObservations(replay, 4, generator, compiler("off", CPU))
    seen: set[tuple[int, int]] = set()
    for _ in range(16):
        drawn = replay.draw(16, generator)
        before = generator.get_state()
        found = look(drawn, 1, 3)
        generator.set_state(before)
        shift = torch.randint(-4, 5, (16, 3, 2), generator=generator)
        plain = replay.observations(drawn, 1, 3)
        assert found.shape == plain.shape == (16, 3, 9, 12, 10)
        assert found.dtype == torch.uint8
        for i, t in itertools.product(range(16), range(3)):
            down, right = shift[i, t].tolist()
            # All nine channels, the frames of a stack, moved together.
            assert torch.equal(found[i, t], padded_crop(plain[i, t], down, right, 4))
            seen.add((down, right))
    assert len(seen) == 81  # every shift there is


def test_shifts_are_equally_likely_and_each_states_own() -> None:
    replay, generator = pictures(), torch.Generator().manual_seed(0)
    frames = replay.frames
    frames.copy_(torch.arange(120, dtype=torch.uint8).view(12, 10).expand_as(frames))
    look = ShiftedObservations(replay, 4, generator, compiler("off", CPU))
    found = look(Draw(torch.zeros(4_000).long(), torch.full((4_000,), 9)), 0, 2)
    corner = found[:, :, 0, 5, 5].long()  # shifted by (d, r), it shows what was at (5 - d, 5 - r)
    down, right = 5 - corner // 10, 5 - corner % 10
    assert down.abs().max() == right.abs().max() == 4
    counts = torch.bincount(((down + 4) * 9 + right + 4).flatten(), minlength=81)
    assert chisquare(counts.numpy()).pvalue > 0.01
    assert 0 < (down[:, 0] == down[:, 1]).double().mean() < 0.2
    assert (found == found[:, :, :1]).all()


def test_vectors_are_not_shifted() -> None:
    diary = Diary(1, 1, 0.0, 0.0)
    spec = EnvSpec((2,), torch.float32, action_size=2)
    replay = Replay(spec, 1, 40, CPU, horizon=2, prioritised=True)
    replay.begin(diary.obs().flatten(1))
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        action, step = diary.step()
        replay.add(action, replace(step, obs=step.obs.flatten(1)))
    drawn = replay.draw(8, generator)
    before = generator.get_state()
    look = ShiftedObservations(replay, 4, generator, compiler("off", CPU))
    assert torch.equal(look(drawn, 0, 3), replay.observations(drawn, 0, 3))
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("width", [7, 8])  # frames of whole words, and not
def test_no_shift_leaves_an_image_as_it_is(width: int) -> None:
    frames = torch.randint(256, (5, 3, 6, width), dtype=torch.uint8)
    stacks = taken(frames, torch.tensor([[1, 2], [4, 0]]))
    found = shifted(stacks, torch.zeros(2, 2, dtype=torch.int64))
    expected = torch.stack([torch.cat([frames[1], frames[2]]), torch.cat([frames[4], frames[0]])])
    assert torch.equal(found, expected)


# The networks.


def weights(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def network(env: EnvSpec = PIXELS, widths: Widths | None = None, **net: Any) -> Network:
    spec = NetSpec(**{"activation": "elu", "where": "all", **net})
    return Network(env, spec, widths or Widths.around(512))


def test_the_baseline_has_the_published_sizes() -> None:
    # 9 x 32 and 32 x 32 kernels of 3 x 3 with biases, and 32 maps of 7 x 7 to 512.
    convolutions = 9 * 32 * 9 + 32 + 3 * (32 * 32 * 9 + 32)
    dense = 1568 * 512 + 512
    assert weights(network().encoder.state) == convolutions + dense
    mlp = 512 * 512 + 512
    assert weights(network(VECTOR).encoder.state) == 24 * 512 + 512 + 2 * mlp
    rest = network()
    assert weights(rest.encoder.state_action) == 6 * 256 + 256 + 768 * 512 + 512 + 2 * mlp
    assert weights(rest.encoder.next_state) + weights(rest.encoder.outcome) == 513 * 578
    assert weights(rest.policy) == 2 * mlp + 513 * 6
    assert weights(rest.values) == 2 * (3 * mlp + 513)


@pytest.mark.parametrize(
    ("where", "expected"), [("all", 1_667_392), ("conv", 864_064), ("linear", 1_637_024)]
)
def test_the_widened_encoder_weighs_what_the_hadamard_encoder_does(
    where: str, expected: int
) -> None:
    heavy = network(layer="hadamard", where=where)
    wide = network(layer="widened", where=where)
    assert weights(heavy.encoder.state) == expected
    assert weights(wide.encoder.state) == pytest.approx(expected, rel=0.01)
    assert wide.encoder.state.outputs == heavy.encoder.state.outputs == 512
    # Nothing behind the state encoder changes.
    behind = {name: p.shape for name, p in heavy.named_parameters() if ".state." not in name}
    wider = {name: p.shape for name, p in wide.named_parameters() if ".state." not in name}
    assert behind == wider


@pytest.mark.parametrize("where", ["all", "last"])
def test_the_widened_encoder_of_vectors_matches_too(where: str) -> None:
    heavy = weights(network(VECTOR, layer="hadamard", where=where).encoder.state)
    wide = network(VECTOR, layer="widened", where=where).encoder.state
    assert weights(wide) == pytest.approx(heavy, rel=0.01)
    assert wide.outputs == 512


@pytest.mark.parametrize(
    ("env", "layer", "where", "products"),
    [
        (PIXELS, "hadamard", "all", [True] * 5),
        (PIXELS, "hadamard", "conv", [True] * 4 + [False]),
        (PIXELS, "hadamard", "linear", [False] * 4 + [True]),
        (PIXELS, "hadamard", "last", [False] * 4 + [True]),
        (PIXELS, "hadamard2", "all", [False] * 3 + [True] * 2),
        (PIXELS, "plain", "all", [False] * 5),
        (PIXELS, "widened", "all", [False] * 5),
        (VECTOR, "hadamard", "all", [True] * 3),
        (VECTOR, "hadamard", "linear", [True] * 3),
        (VECTOR, "hadamard", "last", [False, False, True]),
    ],
)
def test_products_are_where_they_are_asked_for(
    env: EnvSpec, layer: str, where: str, products: list[bool]
) -> None:
    made = network(env, layer=layer, where=where)
    layers = [getattr(m, "layer", m) for m in made.encoder.state.layers]
    kinds = (HadamardConv2d, HadamardLinear)
    assert [isinstance(layer, kinds) for layer in layers] == products
    others = [m for m in made.modules() if isinstance(m, kinds) and m not in layers]
    assert others == []


def test_zs_of_images_by_hand() -> None:
    made = network(layer="hadamard", width=16)
    obs = torch.randint(256, (3, 9, 84, 84), dtype=torch.uint8)
    state = {k: v.double() for k, v in made.encoder.state.state_dict().items()}
    x = obs.double() / 255 - 0.5
    for i, stride in enumerate((2, 2, 2, 1)):
        factors = []
        for branch in range(2):
            name = f"layers.{i}.branches.{branch}.affine"
            h = F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], stride=stride)
            factors.append(F.elu(h))
        x = factors[0] * factors[1]
    assert x.shape == (3, 32, 7, 7)
    factors = []
    for branch in range(2):
        name = f"layers.4.layer.branches.{branch}.affine"
        h = x.flatten(1) @ state[f"{name}.weight"].T + state[f"{name}.bias"]
        h = (h - h.mean(1, keepdim=True)) / (h.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        factors.append(F.elu(h))
    assert set(state) == {
        f"layers.{i}.{'layer.' if i == 4 else ''}branches.{b}.affine.{kind}"
        for i in range(5)
        for b in range(2)
        for kind in ("weight", "bias")
    }
    expected = (factors[0] * factors[1]).float()
    torch.testing.assert_close(made.encoder.state(obs), expected, rtol=1e-4, atol=1e-5)


def test_two_values_at_once_are_two_values() -> None:
    values = Values(6, 10)
    with torch.no_grad():
        for parameter in values.parameters():
            parameter.copy_(torch.randn_like(parameter))
    zsa = torch.randn(7, 6)
    found = values(zsa)
    assert found.shape == (2, 7)
    for i in range(2):
        h = zsa
        for layer in values.hidden:
            h = F.elu(F.layer_norm(h @ layer.weight[i] + layer.bias[i], (10,)))
        expected = (h @ values.value.weight[i] + values.value.bias[i]).squeeze(1)
        torch.testing.assert_close(found[i], expected)


def test_weights_start_uniform_within_xaviers_bound() -> None:
    made = network(layer="hadamard")

    def bound(inputs: int, outputs: int) -> float:
        return math.sqrt(2) * math.sqrt(6 / (inputs + outputs))

    sae, state = made.encoder.state_action, made.encoder.state.layers
    expected = {
        # Branch by branch, and parts of a map as the whole.
        state[0].affine.weight: bound(81, 288),
        state[1].affine.weight: bound(288, 288),
        state[4].layer.affine.weight: bound(1568, 512),
        sae.action.weight: bound(6, 256),
        sae.from_state.weight: bound(768, 512),
        sae.from_action.weight: bound(768, 512),
        sae.zsa.layer.affine.weight: bound(512, 512),
        made.encoder.next_state.weight: bound(512, 578),
        made.encoder.outcome.weight: bound(512, 578),
        made.policy.action.weight: bound(512, 6),
        made.values.hidden[0].weight: bound(512, 512),
        made.values.value.weight: bound(512, 1),
    }
    for weight, limit in expected.items():
        assert 0.98 * limit < weight.abs().max().item() <= limit
        assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.05)
    assert not any(p.any() for name, p in made.named_parameters() if name.endswith("bias"))
    first, second = made.values.hidden[1].weight
    assert not torch.equal(first, second)


@pytest.mark.parametrize("activation", ["elu", "relu", "tanh"])
@pytest.mark.parametrize(
    "layer", ["plain", "hadamard", "hadamard2", "widened", "crelu", "layernorm"]
)
def test_every_variant_makes_actions_and_values(layer: str, activation: str) -> None:
    widths = Widths.around(8)
    for env in (PIXELS, VECTOR):
        made = network(env, widths, layer=layer, activation=activation, width=8)
        obs = torch.randint(256, (2, *env.obs_shape)).to(env.obs_dtype)
        action, value = made(obs)
        assert action.shape == (2, 6)
        assert action.abs().max() <= 1
        assert value.shape == (2,)
        assert made.encoder.state.outputs == (16 if layer == "crelu" else 8)


@pytest.mark.parametrize(
    ("env", "net", "message"),
    [
        (VECTOR, {"where": "conv"}, "--net.where conv.*vectors meet no convolution"),
        (PIXELS, {"norm": "layer"}, "--net.norm layer.*leave it none"),
        (EnvSpec((1, 10, 10), torch.uint8, action_size=2), {}, "10 x 10 are too small"),
        (EnvSpec((4, 4), torch.uint8, action_size=2), {}, "vectors and images only"),
    ],
)
def test_what_the_encoder_cannot_take_is_refused(
    env: EnvSpec, net: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        network(env, **net)


@pytest.mark.parametrize("where", ["conv", "linear"])
def test_other_encoders_refuse_what_is_mrqs(where: Any) -> None:
    with pytest.raises(ValueError, match=f"--net.where {where} is mrq's alone"):
        encoder(EnvSpec((3,), torch.float32, 2), NetSpec(where=where), "default")


# The agent.

SMALL = {
    "net.width": 16,
    "algo.hidden_width": 16,
    "algo.batch_size": 8,
    "algo.random_steps": 30,
    "algo.target_period": 10,
    "train.steps": 400,
}


def settings(task: str, changes: Mapping[str, Any] = {}) -> RunSpec[Any]:
    spec: RunSpec[Any] = overridden(
        train.default_spec("mrq", f"probe/{task}"), {**SMALL, **changes}
    )
    return spec


def made(
    task: str, changes: Mapping[str, Any] = {}, device: torch.device = CPU
) -> tuple[MRQ, envs.Envs]:
    spec = settings(task, changes)
    played = envs.make(spec.env, spec.seed, spec.algo.num_envs, device)
    return MRQ(played.spec, spec, device), played


def play(
    agent: MRQ, played: Any, steps: int, each: Callable[[int, Any], None] | None = None
) -> list[Any]:
    obs, told = played.reset(), []
    agent.begin(obs)
    for i in range(steps):
        action, extra = agent.act(obs)
        step = played.step(action)
        told.append(agent.observe(obs, action, extra, step))
        obs = step.obs
        if each is not None:
            each(i, step)
    return told


def test_the_schedule() -> None:
    agent, played = made("track", {"algo.random_steps": 30, "algo.target_period": 10})
    events: list[tuple[str, int]] = []

    def noted(name: str, function: Any) -> Any:
        def noting(*args: Any) -> Any:
            events.append((name, agent.counters["steps"]))
            return function(*args)

        return noting

    agent.target.load_state_dict = noted("copy", agent.target.load_state_dict)
    agent.replay.forget_largest = noted("forget", agent.replay.forget_largest)
    agent.learn_encoder = noted("encoder", agent.learn_encoder)
    agent.learn = noted("rest", agent.learn)
    told = play(agent, played, 55)
    assert [metrics is not None for metrics in told] == [False] * 30 + [True] * 25
    expected: list[tuple[str, int]] = []
    for step in range(31, 56):
        if step in (31, 41, 51):
            expected += [("copy", step), ("forget", step), *[("encoder", step)] * 10]
        expected += [("rest", step)]
    assert events == expected
    assert agent.counters.values == {"steps": 55, "updates": 25}


def test_several_environments_learn_as_much_a_step() -> None:
    agent, played = made("track", {"algo.num_envs": 4, "algo.random_steps": 64})
    play(agent, played, 25)
    assert agent.counters.values == {"steps": 100, "updates": 36}


def test_the_reward_scale_is_the_mean_size_of_rewards() -> None:
    agent, played = made("track", {"train.steps": 400})
    rewards: list[float] = []
    scales: list[tuple[float, float]] = []

    def each(i: int, step: Step) -> None:
        rewards.extend(step.reward.tolist())
        now = agent.state.reward_scale.item(), agent.state.target_reward_scale.item()
        scales.append(now)

    play(agent, played, 60, each)

    # Episodes of 8 steps, cut by the limit: 5 in a row can only start at the first four.
    def mean(steps: int) -> float:
        drawn = [r for i, r in enumerate(rewards[:steps]) if i % 8 < 4 and i + 5 <= steps]
        return float(np.mean(np.abs(drawn)))

    assert scales[29] == (1.0, 1.0)
    for step, before in ((31, None), (41, 31), (51, 41)):
        expected = (mean(step), 1.0 if before is None else mean(before))
        for late in range(step - 1, step + 9):
            assert scales[late] == pytest.approx(expected, rel=1e-5)


def test_without_rewards_nothing_is_divided_by_zero() -> None:
    agent, played = made("track")
    play(agent, played, 30)
    agent.replay.reward.zero_()
    agent._renew()
    assert agent.state.reward_scale.item() == pytest.approx(1e-8)
    assert all(torch.isfinite(value) for value in agent.learn().values())


def test_an_end_counts_once_there_was_one() -> None:
    agent, played = made("track")
    told = play(agent, played, 45)
    assert not agent.state.ended
    assert told[-1]["done_loss"].item() == 0
    agent, played = made("steer")
    told = play(agent, played, 45)
    assert agent.state.ended
    assert told[-1]["done_loss"].item() > 0


def test_what_was_never_seen_does_not_reach_the_weights() -> None:
    """Episodes of one step, in a replay whose unwritten frames are no numbers."""
    agent, played = made("steer")
    agent.replay.frames.fill_(math.nan)
    told = play(agent, played, 60)
    assert all(torch.isfinite(value) for metrics in told[30:] for value in metrics.values())
    assert all(torch.isfinite(parameter).all() for parameter in agent.network.parameters())


@pytest.mark.parametrize("exponent", [0.4, 1.0])
def test_priorities_are_the_larger_errors_power(exponent: float) -> None:
    agent, played = made("track", {"algo.priority_exponent": exponent, "algo.target_noise": 0.0})
    play(agent, played, 60)
    assert agent.replay.priority is not None
    agent.state.reward_scale.fill_(0.05)  # errors of many sizes
    drawn = Draw(*agent.replay.usable.nonzero()[:8].T)
    obs, next_obs = (agent.replay.observations(drawn, step, 1)[:, 0] for step in (0, 3))
    action, reward, _ = agent.replay.steps(drawn, 3)
    returns = reward[:, 0] + 0.99 * reward[:, 1] + 0.99**2 * reward[:, 2]
    with torch.no_grad():
        zs = agent.network.encoder.state(obs)
        values = agent.network.values(agent.network.encoder.both(zs, action[:, 0]))
        zs = agent.target.encoder.state(next_obs)
        best = agent.target.policy(zs).tanh()
        later = agent.target.values(agent.target.encoder.both(zs, best)).min(0).values
    goal = (returns + 0.99**3 * agent.state.target_reward_scale * later) / 0.05
    error = torch.maximum((values[0] - goal).abs(), (values[1] - goal).abs())
    agent.replay.draw = lambda count, generator: drawn
    agent.learn()
    expected = error.clamp_min(1) ** exponent
    torch.testing.assert_close(agent.replay.priority[tuple(drawn)], expected, rtol=1e-4, atol=0)
    assert (expected > 1).any()


def test_updates_are_made_from_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    diary = Diary(1, 1, 0.1, 0.1)
    env = EnvSpec((2,), torch.float32, action_size=2)
    agent = MRQ(env, settings("track", {"algo.batch_size": 64, "algo.gamma": 0.5}), CPU)
    agent.begin(diary.obs().flatten(1))
    for _ in range(80):
        action, step = diary.step()
        final = None if step.final_obs is None else step.final_obs.flatten(1)
        agent.replay.add(action, replace(step, obs=step.obs.flatten(1), final_obs=final))
    known = {rest[0]["reward"]: rest for rest in diary.draws(agent.replay.slots, 5).values()}
    given: dict[str, tuple[Tensor, ...]] = {}
    monkeypatch.setattr(agent, "_update_encoder", lambda *batch: given.update(encoder=batch) or {})
    keep = agent._update
    monkeypatch.setattr(agent, "_update", lambda *batch: given.update(rest=batch) or keep(*batch))
    agent.learn_encoder()
    agent.learn()
    obs, following, action, reward, ends = given["encoder"]
    for i in range(64):
        rest = known[reward[i, 0].item()]
        assert torch.equal(obs[i], rest[0]["obs"].flatten())
        for t, step in enumerate(rest):
            assert torch.equal(following[i, t], step["next"].flatten())
            assert torch.equal(action[i, t], step["action"])
            assert reward[i, t].item() == step["reward"]
            assert bool(ends[i, t]) == step["ended"]
    by_action = {tuple(rest[0]["action"].tolist()): rest for rest in known.values()}
    lengths = set()
    obs, action, returns, discount, next_obs, noise = given["rest"]
    for i in range(64):
        rest = by_action[tuple(action[i].tolist())][:3]
        assert torch.equal(obs[i], rest[0]["obs"].flatten())
        expected = sum(0.5**t * step["reward"] for t, step in enumerate(rest))
        assert returns[i].item() == pytest.approx(expected, abs=1e-6)
        assert discount[i].item() == (0.0 if rest[-1]["ended"] else 0.125)
        if not rest[-1]["ended"]:
            assert torch.equal(next_obs[i], rest[-1]["next"].flatten())
        lengths.add(len(rest))
    assert lengths == {1, 2, 3}
    assert noise.std().item() == pytest.approx(1.0, rel=0.2)


def test_the_values_gradient_is_clipped() -> None:
    agent, played = made("track", {"algo.max_grad_norm": 1e-3})
    told = play(agent, played, 31)
    assert told[-1]["gradient_norm"] > 1e-2
    moments = [state["exp_avg"] for state in agent.optimisers["values"].state.values()]
    # The first moment of the first update is a tenth of its gradient.
    assert torch.cat([m.flatten() for m in moments]).norm().item() == pytest.approx(1e-4, rel=1e-3)


def test_each_loss_reaches_its_own_part() -> None:
    agent, played = made("track")
    play(agent, played, 40)

    def changed(learn: Any) -> set[str]:
        before = {name: p.detach().clone() for name, p in agent.network.named_parameters()}
        learn()
        return {
            name.partition(".")[0]
            for name, p in agent.network.named_parameters()
            if not torch.equal(p, before[name])
        }

    target = [p.clone() for p in agent.target.parameters()]
    assert changed(agent.learn_encoder) == {"encoder"}
    assert changed(agent.learn) == {"values", "policy"}
    assert all(torch.equal(a, b) for a, b in zip(target, agent.target.parameters(), strict=True))
    assert not torch.equal(target[0], next(agent.network.parameters()))
    agent._renew()
    for name in ("policy", "values"):
        ours, theirs = (n.get_submodule(name).parameters() for n in (agent.network, agent.target))
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_exploration_is_uniform_at_first_and_then_noise_on_the_policy() -> None:
    agent, played = made("track", {"algo.num_envs": 4})
    obs = played.reset()
    first = torch.cat([agent.act(obs)[0] for _ in range(500)]).flatten()
    assert chisquare(torch.histc(first, 10, -1, 1).numpy()).pvalue > 0.01
    agent.counters["steps"] = 30
    with torch.no_grad():
        agent.network.policy.action.weight.zero_()
        agent.network.policy.action.bias.copy_(torch.tensor([0.1, 5.0]))
        policy = agent.network(obs)[0]
    noisy = torch.stack([agent.act(obs)[0] for _ in range(2_000)])
    noise = (noisy - policy)[..., 0]
    assert noise.std().item() == pytest.approx(0.2, rel=0.05)
    assert noise.mean().abs() < 0.02
    assert noisy.max() == 1.0
    assert torch.equal(agent.act(obs, explore=False)[0], policy)
    before = agent.random.generator.get_state()
    agent.act(obs, explore=False)
    assert torch.equal(agent.random.generator.get_state(), before)


def test_a_replay_without_a_subsequence_is_refused() -> None:
    agent, played = made("track", {"algo.random_steps": 3})
    with pytest.raises(ValueError, match="the 5 steps of a draw yet: raise --algo.random-steps"):
        play(agent, played, 5)
    # Episodes of 8 steps, cut off: none is ever long enough.
    agent, played = made("track", {"algo.random_steps": 30, "algo.encoder_horizon": 9})
    with pytest.raises(ValueError, match="the 9 steps of a draw.*lower --algo.encoder-horizon"):
        play(agent, played, 35)


@pytest.mark.parametrize("layer", ["plain", "hadamard"])
def test_zs_and_zsa_are_diagnosed(layer: str) -> None:
    agent, _ = made("track84", {"net.layer": layer, "algo.hidden_width": 12})
    names = hidden_layers(agent.network, "all")
    obs = torch.randint(256, (64, 9, 84, 84), dtype=torch.uint8)
    # What the variants change comes last, though zsa is computed after it.
    zsa, zs = examine(agent.network, obs, TrainSpec(health_layers="all"), 0, 0)
    assert hidden_layers(agent.network, "last") == [zs.name] == names[-1:]
    assert (zs.name, zs.neurons) == ("encoder.state.layers.4", 16)
    assert (zsa.name, zsa.neurons) == ("encoder.state_action.zsa", 12)
    assert zs.readers == ("policy.first",)


LEARNING = {
    "algo.batch_size": 32,
    "algo.random_steps": 200,
    "algo.target_period": 50,
    "algo.learning_rate": 3e-3,
    "algo.encoder_learning_rate": 3e-3,
    "net.width": 32,
    "algo.hidden_width": 32,
}
SIDES = torch.tensor([[-1.0], [1.0]])


@pytest.mark.parametrize(("task", "gamma", "worth"), [("steer", 0.99, 1.0), ("track", 0.5, 2.0)])
def test_a_policy_and_its_value_are_learned(task: str, gamma: float, worth: float) -> None:
    """The best action is half the side, worth 1 a step; a time limit is no end."""
    agent, played = made(task, {**LEARNING, "algo.gamma": gamma, "train.steps": 2_000})
    play(agent, played, 1_500)
    action, _ = agent.act(SIDES, explore=False)
    torch.testing.assert_close(action, SIDES.expand(2, 2) / 2, rtol=0, atol=0.2)
    with torch.no_grad():
        value = agent.network(SIDES)[1] * agent.state.reward_scale
    assert value.tolist() == pytest.approx([worth, worth], rel=0.1)


@pytest.mark.parametrize("layer", ["plain", "hadamard"])
def test_images_are_learned_from(layer: str) -> None:
    changes = {"net.layer": layer, "algo.target_period": 5, "train.steps": 50}
    agent, played = made("track84", changes)
    before = {name: p.detach().clone() for name, p in agent.network.named_parameters()}
    told = play(agent, played, 36)
    assert all(torch.isfinite(value) for metrics in told[30:] for value in metrics.values())
    for name, parameter in agent.network.named_parameters():
        assert not torch.equal(parameter, before[name]), name


def run_of(folder: Path, **changes: Any) -> tuple[dict[str, list[Any]], dict[str, Tensor]]:
    spec = settings(
        "track",
        {
            "run_dir": str(folder),
            "train.steps": 120,
            "train.log_every": 20,
            "train.health_every": 60,
            "train.health_samples": 32,
            "train.checkpoint_every": 60,
            "train.eval_every": 60,
            "train.eval_episodes": 2,
            "train.tensorboard": False,
            **changes,
        },
    )
    train.train("mrq", spec)
    run = Run.open(folder)
    streams = ("episodes", "train", "eval", "health", "kde")
    agent, *_ = load_agent(str(folder), "cpu")
    return {name: list(run.rows(name)) for name in streams}, agent.network.state_dict()


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    rows, weights = run_of(tmp_path / "one", seed=1)
    torch.manual_seed(7)  # nothing may hang on the global state
    again, same = run_of(tmp_path / "again", seed=1)
    other, different = run_of(tmp_path / "other", seed=2)
    assert rows == again
    assert all(torch.equal(weights[name], same[name]) for name in weights)
    assert rows["train"] != other["train"]
    assert not all(torch.equal(weights[name], different[name]) for name in weights)
    layers = [layer["name"] for layer in rows["health"][0]["layers"]]
    assert layers == ["encoder.state_action.zsa", "encoder.state.layers.2"]
    assert [row["step"] for row in rows["eval"]] == [0, 0, 60, 60, 120, 120]
    assert {
        "loss",
        "policy_loss",
        "value",
        "gradient_norm",
        "reward_scale",
        "dynamics_loss",
    } <= set(rows["train"][-1])


def test_redo_is_refused(tmp_path: Path) -> None:
    spec = settings("track", {"redo.enabled": True, "run_dir": str(tmp_path / "run")})
    with pytest.raises(ValueError, match="ReDo does not work with mrq"):
        train.train("mrq", spec)


# On a GPU.


def filled(spec: RunSpec[Any], device: torch.device) -> MRQ:
    """An agent whose replay holds random steps, the same for every device."""
    played = envs.make(spec.env, spec.seed, 1, device)
    agent = MRQ(played.spec, spec, device)
    play(agent, played, spec.algo.random_steps)
    return agent


@pytest.mark.gpu
@pytest.mark.usefixtures("exact")
@pytest.mark.filterwarnings("ignore")  # the compiler has opinions on TF32
@pytest.mark.parametrize("compile", ["off", "on"])
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
@pytest.mark.parametrize("task", ["steer", "track84"])
def test_captured_learning_is_eager_learning(task: str, layer: str, compile: str) -> None:
    changes = {
        "net.layer": layer,
        "algo.random_steps": 100,
        "algo.batch_size": 32,
        "algo.learning_rate": 1e-4,
        "algo.encoder_learning_rate": 1e-4,
        # Of one slot drawn twice, either priority may be kept: let them be the same.
        "algo.priority_exponent": 0.0,
    }
    device = torch.device("cuda")
    spec = settings(task, changes)
    captured = filled(overridden(spec, {"train.compile": compile}), device)
    eager = filled(overridden(spec, {"train.compile": "off", "train.capture": False}), device)
    assert eager.learn == eager._learn
    assert captured.replay.frames.is_cuda
    start = {name: p.detach().clone() for name, p in eager.network.named_parameters()}
    for i in range(12):
        for agent in (captured, eager):
            if i % 6 == 0:
                agent.target.load_state_dict(agent.network.state_dict())
        ours, theirs = ({**agent.learn_encoder(), **agent.learn()} for agent in (captured, eager))
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-4, msg=name)
    for (name, ours), theirs in zip(
        captured.network.named_parameters(), eager.network.parameters(), strict=True
    ):
        moved = (theirs - start[name]).norm().item()
        assert moved > 0, name
        assert (ours - theirs).norm().item() < 2e-3 * moved, name
    states = [agent.luck.generator.get_state() for agent in (captured, eager)]
    assert torch.equal(*states)


@pytest.mark.gpu
def test_a_captured_update_sets_priorities_where_it_drew() -> None:
    agent = filled(settings("track84", {"algo.random_steps": 100}), torch.device("cuda"))
    assert agent.replay.priority is not None
    agent.state.reward_scale.fill_(1e-3)
    before = agent.replay.priority.clone()
    changed: set[tuple[int, ...]] = set()
    for _ in range(20):
        agent.learn()
        now = agent.replay.priority
        places = (now != before).nonzero()
        assert 0 < len(places) <= 8
        assert agent.replay.usable[tuple(places.T)].all()
        changed |= {tuple(place) for place in places.tolist()}
        before = now.clone()
    assert len(changed) > 20
    assert agent.replay.largest_priority >= before.max() > 1


@pytest.mark.gpu
@pytest.mark.parametrize("storage", ["device", "memory"])
def test_a_run_on_a_gpu_is_trained_and_gone_on_with(storage: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    changes = {
        "device": "cuda",
        "run_dir": str(folder),
        "net.layer": "hadamard",
        "algo.replay_storage": storage,
        "train.steps": 80,
        "train.log_every": 20,
        "train.health_every": 40,
        "train.health_samples": 32,
        "train.checkpoint_every": 40,
        "train.tensorboard": False,
    }
    spec = settings("track84", changes)
    trainer = train.Trainer("mrq", spec)
    run = Run.create(folder, {"algorithm": "mrq", "spec": train.to_dict(spec)})
    trainer.open(run, Quiet, resume=False)
    while trainer.step < 50:
        trainer.start_step()
        trainer.finish_step()
    trainer.save()
    trainer.close()
    saved = {name: p.detach().clone() for name, p in trainer.agent.network.named_parameters()}
    again = train.Trainer("mrq", spec)
    again.open(Run.open(folder), Quiet, resume=True)
    assert again.step == 50
    for name, parameter in again.agent.network.named_parameters():
        assert torch.equal(parameter, saved[name]), name
    while again.step < 80:
        again.start_step()
        again.finish_step()
    for name, parameter in again.agent.network.named_parameters():
        assert torch.isfinite(parameter).all()
        assert not torch.equal(parameter, saved[name]), name
    again.save()
    again.close()
    # What was trained on a GPU can be looked at without one.
    agent, _, step, _ = load_agent(str(folder), "cpu")
    assert step == 80
    assert agent.act(torch.zeros(1, 9, 84, 84, dtype=torch.uint8))[0].shape == (1, 2)
