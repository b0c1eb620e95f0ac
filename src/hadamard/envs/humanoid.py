"""HumanoidBench: 14 tasks of walking, climbing, sitting and balancing for the H1 robot.

The tasks are those of the public package, without its dependencies: plain MuJoCo and the same
model files (``hadamard assets humanoidbench`` fetches them). From the same start and actions,
mujoco 3.2.4 to 3.2.7 gives the same rewards, ends and observations. Rewards and ends are in
``humanoid_tasks.py``.

The protocol is that of the published results: an action is played twice, its unclipped rewards are
summed, and an episode is truncated after 500 steps (1,000 control steps of the robot). All
randomness follows from the environment's seed; the public package takes part of it from NumPy's
global generator.

The state is exact: play continues from it bit for bit.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.core.types import Envs, EnvSpec, State
from hadamard.envs import gl
from hadamard.envs import humanoid_assets as assets
from hadamard.envs.batch import BatchEnvs
from hadamard.envs.common import check_num_envs, check_task, environment_seeds
from hadamard.envs.humanoid_robot import PHYSICS_STEPS, Robot
from hadamard.envs.humanoid_tasks import TASKS

REQUIRES = ("mujoco",)
EXTRA = "humanoid"
AFTER_INSTALL = assets.COMMAND

ACTION_REPEAT = 2
MAX_STEPS = 500
GOAL = "goal"
"""Name of the ball that pictures of ``reach`` show at the goal."""
PICTURE = (480, 640)
"""Height and width of a picture."""
_ELEVATION = {"humanoid/h1-maze": -60.0, "humanoid/h1-pole": -60.0}
"""Elevation of the camera in degrees, for tasks whose walls or poles would hide the robot."""


def tasks() -> tuple[str, ...]:
    """Return the tasks."""
    return tuple(f"h1-{name}" for name in TASKS)


def trouble() -> str | None:
    """Say which model file is missing and how to fetch it."""
    try:
        assets.locate()
    except assets.AssetsError as error:
        return str(error)
    return None


def prepare() -> None:
    """Report missing files or an unsuitable MuJoCo once, rather than in every worker."""
    assets.locate()
    _check_version()


def make(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
) -> Envs:
    """Make a batch of one task; training and evaluation do not differ."""
    del training
    check_task("humanoid", task, tasks())
    check_num_envs(num_envs)
    seeds = environment_seeds(seed, num_envs)
    _check_version()
    return BatchEnvs([HumanoidTask(make_robot(task, robot_seed)) for robot_seed in seeds], device)


def make_robot(task: str, seed: int) -> Robot:
    """Make one robot, which plays one control step at a time."""
    name = task.removeprefix("h1-")
    path = assets.locate() / "envs" / f"h1_pos_{name.replace('-', '_')}.xml"
    model = _load_model(str(path), with_goal=name == "reach")
    return TASKS[name](f"humanoid/{task}", model, seed)


@functools.cache
def _load_model(path: str, with_goal: bool) -> Any:
    """Load a model once: it takes a third of a second, and all robots can share it."""
    import mujoco

    # Only pictures change: a ball at the goal, and shadows that do not take 1 GiB of memory.
    model_spec = mujoco.MjSpec.from_file(path)
    if with_goal:
        ball = model_spec.worldbody.add_site()
        ball.name, ball.size, ball.rgba = GOAL, [0.05, 0.05, 0.05], [0.8, 0.2, 0.2, 1.0]
    model = model_spec.compile()
    model.vis.quality.shadowsize = 4_096
    return model


@functools.cache
def _check_version() -> None:
    """Warn once if MuJoCo's version makes scores differ from published ones."""
    with gl.importing():
        import mujoco

    version = mujoco.__version__
    numbers = [int(number) for number in re.findall(r"\d+", version)[:3]]
    if not [3, 2, 4] <= numbers <= [3, 2, 7]:
        warnings.warn(
            f"mujoco {version} is not 3.2.4 to 3.2.7: contacts changed in 3.3, so scores are not "
            "comparable with published ones. Install the right one: pip install 'mujoco==3.2.7'",
            stacklevel=3,
        )


class HumanoidTask:
    """A robot whose every action is played twice, as in the published results."""

    def __init__(self, robot: Robot) -> None:
        self.robot = robot
        size = robot.reset().size
        self.spec = EnvSpec(
            (size,),
            torch.float32,
            action_size=robot.model.nu,
            max_steps=MAX_STEPS,
            step_seconds=ACTION_REPEAT * PHYSICS_STEPS * robot.model.opt.timestep,
        )
        self._renderer = gl.Renderer(*PICTURE)

    def reset(self) -> NDArray[np.float64]:
        """Start an episode."""
        return self.robot.reset()

    def step(self, action: NDArray[Any]) -> tuple[NDArray[np.float64], float, bool]:
        """Play an action twice, or until the task ends; the rewards are summed."""
        total = 0.0
        for _ in range(ACTION_REPEAT):
            observation, reward, ended = self.robot.control(action)
            total += reward
            if ended:
                break
        return observation, total, ended

    def state_dict(self) -> State:
        """Return everything that the next step depends on."""
        return self.robot.state_dict()

    def load_state_dict(self, state: State) -> NDArray[np.float64]:
        """Load a state; return the observation to act on."""
        return self.robot.load_state_dict(state)

    def render(self) -> NDArray[np.uint8]:
        """Return a picture from a camera that follows the robot; the goal is a red ball."""
        robot = self.robot
        if robot.goal is not None:
            robot.data.site(GOAL).xpos[:] = robot.goal
        return self._renderer.render(robot.model, robot.data, _camera(robot))

    def close(self) -> None:
        """Free OpenGL's memory."""
        self._renderer.close()


def _camera(robot: Robot) -> Any:
    """Return a camera that sees the robot obliquely from behind."""
    import mujoco

    camera = mujoco.MjvCamera()
    camera.lookat[:] = robot.pelvis
    camera.distance = 4.0
    camera.azimuth = 60.0
    camera.elevation = _ELEVATION.get(robot.name, -20.0)
    return camera
