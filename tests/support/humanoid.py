"""HumanoidBench's robot in a chosen pose."""

from __future__ import annotations

from typing import Any

import pytest

from hadamard import envs as suites
from hadamard.envs import humanoid
from hadamard.envs import humanoid_assets as assets


def missing() -> str:
    """Return what is missing to play HumanoidBench here; empty if nothing is."""
    if suites.missing("humanoid"):
        return "needs the humanoid extra"
    try:
        assets.locate()
    except assets.AssetsError as error:
        return str(error)
    return ""


needs_models = pytest.mark.skipif(bool(missing()), reason=missing())


def standing(task: str) -> Any:
    """Return a robot in the keyframe's pose, at rest, with no forces; its arrays can be set."""
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
