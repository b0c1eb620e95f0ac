"""HumanoidBench's rewards and ends, computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hadamard.envs.humanoid_robot import Robot
from hadamard.envs.humanoid_tasks import TASKS
from tests.support.humanoid import near, needs_models, standing

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
        # Only the torso's tilt ends the episode, however low the robot is.
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
        # The posture is a difference of heights, which costs digits.
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
    # The hand and the point come after positions and velocities.
    assert robot.observation()[51:].tolist() == [1, 1, 1, 9, 9, 9]


@needs_models
def test_the_maze() -> None:
    robot = standing("h1-maze")
    robot.place(robot.qpos + np.r_[0, 0, 9, np.zeros(23)])  # above the walls: no contact
    assert robot.contacts() == []
    robot.force[:] = 0
    robot.torso_rotation[8] = 1

    def at(x: float, y: float, vx: float = 0.0, vy: float = 0.0) -> float:
        """Return the reward at a place, without the constant part for standing."""
        robot.pelvis[:2] = robot.imu[:2] = x, y
        robot.velocity[:2] = vx, vy
        reward: float = robot.reward()
        return reward - 0.2

    def follow(following: float, distance: float) -> Any:
        return near(0.4 * (5 * following + 1) / 6 + 0.4 * 0.1 ** (distance * distance))

    robot.stage = 0
    # First to +x, at 2 m/s. A checkpoint is reached within less than 0.4.
    assert at(0.4, 0, 2, 0) == follow(1, 0.4)
    assert robot.stage == 0
    assert at(0.5, 0, 1.5, 0.5) == follow(0.25, 0.5)
    # Reached: the next stage counts at once, and there is a bonus.
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
    # The last stage has no direction and no bonus.
    assert at(6, 6, 0, 0) - 400 == follow(1, 0)
    assert robot.stage == 4
    assert at(6, 6, -9, 9) == follow(1, 0)
    assert at(6, 5, 0, 0) == follow(1, 1)
    assert robot.stage == 4
    robot.reset()
    assert robot.stage == 0
    # The pelvis reaches the checkpoint; the distance is that of the sensor in the torso.
    robot.stage = 1
    robot.pelvis[:2], robot.imu[:2] = (0, 0), (3, 0)
    reward_at_checkpoint = robot.reward()
    robot.imu[:2] = 2, 0
    assert reward_at_checkpoint - robot.reward() == near(0.4 * 0.9)
    assert robot.stage == 1


def moved(task: str, x: float, y: float, z: float = 0.0) -> Any:
    """Return a robot moved away from its keyframe."""
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
    robot = moved("h1-hurdle", *place)
    assert names(robot) - {""} == ({touched} if touched else set())
    free = robot.small_control() * robot.standing() * robot.upright(0.8) * robot.move(5.0)
    assert free > 0.1
    assert robot.reward() == near(free * (0.1 if "barrier" in touched else 1))


@needs_models
def test_touching_a_hurdle_costs_nothing() -> None:
    # The first hurdle is 5 m away and has no name.
    for x in np.arange(2, 8, 0.1):
        robot = moved("h1-hurdle", x, 0, 0.1)
        if robot.contacts():
            free = robot.small_control() * robot.standing() * robot.upright(0.8) * robot.move(5.0)
            assert robot.reward() == near(free)
            return
    pytest.fail("no hurdle was touched")


@needs_models
def test_poles() -> None:
    def free(robot: Any) -> float:
        stand = robot.small_control() * robot.standing() * robot.upright(0.9)
        return float(0.5 * stand + 0.5 * robot.move(0.5))

    pole = standing("h1-pole").data.geom("pole_r3_c2").xpos
    robot = moved("h1-pole", pole[0], pole[1], 0.3)
    assert names(robot) - {""} == {"pole_r3_c2"}
    assert robot.reward() == near(0.1 * free(robot))
    # A contact of a pole with the floor does not count.
    number = robot.model.geom("pole_r3_c2").id
    for pairs, factor in (([[0, number]], 1), ([[0, number], [5, number]], 0.1), ([[0, 5]], 1)):
        robot.contacts = lambda pairs=pairs: pairs
        assert robot.reward() == near(factor * free(robot))
    # Neither floor nor barrier is a pole.
    robot = moved("h1-pole", 0.3, 0, -0.02)
    assert "floor" in names(robot)
    assert robot.reward() == near(free(robot))
    robot = moved("h1-pole", 1.0, 3.1, 0.3)
    assert robot.contacts()
    assert names(robot) == {""}
    assert robot.reward() == near(free(robot))


@needs_models
def test_maze_walls() -> None:
    for name in ("block_collision_00", "block_collision_66"):
        wall = standing("h1-maze").data.geom(name).xpos
        robot = moved("h1-maze", wall[0], wall[1])
        assert name in names(robot)
        touching = robot.reward()
        robot.place(robot.qpos + np.r_[0, 0, 9, np.zeros(23)])
        assert robot.contacts() == []
        robot.head[2] -= 9
        assert touching == near(0.1 * robot.reward())


@needs_models
def test_the_floor_is_not_a_wall() -> None:
    robot = moved("h1-maze", 1, 0, -0.02)
    assert names(robot) == {"floor", ""}
    stand = robot.small_control() * robot.standing() * robot.upright(0.9)
    away = math.dist(robot.imu[:2], (0, 0))
    assert robot.reward() == near(0.2 * stand + 0.4 / 6 + 0.4 * 0.1 ** (away * away))


@needs_models
@pytest.mark.parametrize("task", ["h1-balance-simple", "h1-balance-hard"])
def test_balancing_ends(task: str) -> None:
    robot = moved(task, 0, 0)
    assert {"pivot_sphere_collision", "stand_board_collision"} <= names(robot)
    assert not robot.ended()
    # Standing on the board is the task.
    robot = moved(task, 0, 0, -0.02)
    assert [43, 45] in [sorted(pair) for pair in robot.contacts()]
    assert any(43 in pair and not {0, 45} & set(pair) for pair in robot.contacts())
    assert not robot.ended()
    # A foot on the floor (beside the board, where the pelvis is still high enough).
    robot = moved(task, 3, 0, -0.42)
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
    # A leg touches the sphere, but not the floor.
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
    ("task", "height"),
    [
        *((f"h1-{name}", 0.2) for name in ("stand", "walk", "run", "hurdle", "maze")),
        *((f"h1-{name}", 0.5) for name in ("pole", "sit-simple", "sit-hard")),
        *((f"h1-balance-{name}", 0.8) for name in ("simple", "hard")),
    ],
)
def test_falling_ends(task: str, height: float) -> None:
    robot = standing(task)
    robot.qpos[2] = height
    assert not robot.ended()
    robot.qpos[2] = np.nextafter(height, 0)
    assert robot.ended()


def test_every_task_has_a_reward() -> None:
    assert all(task.reward is not Robot.reward for task in TASKS.values())
