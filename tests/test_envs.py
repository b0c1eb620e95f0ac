"""Every suite keeps the contract, and each keeps its own protocol."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core.types import Envs, Step
from hadamard.envs import MissingExtra, atari, humanoid_assets, make, minatar
from hadamard.envs.common import copied, spread
from hadamard.envs.workers import EnvironmentFailure, WorkerEnvs

# A heavy suite is represented by the tasks that differ in kind.
CHOSEN = {
    "atari": ("Breakout", "Pong"),
    "humanoid": ("h1-walk", "h1-reach", "h1-sit-hard"),
    # Frames take long to draw without a GPU: test_dmc.py holds these to a shorter contract.
    "dmc": (),
    "dmc-state": ("walker-walk", "reacher-hard"),
    "gym": ("Hopper-v5", "Reacher-v5"),
}
PLAIN = (dict, list, torch.Tensor, np.ndarray, int, float, bool, str, type(None))


def needs(suite: str) -> str:
    """What a suite lacks here; nothing when it can be played."""
    if suites.missing(suite):
        return f"needs the {suite} extra"
    if suite == "humanoid":
        try:
            humanoid_assets.locate()
        except humanoid_assets.AssetsError as error:
            return str(error)
    return ""


def every_task() -> list[Any]:
    found = []
    for suite in suites.suites():
        needed = needs(suite)
        skip = pytest.mark.skipif(bool(needed), reason=needed)
        tasks = CHOSEN.get(suite, suites.tasks(suite))
        found += [pytest.param(f"{suite}/{task}", marks=skip) for task in tasks]
    return found


every = pytest.mark.parametrize("name", every_task())


@contextmanager
def open_envs(name: str, seed: int = 0, num_envs: int = 3, **options: Any) -> Iterator[Envs]:
    made = make(name, seed, num_envs, **options)
    try:
        yield made
    finally:
        made.close()


def play(envs: Envs, steps: int, seed: int = 0) -> list[Step]:
    random = torch.Generator().manual_seed(seed)
    return [envs.step(any_action(envs, random)) for _ in range(steps)]


def any_action(envs: Envs, random: torch.Generator) -> torch.Tensor:
    if envs.spec.continuous:
        return 2 * torch.rand(envs.num_envs, envs.spec.action_size, generator=random) - 1
    return torch.randint(envs.spec.num_actions, (envs.num_envs,), generator=random)


def assert_same(one: list[Step], two: list[Step]) -> None:
    assert len(one) == len(two)
    for step, (a, b) in enumerate(zip(one, two, strict=True)):
        assert torch.equal(a.obs, b.obs), step
        assert torch.equal(a.next_obs, b.next_obs), step
        assert torch.equal(a.reward, b.reward), step
        assert torch.equal(a.terminated, b.terminated), step
        assert torch.equal(a.truncated, b.truncated), step
        assert a.episodes == b.episodes, step


def differ(one: list[Step], two: list[Step]) -> bool:
    return any(
        not torch.equal(a.obs, b.obs) or not torch.equal(a.reward, b.reward)
        for a, b in zip(one, two, strict=True)
    )


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    # Tensors are tiny here: threads only wait for each other.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def steps_of(name: str) -> int:
    if name == "humanoid/h1-reach" or name.startswith("dmc-state"):
        return 510  # only the time limit ends it
    return 200 if name.startswith("atari") else 400


@every
def test_shapes_and_kinds(name: str) -> None:
    with open_envs(name) as envs:
        spec, num_envs = envs.spec, envs.num_envs
        assert num_envs == 3
        assert (spec.num_actions >= 2) != (spec.action_size >= 1)
        assert spec.obs_shape[0] % spec.frames == 0

        def check_obs(obs: torch.Tensor, rows: int) -> None:
            assert obs.shape == (rows, *spec.obs_shape)
            assert obs.dtype == spec.obs_dtype

        check_obs(envs.reset(), num_envs)
        for step in play(envs, 60):
            check_obs(step.obs, num_envs)
            check_obs(step.next_obs, num_envs)
            assert step.reward.shape == step.terminated.shape == step.truncated.shape == (num_envs,)
            assert step.reward.dtype == torch.float32
            assert step.terminated.dtype == step.truncated.dtype == torch.bool
            if step.final_index is not None:
                assert step.final_index.dtype == torch.int64
                assert step.final_obs is not None
                check_obs(step.final_obs, len(step.final_index))


@every
def test_ends_are_consistent(name: str) -> None:
    with open_envs(name, training=False) as envs:
        envs.reset()
        score = np.zeros(3)
        rounding = np.zeros(3)
        length = np.zeros(3, dtype=int)
        finished = 0
        for step in play(envs, steps_of(name)):
            score += step.reward.numpy()
            if envs.spec.continuous:  # scores are summed before rewards become float32
                rounding += 2**-24 * step.reward.abs().numpy()
            length += 1
            assert not (step.terminated & step.truncated).any()
            assert step.any_truncated == bool(step.truncated.any())
            ended = (step.terminated | step.truncated).nonzero().flatten().tolist()
            reset = [] if step.final_index is None else step.final_index.tolist()
            assert ended == reset
            assert [episode.env for episode in step.episodes] == reset
            assert (step.final_obs is None) == (not reset)
            for episode in step.episodes:
                assert abs(episode.score - score[episode.env]) <= rounding[episode.env]
                assert episode.length == length[episode.env]
                score[episode.env] = rounding[episode.env] = length[episode.env] = 0
                finished += 1
        assert finished > 0 or name in ("minatar/freeway", "atari/Pong")


@every
def test_what_is_handed_over_stays_as_it_was(name: str) -> None:
    with open_envs(name) as envs:
        kept = [envs.reset()]
        copies = [kept[0].clone()]
        for step in play(envs, 20):
            kept += [step.obs, step.next_obs, step.reward]
            copies += [step.obs.clone(), step.next_obs.clone(), step.reward.clone()]
        for one, two in zip(kept, copies, strict=True):
            assert torch.equal(one, two)


@every
def test_a_seed_fixes_the_stream(name: str) -> None:
    with (
        open_envs(name, 1) as one,
        open_envs(name, 1) as two,
        open_envs(name, 2) as other,
    ):
        first, second, third = one.reset(), two.reset(), other.reset()
        assert torch.equal(first, second)
        steps = 40 if name.startswith("atari") else 100
        a, b, c = play(one, steps), play(two, steps), play(other, steps)
        assert_same(a, b)
        if name.removeprefix("probe/") not in ("constant", "delayed", "action", "truncation"):
            assert differ(a, c) or not torch.equal(first, third)


def assert_plain(state: Any) -> None:
    assert isinstance(state, PLAIN), type(state)
    if isinstance(state, dict):
        assert all(type(key) is str for key in state)
        for value in state.values():
            assert_plain(value)
    elif isinstance(state, list):
        for value in state:
            assert_plain(value)
    else:
        assert not isinstance(state, np.generic)
        assert not isinstance(state, np.ndarray) or state.dtype != object


@every
def test_play_continues_from_a_saved_state(name: str) -> None:
    with open_envs(name, 1) as one, open_envs(name, 7) as two:
        one.reset()
        steps = 60 if name.startswith("atari") else 130
        last = play(one, steps)[-1]
        state = one.state_dict()
        assert_plain(state)
        shown: Any = two.load_state_dict(state)
        assert one.exact
        assert torch.equal(shown, last.obs)
        assert_same(play(one, steps, seed=3), play(two, steps, seed=3))
        # The state was not tied to the environments it came from.
        shown = two.load_state_dict(state)
        assert torch.equal(shown, last.obs)


@every
def test_a_reset_mid_episode_forgets_it(name: str) -> None:
    with open_envs(name, training=False) as envs:
        envs.reset()
        play(envs, 9)
        envs.reset()
        length = np.zeros(3, dtype=int)
        for step in play(envs, steps_of(name)):
            length += 1
            for episode in step.episodes:
                assert episode.length == length[episode.env]
                length[episode.env] = 0
            if step.episodes:
                return


@every
def test_bad_actions_are_refused(name: str) -> None:
    with open_envs(name) as envs:
        envs.reset()
        spec = envs.spec
        good = torch.zeros(3, *spec.action_shape, dtype=spec.action_dtype)
        limits = r"\[-1, 1\]" if spec.continuous else f"0..{spec.num_actions - 1}"
        with pytest.raises(ValueError, match=r"shape \(3,.*got \(2,"):
            envs.step(good[:2])
        with pytest.raises(ValueError, match=rf"{limits}, got -2"):
            envs.step(good - 2)
        with pytest.raises(ValueError, match="integers|floating-point"):
            envs.step(good.long() if spec.continuous else good.float())
        if spec.continuous:
            with pytest.raises(ValueError, match=rf"{limits}, got nan"):
                envs.step(good * torch.nan)
        with pytest.raises(RuntimeError, match="without send"):
            envs.receive()
        envs.step(good)


@every
def test_a_state_of_other_environments_is_refused(name: str) -> None:
    with (
        open_envs(name) as three,
        open_envs(name, num_envs=2) as two,
        pytest.raises(ValueError, match="num_envs=3"),
    ):
        two.load_state_dict(three.state_dict())


def test_empty_batches_and_negative_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="num_envs .--algo.num-envs. must be at least 1, got 0"):
        make("probe/constant", 0, 0)
    with pytest.raises(ValueError, match="seed must be 0 or more, got -1"):
        make("probe/constant", -1, 2)
    with pytest.raises(ValueError, match="workers must be 0"):
        make("probe/constant", 0, 2, workers=-1)


def test_discovery() -> None:
    found = suites.suites()
    assert {"atari", "minatar", "probe"} <= found.keys()
    assert "workers" not in found
    assert "common" not in found
    assert all(description.endswith(".") for description in found.values())
    # Names do not mind upper and lower case.
    assert make("Probe/CONSTANT", 0, 1).num_envs == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("breakout", "'suite/task'.*got 'breakout'"),
        ("minatar/", "'suite/task'"),
        ("minatr/breakout", "unknown suite 'minatr'; did you mean 'minatar'.*Known:.*probe"),
        ("zzz/breakout", r"unknown suite 'zzz'\. Known:"),
        ("minatar/brakout", "no task 'brakout'; did you mean 'breakout'.*hadamard envs"),
        ("atari/mspackman", "did you mean 'MsPacman'"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(name, 0, 1)


def test_a_suite_named_by_hand_refuses_unknown_tasks() -> None:
    with pytest.raises(ValueError, match="minatar has no task 'pong'; it has: asterix"):
        minatar.make("pong", 0, 1)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "minatar" else find_spec(name, package),
    )
    assert suites.missing("minatar") == ("minatar",)
    assert suites.missing("probe") == ()
    with pytest.raises(MissingExtra, match=r"pip install 'hadamard-rl\[minatar\]'"):
        make("minatar/breakout", 0, 1)
    with pytest.raises(ValueError, match="no task"):
        make("minatar/pong", 0, 1)


def test_naming_a_suite_imports_no_other() -> None:
    code = (
        "import sys; from hadamard.envs import make, suites; suites(); make('probe/both', 0, 1);"
        "print([m for m in ('minatar', 'ale_py', 'hadamard.envs.atari') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tasks_are_listed_with_nothing_installed() -> None:
    packages = ("minatar", "ale_py", "mujoco", "dm_control", "gymnasium", "cv2")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({packages}));"
        "from hadamard.envs import suites, tasks;"
        "print(*(len(tasks(suite)) > 4 for suite in suites()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {"True"}


def test_probe_values() -> None:
    ones = torch.ones(64, dtype=torch.long)
    for task, expected in {"constant": 1.0, "action": 1.0}.items():
        envs = make(f"probe/{task}", 0, 64)
        envs.reset()
        step = envs.step(ones)
        assert (step.reward == expected).all()
        assert step.terminated.all()
    assert (make("probe/action", 0, 64).step(0 * ones).reward == -1).all()
    for task in ("observed", "both"):
        envs = make(f"probe/{task}", 0, 64)
        side = envs.reset()[:, 0]
        assert set(side.tolist()) == {-1.0, 1.0}
        right = (side > 0).long()
        assert torch.equal(envs.step(right).reward, side if task == "observed" else side.abs())
    envs = make("probe/delayed", 0, 64)
    assert (envs.reset() == 0).all()
    first, second = envs.step(ones), envs.step(ones)
    assert (first.obs == 1).all()
    assert first.reward.sum() == 0
    assert not first.terminated.any()
    assert (second.reward == 1).all()
    assert second.terminated.all()
    assert (second.obs == 0).all()
    assert (second.next_obs == 1).all()


def test_probe_truncation_is_never_terminated() -> None:
    envs = make("probe/truncation", 0, 2)
    envs.reset()
    steps = play(envs, 8)
    assert [step.any_truncated for step in steps] == [False, False, False, True] * 2
    assert not any(step.terminated.any() for step in steps)
    assert steps[3].episodes[1] == (1, 4.0, 4)


@pytest.mark.parametrize("task", ["image", "image84"])
def test_probe_images_show_their_side(task: str) -> None:
    envs = make(f"probe/{task}", 0, 64)
    obs = envs.reset()
    half = obs.shape[-1] // 2
    lit = (obs > 0).flatten(1, 2).any(1)
    assert (lit.sum(1) == 1).all()
    right = lit[:, half:].any(1)
    assert right.any()
    assert not right.all()
    assert len(set(lit.long().argmax(1).tolist())) > 4
    assert (envs.step(right.long()).reward == 1).all()
    assert envs.spec.frames == (4 if task == "image84" else 1)


@pytest.mark.filterwarnings("ignore")  # the package imports seaborn
@pytest.mark.parametrize("game", minatar.tasks())
@pytest.mark.parametrize("ramping", [False, True])
def test_minatar_is_the_package(game: str, ramping: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("minatar")
    monkeypatch.setattr(minatar, "MAX_STEPS", 300)
    ours = minatar.make(game, 5, 4, ramping=ramping)
    theirs = []
    for seed in spread(5, 4):
        env = package.Environment(game, sticky_action_prob=0.1, difficulty_ramping=ramping)
        env.seed(seed)
        env.reset()
        env.reset()  # once when ours are made, once by reset()
        theirs.append(env)
    actions = theirs[0].minimal_action_set()
    assert ours.spec.num_actions == len(actions)
    lengths = [0] * 4

    def states() -> torch.Tensor:
        drawn = np.stack([env.state().transpose(2, 0, 1) for env in theirs])
        return torch.from_numpy(drawn.astype(np.uint8))

    assert torch.equal(ours.reset(), states())
    random = np.random.default_rng(0)
    truncations = terminations = 0
    for _ in range(700):
        chosen = random.integers(len(actions), size=4)
        step = ours.step(torch.from_numpy(chosen))
        results = [env.act(actions[a]) for env, a in zip(theirs, chosen, strict=True)]
        assert step.reward.tolist() == [float(reward) for reward, _ in results]
        assert step.terminated.tolist() == [terminal for _, terminal in results]
        assert torch.equal(step.next_obs, states())
        for env in range(4):
            lengths[env] += 1
            terminal = results[env][1]
            truncated = lengths[env] == 300 and not terminal
            assert bool(step.truncated[env]) == truncated
            if terminal or truncated:
                theirs[env].reset()
                lengths[env] = 0
                truncations += truncated
                terminations += terminal
        assert torch.equal(step.obs, states())
    assert truncations if game == "freeway" else terminations


needs_atari = pytest.mark.skipif(bool(suites.missing("atari")), reason="needs the atari extra")


@needs_atari
def test_atari_games_resolve() -> None:
    from ale_py import roms

    assert len(atari.tasks()) == len(set(atari.tasks())) == 57
    assert all(roms.get_rom_path(atari.rom(task)) for task in atari.tasks())


@needs_atari
def test_atari_a_successor_continues_the_frames_before_it() -> None:
    with open_envs("atari/Breakout", num_envs=2) as envs:
        before = envs.reset()
        assert before.flatten(2).any(2).all()
        ends = 0
        for step in play(envs, 300):
            assert torch.equal(step.next_obs[:, :3], before[:, 1:])
            for env in [] if step.final_index is None else step.final_index.tolist():
                ends += 1
                assert (step.obs[env] == step.obs[env, :1]).all()
            before = step.obs
        assert ends


@needs_atari
def test_atari_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "MAX_STEPS", 12)
    with (
        open_envs("atari/Pong", num_envs=2, atari_reset="envpool") as envs,
        open_envs("atari/Pong", num_envs=2, atari_reset="envpool") as free,
    ):
        for game in free.games._games:
            game._max_steps = 27_000
        assert torch.equal(envs.reset(), free.reset())
        steps = play(envs, 25)
        assert [i for i, step in enumerate(steps) if step.any_truncated] == [11, 23]
        end = steps[11]
        assert end.truncated.all()
        assert not end.terminated.any()
        assert [episode.length for episode in end.episodes] == [12, 12]
        assert (end.obs == end.obs[:, :1]).all()
        # What is bootstrapped from is what play without a limit would have shown.
        assert torch.equal(end.next_obs, play(free, 12)[-1].obs)


@needs_atari
@pytest.mark.parametrize("game", ["Breakout", "Pong", "MsPacman", "Seaquest"])
def test_atari_frames_are_those_of_the_vector_environment(game: str) -> None:
    """Up to the first lost life, after which only ours play forced actions."""
    from ale_py.vector_env import AtariVectorEnv

    theirs = AtariVectorEnv(
        atari.rom(game),
        1,
        stack_num=4,
        frameskip=4,
        noop_max=1,
        use_fire_reset=True,
        repeat_action_probability=0.0,
        reward_clipping=False,
    )
    first, info = theirs.reset(seed=np.array([0]))
    lives = info["lives"][0]
    random = torch.Generator().manual_seed(0)
    with open_envs(f"atari/{game}", 3, num_envs=1, training=False) as ours:
        # The vector environment begins with FIRE and without no-ops.
        one = ours.games._games[0]
        one.emulator.reset_game()
        if one._fire is not None:
            one._play(one._fire)
        one._look()
        one._lives = one.emulator.lives()
        assert np.array_equal(one.frame, first[0, -1])
        compared = 0
        for _ in range(150):
            action = any_action(ours, random)
            step = ours.step(action)
            obs, reward, _, _, info = theirs.step(action.numpy())
            assert step.reward.tolist() == reward.tolist()
            if info["lives"][0] < lives:
                break
            assert np.array_equal(step.obs[:, -1].numpy(), obs[:, -1])
            compared += 1
        assert compared > 20
    theirs.close()


@needs_atari
def test_atari_state_survives_the_process(tmp_path: Any) -> None:
    with open_envs("atari/Qbert", num_envs=1) as envs:
        envs.reset()
        play(envs, 60)
        torch.save(envs.state_dict(), tmp_path / "state.pt")
        expected = torch.stack([step.obs for step in play(envs, 20, seed=4)])
    code = """
