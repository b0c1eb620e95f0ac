"""hadamardize refuses what it cannot convert, and then does not change the network."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from hadamard.layers import hadamardize
from tests.support.models import Attributes, ControlFlow, mlp, names, refused


def test_attention_is_not_converted():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)
            self.mlp = mlp(4, 4, 4)

        def forward(self, x):
            return self.mlp(self.attention(x, x, x)[0])

    assert names(hadamardize(Net(), where="*")) == ["mlp.0"]


def test_bare_layer_is_refused():
    refused(nn.Linear(3, 4), r"bare Linear.*nn.Sequential\(layer.*HadamardLinear")


def test_subclass_is_refused():
    class Noisy(nn.Linear):
        pass

    net = nn.Sequential(Noisy(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    refused(net, r"0: it is a Noisy.*Hadamard\(branch, branch\)", where="*")
    assert "Noisy" in hadamardize(net).skipped["0"]


def test_lazy_layers_are_refused_until_initialized():
    net = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 1))
    refused(net, "0: it has no weights yet; run a forward pass first")
    net(torch.zeros(2, 3))
    assert names(hadamardize(net)) == ["0"]
    refused(nn.Sequential(nn.Linear(3, 4), nn.LazyBatchNorm1d(), nn.Tanh()), "has no weights yet")
    with torch.device("meta"):
        meta = mlp(3, 4, 1)
    with pytest.raises(ValueError, match="has no weights yet"):
        hadamardize(meta)


@pytest.mark.parametrize(
    "parametrize",
    [
        parametrizations.spectral_norm,
        parametrizations.weight_norm,
        lambda layer: parametrize.register_parametrization(layer, "bias", nn.Identity()),
        nn.utils.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    ],
)
def test_parametrized_layers_are_refused(parametrize):
    net = mlp(4, 6, 6, 1)
    parametrize(net[0])
    refused(net, "0: it is parametrized; convert first", where="0")
    assert names(hadamardize(net)) == ["2"]


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward"])
def test_hooks_are_refused(index, kind):
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh())
    handle = getattr(net[index], f"register_{kind}_hook")(lambda *_: None)
    refused(net, "has hooks, which would be lost", where="0")
    handle.remove()
    hadamardize(net, where="0")


def test_hooks_on_containers_are_kept():
    net = mlp(3, 4, 1)
    shapes = []
    net.register_forward_hook(lambda _m, _x, y: shapes.append(y.shape))
    outer = nn.Sequential(net)
    hadamardize(outer)
    assert shapes == []
    outer(torch.zeros(2, 3))
    assert shapes == [(2, 1)]


def test_replaced_forward_is_refused():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    net[0].forward = lambda x: x
    refused(net, "0: it has hooks", where="0")
    net = Attributes()
    net.forward = lambda x: x
    refused(net, "it was replaced on the instance", where="fc1")


def test_tied_weights_are_refused():
    net = mlp(4, 4, 4, 1)
    net[2].weight = net[0].weight
    refused(net, "0: it shares weights with '2'; untie", where="0")


def test_layer_in_a_plain_attribute_is_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(3, 3), nn.Tanh()
            self.order = [self.fc, self.act]

        def forward(self, x):
            for module in self.order:
                x = module(x)
            return x

    refused(Net(), "plain attribute Net.order", where="fc")


def test_activation_also_owned_by_an_untraceable_module_is_refused():
    net = ControlFlow()
    net.body[1] = net.act
    refused(net, "its Tanh may also be used elsewhere", where="body.0")


def test_output_used_before_the_activation_is_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(3, 3), nn.Tanh()

        def forward(self, x):
            h = self.fc(x)
            return h + self.act(h)

    refused(Net(), "fc: its output is also used elsewhere", where="fc")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"branches": 1}, ValueError, "at least 2 branches"),
        ({"branches": 2.0}, TypeError, "branches must be an integer"),
        ({"branches": True}, TypeError, "branches must be an integer"),
        ({"activation": "rellu"}, ValueError, "did you mean 'relu'"),
        ({"activation": 3}, TypeError, "activation must be"),
        ({"init": "orthogonal"}, TypeError, "init must be callable"),
        ({"where": 3}, TypeError, "where must be a name"),
        ({"where": nn.Linear}, TypeError, "where must be a name"),
        ({"where": nn.Sequential()}, TypeError, "where must be a name"),
        ({"where": [0]}, TypeError, "names or patterns, got int"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    refused(mlp(3, 4, 1), message, error, **arguments)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_modules_are_refused():
    x = torch.zeros(2, 3)
    for compiled in (torch.jit.script(mlp(3, 3, 3)), torch.jit.trace(mlp(3, 3, 3), x)):
        with pytest.raises(TypeError, match="the model is a TorchScript module.*: convert the net"):
            hadamardize(compiled)
        mixed = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), compiled)
        refused(mixed, r"^'2' is a TorchScript module.*before torch\.jit\.script", TypeError)


def test_complex_weights_are_refused():
    net = nn.Sequential(nn.Linear(3, 4, dtype=torch.complex64), nn.Tanh(), *mlp(4, 4, 2))
    refused(net, r"0: it has complex weights; use a real layer.*view_as_real", where="0")
    conversion = hadamardize(net)
    assert names(conversion) == ["2"]
    assert "complex weights" in conversion.skipped["0"]


def test_wrong_model():
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        hadamardize("policy")  # type: ignore[arg-type]
