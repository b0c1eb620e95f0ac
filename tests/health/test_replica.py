"""A diagnosis runs a replica of the network, wherever the network's modules are used from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadamard import diagnose
from hadamard.health.replica import Replica


class Agent(nn.Module):
    """Modules in containers, plain attributes, bound methods and functions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 8)
        self.act = nn.Tanh()
        self.order = {"all": [(self.first, self.act), (self.second, self.act)]}
        self.apply_act = functools.partial(self.activated, scale=1.0)
        self.noise = nn.Dropout(0.9)
        self.disturb = lambda h: self.noise(h)
        self.seen: list[Tensor] = []
        self.calls = 0

    def activated(self, act: nn.Module, h: Tensor, scale: float) -> Tensor:
        self.calls += 1
        out: Tensor = act(h * scale)
        return out

    def forward(self, x: Tensor) -> Tensor:
        for layer, act in self.order["all"]:
            x = self.disturb(self.apply_act(act, layer(x)))
        return x


class Owner:
    """An object with a network."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def value(self, x: Tensor) -> Tensor:
        out: Tensor = self.agent(x)
        return out


class Outer:
    """An object with an object with a network."""

    def __init__(self, agent: Agent) -> None:
        self.owner = Owner(agent)

    def value(self, x: Tensor) -> Tensor:
        return self.owner.value(x)


AGENT = Agent()


def called_through_a_global(x: Tensor) -> Tensor:
    out: Tensor = AGENT(x)
    return out


WAYS: dict[str, Callable[[Agent], Any]] = {
    "module": lambda agent: agent,
    "method": lambda agent: agent.forward,
    "partial": lambda agent: functools.partial(Agent.forward, agent),
    "closure": lambda agent: lambda x: agent(x),
    "default": lambda agent: lambda x, agent=agent: agent(x),
    "keyword default": lambda agent: lambda x, *, agent=agent: agent(x),
    "global": lambda agent: called_through_a_global,
    "global of a global": lambda agent: lambda x: called_through_a_global(x),
    "object": lambda agent: Owner(agent).value,
    "object in an object": lambda agent: Outer(agent).value,
    "module around it": lambda agent: nn.Sequential(nn.Sequential(agent)),
    "compiled": lambda agent: torch.compile(agent.forward),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_replica_runs_however_the_network_is_called(way: str) -> None:
    AGENT.train()
    AGENT.calls = 0
    x = torch.randn(40, 6)
    forward = WAYS[way](AGENT)
    report = diagnose(AGENT, x, forward=forward)
    assert [layer.name for layer in report] == ["act", "act (call 2)"]
    assert [layer.readers for layer in report] == [("second",), ()]
    expected = diagnose(AGENT.eval(), x)
    assert report.to_dict() == expected.to_dict()  # no dropout, anywhere
    assert AGENT.calls == 0


def test_a_forward_that_does_not_lead_to_the_network_is_refused() -> None:
    other = Agent()
    for forward in (Owner(other).value, lambda x: other(x), torch.tanh):
        with pytest.raises(ValueError, match="forward=.* does not run the network: pass one of"):
            diagnose(Agent(), torch.randn(40, 6), forward=forward)


@dataclass
class Around:
    """An object around a network, or around another such object."""

    inner: Any

    def __call__(self, x: Tensor) -> Any:
        return self.inner(x)


def test_the_network_is_found_three_objects_deep() -> None:
    agent, x = Agent(), torch.randn(40, 6)
    three = Around(Around(Around(agent)))
    assert [layer.name for layer in diagnose(agent, x, forward=three)] == ["act", "act (call 2)"]
    with pytest.raises(ValueError, match="does not run the network: pass one of its methods"):
        diagnose(agent, x, forward=Around(three))


def test_an_object_in_the_network_leads_to_the_replica() -> None:
    class Planner:
        """No module, but it uses one."""

        def __init__(self, layer: nn.Module) -> None:
            self.layer = layer

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.drop, self.act = nn.Linear(6, 8), nn.Dropout(0.9), nn.Tanh()
            self.planner = Planner(nn.Sequential(self.fc, self.drop, self.act))

        def forward(self, x: Tensor) -> Tensor:
            planned: Tensor = self.planner.layer(x)
            return planned

    class Direct(Net):
        def forward(self, x: Tensor) -> Tensor:
            direct: Tensor = self.act(self.fc(x))
            return direct

    net, x = Net(), torch.randn(40, 6)
    plain = Direct()
    plain.load_state_dict(net.state_dict())
    (layer,), (expected,) = diagnose(net, x), diagnose(plain, x)
    assert layer.to_dict() == expected.to_dict()  # no dropout
    assert net.planner.layer[0] is net.fc


def test_a_forward_function_keeps_its_attributes() -> None:
    agent, x = Agent(), torch.randn(40, 6)

    def forward(x: Tensor) -> Tensor:
        out: Tensor = agent(forward.scale * x)
        return out

    forward.scale = 0.0
    report = diagnose(agent, x, forward=forward)
    assert report.to_dict() == diagnose(agent, torch.zeros_like(x)).to_dict()


def test_a_replica_shares_tensors_and_data_and_nothing_else() -> None:
    agent = Agent()
    agent.register_buffer("count", torch.zeros(()))
    replica = Replica(agent).module(agent)
    assert type(replica) is Agent
    assert [name for name, _ in replica.named_modules()] == [n for n, _ in agent.named_modules()]
    assert not {id(m) for m in replica.modules()} & {id(m) for m in agent.modules()}
    tensors, copies = agent.state_dict(keep_vars=True), replica.state_dict(keep_vars=True)
    assert list(tensors) == list(copies)
    assert all(copies[name] is tensor for name, tensor in tensors.items())
    assert replica.seen is agent.seen
    assert replica.order["all"][1][0] is replica.second
    assert not any(module.training for module in replica.modules())
    assert all(module.training for module in agent.modules())
    replica.first.register_forward_hook(lambda *_: None)
    replica.count = torch.ones(())
    replica.extra = nn.Linear(2, 2)
    assert len(agent.first._forward_hooks) == 0
    assert agent.count == 0
    assert not hasattr(agent, "extra")


def test_the_networks_own_hooks_run_on_the_replica() -> None:
    class Remembering(nn.Module):
        """A hook writes what the forward reads."""

        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act, self.head = nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)
            self.hidden: Tensor | None = None
            self.fc.register_forward_hook(self.remember)
            self.fc.register_forward_pre_hook(lambda _, args: (2 * args[0],))

        def remember(self, _module: nn.Module, _args: Any, output: Tensor) -> None:
            self.hidden = output

        def forward(self, x: Tensor) -> Tensor:
            self.fc(x)
            assert self.hidden is not None
            out: Tensor = self.head(self.act(self.hidden))
            return out

    net, x = Remembering(), torch.randn(100, 6)
    layer = diagnose(net, x)["act"]
    assert net.hidden is None
    plain = nn.Sequential(net.fc, net.act, net.head)
    expected = diagnose(plain, x)["1"]
    assert layer.readers == ("head",)
    assert layer.live_contribution == expected.live_contribution
    for handles in (net.fc._forward_hooks, net.fc._forward_pre_hooks):
        assert len(handles) == 1


def test_a_module_with_a_train_method_of_its_own_is_switched_in_the_replica() -> None:
    class Switching(nn.Tanh):
        scale = 0.0

        def train(self, mode: bool = True) -> Switching:
            self.scale = 0.0 if mode else 1.0
            return super().train(mode)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(self.scale * x)

    net = nn.Sequential(nn.Linear(6, 8), Switching())
    assert diagnose(net, torch.randn(40, 6))[0].dead == 0
    assert net[1].scale == 0


def test_recurrent_and_reparametrized_networks() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.act = nn.LSTM(6, 8, batch_first=True), nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.act(self.lstm(x)[0])
            return out

    assert diagnose(Recurrent(), torch.randn(20, 3, 6))["act"].neurons == 8
    for normalize in (nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm):
        net = nn.Sequential(normalize(nn.Linear(6, 8)), nn.Tanh(), normalize(nn.Linear(8, 2)))
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        assert diagnose(net, torch.randn(20, 6))["1"].readers == ("2",)
        # No power iteration, neither in the forward pass nor for the hidden bias.
        assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_parts_that_are_compiled_run_eagerly() -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("compiled")

    def network() -> nn.Sequential:
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))

    x = torch.randn(40, 6)
    expected = diagnose(network(), x)["1"].to_dict()
    whole = network()
    whole.compile(backend=refuse)
    assert diagnose(whole, x)["1"].to_dict() == expected
    part = nn.Sequential(torch.compile(network(), backend=refuse))
    layer = diagnose(part, x)["0._orig_mod.1"]
    assert layer.readers == ("0._orig_mod.2",)
    assert {**layer.to_dict(), "name": "1", "readers": ["2"]} == expected
