"""hadamardize finds which layers, norms and activations of a network belong together."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from hadamard.health import diagnose
from hadamard.layers import HadamardLinear, hadamardize
from tests.support.models import Attributes, ControlFlow, mlp, names, refused, two_branches


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 8), nn.Linear(8, 8)
        self.fc3, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = torch.tanh(self.fc2(F.leaky_relu(self.fc1(x))))
        return self.head(self.fc3(x).sigmoid())


class SharedActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.head = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.act = nn.Tanh()

    def forward(self, x):
        return self.head(self.act(self.fc2(self.act(self.fc1(x)))))


def test_attribute_style():
    net = Attributes()
    old = copy.deepcopy(net)
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["fc1", "fc2"]
    assert conversion.changed[0].before == "Linear(3, 8) + LayerNorm + ELU"
    assert conversion.changed[0].after == "HadamardLinear(3, 8, layer norm, elu, 2 branches)"
    assert list(conversion.skipped) == ["head"]
    assert all(isinstance(m, nn.Identity) for m in (net.norm1, net.act1, net.act2))
    x = torch.randn(5, 3)
    w = net.fc1.state_dict()
    factors = [
        F.elu(
            F.layer_norm(
                F.linear(x, w[f"branches.{i}.affine.weight"], w[f"branches.{i}.affine.bias"]),
                (8,),
                w[f"branches.{i}.norm.weight"],
                w[f"branches.{i}.norm.bias"],
            )
        )
        for i in (0, 1)
    ]
    torch.testing.assert_close(factors[0], old.act1(old.norm1(old.fc1(x))))
    h = factors[0] * factors[1]
    expected = old.head(h + two_branches(net.fc2, F.relu, h))
    torch.testing.assert_close(net(x), expected)
    net(x).sum().backward()  # the original's in-place ReLU must not break the gradient
    assert not net.fc2.activation.inplace


def test_functional_activations_are_refused():
    reasons = refused(Functional(), "no hidden layer can be converted")
    assert "fc1: its activation is a function call" in reasons
    for module in ("nn.LeakyReLU()", "nn.Tanh()", "nn.Sigmoid()"):
        assert f"self.act = {module}" in reasons
    refused(Functional(), "fc2: .*make it a module", where="fc2")
    refused(Functional(), "fc2: .*make it a module", where=lambda name, _: name == "fc2")


class SacActor(nn.Module):
    """CleanRL's actor: ReLU as a function, and two outputs, one of them with tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 8), nn.Linear(8, 8)
        self.fc_mean, self.fc_logstd = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = self.fc2(x).relu()
        return self.fc_mean(x), torch.tanh(self.fc_logstd(x))


def test_relu_called_as_a_function_stays_in_place():
    net, x = SacActor(), torch.randn(50, 3)
    old = copy.deepcopy(net)
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["fc1", "fc2"]
    assert conversion.changed[0].before == "Linear(3, 8) + ReLU"
    assert "no activation follows it" in conversion.skipped["fc_mean"]
    assert "make it a module (self.act = nn.Tanh())" in conversion.skipped["fc_logstd"]
    h = two_branches(net.fc2, F.relu, two_branches(net.fc1, F.relu, x))
    torch.testing.assert_close(net(x)[0], old.fc_mean(h))
    # The gradient is correct too.
    torch.testing.assert_close(
        torch.autograd.grad(net(x)[0].sum(), net.fc1.affine.weight),
        torch.autograd.grad(old.fc_mean(net.fc2(net.fc1(x))).sum(), net.fc1.affine.weight),
    )
    report = diagnose(net, x)
    assert [(layer.name, layer.readers) for layer in report] == [
        ("fc1", ("fc2.affine",)),
        ("fc2", ("fc_mean", "fc_logstd")),
        ("fc_logstd:tanh", ()),
    ]


def test_relu_called_as_a_function_forbids_another_activation():
    refused(SacActor(), "fc1: .*make it a module", where="fc1", activation="tanh")
    hadamardize(SacActor(), where="fc1", activation="relu")


def test_an_encoder_called_twice_with_a_functional_relu():
    class Twice(SacActor):
        def forward(self, x):
            return self.fc_mean(F.relu(self.fc1(x)) - F.relu(self.fc1(-x)))

    assert [c.name for c in hadamardize(Twice(), where="fc1").changed] == ["fc1"]


def test_functional_layers_are_reported_when_others_convert():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), Functional())
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["0"]
    assert "make it a module" in conversion.skipped["2.fc1"]


def test_shared_activation_is_replaced_when_every_call_is():
    net = SharedActivation()
    old = copy.deepcopy(net)
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["fc1", "fc2"]
    assert isinstance(net.act, nn.Identity)
    x = torch.randn(5, 3)
    h = two_branches(net.fc2, torch.tanh, two_branches(net.fc1, torch.tanh, x))
    torch.testing.assert_close(net(x), old.head(h))


def test_shared_activation_is_refused_when_a_call_remains():
    message = refused(SharedActivation(), "Tanh 'act' is also called", where="fc1")
    assert "give each layer its own" in message


