"""The H1 robot in MuJoCo: one control step (1/50 s) at a time, and what rewards are made of.

Three habits of the public package are kept, because contacts turn a difference in the last digit
into one that can be seen within a second:

- Rewards read what MuJoCo leaves behind after a step. ``qpos`` and ``qvel`` are new; sites,
  bodies, contacts, forces and sensors are of the moment before, 2 ms ago.
- An action is mapped to the control range with limits rounded to float32.
- A reset computes the forces of the bare keyframe before those of the noisy start: the first
  step's solver begins from them.
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
"""Where the head of a standing robot is."""

Vector = NDArray[np.float64]


def tolerance(
    x: float,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    shape: Literal["gaussian", "linear"] = "gaussian",
) -> float:
    """Return 1 inside the bounds, and less the further outside.

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
    """An H1 in the world of one task. It never resets itself and knows of no time limit."""

    lowest = -math.inf
    """Height of the pelvis below which an episode ends."""
    goal: Vector | None = None
    """A point in space that the task is about, where there is one."""

    def __init__(self, name: str, model: Any, seed: int) -> None:
        import mujoco

        self.name = name
        self.model = model
        self.data = mujoco.MjData(model)
        self.random = np.random.default_rng(seed)
        self._mujoco = mujoco
        if mujoco.get_mju_user_warning() is None:
            # MuJoCo would write MUJOCO_LOG.TXT into the current folder.
            mujoco.set_mju_user_warning(logging.getLogger(__name__).warning)
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        self._low, self._span = low, high - low
        self._seen: Vector = np.zeros(0)
        kinds = mujoco.mjtWarning
        bad = (kinds.mjWARN_BADQPOS, kinds.mjWARN_BADQVEL, kinds.mjWARN_BADQACC)
        self._bad = np.array([int(kind) for kind in bad])
        # MuJoCo's own memory, found once: no name is looked up while playing.
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
        return self.qpos.item(2) < self.lowest

    def begin(self) -> None:  # noqa: B027 - most tasks draw nothing
        """Draw what differs between a task's episodes besides the noise."""

    def observation(self) -> Vector:
        """Return all positions and velocities."""
        return np.concatenate((self.qpos, self.qvel))

    def reset(self) -> Vector:
        """Start an episode."""
        self.to_keyframe()
        self.place(self.qpos + self.random.uniform(-NOISE, NOISE, size=self.model.nq))
        self.begin()
        self._seen = self.observation()
        return self._seen

    def to_keyframe(self) -> None:
        """Stand as the model's file says."""
        self._mujoco.mj_resetDataKeyframe(self.model, self.data, 0)
        self._mujoco.mj_forward(self.model, self.data)

    def place(self, qpos: Vector) -> None:
        """Move everything to these positions."""
        self.qpos[:] = qpos
        self._mujoco.mj_forward(self.model, self.data)

    def control(self, action: NDArray[Any]) -> tuple[Vector, float, bool]:
        """Play one control step; return the observation, the reward and whether it ended."""
        self.data.ctrl[:] = (action + 1) / 2 * self._span + self._low
        self._mujoco.mj_step(self.model, self.data, PHYSICS_STEPS)
        self._seen = self.observation()
        # MuJoCo puts a robot that has left the finite numbers back to its start, and goes on.
        if self.data.warning.number[self._bad].any() or not np.isfinite(self._seen).all():
            raise PhysicsError(f"the simulation of {self.name} left the finite numbers")
        reward = self.reward()
        if not math.isfinite(reward):
            raise PhysicsError(f"the reward of {self.name} is {reward}")
        return self._seen, reward, self.ended()

    def state_dict(self) -> State:
        """Return the physics, what was seen last and the random generator."""
        everything = self._mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.empty(self._mujoco.mj_stateSize(self.model, everything))
        self._mujoco.mj_getState(self.model, self.data, physics, everything)
        return {
            "physics": physics,
            "observation": self._seen.copy(),
            "random": self.random.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> Vector:
        """Return to that state, and return what was seen there."""
        everything = self._mujoco.mjtState.mjSTATE_INTEGRATION
        physics = np.asarray(state["physics"])
        self._mujoco.mj_resetData(self.model, self.data)
        self._mujoco.mj_setState(self.model, self.data, physics, everything)
        self._mujoco.mj_forward(self.model, self.data)  # for pictures
        # It normalises quaternions and may change where the solver starts from.
        self._mujoco.mj_setState(self.model, self.data, physics, everything)
        self.random.bit_generator.state = state["random"]
        self._seen = np.array(state["observation"])
        return self._seen

    @property
    def up(self) -> float:
        """How much the torso's axis points upwards, -1 to 1."""
        return self.torso_rotation.item(8)

    def upright(self, least: float, margin: float = 1.9) -> float:
        """1 when the torso is upright."""
        return tolerance(self.up, (least, math.inf), margin, "linear")

    def standing(self, height: float = HEAD_HEIGHT) -> float:
        """1 when the head is high enough."""
        return tolerance(self.head.item(2), (height, math.inf), HEAD_HEIGHT / 4)

    def small_control(self) -> float:
        """1 when no motor works, at least 0.8: the mean of a quadratic tolerance of the forces."""
        near = np.maximum(1 - np.square(self.force / 10), 0)
        return (4 + float(near.sum()) / len(near)) / 5

    def move(self, speed: float) -> float:
        """1 at this forward speed or above, at least 1/6."""
        return (5 * tolerance(self.velocity.item(0), (speed, math.inf), speed, "linear") + 1) / 6

    def dont_move(self) -> float:
        """1 when the centre of mass is at rest in the plane."""
        x, y = self.velocity.item(0), self.velocity.item(1)
        return (tolerance(x, margin=2) + tolerance(y, margin=2)) / 2

    def contacts(self) -> list[list[int]]:
        """Return the pairs of geoms that touch."""
        pairs: list[list[int]] = self.data.contact.geom.tolist()
        return pairs

    def geoms(self, names: Iterable[str]) -> frozenset[int]:
        """Return the numbers of geoms."""
        return frozenset(self.model.geom(name).id for name in names)