import sys, torch
from hadamard.envs import make
envs = make("atari/Qbert", 9, 1)
envs.load_state_dict(torch.load(sys.argv[1] + "/state.pt", weights_only=False))
random = torch.Generator().manual_seed(4)
actions = torch.randint(envs.spec.num_actions, (20, 1), generator=random)
torch.save(torch.stack([envs.step(action).obs for action in actions]), sys.argv[1] + "/obs.pt")
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert torch.equal(torch.load(tmp_path / "obs.pt"), expected)


@needs_atari
def test_atari_sends_ahead() -> None:
    with open_envs("atari/Breakout", num_envs=2) as envs:
        envs.reset()
        envs.send(torch.zeros(2, dtype=torch.long))
        with pytest.raises(RuntimeError, match="twice"):
            envs.send(torch.zeros(2, dtype=torch.long))
        with pytest.raises(RuntimeError, match="under way"):
            envs.state_dict()
        envs.receive()
        envs.send(torch.zeros(2, dtype=torch.long))  # close() with a step under way


def processes(envs: WorkerEnvs) -> list[int]:
    return [process.pid for process in envs._processes if process.pid is not None]


@contextmanager
def open_workers(name: str, timeout: float = 60.0) -> Iterator[WorkerEnvs]:
    made = WorkerEnvs(name, 3, 5, workers=2, timeout=timeout)
    yield made
    made.close()
    assert not multiprocessing.active_children()


