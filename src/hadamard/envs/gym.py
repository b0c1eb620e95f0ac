"""Gymnasium's MuJoCo tasks, version 5: HalfCheetah-v5, Ant-v5, Humanoid-v5 and eight more.

The tasks are as Gymnasium registers them: rewards, terminations and time limits, the last as
truncations. Observations are float32; actions in [-1, 1] are scaled to the task's own limits;
there is no action repeat.

The state is exact: play continues from it bit for bit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.core.types import Envs, EnvSpec, State
from hadamard.envs import gl
from hadamard.envs.batch import BatchEnvs, PhysicsError
from hadamard.envs.common import check_num_envs, check_task, spread

# Gymnasium imports imageio with its MuJoCo tasks.
REQUIRES = ("gymnasium", "mujoco", "imageio")
EXTRA = "mujoco"

PICTURE = (480, 640)
"""Height and width of a picture."""

_NAMES = """
Ant HalfCheetah Hopper Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum Pusher
Reacher Swimmer Walker2d
"""

# What rewards and observations read of the simulation besides its state. MuJoCo leaves them as
# they were before its last small step, so that no state gives them again.
_DERIVED = ("xpos", "xipos", "cinert", "cvel", "cfrc_ext", "qfrc_actuator", "qfrc_constraint")


def tasks() -> tuple[str, ...]:
    """Return the tasks by Gymnasium's names."""
    return tuple(f"{name}-v5" for name in _NAMES.split())


def make(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
) -> Envs:
    """Make a batch of one task; training and evaluation are alike."""
    del training
    check_task("gym", task, tasks())
    check_num_envs(num_envs)
    seeds = spread(seed, num_envs)
    pictures = gl.Renderer(*PICTURE)
    return BatchEnvs([GymTask(task, one, pictures) for one in seeds], device)


class GymTask:
    """One of Gymnasium's environments, without its wrappers: the time limit is not its matter."""

    def __init__(self, task: str, seed: int, pictures: gl.Renderer) -> None:
        with gl.importing():
            import gymnasium
            import mujoco
        from gymnasium.utils import seeding

        made: Any = gymnasium.make(task, disable_env_checker=True)
        self.environment = made.unwrapped
        # As reset(seed=seed) would, and the first episode is still to come.
        self.environment.np_random = seeding.np_random(seed)[0]
        limits = self.environment.action_space
        self._centre = (limits.high + limits.low) / 2
        self._reach = (limits.high - limits.low) / 2
        self._pictures = pictures
        self._camera: Any = None
        self._kind: int = mujoco.mjtState.mjSTATE_INTEGRATION.value
        warning = mujoco.mjtWarning
        self._fatal = [
            int(kind)
            for kind in (warning.mjWARN_BADQPOS, warning.mjWARN_BADQVEL, warning.mjWARN_BADQACC)
        ]
        if mujoco.get_mju_user_warning() is None:
            # MuJoCo would write them to a file in the current folder.
            mujoco.set_mju_user_warning(logging.getLogger("mujoco").warning)
        self.spec = EnvSpec(
            self.environment.observation_space.shape,
            torch.float32,
            action_size=limits.shape[0],
            max_steps=made.spec.max_episode_steps,
            step_seconds=float(self.environment.dt),
        )

    def reset(self) -> NDArray[np.float32]:
        """Start an episode."""
        observation, _ = self.environment.reset()
        return np.asarray(observation, dtype=np.float32)

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float32], float, bool]:
        """Take a step; Gymnasium's task says whether it ended."""
        chosen = (self._centre + self._reach * action).astype(np.float32)
        observation, reward, terminated, _, _ = self.environment.step(chosen)
        # MuJoCo starts over from the model's first position, and all numbers are finite again.
        if self.environment.data.warning.number[self._fatal].any():
            raise PhysicsError("the simulation left the finite numbers")
        if not np.isfinite(reward):
            raise PhysicsError(f"the reward is {reward}")
        return np.asarray(observation, dtype=np.float32), float(reward), bool(terminated)

    def state_dict(self) -> State:
        """Return the simulation and the random generator."""
        import mujoco

        model, data = self.environment.model, self.environment.data
        physics = np.empty(mujoco.mj_stateSize(model, self._kind))
        mujoco.mj_getState(model, data, physics, self._kind)
        return {
            "physics": physics,
            "derived": {name: getattr(data, name).copy() for name in _DERIVED},
            "random": self.environment.np_random.bit_generator.state,
        }

    def load_state_dict(self, state: State) -> NDArray[np.float32]:
        """Return to that state, and return the observation to act on there."""
        import mujoco

        model, data = self.environment.model, self.environment.data
        mujoco.mj_setState(model, data, np.asarray(state["physics"]), self._kind)
        for name, saved in state["derived"].items():
            getattr(data, name)[:] = np.asarray(saved)
        data.warning.number[:] = 0
        self.environment.np_random.bit_generator.state = state["random"]
        return np.asarray(self.environment._get_obs(), dtype=np.float32)

    def render(self) -> NDArray[np.uint8]:
        """Return a picture from the camera that follows the robot, or else from Gymnasium's own."""
        if self._camera is None:
            self._camera = _camera(self.environment)
        return self._pictures.render(self.environment.model, self.environment.data, self._camera)

    def close(self) -> None:
        """Free what OpenGL holds."""
        self._pictures.close()
        self.environment.close()


def _camera(environment: Any) -> Any:
    """Return the model's camera called track, or a free one where the task wants it."""
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
