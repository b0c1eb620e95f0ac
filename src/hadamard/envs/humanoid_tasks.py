"""The tasks of HumanoidBench for the H1: their rewards, and when an episode ends.

Rewards are those of single control steps; action repeat and time limit are in ``humanoid.py``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hadamard.core.types import State
from hadamard.envs.humanoid_robot import HEAD_HEIGHT, Robot, Vector, tolerance

_FLOOR = 0
"""The floor's number among the geoms."""
_TOUCH_FACTOR = 0.1
"""Factor on the reward while the robot touches an obstacle."""


class Stand(Robot):
    """Stand still."""

    min_pelvis_height = 0.2

    def reward(self) -> float:
        """Reward standing upright and at rest, with little force."""
        return self.small_control() * self.standing() * self.upright(0.9) * self.dont_move()


class Walk(Robot):
    """Walk forward."""

    min_pelvis_height = 0.2
    speed = 1.0

    def reward(self) -> float:
        """Reward standing upright and moving, with little force."""
        return self.small_control() * self.standing() * self.upright(0.9) * self.move(self.speed)


class Run(Walk):
    """Run forward."""

    speed = 5.0


class Hurdle(Robot):
    """Run over hurdles, away from the barriers at the sides and behind."""

    min_pelvis_height = 0.2

    def __init__(self, name: str, model: Any, seed: int) -> None:
        super().__init__(name, model, seed)
        sides = ("left", "right", "behind")
        self._barriers = self.geom_numbers(f"{side}_barrier_collision" for side in sides)

    def reward(self) -> float:
        """Reward running; less while a barrier is touched."""
        touched = any(not self._barriers.isdisjoint(pair) for pair in self.contacts())
        factor = _TOUCH_FACTOR if touched else 1.0
        return self.small_control() * self.standing() * self.upright(0.8) * self.move(5.0) * factor


class Crawl(Robot):
    """Crawl through a tunnel; outside it there is no reward. Episodes never terminate."""

    quat = np.array([0.75, 0.0, 0.65, 0.0])

    def reward(self) -> float:
        """Reward being low, moving and bent forward, inside the tunnel."""
        low = (0.6, 1.0)
        bent = float(np.linalg.norm(self.pelvis_quat - self.quat))
        inside = tolerance(self.imu.item(1), (-1.0, 1.0))
        return inside * (
            0.1 * self.small_control()
            + 0.25 * min(tolerance(self.imu.item(2), low, 1), tolerance(self.head.item(2), low, 1))
            + 0.4 * self.move(1.0)
            + 0.25 * tolerance(bent, margin=1)
        )


class Climb(Robot):
    """Walk up and down stairs or slides."""

    def reward(self) -> float:
        """Reward a head high above both feet, upright and moving, with little force."""
        tall, head = (1.2, math.inf), self.head.item(2)
        return (
            self.small_control()
            * self.move(1.0)
            * self.upright(0.5)
            * tolerance(head - self.left_foot.item(2), tall, 0.45)
            * tolerance(head - self.right_foot.item(2), tall, 0.45)
        )

    def ended(self) -> bool:
        """Return whether the torso lies down."""
        return self.up < 0.1


class Pole(Robot):
    """Walk between poles."""

    min_pelvis_height = 0.5

    def __init__(self, name: str, model: Any, seed: int) -> None:
        super().__init__(name, model, seed)
        names = (model.geom(number).name for number in range(model.ngeom))
        self._poles = self.geom_numbers(geom for geom in names if "pole_r" in geom)

    def reward(self) -> float:
        """Reward standing and moving; less while a pole is touched."""
        touched = any(
            _FLOOR not in pair and not self._poles.isdisjoint(pair) for pair in self.contacts()
        )
        stand = self.small_control() * self.standing() * self.upright(0.9)
        return (0.5 * stand + 0.5 * self.move(0.5)) * (_TOUCH_FACTOR if touched else 1.0)


class Sit(Robot):
    """Sit down on the chair behind."""

    min_pelvis_height = 0.5

    def __init__(self, name: str, model: Any, seed: int) -> None:
        super().__init__(name, model, seed)
        self.chair = self.data.body("chair").xpos

    def reward(self) -> float:
        """Reward sitting at the seat's height and place, upright and at rest, with little force."""
        x, y, z = self.qpos[:3].tolist()
        posture = tolerance(self.head.item(2) - self.imu.item(2), (0.35, 0.45), 0.3)
        on_chair = tolerance(x - self.chair.item(0), (-0.19, 0.19), 0.2)
        on_chair *= tolerance(y - self.chair.item(1), margin=0.1)
        return (
            self.small_control()
            * self.dont_move()
            * self.upright(0.95, margin=0.9)
            * posture
            * (0.5 * tolerance(z, (0.68, 0.72), 0.2) + 0.5 * on_chair)
        )


class SitHard(Sit):
    """Sit down on a movable chair, from a random place and heading in front of it."""

    def begin(self) -> None:
        """Draw the robot's place and heading."""
        qpos = self.qpos.copy()
        qpos[0] = self.random.uniform(0.2, 0.4)
        qpos[1] = self.random.uniform(-0.15, 0.15)
        heading = self.random.uniform(-1.8, 1.8)
        qpos[3:7] = math.cos(heading / 2), 0, 0, math.sin(heading / 2)
        self.place(qpos)


