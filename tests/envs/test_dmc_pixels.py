"""DeepMind Control from pixels: dm_control's own frames, stacked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core import checkpoint
from hadamard.envs import dmc_common, gl
from hadamard.envs.common import environment_seeds
from hadamard.envs.workers import WorkerEnvs
from tests.support.dmc import actions, assert_same, open_envs, play

pytestmark = pytest.mark.skipif(bool(suites.missing("dmc")), reason="needs the dmc extra")


@pytest.fixture
def opengl() -> None:
    """Skip a test where nothing can draw."""
    try:
        gl.choose()
    except gl.CannotDraw as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("task", ["walker-walk", "reacher-hard"])
def test_pixels_stack_three_frames_the_newest_last(
    task: str, opengl: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmc_common, "MAX_STEPS", 4)
    with open_envs(f"dmc/{task}", num_envs=2) as envs:
        assert envs.spec.obs_shape == (9, 84, 84)
        assert envs.spec.obs_dtype == torch.uint8
        assert envs.spec.frames == 3
        before = envs.reset()
        tensors = [before]
        copies = [before.clone()]
        assert not torch.equal(before[0], before[1])
        for number, step in enumerate(play(envs, 5), start=1):
            tensors += [step.obs, step.next_obs]
            copies += [step.obs.clone(), step.next_obs.clone()]
            # A successor continues the frames before it, also at the end of an episode.
            assert torch.equal(step.next_obs[:, :6], before[:, 3:])
            assert not torch.equal(step.next_obs[:, 6:], before[:, 6:])
            assert step.truncated.all() == (number == 4)
            if number == 4:
                assert_one_frame(step.obs)
                assert not torch.equal(step.obs, step.next_obs)
            before = step.obs
        assert_one_frame(copies[0])
        assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))


def assert_one_frame(obs: torch.Tensor) -> None:
    """Check that a stack is the same frame three times, and not an empty one."""
    assert torch.equal(obs[:, :3], obs[:, 3:6])
    assert torch.equal(obs[:, :3], obs[:, 6:])
    assert all(len(stack.unique()) > 20 for stack in obs)


# Draws with dm_control itself, in a new process because it chooses its OpenGL when imported.
DM_CONTROL = """
import sys
import numpy as np
if not hasattr(np, "in1d"):
    np.in1d = np.isin
from dm_control import suite
folder, seed = sys.argv[1], int(sys.argv[2])
for domain, task, camera in (("walker", "walk", 0), ("quadruped", "run", 2)):
    env = suite.load(domain, task, task_kwargs={"random": np.random.RandomState(seed)})
    env.reset()
    frames = [env.physics.render(84, 84, camera_id=camera)]
    for action in np.load(f"{folder}/{domain}.npy"):
        env.step(action)
        env.step(action)
        frames.append(env.physics.render(84, 84, camera_id=camera))
    np.save(f"{folder}/{domain}-frames.npy", np.stack(frames))
"""


def test_frames_are_those_of_dm_control(opengl: None, tmp_path: Path) -> None:
    frames_by_domain = {}
    for domain, task in (("walker", "walker-walk"), ("quadruped", "quadruped-run")):
        with open_envs(f"dmc/{task}", 5) as envs:
            control = envs.envs._tasks[0]
            frames = [envs.reset()[0, 6:]]
            batch = actions(envs.spec.action_size, 2)
            frames += [envs.step(action).obs[0, 6:] for action in batch]
            scaled = control._center + control._half_range * batch[:, 0].numpy()
            np.save(tmp_path / f"{domain}.npy", scaled)
            frames_by_domain[domain] = torch.stack(frames)
    command = [sys.executable, "-c", DM_CONTROL, str(tmp_path), str(environment_seeds(5, 1)[0])]
    subprocess.run(command, check=True, capture_output=True)
    for domain, frames in frames_by_domain.items():
        theirs = torch.from_numpy(np.load(tmp_path / f"{domain}-frames.npy")).permute(0, 3, 1, 2)
        assert torch.equal(frames, theirs), domain


def test_pixels_continue_from_a_saved_state(opengl: None, tmp_path: Path) -> None:
    name = "dmc/reacher-hard"  # the target is a part of the model
    with (
        open_envs(name, 1) as original,
        open_envs(name, 7) as continued,
        open_envs(name, 1) as same,
    ):
        assert torch.equal(original.reset(), same.reset())
        steps = play(original, 2)
        assert_same(steps, play(same, 2))
        state = checkpoint.read(checkpoint.save(tmp_path, 1, {"envs": original}))[1]["envs"]
        assert torch.equal(continued.load_state_dict(state), steps[-1].obs)
        assert_same(play(original, 3, seed=3), play(continued, 3, seed=3))
        assert torch.equal(original.reset(), continued.reset())


def test_both_suites_render_the_same_pictures(opengl: None) -> None:
    with (
        open_envs("dmc/finger-turn-hard", 2) as pixels,
        open_envs("dmc-state/finger-turn-hard", 2) as state,
    ):
        pixels.reset()
        state.reset()
        first = state.render()
        assert first.shape == (480, 640, 3)
        assert first.dtype == np.uint8
        assert np.array_equal(first, pixels.render())
        play(state, 1)
        assert not np.array_equal(first, state.render())


def test_workers_draw_the_same_frames(opengl: None) -> None:
    name = "dmc/pendulum-swingup"
    with open_envs(name, 4, workers=1) as workers, open_envs(name, 4) as single:
        assert isinstance(workers.envs, WorkerEnvs)
        assert torch.equal(workers.reset(), single.reset())
        assert_same(play(workers, 2), play(single, 2))
        assert np.array_equal(workers.render(), single.render())
        workers.send(actions(1, 1)[0])
        with pytest.raises(RuntimeError, match="under way.*rendering"):
            workers.render()


def test_a_renderer_still_draws_after_another_is_closed(opengl: None) -> None:
    with open_envs("dmc-state/walker-walk") as envs:
        envs.reset()
        control = envs.envs._tasks[0]
        large, small, other = gl.Renderer(60, 80), gl.Renderer(30, 40), gl.Renderer(30, 40)
        first, tiny = control.draw(large), control.draw(small)
        assert (first.shape, tiny.shape) == ((60, 80, 3), (30, 40, 3))
        assert np.array_equal(control.draw(other), tiny)
        small.close()
        assert np.array_equal(control.draw(large), first)
        del small
        assert np.array_equal(control.draw(other), tiny)
        large.close()
        large.close()
        assert np.array_equal(control.draw(other), tiny)
        assert np.array_equal(control.draw(large), first)  # loaded again
        large.close()
        other.close()
        # Drawing must not change the model, which is saved.
        assert control.physics.model.vis.global_.offwidth == 640


def test_triton_can_be_loaded_after_drawing(opengl: None) -> None:
    pytest.importorskip("triton", reason="Triton, which crashed here, is not installed")
    code = (
        "from hadamard.envs import make; envs = make('dmc-state/pendulum-swingup', 0, 1);"
        "envs.reset(); envs.render(); import triton._C.libtriton"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
