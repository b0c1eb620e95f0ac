"""hadamardize: existing networks become Hadamard networks, or are left exactly as they were."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from hadamard.health import diagnose
from hadamard.layers import Hadamard, HadamardConv2d, HadamardLinear, build, hadamardize
from hadamard.layers.activations import Function
from hadamard.layers.branch import Conv2dBranch, LinearBranch
from hadamard.layers.norm import BranchNorm


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def orthogonal(layer, std=2**0.5, bias_const=0.0):
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    """CleanRL's PPO agent: no forward."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            orthogonal(nn.Linear(4, 64)),
            nn.Tanh(),
            orthogonal(nn.Linear(64, 64)),
            nn.Tanh(),
            orthogonal(nn.Linear(64, 1), std=1.0),
        )
        self.actor = nn.Sequential(
            orthogonal(nn.Linear(4, 64)),
            nn.Tanh(),
            orthogonal(nn.Linear(64, 64)),
            nn.Tanh(),
            orthogonal(nn.Linear(64, 2), std=0.01),
        )

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x):
        distribution = torch.distributions.Categorical(logits=self.actor(x))
        action = distribution.sample()
        return action, distribution.log_prob(action), distribution.entropy(), self.critic(x)


class QNetwork(nn.Module):
    """CleanRL's Atari network."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, 6),
        )

    def forward(self, x):
        return self.network(x / 255.0)


class Attributes(nn.Module):
    """Modules as attributes, called one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm1, self.act1 = nn.Linear(3, 8), nn.LayerNorm(8), nn.ELU()
        self.fc2, self.act2 = nn.Linear(8, 8), nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        h = self.act1(self.norm1(self.fc1(x)))
        return self.head(h + self.act2(self.fc2(h)))


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


class ControlFlow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(3, 8), nn.Tanh()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        if x.sum() > 0:
            x = -x
        return self.body(self.act(self.fc(x)))


def fingerprint(model: nn.Module, *optimizers: torch.optim.Optimizer):
    """Everything a refused conversion must not have touched."""
    return (
        [(name, id(module), module.training) for name, module in model.named_modules()],
        [(name, id(parameter)) for name, parameter in model.named_parameters()],
        {name: tensor.clone() for name, tensor in model.state_dict().items()},
        [[id(p) for group in o.param_groups for p in group["params"]] for o in optimizers],
        [len(o.state) for o in optimizers],
        torch.get_rng_state(),
    )


def assert_same(before, after) -> None:
    for was, now in zip(before, after, strict=True):
        if isinstance(was, dict):
            assert was.keys() == now.keys()
            assert all(torch.equal(was[name], now[name]) for name in was)
        elif isinstance(was, Tensor):
            assert torch.equal(was, now)
        else:
            assert was == now


def refused(model, message, error=ValueError, **arguments):
    """Check that the conversion is refused with this message and without a trace."""
    optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1)), *_initialised(model)])
    before = fingerprint(model, optimizer) if _comparable(model) else None
    with pytest.raises(error, match=message) as refusal:
        hadamardize(model, optimizers=optimizer, **arguments)
    if before is not None:
        assert_same(before, fingerprint(model, optimizer))
    return str(refusal.value)


def _initialised(model):
    return [p for p in model.parameters() if not nn.parameter.is_lazy(p) and p.is_leaf]


def _comparable(model) -> bool:
    return not any(nn.parameter.is_lazy(p) for p in model.parameters())


def two_branches(layer: nn.Module, f, x: Tensor) -> Tensor:
    """The product by hand, from the weights as they are saved."""
    w = layer.state_dict()
    first = F.linear(x, w["branches.0.affine.weight"], w["branches.0.affine.bias"])
    second = F.linear(x, w["branches.1.affine.weight"], w["branches.1.affine.bias"])
    return f(first) * f(second)


# Reading


