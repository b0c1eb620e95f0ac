"""Parameters in one vector learn the same as separate ones, and look the same from outside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadamard.compute import optimizers
from hadamard.compute.adam import RAdam
from hadamard.compute.flat import FlatParameters, moments
from hadamard.compute.jit import Captured
from hadamard.core import checkpoint
from hadamard.core.config import NetSpec, overridden
from hadamard.nets.heads import QNetwork
from hadamard.plasticity.redo import ReDo
from tests.support.updates import GRID, agent_of, batch_of

ALGORITHMS = ("dqn", "ppo", "pqn")


class Odd(nn.Module):
    """Parameters of many kinds: frozen, shared, unused, and one in channels-last format."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
        self.one = nn.Linear(5, 7)
        self.same = self.one
        self.frozen = nn.Linear(7, 7).requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        z = self.conv(x).mean((2, 3))
        return self.frozen(self.one(z) + self.same(z.tanh()))


def test_parameters_change_nothing_but_their_memory() -> None:
    module = Odd()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    strides = {name: p.stride() for name, p in module.named_parameters()}
    identities = list(map(id, module.parameters()))
    frozen = module.frozen.weight.data_ptr()
    flat = FlatParameters(module)
    assert list(map(id, module.parameters())) == identities
    assert len(flat.parameters) == 5  # the shared layer's two count once
    assert module.frozen.weight.data_ptr() == frozen
    assert module.conv.weight.is_contiguous(memory_format=torch.channels_last)
    places = set()
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, before[name]), name
        assert parameter.stride() == strides[name], name
        if parameter.requires_grad:
            inside = parameter.data_ptr() - flat.vector.data_ptr()
            assert inside % 256 == 0
            assert 0 <= inside <= (flat.vector.numel() - parameter.numel()) * 4
            places.add(inside)
    assert len(places) == 5
    assert int((flat.vector != 0).sum()) == sum(int((p != 0).sum()) for p in flat.parameters)


def test_the_vector_follows_loaded_states_and_the_parameters_follow_the_vector() -> None:
    module, other = Odd(), Odd()
    flat = FlatParameters(module)
    places = [p.data_ptr() for p in module.parameters()]
    module.load_state_dict(other.state_dict())
    assert [p.data_ptr() for p in module.parameters()] == places
    for ours, theirs in zip(flat.parameters, FlatParameters(other).parameters, strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(flat.vector, FlatParameters(other).vector)
    with torch.no_grad():
        flat.vector.fill_(3.0)
    assert (module.one.weight == 3).all()
    again = copy.deepcopy(module)  # a copy has separate memory
    with torch.no_grad():
        flat.vector.fill_(4.0)
    assert (again.one.weight == 3).all()


def test_gradients_are_collected_and_replaced() -> None:
    module = Odd()
    flat = FlatParameters(module)
    x = torch.randn(4, 3, 6, 6)
    flat.backward(module(x).square().sum())
    flat.backward(module(x).sum())  # replaces the first
    assert all(p.grad is None for p in module.parameters())
    module(x).sum().backward()
    assert flat.vector.grad is not None
    total = 0
    for parameter in flat.parameters:
        layout = parameter.shape, parameter.stride(), parameter.storage_offset()
        collected = flat.vector.grad.as_strided(*layout)
        expected = torch.zeros(2, 3) if parameter is module.unused else parameter.grad
        assert torch.equal(collected, expected)
        total += int((collected != 0).sum())
    assert int((flat.vector.grad != 0).sum()) == total


@pytest.mark.parametrize("largest", [0.1, 1e6])
def test_clipping_equals_pytorchs(largest: float) -> None:
    module = Odd()
    flat = FlatParameters(module)
    x = torch.randn(4, 3, 6, 6)
    flat.backward(module(x).square().sum())
    assert flat.vector.grad is not None
    theirs = nn.Parameter(torch.zeros_like(flat.vector))
    theirs.grad = flat.vector.grad.clone()
    norm = nn.utils.clip_grad_norm_([theirs], largest)
    torch.testing.assert_close(flat.clip(largest), norm)
    torch.testing.assert_close(flat.vector.grad, theirs.grad)
    assert float(flat.vector.grad.norm()) <= largest * 1.0001


def test_parameters_of_several_dtypes_are_refused() -> None:
    mixed = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2, dtype=torch.float64)])
    with pytest.raises(ValueError, match="one dtype.*float32 on cpu, torch.float64 on cpu"):
        FlatParameters(mixed)
    with pytest.raises(ValueError, match="no trainable parameters"):
        FlatParameters(nn.Linear(2, 2).requires_grad_(False))


Optimize = Callable[[Sequence[nn.Parameter]], torch.optim.Optimizer]

OPTIMIZERS: dict[str, Optimize] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-5),
    "fused Adam": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-5, fused=True),
    "RAdam": lambda p: RAdam(p, lr=1e-3),
}


def network(**changes: Any) -> QNetwork:
    net = NetSpec(layer="hadamard", activation="tanh", width=13, where="all")
    return QNetwork(GRID, overridden(net, changes))


@pytest.mark.parametrize("kind", ["Adam", "RAdam"])
def test_a_thousand_updates_without_clipping_are_equal_bit_for_bit(kind: str) -> None:
    ours = network(norm="layer")
    theirs = copy.deepcopy(ours)
    flat = FlatParameters(ours)
    flat_optimizer, optimizer = (
        OPTIMIZERS[kind]([flat.vector]),
        OPTIMIZERS[kind](list(theirs.parameters())),
    )
    for _ in range(1_000):
        obs, goal = torch.randint(2, (4, *GRID.obs_shape)), torch.randn(4, 5)
        flat.backward((ours(obs) - goal).square().mean())
        flat_optimizer.step()
        optimizer.zero_grad()
        (theirs(obs) - goal).square().mean().backward()
        optimizer.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


