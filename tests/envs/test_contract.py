"""Every suite keeps the contract of environments in core.types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core.types import Step
from hadamard.envs import humanoid_assets, make
from tests.support.environments import assert_plain, assert_same, open_envs, play

# Slow suites are tested on a few tasks that differ in kind.
TASKS = {
    "atari": ("Breakout", "Pong"),
    "humanoid": ("h1-walk", "h1-reach", "h1-sit-hard"),
    # Frames are slow to draw without a GPU: test_dmc_pixels.py tests these with fewer steps.
    "dmc": (),
    "dmc-state": ("walker-walk", "reacher-hard"),
    "gym": ("Hopper-v5", "Reacher-v5", "CartPole-v1", "Pendulum-v1", "Taxi-v4", "LunarLander-v3"),
}


def requirement(suite: str, task: str) -> str:
    """Return what is missing to play a task here; empty if nothing is."""
    if suites.missing(suite, task):
        return f"needs the {suite} extra"
    if suite == "humanoid":
        try:
            humanoid_assets.locate()
        except humanoid_assets.AssetsError as error:
            return str(error)
    return ""


def task_parameters() -> list[Any]:
    parameters = []
    for suite in suites.suites():
        for task in TASKS.get(suite, suites.tasks(suite)):
            missing = requirement(suite, task)
            skip = pytest.mark.skipif(bool(missing), reason=missing)
            parameters.append(pytest.param(f"{suite}/{task}", marks=skip))
    return parameters


every_task = pytest.mark.parametrize("name", task_parameters())


def differ(first: list[Step], second: list[Step]) -> bool:
    return any(
        not torch.equal(a.obs, b.obs) or not torch.equal(a.reward, b.reward)
        for a, b in zip(first, second, strict=True)
    )


def steps_to_an_end(name: str) -> int:
    if name == "humanoid/h1-reach" or name.startswith("dmc-state"):
        return 510  # only the time limit ends an episode
    return 200 if name.startswith("atari") else 400


@every_task
def test_shapes_and_dtypes(name: str) -> None:
    with open_envs(name) as envs:
        spec, num_envs = envs.spec, envs.num_envs
        assert num_envs == 3
        assert (spec.num_actions >= 2) != (spec.action_size >= 1)
        assert spec.obs_shape[0] % spec.frames == 0

        def check_obs(obs: torch.Tensor, rows: int) -> None:
            assert obs.shape == (rows, *spec.obs_shape)
            assert obs.dtype == spec.obs_dtype

        check_obs(envs.reset(), num_envs)
        for step in play(envs, 60):
            check_obs(step.obs, num_envs)
            check_obs(step.next_obs, num_envs)
            assert step.reward.shape == step.terminated.shape == step.truncated.shape == (num_envs,)
            assert step.reward.dtype == torch.float32
            assert step.terminated.dtype == step.truncated.dtype == torch.bool
            if step.final_index is not None:
                assert step.final_index.dtype == torch.int64
                assert step.final_obs is not None
                check_obs(step.final_obs, len(step.final_index))


@every_task
def test_ends_are_consistent(name: str) -> None:
    with open_envs(name, training=False) as envs:
        envs.reset()
        score = np.zeros(3)
        rounding = np.zeros(3)
        length = np.zeros(3, dtype=int)
        finished = 0
        for step in play(envs, steps_to_an_end(name)):
            score += step.reward.numpy()
            # Scores are summed before rewards are rounded to float32.
            if envs.spec.continuous or name.startswith("gym/"):
                rounding += 2**-24 * step.reward.abs().numpy()
            length += 1
            assert not (step.terminated & step.truncated).any()
            assert step.any_truncated == bool(step.truncated.any())
            ended = (step.terminated | step.truncated).nonzero().flatten().tolist()
            reset = [] if step.final_index is None else step.final_index.tolist()
            assert ended == reset
            assert [episode.env for episode in step.episodes] == reset
            assert (step.final_obs is None) == (not reset)
            for episode in step.episodes:
                assert abs(episode.score - score[episode.env]) <= rounding[episode.env]
                assert episode.length == length[episode.env]
                score[episode.env] = rounding[episode.env] = length[episode.env] = 0
                finished += 1
        assert finished > 0 or name in ("minatar/freeway", "atari/Pong")


@every_task
def test_returned_tensors_are_never_overwritten(name: str) -> None:
    with open_envs(name) as envs:
        tensors = [envs.reset()]
        copies = [tensors[0].clone()]
        for step in play(envs, 20):
            tensors += [step.obs, step.next_obs, step.reward]
            copies += [step.obs.clone(), step.next_obs.clone(), step.reward.clone()]
        for tensor, copy in zip(tensors, copies, strict=True):
            assert torch.equal(tensor, copy)


@every_task
def test_a_seed_determines_all_steps(name: str) -> None:
    with (
        open_envs(name, 1) as envs,
        open_envs(name, 1) as same_seed,
        open_envs(name, 2) as other_seed,
    ):
        first, second, third = envs.reset(), same_seed.reset(), other_seed.reset()
        assert torch.equal(first, second)
        steps = 40 if name.startswith("atari") else 100
        steps_taken, same, other = (play(batch, steps) for batch in (envs, same_seed, other_seed))
        assert_same(steps_taken, same)
        if name.removeprefix("probe/") not in ("constant", "delayed", "action", "truncation"):
            assert differ(steps_taken, other) or not torch.equal(first, third)


@every_task
def test_play_continues_from_a_saved_state(name: str) -> None:
    with open_envs(name, 1) as original, open_envs(name, 7) as continued:
        original.reset()
        steps = 60 if name.startswith("atari") else 130
        last = play(original, steps)[-1]
        state = original.state_dict()
        assert_plain(state)
        obs: Any = continued.load_state_dict(state)
        assert original.exact
        assert torch.equal(obs, last.obs)
        assert_same(play(original, steps, seed=3), play(continued, steps, seed=3))
        # The state shares no memory with the environments it came from.
        obs = continued.load_state_dict(state)
        assert torch.equal(obs, last.obs)


@every_task
def test_a_reset_drops_the_running_episodes(name: str) -> None:
    with open_envs(name, training=False) as envs:
        envs.reset()
        play(envs, 9)
        envs.reset()
        length = np.zeros(3, dtype=int)
        for step in play(envs, steps_to_an_end(name)):
            length += 1
            for episode in step.episodes:
                assert episode.length == length[episode.env]
                length[episode.env] = 0
            if step.episodes:
                return


@every_task
def test_bad_actions_are_refused(name: str) -> None:
    with open_envs(name) as envs:
        envs.reset()
        spec = envs.spec
        action = torch.zeros(3, *spec.action_shape, dtype=spec.action_dtype)
        limits = r"\[-1, 1\]" if spec.continuous else f"0..{spec.num_actions - 1}"
        with pytest.raises(ValueError, match=r"shape \(3,.*got \(2,"):
            envs.step(action[:2])
        with pytest.raises(ValueError, match=rf"{limits}, got -2"):
            envs.step(action - 2)
        with pytest.raises(ValueError, match="integers|floating-point"):
            envs.step(action.long() if spec.continuous else action.float())
        if spec.continuous:
            with pytest.raises(ValueError, match=rf"{limits}, got nan"):
                envs.step(action * torch.nan)
        with pytest.raises(RuntimeError, match="without send"):
            envs.receive()
        envs.step(action)


@every_task
def test_a_state_of_another_number_of_environments_is_refused(name: str) -> None:
    with (
        open_envs(name) as three,
        open_envs(name, num_envs=2) as two,
        pytest.raises(ValueError, match="num_envs=3"),
    ):
        two.load_state_dict(three.state_dict())


def test_empty_batches_and_negative_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="num_envs .--algo.num-envs. must be at least 1, got 0"):
        make("probe/constant", 0, 0)
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        make("probe/constant", -1, 2)
    with pytest.raises(ValueError, match="workers must be 0"):
        make("probe/constant", 0, 2, workers=-1)