def test_cleanrl_ppo_agent():
    torch.manual_seed(0)
    agent = Agent()
    old = copy.deepcopy(agent)
    conversion = hadamardize(agent)
    assert [c.name for c in conversion.changed] == ["critic.0", "critic.2", "actor.0", "actor.2"]
    assert conversion.skipped == {
        "critic.4": "no activation follows it",
        "actor.4": "no activation follows it",
    }
    x = torch.randn(5, 4)
    h = two_branches(agent.critic[0], torch.tanh, x)
    h = two_branches(agent.critic[2], torch.tanh, h)
    torch.testing.assert_close(agent.get_value(x), old.critic[4](h))
    assert isinstance(agent.critic[1], nn.Identity)
    assert len(agent.get_action_and_value(x)) == 4
    for name, index in (("critic", 0), ("actor", 2)):
        weights = getattr(agent, name)[index].state_dict()
        assert torch.equal(weights["branches.0.affine.weight"], getattr(old, name)[index].weight)
        fresh = weights["branches.1.affine.weight"]
        side = fresh.T if fresh.shape[0] > fresh.shape[1] else fresh
        torch.testing.assert_close(side @ side.T, 2 * torch.eye(len(side)), atol=1e-4, rtol=0)
        assert not torch.equal(fresh, weights["branches.0.affine.weight"])
        assert not weights["branches.1.affine.bias"].any()


def test_cleanrl_atari_network_last_hidden_layer_only():
    network = QNetwork()
    old = copy.deepcopy(network)
    conversion = hadamardize(network, where="network.7")
    (change,) = conversion.changed
    assert change.before == "Linear(3136, 512) + ReLU"
    assert change.after == "HadamardLinear(3136, 512, relu, 2 branches)"
    assert (change.parameters_before, change.parameters_after) == (1606144, 3212288)
    assert conversion.skipped == {}
    assert conversion.parameters_after - conversion.parameters_before == 1606144
    assert conversion.parameters_after == sum(p.numel() for p in network.parameters())
    x = torch.rand(2, 4, 84, 84) * 255
    h = two_branches(network.network[7], F.relu, old.network[:7](x / 255.0))
    torch.testing.assert_close(network(x), old.network[9](h))


def test_convolutions_become_fused():
    network = QNetwork()
    old = copy.deepcopy(network)
    hadamardize(network, where="network.0")
    layer = network.network[0]
    assert isinstance(layer, HadamardConv2d)
    w = layer.state_dict()
    x = torch.rand(2, 4, 84, 84)
    first, second = (
        F.relu(F.conv2d(x, w[f"branches.{i}.affine.weight"], w[f"branches.{i}.affine.bias"], 4))
        for i in (0, 1)
    )
    torch.testing.assert_close(first, F.relu(old.network[0](x)))
    torch.testing.assert_close(layer(x), first * second)


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
    net(x).sum().backward()  # the in-place ReLU of the original must not get in the way
    assert not net.fc2.activation.inplace


def test_functional_activations_are_refused():
    reasons = refused(Functional(), "no hidden layer can be converted")
    assert "fc1: its activation is a function call" in reasons
    for module in ("nn.LeakyReLU()", "nn.Tanh()", "nn.Sigmoid()"):
        assert f"self.act = {module}" in reasons
    refused(Functional(), "fc2: .*write it as a module", where="fc2")
    refused(Functional(), "fc2: .*write it as a module", where=lambda name, _: name == "fc2")


