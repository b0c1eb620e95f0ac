"""The H1 robot in MuJoCo: one control step (1/50 s) at a time, and the terms of rewards.

Three details of the public package are reproduced, because contacts amplify a difference in the
last digit into a visible one within a second:

- Rewards read MuJoCo's data right after a step. ``qpos`` and ``qvel`` are current; sites, bodies,
  contacts, forces and sensors are those of 2 ms earlier.
- An action is mapped to the control range with limits rounded to float32.
- A reset computes the forces of the keyframe before those of the noisy start, because the solver
  of the first step starts from them.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hadamard.core.types import State
from hadamard.envs.batch import PhysicsError

PHYSICS_STEPS = 10
"""Physics steps of 2 ms in a control step."""
NOISE = 0.01
"""Uniform noise on every position at a reset."""
HEAD_HEIGHT = 1.65
"""Height of a standing robot's head."""

Vector = NDArray[np.float64]


def tolerance(
    x: float,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    shape: Literal["gaussian", "linear"] = "gaussian",
) -> float:
    """Return 1 inside the bounds, and less with distance from them.

    At a distance of ``margin``, the value is 0.1 (gaussian) or 0 (linear).

    Examples:
        >>> tolerance(1.2, (1.0, 1.5), 0.5), tolerance(1.75, (1.0, 1.5), 0.5, "linear")
        (1.0, 0.5)
    """
    lower, upper = bounds
    if lower <= x <= upper:
        return 1.0
    if margin == 0:
        return 0.0
    distance = (lower - x if x < lower else x - upper) / margin
    if shape == "linear":
        return max(1.0 - distance, 0.0)
    return math.exp(math.log(0.1) * distance * distance)


