"""HumanoidBench: the public package's numbers, every rule by hand, and the model files."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import importlib.util
import json
import math
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import cli
from hadamard import envs as suites
from hadamard.core import checkpoint
from hadamard.envs import MissingExtra, gl, humanoid, make
from hadamard.envs import humanoid_assets as assets
from hadamard.envs.batch import PhysicsError
from hadamard.envs.common import spread
from hadamard.envs.humanoid_robot import Robot, tolerance
from hadamard.envs.humanoid_tasks import TASKS

GOLDEN = Path(__file__).parents[2] / "shared/reference/golden/humanoidbench_episodes.json"
REST = np.zeros(19, dtype=np.float32)
SIZES = {"h1-reach": 57, "h1-sit-hard": 64, "h1-balance-simple": 64, "h1-balance-hard": 77}

every_task = pytest.mark.parametrize("task", humanoid.tasks())


def lacking() -> str:
    if suites.missing("humanoid"):
        return "needs the humanoid extra"
    try:
        assets.locate()
    except assets.AssetsError as error:
        return str(error)
    return ""


needs_models = pytest.mark.skipif(bool(lacking()), reason=lacking())


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def standing(task: str) -> Any:
    """A robot in the pose of the model's file, no forces, at rest; its parts can be set."""
    robot = humanoid.make_robot(task, 0)
    robot.reset()
    robot.to_keyframe()
    robot.force[:] = 0
    robot.velocity[:] = 0
    robot.torso_rotation[8] = 1
    robot.head[2] = 3
    return robot


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-12, abs=1e-12)


# The public package's numbers.


def golden() -> list[Any]:
    if not GOLDEN.is_file():
        return [pytest.param({}, marks=pytest.mark.skip(reason=f"{GOLDEN} is not here"))]
    episodes = json.loads(GOLDEN.read_text())["episodes"]
    return [pytest.param(e, id=f"{e['task']}-{e['seed']}") for e in episodes]


@needs_models
@pytest.mark.parametrize("episode", golden())
def test_golden_episodes(episode: dict[str, Any]) -> None:
    robot = humanoid.make_robot(f"h1-{episode['task'].replace('_', '-')}", episode["seed"])
    robot.reset()
    if episode["task"] == "sit_hard":
        # Place and heading are from NumPy's global generator in the public package.
        noise = np.random.default_rng(episode["seed"]).uniform(-0.01, 0.01, robot.model.nq)
        robot.to_keyframe()
        robot.place(robot.qpos + noise)
        robot.place(np.array(episode["qpos0"]))
    # The noise of a seed is the public package's own.
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


def test_golden_episodes_are_of_every_task() -> None:
    if not GOLDEN.is_file():
        pytest.skip(f"{GOLDEN} is not here")
    found = {e["task"] for e in json.loads(GOLDEN.read_text())["episodes"]}
    assert {f"h1-{task.replace('_', '-')}" for task in found} == set(humanoid.tasks())


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
    # As many from each environment: the first to end would be the short ones.
    while any(len(own) < 5 for own in scores):
        for episode in envs.step(2 * torch.rand(8, 19, generator=random) - 1).episodes:
            scores[episode.env].append(episode.score)
    mean = np.mean([own[:5] for own in scores])
    assert abs(mean - measured) < 4 * deviation / math.sqrt(40)


# Rewards and ends, by hand.


@pytest.mark.parametrize(
    ("x", "bounds", "margin", "shape", "expected"),
    [
        (1.0, (1.0, 2.0), 0.5, "gaussian", 1.0),
        (2.0, (1.0, 2.0), 0.5, "linear", 1.0),
        (0.5, (1.0, 2.0), 0.5, "gaussian", 0.1),
        (2.5, (1.0, 2.0), 0.5, "gaussian", 0.1),
        (0.75, (1.0, 2.0), 0.5, "gaussian", 0.1**0.25),
        (3.0, (1.0, 2.0), 0.5, "gaussian", 0.1**4),
        (0.5, (1.0, 2.0), 0.5, "linear", 0.0),
        (2.125, (1.0, 2.0), 0.5, "linear", 0.75),
        (9.0, (1.0, 2.0), 0.5, "linear", 0.0),
        (1e9, (1.0, math.inf), 0.5, "gaussian", 1.0),
        (0.0, (0.0, 0.0), 0.0, "gaussian", 1.0),
        (1e-9, (0.0, 0.0), 0.0, "gaussian", 0.0),
    ],
)
def test_tolerance(
    x: float, bounds: tuple[float, float], margin: float, shape: Any, expected: float
) -> None:
    assert tolerance(x, bounds, margin, shape) == near(expected)


def test_tolerance_is_that_of_dm_control() -> None:
    rewards = pytest.importorskip("dm_control.utils.rewards")
    random = np.random.default_rng(0)
    for _ in range(500):
        lower, x = random.normal(size=2).tolist()
        bounds, margin = (lower, lower + random.exponential()), random.exponential()
        for shape, at_margin in (("gaussian", 0.1), ("linear", 0)):
            theirs = rewards.tolerance(x, bounds, margin, shape, at_margin)
            assert tolerance(x, bounds, margin, shape) == near(theirs)  # type: ignore[arg-type]


