"""Gymnasium's tasks: the same numbers as Gymnasium's, spaces, saved states, and whose modules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core import checkpoint
from hadamard.core.run import Run
from hadamard.envs import MissingExtra, gym, make, named_modules
from hadamard.envs.gl import CannotDraw
from hadamard.envs.named_modules import NotNamed
from tests.support.commands import Command
from tests.support.environments import assert_plain, assert_same, open_envs, play
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(bool(suites.missing("gym")), reason="needs the gym extra")

TASKS = ("CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1", "LunarLander-v3")
every_task = pytest.mark.parametrize(
    "task",
    [
        pytest.param(
            task, marks=pytest.mark.skipif(bool(suites.missing("gym", task)), reason="needs Box2D")
        )
        for task in TASKS
    ],
)
MODULE = "tests.support.registered"


@pytest.fixture(autouse=True)
def no_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(named_modules.VARIABLE, "")


@pytest.fixture
def registered() -> Any:
    import tests.support.registered

    return tests.support.registered


@every_task
def test_every_task_equals_gymnasium_stepped_directly(task: str) -> None:
    import gymnasium

    theirs: Any = gymnasium.make(task)
    with open_envs(f"gym/{task}", num_envs=1) as ours:
        single: Any = ours.envs._tasks[0]  # type: ignore[attr-defined]
        assert ours.spec.obs_shape == theirs.observation_space.shape
        assert ours.spec.max_steps == theirs.spec.max_episode_steps
        assert ours.spec.step_seconds == pytest.approx(1 / theirs.metadata["render_fps"])
        obs, random, ends = ours.reset(), torch.Generator().manual_seed(0), 0
        observation, _ = theirs.reset(seed=seed_of(single))
        for _ in range(450):
            assert np.array_equal(obs[0].numpy(), observation.astype(np.float32))
            if ours.spec.continuous:
                action = 2 * torch.rand(1, ours.spec.action_size, generator=random) - 1
                low, high = theirs.action_space.low, theirs.action_space.high
                played: Any = (low + high) / 2 + (high - low) / 2 * action[0].numpy()
            else:
                action = torch.randint(ours.spec.num_actions, (1,), generator=random)
                played = int(action)
            step = ours.step(action)
            observation, reward, terminated, truncated, _ = theirs.step(played)
            assert step.reward.item() == np.float32(reward)
            assert bool(step.terminated) == terminated
            assert bool(step.truncated) == (truncated and not terminated)
            assert np.array_equal(step.next_obs[0].numpy(), observation.astype(np.float32))
            obs = step.obs
            if terminated or truncated:
                ends += 1
                observation, _ = theirs.reset(seed=seed_of(single))
        assert ends or task in ("MountainCarContinuous-v0", "Acrobot-v1")
    theirs.close()


def seed_of(task: Any) -> int:
    """The seed that a task's running episode began with."""
    state = np.random.SeedSequence([task._seed, task._episode - 1]).generate_state(1)
    return int(state[0]) >> 1


@every_task
@pytest.mark.parametrize("workers", [0, 2])
def test_play_continues_from_a_saved_state(task: str, workers: int, tmp_path: Path) -> None:
    name = f"gym/{task}"
    with (
        open_envs(name, 1, workers=workers) as original,
        open_envs(name, 7) as continued,
    ):
        assert original.exact
        original.reset()
        last = play(original, 230)[-1]
        saved = checkpoint.save(tmp_path, 1, {"envs": original})
        state = checkpoint.read(saved)[1]["envs"]
        assert torch.equal(continued.load_state_dict(state), last.obs)
        assert_same(play(original, 300, seed=3), play(continued, 300, seed=3))


def test_truncation_is_no_termination(registered: Any) -> None:
    with open_envs("gym/HadamardGrid-v0", num_envs=1) as envs:
        envs.reset()
        steps = [envs.step(torch.zeros(1, dtype=torch.int64)) for _ in range(12)]
    assert [step.truncated.item() for step in steps] == 2 * [*5 * [False], True]
    assert not any(step.terminated.item() for step in steps)
    assert [episode.length for step in steps for episode in step.episodes] == [6, 6]


