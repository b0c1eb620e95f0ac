"""Every algorithm solves every toy task, with every layer variant, and updates by its formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hadamard import envs, train
from hadamard.core import checkpoint, discover, optimisers
from hadamard.core.config import RunSpec, overridden, to_dict
from hadamard.core.run import Run
from hadamard.core.types import Agent, EnvSpec, Step
from hadamard.experiments.bench import Quiet
from hadamard.layers import variants
from hadamard.plasticity.redo import ReDo
from hadamard.trainer import Trainer, make_agent

EVERY = {
    name: discover.find("hadamard.algos", name, "") for name in discover.names("hadamard.algos")
}
ALGORITHMS = tuple(name for name, module in EVERY.items() if module.ACTIONS == "discrete")
CPU = torch.device("cpu")

# Small and quick; an algorithm that is not named here runs with its own defaults.
QUICK: dict[str, dict[str, Any]] = {
    "dqn": {
        "algo.num_envs": 8,
        "algo.learning_rate": 3e-3,
        "algo.update_period": 8,
        "algo.target_period": 64,
        "algo.learning_starts": 128,
        "algo.epsilon_steps": 1_000,
        "algo.epsilon_final": 0.2,
        "train.steps": 3_200,
    },
    "ppo": {
        "algo.rollout_steps": 16,
        "algo.learning_rate": 5e-3,
        "algo.clip": 0.3,
        "train.steps": 3_840,
    },
    "pqn": {
        "algo.num_envs": 8,
        "algo.rollout_steps": 8,
        "algo.minibatches": 4,
        "algo.learning_rate": 5e-3,
        "algo.epsilon_fraction": 0.5,
        "algo.epsilon_final": 0.1,
        "train.steps": 3_840,
    },
}


def settings(algorithm: str, task: str, changes: Mapping[str, Any] = {}) -> RunSpec[Any]:
    quick = {**QUICK.get(algorithm, {}), "net.width": 32, "train.greedy_envs": 0}
    spec = train.default_spec(algorithm, f"probe/{task}")
    changed: RunSpec[Any] = overridden(spec, {**quick, **changes})
    return changed


def made(algorithm: str, spec: RunSpec[Any], device: torch.device = CPU) -> tuple[Agent, Any]:
    played = envs.make(spec.env, spec.seed, spec.algo.num_envs, device)
    return make_agent(algorithm, spec, played, device), played


def trained(
    algorithm: str,
    task: str,
    changes: Mapping[str, Any] = {},
    prepare: Callable[[Agent], None] | None = None,
) -> Agent:
    """Train without a run folder."""
    spec = settings(algorithm, task, changes)
    agent, played = made(algorithm, spec)
    if prepare is not None:
        prepare(agent)
    play(agent, played, spec.train.steps // agent.num_envs)
    assert agent.settled
    return agent


def play(agent: Agent, played: Any, steps: int) -> None:
    obs = played.reset()
    agent.begin(obs)
    for _ in range(steps):
        action, extra = agent.act(obs)
        step = played.step(action)
        agent.observe(obs, action, extra, step)
        obs = step.obs


@torch.no_grad()
def value(agent: Agent, obs: Tensor) -> list[float]:
    """What the agent thinks of states: the best action's value, or the critic's word."""
    output = agent.network(obs)
    found: Tensor = output[1] if isinstance(output, tuple) else output.amax(1)
    return found.tolist()


def choices(agent: Agent, obs: Tensor) -> list[int]:
    return agent.act(obs, explore=False)[0].tolist()


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
    # V = 1 / (1 - 0.9) = 10. Taken for an end, a truncation leaves at most 3.44.
    (found,) = value(trained(algorithm, "truncation", {"algo.gamma": 0.9}), ONE)
    assert 9.0 < found < 10.1


class Switch:
    """One step a game. State 1 pays 1 and ends; state 0 leads to state 1, and is cut short there.

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
def test_a_cut_game_is_valued_by_its_own_last_state(algorithm: str) -> None:
    spec = settings(algorithm, "both", {"algo.gamma": 0.5})
    played = Switch(spec.algo.num_envs)
    agent = make_agent(algorithm, spec, played, CPU)
    play(agent, played, spec.train.steps // agent.num_envs)
    assert value(agent, torch.tensor([[0.0], [1.0]])) == pytest.approx([0.5, 1.0], abs=0.05)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_images_are_told_apart(algorithm: str) -> None:
    agent = trained(algorithm, "image")
    obs, right = sides(10)
    assert choices(agent, obs) == right
    assert value(agent, obs) == pytest.approx([1.0] * 10, abs=0.05)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_stacked_frames_are_told_apart(algorithm: str) -> None:
    changes = {"train.steps": 768, "net.width": 16, "algo.learning_rate": 1e-3}
    obs, right = sides(84, frames=4)
    found = choices(trained(algorithm, "image84", changes), obs)
    assert sum(a == b for a, b in zip(found, right, strict=True)) >= 0.9 * len(right)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize(("activation", "task"), [("relu", "image"), ("tanh", "both")])
def test_every_layer_variant_learns(
    algorithm: str, variant: str, activation: str, task: str
) -> None:
    changes: dict[str, Any] = {"net.layer": variant, "net.activation": activation}
    if algorithm == "ppo":  # at twice the rate, one value of ten is off now and then
        changes["algo.learning_rate"] = 2.5e-3
    agent = trained(algorithm, task, changes)
    obs, right = (SIGNS, [0, 1]) if task == "both" else sides(10)
    assert choices(agent, obs) == right
    assert value(agent, obs) == pytest.approx([1.0] * len(right), abs=0.15)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("variant", ["plain", "hadamard"])
def test_learning_survives_redo(algorithm: str, variant: str) -> None:
    recycled: list[int] = []
    judged: list[tuple[int, int]] = []

    def prepare(agent: Agent) -> None:
        redo = ReDo(agent.network, agent.optimiser, tau=0.1, period=20)

        def after_update(updates: int, obs: Tensor) -> None:
            redo(updates, obs)
            judged.append((updates, len(obs)))
            if updates % 20 == 0:
                recycled.append(redo.recycled)

        agent.after_update = after_update

    agent = trained(algorithm, "both", {"net.layer": variant}, prepare)
    assert choices(agent, SIGNS) == [0, 1]
    assert sum(recycled) > 0
    # It hears of every update, in order, with a batch to judge by.
    assert [updates for updates, _ in judged] == list(range(1, len(judged) + 1))
    assert min(size for _, size in judged) >= 8


def run_rows(path: Path) -> dict[str, list[Any]]:
    streams = ("episodes", "train", "eval", "health", "kde")
    return {stream: list(Run.open(path).rows(stream)) for stream in streams}


def final_state(path: Path) -> Any:
    return checkpoint.read(checkpoint.newest(path / "checkpoints"))


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    assert type(ours) is type(theirs), where
    if isinstance(ours, dict):
        assert list(ours) == list(theirs), where
        for key in ours:
            assert_same(ours[key], theirs[key], f"{where}/{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), where
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}/{i}")
    elif isinstance(ours, Tensor):
        assert torch.equal(ours, theirs), where
    elif isinstance(ours, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, where)
    else:
        assert ours == theirs, where


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_seed_decides_everything(algorithm: str, tmp_path: Path) -> None:
    runs = []
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        changes = {
            "seed": seed,
            "run_dir": str(tmp_path / name),
            "train.steps": 640,
            "train.log_every": 50,
            "train.health_samples": 64,
            "train.health_every": 200,
            "train.checkpoint_every": 200,
            "train.greedy_envs": 2,
            "train.tensorboard": False,
        }
        torch.manual_seed(len(runs))  # nothing may hang on the global state
        np.random.seed(len(runs))  # noqa: NPY002
        train.train(algorithm, settings(algorithm, "both", changes))
        runs.append((run_rows(tmp_path / name), final_state(tmp_path / name)))
    (rows, state), (same_rows, same_state), (other_rows, other_state) = runs
    assert rows == same_rows
    assert all(len(rows[stream]) >= 3 for stream in rows)
    assert_same(state, same_state)
    assert all(rows[stream] != other_rows[stream] for stream in ("episodes", "train", "health"))
    weights, others = (s[1]["agent.network"] for s in (state, other_state))
    assert all(not torch.equal(weights[name], others[name]) for name in weights)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_row_comes_twice(algorithm: str, tmp_path: Path) -> None:
    # The last step is one at which a row is due anyway.
    steps = 512
    changes = {
        "run_dir": str(tmp_path / "run"),
        "train.steps": steps,
        "train.log_every": 128,
        "train.health_samples": 32,
        "train.health_every": 256,
        "train.checkpoint_every": 256,
        "train.tensorboard": False,
    }
    train.train(algorithm, settings(algorithm, "both", changes))
    rows = run_rows(tmp_path / "run")
    assert [row["step"] for row in rows["train"]] == [128, 256, 384, 512]
    assert [row["step"] for row in rows["health"]] == [256, 512]
    assert [row["step"] for row in rows["kde"]] == [256, 512]
    assert final_state(tmp_path / "run")[0] == steps


VECTOR = EnvSpec((3,), torch.float32, 4)


def forward(weights: list[Tensor], obs: Tensor) -> Tensor:
    """Two tanh layers and one affine map on top, from the weights alone."""
    w1, b1, w2, b2, w3, b3 = weights
    return torch.tanh(torch.tanh(obs @ w1.T + b1) @ w2.T + b2) @ w3.T + b3


def exact(parameters: Any) -> list[Tensor]:
    return [p.detach().double().requires_grad_() for p in parameters]


class HandAdam:
    """Adam, or RAdam with ``rectified``, from the papers, in float64."""

    def __init__(self, size: int, epsilon: float, rectified: bool = False) -> None:
        self.first, self.second = np.zeros(size), np.zeros(size)
        self.time, self.epsilon, self.rectified = 0, epsilon, rectified

    def change(self, gradient: np.ndarray, rate: float) -> np.ndarray:
        self.time += 1
        t, beta1, beta2 = self.time, 0.9, 0.999
        self.first = beta1 * self.first + (1 - beta1) * gradient
        self.second = beta2 * self.second + (1 - beta2) * gradient**2
        mean = self.first / (1 - beta1**t)
        if not self.rectified:
            return -rate * mean / (np.sqrt(self.second / (1 - beta2**t)) + self.epsilon)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * t * beta2**t / (1 - beta2**t)
        if length <= 5:
            return -rate * mean
        top = (length - 4) * (length - 2) * longest
        rectification = np.sqrt(top / ((longest - 4) * (longest - 2) * length))
        return (
            -rate
            * mean
            * rectification
            * np.sqrt(1 - beta2**t)
            / (np.sqrt(self.second) + self.epsilon)
        )


def flat(tensors: Any) -> np.ndarray:
    return torch.cat([t.detach().flatten() for t in tensors]).double().numpy()


def clipped(gradient: np.ndarray, largest: float) -> np.ndarray:
    return gradient * min(1.0, largest / np.linalg.norm(gradient))


def vector_agent(algorithm: str, **algo: Any) -> Any:
    changes = {f"algo.{name}": setting for name, setting in algo.items()}
    changes |= {"net.width": 8, "net.activation": "tanh", "net.norm": "none", "train.steps": 999}
    spec = overridden(train.default_spec(algorithm, "probe/both"), changes)
    return discover.find("hadamard.algos", algorithm, "algorithm").build(VECTOR, spec, CPU)


def test_dqns_update_is_the_formula() -> None:
    agent = vector_agent("dqn", learning_rate=0.01, adam_epsilon=1e-3, gamma=0.9)
    with torch.no_grad():
        for parameter in agent.target.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    target = exact(agent.target.parameters())
    adam = HandAdam(sum(p.numel() for p in target), epsilon=1e-3)
    for _ in range(3):
        obs, next_obs = torch.randn(2, 16, 3)
        action, reward = torch.randint(4, (16,)), torch.randn(16)
        terminated = torch.rand(16) < 0.4
        weights = exact(agent.network.parameters())
        best = forward(target, next_obs.double()).max(1).values
        goal = torch.where(terminated, reward.double(), reward.double() + 0.9 * best).detach()
        chosen = forward(weights, obs.double())[torch.arange(16), action]
        loss = ((chosen - goal) ** 2).sum() / 16
        gradient = flat(torch.autograd.grad(loss, weights))
        expected = flat(weights) + adam.change(gradient, 0.01)
        metrics = agent.learn(obs, action, reward, terminated, next_obs)
        assert float(metrics["loss"]) == pytest.approx(loss.item(), rel=1e-5)
        found = flat(agent.network.parameters())
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(flat(agent.target.parameters()), flat(target))


@pytest.mark.parametrize("largest", [0.05, 100.0])
def test_pqns_update_is_the_formula(largest: float) -> None:
    agent = vector_agent("pqn", learning_rate=0.01, max_grad_norm=largest)
    radam = None
    for _ in range(8):  # RAdam's first five steps are of another kind
        obs, action = torch.randn(16, 3), torch.randint(4, (16,))
        returns = 2 * torch.randn(16)
        weights = exact(agent.network.parameters())
        chosen = forward(weights, obs.double())[torch.arange(16), action]
        loss = 0.5 * ((chosen - returns.double()) ** 2).sum() / 16
        gradient = flat(torch.autograd.grad(loss, weights))
        radam = radam or HandAdam(len(gradient), epsilon=1e-8, rectified=True)
        expected = flat(weights) + radam.change(clipped(gradient, largest), 0.01)
        metrics = agent.learn(obs, action, returns)
        assert float(metrics["loss"]) == pytest.approx(loss.item(), rel=1e-5)
        assert float(metrics["gradient_norm"]) == pytest.approx(np.linalg.norm(gradient), rel=1e-4)
        found = flat(agent.network.parameters())
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_ppos_update_is_the_formula() -> None:
    clip, entropy_weight, value_weight, largest = 0.2, 0.03, 0.7, 0.4
    agent = vector_agent(
        "ppo",
        learning_rate=0.01,
        adam_epsilon=1e-3,
        clip=clip,
        entropy_coefficient=entropy_weight,
        value_coefficient=value_weight,
        max_grad_norm=largest,
    )
    with torch.no_grad():
        agent.network.logits.weight.normal_()  # else all ratios are near 1
    named = dict(agent.network.named_parameters())
    heads = [name for name in named if "encoder" not in name]
    assert heads == ["logits.weight", "logits.bias", "value.weight", "value.bias"]
    adam = HandAdam(sum(p.numel() for p in named.values()), epsilon=1e-3)
    for _ in range(3):
        obs, action = torch.randn(32, 3), torch.randint(4, (32,))
        old_value, advantage = 0.3 * torch.randn(32), 2 * torch.randn(32) + 1
        weights = exact(named.values())
        body, logit_weights, value_weights = weights[:4], weights[4:6], weights[6:]
        logits = forward(body + logit_weights, obs.double())
        values = forward(body + value_weights, obs.double())[:, 0]
        log_probabilities = logits - logits.exp().sum(1, keepdim=True).log()
        new = log_probabilities[torch.arange(32), action]
        old = (new.detach() + 0.4 * torch.randn(32)).float()

        returns = (advantage + old_value).double()
        normal = ((advantage - advantage.mean()) / (advantage.std() + 1e-8)).double()
        gains, errors = [], []
        for i in range(32):
            ratio = (new[i] - old[i].double()).exp()
            within = min(max(ratio.item(), 1 - clip), 1 + clip)
            plain, limited = normal[i] * ratio, normal[i] * within
            gains.append(plain if plain.item() <= limited.item() else limited.detach())
            move = values[i] - old_value[i].double()
            near = old_value[i].double() + torch.clamp(move, -clip, clip)
            far, close = (values[i] - returns[i]) ** 2, (near - returns[i]) ** 2
            errors.append(far if far.item() >= close.item() else close)
        policy_loss = -torch.stack(gains).mean()
        value_loss = torch.stack(errors).mean() / 2
        entropy = -(log_probabilities.exp() * log_probabilities).sum(1).mean()
        loss = policy_loss - entropy_weight * entropy + value_weight * value_loss
        gradient = flat(torch.autograd.grad(loss, weights))
        assert np.linalg.norm(gradient) > largest  # the clipping is at work
        expected = flat(weights) + adam.change(clipped(gradient, largest), 0.01)
        metrics = agent.learn(obs, action, old, old_value, advantage)
        for name, ours in (
            ("loss", loss),
            ("policy_loss", policy_loss),
            ("value_loss", value_loss),
            ("entropy", entropy),
        ):
            assert float(metrics[name]) == pytest.approx(ours.item(), rel=2e-5, abs=1e-6), name
        outside = ((new.exp() / old.double().exp() - 1).abs() > clip).double().mean()
        assert 0.1 < outside.item() < 0.9
        assert float(metrics["clipped"]) == pytest.approx(outside.item(), abs=1e-6)
        found = flat(agent.network.parameters())
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def sent(agent: Any, played: Any, steps: int) -> list[tuple[Tensor, ...]]:
    """Let an agent play and return what it learns from, update by update."""
    batches: list[tuple[Tensor, ...]] = []
    learn = agent.learn

    def recording(*inputs: Tensor) -> Any:
        batches.append(tuple(tensor.clone() for tensor in inputs))
        return learn(*inputs)

    agent.learn = recording
    play(agent, played, steps)
    agent.learn = learn
    return batches


def test_dqn_learns_when_it_is_time() -> None:
    changes = {
        "algo.num_envs": 1,
        "algo.learning_starts": 20,
        "algo.update_period": 4,
        "algo.target_period": 10,
    }
    agent, played = made("dqn", settings("dqn", "both", changes))
    assert isinstance(agent.network, torch.nn.Module)
    copies: list[int] = []
    load = agent.target.load_state_dict
    agent.target.load_state_dict = lambda state: (
        copies.append(agent.counters["steps"]) or load(state)
    )
    learned: list[int] = []
    agent.after_update = lambda updates, obs: learned.append(agent.counters["steps"])
    sent(agent, played, 50)
    assert learned == [24, 28, 32, 36, 40, 44, 48]
    assert copies == [30, 40, 50]
    assert agent.counters["updates"] == 7


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_each_pass_sees_every_step_once(algorithm: str) -> None:
    changes = {"algo.num_envs": 4, "algo.rollout_steps": 6, "algo.minibatches": 3, "algo.epochs": 2}
    agent, played = made(algorithm, settings(algorithm, "both", changes))
    played.receive_step, count = played.step, iter(range(10_000))

    def numbered(action: Tensor) -> Step:
        step = played.receive_step(action)
        return Step(
            torch.tensor([[float(next(count))] for _ in range(4)]),
            step.reward,
            step.terminated,
            step.truncated,
        )

    played.step = numbered
    batches = sent(agent, played, 12)
    assert len(batches) == 2 * 2 * 3
    assert all(len(batch[0]) == 8 for batch in batches)
    second = [torch.cat([b[0] for b in batches[i : i + 3]]) for i in (6, 9)]
    for one_pass in second:
        # Observations 20 to 43 were acted on in the second rollout.
        assert sorted(one_pass.flatten().tolist()) == list(range(20, 44))
    assert not torch.equal(*second)


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_the_learning_rate_falls_linearly_to_zero(algorithm: str) -> None:
    changes = {
        "algo.num_envs": 4,
        "algo.rollout_steps": 5,
        "algo.minibatches": 2,
        "algo.learning_rate": 0.01,
        "train.steps": 100,
    }
    agent, played = made(algorithm, settings(algorithm, "both", changes))
    rates: list[float] = []
    agent.after_update = lambda updates, obs: rates.append(agent.optimiser.param_groups[0]["lr"])
    sent(agent, played, 25)
    per_rollout = 2 * agent.config.epochs
    # PPO's with every rollout, as CleanRL's; PQN's with every update, as the JAX release's.
    updates = range(5 * per_rollout)
    done = [i // per_rollout / 5 if algorithm == "ppo" else i / len(updates) for i in updates]
    assert rates == pytest.approx([0.01 * (1 - part) for part in done], rel=1e-12)


def test_pqns_last_update_has_a_rate_where_rollouts_do_not_divide_the_steps() -> None:
    changes = {"algo.num_envs": 4, "algo.rollout_steps": 5, "algo.minibatches": 2}
    agent: Any = made("pqn", settings("pqn", "both", {**changes, "train.steps": 90}))[0]
    agent.counters["updates"] = agent.total_updates - 1  # of the fifth rollout, at step 100
    assert agent.total_updates == 20
    assert agent.learning_rate == pytest.approx(agent.config.learning_rate / 20)


def test_pqns_exploration_falls_from_rollout_to_rollout() -> None:
    changes = {
        "algo.num_envs": 4,
        "algo.rollout_steps": 5,
        "algo.minibatches": 2,
        "algo.epsilon_fraction": 0.5,
        "algo.epsilon_final": 0.2,
        "train.steps": 200,
    }
    agent, played = made("pqn", settings("pqn", "both", changes))
    seen: list[float] = []
    act = agent.act
    agent.act = lambda obs: (seen.append(agent.epsilon), act(obs))[1]  # type: ignore[method-assign]
    sent(agent, played, 50)
    # Half of 10 rollouts, 5 steps each.
    of_rollouts = [1.0, 0.84, 0.68, 0.52, 0.36, *[0.2] * 5]
    assert seen == pytest.approx([epsilon for epsilon in of_rollouts for _ in range(5)])


@pytest.mark.parametrize("algorithm", ["ppo", "pqn"])
def test_minibatches_that_do_not_divide_a_rollout_are_refused(algorithm: str) -> None:
    changes = {"algo.num_envs": 4, "algo.rollout_steps": 5, "algo.minibatches": 3}
    with pytest.raises(ValueError, match=r"--algo.minibatches 3 does not divide .* 4 .* 5 .* 20"):
        made(algorithm, settings(algorithm, "both", changes))


@pytest.mark.gpu
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
@pytest.mark.parametrize("task", ["both", "image84"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_captured_learning_is_eager_learning(
    algorithm: str, task: str, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Convolutions may run in TF32 by default, and differently from call to call.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    device = torch.device("cuda")
    spec = settings(algorithm, task, {"net.layer": layer, "net.activation": "tanh"})
    player, played = made(algorithm, spec, device)
    batches = sent(player, played, 80)[:20]
    assert len(batches) == 20
    captured, eager = (made(algorithm, spec, device)[0] for _ in range(2))
    eager.learn = eager._learn
    start = [p.detach().clone() for p in eager.network.parameters()]
    for i, batch in enumerate(batches):
        results = []
        for agent in (captured, eager):
            optimisers.set_learning_rate(agent.optimiser, 1e-3 / (1 + i // 5))
            results.append(agent.learn(*batch))
        for name in results[0]:
            torch.testing.assert_close(results[0][name], results[1][name], rtol=1e-3, atol=1e-4)
    for before, ours, theirs in zip(
        start, captured.network.parameters(), eager.network.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        assert not torch.equal(ours, before)
    for group in captured.optimiser.param_groups:
        assert float(group["lr"]) == pytest.approx(1e-3 / 4)


def test_precision_is_the_runs_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = "medium"  # by whoever trains
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: chosen)
    said: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", said.append)
    changes = {"run_dir": str(tmp_path / "run"), "train.tensorboard": False}
    spec = overridden(train.default_spec("pqn", "probe/both"), changes)
    trainer = train.Trainer("pqn", spec)
    run = Run.create(tmp_path / "run", {"algorithm": "pqn", "spec": to_dict(spec)})
    trainer.open(run, Quiet, resume=False)
    assert not torch.backends.cudnn.benchmark  # this is a CPU
    trainer.close()
    assert torch.backends.cudnn.benchmark
    assert said == ["highest", chosen]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_observing_while_environments_play_changes_nothing(
    algorithm: str, groups: int, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)

    def run(name: str) -> tuple[Agent, int, list[dict[str, Any]]]:
        changes = {"run_dir": str(tmp_path / name), "train.steps": 1_280, "train.log_every": 250}
        changes |= {"train.tensorboard": False, "algo.num_envs": 8, "train.greedy_envs": 2}
        changes |= {"train.env_groups": groups, "device": device}
        changes |= {"train.compile": "off", "train.conv_search": False}
        changes |= {"algo.update_period": 16} if algorithm == "dqn" else {}
        trainer = Trainer(algorithm, settings(algorithm, "image", changes))
        trainer.open(Run.create(tmp_path / name, {}), Quiet, resume=False)
        late, finish = 0, trainer.finish_step

        def finish_and_look() -> None:
            nonlocal late
            finish()
            late += trainer._unobserved is not None

        trainer.finish_step = finish_and_look  # type: ignore[method-assign]
        for _ in trainer.loop(lambda: False):
            pass
        trainer.close()
        return trainer.agent, late, list(Run.open(tmp_path / name).rows("train"))

    ours, late, rows = run("late")
    assert late > 60  # of 160
    monkeypatch.setattr(type(ours), "learns_next", True)
    at_once, none, theirs = run("at once")
    assert none == 0
    assert rows == theirs
    assert len(rows) == 6
    for a, b in zip(ours.network.parameters(), at_once.network.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    "changes",
    [
        {"algo.num_envs": 1, "algo.update_period": 4},
        {"algo.num_envs": 2, "algo.update_period": 1, "train.env_groups": 2},
        {"algo.num_envs": 1, "algo.update_period": 2, "redo.enabled": True, "redo.period": 20},
    ],
    ids=["one", "several", "redo"],
)
def test_learning_ahead_of_a_step_changes_nothing(
    changes: dict[str, Any], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)

    def run(ahead: bool) -> tuple[Any, list[int], dict[str, list[dict[str, Any]]]]:
        folder = tmp_path / str(ahead)
        more = {"run_dir": str(folder), "train.steps": 600, "train.log_every": 50}
        more |= {"train.tensorboard": False, "train.compile": "off", "train.conv_search": False}
        more |= {"train.learn_ahead": ahead, "train.greedy_envs": 2, "device": device}
        # Small enough for the newest step to be drawn now and then.
        more |= {"algo.replay_capacity": 400, "algo.batch_size": 4, "algo.target_period": 40}
        trainer = Trainer("dqn", settings("dqn", "image", {**more, **changes}))
        trainer.open(Run.create(folder, {}), Quiet, resume=False)
        agent: Any = trainer.agent
        made, observe = [], agent.observe

        def observe_and_count(*step: Any) -> Any:
            made.append(agent.made - agent.due)
            return observe(*step)

        agent.observe = observe_and_count
        for _ in trainer.loop(lambda: False):
            pass
        trainer.close()
        streams = ("train", "eval", "episodes")
        return agent, made, {name: list(Run.open(folder).rows(name)) for name in streams}

    ours, made, rows = run(True)
    theirs, none, other_rows = run(False)
    learned = [i for i, missing in enumerate(none) if missing < 0]
    ahead = sum(made[i] == 0 for i in learned)  # all that was due was made before
    assert 0.5 * len(learned) < ahead < len(learned)
    assert rows == other_rows
    assert ours.counters.values == theirs.counters.values
    for mine, other in zip(ours.network.parameters(), theirs.network.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("groups", [1, 3])
def test_greedy_environments_change_nothing_in_training(
    groups: int, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)

    def run(name: str, **more: Any) -> tuple[Any, dict[str, list[dict[str, Any]]]]:
        changes = {"run_dir": str(tmp_path / name), "train.steps": 1_280, "train.log_every": 100}
        changes |= {"train.tensorboard": False, "device": device, "train.env_groups": groups}
        changes |= {"train.compile": "off", "train.conv_search": False}
        spec = settings("pqn", "both", {**changes, **more})
        trainer = Trainer("pqn", overridden(spec, {"env": "minatar/breakout"}))
        agent: Any = trainer.agent
        look, rows = agent.look, set()

        def look_at_each(obs: Tensor) -> dict[str, Tensor]:
            # How many observations share a call may change the rounding of each.
            rows.add(len(obs))
            seen = [look(one) for one in obs.split(1)]
            return {key: torch.cat([one[key] for one in seen]) for key in seen[0]}

        agent.look = look_at_each
        trainer.open(Run.create(tmp_path / name, {}), Quiet, resume=False)
        for _ in trainer.loop(lambda: False):
            pass
        trainer.close()
        run = Run.open(tmp_path / name)
        agent.rows = rows
        return agent, {name: list(run.rows(name)) for name in ("train", "episodes", "eval")}

    alone, rows = run("alone", **{"train.greedy_envs": 0})
    own, own_rows = run("own", **{"train.greedy_envs": 5, "train.greedy_call": "own"})
    joined, joined_rows = run("joined", **{"train.greedy_envs": 5, "train.greedy_call": "joined"})
    last = 8 // groups  # environments of the last group
    assert (5 in own.rows, last + 5 in own.rows) == (True, False)
    assert (5 in joined.rows, last + 5 in joined.rows) == (False, True)
    assert len(joined_rows["eval"]) > 5
    assert joined_rows == own_rows
    assert rows == {**joined_rows, "eval": []}
    assert joined.rollout.data["value"].shape == (8, 8)
    for agent in (own, joined):
        assert torch.equal(agent.random.generator.get_state(), alone.random.generator.get_state())
        for mine, other in zip(agent.network.parameters(), alone.network.parameters(), strict=True):
            assert torch.equal(mine, other)


def test_only_pqn_acts_on_both_in_one_call(tmp_path: Path) -> None:
    spec = settings("dqn", "both", {"train.greedy_envs": 2, "train.greedy_call": "joined"})
    with pytest.raises(ValueError, match="--train.greedy-call joined: dqn cannot act greedily"):
        Trainer("dqn", spec)
