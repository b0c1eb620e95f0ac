"""The Atari 2600 source on the host against ale-py and the CPU suite, in a short form."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest
import torch

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

from ale_py import ALEInterface, LoggerMode, roms

from hadamard.envs import atari
from hadamard.envs.atari2600.emulators import Emulators, Settings
from hadamard.envs.atari2600.games import TABLE
from hadamard.envs.common import environment_seeds

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the source is compiled with g++, which is not here"
)
SHORT = (
    "breakout",
    "beam_rider",
    "ms_pacman",
    "montezuma_revenge",
    "name_this_game",
    "robotank",
    "surround",
    "tennis",
)


def ale_of(rom: str) -> ALEInterface:
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(rom))
    return ale


def actions_of(ale: ALEInterface) -> list[int]:
    return [int(action.value) for action in ale.getMinimalActionSet()]


def test_the_table_has_the_suites_games() -> None:
    assert [game.rom for game in TABLE] == [atari.rom(task) for task in atari.tasks()]


def test_what_is_refused_says_why() -> None:
    refused = {game.rom: game.refused for game in TABLE if game.refused}
    assert set(refused) == {"double_dunk"}


@needs_compiler
@pytest.mark.parametrize("rom", SHORT)
def test_frames_equal_those_of_ale(rom: str) -> None:
    ale = ale_of(rom)
    actions = actions_of(ale)
    ours = Emulators(rom, [0], actions)
    ale.reset_game()
    ours.new_game()
    choose = random.Random(0)
    for _ in range(150):
        action = choose.choice(actions)
        assert ours.frame(action) == ale.act(action)
        ram, screen, lives, over = ours.look()
        assert (ram == ale.getRAM()).all()
        assert (screen == ale.getScreen()).all()
        assert (lives, over) == (ale.lives(), ale.game_over())


@needs_compiler
@pytest.mark.parametrize("protocol", atari.RESETS)
def test_steps_equal_those_of_the_cpu_suite(protocol: str) -> None:
    count, seed = 2, 3
    suite = atari.make_part("Breakout", seed, count, atari_reset=protocol)
    ours = Emulators("breakout", environment_seeds(seed, count), actions_of(ale_of("breakout")))
    settings = Settings(
        protocol=atari.RESETS.index(protocol),
        training=1,
        most_steps=27_000 if protocol == "envpool" else 0,
        most_frames=108_000 if protocol == "cleanrl" else 0,
    )
    assert (suite.reset().numpy()[:, 0] == reset(ours, settings)).all()
    generator = np.random.default_rng(0)
    ended = 0
    for _ in range(150):
        action = generator.integers(suite.spec.num_actions, size=count)
        step = suite.step(torch.from_numpy(action))
        ours.step(action.astype(np.int32), settings)
        outcomes = ours.outcomes
        assert (step.obs.numpy()[:, 0] == ours.observations).all()
        assert (step.reward.numpy() == np.sign(outcomes["reward"])).all()
        assert (step.terminated.numpy() == outcomes["terminated"]).all()
        assert (step.truncated.numpy() == outcomes["truncated"]).all()
        begun = np.flatnonzero(outcomes["begun"])
        if step.final_index is None or step.final_obs is None:
            assert not begun.size
            continue
        ended += len(begun)
        assert begun.tolist() == step.final_index.tolist()
        assert (step.final_obs.numpy()[:, 0] == ours.ended[begun]).all()
        finished = np.flatnonzero(outcomes["finished"])
        games = [(e, outcomes["score"][e], outcomes["length"][e]) for e in finished]
        assert games == [tuple(episode) for episode in step.episodes]
    assert ended


def reset(emulators: Emulators, settings: Settings) -> np.ndarray:
    emulators.reset(settings)
    return emulators.observations


@needs_compiler
def test_a_saved_state_continues_exactly() -> None:
    emulators = Emulators("seaquest", [1, 2], actions_of(ale_of("seaquest")))
    settings = Settings(protocol=1, training=1, most_steps=27_000, most_frames=0)
    emulators.reset(settings)
    action = np.array([1, 2], dtype=np.int32)
    saved = emulators.state.copy(), emulators.screens.copy()
    played = []
    for _ in range(2):
        emulators.state[:], emulators.screens[:] = saved
        for _ in range(20):
            emulators.step(action, settings)
        played.append((emulators.state.copy(), emulators.observations.copy()))
    assert (played[0][0] == played[1][0]).all()
    assert (played[0][1] == played[1][1]).all()