def test_a_limit_of_the_tasks_own_is_a_truncation() -> None:
    from gymnasium import spaces

    from tests.support.registered import Spaces

    class Cut(Spaces):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:3], True, {}

    name = gym.register(lambda: Cut(spaces.Box(-1, 1, (2,)), spaces.Discrete(2)), "Cut-v0", 9)
    with open_envs(name) as envs:
        envs.reset()
        (step,) = play(envs, 1)
        assert step.truncated.all()
        assert not step.terminated.any()
        assert [episode.length for episode in step.episodes] == [1, 1, 1]


def test_a_task_without_repeatable_numbers_says_so(registered: Any) -> None:
    gym._SAID.clear()
    name = "gym/HadamardChance-v0"
    with pytest.warns(
        UserWarning, match="HadamardChance-v0 cannot be continued exactly: a resumed"
    ):
        envs = make(name, 0, 2)
    assert not envs.exact
    envs.reset()
    play(envs, 4)
    state = envs.state_dict()
    assert_plain(state)
    assert envs.load_state_dict(state) is None
    envs.close()


@pytest.mark.filterwarnings("ignore:an episode of")
@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_a_run_goes_on_with_new_episodes(
    algorithm: str, registered: Any, command: Command, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["--env", "gym/HadamardChance-v0", "--run-dir", run, "--train.steps", "900"]
    words += ["--train.no-tensorboard", "--train.health-every", "0", "--train.until", "400"]
    own = ["--algo.rollout-steps", "20", "--algo.minibatches", "4"]
    own = ["--algo.learning-starts", "100"] if algorithm == "dqn" else own
    done = command("train", algorithm, *words, *own)
    assert done.code == 0, done.err
    resumed = command("train", "--resume", run, "--until", "0")
    assert resumed.code == 0, resumed.err
    lengths = [row["length"] for row in Run.open(str(run)).rows("episodes")]
    assert max(lengths) <= 6


def test_a_task_may_save_itself(registered: Any) -> None:
    name = "gym/HadamardSaved-v0"  # without a time limit, and without seeds
    with open_envs(name, num_envs=1) as original, open_envs(name, num_envs=1) as continued:
        assert original.exact
        original.reset()
        continued.reset()
        last = play(original, 27)[-1]
        state = original.state_dict()
        assert_plain(state)
        assert torch.equal(continued.load_state_dict(state), last.obs)
        assert_same(play(original, 30, seed=3), play(continued, 30, seed=3))


def test_dicts_and_shifted_numbers(registered: Any) -> None:
    with open_envs("gym/hadamardgrid", num_envs=1) as envs:  # the newest version
        assert envs.spec.obs_shape == (8,)
        assert (envs.spec.num_actions, envs.spec.max_steps) == (2, 20)
        obs = envs.reset()[0]
        assert obs[:4].sum() == 1
        assert obs[4:].tolist() == [1, 0, 0, 0]
        single: Any = envs.envs._tasks[0].environment.unwrapped  # type: ignore[attr-defined]
        play(envs, 5)
        assert set(single.actions) <= {5, 6}


def observed(space: Any, value: Any) -> torch.Tensor:
    from gymnasium import spaces

    from tests.support.registered import Spaces

    name = gym.register(lambda: Spaces(space, spaces.Discrete(2), value), "Observed-v0")
    with open_envs(name, num_envs=1) as envs:
        obs = envs.reset()
        assert obs.shape[1:] == envs.spec.obs_shape
        step = play(envs, 1)[0]
        assert torch.equal(step.next_obs, obs)
        return obs[0] * envs.spec.pixel_scale


@pytest.mark.filterwarnings("ignore:an episode of")
def test_every_space_becomes_a_vector_or_an_image() -> None:
    from gymnasium import spaces

    def close(space: Any, value: Any, expected: list[float]) -> None:
        assert observed(space, value).flatten().tolist() == pytest.approx(expected)

    close(spaces.Box(-1, 1, (2,), np.float64), np.array([0.5, -1]), [0.5, -1])
    close(spaces.Box(-9, 9, (), np.float32), np.float32(3), [3])
    close(spaces.Box(-9, 9, (1, 2), int), np.array([[3, 4]]), [3, 4])
    close(spaces.Box(0, 255, (2,), np.uint8), np.array([0, 255], np.uint8), [0, 1])
    close(spaces.Discrete(3, start=-1), 0, [0, 1, 0])
    close(spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0])
    close(spaces.MultiBinary((1, 2)), np.array([[0, 1]], np.int8), [0, 1])
    close(
        spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 255, (1,), np.uint8)]),
        (1, np.array([51], np.uint8)),
        [0, 1, 0.2],
    )
    image = np.arange(96, dtype=np.uint8).reshape(4, 8, 3)
    assert observed(spaces.Box(0, 255, (4, 8, 3), np.uint8), image).shape == (3, 4, 8)
    assert observed(spaces.Box(0, 255, (3, 4, 8), np.uint8), image.reshape(3, 4, 8)).max() < 1
    assert observed(spaces.Box(0, 255, (4, 8), np.uint8), image[..., 0]).shape == (1, 4, 8)
    ones = np.ones((4, 8, 3), np.uint8)
    assert observed(spaces.Box(0, 1, (4, 8, 3), np.uint8), ones).max() == 1  # as MinAtar's
    assert observed(spaces.Box(-1, 1, (3, 8, 8)), np.ones((3, 8, 8), np.float32)).max() == 1


