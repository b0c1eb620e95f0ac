"""The norm kernel equals the four separate operations. Needs a CUDA device."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import Tensor, nn

from hadamard import HadamardLinear
from hadamard.layers import Conv2dBranch, LinearBranch, build, norm_kernel

pytestmark = pytest.mark.gpu

FUSED = ["relu", "tanh", "elu", "silu", "sigmoid", "gelu", "identity"]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]
SHAPES = ["linear", "wide", "conv", "channels_last", "full tiles"]


@pytest.mark.parametrize(
    ("name", "shape", "learned", "dtype"),
    [(name, "linear", True, torch.float32) for name in FUSED]
    + list(itertools.product(["tanh"], SHAPES, [True, False], DTYPES)),
)
@pytest.mark.parametrize("variant", ["plain", "hadamard"])
def test_the_norm_kernel_equals_the_plain_form(
    name: str, variant: str, shape: str, learned: bool, dtype: torch.dtype
) -> None:
    settings = {"activation": name, "norm": "layer", "bias": learned, "affine_norm": learned}
    if shape in ("linear", "wide"):
        width = 37 if shape == "linear" else 1500
        recipe, x = LinearBranch(24, width, **settings), torch.randn(33, 24)
    elif shape == "full tiles":  # 1201 tiles of 32 rows: the last program has fewer
        recipe, x = LinearBranch(24, 32, **settings), torch.randn(1201 * 32, 24)
    else:
        recipe, x = Conv2dBranch(3, 12, **settings, kernel_size=3), torch.randn(5, 3, 9, 30)
    if shape == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    layer = build(variant, recipe).to("cuda", dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = x.to("cuda", dtype).requires_grad_()
    exact, exact_x = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    assert norm_kernel.available()
    out, reference = norm_kernel.run(layer, x), exact(exact_x)
    assert out.dtype == dtype
    assert out.stride() == layer(x).stride()
    upstream = torch.randn_like(out)
    out.backward(upstream)
    reference.backward(upstream.double())
    pairs = [(out, reference), (x.grad, exact_x.grad)]
    pairs += [(p.grad, q.grad) for p, q in zip(layer.parameters(), exact.parameters(), strict=True)]
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for ours, theirs in pairs:
        error = (ours.double() - theirs).norm() / theirs.norm()
        assert error < tolerance, f"relative error {error:.2e}"


def test_a_compiled_layer_with_a_norm_uses_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[str] = []

    def recorder(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        codes.append(graph.code)
        return graph

    x = torch.randn(8, 16, device="cuda")

    def code_of(layer: nn.Module, x: Tensor = x) -> str:
        torch.compiler.reset()
        torch.compile(layer.cuda(), fullgraph=True, backend=recorder)(x)
        return codes.pop()

    kernel = "hadamard.norm_product"
    assert kernel in code_of(HadamardLinear(16, 8, norm="layer"))
    assert kernel in code_of(build("plain", LinearBranch(16, 8, "relu", norm="layer")))
    assert kernel not in code_of(HadamardLinear(16, 8, norm="layer", branches=3))
    assert kernel not in code_of(HadamardLinear(16, 8))
    hooked = HadamardLinear(16, 8, norm="layer")
    hooked.norm.register_forward_hook(lambda *_: None)
    assert kernel not in code_of(hooked)
    with torch.autocast("cuda", torch.bfloat16):
        assert kernel not in code_of(HadamardLinear(16, 8, norm="layer"))
    layer = HadamardLinear(16, 8, norm="layer").cuda()
    assert kernel not in torch.export.export(layer, (x,)).graph_module.code
    monkeypatch.setattr(norm_kernel, "available", lambda: False)
    assert kernel not in code_of(HadamardLinear(16, 8, norm="layer"))


def test_the_norm_kernel_keeps_nan_and_accepts_empty_batches() -> None:
    layer = HadamardLinear(16, 8, norm="layer").cuda()
    x = torch.randn(5, 16, device="cuda")
    x[3, 2] = float("nan")
    assert norm_kernel.available()
    assert norm_kernel.run(layer, x).isnan().any(1).tolist() == [False] * 3 + [True, False]
    empty = torch.empty(0, 16, device="cuda", requires_grad=True)
    norm_kernel.run(layer, empty).sum().backward()
    assert empty.grad.shape == (0, 16)
    assert layer.affine.weight.grad.count_nonzero() == 0
