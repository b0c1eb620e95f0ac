"""What each remedy does to weights and gradients, on numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadamard import plasticity
from hadamard.core.config import NetSpec
from hadamard.health import diagnose
from hadamard.layers import HadamardLinear
from hadamard.nets.heads import ActorCritic, QNetwork
from hadamard.plasticity import continual_backprop, plasticity_injection
from hadamard.plasticity.continual_backprop import ContinualBackprop
from tests.support.nets import GRID, VECTOR, observations


def attached(
    network: nn.Module, remedy: str, learning_rate: float = 0.1, **settings: Any
) -> tuple[plasticity.Remedies, torch.optim.Optimizer]:
    """A remedy on a network that plain gradient descent trains."""
    optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
    own = {f"{remedy}.{name}": value for name, value in settings.items()}
    example = torch.ones(1, 2) if isinstance(network, nn.Sequential) else None
    return plasticity.attach(network, optimizer, remedy, own, example=example), optimizer


def chain(*weights: list[list[float]], between: nn.Module | None = None) -> nn.Sequential:
    """Linear layers with these weights and biases of zero, with an activation between them."""
    modules: list[nn.Module] = []
    for rows in weights:
        layer = nn.Linear(len(rows[0]), len(rows))
        with torch.no_grad():
            layer.weight.copy_(torch.tensor(rows))
            layer.bias.zero_()
        modules += [layer, between or nn.Identity()]
    return nn.Sequential(*modules[:-1])


def set_gradients(network: nn.Module, value: float = 0.0) -> None:
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, value)


def weight(network: nn.Sequential, index: int) -> Tensor:
    return network[index].get_parameter("weight").detach()


def test_l2_init_pulls_toward_the_initial_weights() -> None:
    network = chain([[1.0, 2.0]], [[3.0]])
    _, optimizer = attached(network, "l2_init", strength=0.5)
    with torch.no_grad():
        weight(network, 0).copy_(torch.tensor([[2.0, 0.0]]))
    set_gradients(network)
    optimizer.step()
    # The gradient is 2 * 0.5 * ((2, 0) - (1, 2)) = (1, -2), and the step 0.1 of it.
    torch.testing.assert_close(weight(network, 0), torch.tensor([[1.9, 0.2]]))
    torch.testing.assert_close(weight(network, 2), torch.tensor([[3.0]]))


def test_weight_clipping_keeps_a_multiple_of_the_initial_range() -> None:
    network = chain([[1.0, -2.0]], [[0.5]])
    _, optimizer = attached(network, "weight_clipping", kappa=1.5)
    with torch.no_grad():
        weight(network, 0).copy_(torch.tensor([[5.0, -2.5]]))
        weight(network, 2).fill_(-1.0)
        network[0].get_parameter("bias").fill_(4.0)
    set_gradients(network)
    optimizer.step()
    # The largest initial weight of the first layer is 2: its bound, biases included, is 3.
    torch.testing.assert_close(weight(network, 0), torch.tensor([[3.0, -2.5]]))
    assert network[0].get_parameter("bias").item() == 3.0
    assert weight(network, 2).item() == -0.75


def test_parseval_pulls_rows_toward_orthogonality() -> None:
    network = chain([[1.0, 1.0], [0.0, 1.0]], [[1.0, 1.0]])
    _, optimizer = attached(network, "parseval", strength=0.25 * (2 / 64) ** 2, scale=1.0)
    set_gradients(network)
    optimizer.step()
    # W W^T - I = ((1, 1), (1, 0)), times W: ((1, 2), (1, 1)); 4 * 0.25 * 0.1 of it is subtracted,
    # as the strength is for 64 neurons and the layer has 2.
    torch.testing.assert_close(weight(network, 0), torch.tensor([[0.9, 0.8], [-0.1, 0.9]]))
    torch.testing.assert_close(weight(network, 2), torch.tensor([[1.0, 1.0]]))  # no hidden layer


def test_parseval_is_the_gradient_of_its_term_for_each_branch() -> None:
    network = nn.Sequential(HadamardLinear(6, 4), nn.Linear(4, 1)).double()
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    example = torch.ones(1, 6, dtype=torch.float64)
    settings = {"parseval.strength": 0.3 * (4 / 64) ** 2, "parseval.scale": 2.0}
    plasticity.attach(network, optimizer, "parseval", settings, example=example)
    parameter = network[0].affine.weight
    start = parameter.detach().clone()
    term = sum(0.3 * (w @ w.T - 2 * torch.eye(4)).square().sum() for w in parameter.chunk(2))
    (expected,) = torch.autograd.grad(term, parameter)
    set_gradients(network)
    optimizer.step()
    torch.testing.assert_close(start - parameter.detach(), expected)


def test_parseval_uses_columns_where_rows_are_too_many() -> None:
    network = chain([[2.0], [0.0]], [[1.0, 1.0]])
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    settings = {"parseval.strength": 0.25 * (2 / 64) ** 2, "parseval.scale": 1.0}
    plasticity.attach(network, optimizer, "parseval", settings, example=torch.ones(1, 1))
    set_gradients(network)
    optimizer.step()
    # W^T W - 1 = 3: three times W is subtracted.
    torch.testing.assert_close(weight(network, 0), torch.tensor([[-4.0], [0.0]]))


def test_nap_restores_the_norms_of_hidden_layers() -> None:
    norm = nn.LayerNorm(2)
    network = chain([[3.0, 0.0], [0.0, 4.0]], [[1.0, 1.0]], between=norm)
    _, optimizer = attached(network, "nap")
    with torch.no_grad():
        weight(network, 0).copy_(torch.tensor([[6.0, 0.0], [0.0, 8.0]]))
        norm.weight.copy_(torch.tensor([3.0, 0.0]))
        norm.bias.copy_(torch.tensor([0.0, 4.0]))
        weight(network, 2).fill_(7.0)
    set_gradients(network)
    optimizer.step()
    torch.testing.assert_close(weight(network, 0), torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    # Scale and shift together had the norm of (1, 1), and have (3, 0, 0, 4): times sqrt(2) / 5.
    torch.testing.assert_close(norm.weight.detach(), torch.tensor([3.0, 0.0]) * 2**0.5 / 5)
    torch.testing.assert_close(norm.bias.detach(), torch.tensor([0.0, 4.0]) * 2**0.5 / 5)
    assert (weight(network, 2) == 7).all()


def test_nap_projects_every_few_updates_and_each_branch() -> None:
    network = nn.Sequential(HadamardLinear(3, 2, norm="layer"), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    plasticity.attach(network, optimizer, "nap", {"nap.period": 2}, example=torch.ones(1, 3))
    parameter = network[0].affine.weight
    norms = [branch.norm().item() for branch in parameter.detach().chunk(2)]
    with torch.no_grad():
        parameter[:2] *= 3
        parameter[2:] *= 5
    grown = parameter.detach().clone()
    set_gradients(network)
    optimizer.step()
    assert torch.equal(parameter.detach(), grown)
    optimizer.step()
    assert [b.norm().item() for b in parameter.detach().chunk(2)] == pytest.approx(norms)


def test_shrink_and_perturb_mixes_in_new_weights() -> None:
    network = chain([[1.0, 1.0]], [[1.0]])
    remedies, _ = attached(network, "shrink_and_perturb", shrink=0.5, perturb=0.25, period=3)
    before = weight(network, 0).clone()
    remedies(2, torch.ones(1, 2))
    assert torch.equal(weight(network, 0), before)
    remedies(3, torch.ones(1, 2))
    added = weight(network, 0) - 0.5
    assert ((added != 0) & (added.abs() <= 0.25 * 2**-0.5)).all()  # PyTorch draws up to 1 / sqrt(2)


def test_shrink_and_perturb_forgets_the_moments() -> None:
    network = chain([[1.0, 1.0]], [[1.0]])
    optimizer = torch.optim.Adam(network.parameters())
    settings = {"shrink_and_perturb.period": 1}
    remedies = plasticity.attach(network, optimizer, "shrink_and_perturb", settings)
    set_gradients(network, 1.0)
    optimizer.step()
    remedies(1, torch.ones(1, 2))
    for state in optimizer.state.values():
        assert not state["exp_avg"].any()
        assert not state["exp_avg_sq"].any()


@pytest.mark.parametrize(("hidden", "reset"), [(0, 1), (1, 2), (2, 3)])
def test_layer_resets_draw_the_last_layers_anew(hidden: int, reset: int) -> None:
    network = QNetwork(GRID, NetSpec("hadamard", "tanh", width=6), init="he")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    settings = {"layer_resets.hidden": hidden, "layer_resets.period": 4}
    remedies = plasticity.attach(network, optimizer, "layer_resets", settings)
    layers = [*network.encoder.layers, network.values]
    before = [
        {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
        for layer in layers
    ]
    remedies(4, observations(GRID))
    for place, (layer, old) in enumerate(zip(layers, before, strict=True)):
        for name, parameter in layer.named_parameters():
            if name.endswith("weight"):
                assert torch.equal(parameter, old[name]) == (place < len(layers) - reset), name


def test_layer_resets_reset_the_heads_of_both_encoders() -> None:
    network = ActorCritic(VECTOR, NetSpec(width=6), shared=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    remedies = plasticity.attach(network, optimizer, "layer_resets", {"layer_resets.period": 1})
    old = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    remedies(1, observations(VECTOR))
    changed = {n for n, p in network.named_parameters() if not torch.equal(p, old[n])}
    assert changed == {"logits.weight", "value.weight"}


def test_more_layers_to_reset_than_there_are_is_an_error() -> None:
    network = QNetwork(VECTOR, NetSpec(width=6))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="layer-resets.hidden 3 is more than .* it has 2 in a row"):
        plasticity.attach(network, optimizer, "layer_resets", {"layer_resets.hidden": 3})


def test_regrama_recycles_neurons_with_small_gradients() -> None:
    network = chain([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], [[1.0, 1.0, 1.0]])
    remedies, optimizer = attached(network, "regrama", tau=0.4, period=1)
    set_gradients(network)
    network[0].weight.grad = torch.tensor([[3.0, -3.0], [0.5, 0.5], [-2.5, 2.5]])
    optimizer.step()
    after_step = weight(network, 0).clone()
    remedies(1, torch.ones(1, 2))
    # Mean magnitudes (3, 0.5, 2.5) over their mean 2: (1.5, 0.25, 1.25).
    changed = (weight(network, 0) != after_step).any(1)
    assert changed.tolist() == [False, True, False]
    assert weight(network, 2).tolist() == [[1.0, 0.0, 1.0]]


def test_regrama_counts_both_branches_of_a_neuron() -> None:
    network = nn.Sequential(HadamardLinear(2, 2), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    settings = {"regrama.tau": 0.5, "regrama.period": 1}
    remedies = plasticity.attach(network, optimizer, "regrama", settings, example=torch.ones(1, 2))
    set_gradients(network)
    # Neuron 0: branches 0 and 8. Neuron 1: 1 and 0.5, which is below half of the mean of both.
    gradient = torch.tensor([[0.0, 0.0], [1.0, 1.0], [8.0, 8.0], [0.5, 0.5]])
    network[0].affine.weight.grad = gradient
    before = network[0].affine.weight.detach().clone()
    optimizer.step()
    remedies(1, torch.ones(1, 2))
    changed = (network[0].affine.weight.detach() != before).any(1)
    assert changed.tolist() == [False, True, False, True]


def test_continual_backprop_replaces_the_least_useful_mature_neurons() -> None:
    network = chain([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [[4.0, -1.0, 1.0]])
    config = {"rate": 0.25, "maturity": 2, "decay": 0.5, "period": 1}
    remedies, _ = attached(network, "continual_backprop", **config)
    remedy = remedies.by_name["continual_backprop"]
    assert isinstance(remedy, ContinualBackprop)
    x = torch.tensor([[1.0, 1.0], [3.0, -1.0]])
    # Mean |output|: (2, 2, 2); outgoing (4, 1, 1); utility half of the product after one call.
    remedies(1, x)
    torch.testing.assert_close(remedy.state["0 utility"], torch.tensor([4.0, 1.0, 1.0]))
    remedies(2, x)
    torch.testing.assert_close(remedy.state["0 utility"], torch.tensor([6.0, 1.5, 1.5]))
    assert remedy.replaced == 0
    assert remedy.state["0 due"].item() == 0
    remedies(3, x)  # all are mature now: 0.75 of a neuron is due
    assert (remedy.replaced, remedy.state["0 due"].item()) == (0, 0.75)
    with torch.no_grad():
        weight(network, 2)[0, 2] = 0.1
    remedies(4, x)
    assert remedy.replaced == 1
    assert remedy.state["0 due"].item() == 0.5
    torch.testing.assert_close(weight(network, 2), torch.tensor([[4.0, -1.0, 0.0]]))
    assert weight(network, 0)[2].tolist() != [1.0, 1.0]
    assert weight(network, 0)[:2].tolist() == [[1.0, 0.0], [0.0, 2.0]]
    assert remedy.state["0 age"].tolist() == [4, 4, 0]
    remedies(5, x)
    assert remedy.replaced == 1  # 0.5 + 0.25 * 2 mature ones; never the new one
    assert remedy.state["0 age"].tolist()[2] == 1
    assert continual_backprop.Config().period == 10


def test_upgd_gates_the_step_by_utility() -> None:
    network = chain([[1.0, 2.0]], [[3.0]])
    _, optimizer = attached(network, "upgd", decay=0.0, noise=0.0)
    set_gradients(network)
    network[0].weight.grad = torch.tensor([[-4.0, 1.0]])
    optimizer.step()
    # Utilities -g w: (4, -2), of all others 0; over the largest: (1, -0.5).
    gates = 2 * (1 - torch.sigmoid(torch.tensor([[1.0, -0.5]])))
    expected = torch.tensor([[1.0, 2.0]]) - 0.1 * gates * torch.tensor([[-4.0, 1.0]])
    torch.testing.assert_close(weight(network, 0), expected)
    assert weight(network, 2).item() == 3.0


def test_upgds_noise_is_scaled_by_the_rate_and_the_gates() -> None:
    network = chain([[1.0] * 200], [[3.0]])
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    plasticity.attach(network, optimizer, "upgd", {"upgd.noise": 0.2})
    set_gradients(network)
    optimizer.step()
    moved = weight(network, 0) - 1.0  # without utilities all gates are one
    assert 0.8 < moved.std().item() / (0.5 * 0.2) < 1.2
    before = weight(network, 0).clone()
    optimizer.step()
    assert not torch.equal(weight(network, 0) - before, moved)


@pytest.mark.parametrize("kind", [QNetwork, ActorCritic])
@pytest.mark.parametrize("layer", ["plain", "hadamard"])
def test_plasticity_injection_keeps_the_predictions(kind: Any, layer: str) -> None:
    torch.manual_seed(3)
    network = kind(GRID, NetSpec(layer, "tanh", width=6))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    remedies = plasticity.attach(
        network, optimizer, "plasticity_injection", {"plasticity_injection.after": 2}
    )
    obs = observations(GRID, 8)

    def values() -> Tensor:
        output = network(obs)
        return (
            output if isinstance(output, Tensor) else torch.cat([output[0], output[1][:, None]], 1)
        )

    def learn() -> None:
        optimizer.zero_grad()
        values().sub(1).square().sum().backward()
        optimizer.step()

    heads = [module for module in network.children() if isinstance(module, nn.Linear)]
    learn()
    before, old = values().detach(), heads[0].weight.detach().clone()
    encoder = network.encoder.layers[0].affine.weight.detach().clone()
    remedies(1, obs)
    assert torch.equal(values(), before)
    remedies(2, obs)
    torch.testing.assert_close(values(), before)
    assert not torch.equal(heads[0].weight, old)
    assert torch.equal(network.encoder.layers[0].affine.weight, encoder)
    learn()
    assert (values() - before).abs().max() > 1e-3
    # What learns is new: the frozen heads stay as they were.
    frozen = dict(network.named_buffers())
    assert any(torch.equal(buffer, old) for name, buffer in frozen.items() if "old" in name)
    remedies(3, obs)
    assert any(torch.equal(buffer, old) for name, buffer in frozen.items() if "old" in name)


def test_an_injected_network_is_diagnosed_without_its_frozen_heads() -> None:
    network = QNetwork(GRID, NetSpec("hadamard", "tanh", width=6))
    obs = observations(GRID, 64)
    layers = [layer.name for layer in diagnose(network, obs).layers]
    plasticity_injection.prepare(network)
    assert [layer.name for layer in diagnose(network, obs).layers] == layers
