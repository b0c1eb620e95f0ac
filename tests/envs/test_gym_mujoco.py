"""Gymnasium's MuJoCo tasks: the same numbers as Gymnasium's, and saved states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core import checkpoint
from hadamard.core.types import Step
from hadamard.envs import gl, gym_mujoco, make
from hadamard.envs.batch import PhysicsError
from hadamard.envs.common import environment_seeds

pytestmark = pytest.mark.skipif(
    bool(suites.missing("gym", "Hopper-v5")), reason="needs the mujoco extra"
)

every_task = pytest.mark.parametrize("task", gym_mujoco.TASKS)


@contextmanager
def open_envs(task: str, seed: int = 0, num_envs: int = 1) -> Iterator[Any]:
    envs = make(f"gym/{task}", seed, num_envs)
    try:
        yield envs
    finally:
        envs.close()


def play(envs: Any, steps: int, seed: int = 0) -> list[Step]:
    random = torch.Generator().manual_seed(seed)
    shape = (steps, envs.num_envs, envs.spec.action_size)
    return [envs.step(action) for action in 2 * torch.rand(shape, generator=random) - 1]


@every_task
def test_every_task_equals_gymnasium_stepped_directly(task: str) -> None:
    import gymnasium

    theirs: Any = gymnasium.make(task, disable_env_checker=True)
    low, high = theirs.action_space.low, theirs.action_space.high
    with open_envs(task, 3) as ours:
        spec = ours.spec
        assert spec.obs_shape == theirs.observation_space.shape
        assert spec.obs_dtype == torch.float32
        assert spec.action_size == low.size
        assert spec.max_steps == theirs.spec.max_episode_steps
        assert spec.step_seconds == theirs.unwrapped.dt
        observation, _ = theirs.reset(seed=environment_seeds(3, 1)[0])
        obs = ours.reset()
        random = torch.Generator().manual_seed(0)
        ends = 0
        for _ in range(120):
            assert np.array_equal(obs[0].numpy(), observation.astype(np.float32))
            action = 2 * torch.rand(1, spec.action_size, generator=random) - 1
            step = ours.step(action)
            scaled = (low + high) / 2 + (high - low) / 2 * action[0].numpy()
            observation, reward, terminated, truncated, _ = theirs.step(scaled)
            assert step.reward.item() == np.float32(reward)
            assert bool(step.terminated) == terminated
            assert bool(step.truncated) == (truncated and not terminated)
            assert np.array_equal(step.next_obs[0].numpy(), observation.astype(np.float32))
            if terminated or truncated:
                ends += 1
                observation, _ = theirs.reset()
            obs = step.obs
        assert ends or task in ("HalfCheetah-v5", "HumanoidStandup-v5", "Swimmer-v5", "Ant-v5")
    theirs.close()


@every_task
def test_play_continues_from_a_saved_state(task: str, tmp_path: Path) -> None:
    with open_envs(task, 1) as original, open_envs(task, 7) as continued:
        original.reset()
        last = play(original, 5)[-1]
        state = checkpoint.read(checkpoint.save(tmp_path, 1, {"envs": original}))[1]["envs"]
        assert torch.equal(continued.load_state_dict(state), last.obs)
        for a, b in zip(play(original, 60, seed=3), play(continued, 60, seed=3), strict=True):
            assert torch.equal(a.obs, b.obs)
            assert torch.equal(a.next_obs, b.next_obs)
            assert torch.equal(a.reward, b.reward)
            assert torch.equal(a.terminated, b.terminated)
            assert a.episodes == b.episodes
        # Equal in float64 too, of which observations have only half the digits.
        ours, theirs = original.state_dict()["tasks"][0], continued.state_dict()["tasks"][0]
        assert np.array_equal(ours["physics"], theirs["physics"])
        assert ours["random"] == theirs["random"]
        assert torch.equal(original.reset(), continued.reset())


def test_an_observed_force_is_part_of_the_state() -> None:
    task = "InvertedDoublePendulum-v5"
    with open_envs(task) as original, open_envs(task) as continued:
        original.reset()
        original.envs._tasks[0].environment.data.qpos[0] = 1.0  # the end of its rail
        step = original.step(torch.ones(1, 1))
        assert step.next_obs[0, -1] != 0
        assert not step.terminated.any()
        assert torch.equal(continued.load_state_dict(original.state_dict()), step.obs)


@pytest.mark.parametrize(("task", "limit"), [("InvertedPendulum-v5", 3.0), ("Pusher-v5", 2.0)])
def test_actions_span_the_limits_of_the_task(task: str, limit: float) -> None:
    with open_envs(task) as envs:
        envs.reset()
        gym_task = envs.envs._tasks[0]
        for action in (-1.0, 0.0, 1.0):
            gym_task.step(np.full(envs.spec.action_size, action, dtype=np.float32))
            assert (gym_task.environment.data.ctrl == action * limit).all()


def test_a_physics_error_ends_one_episode_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_envs("HalfCheetah-v5", num_envs=2) as envs:
        envs.reset()
        before = play(envs, 3)[-1].obs
        saved = envs.state_dict()
        # MuJoCo then resets the simulation and returns finite numbers.
        envs.envs._tasks[0].environment.data.qvel[0] = np.nan
        with pytest.warns(UserWarning, match="environment 0: .*finite.*its episode ends here"):
            (step,) = play(envs, 1)
        assert step.truncated.tolist() == [True, False]
        assert torch.equal(step.next_obs[0], before[0])
        assert step.obs.isfinite().all()
        assert not any(step.truncated.any() for step in play(envs, 5))
        envs.envs._tasks[0].environment.data.qvel[0] = np.nan
        with pytest.raises(PhysicsError):
            envs.envs._tasks[0].step(np.zeros(6))
        envs.load_state_dict(saved)  # a state in which everything is finite
        assert not any(step.truncated.any() for step in play(envs, 5))
    assert not list(tmp_path.iterdir())  # by default MuJoCo writes a log here


@pytest.mark.parametrize(
    ("observation", "reward", "message"),
    [
        (np.zeros(10), np.nan, "the reward is nan"),
        (np.zeros(10), -np.inf, "the reward is -inf"),
        (np.full(10, np.nan), 1.0, "the observation is not finite"),
    ],
)
def test_what_is_not_finite_ends_one_episode(
    observation: Any, reward: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_envs("Reacher-v5") as envs:
        first = envs.reset()
        result = (observation, reward, False, False, {})
        monkeypatch.setattr(envs.envs._tasks[0].environment, "step", lambda action: result)
        with pytest.warns(UserWarning, match=f"environment 0: {message}; its episode ends here"):
            (step,) = play(envs, 1)
        assert step.truncated.tolist() == [True]
        assert step.reward.tolist() == [0]
        assert torch.equal(step.next_obs, first)


def test_pictures() -> None:
    try:
        gl.choose()
    except gl.CannotDraw as error:
        pytest.skip(str(error))
    for task in ("Hopper-v5", "Reacher-v5"):  # one has a camera in its model, one has not
        with open_envs(task) as envs:
            envs.reset()
            first = envs.render()
            assert first.shape == (480, 640, 3)
            assert len(np.unique(first)) > 20
            play(envs, 3)
            assert not np.array_equal(first, envs.render())
