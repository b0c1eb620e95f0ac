"""HumanoidBench's robot: the terms of rewards."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hadamard.envs import humanoid
from hadamard.envs.humanoid_robot import tolerance
from tests.support.humanoid import near, needs_models, standing


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


def test_tolerance_equals_dm_controls() -> None:
    rewards = pytest.importorskip("dm_control.utils.rewards")
    random = np.random.default_rng(0)
    for _ in range(500):
        lower, x = random.normal(size=2).tolist()
        bounds, margin = (lower, lower + random.exponential()), random.exponential()
        for shape, at_margin in (("gaussian", 0.1), ("linear", 0)):
            theirs = rewards.tolerance(x, bounds, margin, shape, at_margin)
            assert tolerance(x, bounds, margin, shape) == near(theirs)  # type: ignore[arg-type]


@needs_models
def test_terms_of_rewards() -> None:
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
def test_terms_read_the_right_parts_of_the_robot() -> None:
    robot: Any = humanoid.make_robot("h1-stand", 0)
    robot.to_keyframe()
    pose = robot.qpos.copy()
    assert pose[2] == 0.98
    # The head is 0.7 above the pelvis.
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
