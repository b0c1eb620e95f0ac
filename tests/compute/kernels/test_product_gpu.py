"""The product kernel equals the plain form. Needs a CUDA device."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from hadamard.layers import product
from hadamard.layers.activations import activation_name, make_activation
from hadamard.layers.product import kernel_applies, plain_product

pytestmark = pytest.mark.gpu

FUSED = ["relu", "tanh", "elu", "silu", "sigmoid", "gelu", "identity"]


def branch_product(x: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """Call the kernel, also for small tensors."""
    plain = partial(plain_product, branches=branches, dim=dim, activation=activation)
    kernels, name = product.triton_kernels(), activation_name(activation)
    return kernels.BranchProduct.apply(x, branches, dim, name, plain)


def pre_activations(layout: str, branches: int, dtype: torch.dtype) -> tuple[Tensor, int]:
    if layout == "linear":
        return 2 * torch.randn(33, branches * 37, device="cuda", dtype=dtype), -1
    x = 2 * torch.randn(5, branches * 12, 7, 9, device="cuda", dtype=dtype)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    return x, -3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["linear", "conv", "channels_last"])
@pytest.mark.parametrize("branches", [2, 3])
@pytest.mark.parametrize("name", FUSED)
def test_kernel_agrees_with_the_plain_form_in_float64(
    name: str, branches: int, layout: str, dtype: torch.dtype
) -> None:
    activation = make_activation(name)
    x, dim = pre_activations(layout, branches, dtype)
    assert kernel_applies(x, name)
    x.requires_grad_()
    exact = x.detach().double().requires_grad_()
    out = branch_product(x, branches, dim, activation)
    reference = plain_product(exact, branches, dim, activation)
    assert out.dtype == dtype
    if layout == "channels_last":
        assert out.is_contiguous(memory_format=torch.channels_last)
    upstream = torch.randn_like(out)
    out.backward(upstream)
    reference.backward(upstream.double())
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    for ours, theirs in ((out, reference), (x.grad, exact.grad)):
        error = (ours.double() - theirs).norm() / theirs.norm()
        assert error < tolerance, f"relative error {error:.2e}"
        assert torch.isfinite(ours).all()


def test_kernel_keeps_nan_and_accepts_empty_batches() -> None:
    for name in FUSED:
        x = torch.randn(4, 6, device="cuda")
        x[1, 2] = float("nan")
        out = branch_product(x, 2, -1, make_activation(name))
        assert bool(out[1, 2].isnan())
        assert int(out.isnan().sum()) == 1
    empty = torch.empty(0, 6, device="cuda", requires_grad=True)
    out = branch_product(empty, 2, -1, nn.Tanh())
    assert out.shape == (0, 3)
    out.sum().backward()
    assert empty.grad.shape == (0, 6)
