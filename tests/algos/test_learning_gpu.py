"""Compiled, captured and flat learning is the learning of each parameter. Needs a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hadamard.compute import optimizers
from hadamard.compute.flat import moments
from hadamard.compute.jit import Captured
from hadamard.training.setup import Setup
from tests.support.gpu import DEVICE, settings
from tests.support.updates import agent_of, batch_of

pytestmark = pytest.mark.gpu


@pytest.mark.filterwarnings("ignore")  # the compiler warns about TF32
@pytest.mark.parametrize("compile", ["off", "on"])
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_captured_learning_is_that_of_each_parameter(
    algorithm: str,
    layer: str,
    norm: str,
    compile: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Convolutions may run in TF32 by default, and differently from call to call.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    torch._dynamo.reset()  # torch's limit on compilations is low
    changes = {"net.layer": layer, "net.norm": norm, "train.compile": compile}
    spec = settings(algorithm, tmp_path / "run", **changes)
    setups = [Setup(algorithm, spec) for _ in range(2)]
    captured, eager = (setup.agent for setup in setups)
    # Eagerly, by PyTorch's own parts, parameter by parameter.
    parameters = list(eager.network.parameters())
    kind = getattr(torch.optim, type(eager.optimizer).__name__)
    hyperparameters = {name: eager.optimizer.defaults[name] for name in ("lr", "betas", "eps")}
    plain = kind(parameters, **hyperparameters, capturable=True)
    batch = batch_of(algorithm, setups[0].envs.spec, 32, DEVICE)
    start = [p.detach().clone() for p in parameters]
    address = captured.weights.vector.data_ptr()
    for i in range(20):
        for optimizer in (captured.optimizer, plain):
            optimizers.set_learning_rate(optimizer, 1e-3 / (1 + i // 5))
        ours = captured.learn(*batch)
        plain.zero_grad()
        loss = eager._loss(*batch)[0]
        loss.backward()
        if hasattr(eager.config, "max_grad_norm"):
            torch.nn.utils.clip_grad_norm_(parameters, eager.config.max_grad_norm)
        plain.step()
        torch.testing.assert_close(ours["loss"], loss.detach(), rtol=1e-3, atol=1e-4)
    for before, mine, theirs in zip(start, captured.network.parameters(), parameters, strict=True):
        moved = (theirs - before).norm().item()
        assert moved > 0
        assert (mine - theirs).norm().item() < 5e-3 * moved
    # The graph still works on that buffer, and reads changes that others make to it.
    assert captured.weights.vector.data_ptr() == address
    for parameter in captured.network.parameters():
        assert parameter.untyped_storage().data_ptr() == address
        assert len(list(moments(captured.optimizer, parameter))) == 2
    with torch.no_grad():
        for part in (captured.network, eager.network):
            next(part.parameters()).zero_()
    ours, loss = captured.learn(*batch)["loss"], eager._loss(*batch)[0].detach()
    torch.testing.assert_close(ours, loss, rtol=1e-3, atol=1e-4)
    for setup in setups:
        setup.close()


@pytest.mark.filterwarnings("ignore")  # the compiler warns about TF32
@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
@pytest.mark.parametrize(
    ("layer", "activation"),
    [
        ("plain", "relu"),
        ("plain", "tanh"),
        ("layernorm", "tanh"),
        ("hadamard", "tanh"),
        ("hadamard", "relu"),
        ("hadamard2", "tanh"),
        ("widened", "relu"),
        ("crelu", "relu"),
    ],
)
def test_a_thousand_fast_updates_are_eager_ones(
    layer: str, activation: str, algorithm: str
) -> None:
    # In double precision, where rounding alone makes very small differences.
    torch._dynamo.reset()  # torch's limit on compilations is low
    net = {"net.layer": layer, "net.activation": activation}
    slow = {**net, "train.capture": False, "train.compile": "off"}
    fast, eager = (agent_of(algorithm, torch.float64, c, DEVICE) for c in (net, slow))
    assert not isinstance(eager.learn, Captured)
    assert isinstance(fast.learn, Captured)
    start = eager.weights.vector.detach().clone()
    for _ in range(1_000):
        single = batch_of(algorithm, size=16, device=DEVICE)
        batch = [part.double() if part.is_floating_point() else part for part in single]
        fast.learn(*batch)
        eager.learn(*batch)
    theirs = eager.weights.vector.detach()
    assert (theirs - start).abs().max() > 0.03
    assert (fast.weights.vector.detach() - theirs).abs().max() < 1e-9
