"""HumanoidBench: the public package's numbers, episodes, saved states and pictures."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard.core import checkpoint
from hadamard.envs import MissingExtra, gl, humanoid, make
from hadamard.envs.common import environment_seeds
from hadamard.envs.humanoid_tasks import TASKS
from tests.support.golden import document
from tests.support.humanoid import needs_models

EPISODES = document("humanoidbench_episodes")["episodes"]
REST = np.zeros(19, dtype=np.float32)
SIZES = {"h1-reach": 57, "h1-sit-hard": 64, "h1-balance-simple": 64, "h1-balance-hard": 77}
every_task = pytest.mark.parametrize("task", humanoid.tasks())


@needs_models
@pytest.mark.parametrize("episode", EPISODES, ids=lambda e: f"{e['task']}-{e['seed']}")
def test_golden_episodes(episode: dict[str, Any]) -> None:
    robot = humanoid.make_robot(f"h1-{episode['task'].replace('_', '-')}", episode["seed"])
    robot.reset()
    if episode["task"] == "sit_hard":
        # The public package draws place and heading from NumPy's global generator.
        noise = np.random.default_rng(episode["seed"]).uniform(-0.01, 0.01, robot.model.nq)
        robot.to_keyframe()
        robot.place(robot.qpos + noise)
        robot.place(np.array(episode["qpos0"]))
    # With the same seed, the noise is the same as in the public package.
    np.testing.assert_allclose(robot.qpos, episode["qpos0"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(robot.qvel, episode["qvel0"], rtol=0, atol=1e-12)
    if episode["goal"] is not None:
        robot.goal = np.array(episode["goal"])
    assert len(episode["action"]) > 15
    for i, action in enumerate(episode["action"]):
        observation, reward, ended = robot.control(np.array(action))
        np.testing.assert_allclose(observation, episode["obs"][i], rtol=0, atol=1e-6)
        assert reward == pytest.approx(episode["reward"][i], rel=0, abs=1e-6)
        assert ended == episode["terminated"][i]


def test_every_task_has_golden_episodes() -> None:
    recorded = {e["task"] for e in EPISODES}
    assert {f"h1-{task.replace('_', '-')}" for task in recorded} == set(humanoid.tasks())


@needs_models
@pytest.mark.parametrize(
    ("task", "measured", "deviation"),
    [("balance-hard", 11.0, 2.8), ("pole", 22.9, 9.3), ("slide", 4.2, 2.5), ("stair", 4.6, 2.2)],
)
def test_random_returns(task: str, measured: float, deviation: float) -> None:
    envs = make(f"humanoid/h1-{task}", 5, 8)
    envs.reset()
    random = torch.Generator().manual_seed(5)
    scores: list[list[float]] = [[] for _ in range(8)]
    # The same number from each environment: the first ones to end are the short ones.
    while any(len(env_scores) < 5 for env_scores in scores):
        for episode in envs.step(2 * torch.rand(8, 19, generator=random) - 1).episodes:
            scores[episode.env].append(episode.score)
    mean = np.mean([env_scores[:5] for env_scores in scores])
    assert abs(mean - measured) < 4 * deviation / math.sqrt(40)


@needs_models
@every_task
def test_spaces_and_starts(task: str) -> None:
    seed = 4
    envs = make(f"humanoid/{task}", seed, 2)
    assert envs.spec.obs_shape == (SIZES.get(task, 51),)
    assert (envs.spec.action_size, envs.spec.max_steps) == (19, 500)
    robot: Any = humanoid.make_robot(task, seed)
    start = robot.model.key_qpos[0]
    starts = []
    for _ in range(20):
        observation = robot.reset()
        starts.append(robot.qpos.copy())
        free = slice(7, None) if task == "h1-sit-hard" else slice(None)
        # The noise is at most 0.01; normalized quaternions may move a little more.
        assert np.abs(robot.qpos - start)[free].max() <= 0.0101
        assert np.abs(robot.qpos - start)[free].max() > 0.008
        assert not robot.qvel.any()
        assert np.array_equal(observation[: robot.model.nq], robot.qpos)
    starting = np.array(starts)
    assert len(np.unique(starting[:, 10])) == 20
    if task == "h1-sit-hard":
        assert 0.2 <= starting[:, 0].min() < 0.25 < 0.35 < starting[:, 0].max() <= 0.4
        assert -0.15 <= starting[:, 1].min() < -0.1 < 0.1 < starting[:, 1].max() <= 0.15
        heading = 2 * np.arctan2(starting[:, 6], starting[:, 3])
        assert -1.8 <= heading.min() < -1 < 1 < heading.max() <= 1.8
        assert not starting[:, 4:6].any()


@needs_models
def test_goals_fill_their_box() -> None:
    robot: Any = humanoid.make_robot("h1-reach", 0)
    goals = []
    for _ in range(100):
        assert np.array_equal(robot.reset()[54:], robot.goal)
        goals.append(robot.goal)
    low, high = np.min(goals, axis=0), np.max(goals, axis=0)
    assert (low >= (-2, -2, 0.2)).all()
    assert (low < (-1.8, -1.8, 0.3)).all()
    assert (high <= 2).all()
    assert (high > (1.8, 1.8, 1.9)).all()


@needs_models
def test_an_action_is_played_twice() -> None:
    task = humanoid.HumanoidTask(humanoid.make_robot("h1-walk", 3))
    robot = humanoid.make_robot("h1-walk", 3)
    robot.reset()  # the task resets once when it is made
    assert np.array_equal(task.reset(), robot.reset())
    random = np.random.default_rng(0)
    for _ in range(10):
        action = random.uniform(-1, 1, 19).astype(np.float32)
        observation, reward, ended = task.step(action)
        first = robot.control(action)
        second = robot.control(action)
        assert np.array_equal(observation, second[0])
        assert reward == first[1] + second[1]
        assert not ended


@needs_models
def test_no_action_is_played_after_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    task = humanoid.HumanoidTask(humanoid.make_robot("h1-walk", 3))
    task.reset()
    monkeypatch.setattr(task.robot, "min_pelvis_height", 1.5)
    before = task.robot.data.time
    _, reward, ended = task.step(REST)
    assert ended
    assert task.robot.data.time - before == pytest.approx(0.02)
    assert reward == task.robot.reward()


@needs_models
def test_the_time_limit_truncates() -> None:
    envs = make("humanoid/h1-crawl", 0, 1)
    envs.reset()
    for i in range(1, 501):
        step = envs.step(torch.zeros(1, 19))
        assert not step.terminated.any()
        assert step.truncated.tolist() == [i == 500]
    (episode,) = step.episodes
    assert episode.length == 500
    # In the true successor the robot lies on the floor; in the next episode it stands.
    assert step.next_obs[0, 2] < 0.7 < step.obs[0, 2]


@needs_models
@every_task
def test_play_continues_from_a_checkpoint(task: str, tmp_path: Path) -> None:
    robot, restored = humanoid.make_robot(task, 1), humanoid.make_robot(task, 2)
    random = np.random.default_rng(0)
    robot.reset()
    restored.reset()
    for _ in range(12):
        observation, _, _ = robot.control(random.uniform(-1, 1, 19))
    checkpoint.save(tmp_path, 1, {"robot": robot})
    _, saved = checkpoint.read(checkpoint.newest(tmp_path))
    assert np.array_equal(restored.load_state_dict(saved["robot"]), observation)
    # Saved again before any step, the state is the same.
    again = restored.state_dict()
    assert np.array_equal(again["observation"], observation)
    assert np.array_equal(again["physics"], saved["robot"]["physics"])
    if task == "h1-maze":
        assert again["stage"] == 1
    for _ in range(12):
        action = random.uniform(-1, 1, 19)
        a, b = robot.control(action), restored.control(action)
        assert np.array_equal(a[0], b[0])
        assert a[1:] == b[1:]
    assert np.array_equal(robot.reset(), restored.reset())


@needs_models
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e12])
@pytest.mark.parametrize("array", ["qpos", "qvel"])
def test_a_physics_error_ends_one_episode(
    value: float, array: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    envs: Any = make("humanoid/h1-walk", 0, 2)
    other = make("humanoid/h1-walk", 0, 2)
    envs.reset()
    other.reset()
    before = envs.step(torch.zeros(2, 19)).obs
    other.step(torch.zeros(2, 19))
    getattr(envs.envs._tasks[0].robot, array)[3] = value
    with pytest.warns(UserWarning, match="environment 0: the simulation is no longer"):
        step = envs.step(torch.zeros(2, 19))
    expected = other.step(torch.zeros(2, 19))
    assert step.truncated.tolist() == [True, False]
    assert not step.terminated.any()
    assert step.reward[0] == 0
    assert torch.equal(step.next_obs[0], before[0])
    assert torch.equal(step.obs[1], expected.obs[1])
    assert torch.equal(step.reward[1], expected.reward[1])
    for _ in range(5):
        step = envs.step(torch.zeros(2, 19))
        assert step.obs.isfinite().all()
        assert torch.equal(step.obs[1], other.step(torch.zeros(2, 19)).obs[1])
    assert list(tmp_path.iterdir()) == []  # by default MuJoCo writes a log here


@needs_models
def test_rewards_and_observations_must_be_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    envs: Any = make("humanoid/h1-run", 0, 1)
    envs.reset()
    robot = envs.envs._tasks[0].robot
    with monkeypatch.context() as patch:
        patch.setattr(robot, "reward", lambda: math.nan)
        with pytest.warns(UserWarning, match="environment 0: the reward is nan; its episode ends"):
            assert envs.step(torch.zeros(1, 19)).truncated.all()
    assert not envs.step(torch.zeros(1, 19)).truncated.any()
    # MuJoCo checks before each physics step, so not after the last one.
    observe = robot.observation
    monkeypatch.setattr(robot, "observation", lambda: observe() + (robot.data.time and math.inf))
    with pytest.warns(UserWarning, match="environment 0: the observation is not finite"):
        step = envs.step(torch.zeros(1, 19))
    assert step.truncated.all()
    assert step.obs.isfinite().all()


@needs_models
def test_every_environment_has_its_own_seed() -> None:
    envs = make("humanoid/h1-reach", 7, 3)
    robots = [humanoid.make_robot("h1-reach", seed) for seed in environment_seeds(7, 3)]
    for robot in robots:
        robot.reset()
    assert torch.equal(
        envs.reset(), torch.tensor(np.array([robot.reset() for robot in robots])).float()
    )


@needs_models
@pytest.mark.parametrize("task", ["h1-reach", "h1-maze"])
def test_pictures(task: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            gl.choose()
        except gl.CannotDraw as error:
            pytest.skip(str(error))
    envs: Any = make(f"humanoid/{task}", 0, 1)
    envs.reset()
    robot = envs.envs._tasks[0].robot
    first = envs.render()
    assert (first.shape, first.dtype) == ((480, 640, 3), np.uint8)

    def dark(picture: Any) -> Any:
        """Return where the picture's center is dark: the robot is black, the floor bright."""
        return (picture[140:340, 260:380] < 60).all(-1)

    assert 0.02 < dark(first).mean() < 0.5
    # The camera follows.
    robot.place(robot.qpos + np.r_[2, 0, 0, np.zeros(23)])
    assert 0.02 < dark(envs.render()).mean() < 0.5
    if task == "h1-reach":
        # Above the head, which is in the middle of the picture.
        robot.goal = robot.pelvis + np.array([0, 0, 1.2])
        red, green, blue = envs.render().astype(int).transpose(2, 0, 1)
        rows, columns = np.nonzero((red > 2 * green) & (red > 2 * blue))
        assert rows.size > 50
        assert rows.max() < 120
        assert 300 < columns.min() < columns.max() < 340
    envs.close()


