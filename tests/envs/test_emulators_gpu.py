"""The emulators on a GPU are those of the host. Needs a CUDA device."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

pytest.importorskip("ale_py")

from hadamard import envs
from hadamard.envs import atari
from hadamard.envs.atari2600 import roms
from hadamard.envs.atari2600.batch import Batch, settings_of
from hadamard.envs.atari2600.source import MULTIPROCESSORS
from hadamard.envs.atari_on_device import EmulatedGames
from tests.support.gpu import DEVICE

pytestmark = pytest.mark.gpu

GAMES = ("breakout", "seaquest", "ms_pacman", "robotank", "montezuma_revenge", "surround")
CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the source is compiled with g++, which is not here"
)


def random_actions(names: Sequence[str], steps: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    counts = [len(roms.minimal_actions(name)) for name in names]
    columns = [torch.randint(count, (steps,), generator=generator) for count in counts]
    return torch.stack(columns, 1)


def test_this_gpu_can_play() -> None:
    assert envs.emulator_trouble("atari/Breakout", DEVICE) is None
    assert "menu" in (envs.emulator_trouble("atari/DoubleDunk", DEVICE) or "menu")


@needs_compiler
@pytest.mark.parametrize("atari_reset", atari.RESETS)
def test_every_step_is_that_of_the_host(atari_reset: str) -> None:
    names = [name for name in GAMES for _ in range(3)]
    settings = settings_of(atari_reset, training=True)
    host, device = (Batch(names, settings, place) for place in (CPU, DEVICE))
    for batch in (host, device):
        batch.begin(range(len(names)))
        batch.fill_stacks()
    begun = 0
    for number, action in enumerate(random_actions(names, 300)):
        if number == 250:  # from a state of the GPU
            for name, value in device.state.items():
                host.state[name].copy_(value)
            assert device.unsound(host.state) == host.unsound(device.state) == []
            damaged = {name: value.clone() for name, value in host.state.items()}
            damaged["consoles"][4] = 0xFF
            damaged["recordings"][7] = 0xFF
            assert device.unsound(damaged) == host.unsound(damaged) == [4, 7]
        outcomes = []
        for batch in (host, device):
            batch.play(action.to(batch.device))
            outcomes.append(batch.outcome())
            batch.advance_stacks(outcomes[-1], refill_after_life=atari_reset == "cleanrl")
        for field in outcomes[0]._fields:
            ours, theirs = (getattr(outcome, field).cpu() for outcome in outcomes)
            assert torch.equal(ours, theirs), (field, number)
        rows = outcomes[0].begun
        begun += int(rows.sum())
        assert torch.equal(host.frames, device.frames.cpu()), number
        assert torch.equal(host.ended[rows], device.ended.cpu()[rows]), number
        for name in ("screens", "stacks"):
            assert torch.equal(host.state[name], device.state[name].cpu()), (name, number)
    assert begun > 10


def test_many_environments_play_as_few_do() -> None:
    """They are launched in another way."""
    names = ["breakout"] * (2 * MULTIPROCESSORS + 1)
    settings = settings_of("envpool", training=True)
    many, few = (Batch(names[:count], settings, DEVICE) for count in (len(names), 100))
    for batch in (many, few):
        batch.begin(range(batch.count))
    for action in random_actions(names, 100).to(DEVICE):
        many.play(action)
        few.play(action[:100])
        assert torch.equal(many.frames[:100], few.frames)
        for ours, theirs in zip(many.outcome(), few.outcome(), strict=True):
            assert torch.equal(ours[:100], theirs)


def test_a_captured_step_is_the_same_step() -> None:
    names = ["breakout", "qbert", "seaquest"] * 20
    settings = settings_of("envpool", training=True)
    plain, captured = (Batch(names, settings, DEVICE) for _ in range(2))
    for batch in (plain, captured):
        batch.begin(range(len(names)))
    action = torch.zeros(len(names), dtype=torch.int64, device=DEVICE)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured.play(action)
    for chosen in random_actions(names, 60):
        action.copy_(chosen)
        plain.play(action)
        graph.replay()
        assert torch.equal(plain.frames, captured.frames)
        assert all(map(torch.equal, plain.outcome(), captured.outcome()))


def test_environments_on_a_gpu_are_those_of_the_cpu_suite() -> None:
    pytest.importorskip("cv2")
    suite = envs.make("atari/Breakout", 5, 4, atari_reset="envpool")
    games = envs.make_on_device("atari/Breakout", 5, 4, DEVICE, atari_reset="envpool")
    assert isinstance(games, EmulatedGames)
    assert torch.equal(suite.reset(), games.reset().cpu())
    ended = 0
    for action in random_actions(["breakout"] * 4, 400):
        theirs, ours = suite.step(action), games.step(action)
        assert ours.obs.device.type == DEVICE.type
        for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
            assert torch.equal(getattr(theirs, name), getattr(ours, name).cpu())
        assert theirs.episodes == ours.episodes
        ended += len(ours.episodes)
    assert ended > 0
    suite.close()
