"""Compiled losses teach what the plain ones do; what cannot be compiled is refused at once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._inductor.config
from torch import Tensor

from hadamard import cli, train
from hadamard.core import discover, jit
from hadamard.core.config import overridden
from hadamard.core.types import EnvSpec

CPU = torch.device("cpu")
GRID = EnvSpec((3, 6, 6), torch.uint8, 5)


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Nothing compiled before counts; one thread, as in most runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)


def agent_of(algorithm: str, dtype: torch.dtype, compile: str, **net: str) -> Any:
    """An agent whose networks compute in this dtype."""
    changes = {"net.width": 12, "train.steps": 99, "algo.learning_rate": 1e-3}
    changes |= {"train.compile": compile, **{f"net.{name}": chosen for name, chosen in net.items()}}
    spec = overridden(train.default_spec(algorithm, "probe/image"), changes)
    torch.set_default_dtype(dtype)
    agent = discover.find("hadamard.algos", algorithm, "algorithm").build(GRID, spec, CPU)
    torch.set_default_dtype(torch.float32)
    if dtype != torch.float32:
        for part in (agent.network, getattr(agent, "target", None)):
            if part is not None:
                part.encoder.hidden[0].register_forward_pre_hook(lambda _, x: (x[0].to(dtype),))
    return agent


def batch_of(algorithm: str, size: int = 16) -> tuple[Tensor, ...]:
    obs, next_obs = torch.randint(2, (2, size, *GRID.obs_shape), dtype=torch.uint8)
    action = torch.randint(GRID.num_actions, (size,))
    numbers = torch.randn(3, size)
    if algorithm == "dqn":
        return obs, action, numbers[0], torch.rand(size) < 0.3, next_obs
    if algorithm == "pqn":
        return obs, action, numbers[0]
    return obs, action, -numbers[0].abs() - 1, numbers[1], numbers[2]


def apart(algorithm: str, dtype: torch.dtype, updates: int, **net: str) -> tuple[float, float]:
    """Return how far eager and compiled learning part, and how far both have come."""
    eager, compiled = (agent_of(algorithm, dtype, way, **net) for way in ("off", "on"))
    assert eager.loss == eager._loss
    assert compiled.loss != compiled._loss
    start = eager.weights.whole.detach().clone()
    for i in range(updates):
        batch = batch_of(algorithm)
        ours, theirs = compiled.learn(*batch), eager.learn(*batch)
        if i == 0:
            for name, value in theirs.items():
                torch.testing.assert_close(ours[name], value, rtol=1e-5, atol=1e-6)
    assert all(type(value) is Tensor and not value.requires_grad for value in ours.values())
    ours, theirs = compiled.weights.whole.detach(), eager.weights.whole.detach()
    return float((ours - theirs).abs().max()), float((theirs - start).abs().max())


@pytest.mark.parametrize(
    ("algorithm", "layer", "activation", "norm"),
    [
        ("pqn", "hadamard", "tanh", "layer"),
        ("pqn", "crelu", "relu", "none"),
        ("dqn", "hadamard", "tanh", "none"),
        ("ppo", "hadamard", "tanh", "none"),
    ],
)
def test_compiled_learning_is_eager_learning(
    algorithm: str, layer: str, activation: str, norm: str
) -> None:
    net = {"layer": layer, "activation": activation, "norm": norm}
    difference, moved = apart(algorithm, torch.float32, 100, **net)
    assert moved > 0.005
    assert difference < 2e-6


def test_a_thousand_compiled_updates_are_eager_ones() -> None:
    # In double precision: what parts the two is rounding alone, not another function.
    net = {"layer": "hadamard", "activation": "tanh", "norm": "layer"}
    difference, moved = apart("pqn", torch.float64, 1_000, **net)
    assert moved > 0.03
    assert difference < 1e-13


def test_only_what_is_asked_for_is_compiled() -> None:
    def function(x: Tensor) -> Tensor:
        return x.tanh()

    gpu = torch.device("cuda")
    assert jit.compiler("auto", CPU)(function) is function
    assert jit.compiler("auto", CPU, pays_on_gpu=True)(function) is function
    assert jit.compiler("auto", gpu)(function) is function
    assert jit.compiler("off", gpu, pays_on_gpu=True)(function) is function
    assert jit.compiler("on", CPU)(function) is not function


def test_a_missing_compiler_is_told_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without the memory of an earlier success.
    monkeypatch.setattr(jit, "_try_compiling", functools.cache(jit._try_compiling.__wrapped__))
    path = tmp_path / "run"
    words = ["train", "pqn", "--env", "probe/both", "--run-dir", str(path), "--train.steps", "99"]
    with torch._inductor.config.patch({"cpp.cxx": ("/nowhere/g++",)}):
        assert cli.main([*words, "--train.compile", "on"]) == 2
    said = capsys.readouterr().err
    assert "No working C++ compiler" in said
    assert "--train.compile off" in said
    assert said.count("\n") == 1
    assert not path.exists()
