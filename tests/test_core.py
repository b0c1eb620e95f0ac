"""Returns, replay, checkpoints, run folders, networks and ReDo do exactly what they say."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import pickle
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from hadamard.algos import dqn, ppo, pqn
from hadamard.analyse import RecentObservations
from hadamard.core import checkpoint, config, discover, optimisers
from hadamard.core.adam import Adam, RAdam
from hadamard.core.checkpoint import CheckpointError
from hadamard.core.config import NetSpec, RunSpec, TrainSpec
from hadamard.core.explore import epsilon_greedy
from hadamard.core.random import Counters, Random, child_seed, seeded
from hadamard.core.replay import Batch, Draw, Replay
from hadamard.core.returns import generalised_advantages, lambda_returns, successor_values
from hadamard.core.rollout import Rollout
from hadamard.core.run import PROTOCOL, Run, RunError
from hadamard.core.schedule import linear
from hadamard.core.scores import greedy_window_mean, greedy_window_means
from hadamard.core.types import EnvSpec, Step
from hadamard.layers import Branch, HadamardConv2d, HadamardLinear, variants
from hadamard.layers.activations import ACTIVATIONS
from hadamard.layers.crelu import Concatenated
from hadamard.nets.encoders import encoder
from hadamard.nets.heads import ActorCritic, QNetwork
from hadamard.nets.hidden import Hidden, Init
from hadamard.plasticity.redo import ReDo, neuron_scores

CPU = torch.device("cpu")


def column(*values: float) -> Tensor:
    return torch.tensor(values).unsqueeze(1)


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool).unsqueeze(1)


def test_a_linear_schedule_stays_at_its_end() -> None:
    values = [linear(1.0, 0.2, 8, step) for step in (0, 2, 8, 9, 10**9)]
    assert values == pytest.approx([1.0, 0.8, 0.2, 0.2, 0.2], abs=1e-12)
    assert linear(1.0, 0.2, 0, 0) == 0.2


@pytest.mark.parametrize(
    ("terminated", "truncated", "next_values", "advantages", "returns"),
    [
        # delta = 1, 1.75, 2.5; A_2 = 2.5, A_1 = 1.75 + 2.5 / 4, A_0 = 1 + 2.375 / 4
        ((0, 0, 0), (0, 0, 0), (1.0, 1.5, 2.0), (1.59375, 2.375, 2.5), (2.09375, 3.375, 4.0)),
        # Step 1 ends: delta_1 = 2 - 1, G_1 = 2, and nothing later reaches back.
        ((0, 1, 0), (0, 0, 0), (1.0, 1.5, 2.0), (1.25, 1.0, 2.5), (1.75, 2.0, 4.0)),
        # Step 1 is cut short at a state worth 4: delta_1 = 2 + 2 - 1, G_1 = 2 + 0.5 * 4.
        ((0, 0, 0), (0, 1, 0), (1.0, 4.0, 2.0), (1.75, 3.0, 2.5), (2.25, 4.0, 4.0)),
        # The rollout ends with the task: no bootstrap at all.
        ((0, 0, 1), (0, 0, 0), (1.0, 1.5, 2.0), (1.53125, 2.125, 1.5), (2.03125, 3.125, 3.0)),
    ],
)
def test_returns_are_the_hand_worked_ones(
    terminated: tuple[int, ...],
    truncated: tuple[int, ...],
    next_values: tuple[float, ...],
    advantages: tuple[float, ...],
    returns: tuple[float, ...],
) -> None:
    rewards, values = column(1.0, 2.0, 3.0), column(0.5, 1.0, 1.5)
    ends = flags(*terminated), flags(*truncated)
    following = column(*next_values)
    found = generalised_advantages(rewards, values, following, *ends, 0.5, 0.5)
    assert torch.equal(found, column(*advantages))
    assert torch.equal(lambda_returns(rewards, following, *ends, 0.5, 0.5), column(*returns))


@dataclass
class Rolled:
    """Random steps of several environments, in float64."""

    rewards: np.ndarray
    values: np.ndarray
    next_values: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @classmethod
    def random(cls, seed: int, steps: int = 40, envs: int = 5, truncate: bool = True) -> Rolled:
        draw = np.random.default_rng(seed)
        shape = (steps, envs)
        terminated = draw.random(shape) < 0.15
        truncated = (draw.random(shape) < 0.15) & ~terminated & truncate
        values, last = draw.normal(size=shape), draw.normal(size=(1, envs))
        final = draw.normal(size=shape)
        next_values = np.where(truncated, final, np.concatenate([values[1:], last]))
        return cls(draw.normal(size=shape), values, next_values, terminated, truncated)

    def tensors(self, *names: str) -> list[Tensor]:
        return [torch.from_numpy(getattr(self, name)) for name in names]


@pytest.mark.parametrize("lambda_", [0.0, 0.65, 0.95, 1.0])
def test_returns_agree_with_sums_over_each_episodes_rest(lambda_: float) -> None:
    gamma, r = 0.9, Rolled.random(1)
    steps, envs = r.rewards.shape
    alive = ~r.terminated
    advantages, returns = np.zeros((2, steps, envs))
    for env in range(envs):
        for start in range(steps):
            # Forward from every step until something ends the trace; nothing is reused.
            weight = 1.0
            for t in range(start, steps):
                one_step = r.rewards[t, env] + gamma * alive[t, env] * r.next_values[t, env]
                advantages[start, env] += weight * (one_step - r.values[t, env])
                if t == start:
                    returns[start, env] = one_step
                else:
                    returns[start, env] += weight * (one_step - r.next_values[t - 1, env])
                if not alive[t, env] or r.truncated[t, env]:
                    break
                weight *= gamma * lambda_
    names = ("rewards", "values", "next_values", "terminated", "truncated")
    found = generalised_advantages(*r.tensors(*names), gamma, lambda_)
    np.testing.assert_allclose(found.numpy(), advantages, rtol=1e-12, atol=1e-12)
    names = ("rewards", "next_values", "terminated", "truncated")
    found = lambda_returns(*r.tensors(*names), gamma, lambda_)
    np.testing.assert_allclose(found.numpy(), returns, rtol=1e-12, atol=1e-12)


def test_lambda_returns_are_the_protocols_formula() -> None:
    # G_t = r_t + gamma (1 - d_t) [lambda G_{t+1} + (1 - lambda) max_a Q(s_{t+1}, a)]
    gamma, lambda_, r = 0.99, 0.65, Rolled.random(2, truncate=False)
    expected = np.zeros_like(r.rewards)
    following = r.next_values[-1]
    for t in reversed(range(len(expected))):
        mixed = lambda_ * following + (1 - lambda_) * r.next_values[t]
        expected[t] = r.rewards[t] + gamma * (1 - r.terminated[t]) * mixed
        following = expected[t]
    names = ("rewards", "next_values", "terminated", "truncated")
    found = lambda_returns(*r.tensors(*names), gamma, lambda_)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)
    # Where nothing is truncated, an advantage is the return less the value.
    names = ("rewards", "values", "next_values", "terminated", "truncated")
    advantages = generalised_advantages(*r.tensors(*names), gamma, lambda_)
    np.testing.assert_allclose(advantages.numpy() + r.values, expected, rtol=1e-12, atol=1e-12)


def test_a_truncated_steps_successor_is_its_final_observation() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    truncated = torch.tensor([[False, True], [True, False]])
    final = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    found = successor_values(values, torch.tensor([5.0, 6.0]), truncated, final)
    assert found.tolist() == [[3.0, -2.0], [-3.0, 6.0]]


def test_next_obs_is_the_true_successor_only_where_an_episode_ended() -> None:
    none = torch.zeros(3, dtype=torch.bool)
    obs = torch.tensor([[1.0], [2.0], [3.0]])
    assert Step(obs, obs[:, 0], none, none).next_obs is obs
    step = Step(obs, obs[:, 0], none, none, torch.tensor([2, 0]), torch.tensor([[30.0], [10.0]]))
    assert step.next_obs.tolist() == [[10.0], [2.0], [30.0]]
    assert step.obs.tolist() == [[1.0], [2.0], [3.0]]


def test_a_rollout_keeps_steps_in_order_and_starts_over() -> None:
    rollout = Rollout(3, CPU)
    for t in range(3):
        assert not rollout.full
        rollout.add(reward=torch.tensor([t, 10.0 + t]), end=torch.tensor([t == 1, False]))
    assert rollout.full
    assert rollout.data["reward"].tolist() == [[0, 10], [1, 11], [2, 12]]
    assert rollout.data["end"].dtype == torch.bool
    memory = rollout.data["reward"].data_ptr()
    rollout.clear()
    rollout.add(reward=torch.tensor([7.0, 8.0]))
    assert rollout.length == 1
    assert rollout.data["reward"][0].tolist() == [7, 8]
    assert rollout.data["reward"].data_ptr() == memory


def test_epsilon_is_the_share_of_random_actions() -> None:
    def second(obs: Tensor) -> dict[str, Tensor]:
        return {"action": torch.ones(len(obs), dtype=torch.int64)}

    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    action, seen = epsilon_greedy(second, torch.zeros(5, 1), 3, 0.0, generator)
    assert action.tolist() == [1] * 5
    assert seen is not None
    assert torch.equal(generator.get_state(), before)  # a greedy choice draws nothing
    action, _ = epsilon_greedy(second, torch.zeros(30_000, 1), 3, 0.3, generator)
    counts = torch.bincount(action, minlength=3).numpy()
    assert chisquare(counts, [3_000, 24_000, 3_000]).pvalue > 0.01
    action, seen = epsilon_greedy(second, torch.zeros(1, 1), 3, 1.0, generator)
    assert seen is None  # a lone explorer does not ask the network


def test_greedy_rows_leave_the_others_chance_as_it_is() -> None:
    def second(obs: Tensor) -> dict[str, Tensor]:
        return {"action": torch.ones(len(obs), dtype=torch.int64)}

    for count in (1, 40):
        generators = [torch.Generator().manual_seed(0) for _ in range(2)]
        plain, _ = epsilon_greedy(second, torch.zeros(count, 1), 3, 0.9, generators[0])
        both, seen = epsilon_greedy(second, torch.zeros(count + 7, 1), 3, 0.9, generators[1], 7)
        assert seen is not None
        assert both.tolist() == [*plain.tolist(), *[1] * 7]
        assert torch.equal(*(generator.get_state() for generator in generators))


def by_hand(steps: list[int], scores: list[float], now: float, budget: float) -> float:
    """The score of greedy games, game by game from the newest back."""
    games = [(step, score) for step, score in zip(steps, scores, strict=True) if step <= now]
    taken: list[float] = []
    last = math.inf
    for step, score in reversed(games):
        late = step > now - 0.05 * budget
        if not late and len(taken) >= 16 and step != last:
            break
        taken.append(score)
        last = step
    return sum(taken) / len(taken) if taken else math.nan


def test_the_score_of_greedy_games_is_that_of_the_last_twentieth() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        count, budget = int(rng.integers(0, 120)), int(rng.integers(100, 4_000))
        steps = sorted(int(step) for step in rng.integers(0, budget // 10 + 1, count) * 10)
        scores = [float(score) for score in rng.integers(-50, 50, count)]
        at = [0, budget // 3, budget // 2, budget]
        expected = [by_hand(steps, scores, now, budget) for now in at]
        np.testing.assert_allclose(greedy_window_means(steps, scores, at, budget), expected)
        one = [greedy_window_mean(np.array(steps), np.array(scores), now, budget) for now in at]
        np.testing.assert_array_equal(greedy_window_means(steps, scores, at, budget), one)
    # A game at the window's very beginning is outside of it; sixteen later ones are enough.
    steps, scores = [950, *range(951, 967)], [1e6, *range(16)]
    assert greedy_window_mean(steps, scores, 1_000, 1_000) == 7.5
    assert greedy_window_mean(steps[:-1], scores[:-1], 1_000, 1_000) == (1e6 + 105) / 16
    with pytest.raises(ValueError, match="2 games ended and 1 have a score"):
        greedy_window_mean([1, 2], [1.0], 5, 10)
    with pytest.raises(ValueError, match="budget must be above 0, got 0"):
        greedy_window_mean([1], [1.0], 5, 0)


def test_scores_need_no_torch() -> None:
    code = "import sys, hadamard.core.scores; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@dataclass
class Stream:
    """Made-up environments: every frame is a number that never comes again.

    Remembers what it showed as plain lists, one of all frames and one of all transitions for
    each environment; that is the reference the replay is held against.
    """

    num_envs: int
    stack: int
    seed: int = 0
    lives: float = 0.12
    resets: float = 0.12
    limits: float = 0.08
    frames: list[list[int]] = field(init=False)
    transitions: list[list[tuple[int, tuple[Any, ...]]]] = field(init=False)

    def __post_init__(self) -> None:
        self.draw = np.random.default_rng(self.seed)
        self.count = 0
        self.frames = [[] for _ in range(self.num_envs)]
        self.transitions = [[] for _ in range(self.num_envs)]
        self.spec = EnvSpec((2 * self.stack, 1, 2), torch.int32, 6, self.stack)
        self.shown = [self.fresh(env) for env in range(self.num_envs)]

    def new(self, env: int) -> int:
        self.count += 1
        self.frames[env].append(self.count)
        return self.count

    def fresh(self, env: int) -> list[int]:
        return [self.new(env) for _ in range(self.stack)]

    @staticmethod
    def picture(stack: list[int]) -> Tensor:
        """Two channels a frame, one row, two columns, all different."""
        cells = [[[[4 * n, 4 * n + 1]], [[4 * n + 2, 4 * n + 3]]] for n in stack]
        return torch.tensor(cells, dtype=torch.int32).flatten(0, 1)

    def obs(self) -> Tensor:
        return torch.stack([self.picture(stack) for stack in self.shown])

    def step(self) -> tuple[Tensor, Step]:
        """Act at random and return the actions with what followed."""
        draw, n = self.draw, self.num_envs
        action = draw.integers(6, size=n)
        reward = draw.normal(size=n).astype(np.float32)
        terminated, truncated, final, final_obs = [], [], [], []
        for env in range(n):
            luck = draw.random()
            reset = luck < self.resets
            lost_life = self.resets <= luck < self.resets + self.lives
            limit = self.resets + self.lives <= luck < self.resets + self.lives + self.limits
            before = self.shown[env]
            place = len(self.frames[env]) - 1
            after = [*before[1:], self.new(env)]
            done = (before, int(action[env]), float(reward[env]), reset or lost_life, after)
            self.transitions[env].append((place, done))
            terminated.append(reset or lost_life)
            truncated.append(limit)
            if reset or limit:
                final.append(env)
                final_obs.append(self.picture(after))
                after = self.fresh(env)
            self.shown[env] = after
        return torch.from_numpy(action), Step(
            self.obs(),
            torch.from_numpy(reward),
            torch.tensor(terminated),
            torch.tensor(truncated),
            torch.tensor(final) if final else None,
            torch.stack(final_obs) if final else None,
            any(truncated),
        )

    def whole(self, slots: int) -> list[tuple[int, int, tuple[Any, ...]]]:
        """Environment, slot and content of each transition none of whose frames is overwritten."""
        return [
            (env, place % slots, done)
            for env in range(self.num_envs)
            for place, done in self.transitions[env]
            if place - self.stack + 1 >= len(self.frames[env]) - slots
        ]


def content(batch: Batch, stream: Stream) -> list[tuple[Any, ...]]:
    """Turn sampled pictures back into the numbers of their frames."""

    def numbers(obs: Tensor) -> list[int]:
        stack = (obs.flatten().view(stream.stack, 4)[:, 0] // 4).tolist()
        assert torch.equal(stream.picture(stack), obs)
        return stack

    return [
        (numbers(batch.obs[i]), int(a), float(r), bool(t), numbers(batch.next_obs[i]))
        for i, (a, r, t) in enumerate(
            zip(batch.action, batch.reward, batch.terminated, strict=True)
        )
    ]


def everything(replay: Replay) -> tuple[list[tuple[int, int]], Batch]:
    """Sample every usable slot once, through the very code that samples."""
    envs, slots = replay.usable.nonzero(as_tuple=True)
    if not len(envs):
        return [], Batch(*(torch.empty(0) for _ in Batch._fields))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "draw", lambda count, generator: Draw(envs, slots))
        batch = replay.sample(len(envs), torch.Generator())
    return list(zip(envs.tolist(), slots.tolist(), strict=True)), batch


@pytest.mark.parametrize(
    ("stack", "num_envs", "slots", "habits"),
    [
        (4, 1, 40, {}),
        (4, 3, 16, {}),
        (1, 3, 7, {}),
        (4, 2, 17, {"resets": 0.7}),  # hardly a game longer than a step
        (2, 2, 9, {"resets": 0.0, "limits": 0.4}),
        (4, 2, 16, {"resets": 0.0, "limits": 0.0, "lives": 0.5}),
    ],
)
def test_replay_holds_exactly_the_whole_transitions(
    stack: int, num_envs: int, slots: int, habits: dict[str, float]
) -> None:
    stream = Stream(num_envs, stack, **habits)
    replay = Replay(stream.spec, num_envs, slots * num_envs + num_envs - 1, CPU)
    assert replay.slots == slots
    replay.begin(stream.obs())
    for _ in range(5 * slots):
        replay.add(*stream.step())
        places, batch = everything(replay)
        expected = sorted(stream.whole(slots))
        assert places == [(env, slot) for env, slot, _ in expected]
        assert content(batch, stream) == [done for _, _, done in expected]
        assert len(replay) == len(expected)
    assert max(len(frames) for frames in stream.frames) > 4 * slots


class Copies(TorchDispatchMode):
    """Counts the numbers that are copied one by one, which on a GPU waits for each."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func is torch.ops.aten.copy_.default and args[1].dim() == 0:
            self.count += 1
        return func(*args, **(kwargs or {}))