def test_tasks_and_unknown_names() -> None:
    assert len(humanoid.tasks()) == len(TASKS) == 14
    with pytest.raises(ValueError, match="no task 'h1-wlk'; did you mean 'h1-walk'"):
        make("humanoid/h1-wlk", 0, 1)
    with pytest.raises(ValueError, match="humanoid has no task 'walk'; it has: h1-stand"):
        humanoid.make("walk", 0, 1)


def test_listing_tasks_does_not_import_mujoco() -> None:
    code = (
        "import sys; from hadamard.envs import tasks; import hadamard.envs.humanoid;"
        "assert len(tasks('humanoid')) == 14; print('mujoco' in sys.modules)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == "False"


def test_without_mujoco_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "mujoco" else find_spec(name, package),
    )
    with pytest.raises(MissingExtra, match=r"needs mujoco.*hadamard-rl\[humanoid\]"):
        make("humanoid/h1-walk", 0, 1)


@needs_models
@pytest.mark.parametrize(
    ("version", "warned"),
    [("3.2.3", True), ("3.2.4", False), ("3.2.7", False), ("3.3.0", True), ("4.0.0", True)],
)
def test_other_versions_of_mujoco_warn(
    version: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mujoco

    monkeypatch.setattr(mujoco, "__version__", version)
    humanoid._check_version.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make("humanoid/h1-stand", 0, 1)
        make("humanoid/h1-stand", 0, 1)
    humanoid._check_version.cache_clear()
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == warned  # once
    for message in messages:
        assert f"mujoco {version}" in message
        assert "pip install 'mujoco==3.2.7'" in message