@needs_models
def test_what_rewards_are_made_of() -> None:
    robot = standing("h1-stand")
    assert robot.small_control() == 1
    for force, expected in ((5, 4.75), (-5, 4.75), (10, 4), (11, 4), (300, 4)):
        robot.force[:] = force
        assert robot.small_control() == near(expected / 5)
    robot.force[:] = [10] * 9 + [0] * 10
    assert robot.small_control() == near((4 + 10 / 19) / 5)
    for up, expected in ((1, 1), (0.9, 1), (-0.05, 0.5), (-1, 0)):
        robot.torso_rotation[8] = up
        assert robot.upright(0.9) == near(expected)
    for height, expected in ((1.65, 1), (1.65 - 1.65 / 4, 0.1), (1.65 - 1.65 / 8, 0.1**0.25)):
        robot.head[2] = height
        assert robot.standing() == near(expected)
    for x, expected in ((1, 1), (7, 1), (0.5, 3.5 / 6), (0, 1 / 6), (-4, 1 / 6)):
        robot.velocity[:] = x, 9, 9
        assert robot.move(1.0) == near(expected)
        robot.velocity[:] = 5 * x, 9, 9
        assert robot.move(5.0) == near(expected)
    for x, y, expected in ((0, 0, 1), (2, 0, 0.55), (0, -2, 0.55), (-2, 2, 0.1)):
        robot.velocity[:] = x, y, 9
        assert robot.dont_move() == near(expected)


@needs_models
def test_the_rewards_parts_are_the_robots() -> None:
    robot: Any = humanoid.make_robot("h1-stand", 0)
    robot.to_keyframe()
    pose = robot.qpos.copy()
    assert pose[2] == 0.98
    # The head is 0.7 and the hands are far below above the pelvis, whose children they are.
    assert robot.head.tolist() == near([0, 0, 0.98 + 0.7])
    assert robot.imu.tolist() == near([-0.04452, -0.01891, 0.98 + 0.27756])
    assert robot.left_foot[1] > 0 > robot.right_foot[1]
    assert robot.left_hand[1] > 0
    assert robot.up == 1
    assert robot.velocity.tolist() == [0, 0, 0]
    # Tilted by 60 degrees about y, turned in the torso, and moving.
    pose[:7] = 1, 2, 3, math.cos(math.pi / 6), 0, math.sin(math.pi / 6), 0
    robot.qvel[:3] = 0.5, -0.25, 0
    robot.place(pose)
    assert robot.up == near(0.5)
    assert robot.pelvis.tolist() == near([1, 2, 3])
    assert robot.pelvis_quat.tolist() == near(pose[3:7].tolist())
    assert robot.head.tolist() == near([1 + 0.7 * math.sin(math.pi / 3), 2, 3 + 0.35])
    assert robot.velocity.tolist() == near([0.5, -0.25, 0])
    # A motor pulls its joint towards the target: 200 N m for each radian at the hip.
    robot.to_keyframe()
    robot.data.ctrl[0] = 0.1
    robot.place(robot.qpos.copy())
    assert robot.force[0] == near(200 * 0.1)


TILTED = 1 - 0.4 / 1.9
SLOW = (0.1 ** (0.125**2) + 0.1 ** (0.25**2)) / 2


@needs_models
@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("stand", 0.95 * 0.1 * TILTED * SLOW),
        ("walk", 0.95 * 0.1 * TILTED * (5 * 0.25 + 1) / 6),
        ("run", 0.95 * 0.1 * TILTED * (5 * 0.05 + 1) / 6),
        ("hurdle", 0.95 * 0.1 * (1 - 0.3 / 1.9) * (5 * 0.05 + 1) / 6),
        ("pole", 0.5 * 0.95 * 0.1 * TILTED + 0.5 * (5 * 0.5 + 1) / 6),
        ("balance-simple", 0.95 * 0.1 ** (((2.02 - 1.2375) / 0.4125) ** 2) * TILTED * SLOW),
        ("balance-hard", 0.95 * 0.1 ** (((2.02 - 1.2375) / 0.4125) ** 2) * TILTED * SLOW),
    ],
)
def test_rewards(task: str, expected: float) -> None:
    robot = standing(f"h1-{task}")
    robot.force[:] = 5
    robot.head[2] = 1.65 - 1.65 / 4
    robot.torso_rotation[8] = 0.5
    robot.velocity[:2] = 0.25, 0.5
    assert robot.reward() == near(expected)