class SacActor(nn.Module):
    """As CleanRL writes it: ReLU as a function, a squashed log-std beside the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 8), nn.Linear(8, 8)
        self.fc_mean, self.fc_logstd = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = self.fc2(x).relu()
        return self.fc_mean(x), torch.tanh(self.fc_logstd(x))


def test_relu_called_as_a_function_may_stay():
    net, x = SacActor(), torch.randn(50, 3)
    old = copy.deepcopy(net)
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["fc1", "fc2"]
    assert conversion.changed[0].before == "Linear(3, 8) + ReLU"
    assert "no activation follows it" in conversion.skipped["fc_mean"]
    assert "write it as a module (self.act = nn.Tanh())" in conversion.skipped["fc_logstd"]
    h = two_branches(net.fc2, F.relu, two_branches(net.fc1, F.relu, x))
    torch.testing.assert_close(net(x)[0], old.fc_mean(h))
    # The gradient is the product's own too.
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


def test_relu_called_as_a_function_does_not_stay_behind_another_activation():
    refused(SacActor(), "fc1: .*write it as a module", where="fc1", activation="tanh")
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
    assert "write it as a module" in conversion.skipped["2.fc1"]


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
    assert "give each layer a module of its own" in message


def test_shared_activation_takes_its_layers_along_when_one_cannot_be_converted():
    class Net(SharedActivation):
        def forward(self, x):
            h = self.fc1(x)
            return self.head(self.act(self.fc2(self.act(h)))) + h.sum()

    net = Net()
    net.extra = mlp(3, 3, 3)
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["extra.0"]
    assert "used elsewhere too" in conversion.skipped["fc1"]
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


def test_activation_also_used_in_a_sequential_of_its_own_is_seen():
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


def test_control_flow_is_refused_but_its_sequentials_are_read():
    net = ControlFlow()
    message = refused(net, "forward.. of ControlFlow cannot be read", where="*")
    assert "put the layer and its activation into an nn.Sequential" in message
    conversion = hadamardize(net)
    assert [c.name for c in conversion.changed] == ["body.0"]
    assert "ControlFlow cannot be read" in conversion.skipped["fc"]


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
    refused(net, "spare: no forward.. that can be read calls it", where="spare")


def test_reading_leaves_nothing_behind():
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


def test_plain_branch_converts():
    branch = LinearBranch(3, 4, activation="relu", norm="layer").build()
    hadamardize(branch)
    assert isinstance(branch.affine, HadamardLinear)
    assert isinstance(branch.norm, nn.Identity)
    assert isinstance(branch.affine.norm, BranchNorm)


def test_function_modules_are_activations():
    net = nn.Sequential(nn.Linear(3, 4), Function(torch.sin))
    hadamardize(net)
    x = torch.randn(5, 3)
    torch.testing.assert_close(net(x), two_branches(net[0], torch.sin, x))


@pytest.mark.parametrize("last", [nn.Softmax(-1), nn.LogSoftmax(-1), nn.Dropout(), nn.Flatten()])
def test_what_is_no_hidden_activation(last):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), last)
    conversion = hadamardize(net)
    assert conversion.skipped == {"2": f"no activation follows it (next: {type(last).__name__})"}


# Building


@pytest.mark.parametrize(
    ("affine", "norm", "shape"),
    [
        (nn.Linear(4, 6), nn.BatchNorm1d(6), (5, 4)),
        (nn.Linear(4, 6), nn.RMSNorm(6), (5, 4)),
        (nn.Linear(4, 6), nn.LayerNorm(6, bias=False), (5, 4)),
        (nn.Conv1d(4, 6, 3), nn.GroupNorm(2, 6), (5, 4, 9)),
        (nn.Conv2d(4, 6, 3, groups=2), None, (5, 4, 9, 9)),
        (nn.Conv2d(4, 6, 3, padding="same", bias=False), nn.BatchNorm2d(6), (5, 4, 9, 9)),
        (nn.Conv2d(4, 6, 3), nn.LayerNorm([6, 7, 7]), (5, 4, 9, 9)),
        (nn.Conv3d(4, 6, 3), nn.InstanceNorm3d(6, affine=True), (5, 4, 5, 5, 5)),
    ],
)
def test_other_norms_and_convolutions(affine, norm, shape):
    if norm is not None:
        for parameter in norm.parameters():
            nn.init.normal_(parameter)
    parts = [affine, *([] if norm is None else [norm]), nn.SiLU()]
    net = nn.Sequential(*map(copy.deepcopy, parts))
    hadamardize(net)
    assert type(net[0]) is Hadamard
    first, second = net[0].branches
    assert torch.equal(first.affine.weight, affine.weight)
    assert not torch.equal(second.affine.weight, affine.weight)
    if norm is not None:
        assert type(second.norm) is type(norm)
        assert torch.equal(first.norm.weight, norm.weight)
        assert torch.equal(second.norm.weight, torch.ones_like(norm.weight))
    x = torch.randn(shape)
    one = nn.Sequential(*parts)(x)
    other = second.affine(x)
    if norm is not None:
        default = copy.deepcopy(norm)
        default.reset_parameters()
        other = default(other)
    torch.testing.assert_close(net(x), one * F.silu(other))


def test_layer_norm_keeps_its_settings():
    norm = nn.LayerNorm(6, eps=0.1)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    net = nn.Sequential(nn.Linear(4, 6), norm, nn.Tanh())
    old = copy.deepcopy(net)
    hadamardize(net, branches=3)
    layer = net[0]
    assert isinstance(layer, HadamardLinear)
    x = torch.randn(5, 4)
    branches = layer.split()
    torch.testing.assert_close(branches[0](x), old(x))
    torch.testing.assert_close(layer(x), branches[0](x) * branches[1](x) * branches[2](x))
    for branch in branches[1:]:
        assert torch.equal(branch.norm.weight, torch.ones(6))
        assert torch.equal(branch.norm.bias, torch.zeros(6))
    assert layer.norm.eps == 0.1


def test_layer_norm_of_another_precision_is_not_fused():
    net = nn.Sequential(nn.Linear(4, 6, dtype=torch.bfloat16), nn.LayerNorm(6), nn.Tanh())
    hadamardize(net)
    assert type(net[0]) is Hadamard
    assert all(type(branch.norm) is nn.LayerNorm for branch in net[0].branches)


@pytest.mark.parametrize("f", [nn.LeakyReLU(0.3), nn.ELU(0.5, inplace=True), nn.PReLU(init=0.4)])
def test_activation_with_settings_is_kept(f):
    net = nn.Sequential(nn.Linear(4, 6), copy.deepcopy(f))
    hadamardize(net)
    x = torch.randn(5, 4)
    first, second = net[0].branches
    if isinstance(f, nn.PReLU):
        assert first.activation.weight.item() == pytest.approx(0.4)
        assert second.activation.weight.item() == pytest.approx(0.4)
    torch.testing.assert_close(net(x), f(first.affine(x)) * f(second.affine(x)))
    net(x).sum().backward()


@pytest.mark.parametrize("activation", ["tanh", nn.Tanh, nn.Tanh(), torch.tanh])
def test_activation_can_be_replaced(activation):
    net = mlp(4, 6, 6, 1)
    old = copy.deepcopy(net)
    hadamardize(net, activation=activation)
    x = torch.randn(5, 4)
    h = two_branches(net[2], torch.tanh, two_branches(net[0], torch.tanh, x))
    torch.testing.assert_close(net(x), old[4](h))


def test_init_draws_the_new_branches():
    net = mlp(4, 6, 1)
    seen = []

    def init(layer):
        seen.append(type(layer))
        nn.init.constant_(layer.weight, 0.5)
        nn.init.constant_(layer.bias, 2.0)
        return "ignored"

    weight = net[0].weight.detach().clone()
    hadamardize(net, branches=3, init=init)
    assert seen == [nn.Linear, nn.Linear]
    first, *fresh = net[0].split()
    assert torch.equal(first.affine.weight, weight)
    for branch in fresh:
        assert (branch.affine.weight == 0.5).all()
        assert (branch.affine.bias == 2.0).all()


def test_init_that_fails_changes_nothing():
    net = mlp(4, 6, 6, 1)
    with pytest.raises(RuntimeError, match="no"):
        hadamardize(net, init=lambda layer: (_ for _ in ()).throw(RuntimeError("no")))
    assert all(type(m) in (nn.Linear, nn.ReLU) for m in net)


def test_default_draw_is_the_modules_own():
    net = mlp(100, 200, 1)
    assert net[0].bias.any()
    hadamardize(net)
    fresh = net[0].split()[1].affine
    assert fresh.weight.abs().max() <= 0.1  # uniform in ±1/sqrt(100)
    assert fresh.weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    assert 0 < fresh.bias.abs().max() <= 0.1


def test_zero_bias_stays_zero_without_orthogonal_weights():
    net = mlp(4, 6, 1)
    nn.init.zeros_(net[0].bias)
    hadamardize(net)
    assert not net[0].split()[1].affine.bias.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layer", [nn.Linear(8, 20), nn.Linear(20, 8), nn.Conv2d(3, 8, 3)])
def test_orthogonal_gain_is_kept(layer, dtype):
    nn.init.orthogonal_(layer.weight, 1.7)
    net = nn.Sequential(layer, nn.Tanh()).to(dtype)
    hadamardize(net)
    fresh = net[0].split()[1].affine.weight.detach().flatten(1).double()
    side = fresh.T if fresh.shape[0] > fresh.shape[1] else fresh
    tolerance = 0.05 if dtype is torch.bfloat16 else 1e-4
    eye = 1.7**2 * torch.eye(len(side), dtype=torch.float64)
    torch.testing.assert_close(side @ side.T, eye, atol=tolerance, rtol=0)
    assert net[0].affine.weight.dtype is dtype


def test_branches_are_drawn_independently():
    net = mlp(4, 6, 6, 1)
    hadamardize(net, branches=3)
    weights = [b.affine.weight for i in (0, 2) for b in net[i].split()[1:]]
    assert len({w.sum().item() for w in weights}) == 4


def test_identical_layers_stay_identical():
    net = nn.ModuleDict({"online": mlp(4, 6, 6, 1), "other": mlp(4, 6, 6, 1)})
    net["target"] = copy.deepcopy(net["online"]).requires_grad_(False)
    hadamardize(net, branches=3)
    x = torch.randn(5, 4)
    assert torch.equal(net["online"](x), net["target"](x))
    online, target = net["online"].state_dict(), net["target"].state_dict()
    assert online.keys() == target.keys()
    assert all(torch.equal(online[key], target[key]) for key in online)
    assert all(p.requires_grad for p in net["online"].parameters())
    assert not any(p.requires_grad for p in net["target"].parameters())
    assert not set(map(id, net["online"].parameters())) & set(map(id, net["target"].parameters()))
    assert not torch.equal(net["online"](x), net["other"](x))


def test_unfused_identical_layers_stay_identical():
    online = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.PReLU())
    net = nn.ModuleList([online, copy.deepcopy(online)])
    hadamardize(net)
    first, second = net[0].state_dict(), net[1].state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_mode_dtype_and_frozen_parameters_are_kept():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), *mlp(6, 6, 1)).double()
    net[0].bias.requires_grad_(False)
    net[3].weight.requires_grad_(False)
    net[1].eval()
    hadamardize(net)
    assert all(p.dtype is torch.float64 for p in net.parameters())
    for branch in net[0].branches:
        assert branch.training
        assert branch.affine.weight.requires_grad
        assert not branch.affine.bias.requires_grad
        assert not branch.norm.training
    assert not net[3].affine.weight.requires_grad
    assert net[3].affine.bias.requires_grad
    frozen = mlp(4, 6, 1).eval()
    hadamardize(frozen, activation=nn.PReLU)
    assert not any(module.training for module in frozen.modules())


def test_new_activation_moves_to_the_layers_dtype():
    net = mlp(4, 6, 1).double()
    hadamardize(net, activation=nn.PReLU())
    assert all(p.dtype is torch.float64 for p in net.parameters())
    first, second = net[0].branches
    assert first.activation.weight is not second.activation.weight


def test_module_registered_twice_is_replaced_everywhere():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
            self.first = self.encoder[0]
            self.head = nn.Linear(4, 1)

        def forward(self, x):
            return self.head(self.encoder(x))

    net = Net()
    hadamardize(net, where="first")
    assert isinstance(net.first, HadamardLinear)
    assert net.encoder[0] is net.first


def test_state_dict_round_trip():
    net, other = mlp(4, 6, 1), mlp(4, 6, 1)
    hadamardize(net)
    hadamardize(other)
    other.load_state_dict(net.state_dict())
    x = torch.randn(5, 4)
    assert torch.equal(net(x), other(x))


# Choosing


def names(conversion):
    return [c.name for c in conversion.changed]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("critic.*", ["critic.0", "critic.2"]),
        (["critic.0", "actor.[0-2]"], ["critic.0", "actor.0", "actor.2"]),
        ("*.0", ["critic.0", "actor.0"]),
        (lambda name, module: module.in_features == 64, ["critic.2", "actor.2"]),
    ],
)
def test_where(where, expected):
    agent = Agent()
    assert names(hadamardize(agent, where=where)) == expected


def test_output_layers_matched_by_pattern_are_reported():
    assert list(hadamardize(Agent(), where="critic.*").skipped) == ["critic.4"]
    assert list(hadamardize(Agent(), where=lambda *_: True).skipped) == ["critic.4", "actor.4"]
    assert hadamardize(Agent(), where="critic.0").skipped == {}


def test_output_layer_by_name_is_refused():
    message = refused(Agent(), "critic.4: no activation follows it", where=["critic.4", "actor.0"])
    assert "Hidden layers here: critic.0, critic.2, actor.0, actor.2." in message


def test_where_without_match_is_refused():
    message = refused(Agent(), "did you mean 'critic.0'", where="critik.0")
    assert "Hidden layers here: critic.0" in message
    refused(Agent(), "matches no linear or conv", where=["critic.0", "value.*"])
    refused(Agent(), r"but a Sequential; did you mean 'critic\.\*'", where="critic")
    refused(Agent(), "chooses no hidden layer. Hidden layers here: critic.0", where="*.4")
    refused(Agent(), "chooses no hidden layer", where=lambda *_: False)
    refused(Agent(), "chooses no hidden layer", where=[])


def test_nothing_inside_a_hadamard_layer_is_a_candidate():
    net = mlp(4, 6, 6, 1)
    hadamardize(net, where="0")
    assert names(hadamardize(net)) == ["2"]
    refused(net, "no hidden layer can be converted")
    refused(net, "but a HadamardLinear", where="0")
    unfused = Hadamard(*(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(2)))
    refused(unfused, "no linear or convolutional layer outside Hadamard layers")


def test_attention_is_left_alone():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)
            self.mlp = mlp(4, 4, 4)

        def forward(self, x):
            return self.mlp(self.attention(x, x, x)[0])

    assert names(hadamardize(Net(), where="*")) == ["mlp.0"]


# Refusing


def test_bare_layer_is_refused():
    refused(nn.Linear(3, 4), r"bare Linear.*nn.Sequential\(layer.*HadamardLinear")


def test_subclass_is_refused():
    class Noisy(nn.Linear):
        pass

    net = nn.Sequential(Noisy(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    refused(net, r"0: it is a Noisy.*Hadamard\(branch, branch\)", where="*")
    assert "Noisy" in hadamardize(net).skipped["0"]


def test_lazy_layers_are_refused_until_initialised():
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
    "parametrise",
    [
        parametrizations.spectral_norm,
        parametrizations.weight_norm,
        lambda layer: parametrize.register_parametrization(layer, "bias", nn.Identity()),
        nn.utils.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    ],
)
def test_parametrised_layers_are_refused(parametrise):
    net = mlp(4, 6, 6, 1)
    parametrise(net[0])
    refused(net, "0: it is parametrised; convert first", where="0")
    assert names(hadamardize(net)) == ["2"]


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward"])
def test_hooks_are_refused(index, kind):
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh())
    handle = getattr(net[index], f"register_{kind}_hook")(lambda *_: None)
    refused(net, "has hooks, which would be lost", where="0")
    handle.remove()
    hadamardize(net, where="0")


def test_hooks_on_containers_are_fine():
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


def test_layer_kept_in_a_plain_attribute_is_refused():
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


def test_activation_also_owned_by_an_unreadable_module_is_refused():
    net = ControlFlow()
    net.body[1] = net.act
    refused(net, "its Tanh may be used elsewhere too", where="body.0")


def test_output_used_before_the_activation_is_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(3, 3), nn.Tanh()

        def forward(self, x):
            h = self.fc(x)
            return h + self.act(h)

    refused(Net(), "fc: its output is used elsewhere too", where="fc")


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


@pytest.mark.parametrize("optimizers", [3, [3], "adam"])
def test_wrong_optimizers(optimizers):
    with pytest.raises(TypeError, match="optimizers must be torch optimizers"):
        hadamardize(mlp(3, 4, 1), optimizers=optimizers)


def test_wrong_model():
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got str"):
        hadamardize("policy")  # type: ignore[arg-type]


# Optimizers


def step(net, optimizer, x):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()


def test_optimizer_holds_the_new_parameters_in_order():
    net = mlp(4, 6, 6, 1)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    x = torch.randn(5, 4)
    step(net, optimizer, x)
    kept, dropped = net[4].weight, net[0].weight
    conversion = hadamardize(net, optimizers=optimizer)
    assert conversion.optimizers_updated == 1
    assert "1 optimizer updated" in str(conversion)
    held = optimizer.param_groups[0]["params"]
    assert [id(p) for p in held] == [id(p) for p in net.parameters()]
    assert kept in optimizer.state
    assert dropped not in optimizer.state
    assert len(optimizer.state) == 2
    before = net[0].affine.weight.detach().clone()
    step(net, optimizer, x)
    assert not torch.equal(net[0].affine.weight[:6], before[:6])
    assert not torch.equal(net[0].affine.weight[6:], before[6:])
    optimizer.load_state_dict(optimizer.state_dict())


def test_optimizer_groups_and_names_are_kept():
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
    named = list(net.named_parameters())
    weights = {"params": [item for item in named if "weight" in item[0]], "weight_decay": 0.1}
    biases = {"params": [item for item in named if "bias" in item[0]], "weight_decay": 0.0}
    one = torch.optim.AdamW([weights, biases])
    other = torch.optim.SGD(net[3].parameters(), 0.1)
    conversion = hadamardize(net, activation=nn.PReLU, optimizers=[one, other])
    assert conversion.optimizers_updated == 1
    now = dict(net.named_parameters())
    for group, kind in zip(one.param_groups, ("weight", "bias"), strict=True):
        expected = [name for name in now if kind in name]
        assert sorted(group["param_names"]) == sorted(expected)
        assert [id(now[n]) for n in group["param_names"]] == [id(p) for p in group["params"]]


def test_partial_optimizer_stays_partial():
    net = mlp(4, 6, 1)
    optimizer = torch.optim.SGD([net[0].weight], 0.1)
    hadamardize(net, optimizers=optimizer)
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [id(net[0].affine.weight)]


def test_optimizers_kept_by_modules_are_found():
    net = Attributes()
    net.optimizer = torch.optim.Adam(net.parameters())
    conversion = hadamardize(net, optimizers=[net.optimizer])
    assert conversion.optimizers_updated == 1
    held = {id(p) for p in net.optimizer.param_groups[0]["params"]}
    assert held == set(map(id, net.parameters()))


# The report


def test_report():
    text = str(hadamardize(Agent(), where="critic.*"))
    lines = text.splitlines()
    assert lines[0].split() == ["layer", "before", "after", "parameters"]
    assert "Linear(4, 64) + Tanh" in lines[1]
    assert "HadamardLinear(4, 64, tanh, 2 branches)" in lines[1]
    assert lines[1].endswith("320 -> 640")
    column = lines[0].index("parameters")
    assert lines[1][column:] == "320 -> 640"
    assert lines[2][column:] == "4,160 -> 8,320"
    # (320 + 4,160) more on 4,545 + 4,610.
    assert lines[3].startswith("whole network")
    assert lines[3][column:] == "9,155 -> 13,635 (+48.9%)"
    assert "left as it was: critic.4: no activation follows it" in lines
    assert "build it after converting" in lines[-1]


# Stable-Baselines3


def policy_weights(policy, name):
    return policy.get_submodule(name).split()[1].affine.weight


def test_stable_baselines3_ppo():
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0)
    with pytest.raises(TypeError, match=r"got PPO; pass its \.policy"):
        hadamardize(model)
    conversion = hadamardize(model.policy)
    assert names(conversion) == [
        f"mlp_extractor.{net}_net.{i}" for net in ("policy", "value") for i in (0, 2)
    ]
    assert set(conversion.skipped) == {"action_net", "value_net"}
    assert conversion.optimizers_updated == 1
    before = [policy_weights(model.policy, name) for name in names(conversion)]
    side = before[1]
    torch.testing.assert_close(side @ side.T, 2 * torch.eye(64), atol=1e-4, rtol=0)
    model.learn(128)
    after = [policy_weights(model.policy, name) for name in names(conversion)]
    assert not any(map(torch.equal, before, after))


def test_stable_baselines3_dqn(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    settings = {"buffer_size": 500, "learning_starts": 50, "target_update_interval": 10_000}
    model = sb3.DQN("MlpPolicy", "CartPole-v1", seed=0, **settings)
    conversion = hadamardize(model.policy)
    assert names(conversion) == [
        f"{net}.q_net.{i}" for net in ("q_net", "q_net_target") for i in (0, 2)
    ]
    assert conversion.optimizers_updated == 1
    online, target = model.policy.q_net, model.policy.q_net_target
    start = copy.deepcopy(online.state_dict())
    assert all(torch.equal(start[key], value) for key, value in target.state_dict().items())
    model.learn(200)
    for i in (0, 2):
        key = f"q_net.{i}.branches.1.affine.weight"
        assert not torch.equal(start[key], online.state_dict()[key])
        assert torch.equal(start[key], target.state_dict()[key])
    # Saved weights load into a model converted in the same way.
    model.save(tmp_path / "dqn")
    other = sb3.DQN("MlpPolicy", "CartPole-v1", seed=1, **settings)
    hadamardize(other.policy)
    other.set_parameters(str(tmp_path / "dqn"))
    x = torch.randn(5, 4)
    assert torch.equal(online(x), other.policy.q_net(x))


def test_stable_baselines3_sac():
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.SAC(
        "MlpPolicy",
        "Pendulum-v1",
        buffer_size=500,
        learning_starts=50,
        batch_size=32,
        policy_kwargs={"net_arch": [32, 32]},
        seed=0,
    )
    conversion = hadamardize(model.policy)
    assert names(conversion) == [
        *("actor.latent_pi.0", "actor.latent_pi.2"),
        *(f"{c}.qf{k}.{i}" for c in ("critic", "critic_target") for k in (0, 1) for i in (0, 2)),
    ]
    assert conversion.optimizers_updated == 2
    start = copy.deepcopy(model.policy.state_dict())
    for key, value in model.policy.critic.state_dict().items():
        assert torch.equal(value, start[f"critic_target.{key}"])
    assert not torch.equal(
        start["critic.qf0.0.branches.1.affine.weight"],
        start["critic.qf1.0.branches.1.affine.weight"],
    )
    model.learn(100)
    end = model.policy.state_dict()
    moved = [key for key in start if "branches.1" in key and not torch.equal(start[key], end[key])]
    assert len(moved) == sum("branches.1" in key for key in start)


def test_stable_baselines3_nature_cnn():
    pytest.importorskip("stable_baselines3")
    import gymnasium
    import numpy as np
    from stable_baselines3.common.torch_layers import NatureCNN

    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    extractor = NatureCNN(space, features_dim=32)
    old = copy.deepcopy(extractor)
    conversion = hadamardize(extractor, where="linear.0")
    assert names(conversion) == ["linear.0"]
    x = torch.rand(2, 4, 84, 84)
    expected = two_branches(extractor.linear[0], F.relu, old.cnn(x))
    torch.testing.assert_close(extractor(x), expected)
    assert names(hadamardize(extractor)) == ["cnn.0", "cnn.2", "cnn.4"]


def test_stable_baselines3_shared_extractor_is_known_by_every_name():
    pytest.importorskip("stable_baselines3")
    import gymnasium
    import numpy as np
    from stable_baselines3.common.policies import ActorCriticCnnPolicy

    images = gymnasium.spaces.Box(0, 255, (4, 36, 36), np.uint8)
    policy = ActorCriticCnnPolicy(images, gymnasium.spaces.Discrete(2), lambda _: 1e-3)
    hadamardize(policy, where="pi_features_extractor.linear.0")
    assert isinstance(policy.vf_features_extractor.linear[0], HadamardLinear)
    held = [id(p) for p in policy.optimizer.param_groups[0]["params"]]
    assert sorted(held) == sorted(map(id, policy.parameters()))


def test_convolutions_of_this_library_are_converted() -> None:
    recipe = Conv2dBranch(3, 8, activation="relu", kernel_size=3, stride=2)
    net = nn.Sequential(build("plain", recipe), nn.Flatten(), nn.Linear(8 * 16, 2))
    hadamardize(net)
    assert any(isinstance(module, HadamardConv2d) for module in net.modules())
    assert net(torch.zeros(1, 3, 9, 9)).shape == (1, 2)
