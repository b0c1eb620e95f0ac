"""DeepMind Control from states: dm_control's own numbers, with the action repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core import checkpoint
from hadamard.envs import dmc, dmc_common, dmc_state, gl, make
from hadamard.envs.batch import BatchEnvs
from hadamard.envs.common import environment_seeds
from tests.support.dmc import actions, assert_same, open_envs, play
from tests.support.paths import SHARED

pytestmark = pytest.mark.skipif(bool(suites.missing("dmc")), reason="needs the dmc extra")

every_task = pytest.mark.parametrize("task", dmc_common.tasks())


def original_environment(task: str, seed: int) -> Any:
    """Return dm_control's own environment, with its own time limit."""
    domain, name = dmc_common.dm_control_names(task)
    random = np.random.RandomState(environment_seeds(seed, 1)[0])
    return dmc_common._suite().load(domain, name, task_kwargs={"random": random})


def flatten(observation: dict[str, Any]) -> torch.Tensor:
    parts = [np.asarray(part, dtype=np.float64).ravel() for part in observation.values()]
    return torch.from_numpy(np.concatenate(parts).astype(np.float32))[None]


def test_the_tasks_are_those_of_the_published_results() -> None:
    assert len(dmc.tasks()) == len(set(dmc.tasks())) == 28
    assert dmc.tasks() == dmc_state.tasks()
    assert {dmc_common.dm_control_names(task) for task in dmc.tasks()} <= set(
        dmc_common._suite().ALL_TASKS
    )
    published = SHARED / "reference/mrq_dmc_visual_curves.csv"
    if published.exists():
        names = {line.partition(",")[0] for line in published.read_text().splitlines()[1:]}
        assert {"-".join(dmc_common.dm_control_names(task)) for task in dmc.tasks()} == names


def test_tasks_can_be_spelled_as_dm_control_does() -> None:
    with open_envs("dmc-state/cartpole-swingup_sparse") as envs:
        assert envs.envs._tasks[0].task._sparse
    with pytest.raises(ValueError, match="did you mean 'cartpole-swingup-sparse'"):
        make("dmc-state/cartpole-swingup-spars", 0, 1)
    with pytest.raises(ValueError, match="dmc has no task 'walker'; it has: acrobot-swingup"):
        dmc.make("walker", 0, 1)


@every_task
def test_every_task_equals_dm_control_stepped_directly(task: str) -> None:
    theirs = original_environment(task, 3)
    limits = theirs.action_spec()
    center, half_range = (
        (limits.maximum + limits.minimum) / 2,
        (limits.maximum - limits.minimum) / 2,
    )
    with open_envs(f"dmc-state/{task}", 3) as ours:
        spec = ours.spec
        assert (spec.frames, spec.max_steps, spec.num_actions) == (1, 500, 0)
        assert spec.action_size == limits.shape[0]
        assert spec.step_seconds == 2 * theirs.control_timestep()
        for _ in range(2):  # two episodes from one random generator
            assert torch.equal(ours.reset(), flatten(theirs.reset().observation))
            for action in actions(spec.action_size, 8):
                step = ours.step(action)
                scaled = center + half_range * action[0].numpy()
                first, second = theirs.step(scaled), theirs.step(scaled)
                assert step.reward.item() == np.float32(first.reward + second.reward)
                assert torch.equal(step.obs, flatten(second.observation))
                assert not step.terminated.any()
        # No task ever terminates.
        assert theirs.task.get_termination(theirs.physics) is None


@pytest.mark.parametrize("task", ["pendulum-swingup", "quadruped-walk"])
def test_actions_span_the_limits_of_the_task(task: str) -> None:
    with open_envs(f"dmc-state/{task}") as envs:
        envs.reset()
        control = envs.envs._tasks[0]
        limits = control.environment.action_spec()
        for action, expected in ((-1.0, limits.minimum), (1.0, limits.maximum)):
            control.step(np.full(limits.shape, action, dtype=np.float32))
            assert control.physics.data.ctrl == pytest.approx(expected, abs=1e-15)
        control.step(np.zeros(limits.shape, dtype=np.float32))
        halfway = (limits.minimum + limits.maximum) / 2
        assert control.physics.data.ctrl == pytest.approx(halfway, abs=1e-15)


@pytest.mark.parametrize("task", ["pendulum-swingup", "cheetah-run"])
def test_an_episode_is_a_thousand_control_steps_and_truncated(task: str) -> None:
    theirs = original_environment(task, 0)
    theirs.reset()
    with open_envs(f"dmc-state/{task}") as ours:
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
            # dm_control's own time limit ends the episode too; its discount of 1 means truncation.
            assert last.last() == (number == 500)
            if last.last():
                assert last.discount == 1.0
                (episode,) = step.episodes
                assert (episode.env, episode.length) == (0, 500)
                assert episode.score == pytest.approx(score, rel=1e-12)
                assert torch.equal(step.next_obs, flatten(last.observation))
                assert torch.equal(step.obs, flatten(theirs.reset().observation))


