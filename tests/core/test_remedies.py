"""Remedies are found by name, and their settings are settings of the run."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hadamard import plasticity
from hadamard.cli.train import spec_from
from hadamard.core import remedies
from hadamard.core.config import RunSpec, overridden, with_remedy_defaults
from hadamard.core.run import Run
from hadamard.report.data.labels import algorithm_name
from hadamard.training import start
from tests.support.commands import Command, small

NUDGE = '''"""Nudge: weights are moved a little, now and then."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Nudge's settings."""

    size: float = 0.5
    """How far the weights are moved."""
    every: int = 10
    """Updates between nudges."""

    def check(self):
        if self.every < 1:
            raise ValueError(f"--nudge.every must be at least 1, got {self.every}")


calls = []


def build(network, optimizer, config, seed):
    def nudge(updates, obs):
        calls.append((updates, config.size, seed, len(obs)))

    return nudge
'''


@pytest.fixture
def nudge(tmp_path: Path) -> Iterator[None]:
    """A second remedy, which is one file."""
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "nudge.py").write_text(NUDGE)
    plasticity.__path__.append(str(folder))
    importlib.invalidate_caches()
    yield
    plasticity.__path__.remove(str(folder))
    sys.modules.pop("hadamard.plasticity.nudge", None)


@pytest.mark.usefixtures("nudge")
def test_another_remedy_is_one_file(command: Command, tmp_path: Path) -> None:
    words = small("dqn", tmp_path / "run")
    said = command(*words, "--remedy", "nudge,redo", "--nudge.size", "0.25", "--redo.period=7")
    assert (said.code, said.err.count("warning")) == (0, 0)
    spec = Run.open(tmp_path / "run").config["spec"]
    assert spec["remedy"] == "nudge,redo"
    assert spec["remedies"] == {
        "nudge": {"size": 0.25, "every": 10},
        "redo": {"tau": 0.025, "period": 7},
    }
    module = importlib.import_module("hadamard.plasticity.nudge")
    updates, sizes, seeds, _ = zip(*module.calls, strict=True)
    assert updates == tuple(range(1, len(updates) + 1))
    assert (set(sizes), set(seeds)) == ({0.25}, {0})
    from hadamard.report.data.runs import load

    (run,) = load([tmp_path / "run"])
    assert run.label == "ReLU + Nudge + ReDo"
    help_text = command("train", "ppo", "--help").out
    assert " nap, nudge, parseval, " in " ".join(help_text.replace("│", "").split())
    assert "How far the weights are moved" in command("train", "ppo", "--remedy=nudge", "-h").out
    said = command(*small("dqn", tmp_path / "bad"), "--remedy", "nudge", "--nudge.every", "0")
    assert said.err == "hadamard: --nudge.every must be at least 1, got 0\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--remedy redoo", "unknown remedy 'redoo'; did you mean 'redo'?"),
        ("--remedy l2-init", "unknown remedy 'l2-init'; did you mean 'l2_init'?"),
        ("--remedy redo,regrama", "redo and regrama exclude each other: both recycle neurons"),
        ("--remedy l2_init,nap", "nap and l2_init exclude each other: the projection to a norm"),
        ("--remedy nap", "nap needs a norm before the activation of every hidden layer, and "),
        ("--remedy layer_resets --layer-resets.hidden 9", "--layer-resets.hidden 9 is more than"),
        ("--remedy upgd --upgd.decay 2", "--upgd.decay must lie in [0, 1], got 2"),
        ("--remedy weight_clipping --weight-clipping.kappa 0", "--weight-clipping.kappa must be"),
        ("--remedy redo,redo", "--remedy redo,redo names redo twice"),
        ("--redo.tau 0.1", "--redo.tau is a setting of the remedy redo, which is not chosen: add"),
        ("--redo.tau=0.1 --remedy none", "which is not chosen: add --remedy redo, or leave"),
        ("--remedy redo --redo.period 0", "--redo.period must be at least 1, got 0"),
        ("--remedy redo --redo.tau -1", "--redo.tau must not be negative, got -1"),
    ],
)
def test_wrong_remedies_are_refused(
    words: str, message: str, command: Command, tmp_path: Path
) -> None:
    said = command(*small("ppo", tmp_path / "run"), *words.split())
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert not (tmp_path / "run").exists()


def test_settings_need_their_remedy() -> None:
    spec: RunSpec[None] = RunSpec(algo=None)
    with pytest.raises(ValueError, match="redo, which is not chosen"):
        overridden(spec, {"redo.tau": 0.1})
    with pytest.raises(ValueError, match="redo, which is not chosen"):
        RunSpec(algo=None, remedies={"redo": {"tau": 0.1}}).check()
    with pytest.raises(ValueError, match="unknown setting of redo 'tua'; did you mean 'tau'"):
        RunSpec(algo=None, remedy="redo", remedies={"redo": {"tua": 0.1}}).check()
    # In either order.
    for changes in ({"redo.tau": 0.1, "remedy": "redo"}, {"remedy": "redo", "redo.tau": 0.1}):
        chosen = overridden(spec, changes)
        assert chosen.remedies == {"redo": {"tau": 0.1, "period": 1_000}}
    assert overridden(chosen, {"remedy": "none"}) == spec


def test_defaults_are_filled_in_before_a_run_is_recorded(tmp_path: Path) -> None:
    spec: RunSpec[None] = RunSpec(algo=None, remedy="redo", remedies={"redo": {"tau": 0.1}})
    assert with_remedy_defaults(spec).remedies == remedies.filled("redo", spec.remedies)
    words = ["--env", "probe/both", "--remedy", "redo"]
    assert spec_from("dqn", words) == overridden(
        start.default_spec("dqn", "probe/both"), {"remedy": "redo"}
    )
    assert spec_from("dqn", words).remedies == {"redo": {"tau": 0.025, "period": 1_000}}


def test_algorithms_are_called_as_in_papers() -> None:
    names = ["dqn", "mrq", "ppo", "pqn", "simbav2", "elsewhere"]
    expected = ["DQN", "MR.Q", "PPO", "PQN", "SimbaV2", "ELSEWHERE"]
    assert [algorithm_name(name) for name in names] == expected
