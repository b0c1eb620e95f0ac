"""What is compiled and captured, and what happens if that does not work."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch._inductor.config
from torch import Tensor
from torch._inductor.utils import run_and_get_code

from hadamard import cli
from hadamard.compute import jit, kernels
from tests.support.updates import CPU, agent_of, batch_of


def test_a_compiled_relu_saves_no_booleans() -> None:
    # A CPU writes and reads them one by one, which takes longer than all the rest.
    agent = agent_of("pqn", torch.float32, {"net.activation": "relu", "train.compile": "on"})
    saved: list[torch.dtype] = []

    def keep(tensor: Tensor) -> Tensor:
        saved.append(tensor.dtype)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        agent.loss(*batch_of("pqn", size=16))
    assert torch.float32 in saved
    assert torch.bool not in saved


def test_the_setting_decides_what_is_compiled() -> None:
    def function(x: Tensor) -> Tensor:
        return x.tanh()

    gpu = torch.device("cuda")
    assert jit.compiler("auto", CPU)(function) is function
    assert jit.compiler("off", gpu)(function) is function
    assert jit.compiler("on", CPU)(function) is not function


def test_a_step_without_capture_takes_inputs_on_the_cpu_too() -> None:
    def doubled(x: Tensor) -> dict[str, Tensor]:
        return {"out": 2 * x}

    elsewhere = torch.device("meta")  # stands for a GPU
    step = jit.jit(doubled, elsewhere, [], capture=False)
    assert step(torch.ones(3))["out"].device == elsewhere
    assert jit.jit(doubled, CPU, []) is doubled


def test_a_process_may_compile_for_many_kinds_of_networks() -> None:
    class Learner:
        def __init__(self, width: int) -> None:
            self.network = torch.nn.Linear(2, width)
            self.loss = jit.compiler("on", CPU)(self._loss)

        def _loss(self, x: Tensor) -> Tensor:
            return self.network(x).sum()

    for width in range(1, 10):  # torch's own limit is 8
        learner, x = Learner(width), torch.ones(3, 2)
        torch.testing.assert_close(learner.loss(x), learner._loss(x))


def test_any_failure_of_the_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(function: object) -> object:
        raise FileNotFoundError("no cache folder")

    monkeypatch.setattr(jit, "_compiled", fails)
    problem = jit._compile_problem.__wrapped__(CPU)
    assert "no cache folder" in problem


def test_auto_continues_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Tensor) -> Tensor:
        return x.tanh()

    gpu = torch.device("cuda")
    monkeypatch.setattr(jit, "_compile_problem", lambda device: "no compiler")
    with pytest.warns(UserWarning, match="slower than it could be. no compiler"):
        assert jit.compiler("auto", gpu)(function) is function
    with pytest.raises(ValueError, match="no compiler, or train with --train.compile off"):
        jit.compiler("on", gpu)
    monkeypatch.setattr(jit, "_compile_problem", lambda device: None)
    assert jit.compiler("auto", gpu)(function) is not function


def test_a_missing_compiler_is_reported_before_the_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # With an empty cache of earlier results.
    monkeypatch.setattr(jit, "_compile_problem", functools.cache(jit._compile_problem.__wrapped__))
    path = tmp_path / "run"
    words = ["train", "pqn", "--env", "probe/both", "--run-dir", str(path), "--train.steps", "99"]
    with torch._inductor.config.patch({"cpp.cxx": ("/nowhere/g++",)}):
        assert cli.main([*words, "--train.compile", "on"]) == 2
    message = capsys.readouterr().err
    assert "No working C++ compiler" in message
    assert "--train.compile off" in message
    assert message.count("\n") == 1
    assert not path.exists()


def test_capturing_and_our_kernels_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def function() -> dict[str, Tensor]:
        return {}

    gpu = torch.device("cuda")
    assert isinstance(jit.jit(function, gpu, []), jit.Captured)
    assert jit.jit(function, gpu, [], capture=False)() == {}
    assert jit.jit(function, CPU, []) is function
    load = kernels.load.__wrapped__
    module = ModuleType("hadamard.compute.kernels.some_triton")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert load("some_triton") is module
    assert load("no_such_kernels") is None
    monkeypatch.setenv("HADAMARD_KERNELS", "off")
    assert load("some_triton") is None


def test_in_parallel_calls_one_after_the_other_without_a_capture() -> None:
    called: list[str] = []

    def say(word: str) -> str:
        called.append(word)
        return word

    assert jit.in_parallel(lambda: say("one"), lambda: say("other")) == ("one", "other")
    assert called == ["one", "other"]


def test_compiled_code_does_not_check_indices() -> None:
    def chosen(values: Tensor, action: Tensor) -> Tensor:
        return values.gather(1, action.unsqueeze(1)).squeeze(1)

    inputs = torch.randn(8, 4), torch.randint(4, (8,))
    out, (code,) = run_and_get_code(jit.compiler("on", CPU)(chosen), *inputs)
    assert torch.equal(out, chosen(*inputs))
    assert "TORCH_CHECK" not in code