def arrays(structure: Any) -> dict[str, Any]:
    """Return all arrays of a MuJoCo structure."""
    names = (name for name in dir(structure) if not name.startswith("_"))
    values = {name: getattr(structure, name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


def one_of_each_kind() -> list[str]:
    """Return a task of every domain, and two of finger, whose tasks reset differently."""
    by_domain = {dmc_common.dm_control_names(task)[0]: task for task in dmc_common.tasks()}
    return ["finger-spin", *by_domain.values()]


@pytest.mark.parametrize("task", one_of_each_kind())
def test_play_continues_from_a_saved_state(task: str, tmp_path: Path) -> None:
    """The state is loaded into environments that were never reset."""
    with (
        open_envs(f"dmc-state/{task}", 1) as original,
        open_envs(f"dmc-state/{task}", 7) as continued,
    ):
        original.reset()
        original.reset()
        last = play(original, 6)[-1]
        state = checkpoint.read(checkpoint.save(tmp_path, 1, {"envs": original}))[1]["envs"]
        assert torch.equal(continued.load_state_dict(state), last.obs)
        a, b = original.envs._tasks[0], continued.envs._tasks[0]
        first, second = arrays(a.physics.model.ptr), arrays(b.physics.model.ptr)
        assert len(first) > 100
        for name in first:
            assert np.array_equal(first[name], second[name], equal_nan=True), name
        first, second = vars(a.task), vars(b.task)
        assert first.keys() == second.keys()
        for name in first.keys() - {"_random"}:
            assert np.array_equal(first[name], second[name]), name
        assert_same(play(original, 10, seed=3), play(continued, 10, seed=3))
        # Equal in float64 too, of which observations have only half the digits.
        first, second = original.state_dict()["tasks"][0], continued.state_dict()["tasks"][0]
        for name in ("physics", "sensors"):
            assert np.array_equal(first[name], second[name]), name
        assert torch.equal(original.reset(), continued.reset())
        assert_same(play(original, 4), play(continued, 4))


def test_a_state_just_after_a_reset_continues_too() -> None:
    # A reset of dm_control computes the physics with the actuators off.
    with (
        open_envs("dmc-state/quadruped-run", 1) as original,
        open_envs("dmc-state/quadruped-run", 2) as continued,
    ):
        first = original.reset()
        assert torch.equal(continued.load_state_dict(original.state_dict()), first)
        assert_same(play(original, 5), play(continued, 5))


def test_a_physics_error_ends_one_episode_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_envs("dmc-state/walker-walk", num_envs=2) as envs:
        envs.reset()
        before = play(envs, 3)[-1].obs
        envs.envs._tasks[0].physics.data.qvel[0] = np.nan
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
    assert not list(tmp_path.iterdir())  # by default MuJoCo writes a log here


def test_a_reward_of_nan_ends_one_episode() -> None:
    with open_envs("dmc-state/reacher-easy") as envs:
        envs.reset()
        envs.envs._tasks[0].task.get_reward = lambda physics: np.nan
        with pytest.warns(UserWarning, match="environment 0: the reward is nan; its episode ends"):
            (step,) = play(envs, 1)
        assert step.truncated.tolist() == [True]
        assert step.reward.tolist() == [0]


def test_the_quadruped_finds_its_sensors_with_any_numpy() -> None:
    with open_envs("dmc-state/quadruped-walk") as envs:
        control = envs.envs._tasks[0]
        kinds = (4, 5)  # force and torque at each of four toes
        names = dmc_common._sensor_names(control.physics, *kinds)
        assert len(names) == 8
        assert names == control.physics._get_sensor_names(*kinds)
        assert envs.reset().shape == (1, 78)


def test_the_install_command_has_a_second_part_on_python_3_13(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dmc, "AFTER_INSTALL", "pip install --no-deps dm_control==1.0.27")
    assert suites.install_command("dmc") == (
        "pip install 'hadamard-rl[dmc]' && pip install --no-deps dm_control==1.0.27"
    )
    assert suites.install_command("minatar") == "pip install 'hadamard-rl[minatar]'"


def test_a_batch_holds_the_same_tasks_as_alone() -> None:
    with open_envs("dmc-state/walker-walk", 9, num_envs=3) as envs:
        assert isinstance(envs.envs, BatchEnvs)
        batch = envs.reset()
        for index, seed in enumerate(environment_seeds(9, 3)):
            single = dmc_state.StateTask("walker-walk", seed, gl.Renderer(8, 8))
            assert np.array_equal(single.reset(), batch[index].numpy())