@pytest.fixture
def workers() -> Iterator[WorkerEnvs]:
    with open_workers("probe/both") as made:
        yield made


@pytest.mark.skipif(bool(suites.missing("minatar")), reason="needs the minatar extra")
def test_workers_play_what_one_process_plays() -> None:
    with open_workers("minatar/asterix") as workers:
        check_parts(workers, "workers")


@pytest.mark.skipif(bool(suites.missing("minatar")), reason="needs the minatar extra")
def test_groups_play_what_each_plays_alone() -> None:
    with open_envs("minatar/asterix", 3, 5, groups=2) as grouped:
        check_parts(grouped, "groups")


def check_parts(workers: Envs, kind: str) -> None:
    """Environments made in two parts, with seed 3: three and two of them."""
    seeds = spread(3, 5)
    parts = [minatar.make("asterix", seeds[:3], 3), minatar.make("asterix", seeds[3:], 2)]
    assert workers.spec == parts[0].spec
    assert workers.exact

    def joined(steps: list[Step], name: str) -> torch.Tensor:
        return torch.cat([getattr(step, name) for step in steps])

    assert torch.equal(workers.reset(), torch.cat([part.reset() for part in parts]))
    random = torch.Generator().manual_seed(0)
    ended = 0
    saved: Any = None
    after = []
    for round in range(300):
        action = torch.randint(5, (5,), generator=random)
        workers.send(action)
        steps = [parts[0].step(action[:3]), parts[1].step(action[3:])]
        step = workers.receive()
        for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(step, name), joined(steps, name)), name
        expected = [*steps[0].episodes]
        expected += [e._replace(env=e.env + 3) for e in steps[1].episodes]
        assert list(step.episodes) == expected
        ended += len(expected)
        if round == 250:
            saved = workers.state_dict()
            assert_plain(saved)
        elif round > 250:
            after.append(step)
    assert ended
    shown = workers.load_state_dict(saved)
    assert shown is not None
    random = torch.Generator().manual_seed(0)
    actions = [torch.randint(5, (5,), generator=random) for _ in range(300)]
    assert_same(after, [workers.step(action) for action in actions[251:]])
    if kind == "groups":
        with pytest.raises(ValueError, match="groups=1"):
            workers.load_state_dict({kind: saved[kind][:1]})
    else:  # what two workers saved is what one process would have
        whole = minatar.make("asterix", 7, 5)
        assert torch.equal(whole.load_state_dict(saved), shown)
        assert_same(after, [whole.step(action) for action in actions[251:]])
        # Earlier versions kept the workers' states apart.
        apart = [part.state_dict() for part in parts]
        joined_again = minatar.make("asterix", 7, 5)
        obs = workers.load_state_dict({"workers": apart})
        assert torch.equal(obs, joined_again.load_state_dict(workers.state_dict()))
    with pytest.raises(RuntimeError, match="without send"):
        workers.receive()