@needs_models
def test_stairs_and_slides() -> None:
    for task in ("h1-stair", "h1-slide"):
        robot = standing(task)
        robot.velocity[0] = 1
        robot.left_foot[2], robot.right_foot[2] = 1.5, 1.7
        for head, up, expected in (
            (2.9, 0.5, 1),
            (2.7, 0.5, 0.1 ** ((0.2 / 0.45) ** 2)),
            (2.25, 0.5, 0.1 * 0.1 ** ((0.65 / 0.45) ** 2)),
            (2.9, 0.5 - 0.95, 0.5),
        ):
            robot.head[2], robot.torso_rotation[8] = head, up
            assert robot.reward() == near(expected)
        robot.velocity[0] = 0.5
        robot.head[2], robot.torso_rotation[8] = 3, 0.1
        assert robot.reward() == near(3.5 / 6 * (1 - 0.4 / 1.9))
        # Only the torso ends it, however low the robot.
        robot.qpos[2] = -9
        assert not robot.ended()
        robot.torso_rotation[8] = 0.0999
        assert robot.ended()


@needs_models
def test_crawling() -> None:
    robot = standing("h1-crawl")
    robot.velocity[0] = 1
    robot.head[2] = robot.imu[2] = 1.0
    robot.imu[1] = 0
    robot.pelvis_quat[:] = 0.75, 0, 0.65, 0
    assert robot.reward() == near(1)
    robot.force[:] = 10
    assert robot.reward() == near(1 - 0.1 + 0.08)
    robot.force[:] = 0
    robot.velocity[0] = 0
    assert robot.reward() == near(1 - 0.4 + 0.4 / 6)
    robot.velocity[0] = 1
    robot.pelvis_quat[:] = 0.75, 0.6, 0.65, 0.8
    assert robot.reward() == near(0.75 + 0.025)
    robot.pelvis_quat[:] = 0.75, 0, 0.65, 0
    # The worse of head and torso counts, above and below.
    for head, imu, value in ((0.6, 0.6, 1), (2, 0.7, 0.1), (0.7, -0.4, 0.1), (1.5, -0.4, 0.1)):
        robot.head[2], robot.imu[2] = head, imu
        assert robot.reward() == near(0.75 + 0.25 * value)
    robot.head[2] = robot.imu[2] = 0.8
    for y, value in ((1, 1), (-1, 1), (1.0001, 0), (-1.0001, 0)):
        robot.imu[1] = y
        assert robot.reward() == near(value)
    robot.qpos[2] = -9
    assert not robot.ended()


@needs_models
@pytest.mark.parametrize("task", ["h1-sit-simple", "h1-sit-hard"])
def test_sitting(task: str) -> None:
    robot = standing(task)
    assert robot.chair.tolist() == near([-0.25, 0, 0])
    robot.chair[:2] = 1, -1
    seat = {"x": 1.0, "y": -1.0, "z": 0.7, "up": 1.0, "posture": 0.4, "vx": 0.0, "force": 0.0}
    cases: list[tuple[dict[str, float], float]] = [
        ({}, 1),
        ({"z": 0.68}, 1),
        ({"z": 0.72}, 1),
        ({"z": 0.92}, 0.5 * 0.1 + 0.5),
        ({"z": 0.58}, 0.5 * 0.1**0.25 + 0.5),
        ({"x": 1.19 - 1e-12}, 1),
        ({"x": 0.81 + 1e-12}, 1),
        ({"x": 1.39}, 0.5 + 0.5 * 0.1),
        ({"x": 0.61}, 0.5 + 0.5 * 0.1),
        ({"y": -1.1}, 0.5 + 0.5 * 0.1),
        ({"y": -0.9, "x": 0.61}, 0.5 + 0.5 * 0.01),
        ({"up": 0.95}, 1),
        ({"up": 0.5}, 0.5),
        ({"up": 0.05}, 0),
        ({"posture": 0.35}, 1),
        ({"posture": 0.45}, 1),
        ({"posture": 0.75}, 0.1),
        ({"posture": 0.05}, 0.1),
        ({"vx": 2}, 0.55),
        ({"force": 10}, 0.8),
        ({"force": 5, "up": 0.5, "posture": 0.75, "z": 0.92}, 0.95 * 0.5 * 0.1 * 0.55),
    ]
    for changed, expected in cases:
        case = {**seat, **changed}
        robot.qpos[:3] = case["x"], case["y"], case["z"]
        robot.torso_rotation[8] = case["up"]
        robot.imu[2] = 2.0
        robot.head[2] = 2.0 + case["posture"]
        robot.velocity[0] = case["vx"]
        robot.force[:] = case["force"]
        # The posture is a difference of heights: its last digits are lost.
        assert robot.reward() == pytest.approx(expected, rel=1e-9, abs=1e-9), changed


@needs_models
def test_reaching() -> None:
    robot = standing("h1-reach")
    robot.qvel[:] = 0
    robot.pelvis_rotation[8] = 1
    robot.left_hand[:] = 1, 1, 1
    for goal, expected in (
        ((1, 1, 2), 5),  # at a distance of 1
        ((1, 1, 2.5), 5),
        ((1, 1, 1.999), 10),
        ((1, 1.6, 1.8), 5),
        ((1, 1.599, 1.799), 10),
        ((1.051, 1, 1), 10),
        ((1.049, 1, 1), 20),
        ((1, 1, 1), 20),
    ):
        robot.goal = np.array(goal, dtype=float)
        assert robot.reward() == near(expected), goal
    robot.goal[:] = 9
    robot.pelvis_rotation[8] = -0.5
    assert robot.reward() == near(-2.5)
    robot.qvel[:] = 3
    assert robot.reward() == near(-2.5 - 0.0001 * 25 * 9)
    robot.qpos[2] = -9
    assert not robot.ended()
    # The seen hand and point come after positions and velocities.
    assert robot.observation()[51:].tolist() == [1, 1, 1, 9, 9, 9]


