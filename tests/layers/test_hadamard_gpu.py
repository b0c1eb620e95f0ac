"""Hadamard layers learn the same on CPU and GPU, compiled and captured. Needs a CUDA device."""

from __future__ import annotations

import copy
from unittest.mock import Mock, patch

import pytest
import torch
from torch import Tensor, nn

from hadamard import HadamardConv2d, HadamardLinear
from hadamard.layers import product

pytestmark = pytest.mark.gpu


def cases() -> list[tuple[nn.Module, Tensor]]:
    return [
        (HadamardLinear(48, 32), torch.randn(64, 48)),
        (HadamardLinear(48, 32, "elu", norm="layer", branches=3), torch.randn(64, 48)),
        (HadamardConv2d(4, 16, 3, norm="layer"), torch.randn(8, 4, 12, 12)),
        (HadamardConv2d(4, 16, 3, activation="relu"), torch.randn(8, 4, 12, 12)),
    ]


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")  # off on purpose
@pytest.mark.parametrize("index", range(4))
def test_cpu_gpu_compiled_and_captured_learning_agree(index: int) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    layer, x = cases()[index]

    def trained(model: nn.Module, x: Tensor, step_twice: bool = True) -> list[Tensor]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2 if step_twice else 1):
            optimizer.zero_grad(set_to_none=False)
            model(x).square().mean().backward()
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    on_cpu = trained(copy.deepcopy(layer), x)
    on_gpu = trained(copy.deepcopy(layer).cuda(), x.cuda())
    compiled = copy.deepcopy(layer).cuda()
    on_compiled = trained(torch.compile(compiled, fullgraph=True), x.cuda())

    model, static = copy.deepcopy(layer).cuda(), x.cuda()
    start = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(static).square().mean().backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    kernel = Mock(wraps=product.triton_kernels().BranchProduct.apply)
    patched = patch.object(product.triton_kernels().BranchProduct, "apply", kernel)
    with patched, torch.cuda.graph(graph):
        step()
    kernel.assert_called_once()  # a capture uses the kernel, which the warm-up compiled
    model.load_state_dict(start)
    graph.replay()
    graph.replay()
    on_graph = [p.detach().cpu() for p in model.parameters()]

    for way in (on_gpu, on_compiled, on_graph):
        for expected, got in zip(on_cpu, way, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_autocast_vmap_jvp_and_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = HadamardLinear(48, 32).cuda(), torch.randn(16, 48, device="cuda")
    monkeypatch.setattr(product, "_LARGE", 0)  # so that small tensors use the kernel too
    with torch.autocast("cuda", dtype=torch.bfloat16):
        low = layer(x)
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), layer(x), rtol=3e-2, atol=3e-2)

    members = [HadamardLinear(48, 32).cuda() for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(members)
    together = torch.func.vmap(lambda p, b: torch.func.functional_call(members[0], (p, b), (x,)))(
        parameters, buffers
    )
    expected = torch.stack([m(x) for m in members])
    torch.testing.assert_close(together, expected, rtol=1e-4, atol=1e-5)

    plain = copy.deepcopy(layer).cpu()
    tangent = torch.randn_like(x)
    _, slope = torch.func.jvp(layer, (x,), (tangent,))
    _, reference = torch.func.jvp(plain, (x.cpu(),), (tangent.cpu(),))
    torch.testing.assert_close(slope.cpu(), reference, rtol=1e-3, atol=1e-4)

    def penalty(model: nn.Module, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        model.zero_grad()
        gradient.square().sum().backward()
        return next(model.parameters()).grad.cpu()

    torch.testing.assert_close(penalty(layer, x), penalty(plain, x.cpu()), rtol=1e-3, atol=1e-4)
