"""The DeepMind Control suite as published results use it, from pixels (dmc) or states (dmc-state).

Both suites have the same 28 tasks and the same protocol: an action is played twice and the rewards
are summed; an episode is truncated after 500 steps (1,000 of dm_control's) and never terminates.

The state is exact: play continues from it bit for bit.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.core.types import EnvSpec, State
from hadamard.envs import gl
from hadamard.envs.batch import PhysicsError

REQUIRES = ("dm_control", "mujoco")
EXTRA = "dmc"
# dm_control asks for labmaze, which its control suite does not use and Python 3.13 cannot install.
AFTERWARDS = "pip install --no-deps dm_control==1.0.27" if sys.version_info >= (3, 13) else ""

ACTION_REPEAT = 2
MAX_STEPS = 500
PICTURE = (480, 640)
"""Height and width of a picture for people."""

_TASKS = """
acrobot/swingup ball_in_cup/catch cartpole/balance cartpole/balance_sparse cartpole/swingup
cartpole/swingup_sparse cheetah/run dog/run dog/stand dog/trot dog/walk finger/spin
finger/turn_easy finger/turn_hard fish/swim hopper/hop hopper/stand humanoid/run humanoid/stand
humanoid/walk pendulum/swingup quadruped/run quadruped/walk reacher/easy reacher/hard walker/run
walker/stand walker/walk
"""
_NAMES = {name.replace("/", "-").replace("_", "-"): name for name in _TASKS.split()}

# What a reset writes into the models (targets, and the friction of a hinge) and into the tasks.
MODEL_FIELDS = {
    "finger": ("dof_damping", "site_pos", "site_rgba", "site_size"),
    "fish": ("geom_pos",),
    "reacher": ("geom_pos", "geom_size"),
}
TASK_FIELDS = {
    "cheetah": ("_timeout_progress",),
    "dog": ("_body_weight", "_stand_height"),
    "hopper": ("_timeout_progress",),
}


def tasks() -> tuple[str, ...]:
    """Return the tasks."""
    return tuple(_NAMES)


def original(task: str) -> tuple[str, str]:
    """Return what dm_control calls a task's domain and the task.

    Examples:
        >>> original("ball-in-cup-catch")
        ('ball_in_cup', 'catch')
    """
    domain, _, name = _NAMES[task].partition("/")
    return domain, name


@functools.cache
def _suite() -> Any:
    with gl.importing():
        from dm_control import suite
        from dm_control.suite import quadruped
    if not hasattr(np, "in1d"):
        # dm_control 1.0.27 finds the quadruped's sensors with what NumPy 2.4 no longer has.
        quadruped.Physics._get_sensor_names = _sensor_names
    return suite


def _sensor_names(physics: Any, *kinds: int) -> list[str]:
    indices = np.flatnonzero(np.isin(physics.model.sensor_type, kinds))
    return [physics.model.id2name(index, "sensor") for index in indices]


class ControlTask:
    """One task with its action repeat; what is observed of it, the suites add."""

    def __init__(self, task: str, seed: int, pictures: gl.Renderer) -> None:
        self.domain, name = original(task)
        self.random = np.random.RandomState(seed)
        self.environment = _suite().load(
            self.domain, name, task_kwargs={"random": self.random, "time_limit": math.inf}
        )
        self.physics = self.environment.physics
        self.task = self.environment.task
        self.camera = 2 if self.domain == "quadruped" else 0
        self._pictures = pictures
        self._seconds = self.environment.control_timestep()
        self._substeps = round(self._seconds / self.physics.timestep())
        limits = self.environment.action_spec()
        self._centre = (limits.maximum + limits.minimum) / 2
        self._reach = (limits.maximum - limits.minimum) / 2

    def describe(self, shape: tuple[int, ...], dtype: torch.dtype, frames: int = 1) -> EnvSpec:
        """Return what a learner may know of this task, observed in this shape."""
        return EnvSpec(
            shape,
            dtype,
            frames=frames,
            action_size=self._reach.size,
            max_steps=MAX_STEPS,
            step_seconds=ACTION_REPEAT * self._seconds,
        )

    def begin(self) -> dict[str, Any]:
        """Start an episode and return dm_control's observations."""
        observations: dict[str, Any] = self.environment.reset().observation
        return observations

    def play(self, action: NDArray[Any]) -> float:
        """Play an action twice and return the sum of the rewards."""
        from dm_control.rl import control

        chosen = self._centre + self._reach * action
        total = 0.0
        try:
            # dm_control's own step, without its clock and the observations that nobody sees.
            for _ in range(ACTION_REPEAT):
                self.task.before_step(chosen, self.physics)
                self.physics.step(self._substeps)
                self.task.after_step(self.physics)
                total += float(self.task.get_reward(self.physics))
        except control.PhysicsError as error:
            raise PhysicsError(str(error)) from error
        if not math.isfinite(total):
            raise PhysicsError(f"the reward is {total}")
        return total

    def state_dict(self) -> State:
        """Return the simulation, what the task keeps of the episode, and the random generator."""
        import mujoco

        model, data = self.physics.model.ptr, self.physics.data.ptr
        physics = np.empty(mujoco.mj_stateSize(model, _integration()))
        mujoco.mj_getState(model, data, physics, _integration())
        random: Any = self.random.get_state(legacy=False)
        return {
            "physics": physics,
            # Forces and accelerations are those of the step before: no state gives them again.
            "sensors": data.sensordata.copy(),
            "model": {
                name: getattr(model, name).copy() for name in MODEL_FIELDS.get(self.domain, ())
            },
            "task": {
                name: np.array(getattr(self.task, name, 0))
                for name in TASK_FIELDS.get(self.domain, ())
            },
            "random": {**random, "state": dict(random["state"])},
        }

    def restore(self, state: State) -> None:
        """Return to a saved state."""
        import mujoco

        model, data = self.physics.model.ptr, self.physics.data.ptr
        for name, saved in state["model"].items():
            getattr(model, name)[:] = np.asarray(saved)
        mujoco.mj_setState(model, data, np.asarray(state["physics"]), _integration())
        # All that follows from positions and velocities, as dm_control's own step leaves it.
        mujoco.mj_step1(model, data)
        data.sensordata[:] = np.asarray(state["sensors"])
        for name, saved in state["task"].items():
            setattr(self.task, name, np.array(saved)[()])
        key = np.asarray(state["random"]["state"]["key"])
        numbers = {**state["random"]["state"], "key": key}
        self.random.set_state({**state["random"], "state": numbers})

    def render(self) -> NDArray[np.uint8]:
        """Return a picture from the camera that the suite from pixels has."""
        return self.draw(self._pictures)

    def draw(self, renderer: gl.Renderer) -> NDArray[np.uint8]:
        """Return a picture of the present moment, of the renderer's size."""
        return renderer.render(self.physics.model.ptr, self.physics.data.ptr, self.camera)

    def close(self) -> None:
        """Free what OpenGL holds."""
        self._pictures.close()


def _integration() -> int:
    """Return MuJoCo's name for all that a simulation goes on from."""
    import mujoco

    kind: int = mujoco.mjtState.mjSTATE_INTEGRATION.value
    return kind
