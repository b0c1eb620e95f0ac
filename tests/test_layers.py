"""The layers compute what the paper defines, however they are run."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard import layers
from hadamard.layers import (
    Conv2dBranch,
    Hadamard,
    HadamardConv2d,
    HadamardLinear,
    LinearBranch,
    matched_width,
)
from hadamard.layers.activations import ACTIVATIONS, activation_name
from hadamard.layers.conv import in_blocks
from hadamard.layers.hadamard import FusedHadamard

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "leaky_relu": F.leaky_relu,
    "softplus": F.softplus,
    "mish": F.mish,
    "identity": lambda x: x,
}


def paper_linear(x: Tensor, state: dict[str, Tensor], f: Callable[[Tensor], Tensor]) -> Tensor:
    """z = f(A1 x + b1) * f(A2 x + b2), straight from the saved weights."""
    out = torch.ones((), dtype=x.dtype)
    for i in range(sum(key.endswith("affine.weight") for key in state)):
        h = x @ state[f"branches.{i}.affine.weight"].T + state[f"branches.{i}.affine.bias"]
        if f"branches.{i}.norm.weight" in state:
            scale, shift = state[f"branches.{i}.norm.weight"], state[f"branches.{i}.norm.bias"]
            h = (h - h.mean(-1, keepdim=True)) / (
                h.var(-1, unbiased=False, keepdim=True) + 1e-6
            ).sqrt()
            h = h * scale + shift
        out = out * f(h)
    return out


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("branches", [2, 3])
def test_linear_is_the_papers_product(name: str, norm: str | None, branches: int) -> None:
    layer = HadamardLinear(7, 5, name, norm=norm, branches=branches, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(4, 3, 7, dtype=torch.float64)
    expected = paper_linear(x, layer.state_dict(), FUNCTIONS[name])
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("norm", [None, "layer", "layer_map"])
@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_conv_is_the_papers_product(norm: str | None, padding_mode: str) -> None:
    layer = HadamardConv2d(
        3, 5, (3, 2), stride=2, padding=1, norm=norm, padding_mode=padding_mode, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(4, 3, 9, 8, dtype=torch.float64)
    state = layer.state_dict()
    padded = F.pad(x, (1, 1, 1, 1), mode="constant" if padding_mode == "zeros" else padding_mode)
    expected = torch.ones((), dtype=torch.float64)
    for i in range(2):
        part = {key: state[f"branches.{i}.{key}"] for key in ("affine.weight", "affine.bias")}
        h = F.conv2d(padded, part["affine.weight"], part["affine.bias"], stride=2)
        if norm is not None:
            over = (1,) if norm == "layer" else (1, 2, 3)
            spread = h.var(over, unbiased=False, keepdim=True)
            h = (h - h.mean(over, keepdim=True)) / (spread + 1e-6).sqrt()
            h = h * state[f"branches.{i}.norm.weight"].view(-1, 1, 1)
            h = h + state[f"branches.{i}.norm.bias"].view(-1, 1, 1)
        expected = expected * torch.tanh(h)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer(x[0]), expected[0])  # without a batch dimension


def layer_cases() -> list[FusedHadamard]:
    return [
        HadamardLinear(6, 4),
        HadamardLinear(6, 4, "relu", norm="layer", branches=3),
        HadamardLinear(6, 4, bias=False),
        HadamardConv2d(6, 4, 3, norm="layer"),
        HadamardConv2d(6, 4, 3, norm="layer_map", activation="elu"),
    ]


def input_for(layer: nn.Module, batch: int = 5) -> Tensor:
    shape = (batch, 6) if isinstance(layer, HadamardLinear) else (batch, 6, 5, 5)
    return torch.randn(shape, dtype=next(layer.parameters()).dtype)


@pytest.mark.parametrize("index", range(5))
def test_fused_equals_the_naive_product_forward_and_backward(index: int) -> None:
    layer = layer_cases()[index]
    naive = Hadamard(*layer.split())
    x = input_for(layer).requires_grad_()
    y = x.detach().clone().requires_grad_()
    weights = torch.randn_like(layer(x))
    (layer(x) * weights).sum().backward()
    (naive(y) * weights).sum().backward()
    torch.testing.assert_close(layer(x), naive(y))
    torch.testing.assert_close(x.grad, y.grad)
    joined = torch.cat([branch.affine.weight.grad for branch in naive.branches])
    torch.testing.assert_close(layer.affine.weight.grad, joined)


def test_bfloat16_equals_the_naive_product_in_bfloat16_precision() -> None:
    layer = HadamardLinear(64, 32, dtype=torch.bfloat16)
    exact = Hadamard(*copy.deepcopy(layer).float().split())
    x = torch.randn(16, 64, dtype=torch.bfloat16, requires_grad=True)
    y = x.detach().float().requires_grad_()
    layer(x).sum().backward()
    exact(y).sum().backward()
    torch.testing.assert_close(layer(x).float(), exact(y), rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(x.grad.float(), y.grad, rtol=5e-2, atol=2e-2)


@pytest.mark.parametrize("index", range(5))
def test_gradients_check_in_float64(index: int) -> None:
    layer = layer_cases()[index].double()
    assert torch.autograd.gradcheck(layer, (input_for(layer, 2).requires_grad_(),))
    names, values = zip(*layer.named_parameters(), strict=True)
    x = input_for(layer, 2)
    leaves = tuple(v.detach().clone().requires_grad_() for v in values)

    def of_parameters(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(of_parameters, leaves)


def test_second_derivatives_exist() -> None:
    layer = HadamardLinear(3, 2, dtype=torch.float64)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, (x,))


def test_branches_are_drawn_independently_and_seeds_repeat() -> None:
    for make in (lambda: HadamardLinear(8, 8), lambda: HadamardConv2d(4, 8, 3)):
        torch.manual_seed(3)
        first, second = make().split()
        assert not torch.equal(first.affine.weight, second.affine.weight)
        assert not torch.equal(first.affine.bias, second.affine.bias)
        correlation = np.corrcoef(
            first.affine.weight.detach().flatten(), second.affine.weight.detach().flatten()
        )
        assert abs(correlation[0, 1]) < 0.3
        torch.manual_seed(3)
        again = make()
        torch.manual_seed(4)
        other = make()
        torch.testing.assert_close(again.split()[1].affine.weight, second.affine.weight)
        assert not torch.equal(other.split()[1].affine.weight, second.affine.weight)


def test_a_seed_gives_the_same_weights_fused_and_naive() -> None:
    recipe = LinearBranch(6, 4, norm="layer")
    torch.manual_seed(1)
    naive = Hadamard(recipe.build(), recipe.build())
    torch.manual_seed(1)
    fused = layers.build("hadamard", recipe)
    assert isinstance(fused, HadamardLinear)
    for key, value in naive.state_dict().items():
        assert torch.equal(value, fused.state_dict()[key]), key


@pytest.mark.parametrize("index", range(5))
def test_state_dict_names_the_branches_and_round_trips(index: int) -> None:
    layer = layer_cases()[index]
    state = layer.state_dict()
    assert all(key.startswith("branches.") for key in state)
    naive = Hadamard(*[copy.deepcopy(branch) for branch in layer_cases()[index].split()])
    assert list(state) == list(naive.state_dict())

    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    fresh = layer_cases()[index]
    x = input_for(layer)
    assert not torch.equal(fresh(x), layer(x))
    fresh.load_state_dict(torch.load(buffer, weights_only=True))
    torch.testing.assert_close(fresh(x), layer(x), rtol=0, atol=0)
    naive.load_state_dict(state)  # either form loads the other's weights
    torch.testing.assert_close(naive(x), layer(x))
    fresh.load_state_dict(naive.state_dict(), assign=True)
    torch.testing.assert_close(fresh(x), layer(x), rtol=0, atol=0)


def test_a_state_dict_that_does_not_fit_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"branches\.2"):
        HadamardLinear(6, 4).load_state_dict(HadamardLinear(6, 4, branches=3).state_dict())
    state = HadamardLinear(6, 4).state_dict()
    del state["branches.1.affine.weight"]
    with pytest.raises(RuntimeError, match=r"affine\.weight"):
        HadamardLinear(6, 4).load_state_dict(state)


def test_deepcopy_is_independent() -> None:
    layer = HadamardLinear(6, 4, norm="layer")
    twin = copy.deepcopy(layer)
    x = input_for(layer)
    torch.testing.assert_close(twin(x), layer(x), rtol=0, atol=0)
    with torch.no_grad():
        twin.affine.weight.add_(1)
    assert not torch.equal(twin(x), layer(x))
    layer.load_state_dict(twin.state_dict())
    torch.testing.assert_close(twin(x), layer(x), rtol=0, atol=0)


@pytest.mark.parametrize("index", [0, 1, 4])
def test_torch_compile_agrees(index: int) -> None:
    layer = layer_cases()[index]
    compiled = torch.compile(copy.deepcopy(layer), fullgraph=True)
    x = input_for(layer)
    torch.testing.assert_close(compiled(x), layer(x))
    compiled(x).sum().backward()
    layer(x).sum().backward()
    for ours, theirs in zip(layer.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_autocast_runs_in_low_precision() -> None:
    layer = HadamardLinear(6, 4)
    x = input_for(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = layer(x)
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), layer(x), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("index", range(5))
def test_vmap_over_an_ensemble_of_parameters(index: int) -> None:
    members = []
    for seed in range(3):
        torch.manual_seed(seed)
        members.append(layer_cases()[index])
    parameters, buffers = torch.func.stack_module_state(members)
    x = input_for(members[0])

    def run(p: dict[str, Tensor], b: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(members[0], (p, b), (x,))

    together = torch.func.vmap(run)(parameters, buffers)
    torch.testing.assert_close(together, torch.stack([m(x) for m in members]))


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("index", [0, 1, 3])
def test_onnx_export_gives_the_same_numbers(index: int, tmp_path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    layer = layer_cases()[index].eval()
    x = input_for(layer)
    path = tmp_path / "layer.onnx"
    torch.onnx.export(layer, (x,), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(out, layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_any_module_can_be_a_branch() -> None:
    deep = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4), nn.Sigmoid())
    layer = Hadamard(deep, nn.Linear(3, 4), nn.Sequential(nn.Linear(3, 4), nn.Tanh()))
    x = torch.randn(5, 3)
    torch.testing.assert_close(
        layer(x), deep(x) * layer.branches[1](x) * torch.tanh(layer.branches[2][0](x))
    )


def test_an_activation_can_be_any_callable() -> None:
    layer = HadamardLinear(3, 4, torch.sin)
    x = torch.randn(5, 3)
    torch.testing.assert_close(layer(x), paper_linear(x, layer.state_dict(), torch.sin))
    # One that looks at a whole branch sees its own branch only.
    softmax = HadamardLinear(3, 4, lambda h: h.softmax(-1))
    expected = paper_linear(x, softmax.state_dict(), lambda h: h.softmax(-1))
    torch.testing.assert_close(softmax(x), expected)
    assert isinstance(HadamardLinear(3, 4, nn.ELU).activation, nn.ELU)


def test_activations_are_named_only_when_they_are_the_standard_ones() -> None:
    for name, kind in ACTIVATIONS.items():
        assert activation_name(kind()) == name
    others = [nn.ELU(0.5), nn.GELU("tanh"), nn.LeakyReLU(0.2), nn.Softplus(2), nn.Hardtanh()]
    assert [activation_name(other) for other in others] == [None] * 5
    assert activation_name(nn.ELU(inplace=True)) == "elu"
    x = torch.randn(5, 3)
    half = HadamardLinear(3, 4, nn.ELU(0.5))
    expected = paper_linear(x, half.state_dict(), lambda h: F.elu(h, 0.5))
    torch.testing.assert_close(half(x), expected)
    in_place = HadamardLinear(3, 4, nn.ReLU(inplace=True))
    torch.testing.assert_close(in_place(x), paper_linear(x, in_place.state_dict(), F.relu))


@pytest.mark.parametrize("name", list(layers.variants()))
@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
@pytest.mark.parametrize(
    ("recipe", "shape"),
    [
        (LinearBranch(6, 8), (64, 6)),
        (Conv2dBranch(6, 8, kernel_size=3, stride=2), (64, 6, 9, 9)),
    ],
    ids=["linear", "conv"],
)
def test_every_variant_has_a_width_a_gradient_and_a_description(
    name: str, activation: str, recipe: LinearBranch, shape: tuple[int, ...]
) -> None:
    layer = layers.build(name, recipe.varied(activation=activation))
    # Many samples: products of products of ReLUs are zero for most, and so are their gradients.
    out = layer(torch.randn(shape))
    assert out.shape[1] == layer.outputs
    out.square().sum().backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name
    assert layers.variants()[name]


def test_variants_compute_what_they_are_called() -> None:
    recipe, x = LinearBranch(6, 8, "relu"), torch.randn(5, 6)
    plain = layers.build("plain", recipe)
    torch.testing.assert_close(plain(x), F.relu(plain.affine(x)))
    crelu = layers.build("crelu", recipe)
    h = crelu.branch.affine(x)
    torch.testing.assert_close(crelu(x), torch.cat([F.relu(h), F.relu(-h)], dim=1))
    normed = layers.build("layernorm", recipe)
    torch.testing.assert_close(normed(x), F.relu(F.layer_norm(normed.affine(x), (8,), eps=1e-6)))
    stacked = layers.build("hadamard2", recipe)
    assert [type(part) for part in stacked] == [HadamardLinear, HadamardLinear]
    torch.testing.assert_close(stacked(x), stacked[1](stacked[0](x)))
    widened = layers.build("widened", recipe)
    assert widened.outputs == 16


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    "recipe",
    [
        LinearBranch(3136, 512),
        LinearBranch(64, 48, norm="layer", bias=False),
        Conv2dBranch(4, 32, kernel_size=8, stride=4),
        Conv2dBranch(32, 64, norm="layer", kernel_size=4),
    ],
)
def test_widened_has_the_hadamard_layers_weights(recipe: LinearBranch) -> None:
    assert count(layers.build("widened", recipe)) == count(layers.build("hadamard", recipe))


def test_matched_width_counts_the_next_layer_when_asked() -> None:
    conv, dense = Conv2dBranch(32, 64, kernel_size=3), LinearBranch(64 * 49, 512)
    width = matched_width(conv, following=dense)
    hadamard = count(layers.build("hadamard", conv)) + count(dense.build())

    def network(channels: int) -> int:
        wide = count(conv.varied(outputs=channels).build())
        return wide + count(dense.varied(inputs=49 * channels).build())

    best = min(range(1, 200), key=lambda channels: abs(network(channels) - hadamard))
    assert width == best
    assert abs(network(width) - hadamard) < 0.01 * hadamard


def test_bad_arguments_name_the_value_and_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"unknown activation 'tahn'; did you mean 'tanh'\?"):
        HadamardLinear(3, 4, "tahn")
    with pytest.raises(TypeError, match="activation must be a name, a callable"):
        HadamardLinear(3, 4, 7)
    with pytest.raises(ValueError, match="at least 2 branches, got 1"):
        HadamardLinear(3, 4, branches=1)
    with pytest.raises(TypeError, match="branches must be an integer, got float"):
        HadamardConv2d(3, 4, 3, branches=2.0)
    with pytest.raises(ValueError, match="outputs must be at least 1, got 0"):
        HadamardLinear(3, 0)
    with pytest.raises(TypeError, match="inputs must be an integer, got str"):
        HadamardLinear("3", 4)
    with pytest.raises(ValueError, match="norm must be one of None, 'layer' here, got 'layer_map'"):
        HadamardLinear(3, 4, norm="layer_map")
    with pytest.raises(ValueError, match=r"PReLU has parameters of its own.*Hadamard\("):
        HadamardLinear(3, 4, nn.PReLU())
    with pytest.raises(ValueError, match="at least 2 branches, got 1"):
        Hadamard(nn.Linear(2, 2))
    shared = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="share the parameter 'weight'"):
        Hadamard(shared, shared)
    with pytest.raises(TypeError, match=r"branch 1 must be an nn\.Module, got function"):
        Hadamard(nn.Linear(2, 2), lambda x: x)
    with pytest.raises(ValueError, match=r"branch 1 returned shape \(3, 1\), branch 0 \(3, 2\)"):
        Hadamard(nn.Linear(2, 2), nn.Linear(2, 1))(torch.zeros(3, 2))
    with pytest.raises(
        ValueError, match="unknown layer variant 'hadamar'; did you mean 'hadamard'"
    ):
        layers.build("hadamar", LinearBranch(2, 2))


@pytest.mark.parametrize("size", [84, 83, 41, 20])
@pytest.mark.parametrize(("channels", "kernel", "stride"), [(4, 8, 4), (32, 4, 2), (1, 9, 3)])
def test_a_convolution_of_blocks_is_the_strided_one(
    channels: int, kernel: int, stride: int, size: int
) -> None:
    images = torch.randn(2, channels, size, size, dtype=torch.float64)
    weight = torch.randn(5, channels, kernel, kernel, dtype=torch.float64)
    blocks = in_blocks(images, stride)
    assert blocks.is_contiguous(memory_format=torch.channels_last)
    found = F.conv2d(blocks, in_blocks(weight, stride))
    torch.testing.assert_close(found, F.conv2d(images, weight, stride=stride))
