"""The GPU kernels compute what the plain form computes. Run on a machine with a CUDA device."""

from __future__ import annotations

import copy
import gc
import itertools
from unittest.mock import Mock, patch

import pytest
import torch
from torch import Tensor, nn

from hadamard import HadamardConv2d, HadamardLinear, diagnose, kernels
from hadamard.core import augment
from hadamard.core.jit import Captured
from hadamard.core.sphere import SphereAdam
from hadamard.health import dormant, effective_rank
from hadamard.layers import Conv2dBranch, LinearBranch, build, conv, normed, pixels, product
from hadamard.layers.activations import activation_name, make_activation
from hadamard.layers.product import kernel_applies, plain_product

pytestmark = pytest.mark.gpu

FUSED = ["relu", "tanh", "elu", "silu", "sigmoid", "gelu", "identity"]


def branch_product(x: Tensor, branches: int, dim: int, activation: nn.Module) -> Tensor:
    """The kernel itself, whatever the size."""
    kernels = product.triton_kernels()
    name = activation_name(activation)
    return kernels.BranchProduct.apply(x, branches, dim, activation, name)


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


def test_kernel_passes_on_nan_and_empty_batches() -> None:
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


KINDS = [torch.float64, torch.float32, torch.bfloat16]
SHAPES = ["linear", "wide", "conv", "channels_last", "whole tiles"]