def refused(observation_space: Any, action_space: Any) -> str:
    from tests.support.registered import Spaces

    name = gym.register(lambda: Spaces(observation_space, action_space), "Refused-v0")
    with pytest.raises(ValueError) as error:
        make(name, 0, 1)
    return str(error.value)


def test_other_spaces_are_refused_by_their_name() -> None:
    from gymnasium import spaces

    box, two = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
    assert refused(spaces.Text(3), two).startswith("gym/Refused-v0 observes Text(")
    assert "observes Sequence(" in refused(spaces.Dict(a=box, b=spaces.Sequence(box)), two)
    assert "more than 10,000 values" in refused(spaces.Discrete(10**6), two)
    assert "images of 2 x 9 pixels: 3 x 3 at least" in refused(
        spaces.Box(0, 255, (2, 9), np.uint8), two
    )
    for actions in (
        spaces.MultiDiscrete([2, 2]),
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(0, 5, (2,), int),
        spaces.Dict(a=two),
    ):
        message = refused(box, actions)
        assert f"takes {actions} as actions, which is not supported. Supported are" in message
        assert "gymnasium.ActionWrapper" in message


def test_a_value_outside_of_its_space_is_an_error() -> None:
    from gymnasium import spaces

    from tests.support.registered import Spaces

    outside = Spaces(spaces.Discrete(3), spaces.Discrete(2), 3)
    name = gym.register(lambda: outside, "Outside-v0", max_steps=9)
    with pytest.raises(ValueError, match=r"observed 3, which does not lie in Discrete\(3\)"):
        make(name, 0, 1).reset()


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ("LunarLnder-v2", "did you mean 'LunarLander-v3' or"),
        ("CartPole-v9", "did you mean 'CartPole-v1'?"),
        ("Taxi-v3", "did you mean 'Taxi-v4'?"),
        ("Chess-v0", "no task 'Chess-v0'. List"),
    ],
)
def test_unknown_tasks(task: str, hint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(hint)):
        make(f"gym/{task}", 0, 1)


def test_no_robot_is_offered_for_a_lander(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym, "_registered", dict)
    monkeypatch.setattr(gym, "_BOX2D", ())
    with pytest.raises(ValueError, match=r"no task 'LunarLander-v3'\. List"):
        make("gym/LunarLander-v3", 0, 1)


def test_missing_packages_of_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = suites.importlib.util.find_spec
    monkeypatch.setattr(
        suites.importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "Box2D" else find_spec(name, package),
    )
    with pytest.raises(MissingExtra, match=r"gym/LunarLander-v3 needs Box2D.*hadamard-rl\[box2d\]"):
        make("gym/lunarlander", 0, 1)
    assert any("LunarLander-v3, " in note and "[box2d]" in note for note in suites.notes("gym"))
    make("gym/cartpole", 0, 1).close()


