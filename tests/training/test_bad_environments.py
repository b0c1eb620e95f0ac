"""Environments that return what cannot be learned from: nothing of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hadamard import cli
from hadamard.core.types import Step
from hadamard.envs.probe import ProbeEnvs
from tests.support.commands import Command, checkpoint_names, small
from tests.support.resume import STREAMS, assert_same_run, words

ENVS = {"dqn": "probe/both", "ppo": "probe/both", "simbav2": "probe/track"}
every_algorithm = pytest.mark.parametrize("algorithm", ENVS)

Fault = Callable[[Step], Step]


def last_changed(values: torch.Tensor, value: float) -> torch.Tensor:
    values = values.clone()
    values[-1] = value
    return values


def nan_reward(step: Step) -> Step:
    return replace(step, reward=last_changed(step.reward, torch.nan))


def infinite_observation(step: Step) -> Step:
    return replace(step, obs=last_changed(step.obs, -torch.inf))


def nan_successor(step: Step) -> Step:
    assert step.final_obs is not None
    return replace(step, final_obs=last_changed(step.final_obs, torch.nan))


def break_batch(patch: pytest.MonkeyPatch, number: int, fault: Fault, at: int) -> None:
    """Put a fault into a step of the n-th batch of environments that is made from now on."""
    make, receive = ProbeEnvs.__init__, ProbeEnvs.receive
    batches: list[ProbeEnvs] = []
    steps = 0

    def counted(self: ProbeEnvs, *arguments: object) -> None:
        make(self, *arguments)  # type: ignore[arg-type]
        batches.append(self)

    def received(self: ProbeEnvs) -> Step:
        nonlocal steps
        step = receive(self)
        steps += self is batches[number]
        return fault(step) if self is batches[number] and steps == at else step

    patch.setattr(ProbeEnvs, "__init__", counted)
    patch.setattr(ProbeEnvs, "receive", received)


@pytest.fixture(scope="module")
def sound_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs without a fault, each made once."""
    paths: dict[str, Path] = {}

    def run(algorithm: str) -> Path:
        if algorithm not in paths:
            path = tmp_path_factory.mktemp("sound") / algorithm
            assert cli.main(words(algorithm, path, ENVS[algorithm])) == 0
            paths[algorithm] = path
        return paths[algorithm]

    return run


@every_algorithm
@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (nan_reward, "a reward of nan"),
        (infinite_observation, "an observation of -inf (entry 0)"),
        (nan_successor, "an observation of nan (entry 0)"),
    ],
)
def test_nothing_of_a_bad_step_is_kept(
    algorithm: str,
    fault: Fault,
    problem: str,
    command: Command,
    sound_run: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "run"
    # PPO has two groups of two environments, and the second one fails.
    batch, at, env, step = {
        "dqn": (0, 352, 0, 352),
        "ppo": (1, 88, 3, 352),
        "simbav2": (0, 88, 3, 352),
    }[algorithm]
    with monkeypatch.context() as patch:
        break_batch(patch, batch, fault, at)
        result = command(*words(algorithm, path, ENVS[algorithm]))
    assert result.code == 1
    assert result.err == (
        f"hadamard: at step {step}, environment {env} of {ENVS[algorithm]} returned {problem}; "
        f"the last good checkpoint is {path / 'checkpoints' / checkpoint_names(path)[-1]}\n"
    )
    assert len(checkpoint_names(path)) == 2
    for stream in STREAMS:
        if (rows := path / f"{stream}.jsonl").exists():
            assert not {"NaN", "Infinity"} & set(rows.read_text().replace(",", " ").split()), stream
    again = command("train", "--resume", path)
    assert (again.code, again.err) == (0, "")
    assert_same_run(path, sound_run(algorithm))


def test_a_bad_step_of_greedy_play_is_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, options in enumerate(
        ({"--train.greedy-envs": 1}, {"--train.eval-every": 100, "--train.eval-episodes": 1})
    ):
        path = tmp_path / str(number)
        with monkeypatch.context() as patch:
            break_batch(patch, 1, nan_reward, 2)
            result = command(*small("dqn", path, options))
        assert result.code == 1
        assert "environment 0 of probe/both (greedy play) returned a reward of nan" in result.err
        assert result.err.count("\n") == 1
        assert "NaN" not in (path / "eval.jsonl").read_text()