def test_a_killed_worker_is_named(workers: WorkerEnvs) -> None:
    workers.reset()
    pids = processes(workers)
    os.kill(pids[1], signal.SIGKILL)
    started = time.monotonic()
    with pytest.raises(EnvironmentFailure, match=r"worker 1 .*3 to 4 of probe/both.* -9"):
        play(workers, 3)
    assert time.monotonic() - started < 30.0  # It is told by the death, not by the time limit.
    assert not multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="closed"):
        workers.reset()


def test_what_asks_a_whole_job_to_stop_is_the_parents_to_answer(workers: WorkerEnvs) -> None:
    workers.reset()
    for pid in processes(workers):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    assert len(play(workers, 3)) == 3


def test_a_hung_worker_is_named() -> None:
    with open_workers("probe/both", timeout=5.0) as workers:
        workers.reset()
        os.kill(processes(workers)[0], signal.SIGSTOP)
        with pytest.raises(EnvironmentFailure, match=r"worker 0 .*0 to 2 .*within 5 s"):
            play(workers, 1)
        assert not multiprocessing.active_children()


def test_a_workers_exception_comes_with_its_traceback(workers: WorkerEnvs) -> None:
    with pytest.raises(EnvironmentFailure, match=r"(?s)worker . .*Traceback.*KeyError: 'side'"):
        workers.load_state_dict({"workers": [{}, {}]})
    assert not multiprocessing.active_children()


