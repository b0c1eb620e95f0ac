"""hadamardize: which layers become Hadamard layers, and what they compute."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hadamard.layers import Hadamard, HadamardConv2d, HadamardLinear, build, hadamardize
from hadamard.layers.activations import Function
from hadamard.layers.branch import Conv2dBranch, LinearBranch
from hadamard.layers.norm import BranchNorm
from tests.support.models import mlp, names, orthogonal, refused, two_branches


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


def test_cleanrl_ppo_agent():
    torch.manual_seed(0)
    agent = Agent()
    old = copy.deepcopy(agent)
    conversion = hadamardize(agent, start="paper")
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
def test_modules_that_are_not_hidden_activations(last):
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), last)
    conversion = hadamardize(net)
    assert conversion.skipped == {"2": f"no activation follows it (next: {type(last).__name__})"}


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
    hadamardize(net, start="paper")
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
    hadamardize(net, branches=3, start="paper")
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


def test_init_initializes_the_new_branches():
    net = mlp(4, 6, 1)
    initialized = []

    def init(layer):
        initialized.append(type(layer))
        nn.init.constant_(layer.weight, 0.5)
        nn.init.constant_(layer.bias, 2.0)
        return "ignored"

    weight = net[0].weight.detach().clone()
    hadamardize(net, branches=3, init=init, start="paper")
    assert initialized == [nn.Linear, nn.Linear]
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


def test_new_branches_are_initialized_as_the_module_does_it():
    net = mlp(100, 200, 1)
    assert net[0].bias.any()
    hadamardize(net, start="paper")
    fresh = net[0].split()[1].affine
    assert fresh.weight.abs().max() <= 0.1  # uniform in ±1/sqrt(100)
    assert fresh.weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    assert 0 < fresh.bias.abs().max() <= 0.1


def test_zero_bias_stays_zero_without_orthogonal_weights():
    net = mlp(4, 6, 1)
    nn.init.zeros_(net[0].bias)
    hadamardize(net, start="paper")
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


def test_branches_are_initialized_independently():
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
    assert "Hidden layers of this network: critic.0, critic.2, actor.0, actor.2." in message


def test_where_without_match_is_refused():
    message = refused(Agent(), "did you mean 'critic.0'", where="critik.0")
    assert "Hidden layers of this network: critic.0" in message
    refused(Agent(), "matches no linear or conv", where=["critic.0", "value.*"])
    refused(Agent(), r"but a Sequential; did you mean 'critic\.\*'", where="critic")
    refused(Agent(), "hidden layer. Hidden layers of this network: critic.0", where="*.4")
    refused(Agent(), "matches no hidden layer", where=lambda *_: False)
    refused(Agent(), "matches no hidden layer", where=[])


def test_nothing_inside_a_hadamard_layer_is_a_candidate():
    net = mlp(4, 6, 6, 1)
    hadamardize(net, where="0")
    assert names(hadamardize(net)) == ["2"]
    refused(net, "no hidden layer can be converted")
    refused(net, "but a HadamardLinear", where="0")
    unfused = Hadamard(*(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(2)))
    refused(unfused, "no linear or convolutional layer outside Hadamard layers")


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


def test_convolutions_of_this_library_are_converted() -> None:
    recipe = Conv2dBranch(3, 8, activation="relu", kernel_size=3, stride=2)
    net = nn.Sequential(build("plain", recipe), nn.Flatten(), nn.Linear(8 * 16, 2))
    hadamardize(net)
    assert any(isinstance(module, HadamardConv2d) for module in net.modules())
    assert net(torch.zeros(1, 3, 9, 9)).shape == (1, 2)