class Balance(Robot):
    """Stand on a board on a sphere, which is fixed (simple) or rolls (hard)."""

    min_pelvis_height = 0.8

    def __init__(self, name: str, model: Any, seed: int) -> None:
        super().__init__(name, model, seed)
        (self._sphere,) = self.geom_numbers(["pivot_sphere_collision"])
        (self._board,) = self.geom_numbers(["stand_board_collision"])

    def reward(self) -> float:
        """Reward standing still, at the board's height."""
        high = HEAD_HEIGHT + 0.37
        return self.small_control() * self.dont_move() * self.upright(0.9) * self.standing(high)

    def ended(self) -> bool:
        """Return whether the robot fell, or it or the board touches what they should not."""
        if super().ended():
            return True
        for pair in self.contacts():
            if self._sphere in pair:
                if _FLOOR not in pair and self._board not in pair:
                    return True
            elif _FLOOR in pair:
                return True
        return False


class Reach(Robot):
    """Bring the left hand to a point in space. Episodes never terminate."""

    goal: Vector

    def __init__(self, name: str, model: Any, seed: int) -> None:
        super().__init__(name, model, seed)
        self.goal = np.zeros(3)
        self.pelvis_rotation: Vector = self.data.body(1).xmat

    def begin(self) -> None:
        """Draw the point to reach."""
        self.goal = self.random.uniform((-2.0, -2.0, 0.2), (2.0, 2.0, 2.0))

    def observation(self) -> Vector:
        """Return positions, velocities, the hand's place and the point to reach."""
        return np.concatenate((self.qpos, self.qvel, self.left_hand, self.goal))

    def reward(self) -> float:
        """Reward being upright, slow, and near the point."""
        distance = math.dist(self.left_hand.tolist(), self.goal.tolist())
        return (
            5 * self.pelvis_rotation.item(8)
            - 0.0001 * float(np.square(self.qvel).sum())
            + 5 * (distance < 1)
            + 10 * (distance < 0.05)
        )

    def state_dict(self) -> State:
        """Return the state, with the point to reach."""
        return {**super().state_dict(), "goal": self.goal.copy()}

    def load_state_dict(self, state: State) -> Vector:
        """Load a state."""
        self.goal = np.array(state["goal"])
        return super().load_state_dict(state)


class Maze(Robot):
    """Walk from checkpoint to checkpoint, along the walls of a maze."""

    min_pelvis_height = 0.2
    checkpoints = ((0.0, 0.0), (3.0, 0.0), (3.0, 6.0), (6.0, 6.0), (6.0, 6.0))
    directions = ((1, 0), (1, 0), (0, 1), (1, 0), (0, 1))
    """Direction (x, y) of each stage: first +x, then +x, +y, +x and +y in turn."""
    last_stage = 4

    def __init__(self, name: str, model: Any, seed: int) -> None:
        super().__init__(name, model, seed)
        self.stage = 0
        (self._first_wall,) = self.geom_numbers(["block_collision_00"])

    def begin(self) -> None:
        """Start at the first checkpoint."""
        self.stage = 0

    def reward(self) -> float:
        """Reward following the maze; less while a wall is touched; a bonus at each checkpoint."""
        bonus = self._advance()
        factor = (
            _TOUCH_FACTOR if any(max(pair) >= self._first_wall for pair in self.contacts()) else 1.0
        )
        stand = self.standing() * self.upright(0.9) * self.small_control()
        near = tolerance(self._distance(self.imu), margin=1)
        return (0.2 * stand + 0.4 * self._follow() + 0.4 * near) * factor + bonus

    def _advance(self) -> float:
        """Move to the next checkpoint if this one is reached; return the bonus."""
        if self.stage == self.last_stage or self._distance(self.pelvis) >= 0.4:
            return 0.0
        self.stage += 1
        return 100.0 * self.stage

    def _follow(self) -> float:
        if self.stage == self.last_stage:
            return 1.0
        x, y = self.directions[self.stage]
        following = tolerance(self.velocity.item(0) - 2 * x, (0, 0), 1, "linear")
        following *= tolerance(self.velocity.item(1) - 2 * y, (0, 0), 1, "linear")
        return (5 * following + 1) / 6

    def _distance(self, point: Vector) -> float:
        return math.dist(point[:2].tolist(), self.checkpoints[self.stage])

    def state_dict(self) -> State:
        """Return the state, with the stage."""
        return {**super().state_dict(), "stage": self.stage}

    def load_state_dict(self, state: State) -> Vector:
        """Load a state."""
        self.stage = state["stage"]
        return super().load_state_dict(state)


TASKS: dict[str, type[Robot]] = {
    "stand": Stand,
    "walk": Walk,
    "run": Run,
    "hurdle": Hurdle,
    "crawl": Crawl,
    "maze": Maze,
    "pole": Pole,
    "reach": Reach,
    "sit-simple": Sit,
    "sit-hard": SitHard,
    "slide": Climb,
    "stair": Climb,
    "balance-simple": Balance,
    "balance-hard": Balance,
}
"""The tasks by name; the model's file has ``_`` instead of ``-``."""