def test_a_state_that_cannot_be_parted_needs_as_many_workers(workers: WorkerEnvs) -> None:
    workers.reset()
    state = workers.state_dict()
    with pytest.raises(ValueError, match="workers=1"):
        workers.load_state_dict({"workers": state["workers"][:1]})
    assert workers.load_state_dict(state) is not None


def test_workers_are_limited_by_the_environments() -> None:
    with pytest.raises(ValueError, match="1..2.*got 3"):
        make("probe/constant", 0, 2, workers=3)


def test_groups_are_limited_by_environments_and_workers() -> None:
    with pytest.raises(ValueError, match="1..2.*got 3"):
        make("probe/constant", 0, 2, groups=3)
    with pytest.raises(ValueError, match="1..2.*got 0"):
        make("probe/constant", 0, 2, groups=0)
    with pytest.raises(ValueError, match="1..1, .*worker processes.*got 2"):
        make("probe/constant", 0, 4, groups=2, workers=1)
    with open_envs("probe/constant", 0, 4, groups=2, workers=3) as grouped:
        assert len(multiprocessing.active_children()) == 3
        grouped.reset()
        with pytest.raises(ValueError, match="4 actions.*(3,)"):
            grouped.send(torch.zeros(3, dtype=torch.int64))
        assert grouped.step(torch.zeros(4, dtype=torch.int64)).reward.tolist() == [1.0] * 4
    assert not multiprocessing.active_children()