@pytest.mark.parametrize(
    ("name", "shape", "learned", "dtype"),
    [(name, "linear", True, torch.float32) for name in FUSED]
    + list(itertools.product(["tanh"], SHAPES, [True, False], KINDS)),
)
@pytest.mark.parametrize("variant", ["plain", "hadamard"])
def test_a_layer_with_a_norm_in_one_kernel_is_that_in_four_steps(
    name: str, variant: str, shape: str, learned: bool, dtype: torch.dtype
) -> None:
    told = {"activation": name, "norm": "layer", "bias": learned, "affine_norm": learned}
    if shape in ("linear", "wide"):
        width = 37 if shape == "linear" else 1500
        recipe, x = LinearBranch(24, width, **told), torch.randn(33, 24)
    elif shape == "whole tiles":  # 1201 of 32 rows, shared by programs of which one has fewer
        recipe, x = LinearBranch(24, 32, **told), torch.randn(1201 * 32, 24)
    else:
        recipe, x = Conv2dBranch(3, 12, **told, kernel_size=3), torch.randn(5, 3, 9, 30)
    if shape == "channels_last":
        x = x.to(memory_format=torch.channels_last)
    layer = build(variant, recipe).to("cuda", dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = x.to("cuda", dtype).requires_grad_()
    exact, exact_x = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    assert normed.kernel_can_run()
    out, reference = normed.in_one_kernel(layer, x), exact(exact_x)
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


def test_a_compiled_layer_with_a_norm_takes_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def reading(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        seen.append(graph.code)
        return graph

    x = torch.randn(8, 16, device="cuda")

    def code_of(layer: nn.Module, x: Tensor = x) -> str:
        torch.compiler.reset()
        torch.compile(layer.cuda(), fullgraph=True, backend=reading)(x)
        return seen.pop()

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
    monkeypatch.setattr(normed, "kernel_can_run", lambda: False)
    assert kernel not in code_of(HadamardLinear(16, 8, norm="layer"))


def test_a_norm_in_one_kernel_passes_on_nan_and_empty_batches() -> None:
    layer = HadamardLinear(16, 8, norm="layer").cuda()
    x = torch.randn(5, 16, device="cuda")
    x[3, 2] = float("nan")
    assert normed.kernel_can_run()
    assert normed.in_one_kernel(layer, x).isnan().any(1).tolist() == [False] * 3 + [True, False]
    empty = torch.empty(0, 16, device="cuda", requires_grad=True)
    normed.in_one_kernel(layer, empty).sum().backward()
    assert empty.grad.shape == (0, 16)
    assert layer.affine.weight.grad.count_nonzero() == 0


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
    kernel.assert_called_once()  # a capture takes the kernel, compiled in the warm-up
    model.load_state_dict(start)
    graph.replay()
    graph.replay()
    on_graph = [p.detach().cpu() for p in model.parameters()]

    for way in (on_gpu, on_compiled, on_graph):
        for expected, got in zip(on_cpu, way, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_autocast_vmap_jvp_and_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = HadamardLinear(48, 32).cuda(), torch.randn(16, 48, device="cuda")
    monkeypatch.setattr(product, "_LARGE", 0)  # the kernel everywhere it can be
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


def test_the_diagnosis_is_the_same_on_both_devices() -> None:
    pre = torch.randn(2048, 300) * torch.logspace(-3, 0.5, 300) + 2 * torch.randn(300)
    z = torch.tanh(pre)
    on_cpu, on_gpu = dormant(z), dormant(z.cuda())
    assert 0 < on_cpu.count < 300
    assert torch.equal(on_cpu.mask, on_gpu.mask.cpu())
    torch.testing.assert_close(on_cpu.peaks, on_gpu.peaks.cpu(), rtol=1e-4, atol=0)
    assert torch.equal(dormant(z.cuda()).peaks, on_gpu.peaks)  # the same every time
    assert effective_rank(z) == effective_rank(z.cuda())
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), HadamardLinear(64, 32), nn.Linear(32, 2))
    x = torch.randn(512, 8)
    cpu, gpu = diagnose(net, x), diagnose(net.cuda(), x.cuda())
    for ours, theirs in zip(cpu, gpu, strict=True):
        assert ours.dormant == theirs.dormant
        assert ours.effective_rank == theirs.effective_rank
        assert ours.hidden_bias_share == pytest.approx(theirs.hidden_bias_share, abs=1e-4)


SHAPES = [
    (4, 32, 8, 4),
    (9, 32, 3, 2),
    (32, 64, 4, 2),
    (9, 32, 3, 1),
    (4, 32, 8, 4, 2),
    (32, 32, 3, 2),
]
ON_BLOCKS = (SHAPES[0], SHAPES[2])


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [84, 83, 41])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_strided_convolution_is_pytorchs(
    shape: tuple[int, ...],
    size: int,
    layout: torch.memory_format,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    blocks = Mock(side_effect=conv.in_blocks)
    monkeypatch.setattr(conv, "in_blocks", blocks)
    ours = conv.Conv2d(*shape).cuda()
    theirs = nn.Conv2d(*shape).cuda()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(16, shape[0], size, size, device="cuda").to(memory_format=layout)
    outputs = [layer(images) for layer in (ours, theirs)]
    assert blocks.called == (layout == torch.channels_last and shape in ON_BLOCKS)
    assert outputs[0].is_contiguous(memory_format=layout)
    torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)
    change = torch.randn_like(outputs[0])
    for layer, output in zip((ours, theirs), outputs, strict=True):
        output.backward(change)
        assert layer.weight.grad is not None
    near = {"rtol": 1e-3, "atol": 1e-3 * float(theirs.weight.grad.abs().max())}
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, **near)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad, rtol=1e-3, atol=1e-2)