def small_agent(algorithm: str, dtype: torch.dtype) -> Any:
    changes: dict[str, Any] = {"net.layer": "hadamard", "net.activation": "tanh"}
    if algorithm != "dqn":
        changes["algo.max_grad_norm"] = 0.1  # small enough to clip always
    return agent_of(algorithm, dtype, changes)


def plain_update(agent: Any) -> Callable[..., None]:
    """Return the agent's update written with PyTorch's functions, for separate parameters."""
    parameters = list(agent.network.parameters())
    settings = {name: agent.optimizer.defaults[name] for name in ("lr", "betas", "eps")}
    optimizer = getattr(torch.optim, type(agent.optimizer).__name__)(parameters, **settings)

    def learn(*batch: Tensor) -> None:
        optimizer.zero_grad()
        agent._loss(*batch)[0].backward()
        if hasattr(agent.config, "max_grad_norm"):
            nn.utils.clip_grad_norm_(parameters, agent.config.max_grad_norm)
        optimizer.step()

    return learn


def difference(ours: Any, theirs: Any) -> float:
    return max(
        float((a - b).detach().abs().max())
        for a, b in zip(ours.network.parameters(), theirs.network.parameters(), strict=True)
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_thousand_updates_equal_those_of_separate_parameters(algorithm: str) -> None:
    ours, theirs = (small_agent(algorithm, torch.float64) for _ in range(2))
    learn = plain_update(theirs)
    start = ours.weights.vector.detach().clone()
    for _ in range(1_000):
        batch = batch_of(algorithm)
        ours.learn(*batch)
        learn(*batch)
    # The norm is summed in another order, and fused Adam rounds a tensor's last few numbers
    # differently.
    assert difference(ours, theirs) < 1e-12
    assert float((ours.weights.vector.detach() - start).abs().max()) > 0.03


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_first_update_equals_that_of_separate_parameters(algorithm: str) -> None:
    ours, theirs = (small_agent(algorithm, torch.float32) for _ in range(2))
    learn, batch = plain_update(theirs), batch_of(algorithm)
    ours.learn(*batch)
    learn(*batch)
    for mine, other in zip(ours.network.parameters(), theirs.network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1.2e-7, atol=1e-9)


def test_redo_resets_the_same_moments() -> None:
    separate = network()
    joined = copy.deepcopy(separate)
    flat = FlatParameters(joined)
    optimizer = OPTIMIZERS["Adam"](list(separate.parameters()))
    flat_optimizer = OPTIMIZERS["Adam"]([flat.vector])
    obs = torch.randint(2, (32, *GRID.obs_shape))

    def learn() -> None:
        optimizer.zero_grad()
        (separate(obs) - 1).square().sum().backward()
        optimizer.step()
        flat.backward((joined(obs) - 1).square().sum())
        flat_optimizer.step()

    def assert_equal() -> None:
        for parameter, other in zip(separate.parameters(), joined.parameters(), strict=True):
            assert torch.equal(parameter, other)
            expected, views = (
                list(moments(optimizer, parameter)),
                list(moments(flat_optimizer, other)),
            )
            assert len(expected) == len(views) == 2
            for moment, view in zip(expected, views, strict=True):
                assert view.shape == other.shape
                assert torch.equal(moment, view)

    for _ in range(3):
        learn()
    assert_equal()
    redos = [
        ReDo(net, updater, tau=0.9, period=1)
        for net, updater in ((separate, optimizer), (joined, flat_optimizer))
    ]
    before = [p.detach().clone() for p in joined.parameters()]
    for redo in redos:
        redo(1, obs)
    assert redos[0].recycled == redos[1].recycled > 0
    assert not torch.equal(before[0], next(joined.parameters()))
    assert_equal()
    assert any(
        (view == 0).any() for p in joined.parameters() for view in moments(flat_optimizer, p)
    )
    for _ in range(3):
        learn()
    assert_equal()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_saved_agent_continues_exactly(algorithm: str, tmp_path: Path) -> None:
    ours = small_agent(algorithm, torch.float32)
    for _ in range(7):
        ours.learn(*batch_of(algorithm))
    names = ("network", "optimizer")
    checkpoint.save(tmp_path, 7, {name: ours.parts[name] for name in names})
    again = small_agent(algorithm, torch.float32)
    again.learn(*batch_of(algorithm))
    checkpoint.load(tmp_path, {name: again.parts[name] for name in names})
    if algorithm == "dqn":
        again.target.load_state_dict(ours.target.state_dict())
    for _ in range(5):
        batch = batch_of(algorithm)
        ours.learn(*batch)
        again.learn(*batch)
    assert torch.equal(again.weights.vector, ours.weights.vector)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_capture_can_undo_its_warm_up(algorithm: str) -> None:
    agent, fresh = (small_agent(algorithm, torch.float32) for _ in range(2))
    captured = Captured(agent._learn, torch.device("cpu"), [agent.network, agent.optimizer])
    before = {id(tensor): tensor.detach().clone() for tensor in captured._mutated_tensors()}
    for _ in range(3):
        agent.learn(*batch_of(algorithm))
    assert not torch.equal(agent.weights.vector, fresh.weights.vector)
    with torch.no_grad():
        for tensor in captured._mutated_tensors():
            tensor.copy_(before.get(id(tensor), torch.zeros_like(tensor)))
    batch = batch_of(algorithm)
    agent.learn(*batch)
    fresh.learn(*batch)
    assert torch.equal(agent.weights.vector, fresh.weights.vector)
    optimizers.set_learning_rate(agent.optimizer, 0.0)
    agent.learn(*batch)
    assert torch.equal(agent.weights.vector, fresh.weights.vector)