@needs_models
def test_the_maze() -> None:
    robot = standing("h1-maze")
    robot.place(robot.qpos + np.r_[0, 0, 9, np.zeros(23)])  # above the walls: no contact
    assert robot.contacts() == []
    robot.force[:] = 0
    robot.torso_rotation[8] = 1

    def at(x: float, y: float, vx: float = 0.0, vy: float = 0.0) -> float:
        """The reward of a robot that stands at a place, without that of standing."""
        robot.pelvis[:2] = robot.imu[:2] = x, y
        robot.velocity[:2] = vx, vy
        reward: float = robot.reward()
        return reward - 0.2

    def follow(following: float, distance: float) -> Any:
        return near(0.4 * (5 * following + 1) / 6 + 0.4 * 0.1 ** (distance * distance))

    robot.stage = 0
    # To +x at first, at 2 m/s. Exactly 0.4 away is not there yet.
    assert at(0.4, 0, 2, 0) == follow(1, 0.4)
    assert robot.stage == 0
    assert at(0.5, 0, 1.5, 0.5) == follow(0.25, 0.5)
    # Reached: the new stage counts at once, and a bonus comes on top.
    assert at(0.399, 0, 2, 0) - 100 == follow(1, 3 - 0.399)
    assert robot.stage == 1
    assert at(0.0, 0, 2, 0) == follow(1, 3)
    assert at(2, 0, 2, 0) == follow(1, 1)
    # The second checkpoint turns to +y.
    assert at(3, 0, 2, 0) - 200 == follow(0, 6)
    assert at(3, 1, 0, 2) == follow(1, 5)
    assert at(3, 1, 0, 1.5) == follow(0.5, 5)
    assert at(3, 1, 0, 3) == follow(0, 5)
    assert at(3, 6, 2, 0) - 300 == follow(1, 3)
    assert at(3, 6, 0, 2) == follow(0, 3)
    # In the last stage no direction is asked for, and no bonus is left.
    assert at(6, 6, 0, 0) - 400 == follow(1, 0)
    assert robot.stage == 4
    assert at(6, 6, -9, 9) == follow(1, 0)
    assert at(6, 5, 0, 0) == follow(1, 1)
    assert robot.stage == 4
    robot.reset()
    assert robot.stage == 0
    # What counts for the checkpoint is the pelvis, and for the distance the sensor in the torso.
    robot.stage = 1
    robot.pelvis[:2], robot.imu[:2] = (0, 0), (3, 0)
    without = robot.reward()
    robot.imu[:2] = 2, 0
    assert without - robot.reward() == near(0.4 * 0.9)
    assert robot.stage == 1


def placed(task: str, x: float, y: float, z: float = 0.0) -> Any:
    """A robot moved from its pose, everything else where it was."""
    robot = standing(task)
    robot.to_keyframe()
    robot.place(robot.qpos + np.r_[x, y, z, np.zeros(robot.model.nq - 3)])
    return robot


def names(robot: Any) -> set[str]:
    return {robot.model.geom(geom).name for pair in robot.contacts() for geom in pair}


@needs_models
@pytest.mark.parametrize(
    ("place", "touched"),
    [
        ((3, 0, 5), ""),
        ((3, 0, -0.02), "floor"),
        ((3, -4.7, 0.3), "left_barrier_collision"),
        ((3, 4.7, 0.3), "right_barrier_collision"),
        ((-0.5, 0, 0.3), "behind_barrier_collision"),
    ],
)
def test_hurdles_barriers(place: tuple[float, float, float], touched: str) -> None:
    robot = placed("h1-hurdle", *place)
    assert names(robot) - {""} == ({touched} if touched else set())
    free = robot.small_control() * robot.standing() * robot.upright(0.8) * robot.move(5.0)
    assert free > 0.1
    assert robot.reward() == near(free * (0.1 if "barrier" in touched else 1))


@needs_models
def test_hurdles_themselves_cost_nothing() -> None:
    # The first stands 5 m away and is named nothing.
    for x in np.arange(2, 8, 0.1):
        robot = placed("h1-hurdle", x, 0, 0.1)
        if robot.contacts():
            free = robot.small_control() * robot.standing() * robot.upright(0.8) * robot.move(5.0)
            assert robot.reward() == near(free)
            return
    pytest.fail("there was no hurdle")


