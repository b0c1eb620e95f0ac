"""Atari: frames, truncation, saved states, and send and receive."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.envs import atari, atari_game
from tests.support.environments import open_envs, play, random_action

needs_atari = pytest.mark.skipif(bool(suites.missing("atari")), reason="needs the atari extra")


@needs_atari
def test_every_game_has_a_rom() -> None:
    from ale_py import roms

    assert len(atari.tasks()) == len(set(atari.tasks())) == 57
    assert all(roms.get_rom_path(atari.rom(task)) for task in atari.tasks())


@needs_atari
def test_a_successor_continues_the_frames_before_it() -> None:
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
def test_envpool_truncation_bootstraps_from_the_next_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari_game, "MAX_STEPS", 12)
    with (
        open_envs("atari/Pong", num_envs=2, atari_reset="envpool") as envs,
        open_envs("atari/Pong", num_envs=2, atari_reset="envpool") as unlimited,
    ):
        for game in unlimited.envs.games._games:
            game._max_steps = 27_000
        assert torch.equal(envs.reset(), unlimited.reset())
        steps = play(envs, 25)
        assert [i for i, step in enumerate(steps) if step.any_truncated] == [11, 23]
        end = steps[11]
        assert end.truncated.all()
        assert not end.terminated.any()
        assert [episode.length for episode in end.episodes] == [12, 12]
        assert (end.obs == end.obs[:, :1]).all()
        # The true successor is what play without a limit would have observed.
        assert torch.equal(end.next_obs, play(unlimited, 12)[-1].obs)


@needs_atari
@pytest.mark.parametrize("game", ["Breakout", "Pong", "MsPacman", "Seaquest"])
def test_frames_are_those_of_the_vector_environment(game: str) -> None:
    """Compared up to the first lost life, after which only ours play forced actions."""
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
        first_game = ours.envs.games._games[0]
        first_game.emulator.reset_game()
        if first_game._fire is not None:
            first_game._act(first_game._fire)
        first_game._capture()
        first_game._lives = first_game.emulator.lives()
        assert np.array_equal(first_game.frame, first[0, -1])
        compared = 0
        for _ in range(150):
            action = random_action(ours, random)
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
def test_a_state_can_be_loaded_in_another_process(tmp_path: Any) -> None:
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
def test_a_step_under_way_must_be_received_first() -> None:
    with open_envs("atari/Breakout", num_envs=2) as envs:
        envs.reset()
        envs.send(torch.zeros(2, dtype=torch.long))
        with pytest.raises(RuntimeError, match="twice"):
            envs.send(torch.zeros(2, dtype=torch.long))
        with pytest.raises(RuntimeError, match="under way"):
            envs.state_dict()
        envs.receive()
        envs.send(torch.zeros(2, dtype=torch.long))  # close() works with a step under way
