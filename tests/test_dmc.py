"""DeepMind Control, from states and from pixels: dm_control's own numbers under our protocol."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core import checkpoint
from hadamard.core.types import Step
from hadamard.envs import dmc, dmc_common, dmc_state, gl, make
from hadamard.envs.batch import BatchEnvs, PhysicsError
from hadamard.envs.common import spread
from hadamard.envs.workers import WorkerEnvs

pytestmark = pytest.mark.skipif(bool(suites.missing("dmc")), reason="needs the dmc extra")

every_task = pytest.mark.parametrize("task", dmc_common.tasks())


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def drawing() -> None:
    try:
        gl.choose()
    except gl.CannotDraw as error:
        pytest.skip(str(error))


@contextmanager
def opened(name: str, seed: int = 0, num_envs: int = 1, **options: Any) -> Iterator[Any]:
    made = make(name, seed, num_envs, **options)
    try:
        yield made
    finally:
        made.close()


def actions(size: int, steps: int, seed: int = 0, num_envs: int = 1) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(steps, num_envs, size, generator=random) - 1


def play(envs: Any, steps: int, seed: int = 0) -> list[Step]:
    size, num_envs = envs.spec.action_size, envs.num_envs
    return [envs.step(action) for action in actions(size, steps, seed, num_envs)]


def assert_same(one: list[Step], two: list[Step]) -> None:
    for a, b in zip(one, two, strict=True):
        assert torch.equal(a.obs, b.obs)
        assert torch.equal(a.next_obs, b.next_obs)
        assert torch.equal(a.reward, b.reward)
        assert torch.equal(a.truncated, b.truncated)
        assert a.episodes == b.episodes


def by_hand(task: str, seed: int) -> Any:
    """dm_control's environment as it is, with its own time limit."""
    domain, name = dmc_common.original(task)
    random = np.random.RandomState(spread(seed, 1)[0])
    return dmc_common._suite().load(domain, name, task_kwargs={"random": random})


def flat(observation: dict[str, Any]) -> torch.Tensor:
    parts = [np.asarray(part, dtype=np.float64).ravel() for part in observation.values()]
    return torch.from_numpy(np.concatenate(parts).astype(np.float32))[None]


def test_the_tasks_are_those_of_the_published_results() -> None:
    assert len(dmc.tasks()) == len(set(dmc.tasks())) == 28
    assert dmc.tasks() == dmc_state.tasks()
    assert {dmc_common.original(task) for task in dmc.tasks()} <= set(dmc_common._suite().ALL_TASKS)
    published = Path(__file__).parents[2] / "shared/reference/mrq_dmc_visual_curves.csv"
    if published.exists():
        names = {line.partition(",")[0] for line in published.read_text().splitlines()[1:]}
        assert {"-".join(dmc_common.original(task)) for task in dmc.tasks()} == names


def test_tasks_can_be_spelled_as_dm_control_does() -> None:
    with opened("dmc-state/cartpole-swingup_sparse") as envs:
        assert envs._tasks[0].task._sparse
    with pytest.raises(ValueError, match="did you mean 'cartpole-swingup-sparse'"):
        make("dmc-state/cartpole-swingup-spars", 0, 1)
    with pytest.raises(ValueError, match="dmc has no task 'walker'; it has: acrobot-swingup"):
        dmc.make("walker", 0, 1)


@every_task
def test_every_task_is_dm_control_played_by_hand(task: str) -> None:
    theirs = by_hand(task, 3)
    limits = theirs.action_spec()
    middle, reach = (limits.maximum + limits.minimum) / 2, (limits.maximum - limits.minimum) / 2
    with opened(f"dmc-state/{task}", 3) as ours:
        spec = ours.spec
        assert (spec.frames, spec.max_steps, spec.num_actions) == (1, 500, 0)
        assert spec.action_size == limits.shape[0]
        assert spec.step_seconds == 2 * theirs.control_timestep()
        for _ in range(2):  # episodes: the random generator goes on as theirs does
            assert torch.equal(ours.reset(), flat(theirs.reset().observation))
            for action in actions(spec.action_size, 8):
                step = ours.step(action)
                chosen = middle + reach * action[0].numpy()
                first, second = theirs.step(chosen), theirs.step(chosen)
                assert step.reward.item() == np.float32(first.reward + second.reward)
                assert torch.equal(step.obs, flat(second.observation))
                assert not step.terminated.any()
        # None of the tasks ever ends by itself.
        assert theirs.task.get_termination(theirs.physics) is None