def test_a_graph_outlives_another() -> None:
    weight = torch.randn(512, 512, device="cuda")

    def product(x: Tensor) -> dict[str, Tensor]:
        return {"out": x @ weight}

    inputs = torch.randn(8, 512, device="cuda")
    first, second = (Captured(product, torch.device("cuda"), []) for _ in range(2))
    expected = first(inputs)["out"]
    assert torch.equal(second(inputs)["out"], expected)
    assert first.stream != second.stream
    assert first(inputs[:4])["out"].shape == (4, 512)  # another shape, another graph
    del first
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.equal(second(inputs)["out"], expected)


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("variant", ["plain", "hadamard"])
@pytest.mark.parametrize(
    ("outputs", "size", "kernel", "stride"),
    [(32, 84, 3, 2), (32, 41, 3, 2), (10, 20, 3, 1), (70, 31, 3, 3), (16, 12, 2, 4)],
)
def test_a_convolution_of_bytes_is_that_of_floats(
    outputs: int,
    size: int,
    kernel: int,
    stride: int,
    variant: str,
    compiled: bool,
    tf32: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    recipe = Conv2dBranch(9, outputs, "elu", kernel_size=kernel, stride=stride)
    layer = build(variant, recipe).cuda()
    wide = copy.deepcopy(layer).double()
    images = torch.randint(256, (37, 9, size, size), dtype=torch.uint8, device="cuda")
    assert pixels.kernel_applies(layer, images)
    with monkeypatch.context() as without:
        without.setattr(pixels, "_kernels", None)
        expected = pixels.of_pixels(wide, images.double())
    torch.compiler.reset()  # one function is compiled for so many layers only
    see = torch.compile(pixels.of_pixels, fullgraph=True) if compiled else pixels.of_pixels
    seen = see(layer, images)
    assert seen.is_contiguous(memory_format=torch.channels_last)
    bound = 2e-3 if tf32 else 1e-5
    torch.testing.assert_close(seen.double(), expected, rtol=bound, atol=bound)
    change = torch.randn_like(seen)
    (seen * change).sum().backward()
    (expected * change).sum().backward()
    for ours, theirs in zip(layer.parameters(), wide.parameters(), strict=True):
        assert (ours.grad - theirs.grad).norm() < bound * theirs.grad.norm()


@pytest.mark.parametrize("follow", [True, False])
def test_adam_on_the_sphere_in_one_kernel_is_that_in_three_steps(follow: bool) -> None:
    shapes = [(2, 71, 512), (2, 1, 512), (2, 512, 2048), (2, 3072, 64), (2, 5000, 7), (128, 19), ()]
    both = []
    for _ in range(2):
        draw = torch.Generator("cuda").manual_seed(0)
        held = [torch.randn(s, generator=draw, device="cuda").requires_grad_() for s in shapes]
        sphere = [weight for weight in held if weight.dim() > 1 and weight.shape[-2] > 1]
        targets = [weight.detach().clone() for weight in held] if follow else []
        rate = torch.tensor(1e-2, device="cuda")
        optimiser = SphereAdam(
            held, lr=rate, sphere=sphere, targets=targets, tau=0.1, fused=True, capturable=True
        )
        both.append((optimiser, held, targets))
    assert both[0][0].kernels is not None
    both[1][0].kernels = None
    for _ in range(20):
        for mine, other in zip(both[0][1], both[1][1], strict=True):
            mine.grad = torch.randn_like(mine) * 10 ** (-6 * torch.rand_like(mine))
            other.grad = mine.grad.clone()
        for optimiser, _, _ in both:
            optimiser.step()
    for mine, other in zip((*both[0][1], *both[0][2]), (*both[1][1], *both[1][2]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_frames_taken_and_shifted_at_once_are_those_of_two_steps() -> None:
    draw = torch.Generator("cuda").manual_seed(0)
    fast = kernels.load("hadamard.core.shift_triton")
    for shape in [(3, 84, 84), (3, 12, 10), (1, 5, 33), (4, 7, 1)]:
        frames = torch.randint(256, (50, *shape), dtype=torch.uint8, device="cuda", generator=draw)
        index = torch.randint(50, (16, 5, 3), device="cuda", generator=draw)
        shift = torch.randint(-6, 7, (16, 5, 2), device="cuda", generator=draw)
        expected = augment.shifted(augment.taken(frames, index), shift)
        assert torch.equal(fast.shifted_frames(frames, index, shift), expected)
    with pytest.raises(ValueError, match="shifts of shape"):
        fast.shifted_frames(frames, index, shift[:3])


def test_frames_far_into_a_large_replay_are_found() -> None:
    fast = kernels.load("hadamard.core.shift_triton")
    count = 2**32 // (3 * 84 * 84) + 8
    frames = torch.zeros(count, 3, 84, 84, dtype=torch.uint8, device="cuda")
    frames[-8:].random_(0, 256)
    index = torch.randint(count - 8, count, (16, 3), device="cuda")
    shift = torch.randint(-4, 5, (16, 2), device="cuda")
    expected = augment.shifted(augment.taken(frames, index), shift)
    assert torch.equal(fast.shifted_frames(frames, index, shift), expected)
