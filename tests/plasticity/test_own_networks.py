"""Remedies on networks that are not this package's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadamard import plasticity
from hadamard.layers import Hadamard, HadamardLinear
from hadamard.plasticity.redo import ReDo


def dense() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)
    )


def images() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 5), nn.Tanh(),
        nn.Linear(5, 2),
    )  # fmt: skip


def products() -> nn.Sequential:
    branches = (nn.Sequential(nn.Linear(6, 5), nn.Tanh()) for _ in range(2))
    return nn.Sequential(HadamardLinear(4, 6), Hadamard(*branches), nn.Linear(5, 2))


EXAMPLES = {
    "dense": (dense, (8, 4)),
    "images": (images, (8, 2, 6, 6)),
    "products": (products, (8, 4)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_hidden_layers_are_recognized(name: str) -> None:
    make, shape = EXAMPLES[name]
    network = make()
    layers = plasticity.recognize_layers(network, torch.randn(shape))
    assert [layer.count for layer in layers] == ([3, 5] if name == "images" else [6, 5])
    affine = {"dense": [1, 1], "images": [1, 1], "products": [1, 2]}[name]
    assert [len(layer.affines) for layer in layers] == affine
    assert layers[0].branches == (2 if name == "products" else 1)
    outputs = {"dense": (2, 4), "images": (1, 5), "products": (0, 1)}[name]
    assert [layer.output for layer in layers] == [network[place] for place in outputs]
    assert layers[1].readers == [network[-1]]
    if name == "dense":
        assert network[1] in layers[0].parts


@pytest.mark.parametrize("name", EXAMPLES)
def test_recycling_a_silent_neuron_leaves_the_output(name: str) -> None:
    make, shape = EXAMPLES[name]
    network, x = make(), torch.randn(shape)
    optimizer = torch.optim.Adam(network.parameters())
    network(x).sum().backward()
    optimizer.step()
    settings = {"redo.tau": 0.0, "redo.period": 1}
    remedies = plasticity.attach(network, optimizer, "redo", settings, example=x)
    silent = plasticity.hidden_layers(network)[0]
    with torch.no_grad():
        for part in silent.parts:
            for parameter in part.parameters(recurse=False):
                parameter[1 :: silent.count] = 0
    before = {n: p.detach().clone() for n, p in network.named_parameters()}
    output = network(x).detach()
    remedies(1, x)
    redo = remedies.by_name["redo"]
    assert isinstance(redo, ReDo)
    assert redo.recycled >= 1
    if name != "dense":  # a norm's statistics include the new row
        torch.testing.assert_close(network(x), output)
    rows = silent.affines[0].get_parameter("weight")
    assert rows[1 :: silent.count].abs().sum() > 0
    reader = silent.readers[0].get_parameter("weight")
    columns = reader.view(len(reader), silent.count, -1)[:, 1]
    assert not columns.any()
    assert any(not torch.equal(p, before[n]) for n, p in network.named_parameters())


OWN = [name for name in plasticity.names() if name not in ("plasticity_injection", "nap")]


@pytest.mark.parametrize("remedy", OWN)
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_every_remedy_goes_on_exactly_from_its_state(remedy: str, kind: Any) -> None:
    """Five updates, or two, saving and three: with any optimizer of PyTorch."""
    period = {
        "continual_backprop": {"period": 1, "maturity": 1, "rate": 0.2},
        "layer_resets": {"period": 2},
        "redo": {"period": 2, "tau": 0.5},
        "regrama": {"period": 2, "tau": 0.5},
        "shrink_and_perturb": {"period": 2},
    }.get(remedy, {})
    settings = {f"{remedy}.{name}": value for name, value in period.items()}
    torch.manual_seed(0)
    start, batches = products(), torch.randn(5, 8, 4)

    def learner() -> tuple[nn.Module, torch.optim.Optimizer, plasticity.Remedies]:
        network = copy.deepcopy(start)
        optimizer = kind(network.parameters(), lr=0.1)
        example = batches[0]
        return (
            network,
            optimizer,
            plasticity.attach(network, optimizer, remedy, settings, example=example, seed=3),
        )

    def learn(learned: Any, numbers: range) -> None:
        network, optimizer, remedies = learned
        for number in numbers:
            optimizer.zero_grad()
            network(batches[number]).sub(1).square().mean().backward()
            optimizer.step()
            remedies(number + 1, batches[number])

    whole, first, second = learner(), learner(), learner()
    learn(whole, range(5))
    learn(first, range(2))
    for part, saved in zip(second, first, strict=True):
        part.load_state_dict(copy.deepcopy(saved.state_dict()))
    learn(second, range(2, 5))
    plain = copy.deepcopy(start)
    for ours, theirs in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(whole[0].parameters(), plain.parameters(), strict=True)
    )


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.second(torch.relu(self.first(x)))
        return output


def test_what_cannot_work_is_refused() -> None:
    network = dense()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def refused(message: str, *arguments: Any, **options: Any) -> None:
        with pytest.raises(ValueError, match=message):
            plasticity.attach(*arguments, **options)

    x = torch.randn(3, 4)
    refused("unknown remedy 'reddo'; did you mean 'redo'", network, optimizer, "reddo")
    refused("unknown setting of redo 'tua'", network, optimizer, "redo", {"redo.tua": 1})
    refused("must be at least 1", network, optimizer, "redo", {"redo.period": 0}, example=x)
    refused("pass an example of its input", network, optimizer, "redo")
    refused("l2_init exclude each other", network, optimizer, ["nap", "l2_init"], example=x)
    refused("4 has none: add --net.norm layer|3 has none", network, optimizer, "nap", example=x)
    refused("needs a network of hadamard.nets", network, optimizer, "plasticity_injection")
    head = torch.optim.SGD(network[-1].parameters(), lr=0.1)
    refused("the optimizer does not have the parameter 0.weight", network, head, "upgd")
    with pytest.warns(UserWarning, match="zero-element"):
        empty = nn.Sequential(nn.Linear(4, 0), nn.ReLU(), nn.Linear(0, 2))
    own = torch.optim.SGD(empty.parameters(), lr=0.1)
    refused("0.weight has no elements: a layer needs at least one", empty, own, "upgd")
    hidden = Functional()
    own = torch.optim.SGD(hidden.parameters(), lr=0.1)
    refused("the input of second comes from no module", hidden, own, "redo", example=x)
    single = nn.Sequential(nn.Linear(4, 2))
    own = torch.optim.SGD(single.parameters(), lr=0.1)
    refused("Sequential has no hidden layer", single, own, "redo", example=x)


def test_a_state_of_other_remedies_is_refused() -> None:
    states = []
    for remedy in ("l2_init", "upgd"):
        network = dense()
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        states.append(plasticity.attach(network, optimizer, remedy))
    with pytest.raises(ValueError, match="the saved state of the remedy upgd has other tensors"):
        states[1].load_state_dict(states[0].state_dict())
    saved = states[0].state_dict()
    saved["l2_init"]["0.weight"] = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="0.weight of the remedy l2_init has the shape"):
        states[0].load_state_dict(saved)