def test_pictures(registered: Any) -> None:
    with open_envs("gym/HadamardGrid-v0", training=False) as envs:
        envs.reset()
        assert envs.render().shape == (8, 32, 3)
    with open_envs("gym/HadamardGrid-v0") as training:
        training.reset()
        with pytest.raises(CannotDraw, match="gym/HadamardGrid-v0 has no pictures"):
            training.render()


def test_a_task_of_a_function_in_workers(registered: Any) -> None:
    name = gym.register(registered.Grid, "Function-v0", max_steps=9)
    assert name == "gym/Function-v0"
    with open_envs(name, 1, workers=2) as workers, open_envs(name, 1) as here:
        assert torch.equal(workers.reset(), here.reset())
        assert_same(play(workers, 40), play(here, 40))
    gym.register(lambda: registered.Grid(), "Lambda-v0", max_steps=9)
    with pytest.raises(
        ValueError, match=r"Lambda-v0 cannot be made in worker processes.*workers 0"
    ):
        make("gym/Lambda-v0", 0, 2, workers=2)


def test_only_modules_that_the_user_names_are_imported() -> None:
    code = (
        "import sys; from hadamard.envs import make\n"
        "try: make('gym/tests.support.registered:HadamardGrid-v0', 0, 1)\n"
        "except ValueError as error: print(error)\n"
        "print('tests.support.registered' in sys.modules)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    message, imported = completed.stdout.strip().splitlines()
    assert "imported only if you name it: add --plugin tests.support.registered" in message
    assert imported == "False"


def test_named_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("", "my-tasks", "a b", "a..b", "1a", "a,b"):
        with pytest.raises(ValueError, match="is not the name of a module"):
            named_modules.allow(wrong)
    with pytest.raises(NotNamed, match="--plugin no_such_tasks"):
        named_modules.load("no_such_tasks", "gym/no_such_tasks:A-v0")
    named_modules.allow("no_such_tasks")
    with pytest.raises(ModuleNotFoundError, match="there is no module no_such_tasks. Install it"):
        named_modules.load("no_such_tasks", "gym/no_such_tasks:A-v0")
    named_modules.load("sys", "gym/sys:A-v0")  # imported already
    with pytest.raises(ValueError, match="the module sys registers no task 'A-v0'"):
        gym.find_task("sys:A-v0")


def test_a_run_folder_imports_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training names the module; resuming, evaluating and playing ask for it again."""
    (tmp_path / "my_grid.py").write_text(
        "import gymnasium\nfrom tests.support.registered import Grid\n"
        "gymnasium.register('MyGrid-v0', 'my_grid:Grid', max_episode_steps=20)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    words = ["--run-dir", str(run), "--train.steps", "512", "--algo.rollout-steps", "16"]
    words += ["--train.until", "256", "--train.no-tensorboard", "--train.env-workers", "2"]
    words += ["--train.health-every", "0"]
    done = command("train", "ppo", "--env", "gym/my_grid:MyGrid-v0", *words)
    assert done.code == 0, done.err

    def forget() -> None:
        import gymnasium

        monkeypatch.setenv(named_modules.VARIABLE, "")
        sys.modules.pop("my_grid")
        gymnasium.registry.pop("MyGrid-v0")

    for request in (
        ["train", "--resume", str(run), "--until", "0"],
        ["evaluate", str(run), "--episodes", "1"],
        ["analyze", str(run), "--samples", "16"],
    ):
        forget()
        refused = command(*request)
        assert refused.code == 2
        assert "imported only if you name it: add --plugin my_grid" in refused.err
        assert "my_grid" not in sys.modules
        allowed = command(*request, "--plugin", "my_grid")
        assert allowed.code == 0, allowed.err
    forget()
    old = command("evaluate", str(run), "--episodes", "1", "--import=my_grid")
    assert old.code == 0, old.err
    assert "--import=my_grid is written --plugin=my_grid now" in old.err
    assert command("evaluate", str(run), "--plugin").err.startswith("hadamard: --plugin needs")


def test_the_list_of_environments(command: Command) -> None:
    listed = command("envs").out
    assert "gym/CartPole-v1 " in listed
    assert "gym/LunarLander-v3" in listed
    assert "gym/MODULE:ID" in listed
