"""Where the norm kernel is used."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from hadamard import HadamardLinear
from hadamard.compute import kernels
from hadamard.layers import Conv2dBranch, LinearBranch, build, norm_kernel


def test_the_norm_kernel_is_not_used_in_function_transforms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def one_if_available(x: Tensor) -> Tensor:
        return 0 * x + 1 if norm_kernel.available() else 0 * x

    def tangent(x: Tensor) -> Tensor:
        return torch.func.jvp(one_if_available, (x,), (x,))[0]

    def result(function: Callable[[Tensor], Tensor]) -> float:
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="eager")
        return float(compiled(torch.ones(1)).sum())

    monkeypatch.setattr(kernels, "load", lambda name: kernels)
    assert result(one_if_available) == 1
    assert result(torch.vmap(one_if_available)) == 0
    assert result(tangent) == 0
    monkeypatch.setattr(kernels, "load", lambda name: None)
    assert result(one_if_available) == 0


def test_the_norm_kernel_applies_to_supported_layers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
    monkeypatch.setattr(norm_kernel, "available", lambda: True)
    x = SimpleNamespace(is_cuda=True, dtype=torch.float32)  # the only attributes that are read
    recipe = LinearBranch(8, 4, "relu", norm="layer")

    def applies(layer: nn.Module, x: Any = x) -> bool:
        return norm_kernel.applies(layer, x)

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
    parametrized = recipe.build()
    nn.utils.parametrizations.weight_norm(parametrized.affine)
    assert not applies(parametrized)
