"""The Hadamard layer computes the paper's product in every way of running it."""

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
from hadamard.layers import Hadamard, HadamardConv2d, HadamardLinear, LinearBranch
from hadamard.layers.activations import ACTIVATIONS
from hadamard.layers.fused import FusedHadamard
from tests.support.layers import paper_linear

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


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "rational"])
@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("branches", [2, 3])
def test_linear_equals_the_papers_product(name: str, norm: str | None, branches: int) -> None:
    layer = HadamardLinear(7, 5, name, norm=norm, branches=branches, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(4, 3, 7, dtype=torch.float64)
    expected = paper_linear(x, layer.state_dict(), FUNCTIONS[name])
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("norm", [None, "layer", "layer_map"])
@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_conv_equals_the_papers_product(norm: str | None, padding_mode: str) -> None:
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

    def output_from(*parameters: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(output_from, leaves)


def test_second_derivatives_exist() -> None:
    layer = HadamardLinear(3, 2, dtype=torch.float64)
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, (x,))


def test_branches_are_initialized_independently_and_seeds_repeat() -> None:
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


def test_a_seed_gives_the_same_weights_to_the_fused_and_the_naive_layer() -> None:
    recipe = LinearBranch(6, 4, norm="layer")
    torch.manual_seed(1)
    naive = Hadamard(recipe.build(), recipe.build())
    torch.manual_seed(1)
    fused = layers.build("hadamard", recipe)
    assert isinstance(fused, HadamardLinear)
    for key, value in naive.state_dict().items():
        assert torch.equal(value, fused.state_dict()[key]), key


@pytest.mark.parametrize("index", range(5))
def test_state_dict_has_the_branches_names_and_loads_again(index: int) -> None:
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
    naive.load_state_dict(state)  # both forms load each other's weights
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
def test_vmap_over_an_ensemble_output_from(index: int) -> None:
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


def test_errors_name_the_bad_value_and_the_fix() -> None:
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
