"""Emulated Atari games are those of the CPU suite, byte for byte; the host plays them here."""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

from hadamard import envs
from hadamard.envs import atari, atari_game
from hadamard.envs.atari2600 import batch, nvrtc, roms, source
from hadamard.envs.atari2600.games import TABLE
from hadamard.envs.atari_on_device import EmulatedGames, StackedEmulators
from tests.support.environments import assert_plain

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the source is compiled with g++, which is not here"
)


def make(task: str, seed: int, num_envs: int, **options: Any) -> EmulatedGames:
    games = envs.make_on_device(f"atari/{task}", seed, num_envs, "cpu", **options)
    assert isinstance(games, EmulatedGames)
    return games


def random_actions(steps: int, num_envs: int, num_actions: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(num_actions, (steps, num_envs), generator=generator)


@needs_compiler
@pytest.mark.parametrize("training", [True, False], ids=["training", "greedy"])
@pytest.mark.parametrize("atari_reset", atari.RESETS)
@pytest.mark.parametrize("task", ["Breakout", "Seaquest", "Qbert"])
def test_every_step_is_that_of_the_cpu_suite(
    task: str, atari_reset: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Games are cut early, so that this happens, too.
    for module in (atari_game, batch):
        monkeypatch.setattr(module, "MAX_STEPS", 90)
        monkeypatch.setattr(module, "MAX_FRAMES", 420)
    options: dict[str, Any] = {"training": training, "atari_reset": atari_reset}
    suite, games = envs.make(f"atari/{task}", 5, 2, **options), make(task, 5, 2, **options)
    assert suite.spec == games.spec
    assert games.exact
    assert torch.equal(suite.reset(), games.reset())
    ended, truncated, lives = 0, 0, 0
    for action in random_actions(115, 2, games.spec.num_actions):
        theirs, ours = suite.step(action), games.step(action)
        for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(theirs, name), getattr(ours, name)), name
            assert getattr(theirs, name).dtype == getattr(ours, name).dtype
        assert (theirs.final_index is None) == (ours.final_index is None)
        if theirs.final_index is not None and ours.final_index is not None:
            assert torch.equal(theirs.final_index, ours.final_index)
            assert theirs.final_obs is not None
            assert ours.final_obs is not None
            assert torch.equal(theirs.final_obs, ours.final_obs)
        assert theirs.episodes == ours.episodes
        assert theirs.any_truncated == ours.any_truncated
        ended += len(ours.episodes)
        truncated += int(ours.truncated.sum())
        lives += int(ours.terminated.sum())
    assert ended
    assert truncated
    assert lives or not training
    # New games, other ones.
    assert torch.equal(suite.reset(), games.reset())
    suite.close()


@needs_compiler
def test_a_step_keeps_the_protocol_of_environments() -> None:
    games = make("Breakout", 0, 2)
    obs = games.reset()
    before = obs.clone()
    action = torch.tensor([1, 2])
    games.send(action)
    with pytest.raises(RuntimeError, match="send\\(\\) twice"):
        games.send(action)
    with pytest.raises(RuntimeError, match="under way"):
        games.state_dict()
    step = games.receive()
    assert torch.equal(obs, before)  # what was handed out is never overwritten
    assert not torch.equal(step.obs, obs)
    with pytest.raises(RuntimeError, match="without send"):
        games.receive()
    with pytest.raises(ValueError, match=r"0\.\.3, got 4"):
        games.step(torch.tensor([0, 4]))
    with pytest.raises(RuntimeError, match="emulators='cpu'"):
        games.render()
    with pytest.raises(ValueError, match="cleanrl or envpool, got 'x'"):
        make("Breakout", 0, 2, atari_reset="x")
    with pytest.raises(ValueError, match="at least 1"):
        make("Breakout", 0, 0)
    games.close()


@needs_compiler
def test_a_state_is_saved_and_loaded_at_its_place() -> None:
    games = make("Seaquest", 1, 3, atari_reset="envpool")
    games.reset()
    actions = random_actions(60, 3, 18)
    for action in actions[:30]:
        games.step(action)
    saved = copy.deepcopy(games.state_dict())
    assert_plain(saved)
    expected = [games.step(action) for action in actions[30:]]
    other = make("Seaquest", 7, 3, atari_reset="envpool")
    places = {name: value.data_ptr() for name, value in other.state.items()}
    assert torch.equal(other.load_state_dict(saved), saved["emulators"]["stacks"])
    for action, step in zip(actions[30:], expected, strict=True):
        continued = other.step(action)
        assert torch.equal(continued.obs, step.obs)
        assert continued.episodes == step.episodes
    assert torch.equal(other.reset(), games.reset())
    # In a fleet this memory is a part of a stack.
    assert {name: value.data_ptr() for name, value in other.state.items()} == places


@needs_compiler
def test_a_state_that_does_not_fit_is_refused() -> None:
    games = make("Breakout", 1, 2)
    games.reset()
    with pytest.raises(ValueError, match="2 environments, but here there are 3"):
        make("Breakout", 1, 3).load_state_dict(games.state_dict())
    later, shorter = games.state_dict(), games.state_dict()
    later["layout"] += 1
    shorter["emulators"] = {**shorter["emulators"], "consoles": torch.zeros(2, 8)}
    for state in (later, shorter):
        with pytest.raises(ValueError, match="another version of the emulators"):
            make("Breakout", 1, 2).load_state_dict(state)


@needs_compiler
def test_games_that_are_kept_ready_are_those_switched_on_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU."""
    plain = make("Pong", 3, 2, atari_reset="envpool")
    player = batch.player_on(torch.device("cpu"))
    ready = batch.Cartridge(player, "pong", keeps_boots=True)
    assert ready.record.booted
    monkeypatch.setattr(batch, "cartridge", lambda device, name: ready)
    quick = make("Pong", 3, 2, atari_reset="envpool")
    for _ in range(3):
        assert torch.equal(plain.reset(), quick.reset())
        for action in random_actions(5, 2, 6):
            assert torch.equal(plain.step(action).obs, quick.step(action).obs)
    anew = batch.Cartridge(player, "ice_hockey", keeps_boots=True)
    assert not anew.record.booted  # what it boots depends on the game before


@needs_compiler
def test_games_kept_ready_lead_to_the_same_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of two screens is drawn on goes on in its turn, too."""
    plain = make("Breakout", 3, 4, atari_reset="envpool")
    player = batch.player_on(torch.device("cpu"))
    ready = batch.Cartridge(player, "breakout", keeps_boots=True)
    monkeypatch.setattr(batch, "cartridge", lambda device, name: ready)
    quick = make("Breakout", 3, 4, atari_reset="envpool")
    for games in (plain, quick):
        games.reset()
    ended = 0
    for action in random_actions(200, 4, 4):
        ended += len(plain.step(action).episodes)
        quick.step(action)
        for name, state in plain.state.items():
            if name != "recordings":  # what is older than the new game is left in them
                assert torch.equal(state, quick.state[name]), name
    assert ended > 2


def stacked(runs: Sequence[Sequence[EmulatedGames]]) -> StackedEmulators:
    for run in runs:
        for part in run:
            part.reset()
    return StackedEmulators(runs)


@needs_compiler
@pytest.mark.parametrize("atari_reset", atari.RESETS)
def test_the_games_of_a_fleet_are_those_of_its_runs_alone(
    atari_reset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two games with as many actions; the greedy parts play by their own rules alone."""
    monkeypatch.setattr(batch, "MAX_STEPS", 40)
    monkeypatch.setattr(batch, "MAX_FRAMES", 240)
    tasks = "Qbert", "SpaceInvaders"

    def parts_of(task: str, seed: int) -> list[EmulatedGames]:
        return [
            make(task, seed + place, count, training=place == 0, atari_reset=atari_reset)
            for place, count in enumerate((2, 1))
        ]

    alone = [parts_of(task, seed) for seed, task in enumerate(tasks)]
    obs = [torch.cat([part.reset() for part in run]) for run in alone]
    runs = [parts_of(task, seed) for seed, task in enumerate(tasks)]
    fleet = stacked(runs)
    assert torch.equal(fleet.observation(), torch.stack(obs))
    finished = 0
    for action in random_actions(90, 6, 6).view(-1, 2, 3):
        fleet.launch(action)
        next_obs, outcome = fleet.step(action, torch.empty(0))
        for row, run in enumerate(alone):
            start = 0
            for part in run:
                games = slice(start, start + part.num_envs)
                start += part.num_envs
                step = part.step(action[row, games])
                assert torch.equal(next_obs[row, games], step.obs)
                ended = outcome.finished[row, games].nonzero().flatten().tolist()
                assert [episode.env for episode in step.episodes] == ended
                for env, score, length in step.episodes:
                    assert (outcome.score[row, games][env], outcome.length[row, games][env]) == (
                        score,
                        length,
                    )
                    finished += 1
                if part.training:
                    assert torch.equal(outcome.obs[row, games], step.next_obs)
                    for name in ("reward", "terminated", "truncated"):
                        assert torch.equal(getattr(outcome, name)[row, games], getattr(step, name))
    assert finished
    # A run is saved out of the fleet, and continues alone.
    saved = copy.deepcopy(runs[1][0].state_dict())
    action = torch.tensor([1, 2])
    expected = alone[1][0].step(action)
    again = make(tasks[1], 1, 2, atari_reset=atari_reset)
    again.load_state_dict(saved)
    assert torch.equal(again.step(action).obs, expected.obs)


def test_all_known_roms_are_those_of_ale_py() -> None:
    assert list(roms.CHECKSUMS) == [game.rom for game in TABLE]
    for name in roms.CHECKSUMS:
        assert len(roms.read(name)) in (2048, 4096, 8192, 16384)


def test_a_rom_that_is_missing_or_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roms.read.cache_clear()
    other = tmp_path / "breakout.bin"
    other.write_bytes(bytes(2048))
    monkeypatch.setattr("ale_py.roms.get_rom_path", lambda name: other)
    with pytest.raises(roms.UnknownRom, match=r"breakout\.bin is not the ROM of 'breakout'"):
        roms.read("breakout")
    assert "is not the ROM" in (atari.emulator_trouble("Breakout", torch.device("cuda")) or "")
    monkeypatch.setattr("ale_py.roms.get_rom_path", lambda name: None)
    with pytest.raises(roms.UnknownRom, match="no ROM called 'pong'"):
        roms.read("pong")
    monkeypatch.undo()
    roms.read.cache_clear()


def test_why_emulators_cannot_play_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = envs.emulator_trouble("atari/Breakout", torch.device("cpu"))
    assert trouble == "the device is cpu, which is no GPU"
    refused = envs.emulator_trouble("atari/DoubleDunk", torch.device("cuda")) or ""
    entry = next(game for game in TABLE if game.rom == "double_dunk")
    if entry.refused:
        assert refused == f"DoubleDunk is not played on a GPU: {entry.refused}"
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(nvrtc.NoGpuEmulators, match=r"cuda\.bindings.*hadamard-rl\[gpu-atari\]"):
        nvrtc.build(90).code()


class FakeNvrtc:
    """NVRTC as far as the cache and the errors need it."""

    def __init__(self, error: int = 0) -> None:
        self.error, self.compiled = error, 0

    def nvrtcVersion(self) -> tuple[int, ...]:
        return 0, 13, 0

    def nvrtcGetSupportedArchs(self) -> tuple[Any, ...]:
        return 0, [75, 90, 120]

    def nvrtcCreateProgram(self, source: bytes, *rest: Any) -> tuple[int, str]:
        assert b"atari2600_play" in source
        return 0, "program"

    def nvrtcCompileProgram(self, program: str, count: int, options: list[bytes]) -> tuple[int]:
        assert b"--gpu-architecture=sm_90" in options
        self.compiled += 1
        return (self.error,)

    def nvrtcGetProgramLogSize(self, program: str) -> tuple[int, int]:
        return 0, 3

    def nvrtcGetProgramLog(self, program: str, log: bytes) -> tuple[int]:
        return (0,)

    def nvrtcGetCUBINSize(self, program: str) -> tuple[int, int]:
        return 0, 5

    def nvrtcGetCUBIN(self, program: str, code: bytes) -> tuple[int]:
        return (0,)

    def nvrtcDestroyProgram(self, program: str) -> tuple[int]:
        return (0,)


def use(fake: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    bindings = SimpleNamespace(nvrtc=fake, driver=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bindings=bindings))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)


def test_kernels_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvrtc()
    use(fake, tmp_path, monkeypatch)
    assert nvrtc.build(90).code() == nvrtc.build(90).code() == b" " * 5
    assert fake.compiled == 1
    monkeypatch.setattr(nvrtc, "OPTIONS", ("--std=c++20",))
    nvrtc.build(90).code()
    assert fake.compiled == 2


def test_what_is_missing_is_compiled_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeNvrtc()
    use(fake, tmp_path, monkeypatch)
    builds = [nvrtc.build(90, name) for name in ("breakout", "pong", "pong")]
    assert builds[0].path != builds[1].path  # each has its own program
    nvrtc.compile_all(builds)
    assert fake.compiled == 2
    assert "Compiling 2 games for this GPU" in capsys.readouterr().err
    nvrtc.compile_all(builds)
    assert fake.compiled == 2
    assert not capsys.readouterr().err


def test_many_environments_are_launched_in_another_way() -> None:
    few, many = source.launch_of(100), source.launch_of(10_000)
    assert few == source.ALONE
    assert few.definitions == many.definitions  # nothing is compiled twice
    assert (few.threads, many.threads) == (32, source.MOST_THREADS)
    assert few.blocks(100) == 100
    assert many.blocks(10_001) == 1251
    assert source.Launch(lanes=1).definitions[0] == "-DLANES=1"


def test_a_gpu_that_nvrtc_does_not_know_and_source_it_refuses_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(FakeNvrtc(error=6), tmp_path, monkeypatch)
    with pytest.raises(
        nvrtc.NoGpuEmulators, match=r"capability 6\.1 is too old for NVRTC 13\.0.*7\.5 to 12\.0"
    ):
        nvrtc.build(61)
    with pytest.raises(nvrtc.NoGpuEmulators, match="NVRTC refused"):
        nvrtc.build(90).code()
    assert not list(tmp_path.glob("**/*.cubin"))


def test_nvrtc_itself_compiles_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip("cuda.bindings.nvrtc")
    try:
        library.nvrtcVersion()
    except RuntimeError:
        pytest.skip("needs the library of NVRTC")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = nvrtc.build(90).code()
    assert code.startswith(b"\x7fELF")
    for name in ("sizes", "decode", "play", "check"):
        assert f"atari2600_{name}".encode() in code


def test_the_joined_source_includes_nothing() -> None:
    assert '#include "' not in nvrtc.joined_source()


@needs_compiler
def test_seeds_of_32_bits_are_taken() -> None:
    games = EmulatedGames(["breakout"], [2**32 - 1])
    suite = atari.AtariGames(
        [
            atari_game.Game(
                atari_game.open_emulator("breakout", 2**32 - 1, "cleanrl"),
                2**32 - 1,
                "cleanrl",
                training=True,
            )
        ],
        training=True,
    )
    np.testing.assert_array_equal(games.reset()[:, -1:].numpy(), suite.reset().numpy())
