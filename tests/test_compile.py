"""Compiled losses teach what the plain ones do; what cannot be compiled is refused at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._inductor.config
from torch import Tensor, nn
from torch._inductor.utils import run_and_get_code

from hadamard import HadamardLinear, cli, kernels
from hadamard.core import jit
from hadamard.layers import Conv2dBranch, LinearBranch, build, normed
from updates import CPU, agent_of, batch_of


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Nothing compiled before counts; one thread, as in most runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)


def apart(algorithm: str, dtype: torch.dtype, updates: int, **net: str) -> tuple[float, float]:
    """Return how far eager and compiled learning part, and how far both have come."""
    changes = {f"net.{name}": chosen for name, chosen in net.items()}
    eager, compiled = (
        agent_of(algorithm, dtype, {**changes, "train.compile": way}) for way in ("off", "on")
    )
    assert eager.loss == eager._loss
    assert compiled.loss != compiled._loss
    start = eager.weights.whole.detach().clone()
    for i in range(updates):
        batch = batch_of(algorithm, size=16)
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
    assert difference < 2e-6
    assert moved > 0.002  # a thousand times as far


def test_a_thousand_compiled_updates_are_eager_ones() -> None:
    # In double precision: what parts the two is rounding alone, not another function.
    net = {"layer": "hadamard", "activation": "tanh", "norm": "layer"}
    difference, moved = apart("pqn", torch.float64, 1_000, **net)
    assert moved > 0.03
    assert difference < 1e-13


def test_a_compiled_relu_keeps_no_booleans() -> None:
    # A CPU would write and read them one by one, which took longer than all the rest.
    agent = agent_of("pqn", torch.float32, {"net.activation": "relu", "train.compile": "on"})
    kept: list[torch.dtype] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.dtype)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        agent.loss(*batch_of("pqn", size=16))
    assert torch.float32 in kept
    assert torch.bool not in kept


def test_only_what_is_asked_for_is_compiled() -> None:
    def function(x: Tensor) -> Tensor:
        return x.tanh()

    gpu = torch.device("cuda")
    assert jit.compiler("auto", CPU)(function) is function
    assert jit.compiler("off", gpu)(function) is function
    assert jit.compiler("on", CPU)(function) is not function


def test_a_process_may_compile_for_many_kinds_of_networks() -> None:
    class Learner:
        def __init__(self, width: int) -> None:
            self.network = torch.nn.Linear(2, width)
            self.loss = jit.compiler("on", CPU)(self._loss)

        def _loss(self, x: Tensor) -> Tensor:
            return self.network(x).sum()

    for width in range(1, 12):  # torch's own limit is 8
        learner, x = Learner(width), torch.ones(3, 2)
        torch.testing.assert_close(learner.loss(x), learner._loss(x))


def test_any_failure_of_the_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(function: object) -> object:
        raise FileNotFoundError("no cache folder")

    monkeypatch.setattr(jit, "_compiled", fails)
    trouble = jit._try_compiling.__wrapped__(CPU)
    assert "no cache folder" in trouble


def test_auto_goes_on_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> Tensor:
        return x.tanh()

    gpu = torch.device("cuda")
    monkeypatch.setattr(jit, "_try_compiling", lambda device: "no compiler")
    with pytest.warns(UserWarning, match="slower than it could be. no compiler"):
        assert jit.compiler("auto", gpu)(function) is function
    with pytest.raises(ValueError, match="no compiler, or train with --train.compile off"):
        jit.compiler("on", gpu)
    monkeypatch.setattr(jit, "_try_compiling", lambda device: None)
    assert jit.compiler("auto", gpu)(function) is not function


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


def test_capturing_and_our_kernels_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> dict[str, Tensor]:
        return {}

    gpu = torch.device("cuda")
    assert isinstance(jit.jit(function, gpu, []), jit.Captured)
    assert jit.jit(function, gpu, [], capture=False) is function
    assert jit.jit(function, CPU, []) is function
    load = kernels.load.__wrapped__
    assert load("hadamard.core.jit") is jit
    assert load("hadamard.no_such_kernels") is None
    monkeypatch.setenv("HADAMARD_KERNELS", "off")
    assert load("hadamard.core.jit") is None


def test_the_norms_kernel_stays_out_of_function_transforms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def one_if_it_runs(x: Tensor) -> Tensor:
        return 0 * x + 1 if normed.kernel_can_run() else 0 * x

    def tangent(x: Tensor) -> Tensor:
        return torch.func.jvp(one_if_it_runs, (x,), (x,))[0]

    def answer(function: Callable[[Tensor], Tensor]) -> float:
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="eager")
        return float(compiled(torch.ones(1)).sum())

    monkeypatch.setattr(kernels, "load", lambda name: kernels)
    assert answer(one_if_it_runs) == 1
    assert answer(torch.vmap(one_if_it_runs)) == 0
    assert answer(tangent) == 0
    monkeypatch.setattr(kernels, "load", lambda name: None)
    assert answer(one_if_it_runs) == 0


def test_the_norms_kernel_applies_where_nothing_is_lost_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
    monkeypatch.setattr(normed, "kernel_can_run", lambda: True)
    x = SimpleNamespace(is_cuda=True, dtype=torch.float32)  # all that is asked of an input
    recipe = LinearBranch(8, 4, "relu", norm="layer")

    def applies(layer: nn.Module, x: Any = x) -> bool:
        return normed.kernel_applies(layer, x)

    assert applies(recipe.build())
    assert applies(build("hadamard", recipe))
    assert applies(build("plain", Conv2dBranch(3, 4, norm="layer")))
    assert not applies(recipe.build(), SimpleNamespace(is_cuda=False, dtype=torch.float32))
    assert not applies(recipe.build(), SimpleNamespace(is_cuda=True, dtype=torch.float16))
    for other in (
        recipe.varied(norm=None),
        recipe.varied(activation="mish"),
        recipe.varied(outputs=5000),
        Conv2dBranch(3, 4, norm="layer_map"),
    ):
        assert not applies(other.build())
    assert not applies(HadamardLinear(8, 4, norm="layer", branches=3))
    hooked = recipe.build()
    nn.utils.spectral_norm(hooked.affine)  # a hook computes the weights
    assert not applies(hooked)
    for part in ("affine", "norm", "activation"):
        for kind in ("forward_pre", "forward", "full_backward_pre", "full_backward"):
            hooked = recipe.build()
            getattr(getattr(hooked, part), f"register_{kind}_hook")(print)
            assert not applies(hooked)
    parametrised = recipe.build()
    nn.utils.parametrizations.weight_norm(parametrised.affine)
    assert not applies(parametrised)


def test_both_sides_are_called_in_turn() -> None:
    called: list[str] = []

    def say(word: str) -> str:
        called.append(word)
        return word

    assert jit.beside(lambda: say("one"), lambda: say("other")) == ("one", "other")
    assert called == ["one", "other"]


def test_compiled_code_spends_no_time_on_checking_actions() -> None:
    def chosen(values: Tensor, action: Tensor) -> Tensor:
        return values.gather(1, action.unsqueeze(1)).squeeze(1)

    given = torch.randn(8, 4), torch.randint(4, (8,))
    found, (code,) = run_and_get_code(jit.compiler("on", CPU)(chosen), *given)
    assert torch.equal(found, chosen(*given))
    assert "TORCH_CHECK" not in code
