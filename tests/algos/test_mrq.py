"""MR.Q: its schedule, reward scale, priorities and exploration, and the tasks it learns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from hadamard import envs
from hadamard.algos.mrq import MRQ
from hadamard.core.config import TrainSpec
from hadamard.core.run import Run
from hadamard.core.types import EnvSpec, Step
from hadamard.learning.replay import Indices
from hadamard.training import start
from hadamard.training.health_stream import examine, hidden_layers
from hadamard.training.load_agent import load_agent
from tests.support.mrq import play, settings
from tests.support.replay import Episodes

CPU = torch.device("cpu")


def agent_and_env(task: str, changes: Mapping[str, Any] = {}) -> tuple[MRQ, envs.Envs]:
    spec = settings(task, changes)
    env = envs.make(spec.env, spec.seed, spec.algo.num_envs, CPU)
    return MRQ(env.spec, spec, CPU), env


def test_the_schedule() -> None:
    agent, env = agent_and_env("track", {"algo.random_steps": 30, "algo.target_period": 10})
    events: list[tuple[str, int]] = []

    def recorded(name: str, function: Any) -> Any:
        def call(*args: Any) -> Any:
            events.append((name, agent.counters["steps"]))
            return function(*args)

        return call

    agent.target.load_state_dict = recorded("copy", agent.target.load_state_dict)
    agent.replay.reset_largest_priority = recorded("reset", agent.replay.reset_largest_priority)
    agent.learn_encoder = recorded("encoder", agent.learn_encoder)
    agent.learn = recorded("rest", agent.learn)
    metrics = play(agent, env, 55)
    assert [row is not None for row in metrics] == [False] * 30 + [True] * 25
    expected: list[tuple[str, int]] = []
    for step in range(31, 56):
        if step in (31, 41, 51):
            expected += [("copy", step), ("reset", step), *[("encoder", step)] * 10]
        expected += [("rest", step)]
    assert events == expected
    assert agent.counters.values == {"steps": 55, "updates": 25}


def test_every_environments_step_has_an_update() -> None:
    agent, env = agent_and_env("track", {"algo.num_envs": 4, "algo.random_steps": 64})
    play(agent, env, 25)
    assert agent.counters.values == {"steps": 100, "updates": 36}


def test_the_reward_scale_is_the_mean_absolute_reward() -> None:
    agent, env = agent_and_env("track", {"train.steps": 400})
    rewards: list[float] = []
    scales: list[tuple[float, float]] = []

    def record(i: int, step: Step) -> None:
        rewards.extend(step.reward.tolist())
        scales.append((agent.state.reward_scale.item(), agent.state.target_reward_scale.item()))

    play(agent, env, 60, record)

    # Episodes of 8 steps, truncated: 5 steps in a row can only start at the first four.
    def mean(steps: int) -> float:
        usable = [r for i, r in enumerate(rewards[:steps]) if i % 8 < 4 and i + 5 <= steps]
        return float(np.mean(np.abs(usable)))

    assert scales[29] == (1.0, 1.0)
    for step, before in ((31, None), (41, 31), (51, 41)):
        expected = (mean(step), 1.0 if before is None else mean(before))
        for late in range(step - 1, step + 9):
            assert scales[late] == pytest.approx(expected, rel=1e-5)


def test_without_rewards_there_is_no_division_by_zero() -> None:
    agent, env = agent_and_env("track")
    play(agent, env, 30)
    agent.replay.reward.zero_()
    agent._update_target()
    assert agent.state.reward_scale.item() == pytest.approx(1e-8)
    assert all(torch.isfinite(value) for value in agent.learn().values())


def test_the_done_loss_is_zero_until_a_task_ends() -> None:
    agent, env = agent_and_env("track")
    metrics = play(agent, env, 45)
    assert not agent.state.ended
    assert metrics[-1]["done_loss"].item() == 0
    agent, env = agent_and_env("steer")
    metrics = play(agent, env, 45)
    assert agent.state.ended
    assert metrics[-1]["done_loss"].item() > 0


def test_unwritten_frames_do_not_reach_the_weights() -> None:
    """Episodes of one step, in a replay whose unwritten frames are NaN."""
    agent, env = agent_and_env("steer")
    agent.replay.frames.fill_(math.nan)
    metrics = play(agent, env, 60)
    assert all(torch.isfinite(value) for row in metrics[30:] for value in row.values())
    assert all(torch.isfinite(parameter).all() for parameter in agent.network.parameters())


@pytest.mark.parametrize("exponent", [0.4, 1.0])
def test_priorities_are_a_power_of_the_larger_error(exponent: float) -> None:
    agent, env = agent_and_env(
        "track", {"algo.priority_exponent": exponent, "algo.target_noise": 0.0}
    )
    play(agent, env, 60)
    assert agent.replay.priority is not None
    agent.state.reward_scale.fill_(0.05)  # so that errors are large
    indices = Indices(*agent.replay.usable.nonzero()[:8].T)
    obs, next_obs = (agent.replay.observations(indices, step, 1)[:, 0] for step in (0, 3))
    action, reward, _ = agent.replay.steps(indices, 3)
    returns = reward[:, 0] + 0.99 * reward[:, 1] + 0.99**2 * reward[:, 2]
    with torch.no_grad():
        zs = agent.network.encoder.state(obs)
        values = agent.network.values(agent.network.encoder.zsa(zs, action[:, 0]))
        zs = agent.target.encoder.state(next_obs)
        best = agent.target.policy(zs).tanh()
        later = agent.target.values(agent.target.encoder.zsa(zs, best)).min(0).values
    target = (returns + 0.99**3 * agent.state.target_reward_scale * later) / 0.05
    error = torch.maximum((values[0] - target).abs(), (values[1] - target).abs())
    agent.replay.draw = lambda count, generator: indices
    agent.learn()
    expected = error.clamp_min(1) ** exponent
    torch.testing.assert_close(agent.replay.priority[tuple(indices)], expected, rtol=1e-4, atol=0)
    assert (expected > 1).any()


def test_batches_hold_the_steps_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = Episodes(1, 1, 0.1, 0.1)
    spec = EnvSpec((2,), torch.float32, action_size=2)
    agent = MRQ(spec, settings("track", {"algo.batch_size": 64, "algo.gamma": 0.5}), CPU)
    agent.begin(episodes.obs().flatten(1))
    for _ in range(80):
        action, step = episodes.step()
        final = None if step.final_obs is None else step.final_obs.flatten(1)
        agent.replay.add(action, replace(step, obs=step.obs.flatten(1), final_obs=final))
    by_reward = {
        steps[0]["reward"]: steps for steps in episodes.draws(agent.replay.slots, 5).values()
    }
    batches: dict[str, tuple[Tensor, ...]] = {}
    monkeypatch.setattr(
        agent, "_update_encoder", lambda *batch: batches.update(encoder=batch) or {}
    )
    update = agent._update
    monkeypatch.setattr(
        agent, "_update", lambda *batch: batches.update(values=batch) or update(*batch)
    )
    agent.learn_encoder()
    agent.learn()
    obs, next_obs, action, reward, terminated = batches["encoder"]
    for i in range(64):
        steps = by_reward[reward[i, 0].item()]
        assert torch.equal(obs[i], steps[0]["obs"].flatten())
        for t, step in enumerate(steps):
            assert torch.equal(next_obs[i, t], step["next_obs"].flatten())
            assert torch.equal(action[i, t], step["action"])
            assert reward[i, t].item() == step["reward"]
            assert bool(terminated[i, t]) == step["terminated"]
    by_action = {tuple(steps[0]["action"].tolist()): steps for steps in by_reward.values()}
    lengths = set()
    obs, action, returns, discount, next_obs, noise = batches["values"]
    for i in range(64):
        steps = by_action[tuple(action[i].tolist())][:3]
        assert torch.equal(obs[i], steps[0]["obs"].flatten())
        expected = sum(0.5**t * step["reward"] for t, step in enumerate(steps))
        assert returns[i].item() == pytest.approx(expected, abs=1e-6)
        assert discount[i].item() == (0.0 if steps[-1]["terminated"] else 0.125)
        if not steps[-1]["terminated"]:
            assert torch.equal(next_obs[i], steps[-1]["next_obs"].flatten())
        lengths.add(len(steps))
    assert lengths == {1, 2, 3}
    assert noise.std().item() == pytest.approx(1.0, rel=0.2)


def test_the_values_gradient_is_clipped() -> None:
    agent, env = agent_and_env("track", {"algo.max_grad_norm": 1e-3})
    metrics = play(agent, env, 31)
    assert metrics[-1]["gradient_norm"] > 1e-2
    moments = [state["exp_avg"] for state in agent.optimizers["values"].state.values()]
    # The first moment of the first update is a tenth of its gradient.
    assert torch.cat([m.flatten() for m in moments]).norm().item() == pytest.approx(1e-4, rel=1e-3)


def test_each_loss_trains_its_own_part() -> None:
    agent, env = agent_and_env("track")
    play(agent, env, 40)

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
    agent._update_target()
    copies, originals = agent.target.parameters(), agent.network.parameters()
    assert all(torch.equal(a, b) for a, b in zip(copies, originals, strict=True))


def test_actions_are_uniform_at_first_and_then_the_policys_with_noise() -> None:
    agent, env = agent_and_env("track", {"algo.num_envs": 4})
    obs = env.reset()
    first = torch.cat([agent.act(obs, 0)[0] for _ in range(500)]).flatten()
    assert chisquare(torch.histc(first, 10, -1, 1).numpy()).pvalue > 0.01
    agent.counters["steps"] = 30
    with torch.no_grad():
        agent.network.policy.action.weight.zero_()
        agent.network.policy.action.bias.copy_(torch.tensor([0.1, 5.0]))
        policy = agent.network(obs)[0]
    noisy = torch.stack([agent.act(obs, 0)[0] for _ in range(2_000)])
    noise = (noisy - policy)[..., 0]
    assert noise.std().item() == pytest.approx(0.2, rel=0.05)
    assert noise.mean().abs() < 0.02
    assert noisy.max() == 1.0
    assert torch.equal(agent.act_greedily(obs), policy)
    before = agent.random.generator.get_state()
    agent.act_greedily(obs)
    assert torch.equal(agent.random.generator.get_state(), before)


def test_episodes_shorter_than_a_draw_are_refused() -> None:
    agent, env = agent_and_env("track", {"algo.random_steps": 3})
    with pytest.raises(ValueError, match="the 5 steps of a draw yet: raise --algo.random-steps"):
        play(agent, env, 5)
    # Episodes are truncated after 8 steps: none is ever long enough.
    agent, env = agent_and_env("track", {"algo.random_steps": 30, "algo.encoder_horizon": 9})
    with pytest.raises(ValueError, match="the 9 steps of a draw.*lower --algo.encoder-horizon"):
        play(agent, env, 35)


@pytest.mark.parametrize("layer", ["plain", "hadamard"])
def test_zs_and_zsa_are_diagnosed(layer: str) -> None:
    agent, _ = agent_and_env("track84", {"net.layer": layer, "algo.hidden_width": 12})
    names = hidden_layers(agent.network, "all")
    obs = torch.randint(256, (64, 9, 84, 84), dtype=torch.uint8)
    # zs, which the variants change, comes last, though zsa is computed after it.
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


@pytest.mark.parametrize(("task", "gamma", "value"), [("steer", 0.99, 1.0), ("track", 0.5, 2.0)])
def test_a_policy_and_its_value_are_learned(task: str, gamma: float, value: float) -> None:
    """The best action is half the side, with reward 1; a time limit does not end the return."""
    agent, env = agent_and_env(task, {**LEARNING, "algo.gamma": gamma, "train.steps": 2_000})
    play(agent, env, 1_500)
    action = agent.act_greedily(SIDES)
    torch.testing.assert_close(action, SIDES.expand(2, 2) / 2, rtol=0, atol=0.2)
    with torch.no_grad():
        learned = agent.network(SIDES)[1] * agent.state.reward_scale
    assert learned.tolist() == pytest.approx([value, value], rel=0.1)


@pytest.mark.parametrize("layer", ["plain", "hadamard"])
def test_all_weights_learn_from_images(layer: str) -> None:
    changes = {"net.layer": layer, "algo.target_period": 5, "train.steps": 50}
    agent, env = agent_and_env("track84", changes)
    before = {name: p.detach().clone() for name, p in agent.network.named_parameters()}
    metrics = play(agent, env, 36)
    assert all(torch.isfinite(value) for row in metrics[30:] for value in row.values())
    for name, parameter in agent.network.named_parameters():
        assert not torch.equal(parameter, before[name]), name


def train_and_load(folder: Path, **changes: Any) -> tuple[dict[str, list[Any]], dict[str, Tensor]]:
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
    start.train("mrq", spec)
    run = Run.open(folder)
    streams = ("episodes", "train", "eval", "health", "kde")
    agent, *_ = load_agent(str(folder), "cpu")
    return {name: list(run.rows(name)) for name in streams}, agent.network.state_dict()


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    rows, weights = train_and_load(tmp_path / "one", seed=1)
    torch.manual_seed(7)  # the global state must not matter
    same_rows, same_weights = train_and_load(tmp_path / "same", seed=1)
    other_rows, other_weights = train_and_load(tmp_path / "other", seed=2)
    assert rows == same_rows
    assert all(torch.equal(weights[name], same_weights[name]) for name in weights)
    assert rows["train"] != other_rows["train"]
    assert not all(torch.equal(weights[name], other_weights[name]) for name in weights)
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
    spec = settings("track", {"remedy": "redo", "run_dir": str(tmp_path / "run")})
    with pytest.raises(ValueError, match="--remedy redo does not work with mrq"):
        start.train("mrq", spec)