def test_storing_a_step_copies_no_single_numbers() -> None:
    stream = Stream(2, 4)
    replay = Replay(stream.spec, 2, 60, CPU)
    replay.begin(stream.obs())
    with Copies() as copies:
        replay.reward[0, 0] = 1.0
        assert copies.count == 1
        for _ in range(50):
            replay.add(*stream.step())
    assert copies.count == 1


def test_sampled_stacks_are_those_the_environment_showed() -> None:
    stream = Stream(2, 4)
    replay = Replay(stream.spec, 2, 60, CPU)
    replay.begin(stream.obs())
    generator = torch.Generator().manual_seed(3)
    for step in range(90):
        replay.add(*stream.step())
        if step % 10 == 9:
            batch = replay.sample(64, generator)
            assert batch.obs.shape == (64, *stream.spec.obs_shape)
            known = [done for _, _, done in stream.whole(30)]
            assert all(done in known for done in content(batch, stream))


def test_every_transition_is_as_likely_as_any_other() -> None:
    stream = Stream(3, 4)
    replay = Replay(stream.spec, 3, 90, CPU)
    replay.begin(stream.obs())
    for _ in range(55):
        replay.add(*stream.step())
    generator = torch.Generator().manual_seed(0)
    counts = torch.zeros(3, 30)
    for _ in range(20):
        envs, slots = replay.draw(2_000, generator)
        counts.index_put_((envs, slots), torch.ones(2_000), accumulate=True)
    assert not counts[~replay.usable].any()
    per_env = replay.usable.sum(1)
    assert len(set(per_env.tolist())) > 1  # an environment with fewer must not be drawn as often
    assert chisquare(counts[replay.usable].numpy()).pvalue > 0.01