@pytest.mark.parametrize("task", ["pendulum-swingup", "quadruped-walk"])
def test_actions_span_the_limits_of_the_task(task: str) -> None:
    with opened(f"dmc-state/{task}") as envs:
        envs.reset()
        one = envs._tasks[0]
        limits = one.environment.action_spec()
        for action, reached in ((-1.0, limits.minimum), (1.0, limits.maximum)):
            one.step(np.full(limits.shape, action, dtype=np.float32))
            assert one.physics.data.ctrl == pytest.approx(reached, abs=1e-15)
        one.step(np.zeros(limits.shape, dtype=np.float32))
        halfway = (limits.minimum + limits.maximum) / 2
        assert one.physics.data.ctrl == pytest.approx(halfway, abs=1e-15)


@pytest.mark.parametrize("task", ["pendulum-swingup", "cheetah-run"])
def test_an_episode_is_a_thousand_control_steps_and_truncated(task: str) -> None:
    theirs = by_hand(task, 0)
    theirs.reset()
    with opened(f"dmc-state/{task}") as ours:
        ours.reset()
        score = 0.0
        for number, action in enumerate(actions(ours.spec.action_size, 501), start=1):
            step = ours.step(action)
            assert not step.terminated.any()
            assert step.any_truncated == bool(step.truncated) == (number == 500)
            if number > 500:
                break
            first, last = theirs.step(action[0].numpy()), theirs.step(action[0].numpy())
            score += first.reward + last.reward
            assert not first.last()
            # dm_control's own clock ends the episode with ours, and its discount says truncation.
            assert last.last() == (number == 500)
            if last.last():
                assert last.discount == 1.0
                (episode,) = step.episodes
                assert (episode.env, episode.length) == (0, 500)
                assert episode.score == pytest.approx(score, rel=1e-12)
                assert torch.equal(step.next_obs, flat(last.observation))
                assert torch.equal(step.obs, flat(theirs.reset().observation))


def numbers(thing: Any) -> dict[str, Any]:
    """All arrays of a MuJoCo structure."""
    found = {name: getattr(thing, name) for name in dir(thing) if not name.startswith("_")}
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}


def one_of_each_kind() -> list[str]:
    """A task of every domain; the finger's two kinds of task reset differently."""
    found = {dmc_common.original(task)[0]: task for task in dmc_common.tasks()}
    return ["finger-spin", *found.values()]


@pytest.mark.parametrize("task", one_of_each_kind())
def test_play_continues_from_a_saved_state(task: str, tmp_path: Path) -> None:
    """Into environments that were never reset: nothing but the state tells them of the episode."""
    with opened(f"dmc-state/{task}", 1) as one, opened(f"dmc-state/{task}", 7) as two:
        one.reset()
        one.reset()
        last = play(one, 6)[-1]
        state = checkpoint.read(checkpoint.save(tmp_path, 1, {"envs": one}))[1]["envs"]
        assert torch.equal(two.load_state_dict(state), last.obs)
        a, b = one._tasks[0], two._tasks[0]
        mine, restored = numbers(a.physics.model.ptr), numbers(b.physics.model.ptr)
        assert len(mine) > 100
        for name in mine:
            assert np.array_equal(mine[name], restored[name], equal_nan=True), name
        kept, kept_too = vars(a.task), vars(b.task)
        assert kept.keys() == kept_too.keys()
        for name in kept.keys() - {"_random"}:
            assert np.array_equal(kept[name], kept_too[name]), name
        assert_same(play(one, 10, seed=3), play(two, 10, seed=3))
        # To the last bit, of which float32 shows the first half.
        ours, theirs = one.state_dict()["tasks"][0], two.state_dict()["tasks"][0]
        for name in ("physics", "sensors"):
            assert np.array_equal(ours[name], theirs[name]), name
        assert torch.equal(one.reset(), two.reset())
        assert_same(play(one, 4), play(two, 4))