@needs_models
def test_poles() -> None:
    def free(robot: Any) -> float:
        stand = robot.small_control() * robot.standing() * robot.upright(0.9)
        return float(0.5 * stand + 0.5 * robot.move(0.5))

    pole = standing("h1-pole").data.geom("pole_r3_c2").xpos
    robot = placed("h1-pole", pole[0], pole[1], 0.3)
    assert names(robot) - {""} == {"pole_r3_c2"}
    assert robot.reward() == near(0.1 * free(robot))
    # What a pole does with the floor is not the robot's.
    number = robot.model.geom("pole_r3_c2").id
    for pairs, factor in (([[0, number]], 1), ([[0, number], [5, number]], 0.1), ([[0, 5]], 1)):
        robot.contacts = lambda pairs=pairs: pairs
        assert robot.reward() == near(factor * free(robot))
    # Neither floor nor barrier is a pole.
    robot = placed("h1-pole", 0.3, 0, -0.02)
    assert "floor" in names(robot)
    assert robot.reward() == near(free(robot))
    robot = placed("h1-pole", 1.0, 3.1, 0.3)
    assert robot.contacts()
    assert names(robot) == {""}
    assert robot.reward() == near(free(robot))


@needs_models
def test_maze_walls() -> None:
    for name in ("block_collision_00", "block_collision_66"):
        wall = standing("h1-maze").data.geom(name).xpos
        robot = placed("h1-maze", wall[0], wall[1])
        assert name in names(robot)
        touching = robot.reward()
        robot.place(robot.qpos + np.r_[0, 0, 9, np.zeros(23)])
        assert robot.contacts() == []
        robot.head[2] -= 9
        assert touching == near(0.1 * robot.reward())


@needs_models
def test_the_floor_is_no_wall() -> None:
    robot = placed("h1-maze", 1, 0, -0.02)
    assert names(robot) == {"floor", ""}
    stand = robot.small_control() * robot.standing() * robot.upright(0.9)
    away = math.dist(robot.imu[:2], (0, 0))
    assert robot.reward() == near(0.2 * stand + 0.4 / 6 + 0.4 * 0.1 ** (away * away))


@needs_models
@pytest.mark.parametrize("task", ["h1-balance-simple", "h1-balance-hard"])
def test_balancing_ends(task: str) -> None:
    robot = placed(task, 0, 0)
    assert {"pivot_sphere_collision", "stand_board_collision"} <= names(robot)
    assert not robot.ended()
    # Standing on the board is the task.
    robot = placed(task, 0, 0, -0.02)
    assert [43, 45] in [sorted(pair) for pair in robot.contacts()]
    assert any(43 in pair and not {0, 45} & set(pair) for pair in robot.contacts())
    assert not robot.ended()
    # A foot on the floor (beside the board, where the pelvis is still high enough).
    robot = placed(task, 3, 0, -0.42)
    assert robot.qpos[2] > 0.8
    assert any(0 in pair and 45 not in pair for pair in robot.contacts())
    assert robot.ended()
    # The board on the floor: only it moves, tilted by 30 degrees.
    robot = standing(task)
    robot.to_keyframe()
    pose = robot.qpos.copy()
    pose[0] = 9
    pose[26:33] = 0, 0, 0.25, math.cos(math.pi / 12), math.sin(math.pi / 12), 0, 0
    robot.place(pose)
    assert [0, 43] in [sorted(pair) for pair in robot.contacts()]
    assert robot.ended()
    # A leg at the sphere, but not at the floor.
    robot = standing(task)
    robot.to_keyframe()
    pose = robot.qpos.copy()
    pose[26:29] = 0, 0, 5
    pose[:3] = -0.05, 0.15, 1.0
    robot.place(pose)
    pairs = [sorted(pair) for pair in robot.contacts()]
    assert any(45 in pair and 0 not in pair for pair in pairs)
    assert not any(pair[0] == 0 and pair[1] != 45 for pair in pairs)
    assert robot.ended()


@needs_models
@pytest.mark.parametrize(
    ("task", "lowest"),
    [
        *((f"h1-{name}", 0.2) for name in ("stand", "walk", "run", "hurdle", "maze")),
        *((f"h1-{name}", 0.5) for name in ("pole", "sit-simple", "sit-hard")),
        *((f"h1-balance-{name}", 0.8) for name in ("simple", "hard")),
    ],
)
def test_falling_ends(task: str, lowest: float) -> None:
    robot = standing(task)
    robot.qpos[2] = lowest
    assert not robot.ended()
    robot.qpos[2] = np.nextafter(lowest, 0)
    assert robot.ended()


