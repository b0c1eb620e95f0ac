"""Remedies on networks that are not this package's."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

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


def normalized_products() -> nn.Sequential:
    branches = (nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh()) for _ in range(2))
    return nn.Sequential(HadamardLinear(4, 6, norm="layer"), Hadamard(*branches), nn.Linear(5, 2))


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


@pytest.mark.parametrize("remedy", plasticity.names())
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_every_remedy_goes_on_exactly_from_its_state(remedy: str, kind: Any) -> None:
    """Five updates, or two, saving and three: with any optimizer of PyTorch."""
    period = {
        "continual_backprop": {"period": 1, "maturity": 1, "rate": 0.2},
        "layer_resets": {"period": 2},
        "plasticity_injection": {"after": 2},
        "redo": {"period": 2, "tau": 0.5},
        "regrama": {"period": 2, "tau": 0.5},
        "shrink_and_perturb": {"period": 2},
    }.get(remedy, {})
    settings = {f"{remedy}.{name}": value for name, value in period.items()}
    torch.manual_seed(0)
    start = normalized_products() if remedy == "nap" else products()
    batches = torch.randn(5, 8, 4)

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


@pytest.mark.parametrize("remedy", ["redo", "plasticity_injection"])
def test_a_network_can_still_be_copied_and_saved_whole(remedy: str) -> None:
    network, x = dense(), torch.randn(8, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    plasticity.attach(network, optimizer, remedy, example=x)
    for again in (pickle.loads(pickle.dumps(network)), copy.deepcopy(network)):
        assert torch.equal(again(x), network(x))
        layer = plasticity.hidden_layers(again)[0]
        assert layer.parts[0] is again[0]
        assert layer.fresh_values()[0]["weight"].shape == again[0].weight.shape


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
    refused("none after 3: add --net.norm layer", network, optimizer, "nap", example=x)
    new = dense()
    own = torch.optim.SGD(new.parameters(), lr=0.1)
    refused("pass an example of its input", new, own, "plasticity_injection")
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


UNKNOWN = {
    "gated": (nn.Sequential(nn.Linear(4, 8), nn.GLU(), nn.Linear(4, 2)), (3, 4), "1 .GLU. makes"),
    "late activation": (
        nn.Sequential(nn.Conv1d(2, 3, 1), nn.Flatten(), nn.ReLU(), nn.Linear(12, 2)),
        (3, 2, 4),
        "2 .ReLU. acts on feature maps that are flattened already",
    ),
    "transposed": (
        nn.Sequential(
            nn.Conv1d(2, 3, 1), nn.ConvTranspose1d(3, 3, 1), nn.Flatten(), nn.Linear(12, 2)
        ),
        (3, 2, 4),
        "the parameters of 1 .ConvTranspose1d. do not belong to single neurons of 0",
    ),
    "groups": (
        nn.Sequential(nn.Conv1d(2, 4, 1), nn.Conv1d(4, 4, 1, groups=4), nn.Conv1d(4, 1, 1)),
        (3, 2, 4),
        "1 is a convolution in groups",
    ),
    "sequences": (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), (3, 5, 4), "0 has an output"),
    "computed": (
        nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 2)),
        (3, 4),
        "the weight of 0 is computed from other parameters",
    ),
    "twice": (nn.Sequential(*[nn.Linear(4, 4)] * 2, nn.Linear(4, 2)), (3, 4), "0 is used twice"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_networks_whose_neurons_are_not_known_are_refused(name: str) -> None:
    """By remedies that act on neurons, at once; the others work with them."""
    network, shape, message = UNKNOWN[name]
    x = torch.randn(shape)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=message):
        plasticity.attach(network, optimizer, "redo", example=x)
    plasticity.attach(network, optimizer, "l2_init", example=x)
    network(x).sum().backward()
    optimizer.step()


def test_weights_that_cannot_be_drawn_are_refused_at_once() -> None:
    network = nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="the weight of 0 is computed from other parameters"):
        plasticity.attach(network, optimizer, "shrink_and_perturb")


def test_parameters_that_neurons_share_are_left_alone() -> None:
    network = nn.Sequential(
        nn.Linear(4, 6), nn.PReLU(), nn.Linear(6, 5), nn.PReLU(5), nn.Linear(5, 2)
    )
    x = torch.randn(8, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    settings = {"redo.tau": 10.0, "redo.period": 1}  # every neuron
    remedies = plasticity.attach(network, optimizer, "redo", settings, example=x)
    with torch.no_grad():
        network[1].weight.fill_(0.7)
        network[3].weight.fill_(0.7)
    remedies(1, x)
    assert network[1].weight.item() == pytest.approx(0.7)
    assert network[3].weight.tolist() == [0.25] * 5  # PyTorch's start


def test_nap_asks_for_a_norm_before_the_activation() -> None:
    bare = nn.LayerNorm(6, elementwise_affine=False)
    before = nn.Sequential(nn.Linear(4, 6), bare, nn.Tanh(), nn.Linear(6, 2))
    after = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2))
    x = torch.randn(8, 4)
    optimizer = torch.optim.SGD(before.parameters(), lr=0.5)
    plasticity.attach(before, optimizer, "nap", example=x)
    size = before[0].weight.norm().item()
    before(x).sum().backward()
    optimizer.step()
    assert before[0].weight.norm().item() == pytest.approx(size)
    with pytest.raises(ValueError, match="there is none after 0"):
        plasticity.attach(after, torch.optim.SGD(after.parameters()), "nap", example=x)


FREEZING = {
    "continual_backprop": {"period": 1, "maturity": 0, "rate": 1.0},
    "layer_resets": {"period": 1},
    "plasticity_injection": {"after": 1},
    "redo": {"period": 1, "tau": 10.0},
    "regrama": {"period": 1, "tau": 10.0},
    "shrink_and_perturb": {"period": 1},
}


@pytest.mark.parametrize("remedy", plasticity.names())
def test_frozen_weights_stay(remedy: str) -> None:
    """The layer that they read is left alone as well, and the rest of the network is not."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU(),
        nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2),
    )  # fmt: skip
    network[3].requires_grad_(False)
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    x = torch.randn(8, 4)
    own = {f"{remedy}.{name}": value for name, value in FREEZING.get(remedy, {}).items()}
    remedies = plasticity.attach(network, optimizer, remedy, own, example=x)
    frozen = [p.detach().clone() for p in network[3].parameters()]
    with torch.no_grad():
        network[6].weight.mul_(3)
    network(x).sub(1).square().sum().backward()
    plain = network[6].weight.detach() - 0.1 * network[6].weight.grad
    plain_head = network[9].weight.detach() - 0.1 * network[9].weight.grad
    optimizer.step()
    remedies(1, x)
    assert all(map(torch.equal, network[3].parameters(), frozen))
    hidden_changed = not torch.allclose(network[6].weight, plain)
    assert hidden_changed or not torch.allclose(network[9].weight, plain_head)