def test_a_state_just_after_a_reset_continues_too() -> None:
    # There dm_control has computed with the actuators off.
    with opened("dmc-state/quadruped-run", 1) as one, opened("dmc-state/quadruped-run", 2) as two:
        first = one.reset()
        assert torch.equal(two.load_state_dict(one.state_dict()), first)
        assert_same(play(one, 5), play(two, 5))


def test_unstable_physics_end_the_episode_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with opened("dmc-state/walker-walk", num_envs=2) as envs:
        envs.reset()
        before = play(envs, 3)[-1].obs
        envs._tasks[0].physics.data.qvel[0] = np.nan
        with pytest.warns(UserWarning, match="environment 0: .*mjWARN_BAD.*its episode ends here"):
            (step,) = play(envs, 1)
        assert step.truncated.tolist() == [True, False]
        assert not step.terminated.any()
        assert step.reward[0] == 0
        assert torch.equal(step.next_obs[0], before[0])
        assert step.episodes[0].length == 4
        for after in play(envs, 5):
            assert after.obs.isfinite().all()
            assert not after.truncated.any()
    assert not list(tmp_path.iterdir())  # MuJoCo can write a log where it stands


def test_a_reward_that_is_no_number_is_unstable_physics() -> None:
    with opened("dmc-state/reacher-easy") as envs:
        envs.reset()
        one = envs._tasks[0]
        one.task.get_reward = lambda physics: np.nan
        with pytest.raises(PhysicsError, match="the reward is nan"):
            one.step(np.zeros(2))


@pytest.mark.parametrize("task", ["walker-walk", "reacher-hard"])
def test_pixels_stack_three_frames_the_newest_last(
    task: str, drawing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmc_common, "MAX_STEPS", 4)
    with opened(f"dmc/{task}", num_envs=2) as envs:
        assert envs.spec.obs_shape == (9, 84, 84)
        assert envs.spec.obs_dtype == torch.uint8
        assert envs.spec.frames == 3
        before = envs.reset()
        kept = [before]
        copies = [before.clone()]
        assert not torch.equal(before[0], before[1])
        for number, step in enumerate(play(envs, 5), start=1):
            kept += [step.obs, step.next_obs]
            copies += [step.obs.clone(), step.next_obs.clone()]
            # A successor continues the frames before it, beyond the end of an episode as well.
            assert torch.equal(step.next_obs[:, :6], before[:, 3:])
            assert not torch.equal(step.next_obs[:, 6:], before[:, 6:])
            assert step.truncated.all() == (number == 4)
            if number == 4:
                assert_one_frame(step.obs)
                assert not torch.equal(step.obs, step.next_obs)
            before = step.obs
        assert_one_frame(copies[0])
        assert all(torch.equal(one, two) for one, two in zip(kept, copies, strict=True))


def assert_one_frame(obs: torch.Tensor) -> None:
    """The same frame three times, and something to be seen in it."""
    assert torch.equal(obs[:, :3], obs[:, 3:6])
    assert torch.equal(obs[:, :3], obs[:, 6:])
    assert all(len(one.unique()) > 20 for one in obs)