@pytest.mark.parametrize(
    ("stack", "num_envs", "slots", "habits"),
    [(4, 1, 60, {"resets": 0.2}), (1, 1, 12, {}), (4, 3, 40, {"resets": 0.1, "limits": 0.1})],
)
def test_a_draw_ahead_of_a_step_is_the_draw_after_it(
    stack: int, num_envs: int, slots: int, habits: dict[str, float]
) -> None:
    stream = Stream(num_envs, stack, **habits)
    replay = Replay(stream.spec, num_envs, slots * num_envs, CPU, on_host=True)
    replay.begin(stream.obs())
    ours, theirs = (torch.Generator().manual_seed(3) for _ in range(2))
    for _ in range(8):
        replay.add(*stream.step())
    known = 0
    for _ in range(6 * slots):
        ahead = replay.draw_ahead(2, ours)
        drawable = replay.usable.clone()
        if ahead is None:
            assert torch.equal(ours.get_state(), theirs.get_state())
        else:
            before = replay.unpacked(replay.packed(ahead))
        replay.add(*stream.step())
        after = replay.draw(2, theirs)
        if ahead is None:
            after = replay.draw(2, ours)  # of which nothing was used up
        else:
            known += 1
            assert drawable[after.envs, after.slots].all()
            assert all(torch.equal(one, other) for one, other in zip(ahead, after, strict=True))
            found = replay.unpacked(replay.packed(after))
            assert all(torch.equal(one, other) for one, other in zip(before, found, strict=True))
        assert torch.equal(ours.get_state(), theirs.get_state())
    assert 0 < known < 6 * slots