def test_weights_that_an_update_does_not_use_are_left_to_the_others() -> None:
    """UPGD gates steps of the optimizer, not what happened while a head was not trained."""
    heads = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)})
    optimizer = torch.optim.SGD(heads.parameters(), lr=0.1)
    plasticity.attach(heads, optimizer, "upgd", {"upgd.noise": 0.0, "upgd.decay": 0.0})
    x = torch.ones(2, 3)
    (heads["a"](x) - heads["b"](x)).sum().backward()
    optimizer.step()
    with torch.no_grad():
        heads["b"].weight.fill_(7.0)
    optimizer.zero_grad()
    heads["a"](x).sum().backward()
    optimizer.step()
    assert (heads["b"].weight == 7).all()


def test_layers_without_a_gradient_keep_what_was_measured() -> None:
    """An update that does not use a layer is none for remedies that read its gradient."""
    network = dense()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    remedies = plasticity.attach(
        network, optimizer, ["regrama", "parseval"], example=torch.randn(8, 4)
    )
    network(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    before = {name: t.clone() for name, t in remedies.state_of("regrama").items()}
    optimizer.zero_grad()
    network[-1](torch.randn(8, 5)).sum().backward()
    start = network[0].weight.detach().clone()
    optimizer.step()
    assert torch.equal(network[0].weight, start)
    for name, measured in remedies.state_of("regrama").items():
        assert torch.equal(measured, before[name])


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.LayerNorm(5))
        self.relu, self.tanh = nn.ReLU(), nn.Tanh()
        self.policy, self.value = nn.Linear(5, 3), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        return torch.cat([self.policy(self.relu(features)), self.value(self.tanh(features))], 1)


@pytest.mark.parametrize("make", [dense, products, TwoHeads])
def test_plasticity_injection_keeps_the_predictions(make: Any) -> None:
    torch.manual_seed(1)
    network, x = make(), torch.randn(8, 4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    settings = {"plasticity_injection.after": 2}
    remedies = plasticity.attach(network, optimizer, "plasticity_injection", settings, example=x)

    def learn() -> None:
        optimizer.zero_grad()
        network(x).sub(1).square().sum().backward()
        optimizer.step()

    learn()
    remedies(1, x)
    target = copy.deepcopy(network)
    before = network(x).detach()
    old = {name: p.detach().clone() for name, p in network.named_parameters()}
    remedies(2, x)
    torch.testing.assert_close(network(x), before)
    changed = {
        n.rpartition(".")[0] for n, p in network.named_parameters() if not torch.equal(p, old[n])
    }
    last = {dense: {"3", "5"}, TwoHeads: {"body.2", "body.3", "policy", "value"}}
    if make in last:
        assert changed == last[make]
    learn()
    assert (network(x) - before).abs().max() > 1e-3
    torch.testing.assert_close(target(x), before)  # a copy has frozen heads of its own
    target.load_state_dict(network.state_dict())
    torch.testing.assert_close(target(x), network(x))


def test_plasticity_injection_and_layers_it_cannot_freeze() -> None:
    x = torch.randn(8, 4)
    changing = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(changing.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="cannot freeze a BatchNorm1d"):
        plasticity.attach(changing, optimizer, "plasticity_injection", example=x)
    random = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(random.parameters(), lr=0.1)
    torch.manual_seed(0)
    before = random(x).detach()
    plasticity.attach(random, optimizer, "plasticity_injection", example=x)
    random.train()
    torch.manual_seed(0)
    torch.testing.assert_close(random(x), before)


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