# As dm_control draws by itself, in a process of its own: it settles on an OpenGL when imported.
BY_HAND = """
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


def test_frames_are_those_of_dm_control(drawing: None, tmp_path: Path) -> None:
    seen = {}
    for domain, task in (("walker", "walker-walk"), ("quadruped", "quadruped-run")):
        with opened(f"dmc/{task}", 5) as envs:
            one = envs._tasks[0]
            frames = [envs.reset()[0, 6:]]
            drawn = actions(envs.spec.action_size, 2)
            frames += [envs.step(action).obs[0, 6:] for action in drawn]
            scaled = one._centre + one._reach * drawn[:, 0].numpy()
            np.save(tmp_path / f"{domain}.npy", scaled)
            seen[domain] = torch.stack(frames)
    command = [sys.executable, "-c", BY_HAND, str(tmp_path), str(spread(5, 1)[0])]
    subprocess.run(command, check=True, capture_output=True)
    for domain, frames in seen.items():
        theirs = torch.from_numpy(np.load(tmp_path / f"{domain}-frames.npy")).permute(0, 3, 1, 2)
        assert torch.equal(frames, theirs), domain


def test_pixels_continue_from_a_saved_state(drawing: None, tmp_path: Path) -> None:
    name = "dmc/reacher-hard"  # the target is a part of the model
    with opened(name, 1) as one, opened(name, 7) as two, opened(name, 1) as same:
        assert torch.equal(one.reset(), same.reset())
        steps = play(one, 2)
        assert_same(steps, play(same, 2))
        state = checkpoint.read(checkpoint.save(tmp_path, 1, {"envs": one}))[1]["envs"]
        assert torch.equal(two.load_state_dict(state), steps[-1].obs)
        assert_same(play(one, 3, seed=3), play(two, 3, seed=3))
        assert torch.equal(one.reset(), two.reset())


def test_pictures_for_people(drawing: None) -> None:
    with (
        opened("dmc/finger-turn-hard", 2) as pixels,
        opened("dmc-state/finger-turn-hard", 2) as state,
    ):
        pixels.reset()
        state.reset()
        first = state.render()
        assert first.shape == (480, 640, 3)
        assert first.dtype == np.uint8
        assert np.array_equal(first, pixels.render())
        play(state, 1)
        assert not np.array_equal(first, state.render())


def test_workers_draw_too(drawing: None) -> None:
    name = "dmc/pendulum-swingup"
    with opened(name, 4, workers=1) as there, opened(name, 4) as here:
        assert isinstance(there, WorkerEnvs)
        assert torch.equal(there.reset(), here.reset())
        assert_same(play(there, 2), play(here, 2))
        assert np.array_equal(there.render(), here.render())
        there.send(actions(1, 1)[0])
        with pytest.raises(RuntimeError, match="under way.*picture"):
            there.render()


def test_a_renderer_outlives_another(drawing: None) -> None:
    with opened("dmc-state/walker-walk") as envs:
        envs.reset()
        one = envs._tasks[0]
        large, small, other = gl.Renderer(60, 80), gl.Renderer(30, 40), gl.Renderer(30, 40)
        first, tiny = one.draw(large), one.draw(small)
        assert (first.shape, tiny.shape) == ((60, 80, 3), (30, 40, 3))
        assert np.array_equal(one.draw(other), tiny)
        small.close()
        assert np.array_equal(one.draw(large), first)
        del small
        assert np.array_equal(one.draw(other), tiny)
        large.close()
        large.close()
        assert np.array_equal(one.draw(other), tiny)
        assert np.array_equal(one.draw(large), first)  # loaded anew
        large.close()
        other.close()
        # What is drawn on must not change the model that is saved and compared.
        assert one.physics.model.vis.global_.offwidth == 640


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    # Set first, so that what choose() puts there is taken away again.
    monkeypatch.setenv(gl.VARIABLE, "")
    monkeypatch.setattr(gl.platform, "system", lambda: "Linux")
    return monkeypatch


def test_opengl_is_found_in_order_and_passed_on(unset: pytest.MonkeyPatch) -> None:
    asked = []

    def probe(kind: str) -> tuple[str, str]:
        asked.append(kind)
        return ("llvmpipe", "") if kind == "osmesa" else ("", "no such device")

    unset.setattr(gl, "_probe", probe)
    unset.setattr(torch.cuda, "is_available", lambda: False)
    assert gl.choose() == "osmesa"
    assert os.environ[gl.VARIABLE] == "osmesa"
    assert asked == ["egl", "osmesa"]
    assert gl.choose() == "osmesa"  # known now
    assert asked == ["egl", "osmesa"]


def test_what_the_user_set_is_respected(unset: pytest.MonkeyPatch) -> None:
    unset.setattr(gl, "_probe", lambda kind: pytest.fail("nothing is to be found"))
    unset.setenv(gl.VARIABLE, "glfw")
    assert gl.choose() == "glfw"
    unset.setenv(gl.VARIABLE, "off")
    with pytest.raises(gl.CannotDraw, match="MUJOCO_GL=off turns drawing off: unset it"):
        gl.choose()
    unset.setenv(gl.VARIABLE, "")
    unset.setattr(gl.platform, "system", lambda: "Darwin")
    assert gl.choose() == ""


def test_no_opengl_at_all(unset: pytest.MonkeyPatch) -> None:
    unset.setattr(gl, "_probe", lambda kind: ("", f"no {kind} here"))
    for suite in ("dmc/walker-walk", "gym/Hopper-v5"):
        with pytest.raises(gl.CannotDraw, match="no egl here.*no osmesa here.*apt-get install"):
            suites.prepare_to_draw(suite)
    with pytest.raises(gl.CannotDraw):  # told by one process, before any worker is started
        make("dmc/walker-walk", 0, 2, workers=2)
    with opened("dmc-state/walker-walk") as envs:  # numbers need none
        assert envs.reset().isfinite().all()
        with pytest.raises(gl.CannotDraw):
            envs.render()
    assert os.environ[gl.VARIABLE] == ""
    suites.prepare_to_draw("probe/both")


def test_a_gpu_that_does_not_draw_is_told(unset: pytest.MonkeyPatch) -> None:
    unset.setattr(gl, "_probe", lambda kind: ("llvmpipe (LLVM 15)", ""))
    unset.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.warns(UserWarning, match="has a GPU .* in software .*NVIDIA_DRIVER_CAPABILITIES"):
        gl.choose()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "exit code -9"),
        ("import time; time.sleep(60)", "within 0.2 s"),
        ("raise ImportError('no libEGL')", "ImportError: no libEGL"),
    ],
)
def test_a_broken_driver_breaks_its_own_process(
    program: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gl, "_PROBE", program)
    if "sleep" in program:
        monkeypatch.setattr(gl, "_TIMEOUT", 0.2)
    drawn_by, trouble = gl._probe.__wrapped__("egl")
    assert not drawn_by
    assert said in trouble


def test_a_wrong_opengl_is_named() -> None:
    code = "from hadamard.envs import make; make('dmc-state/walker-walk', 0, 1)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, gl.VARIABLE: "nonsense"},
        capture_output=True,
        text=True,
    )
    assert "CannotDraw: MUJOCO_GL=nonsense does not work here" in done.stderr


def test_torch_can_compile_after_pictures_were_drawn(drawing: None) -> None:
    pytest.importorskip("triton", reason="Triton, which crashed here, is not installed")
    code = (
        "from hadamard.envs import make; envs = make('dmc-state/pendulum-swingup', 0, 1);"
        "envs.reset(); envs.render(); import triton._C.libtriton"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_quadruped_has_its_sensors_with_any_numpy() -> None:
    with opened("dmc-state/quadruped-walk") as envs:
        one = envs._tasks[0]
        kinds = (4, 5)  # force and torque at each of four toes
        names = dmc_common._sensor_names(one.physics, *kinds)
        assert len(names) == 8
        assert names == one.physics._get_sensor_names(*kinds)
        assert envs.reset().shape == (1, 78)


def test_python_3_13_is_told_the_second_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dmc, "AFTERWARDS", "pip install --no-deps dm_control==1.0.27")
    assert suites.install_command("dmc") == (
        "pip install 'hadamard-rl[dmc]' && pip install --no-deps dm_control==1.0.27"
    )
    assert suites.install_command("minatar") == "pip install 'hadamard-rl[minatar]'"


def test_a_batch_is_one_of_single_tasks() -> None:
    with opened("dmc-state/walker-walk", 9, num_envs=3) as envs:
        assert isinstance(envs, BatchEnvs)
        batch = envs.reset()
        for index, seed in enumerate(spread(9, 3)):
            alone = dmc_state.StateTask("walker-walk", seed, gl.Renderer(8, 8))
            assert np.array_equal(alone.reset(), batch[index].numpy())
