"""What the suites dmc (from pixels) and dmc-state (from states) share.

Both have the same 28 tasks of the DeepMind Control suite and the protocol of published results: an
action is played twice and its rewards are summed; an episode is truncated after 500 steps (1,000 of
dm_control's) and never terminates.

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
# dm_control requires labmaze, which these tasks do not use and Python 3.13 cannot install.
AFTER_INSTALL = "pip install --no-deps dm_control==1.0.27" if sys.version_info >= (3, 13) else ""

ACTION_REPEAT = 2
MAX_STEPS = 500
PICTURE = (480, 640)
"""Height and width of a picture that ``render`` returns."""

_TASKS = """
acrobot/swingup ball_in_cup/catch cartpole/balance cartpole/balance_sparse cartpole/swingup
cartpole/swingup_sparse cheetah/run dog/run dog/stand dog/trot dog/walk finger/spin
finger/turn_easy finger/turn_hard fish/swim hopper/hop hopper/stand humanoid/run humanoid/stand
humanoid/walk pendulum/swingup quadruped/run quadruped/walk reacher/easy reacher/hard walker/run
walker/stand walker/walk
"""
_NAMES = {name.replace("/", "-").replace("_", "-"): name for name in _TASKS.split()}

# Fields of models (targets, the friction of a hinge) and of tasks that a reset changes, by domain.
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


def dm_control_names(task: str) -> tuple[str, str]:
    """Return dm_control's names of a task's domain and of the task.

    Examples:
        >>> dm_control_names("ball-in-cup-catch")
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
        # dm_control 1.0.27 finds the quadruped's sensors with np.in1d, which NumPy 2.4 removed.
        quadruped.Physics._get_sensor_names = _sensor_names
    return suite


def _sensor_names(physics: Any, *kinds: int) -> list[str]:
    indices = np.flatnonzero(np.isin(physics.model.sensor_type, kinds))
    return [physics.model.id2name(index, "sensor") for index in indices]


class ControlTask:
    """One task with its action repeat. The suites add the observations."""

    def __init__(self, task: str, seed: int, renderer: gl.Renderer) -> None:
        self.domain, name = dm_control_names(task)
        self.random = np.random.RandomState(seed)
        self.environment = _suite().load(
            self.domain, name, task_kwargs={"random": self.random, "time_limit": math.inf}
        )
        self.physics = self.environment.physics
        self.task = self.environment.task
        self.camera = 2 if self.domain == "quadruped" else 0
        self._renderer = renderer
        self._seconds = self.environment.control_timestep()
        self._substeps = round(self._seconds / self.physics.timestep())
        limits = self.environment.action_spec()
        self._center = (limits.maximum + limits.minimum) / 2
        self._half_range = (limits.maximum - limits.minimum) / 2

    def make_spec(self, shape: tuple[int, ...], dtype: torch.dtype, frames: int = 1) -> EnvSpec:
        """Return the task's spec for observations of this shape and dtype."""
        return EnvSpec(
            shape,
            dtype,
            frames=frames,
            action_size=self._half_range.size,
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

        scaled = self._center + self._half_range * action
        total = 0.0
        try:
            # dm_control's own step, without its time limit and the observations in between.
            for _ in range(ACTION_REPEAT):
                self.task.before_step(scaled, self.physics)
                self.physics.step(self._substeps)
                self.task.after_step(self.physics)
                total += float(self.task.get_reward(self.physics))
        except control.PhysicsError as error:
            raise PhysicsError(str(error)) from error
        return total

    def state_dict(self) -> State:
        """Return the simulation, the task's variables and the random generator."""
        import mujoco

        model, data = self.physics.model.ptr, self.physics.data.ptr
        physics = np.empty(mujoco.mj_stateSize(model, _state_kind()))
        mujoco.mj_getState(model, data, physics, _state_kind())
        random: Any = self.random.get_state(legacy=False)
        return {
            "physics": physics,
            # Forces and accelerations are of the step before and cannot be recomputed.
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
        """Load a state."""
        import mujoco

        model, data = self.physics.model.ptr, self.physics.data.ptr
        for name, saved in state["model"].items():
            getattr(model, name)[:] = np.asarray(saved)
        mujoco.mj_setState(model, data, np.asarray(state["physics"]), _state_kind())
        # Compute what follows from positions and velocities, as dm_control's own step does.
        mujoco.mj_step1(model, data)
        data.sensordata[:] = np.asarray(state["sensors"])
        for name, saved in state["task"].items():
            setattr(self.task, name, np.array(saved)[()])
        key = np.asarray(state["random"]["state"]["key"])
        numbers = {**state["random"]["state"], "key": key}
        self.random.set_state({**state["random"], "state": numbers})

    def render(self) -> NDArray[np.uint8]:
        """Return a picture from the camera that dmc observes through."""
        return self.draw(self._renderer)

    def draw(self, renderer: gl.Renderer) -> NDArray[np.uint8]:
        """Return a picture of the current state, of the renderer's size."""
        return renderer.render(self.physics.model.ptr, self.physics.data.ptr, self.camera)

    def close(self) -> None:
        """Free OpenGL's memory."""
        self._renderer.close()


def _state_kind() -> int:
    """Return MuJoCo's code for the whole state that a simulation continues from."""
    import mujoco

    kind: int = mujoco.mjtState.mjSTATE_INTEGRATION.value
    return kind