# Episodes.


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
        seen = robot.reset()
        starts.append(robot.qpos.copy())
        free = slice(7, None) if task == "h1-sit-hard" else slice(None)
        # Quaternions are normalised; the noise moves them no further than that.
        assert np.abs(robot.qpos - start)[free].max() <= 0.0101
        assert np.abs(robot.qpos - start)[free].max() > 0.008
        assert not robot.qvel.any()
        assert np.array_equal(seen[: robot.model.nq], robot.qpos)
    drawn = np.array(starts)
    assert len(np.unique(drawn[:, 10])) == 20
    if task == "h1-sit-hard":
        assert 0.2 <= drawn[:, 0].min() < 0.25 < 0.35 < drawn[:, 0].max() <= 0.4
        assert -0.15 <= drawn[:, 1].min() < -0.1 < 0.1 < drawn[:, 1].max() <= 0.15
        heading = 2 * np.arctan2(drawn[:, 6], drawn[:, 3])
        assert -1.8 <= heading.min() < -1 < 1 < heading.max() <= 1.8
        assert not drawn[:, 4:6].any()


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
    robot.reset()  # as when the task is made, to learn its size
    assert np.array_equal(task.reset(), robot.reset())
    random = np.random.default_rng(0)
    for _ in range(10):
        action = random.uniform(-1, 1, 19).astype(np.float32)
        observation, reward, ended = task.step(action)
        once = robot.control(action)
        twice = robot.control(action)
        assert np.array_equal(observation, twice[0])
        assert reward == once[1] + twice[1]
        assert not ended


@needs_models
def test_no_action_is_played_after_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    task = humanoid.HumanoidTask(humanoid.make_robot("h1-walk", 3))
    task.reset()
    monkeypatch.setattr(task.robot, "lowest", 1.5)
    played = task.robot.data.time
    _, reward, ended = task.step(REST)
    assert ended
    assert task.robot.data.time - played == pytest.approx(0.02)
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
    # The true successor lies on the floor; the next episode's start stands.
    assert step.next_obs[0, 2] < 0.7 < step.obs[0, 2]


@needs_models
@every_task
def test_play_continues_from_a_checkpoint(task: str, tmp_path: Path) -> None:
    one, two = humanoid.make_robot(task, 1), humanoid.make_robot(task, 2)
    random = np.random.default_rng(0)
    one.reset()
    two.reset()
    for _ in range(12):
        seen, _, _ = one.control(random.uniform(-1, 1, 19))
    checkpoint.save(tmp_path, 1, {"robot": one})
    _, saved = checkpoint.read(checkpoint.newest(tmp_path))
    assert np.array_equal(two.load_state_dict(saved["robot"]), seen)
    # Saved again before a step, the state is the same.
    again = two.state_dict()
    assert np.array_equal(again["observation"], seen)
    assert np.array_equal(again["physics"], saved["robot"]["physics"])
    if task == "h1-maze":
        assert again["stage"] == 1
    for _ in range(12):
        action = random.uniform(-1, 1, 19)
        a, b = one.control(action), two.control(action)
        assert np.array_equal(a[0], b[0])
        assert a[1:] == b[1:]
    assert np.array_equal(one.reset(), two.reset())


