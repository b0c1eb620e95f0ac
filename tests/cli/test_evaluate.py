"""The command that plays greedy games with a trained run."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from hadamard.core import checkpoint
from hadamard.training.load_agent import load_agent
from tests.support.commands import Command, small


def test_evaluate_plays_whole_greedy_games(finished: Path, command: Command) -> None:
    result = command("evaluate", finished, "--episodes", "30")
    assert (result.code, result.err) == (0, "")
    # The task is learned by then: every greedy game scores 1.
    assert result.out == (
        f"{finished} at step 1,500: 1.00 ± 0.00 (sd) over 30 greedy episodes of probe/both "
        "(min 1, median 1, max 1)\n"
    )
    assert "over 1 greedy episode of" in command("evaluate", finished, "--episodes", "1").out
    result = command("evaluate", finished, "--episodes", "0")
    assert result.code == 2
    assert "--episodes must be at least 1, got 0" in result.err
    for name in ("evaluate", "play"):
        result = command(name, finished, "--seed", "-1")
        assert (result.code, result.out) == (2, "")
        assert "--seed must not be negative, got -1" in result.err


def test_evaluate_loads_the_networks_of_the_run(finished: Path) -> None:
    agent, spec, step, *_ = load_agent(str(finished), "cpu")
    assert step == 1_500
    assert spec.net.layer == "hadamard"
    _, state = checkpoint.read(checkpoint.newest(finished / "checkpoints"))
    saved = state["agent.network"]
    assert isinstance(agent.network, nn.Module)
    for name, weight in agent.network.state_dict().items():
        assert torch.equal(weight, saved[name])


def test_a_run_that_was_moved_is_used_where_it_is(command: Command, tmp_path: Path) -> None:
    first, path = tmp_path / "first", tmp_path / "moved"
    assert command(*small("dqn", first, {"--algo.replay-storage": "disk"})).code == 0
    first.rename(path)
    (path / "DONE").unlink()
    for words in (["evaluate", path], ["analyze", path], ["train", "--resume", path]):
        assert command(*words).code == 0
        assert not first.exists()


def test_evaluating_a_run_without_a_checkpoint_says_so(
    finished: Path, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes((finished / "config.json").read_bytes())
    for name in ("evaluate", "analyze"):
        result = command(name, tmp_path)
        assert (result.code, result.out) == (2, "")
        assert "there is no whole checkpoint in" in result.err
        assert result.err.count("\n") == 1