def test_packed_transitions_are_those_drawn() -> None:
    stream = Stream(2, 4)
    replay = Replay(stream.spec, 2, 60, CPU, on_host=True)
    replay.begin(stream.obs())
    for _ in range(40):
        replay.add(*stream.step())
    packed = replay.packed(replay.draw(64, torch.Generator().manual_seed(1)))
    assert packed.shape == (5, 64)
    plain = replay.sample(64, torch.Generator().manual_seed(1))
    for ours, theirs in zip(replay.unpacked(packed), plain, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def test_an_empty_or_too_small_replay_says_so() -> None:
    stream = Stream(2, 4)
    with pytest.raises(
        ValueError, match="replay-capacity: 31 steps of 2 environments are too few.* 32 are"
    ):
        Replay(stream.spec, 2, 31, CPU)
    replay = Replay(stream.spec, 2, 32, CPU)
    replay.begin(stream.obs())
    with pytest.raises(RuntimeError, match="holds 0 transitions"):
        replay.sample(1, torch.Generator())


def test_frames_on_disk_are_the_frames_in_memory(tmp_path: Path) -> None:
    streams = Stream(2, 4), Stream(2, 4)
    folder = tmp_path / "run"
    replays = [
        Replay(streams[0].spec, 2, 50, CPU, "memory"),
        Replay(streams[1].spec, 2, 50, CPU, "disk", folder),
    ]
    assert list(folder.iterdir()) == []  # nothing to leave behind
    for replay, stream in zip(replays, streams, strict=True):
        replay.begin(stream.obs())
        for _ in range(80):
            replay.add(*stream.step())
    drawn = [replay.sample(200, torch.Generator().manual_seed(1)) for replay in replays]
    for ours, theirs in zip(*drawn, strict=True):
        assert torch.equal(ours, theirs)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_million_atari_transitions_fit_in_seven_gigabytes() -> None:
    before = resident_bytes()
    replay = Replay(EnvSpec((4, 84, 84), torch.uint8, 6, 4), 1, 1_000_000, CPU)
    assert 1_000_000 * 84 * 84 < replay.nbytes <= 7.2e9
    assert replay.action.numel() == 1_000_000
    assert resident_bytes() - before < 0.1e9  # an empty one costs next to nothing


def saved_frames(path: Path) -> int:
    return sum(len(frames) for frames in checkpoint.read_tensors(path).values())


def assert_same_replay(ours: Replay, theirs: Replay) -> None:
    assert ours.pushed == theirs.pushed
    assert torch.equal(ours.usable, theirs.usable)
    for mine, other in zip(everything(ours)[1], everything(theirs)[1], strict=True):
        assert torch.equal(mine, other)
    drawn = [r.sample(100, torch.Generator().manual_seed(5)) for r in (ours, theirs)]
    for mine, other in zip(*drawn, strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(
    ("num_envs", "between", "saves", "habits"),
    [
        (2, 7, 9, {}),
        (2, 40, 5, {}),
        (1, 1, 40, {"resets": 0.0, "limits": 0.0}),  # a file for every single frame
    ],
)
def test_incremental_saves_restore_the_replay_bit_for_bit(
    tmp_path: Path, num_envs: int, between: int, saves: int, habits: dict[str, float]
) -> None:
    stream = Stream(num_envs, 4, **habits)
    capacity = 20 * num_envs
    replay = Replay(stream.spec, num_envs, capacity, CPU)
    replay.begin(stream.obs())
    folder = tmp_path / "checkpoints"
    chunks = folder / "replay"
    previous: Replay | None = None
    saved = [0] * num_envs
    for save in range(1, saves + 1):
        for _ in range(between):
            replay.add(*stream.step())
        there = set(chunks.glob("*"))
        new = [min(end - start, 20) for start, end in zip(saved, replay.pushed, strict=True)]
        saved = list(replay.pushed)
        checkpoint.save(folder, save, {"replay": replay})
        (written,) = set(chunks.glob("*")) - there
        assert saved_frames(written) == sum(new)

        kept = [checkpoint.read(path)[1]["replay"] for path in folder.glob("step-*")]
        named = {chunk["file"] for state in kept for chunk in state["chunks"]}
        assert {path.name for path in chunks.iterdir()} == named

        loaded = Replay(stream.spec, num_envs, capacity, CPU)
        assert checkpoint.load(folder, {"replay": loaded}) == (save, [])
        assert_same_replay(loaded, replay)
        if previous is not None:
            # The older one of the two that are kept is still whole.
            older = Replay(stream.spec, num_envs, capacity, CPU)
            _, state = checkpoint.read(folder / f"step-{save - 1:012d}")
            older.load_increment(chunks, state["replay"])
            assert_same_replay(older, previous)
        previous = copy.deepcopy(replay)
        if save == 4:
            replay = loaded  # a resumed replay goes on saving
    assert min(saved) > 40  # it has come round twice
    assert len(list(chunks.iterdir())) <= 20 // between + 3


def test_a_save_without_new_frames_writes_none(tmp_path: Path) -> None:
    stream = Stream(1, 2)
    replay = Replay(stream.spec, 1, 20, CPU)
    replay.begin(stream.obs())
    replay.save_increment(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    state = replay.save_increment(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert len(state["chunks"]) == 1


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_a_damaged_chunk_of_frames_is_noticed(tmp_path: Path, damage: str) -> None:
    stream = Stream(1, 2)
    replay = Replay(stream.spec, 1, 20, CPU)
    replay.begin(stream.obs())
    state = replay.save_increment(tmp_path)
    (chunk,) = tmp_path.iterdir()
    if damage == "missing":
        chunk.unlink()
    else:
        flip_a_byte(chunk)
    with pytest.raises(CheckpointError, match=f"{chunk.name} is missing or damaged"):
        replay.load_increment(tmp_path, state)


def test_a_replay_of_another_size_is_refused(tmp_path: Path) -> None:
    stream = Stream(1, 2)
    state = Replay(stream.spec, 1, 20, CPU).save_increment(tmp_path)
    with pytest.raises(CheckpointError, match=r"\(1, 20\) slots, this one \(1, 30\)"):
        Replay(stream.spec, 1, 30, CPU).load_increment(tmp_path, state)


class Holder:
    """A part of a checkpoint that holds whatever it is given."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def same(ours: Any, theirs: Any) -> bool:
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, Tensor):
        alike = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return alike and torch.equal(ours.nan_to_num(7), theirs.nan_to_num(7))
    if isinstance(ours, np.ndarray):
        alike = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return alike and np.array_equal(ours, theirs)
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs or (ours != ours and theirs != theirs))


def roundtrip(folder: Path, state: Any) -> Any:
    checkpoint.save(folder, 1, {"part": Holder(state)})
    loaded = Holder()
    assert checkpoint.load(folder, {"part": loaded}) == (1, [])
    return loaded.state


TENSORS = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8"]
TENSORS += ["uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize(
    "state",
    [
        {"a": {"b": [1, 2.5, None, True, "x", (1, (2, []))]}, "": {}, "c": ()},
        {0: {"step": torch.tensor(3.0)}, 1: {"step": torch.tensor(4.0)}},
        {0: torch.zeros(1), "0": torch.ones(1)},
        {"a": {"b": torch.zeros(1)}, "a/b": torch.ones(1)},
        {name: torch.arange(6).view(2, 3).to(getattr(torch, name)) for name in TENSORS},
        {name: np.arange(6).reshape(2, 3).astype(name) for name in TENSORS if name != "bfloat16"},
        {"tensor": torch.tensor(2.5), "array": np.array(2.5), "nested": [np.array(7, "uint32")]},
        {"tensor": torch.empty(0, 3), "array": np.empty((2, 0), np.uint32)},
        {"strided": torch.arange(12).view(3, 4).T, "array": np.arange(12).reshape(3, 4).T},
        {"nan": float("nan"), "inf": [-math.inf, math.inf], "tensor": torch.tensor([math.nan])},
        {"tiny": 5e-324, "third": 1 / 3, "long": 2**80},
        torch.Generator().manual_seed(3).get_state(),
        np.random.RandomState(3).get_state(legacy=False),
        np.random.default_rng(3).bit_generator.state,
    ],
    ids=[
        "nested",
        "int keys",
        "keys alike",
        "slashes",
        "tensors",
        "arrays",
        "no dimensions",
        "empty",
        "strided",
        "not finite",
        "numbers",
        "torch generator",
        "RandomState",
        "PCG64",
    ],
)
def test_a_checkpoint_gives_back_what_it_was_given(tmp_path: Path, state: Any) -> None:
    assert same(roundtrip(tmp_path, {"state": state})["state"], state)


def test_tensors_that_share_memory_are_saved_apart(tmp_path: Path) -> None:
    whole = torch.arange(10.0)
    state = {"head": whole[:5], "part": whole[3:5], "tail": whole[3:]}
    loaded = roundtrip(tmp_path, state)
    assert same(loaded, state)
    loaded["head"][3] = -1
    assert loaded["part"][0] == loaded["tail"][0] == 3


def test_numpy_scalars_become_plain_numbers(tmp_path: Path) -> None:
    state = roundtrip(tmp_path, {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True)})
    assert same(state, {"a": 3, "b": 0.5, "c": True})


OPTIMISERS = [torch.optim.Adam, torch.optim.RAdam, Adam, RAdam]


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_an_optimisers_state_moves_to_the_device_of_its_weights(kind: Any) -> None:
    weights = nn.Parameter(torch.ones(3))
    saved = optimisers.make(kind, [weights], 0.1, CPU)
    weights.grad = torch.ones(3)
    saved.step()
    elsewhere = nn.Parameter(torch.ones(3, device="meta"))
    again = kind([elsewhere], lr=0.1, capturable=True)
    optimisers.OptimiserState(again).load_state_dict(optimisers.OptimiserState(saved).state_dict())
    held = again.state[elsewhere]
    assert {name: value.device.type for name, value in held.items()} == dict.fromkeys(held, "meta")
    # How a device computes is not a checkpoint's to say.
    assert again.param_groups[0]["capturable"]


@pytest.mark.parametrize("kind", OPTIMISERS)
def test_a_restored_optimiser_goes_on_exactly(tmp_path: Path, kind: Any) -> None:
    def learner() -> tuple[nn.Module, torch.optim.Optimizer]:
        with seeded(1):
            layer = nn.Linear(4, 3)
        return layer, optimisers.make(kind, layer.parameters(), 0.1, CPU)

    def learn(layer: nn.Module, optimiser: torch.optim.Optimizer, steps: range) -> None:
        for i in steps:
            optimisers.set_learning_rate(optimiser, 0.1 / (i + 1))
            optimiser.zero_grad()
            layer(torch.full((2, 4), float(i + 1))).square().sum().backward()
            optimiser.step()

    layer, optimiser = learner()
    learn(layer, optimiser, range(7))
    parts = {"network": layer, "optimiser": optimisers.OptimiserState(optimiser)}
    checkpoint.save(tmp_path, 7, parts)
    other, again = learner()
    checkpoint.load(tmp_path, {"network": other, "optimiser": optimisers.OptimiserState(again)})
    assert again.param_groups[0]["lr"] == 0.1 / 7
    assert same(again.state_dict(), optimiser.state_dict())
    learn(layer, optimiser, range(7, 12))
    learn(other, again, range(7, 12))
    assert same(dict(other.state_dict()), dict(layer.state_dict()))


def test_random_and_counters_come_back(tmp_path: Path) -> None:
    random, counters = Random(4), Counters(steps=3, updates=0)
    torch.rand(5, generator=random.generator)
    checkpoint.save(tmp_path, 1, {"random": random, "counters": counters})
    expected = torch.rand(5, generator=random.generator)
    counters["updates"] += 9
    restored, numbers = Random(5), Counters(steps=0, updates=1)
    checkpoint.load(tmp_path, {"random": restored, "counters": numbers})
    assert torch.equal(torch.rand(5, generator=restored.generator), expected)
    assert numbers.values == {"steps": 3, "updates": 0}


def test_seeds_of_different_purposes_differ() -> None:
    seeds = {child_seed(seed, *purpose) for seed in range(20) for purpose in ((0,), (1,), (3, 7))}
    assert len(seeds) == 60
    state = torch.get_rng_state()
    with seeded(1):
        first = torch.rand(3)
    with seeded(1):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("value", "named"),
    [({1, 2}, "set"), (nn.Linear(1, 1), "Linear"), (1j, "complex"), (b"x", "bytes")],
)
def test_what_json_cannot_hold_is_refused_by_name(tmp_path: Path, value: Any, named: str) -> None:
    with pytest.raises(TypeError, match=f"cannot hold /part/inner/1, a {named}"):
        checkpoint.save(tmp_path, 1, {"part": Holder({"inner": [0, value]})})


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped tensor": lambda path: flip_a_byte(path / "tensors.safetensors"),
    "short tensors": lambda path: cut_short(path / "tensors.safetensors"),
    "no tensors": lambda path: (path / "tensors.safetensors").unlink(),
    "flipped state": lambda path: flip_a_byte(path / "state.json"),
    "short state": lambda path: cut_short(path / "state.json"),
    "empty state": lambda path: (path / "state.json").write_bytes(b""),
    "no state": lambda path: (path / "state.json").unlink(),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "empty manifest": lambda path: (path / "manifest.json").write_bytes(b""),
    "short manifest": lambda path: cut_short(path / "manifest.json"),
    "binary manifest": lambda path: (path / "manifest.json").write_bytes(b"\xff\xfe\x00"),
}


def three_saves(folder: Path) -> list[Path]:
    """Save at steps 1 to 3; return what is left, newest first."""
    for step in (1, 2, 3):
        state = {"step": step, "weight": torch.full((3,), float(step))}
        checkpoint.save(folder, step, {"part": Holder(state)})
    return sorted(folder.glob("step-*"), reverse=True)


def test_a_damaged_older_checkpoint_does_not_stop_the_next_save(tmp_path: Path) -> None:
    class Kept:
        def save_increment(self, folder: Path) -> dict[str, Any]:
            return {"chunks": []}

        def prune(self, folder: Path, kept: list[Any]) -> None:
            pruned.append(len(kept))

    pruned: list[int] = []
    checkpoint.save(tmp_path, 1, {"replay": Kept()})
    (tmp_path / "step-000000000001" / "state.json").write_text('{"parts": {')
    checkpoint.save(tmp_path, 2, {"replay": Kept()})
    assert (tmp_path / "step-000000000002").is_dir()
    assert pruned == [1]  # what the damaged one needs is not known
    checkpoint.save(tmp_path, 3, {"replay": Kept()})
    assert pruned == [1, 2]


def test_a_generator_of_another_kind_only_seeds() -> None:
    drawn = []
    for filling in (0, 0, 1):
        ours = Random(0)
        with pytest.warns(UserWarning, match="another kind of device"):
            ours.load_state_dict({"generator": torch.full((16,), filling, dtype=torch.uint8)})
        drawn.append(torch.rand(4, generator=ours.generator))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_a_seeded_draw_leaves_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("seeded a GPU"))
    with seeded(3):
        first = torch.rand(2)
    with seeded(3):
        assert torch.equal(torch.rand(2), first)


def test_only_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    kept = three_saves(tmp_path)
    assert [path.name for path in kept] == ["step-000000000003", "step-000000000002"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in kept[::-1]]
    assert checkpoint.newest(tmp_path) == kept[0]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path, damage: str) -> None:
    newest, other = three_saves(tmp_path)
    DAMAGES[damage](newest)
    part = Holder()
    step, troubles = checkpoint.load(tmp_path, {"part": part})
    assert step == 2
    assert same(part.state, {"step": 2, "weight": torch.full((3,), 2.0)})
    (trouble,) = troubles
    assert newest.name in trouble
    assert "damaged" in trouble
    with pytest.warns(UserWarning, match=f"an older checkpoint is used: .*{newest.name}.*damaged"):
        assert checkpoint.newest(tmp_path) == other
    DAMAGES[damage](other)
    with pytest.raises(CheckpointError, match="nothing to resume from: .*damaged.*; .*damaged"):
        checkpoint.load(tmp_path, {"part": part})
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        checkpoint.newest(tmp_path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_run_that_fell_back_goes_on_saving(tmp_path: Path, damage: str) -> None:
    # The damaged checkpoint is of a later step than the next ones that are saved.
    stream = Stream(1, 2)
    replay = Replay(stream.spec, 1, 20, CPU)
    replay.begin(stream.obs())
    for step in (10, 20):
        checkpoint.save(tmp_path, step, {"replay": replay})
        replay.add(*stream.step())
    DAMAGES[damage](tmp_path / "step-000000000020")
    assert checkpoint.load(tmp_path, {"replay": replay})[0] == 10
    for step in (13, 16):
        checkpoint.save(tmp_path, step, {"replay": replay})
        loaded = Replay(stream.spec, 1, 20, CPU)
        assert checkpoint.load(tmp_path, {"replay": loaded})[0] == step
    # Both of the two that count are whole.
    DAMAGES["flipped tensor"](tmp_path / "step-000000000016")
    assert checkpoint.load(tmp_path, {"replay": loaded})[0] == 13


def test_nothing_to_load_is_an_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(CheckpointError, match="there is no checkpoint in"):
            checkpoint.load(folder, {})


def test_a_checkpoint_of_other_parts_is_refused(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {"one": Holder(1), "two": Holder(2)})
    with pytest.raises(CheckpointError, match="holds one, two; this run has one"):
        checkpoint.load(tmp_path, {"one": Holder()})


class Crash(Exception):
    """Stands for the power going out."""


@pytest.mark.parametrize("name", ["replace", "fsync", "mkdir"])
@pytest.mark.parametrize("call", range(6))
def test_a_crash_while_saving_leaves_the_last_checkpoint(
    tmp_path: Path, name: str, call: int
) -> None:
    three_saves(tmp_path)
    real, calls = getattr(os, name), iter(range(100))

    def crashing(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            raise Crash
        return real(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, crashing)
        try:
            checkpoint.save(tmp_path, 4, {"part": Holder({"weight": torch.full((3,), 4.0)})})
            crashed = False
        except Crash:
            crashed = True
    part = Holder()
    step, troubles = checkpoint.load(tmp_path, {"part": part})
    assert troubles == []
    assert step == (3 if crashed and not (name == "fsync" and call == 4) else 4)
    assert torch.equal(part.state["weight"], torch.full((3,), float(step)))
    # What the crash left behind is cleared away by the next save.
    checkpoint.save(tmp_path, 5, {"part": Holder({})})
    assert len(list(tmp_path.iterdir())) == 2


def test_the_crashes_above_do_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = dict.fromkeys(("replace", "fsync"), 0)
    for name in calls:
        real = getattr(os, name)

        def counting(*arguments: Any, real: Any = real, name: str = name) -> Any:
            calls[name] += 1
            return real(*arguments)

        monkeypatch.setattr(os, name, counting)
    checkpoint.save(tmp_path, 4, {"part": Holder({"weight": torch.zeros(3)})})
    # Three files, the folder before the rename, the parent after it.
    assert calls == {"replace": 1, "fsync": 5}


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("writer", ["pickle", "torch"])
def test_a_pickle_is_never_loaded(tmp_path: Path, writer: str) -> None:
    path = checkpoint.save(tmp_path, 1, {"part": Holder({"weight": torch.zeros(2)})})
    target, mark = path / "tensors.safetensors", tmp_path / "mark"
    if writer == "pickle":
        target.write_bytes(pickle.dumps(Trap(mark)))
    else:
        torch.save({"/part/weight": Trap(mark)}, target)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["tensors.safetensors"] = hashlib.sha256(target.read_bytes()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="tensors.safetensors is damaged"):
        checkpoint.load(tmp_path, {"part": Holder()})
    assert not mark.exists()


CONFIG = {"algorithm": "dqn", "spec": {"seed": 0, "net": {"width": 8, "layer": "plain"}}}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run.create(tmp_path / "run", CONFIG)
    yield run
    run.close()


def test_a_run_records_what_it_was_made_from(run: Run) -> None:
    recorded = Run.open(run.path).config
    assert {key: recorded[key] for key in CONFIG} == CONFIG
    assert torch.__version__.startswith(recorded["versions"]["torch"])  # "+cu130" may follow
    assert "commit" in recorded
    assert run.done is None
    run.finish({"score": 1.5})
    assert Run.open(run.path).done == {"score": 1.5}


def test_a_folder_held_by_another_process_is_refused_with_its_pid(run: Run) -> None:
    run.close()
    source = sys.modules[Run.__module__].__file__
    code = (
        "import importlib.util, sys; spec = importlib.util.spec_from_file_location('run', "
        f"{source!r}); module = importlib.util.module_from_spec(spec); "
        f"spec.loader.exec_module(module); run = module.Run({str(run.path)!r}); run.lock(); "
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match=f"in use by process {holder.pid}: .*--run-dir"):
            run.lock()
        with pytest.raises(RunError, match=f"in use by process {holder.pid}"):
            run.lock()  # having asked changes nothing
        holder.stdin.close()
    run.lock()  # free once the holder is gone
    assert (run.path / "lock").read_text() == str(os.getpid())


def test_another_configuration_is_refused_line_by_line(run: Run) -> None:
    other = {"algorithm": "dqn", "spec": {"seed": 3, "net": {"width": 8, "layer": "crelu"}}}
    with pytest.raises(RunError) as refused:
        Run.create(run.path, other)
    assert str(refused.value).splitlines() == [
        f"{run.path} holds a run with other settings:",
        "  spec.net.layer: 'plain' there, 'crelu' asked for",
        "  spec.seed: 0 there, 3 asked for",
        "Choose another --run-dir.",
    ]
    with pytest.raises(RunError, match=f"was started .* `hadamard train --resume {run.path}`"):
        Run.create(run.path, CONFIG)
    run.finish({"score": None})
    with pytest.raises(RunError, match="is finished with these very settings"):
        Run.create(run.path, CONFIG)
    # How far it is trained for now is no other setting.
    further = {**CONFIG, "spec": {**CONFIG["spec"], "train": {"until": 70}}}
    Run.create(run.path / "further", further).close()
    further["spec"]["train"] = {"until": 90}
    with pytest.raises(RunError, match=r"these very settings: .*/further --until 90`"):
        Run.create(run.path / "further", further)


def test_a_run_tells_the_protocol_it_was_trained_under(run: Run) -> None:
    assert run.config["protocol"] == PROTOCOL == run.protocol == 2
    config = run.config
    del config["protocol"]
    (run.path / "config.json").write_text(json.dumps(config))
    assert Run.open(run.path).protocol == 1


def test_a_finished_run_is_opened_for_more_steps(tmp_path: Path) -> None:
    config = {"algorithm": "dqn", "spec": {"seed": 3, "train": {"steps": 100, "until": 40}}}
    run = Run.create(tmp_path / "run", config)
    run.finish({"steps": 40})
    before = run.config
    run.train_until(70)
    assert run.done is None
    before["spec"]["train"]["until"] = 70
    assert run.config == before
    run.train_until(70)  # again, as after a crash in between
    assert run.config == before
    run.close()


def test_what_is_not_a_run_is_not_opened(tmp_path: Path, run: Run) -> None:
    with pytest.raises(RunError, match="has no config.json$"):
        Run.open(tmp_path)
    with pytest.raises(RunError, match="has no config.json .there is no such folder."):
        Run.open(tmp_path / "absent")
    with pytest.raises(RunError, match="exists and is not a run"):
        Run.create(tmp_path, CONFIG)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="exists and is not a run"):
        Run.create(tmp_path / "file", CONFIG)
    (tmp_path / "empty").mkdir()
    Run.create(tmp_path / "empty", CONFIG).close()
    (run.path / "config.json").write_text("{")
    with pytest.raises(RunError, match="config.json is damaged"):
        _ = Run.open(run.path).config


def test_cut_drops_later_rows_and_a_torn_line(run: Run) -> None:
    for step in range(5):
        run.write("train", {"step": step, "loss": 1 / 3, "nested": {"a": [1, None]}})
    run.write("timing", {"step": 4})
    run.close()
    path = run.path / "train.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    for torn in (b'{"step": 5, "lo', b"{", b""):
        path.write_bytes(b"".join(whole) + torn)
        assert [row["step"] for row in run.rows("train")] == [0, 1, 2, 3, 4]
    path.write_bytes(b"".join(whole) + b'{"step": 5, "lo')
    run.cut(2)
    assert path.read_bytes() == b"".join(whole[:3])
    assert (run.path / "timing.jsonl").read_bytes() == b""
    run.write("train", {"step": 3})
    run.flush(to_disk=True)
    assert [row["step"] for row in run.rows("train")] == [0, 1, 2, 3]
    assert not (run.path / "health.jsonl").exists()
    run.write("timing", {"step": 3})
    run.flush()
    run.cut(3, train=1)  # a stream of its own
    assert [row["step"] for row in run.rows("train")] == [0, 1]
    assert [row["step"] for row in run.rows("timing")] == [3]
    path.write_bytes(b'{"st\n{"step": 1}\n')
    with pytest.raises(RunError, match="line 1 of .*train.jsonl is damaged"):
        list(run.rows("train"))


def test_a_row_that_is_cut_between_line_and_newline_is_kept_whole(run: Run) -> None:
    path = run.path / "train.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}')
    run.cut(2)
    run.write("train", {"step": 3})
    run.flush()
    assert [row["step"] for row in run.rows("train")] == [1, 2, 3]


def test_what_is_not_finite_becomes_null(run: Run) -> None:
    row = {"step": 1, "a": math.nan, "b": [math.inf, (-math.inf, 2.0)], "c": {"d": math.nan}}
    run.write("train", row)
    run.flush()
    text = (run.path / "train.jsonl").read_text()
    assert text == '{"step": 1, "a": null, "b": [null, [null, 2.0]], "c": {"d": null}}\n'


def test_overrides_name_what_does_not_exist() -> None:
    spec: RunSpec[Any] = RunSpec(algo=dqn.Config())
    changed = config.overridden(spec, {"net.width": 7, "algo.gamma": 0.5, "seed": 2})
    assert (changed.net.width, changed.algo.gamma, changed.seed) == (7, 0.5, 2)
    assert spec.net.width == 512
    with pytest.raises(ValueError, match="NetSpec has no field 'wdith'; it has: layer, activation"):
        config.overridden(spec, {"net.wdith": 7})
    with pytest.raises(ValueError, match="RunSpec has no field 'nets'"):
        config.overridden(spec, {"nets.width": 7})


def test_overrides_are_judged_together() -> None:
    # Neither of the two is possible without the other.
    changes = {"train.health_every": 100, "train.health_samples": 10}
    spec: RunSpec[Any] = RunSpec(algo=None)
    for order in (changes, dict(reversed(changes.items()))):
        train = config.overridden(spec, order).train
        assert (train.health_every, train.health_samples) == (100, 10)


def test_settings_come_back_from_json_and_foreign_ones_are_named() -> None:
    spec = RunSpec(algo=None, net=NetSpec(layer="crelu"), train=TrainSpec(steps=5), seed=3)
    values = json.loads(json.dumps(config.to_dict(spec)))
    assert config.from_dict(RunSpec, values) == spec
    with pytest.raises(ValueError, match=r"config.net has fields .* does not know: depth"):
        config.from_dict(RunSpec, {**values, "net": {**values["net"], "depth": 3}})
    older = {key: value for key, value in values["net"].items() if key != "width"}
    assert config.from_dict(RunSpec, {**values, "net": older}) == spec
    lacking = {key: value for key, value in values.items() if key != "algo"}
    with pytest.raises(ValueError, match=r"config lacks algo: .*another version"):
        config.from_dict(RunSpec, lacking)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.steps": 0}, "--train.steps must be at least 1, got 0"),
        ({"net.width": 0}, "--net.width must be at least 1, got 0"),
        ({"redo.period": 0}, "--redo.period must be at least 1, got 0"),
        ({"seed": -1}, "--seed must not be negative, got -1"),
        ({"train.health_every": -5}, "--train.health-every must not be negative, got -5"),
        ({"train.until": -1}, "--train.until must not be negative, got -1"),
        ({"train.steps": 50, "train.until": 51}, "--train.until 51 is beyond --train.steps 50"),
        ({"redo.tau": -0.1}, "--redo.tau must not be negative, got -0.1"),
        ({"train.health_samples": 1}, "--train.health-samples must be at least 2, got 1"),
        ({"train.health_every": 100}, "--train.health-every 100 leaves no room for"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config.overridden(RunSpec(algo=None), changes).check()


def test_the_horizon_is_what_is_trained_for_now() -> None:
    assert TrainSpec(steps=90).horizon == 90
    assert TrainSpec(steps=90, until=20).horizon == 20


def test_an_unknown_name_gets_the_nearest_ones() -> None:
    assert discover.find("hadamard.algos", "dqn", "algorithm") is dqn
    with pytest.raises(ValueError, match="^unknown algorithm 'DQM'; did you mean 'dqn'"):
        discover.find("hadamard.algos", "DQM", "algorithm")
    known = "dqn, mrq, ppo, pqn, simbav2"
    with pytest.raises(ValueError, match=rf"^unknown algorithm 'xxxx'\. Known: {known}$"):
        discover.find("hadamard.algos", "xxxx", "algorithm")


@pytest.mark.parametrize("num_envs", [1, 8, 100])
def test_the_diagnosis_sees_the_last_observations_before_it(num_envs: int) -> None:
    every, count = 90, 30
    train = TrainSpec(health_every=every, health_samples=count)
    recent, step, seen, diagnoses = RecentObservations(train, CPU), 0, torch.empty(0), 0
    while diagnoses < 5:
        obs = torch.arange(step, step + num_envs)
        seen = torch.cat([seen, obs])
        recent.add(step, obs)
        step += num_envs
        if step == 2 * num_envs:  # a resume in between changes nothing
            state = recent.state_dict()
            recent = RecentObservations(train, CPU)
            recent.load_state_dict(state)
        if step // every > (step - num_envs) // every:
            assert torch.equal(recent.take(), seen[-count:])
            diagnoses += 1


VECTOR = EnvSpec((5,), torch.float32, 3)
GRID = EnvSpec((3, 10, 10), torch.uint8, 3)
FRAMES = EnvSpec((4, 84, 84), torch.uint8, 3, frames=4)


def observations(env: EnvSpec, count: int = 2) -> Tensor:
    high = 256 if env.frames > 1 else 2
    return torch.randint(high, (count, *env.obs_shape)).to(env.obs_dtype)


@pytest.mark.parametrize("env", [VECTOR, GRID, FRAMES], ids=["vector", "grid", "frames"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("variant", variants())
def test_every_network_takes_every_observation(variant: str, activation: str, env: EnvSpec) -> None:
    for where, norm in (("last", "none"), ("all", "layer")):
        net = NetSpec(layer=variant, activation=activation, width=8, where=where, norm=norm)
        network = QNetwork(env, net)
        values = network(observations(env))
        assert values.shape == (2, 3)
        values.square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
        wide = {"crelu": 16, "widened": 16}.get(variant, 8)
        assert network.encoder.outputs == wide
    logits, value = ActorCritic(env, NetSpec(layer=variant, width=8))(observations(env))
    assert logits.shape == (2, 3)
    assert value.shape == (2,)


def test_bytes_are_scaled_to_one_and_grids_are_not() -> None:
    net = NetSpec(width=4)
    for env, factor in ((FRAMES, 255.0), (GRID, 1.0), (VECTOR, 1.0)):
        made = encoder(env, net, "default")
        seen: list[Tensor] = []
        made.layers[0].register_forward_pre_hook(
            lambda _, inputs, seen=seen: seen.append(inputs[0])
        )
        obs = observations(env)
        made(obs)
        torch.testing.assert_close(seen[0], obs.float() / factor, rtol=1e-6, atol=0)


@pytest.mark.parametrize("env", [FRAMES, GRID], ids=["frames", "grid"])
def test_layers_see_the_same_pixels_however_they_lie_in_memory(env: EnvSpec) -> None:
    made = encoder(env, NetSpec(width=4), "default")
    seen: list[Tensor] = []
    made.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    obs = torch.randint(256, (2, *env.obs_shape), dtype=torch.uint8)
    every_other = torch.stack([obs, obs], 1).unbind(1)[0]  # as a replay hands them over
    last = obs.contiguous(memory_format=torch.channels_last)
    for given in (obs, every_other, last, obs.float()):
        before = given.clone()
        made(given)
        assert torch.equal(given, before)
        assert torch.equal(seen[-1], obs.float() * made.scale)
        assert seen[-1].is_contiguous(memory_format=torch.channels_last)


def kinds(net: NetSpec, env: EnvSpec) -> list[str]:
    """Name what each hidden layer is made of, its width last."""
    names = {HadamardLinear: "product", HadamardConv2d: "product", Branch: "branch"}
    names[Concatenated] = "concatenated"
    return [f"{names[type(h.layer)]} {h.outputs}" for h in encoder(env, net, "default").layers]


@pytest.mark.parametrize(
    ("net", "env", "expected"),
    [
        (dqn.NET, FRAMES, ["branch 32", "branch 64", "branch 64", "product 512"]),
        (ppo.NET, FRAMES, ["branch 32", "branch 64", "branch 64", "product 512"]),
        (pqn.NET, FRAMES, ["product 32", "product 64", "product 64", "product 512"]),
        (dqn.NET, GRID, ["branch 16", "product 512"]),
        (pqn.NET, GRID, ["product 16", "product 512"]),
        (dqn.NET, VECTOR, ["branch 512", "product 512"]),
    ],
)
def test_where_the_product_goes(net: NetSpec, env: EnvSpec, expected: list[str]) -> None:
    hadamard = config.overridden(net, {"layer": "hadamard"})
    assert kinds(hadamard, env) == expected
    plain = [f"branch {name.split()[1]}" for name in expected]
    assert kinds(net, env) == plain
    twice = plain[:-2] + [name.replace("branch", "product") for name in plain[-2:]]
    assert kinds(config.overridden(net, {"layer": "hadamard2"}), env) == twice
    assert kinds(config.overridden(net, {"layer": "widened"}), env) == [*plain[:-1], "branch 1024"]


def test_concatenation_widens_what_follows() -> None:
    expected = ["branch 32", "branch 64", "branch 64", "concatenated 1024"]
    assert kinds(NetSpec(layer="crelu"), FRAMES) == expected
    expected = ["concatenated 64", "concatenated 128", "concatenated 128", "concatenated 1024"]
    assert kinds(NetSpec(layer="crelu", where="all"), FRAMES) == expected


def norms(net: NetSpec, env: EnvSpec) -> list[str | None]:
    def of(hidden: Hidden) -> str | None:
        layer = hidden.layer.branch if isinstance(hidden.layer, Concatenated) else hidden.layer
        return None if layer.norm is None else layer.norm.over

    return [of(hidden) for hidden in encoder(env, net, "default").layers]


@pytest.mark.parametrize("variant", variants())
def test_where_the_norm_goes(variant: str) -> None:
    net = NetSpec(layer=variant, width=8, norm="layer")
    assert norms(net, FRAMES) == [None, None, None, "features"]
    everywhere = config.overridden(net, {"where": "all"})
    assert norms(everywhere, FRAMES) == ["features"] * 4
    maps = config.overridden(everywhere, {"norm": "layer_map"})
    # A dense layer has no map; the layernorm variant is over the features by definition.
    over = "features" if variant == "layernorm" else "map"
    assert norms(maps, FRAMES) == [over] * 3 + ["features"]
    bare = config.overridden(everywhere, {"norm": "none"})
    assert norms(bare, FRAMES) == ["features" if variant == "layernorm" else None] * 4


def test_each_branch_is_normalised_on_its_own() -> None:
    hidden = encoder(GRID, NetSpec("hadamard", "identity", "layer", 8, "all"), "he").layers[0]
    obs = observations(GRID, 4).float()
    pre = hidden.layer.norm(hidden.affine(obs)).unflatten(1, (2, 16))
    assert torch.allclose(pre.mean(2), torch.zeros(()), atol=1e-5)
    assert torch.allclose(pre.var(2, correction=0), torch.ones(()), atol=1e-2)
    torch.testing.assert_close(hidden(obs), pre[:, 0] * pre[:, 1])


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("init", ["default", "orthogonal", "he"])
def test_branches_are_drawn_independently_from_the_right_distribution(
    variant: str, init: Init
) -> None:
    hidden = encoder(FRAMES, NetSpec(layer=variant, width=512, where="all"), init).layers
    for layer in hidden:
        weight = layer.affine.weight.detach().flatten(1).double()
        bias = layer.affine.bias.detach()
        fan_in = weight.shape[1]
        branches = weight.chunk(getattr(layer.layer, "branch_count", 1))
        for branch in branches:
            if init == "orthogonal":
                short = branch if len(branch) <= fan_in else branch.T
                identity = 2 * torch.eye(len(short), dtype=torch.float64)
                torch.testing.assert_close(short @ short.T, identity, rtol=0, atol=2e-5)
            else:
                variance = 2 / fan_in if init == "he" else 1 / (3 * fan_in)
                # Five standard errors of a variance; both distributions have lighter tails than
                # a normal one, whose fourth moment this allows.
                slack = 5 * math.sqrt(2 / branch.numel())
                assert float(branch.square().mean()) == pytest.approx(variance, rel=slack)
                assert abs(float(branch.mean())) < 5 * math.sqrt(variance / branch.numel())
                widest = 2 * math.sqrt(variance) / 0.87962566 if init == "he" else fan_in**-0.5
                assert 0.99 * widest < float(branch.abs().max()) <= widest * (1 + 1e-6)
        if len(branches) == 2:
            a, b = branches
            correlation = float((a * b).mean() / (a.norm() * b.norm()) * a.numel())
            assert abs(correlation) < 5 / math.sqrt(a.numel())
            assert float((a == b).double().mean()) < 1e-4
            if init == "orthogonal":
                # Drawn together, they would be orthogonal to each other, too.
                spread = float((a @ b.T).std(correction=0))
                assert spread == pytest.approx(2 / math.sqrt(fan_in), rel=0.1)
        assert bool((bias == 0).all()) == (init != "default")
    assert len(branches) == (2 if variant.startswith("hadamard") else 1)


def test_heads_are_drawn_as_the_baselines_draw_them() -> None:
    network = ActorCritic(FRAMES, NetSpec(width=64))
    for head, gain in ((network.logits, 0.01), (network.value, 1.0)):
        weight = head.weight.detach()
        expected = gain**2 * torch.eye(len(weight))
        torch.testing.assert_close(weight @ weight.T, expected, rtol=0, atol=1e-6 * gain)
        assert not head.bias.any()


def learner(
    variant: str, env: EnvSpec, activation: str = "relu", norm: str = "none"
) -> tuple[QNetwork, torch.optim.Optimizer, Tensor]:
    """A network with a few updates behind it, so that the optimiser has moments everywhere."""
    net = NetSpec(layer=variant, activation=activation, width=12, where="all", norm=norm)
    network = QNetwork(env, net)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    obs = observations(env, 32)
    for _ in range(3):
        optimiser.zero_grad()
        network(obs).sub(1).square().sum().backward()
        optimiser.step()
    return network, optimiser, obs


def silence(hidden: Hidden, neuron: int) -> None:
    """Make a neuron output exactly zero: all of its incoming parameters, in every branch."""
    rows = len(hidden.affine.weight)
    width = min(rows, hidden.outputs)
    with torch.no_grad():
        for parameter in hidden.layer.parameters():
            parameter[neuron % width :: width] = 0


def snapshot(network: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    found = {}
    for name, parameter in network.named_parameters():
        found[name] = parameter.detach().clone()
        for moment in ("exp_avg", "exp_avg_sq", "step"):
            found[f"{name} {moment}"] = optimiser.state[parameter][moment].clone()
    return found


def recycled_parts(network: QNetwork, chosen: list[list[int]]) -> dict[str, tuple[Tensor, Tensor]]:
    """For each parameter, where rows are to be drawn anew and where inputs are to be cut."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    found = {
        name: (torch.zeros(p.shape, dtype=torch.bool), torch.zeros(p.shape, dtype=torch.bool))
        for name, p in network.named_parameters()
    }
    layers = network.encoder.layers
    readers = [layer.affine.weight for layer in layers[1:]] + [network.values.weight]
    for layer, neurons, reader in zip(layers, chosen, readers, strict=True):
        rows = len(layer.affine.weight)
        width = min(rows, layer.outputs)
        for neuron in neurons:
            for parameter in layer.layer.parameters():
                found[names[id(parameter)]][0][neuron::width] = True
            for output in range(neuron, layer.outputs, width):
                # Behind a flattening, a channel is one input of each position.
                found[names[id(reader)]][1][:, output :: layer.outputs] = True
    return found


@pytest.mark.parametrize("env", [VECTOR, GRID, FRAMES], ids=["vector", "grid", "frames"])
@pytest.mark.parametrize(
    ("variant", "activation", "norm"),
    [
        ("plain", "relu", "none"),
        ("plain", "tanh", "layer"),
        ("hadamard", "tanh", "none"),
        ("hadamard", "relu", "layer"),
        ("hadamard2", "tanh", "none"),
        ("widened", "tanh", "none"),
        ("crelu", "relu", "none"),
        ("layernorm", "relu", "none"),
    ],
)
def test_redo_recycles_the_dormant_neurons_and_nothing_else(
    variant: str, activation: str, norm: str, env: EnvSpec
) -> None:
    network, optimiser, obs = learner(variant, env, activation, norm)
    layers = network.encoder.layers
    asked = [[0, 3] for _ in layers]
    asked[-2] = [5]
    for layer, neurons in zip(layers, asked, strict=True):
        for neuron in neurons:
            silence(layer, neuron)
    # Which neurons are dormant, worked out apart: mean size over batch and positions, both
    # sides of a concatenated one.
    chosen = []
    x = obs.float() / (255 if env.frames > 1 else 1)
    with torch.no_grad():
        for layer in layers:
            if isinstance(layer.affine, nn.Linear) and x.dim() == 4:
                x = x.permute(0, 2, 3, 1).flatten(1)
            x = layer(x)
            size = x.abs().numpy().swapaxes(0, 1).reshape(x.shape[1], -1).mean(1)
            width = min(len(layer.affine.weight), layer.outputs)
            low = (size / size.mean() <= 0.01).reshape(-1, width).all(0)
            chosen.append(np.flatnonzero(low).tolist())
    for neurons, dormant in zip(asked, chosen, strict=True):
        assert set(neurons) <= set(dormant)
    assert all(len(dormant) < layer.outputs for dormant, layer in zip(chosen, layers, strict=True))
    before = snapshot(network, optimiser)
    redo = ReDo(network, optimiser, tau=0.01, period=10, seed=4)
    global_state = torch.get_rng_state()
    redo(19, obs)
    assert same(snapshot(network, optimiser), before)  # not its turn
    redo(20, obs)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert redo.recycled == sum(map(len, chosen))

    after = snapshot(network, optimiser)
    for name, (drawn, cut) in recycled_parts(network, chosen).items():
        touched = drawn | cut
        assert torch.equal(after[name][~touched], before[name][~touched]), name
        fresh = after[name][drawn]
        if name.endswith("affine.weight"):
            bound = before[name][0].numel() ** -0.5 * (1 + 1e-6)
            assert ((fresh != 0) & (fresh.abs() <= bound)).all()
        if "norm.weight" in name:
            assert (fresh == 1).all()
        assert (after[name][cut & ~drawn] == 0).all()
        for moment in ("exp_avg", "exp_avg_sq"):
            key = f"{name} {moment}"
            assert (after[key][touched] == 0).all(), key
            assert torch.equal(after[key][~touched], before[key][~touched]), key
        assert torch.equal(after[f"{name} step"], before[f"{name} step"])


@pytest.mark.parametrize("env", [VECTOR, GRID, FRAMES], ids=["vector", "grid", "frames"])
@pytest.mark.parametrize("variant", [name for name in variants() if name != "layernorm"])
def test_recycling_silent_neurons_leaves_the_networks_output(variant: str, env: EnvSpec) -> None:
    # They handed on exactly nothing before, and nobody listens now. Not so with a norm, which
    # sees the new rows beside the old.
    network, optimiser, obs = learner(variant, env, "tanh")
    for layer in network.encoder.layers:
        silence(layer, 1)
    output = network(obs).detach()
    redo = ReDo(network, optimiser, tau=0.0, period=1)
    redo(1, obs)
    assert redo.recycled == len(network.encoder.layers)
    assert torch.equal(network(obs), output)
    for layer in network.encoder.layers:
        assert neuron_scores(network, obs)[layer][1] > 0  # and they are awake


def test_recycled_rows_of_both_branches_are_new_and_unlike() -> None:
    network, optimiser, obs = learner("hadamard", VECTOR, "tanh")
    layer = network.encoder.layers[-1]
    with torch.no_grad():
        # One silent branch silences the product; the other is alive, and goes with it.
        layer.affine.weight[2] = 0
        layer.affine.bias[2] = 0
    before = layer.affine.weight.detach().clone()
    ReDo(network, optimiser, tau=0.0, period=1)(1, obs)
    after = layer.affine.weight.detach()
    changed = (after != before).any(1).nonzero().flatten().tolist()
    assert changed == [2, 2 + 12]
    assert (after[[2, 14]] != before[[2, 14]]).all()
    assert not (after[2] == after[14]).any()


def test_a_concatenated_neuron_with_one_live_side_stays() -> None:
    network, optimiser, obs = learner("crelu", GRID)
    layer = network.encoder.layers[-1]
    with torch.no_grad():
        layer.affine.bias[4] = 100.0  # always positive: its negative side is all zero
    scores = neuron_scores(network, obs)[layer]
    assert scores[4] > 1
    assert scores[4 + 12] == 0
    before = snapshot(network, optimiser)
    ReDo(network, optimiser, tau=0.0, period=1)(1, obs)
    assert same(snapshot(network, optimiser), before)


def test_redo_draws_the_same_for_the_same_update_only() -> None:
    network, _, obs = learner("hadamard", GRID, "tanh")
    silence(network.encoder.layers[-1], 1)
    results = []
    for seed, update in ((0, 10), (0, 10), (0, 20), (1, 10)):
        again = copy.deepcopy(network)
        redo = ReDo(again, torch.optim.Adam(again.parameters()), tau=0.0, period=10, seed=seed)
        redo(update, obs)
        assert redo.recycled == 1
        results.append(again.encoder.layers[-1].affine.weight.detach()[1])
    assert torch.equal(results[0], results[1])
    assert not (results[0] == results[2]).any()
    assert not (results[0] == results[3]).any()


def test_scores_are_relative_to_the_layers_mean() -> None:
    network, _, obs = learner("plain", VECTOR)
    layer = network.encoder.layers[0]
    with torch.no_grad():
        layer.affine.weight.zero_()
        layer.affine.bias.copy_(torch.arange(12.0))
    scores = neuron_scores(network, obs)[layer]
    torch.testing.assert_close(scores, torch.arange(12.0) / 5.5)
    assert len(layer._forward_hooks) == 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_training_keeps_the_memory_that_an_update_frees() -> None:
    program = """
import resource, sys, torch
from hadamard.core.config import TrainSpec
from hadamard.core.machine import computing

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        held = [torch.ones(1_000_000) for _ in range(8)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults(10)
with computing(TrainSpec(), torch.device("cpu")):
    faults(2)  # what is kept has to be had once
    print(usual, faults(10))
"""
    words = [sys.executable, "-c", program]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert int(told[1]) < 40 < int(told[0])  # pages may be as large as 2 MiB