@needs_models
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e12])
@pytest.mark.parametrize("array", ["qpos", "qvel"])
def test_physics_that_fails_ends_one_episode(
    value: float, array: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    envs: Any = make("humanoid/h1-walk", 0, 2)
    other = make("humanoid/h1-walk", 0, 2)
    envs.reset()
    other.reset()
    before = envs.step(torch.zeros(2, 19)).obs
    other.step(torch.zeros(2, 19))
    getattr(envs._tasks[0].robot, array)[3] = value
    with pytest.warns(UserWarning, match="environment 0: the simulation of humanoid/h1-walk left"):
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
    assert list(tmp_path.iterdir()) == []  # MuJoCo would write a log


@needs_models
def test_numbers_that_are_not_finite_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    robot: Any = humanoid.make_robot("h1-run", 0)
    robot.reset()
    monkeypatch.setattr(robot, "reward", lambda: math.nan)
    with pytest.raises(PhysicsError, match="the reward of humanoid/h1-run is nan"):
        robot.control(REST)
    # The last physics step of a control step: MuJoCo looks only before each.
    monkeypatch.setattr(robot, "observation", lambda: np.array([0.0, math.inf]))
    with pytest.raises(PhysicsError, match="the simulation of humanoid/h1-run left"):
        robot.control(REST)


@needs_models
def test_seeds_are_spread() -> None:
    envs = make("humanoid/h1-reach", 7, 3)
    alone = [humanoid.make_robot("h1-reach", seed) for seed in spread(7, 3)]
    for robot in alone:
        robot.reset()
    assert torch.equal(envs.reset(), torch.tensor(np.array([r.reset() for r in alone])).float())


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
    robot = envs._tasks[0].robot
    first = envs.render()
    assert (first.shape, first.dtype) == ((480, 640, 3), np.uint8)

    def dark(picture: Any) -> Any:
        """The robot is black, and stands in the middle of a bright floor."""
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


# Names, versions and packages.


def test_tasks_and_unknown_names() -> None:
    assert len(humanoid.tasks()) == len(TASKS) == 14
    with pytest.raises(ValueError, match="no task 'h1-wlk'; did you mean 'h1-walk'"):
        make("humanoid/h1-wlk", 0, 1)
    with pytest.raises(ValueError, match="humanoid has no task 'walk'; it has: h1-stand"):
        humanoid.make("walk", 0, 1)


def test_mujoco_is_loaded_only_to_play() -> None:
    code = (
        "import sys; from hadamard.envs import tasks; import hadamard.envs.humanoid;"
        "assert len(tasks('humanoid')) == 14; print('mujoco' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_mujoco_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "mujoco" else find(name, package),
    )
    with pytest.raises(MissingExtra, match=r"needs mujoco.*hadamard-rl\[humanoid\]"):
        make("humanoid/h1-walk", 0, 1)


@needs_models
@pytest.mark.parametrize(
    ("version", "warned"),
    [("3.2.3", True), ("3.2.4", False), ("3.2.7", False), ("3.3.0", True), ("4.0.0", True)],
)
def test_other_versions_of_mujoco_are_warned_of(
    version: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mujoco

    monkeypatch.setattr(mujoco, "__version__", version)
    humanoid._check_version.cache_clear()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        make("humanoid/h1-stand", 0, 1)
        make("humanoid/h1-stand", 0, 1)
    humanoid._check_version.cache_clear()
    said = [str(warning.message) for warning in heard]
    assert len(said) == warned  # once
    for message in said:
        assert f"mujoco {version}" in message
        assert "pip install 'mujoco==3.2.7'" in message


# The model files. Those here are small; the real ones are only checked.

CONTENTS = {
    "LICENSE": b"do what you want",
    "envs/robot.xml": b"<mujoco/>" * 100,
    "robots/leg.stl": bytes(range(256)) * 1_000,
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of three files, a folder that holds them, and an empty cache; returns the folder."""
    for path, data in CONTENTS.items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / path).write_bytes(data)
    listed = tuple(
        assets.Asset(hashlib.sha256(data).hexdigest(), len(data), path)
        for path, data in CONTENTS.items()
    )
    monkeypatch.setattr(assets, "listed", lambda: listed)
    monkeypatch.setattr(assets, "PAUSES", (0.0, 0.0))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(assets.VARIABLE, raising=False)
    return tmp_path / "source"


def held(place: Path) -> dict[str, bytes]:
    found = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; ``faults`` gives what goes wrong with the next requests of a path."""

    def __init__(self, *args: Any, faults: dict[str, list[str]], asked: list[str], **options: Any):
        self.faults, self.asked = faults, asked
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        self.asked.append(self.path)
        planned = self.faults.get(self.path, [])
        fault = planned.pop(0) if planned else ""
        if fault.isdigit():
            self.send_error(int(fault))
            return
        if not fault:
            super().do_GET()
            return
        data = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == "corrupted":
            self.wfile.write(data[:-1] + b"?")
        elif fault == "truncated":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        else:
            raise AssertionError(fault)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serve(folder: Path, faults: dict[str, list[str]], asked: list[str]) -> Iterator[str]:
    handler = functools.partial(Server, directory=str(folder), faults=faults, asked=asked)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@needs_models
def test_the_list_is_of_the_real_files() -> None:
    assert len(assets.listed()) == 55
    assert [asset.path for asset in assets.listed()] == sorted(a.path for a in assets.listed())
    assert assets.check() == []
    models = {f"envs/h1_pos_{name.replace('-', '_')}.xml" for name in TASKS}
    assert models == {a.path for a in assets.listed() if a.path.startswith("envs/")}


def test_the_address_is_the_public_repositorys() -> None:
    assert assets.SOURCE.startswith("https://raw.githubusercontent.com/carlosferrazza/humanoid-b")
    assert len(assets.COMMIT) == 40
    assert f"/{assets.COMMIT}/humanoid_bench/assets" in assets.SOURCE


def test_download_from_a_folder(small: Path) -> None:
    with pytest.raises(assets.AssetsError, match=r"robot.xml is missing.*hadamard assets human"):
        assets.locate()
    told: list[tuple[int, int]] = []
    place = assets.download(str(small), lambda here, total: told.append((here, total)))
    assert held(place) == CONTENTS
    assert assets.locate() == place == assets.folder()
    assert place.name == assets.COMMIT
    assert assets.check() == []
    assert told[-1] == (sum(map(len, CONTENTS.values())),) * 2
    assert len(told) == 3
    # A file:// address is a folder too, and what is here is not fetched again.
    (small / "robots/leg.stl").unlink()
    assert assets.download(small.as_uri()) == place
    (place / "envs/robot.xml").unlink()
    assets.download(small.as_uri() + "/")
    assert held(place) == CONTENTS


def test_download_from_a_clone(small: Path, tmp_path: Path) -> None:
    # There, the licence lies at the top.
    inside = tmp_path / "clone" / "humanoid_bench" / "assets"
    shutil.copytree(small, inside)
    (inside / "LICENSE").rename(tmp_path / "clone" / "LICENSE")
    assert held(assets.download(str(inside))) == CONTENTS


def test_damage_is_found_and_mended(small: Path) -> None:
    place = assets.download(str(small))
    leg = place / "robots/leg.stl"
    leg.write_bytes(CONTENTS["robots/leg.stl"][:-5])
    with pytest.raises(assets.AssetsError, match=r"leg.stl is damaged: it has 255,995 bytes inst"):
        assets.locate()
    # The quick look does not see this; the thorough one does.
    leg.write_bytes(b"?" + CONTENTS["robots/leg.stl"][1:])
    assets.locate()
    assert assets.check() == [f"{leg} is damaged: its SHA-256 is wrong"]
    assets.download(str(small))
    assert assets.check() == []
    # The licence is not needed to play.
    (place / "LICENSE").unlink()
    assets.locate()
    assert assets.check() == [f"{place / 'LICENSE'} is missing"]


def test_the_variable_names_the_folder(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(assets.VARIABLE, str(small))
    assert assets.locate() == small
    assert suites.trouble("humanoid") is None
    monkeypatch.setenv(assets.VARIABLE, str(small / "nowhere"))
    with pytest.raises(assets.AssetsError, match=rf"nowhere/envs/robot.xml is.*{assets.VARIABLE}"):
        assets.locate()
    assert cli.main(["envs"]) == 0
    assert "nowhere/envs/robot.xml is missing" in capsys.readouterr().out


@pytest.mark.parametrize("fault", ["corrupted", "truncated", "500", "429"])
def test_a_passing_fault_is_tried_again(small: Path, fault: str) -> None:
    faults, asked = {"/envs/robot.xml": [fault, fault]}, list[str]()
    with serve(small, faults, asked) as address:
        place = assets.download(address)
    assert held(place) == CONTENTS
    assert asked == ["/LICENSE", *["/envs/robot.xml"] * 3, "/robots/leg.stl"]


@pytest.mark.parametrize(
    ("fault", "message", "requests"),
    [
        ("corrupted", "leg.stl came damaged: its SHA-256 is wrong", 3),
        ("truncated", "leg.stl came damaged", 3),
        ("503", "leg.stl cannot be read: HTTP Error 503", 3),
        ("404", "leg.stl cannot be read: HTTP Error 404", 1),
    ],
)
def test_a_download_that_fails_half_way_goes_on(
    small: Path, fault: str, message: str, requests: int
) -> None:
    faults, asked = {"/robots/leg.stl": [fault] * requests}, list[str]()
    with serve(small, faults, asked) as address:
        with pytest.raises(assets.AssetsError, match=rf"{message}.*stays.*--source"):
            assets.download(address)
        assert asked.count("/robots/leg.stl") == requests
        # What came whole stays, and nothing else is there.
        whole = {path: CONTENTS[path] for path in ("LICENSE", "envs/robot.xml")}
        assert held(assets.folder()) == whole
        asked.clear()
        assert held(assets.download(address)) == CONTENTS
    assert asked == ["/robots/leg.stl"]


def test_a_dead_server_and_wrong_sources(small: Path) -> None:
    with serve(small, {}, []) as address:
        pass
    with pytest.raises(assets.AssetsError, match="LICENSE cannot be read.*refused"):
        assets.download(address)
    with pytest.raises(assets.AssetsError, match="nowhere is no folder and no http"):
        assets.download(str(small / "nowhere"))
    with pytest.raises(assets.AssetsError, match="LICENSE cannot be read.*No such file"):
        assets.download((small / "nowhere").as_uri())


def test_a_full_disk_is_no_fault_of_the_server(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        assets.download(str(small))
    assert held(assets.folder()) == {}


def test_the_command(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        code = cli.main(["assets", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    code, out, _ = run()
    assert code == 0
    assert "3 missing or damaged" in out
    code, _, err = run("humanoidbench", "--check")
    assert code == 1
    assert "LICENSE is missing, and 2 more files like it. Fetch them with: hadamard assets" in err
    code, out, _ = run("humanoidbench", "--source", str(small))
    assert code == 0
    assert f"3 files, 0.3 MB, all verified, in {assets.folder()}" in out
    assert "\r" not in out
    code, out, _ = run("humanoidbench", "--check")
    assert (code, out.count("\n")) == (0, 1)
    assert "all there" in run()[1]
    code, _, err = run("humanoidbnch")
    assert code == 2
    assert "did you mean 'humanoidbench'" in err


def test_a_terminal_sees_the_bytes(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cli.main(["assets", "humanoidbench", "--source", str(small)])
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert lines[1:4] == ["\r", "0.0 of 0.3 MB\r", "0.0 of 0.3 MB\r"]
    assert lines[4] == "0.3 of 0.3 MB\n"


def test_missing_files_are_named_where_they_are_needed(small: Path) -> None:
    if suites.missing("humanoid"):
        pytest.skip("needs the humanoid extra")
    for workers in (0, 2):  # and not by a worker
        with pytest.raises(
            assets.AssetsError, match=r"robot.xml is missing.*hadamard assets human"
        ):
            make("humanoid/h1-walk", 0, 2, workers=workers)
    assert suites.install_command("humanoid").endswith("&& hadamard assets humanoidbench")


def test_every_task_has_a_reward() -> None:
    assert all(task.reward is not Robot.reward for task in TASKS.values())