class Robot(ABC):
    """An H1 in the world of one task. It neither resets itself nor has a time limit."""

    min_pelvis_height = -math.inf
    """Height of the pelvis below which an episode ends."""
    goal: Vector | None = None
    """The point in space to reach, in tasks that have one."""

    def __init__(self, name: str, model: Any, seed: int) -> None:
        import mujoco

        self.name = name
        self.model = model
        self.data = mujoco.MjData(model)
        self.random = np.random.default_rng(seed)
        self._mujoco = mujoco
        if mujoco.get_mju_user_warning() is None:
            # By default MuJoCo writes warnings to a file in the current folder.
            mujoco.set_mju_user_warning(logging.getLogger(__name__).warning)
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        self._low, self._span = low, high - low
        self._observation: Vector = np.zeros(0)
        kinds = mujoco.mjtWarning
        fatal = (kinds.mjWARN_BADQPOS, kinds.mjWARN_BADQVEL, kinds.mjWARN_BADQACC)
        self._fatal = np.array([int(kind) for kind in fatal])
        # Views of MuJoCo's memory, so that no name is looked up at every step.
        data = self.data
        self.qpos: Vector = data.qpos
        self.qvel: Vector = data.qvel
        self.force: Vector = data.actuator_force
        self.velocity: Vector = data.sensor("pelvis_subtreelinvel").data
        self.torso_rotation: Vector = data.body("torso_link").xmat
        self.pelvis: Vector = data.body("pelvis").xpos
        self.pelvis_quat: Vector = data.body("pelvis").xquat
        self.head, self.imu = self._site("head"), self._site("imu")
        self.left_foot, self.right_foot = self._site("left_foot"), self._site("right_foot")
        self.left_hand = self._site("left_hand")

    def _site(self, name: str) -> Vector:
        position: Vector = self.data.site(name).xpos
        return position

    @abstractmethod
    def reward(self) -> float:
        """Return the reward of the control step just played."""

    def ended(self) -> bool:
        """Return whether the task is over: by default, whether the robot fell."""
        return self.qpos.item(2) < self.min_pelvis_height

    def begin(self) -> None:  # noqa: B027 - most tasks have none
        """Draw a task's random variables, apart from the noise on positions."""

    def observation(self) -> Vector:
        """Return all positions and velocities."""
        return np.concatenate((self.qpos, self.qvel))

    def reset(self) -> Vector:
        """Start an episode."""
        self.to_keyframe()
        self.place(self.qpos + self.random.uniform(-NOISE, NOISE, size=self.model.nq))
        self.begin()
        self._observation = self.observation()
        return self._observation

    def to_keyframe(self) -> None:
        """Take the pose of the model's keyframe."""
        self._mujoco.mj_resetDataKeyframe(self.model, self.data, 0)
        self._mujoco.mj_forward(self.model, self.data)

    def place(self, qpos: Vector) -> None:
        """Set all positions."""
        self.qpos[:] = qpos
        self._mujoco.mj_forward(self.model, self.data)

    def control(self, action: NDArray[Any]) -> tuple[Vector, float, bool]:
        """Play one control step; return the observation, the reward and whether it ended."""
        self.data.ctrl[:] = (action + 1) / 2 * self._span + self._low
        self._mujoco.mj_step(self.model, self.data, PHYSICS_STEPS)
        self._observation = self.observation()
        # MuJoCo resets a simulation that is no longer finite and continues: read its warnings.
        if self.data.warning.number[self._fatal].any():
            raise PhysicsError("the simulation is no longer finite")
        return self._observation, self.reward(), self.ended()

    def state_dict(self) -> State:
        """Return the physics, the last observation and the random generator."""
        state_kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.empty(self._mujoco.mj_stateSize(self.model, state_kind))
        self._mujoco.mj_getState(self.model, self.data, physics, state_kind)
        return {
            "physics": physics,
            "observation": self._observation.copy(),
            "random": self.random.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> Vector:
        """Load a state; return the observation to act on."""
        state_kind = self._mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.asarray(state["physics"])
        self._mujoco.mj_resetData(self.model, self.data)
        self._mujoco.mj_setState(self.model, self.data, physics, state_kind)
        self._mujoco.mj_forward(self.model, self.data)  # for pictures
        # mj_forward normalizes quaternions and may change the solver's start: set the state again.
        self._mujoco.mj_setState(self.model, self.data, physics, state_kind)
        self.random.bit_generator.state = state["random"]
        self._observation = np.array(state["observation"])
        return self._observation

    @property
    def up(self) -> float:
        """Return how far the torso points upwards, from -1 to 1."""
        return self.torso_rotation.item(8)

    def upright(self, threshold: float, margin: float = 1.9) -> float:
        """Return 1 if the torso is upright."""
        return tolerance(self.up, (threshold, math.inf), margin, "linear")

    def standing(self, height: float = HEAD_HEIGHT) -> float:
        """Return 1 if the head is high enough."""
        return tolerance(self.head.item(2), (height, math.inf), HEAD_HEIGHT / 4)

    def small_control(self) -> float:
        """Return 1 if the motors exert no force, at least 0.8: a mean of quadratic tolerances."""
        terms = np.maximum(1 - np.square(self.force / 10), 0)
        return (4 + float(terms.sum()) / len(terms)) / 5

    def move(self, speed: float) -> float:
        """Return 1 at this forward speed or above, at least 1/6."""
        return (5 * tolerance(self.velocity.item(0), (speed, math.inf), speed, "linear") + 1) / 6

    def dont_move(self) -> float:
        """Return 1 if the center of mass does not move horizontally."""
        x, y = self.velocity.item(0), self.velocity.item(1)
        return (tolerance(x, margin=2) + tolerance(y, margin=2)) / 2

    def contacts(self) -> list[list[int]]:
        """Return the pairs of geoms that touch."""
        pairs: list[list[int]] = self.data.contact.geom.tolist()
        return pairs

    def geom_numbers(self, names: Iterable[str]) -> frozenset[int]:
        """Return the numbers of the named geoms."""
        return frozenset(self.model.geom(name).id for name in names)
