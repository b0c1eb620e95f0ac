"""Gymnasium's MuJoCo tasks, version 5, for the suite gym.

Rewards, terminations and time limits (as truncations) are those that Gymnasium registers.
Observations are float32; actions in [-1, 1] are scaled to the task's own limits; there is no action
repeat.

The state is exact: play continues from it bit for bit.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.core.types import EnvSpec, State
from hadamard.envs import gl
from hadamard.envs.batch import PhysicsError

# Gymnasium's MuJoCo tasks import imageio.
PACKAGES = ("gymnasium", "mujoco", "imageio")

PICTURE = (480, 640)
"""Height and width of a picture."""

_NAMES = """
Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum Pusher
Reacher Swimmer Walker2d
"""
TASKS = tuple(f"{name}-v5" for name in _NAMES.split())

# Arrays that rewards and observations read besides MuJoCo's own state. MuJoCo computes them before
# its last small step, so they cannot be recomputed from that state and are saved too.
_DERIVED = ("xpos", "xipos", "cinert", "cvel", "cfrc_ext", "qfrc_actuator", "qfrc_constraint")


class MujocoTask:
    """One Gymnasium environment without its wrappers; BatchEnvs applies the time limit."""

    def __init__(self, task: str, seed: int, renderer: gl.Renderer) -> None:
        with gl.importing():
            import gymnasium
            import mujoco
        from gymnasium.utils import seeding

        wrapped: Any = gymnasium.make(task, disable_env_checker=True)
        self.environment = wrapped.unwrapped
        # Seeds as reset(seed=seed) does, without starting an episode.
        self.environment.np_random = seeding.np_random(seed)[0]
        limits = self.environment.action_space
        self._center = (limits.high + limits.low) / 2
        self._half_range = (limits.high - limits.low) / 2
        self._renderer = renderer
        self._camera: Any = None
        self._state_kind: int = mujoco.mjtState.mjSTATE_INTEGRATION.value
        warning = mujoco.mjtWarning
        self._fatal = [
            int(kind)
            for kind in (warning.mjWARN_BADQPOS, warning.mjWARN_BADQVEL, warning.mjWARN_BADQACC)
        ]
        if mujoco.get_mju_user_warning() is None:
            # By default MuJoCo writes warnings to a file in the current folder.
            mujoco.set_mju_user_warning(logging.getLogger("mujoco").warning)
        self.spec = EnvSpec(
            self.environment.observation_space.shape,
            torch.float32,
            action_size=limits.shape[0],
            max_steps=wrapped.spec.max_episode_steps,
            step_seconds=float(self.environment.dt),
        )

    def reset(self) -> NDArray[Any]:
        """Start an episode."""
        observation: NDArray[Any] = self.environment.reset()[0]
        return observation

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], float, bool]:
        """Take a step; Gymnasium's task decides whether it ended."""
        scaled = (self._center + self._half_range * action).astype(np.float32)
        observation, reward, terminated, _, _ = self.environment.step(scaled)
        # MuJoCo then resets the simulation, so all numbers are finite again: read its warnings.
        if self.environment.data.warning.number[self._fatal].any():
            raise PhysicsError("the simulation is no longer finite")
        return observation, reward, terminated

    def state_dict(self) -> State:
        """Return the simulation and the random generator."""
        import mujoco

        model, data = self.environment.model, self.environment.data
        physics = np.empty(mujoco.mj_stateSize(model, self._state_kind))
        mujoco.mj_getState(model, data, physics, self._state_kind)
        return {
            "physics": physics,
            "derived": {name: getattr(data, name).copy() for name in _DERIVED},
            "random": self.environment.np_random.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> NDArray[np.float32]:
        """Load a state; return the observation to act on."""
        import mujoco

        model, data = self.environment.model, self.environment.data
        mujoco.mj_setState(model, data, np.asarray(state["physics"]), self._state_kind)
        for name, saved in state["derived"].items():
            getattr(data, name)[:] = np.asarray(saved)
        data.warning.number[:] = 0
        self.environment.np_random.bit_generator.state = state["random"]
        return np.asarray(self.environment._get_obs(), dtype=np.float32)

    def render(self) -> NDArray[np.uint8]:
        """Return a picture from the camera that follows the robot, or from Gymnasium's default."""
        if self._camera is None:
            self._camera = _camera(self.environment)
        return self._renderer.render(self.environment.model, self.environment.data, self._camera)

    def close(self) -> None:
        """Free OpenGL's memory."""
        self._renderer.close()
        self.environment.close()


def _camera(environment: Any) -> Any:
    """Return the number of the model's camera "track", or a free camera as the task sets it."""
    import mujoco

    index: int = mujoco.mj_name2id(environment.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    if index >= 0:
        return index
    camera = mujoco.MjvCamera()
    camera.lookat[:] = np.median(environment.data.geom_xpos, axis=0)
    camera.distance = environment.model.stat.extent
    for name, value in (environment.mujoco_renderer.default_cam_config or {}).items():
        if isinstance(value, np.ndarray):
            getattr(camera, name)[:] = value
        else:
            setattr(camera, name, value)
    return camera