def test_layers_with_a_shared_activation_are_skipped_if_one_cannot_be_converted():
    class Net(SharedActivation):
        def forward(self, x):
            h = self.fc1(x)
            return self.head(self.act(self.fc2(self.act(h)))) + h.sum()

    net = Net()
    net.extra = mlp(3, 3, 3)
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["extra.0"]
    assert "also used elsewhere" in conversion.skipped["fc1"]
    assert "'act' is also called" in conversion.skipped["fc2"]


def test_shared_activation_in_a_sequential():
    act = nn.ReLU()
    net = nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 4), act, nn.Linear(4, 1))
    refused(net, "ReLU '1' is also called", where="0")
    assert len(hadamardize(net).changed) == 2
    assert isinstance(net[1], nn.Identity)
    assert isinstance(net[3], nn.Identity)


def test_shared_norm_is_copied_for_each_layer():
    norm = nn.LayerNorm(4)
    act = nn.Tanh()
    net = nn.Sequential(nn.Linear(4, 4), norm, act, nn.Linear(4, 4), norm, act)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    hadamardize(net, optimizers=optimizer)
    assert {id(p) for p in optimizer.param_groups[0]["params"]} == set(map(id, net.parameters()))
    assert net[0].norm.weight is not net[3].norm.weight


def test_nested_sequentials_are_one_chain():
    net = nn.Sequential(
        nn.Sequential(nn.Linear(3, 4)),
        nn.Identity(),
        nn.Sequential(nn.LayerNorm(4), nn.Sequential(nn.Tanh())),
        nn.Linear(4, 1),
    )
    assert [c.before for c in hadamardize(net).changed] == ["Linear(3, 4) + LayerNorm + Tanh"]
    assert isinstance(net[0][0], HadamardLinear)
    assert isinstance(net[2][1][0], nn.Identity)
    assert net(torch.zeros(2, 3)).shape == (2, 1)


def test_activation_also_used_in_another_sequential_is_refused():
    net = ControlFlow()
    net.post = nn.Sequential(net.body[1])
    refused(net, "Tanh 'body.1' is also called", where="body.0")


def test_sequential_used_as_a_list():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.act = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), nn.Tanh()

        def forward(self, x):
            for layer in self.layers:
                x = self.act(layer(x))
            return x

    net = Net()
    assert names(hadamardize(net)) == ["layers.0", "layers.1"]


def test_activation_outside_the_sequential_that_ends_in_the_layer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.act = nn.Sequential(nn.Linear(3, 4)), nn.Tanh()

        def forward(self, x):
            return self.act(self.body(x))

    net = Net()
    hadamardize(net, where="body.0")
    assert isinstance(net.act, nn.Identity)


def test_sequential_used_twice_is_converted_once():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh())

        def forward(self, x, y):
            return self.encoder(x) - self.encoder(y)

    net = Siamese()
    hadamardize(net)
    x, y = torch.randn(2, 5, 3)
    encoder = net.encoder[0]
    expected = two_branches(encoder, torch.tanh, x) - two_branches(encoder, torch.tanh, y)
    torch.testing.assert_close(net(x, y), expected)


def test_layer_with_and_without_activation_is_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(3, 3), nn.Tanh()

        def forward(self, x):
            return self.fc(self.act(self.fc(x)))

    refused(Net(), "fc: it is called in several places", where="fc")


def test_layer_returned_and_activated_by_a_function_is_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return self.fc(torch.tanh(self.fc(x))), self.fc(-x)

    refused(Net(), "fc: its activation is a function call", where="*")


def test_module_list_loop():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
            self.acts = nn.ModuleDict({"a": nn.Tanh(), "b": nn.Tanh()})

        def forward(self, x):
            for layer, key in zip(self.layers, ("a", "b"), strict=True):
                x = self.acts[key](layer(x))
            return x

    net = Net()
    hadamardize(net, where="layers.1")
    assert isinstance(net.acts["b"], nn.Identity)
    assert isinstance(net.acts["a"], nn.Tanh)


def test_control_flow_is_refused_but_sequentials_inside_are_traced():
    net = ControlFlow()
    message = refused(net, "forward.. of ControlFlow cannot be traced", where="*")
    assert "put the layer and its activation into an nn.Sequential" in message
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["body.0"]
    assert "ControlFlow cannot be traced" in conversion.skipped["fc"]


def test_no_forward_is_refused():
    class Pieces(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(3, 3), nn.Tanh()

    refused(Pieces(), "Pieces defines no forward")
    refused(nn.ModuleList([nn.Linear(3, 3), nn.Tanh()]), "ModuleList defines no forward")


def test_layer_that_is_never_called_is_refused():
    net = Attributes()
    net.spare = nn.Linear(3, 3)
    refused(net, "spare: no forward.. that can be traced calls it", where="spare")


def test_tracing_does_not_change_the_network():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(3, 3), nn.Tanh()
            self.calls, self.last = 0, None
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            self.count.add_(1)
            self.last = self.fc(x) + torch.randn(3)
            return F.relu(self.last)

    net = Noisy()
    refused(net, "no hidden layer")
    assert (net.calls, net.last, net.count.item()) == (0, None, 0)