def test_workers_die_with_their_parent() -> None:
    code = """
import os, signal
from hadamard.envs import make
if __name__ == "__main__":
    envs = make("probe/both", 0, 2, workers=2)
    print(*[process.pid for process in envs._processes], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_running(pid) for pid in pids)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shape", [(7, 6), (300, 1_000)])
def test_a_copied_array_may_be_written_again(shape: tuple[int, int], device: str) -> None:
    array = np.arange(shape[0] * shape[1], dtype=np.uint8).reshape(shape)[:, ::2]  # with gaps
    expected = torch.tensor(array)
    copy = copied(array, torch.device(device))
    array.fill(1)
    assert copy.device.type == device
    assert torch.equal(copy.cpu(), expected)


@needs_atari
@pytest.mark.parametrize(
    ("task", "shape"), [("Breakout-v5", (4, 84, 84)), ("probe/image", (1, 10, 10))]
)
def test_a_peers_script_is_timed_on_the_same_emulators(
    task: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    script = tmp_path / "peer_script.py"
    script.write_text(f"""
import sys
import envpool, gym, wandb
import numpy as np
from torch.utils.tensorboard import SummaryWriter

wandb.init(project="x")
SummaryWriter("y").add_scalar("z", 1, 2)
envs = gym.Wrapper(envpool.make("{task}", env_type="gym", num_envs=2, reward_clip=True))
assert envs.reset().shape == {(2, *shape)}
for _ in range(1_000_000):
    obs, reward, done, info = envs.step(np.zeros(2, dtype=np.int64))
    assert obs.shape == {(2, *shape)} and set(info) > {{"lives", "reward"}}
    assert sys.argv[1] == "--ours"
""")
    peer = Path(__file__).parents[1] / "benchmarks" / "peer.py"
    words = [sys.executable, peer, "--period", "3", "--warm", "2", "--seconds", "0.1"]
    words += ["--replace", "1_000_000", "9_999_999", script, "--ours"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert float(done.stdout.split("SPS: ")[1]) > 0
    words[words.index("1_000_000")] = "never said"
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "has no 'never said'" in refused.stderr
