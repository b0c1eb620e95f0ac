"""ReDo recycles the dormant neurons and nothing else."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.layers import variants
from hadamard.nets.heads import QNetwork
from hadamard.nets.hidden import Hidden
from hadamard.plasticity.redo import ReDo, neuron_scores
from tests.support.checkpoints import same
from tests.support.nets import FRAMES, GRID, VECTOR, observations


def learner(
    variant: str, env: EnvSpec, activation: str = "relu", norm: str = "none"
) -> tuple[QNetwork, torch.optim.Optimizer, Tensor]:
    """Return a network after a few updates, so that the optimizer has moments of every weight."""
    net = NetSpec(layer=variant, activation=activation, width=12, where="all", norm=norm)
    network = QNetwork(env, net)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    obs = observations(env, 32)
    for _ in range(3):
        optimizer.zero_grad()
        network(obs).sub(1).square().sum().backward()
        optimizer.step()
    return network, optimizer, obs


def silence(hidden: Hidden, neuron: int) -> None:
    """Make a neuron output exactly zero by its incoming parameters, in every branch."""
    rows = len(hidden.affine.weight)
    width = min(rows, hidden.outputs)
    with torch.no_grad():
        for parameter in hidden.layer.parameters():
            parameter[neuron % width :: width] = 0


def snapshot(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in network.named_parameters():
        tensors[name] = parameter.detach().clone()
        for moment in ("exp_avg", "exp_avg_sq", "step"):
            tensors[f"{name} {moment}"] = optimizer.state[parameter][moment].clone()
    return tensors


def recycled_parts(network: QNetwork, chosen: list[list[int]]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return each parameter's masks of rows to reinitialize and of inputs to set to zero."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    masks = {
        name: (torch.zeros(p.shape, dtype=torch.bool), torch.zeros(p.shape, dtype=torch.bool))
        for name, p in network.named_parameters()
    }
    layers = network.encoder.layers
    readers = [layer.affine.weight for layer in layers[1:]] + [network.values.weight]
    for layer, neurons, reader in zip(layers, chosen, readers, strict=True):
        rows = len(layer.affine.weight)
        width = min(rows, layer.outputs)
        for neuron in neurons:
            for parameter in layer.layer.parameters():
                masks[names[id(parameter)]][0][neuron::width] = True
            for output in range(neuron, layer.outputs, width):
                # After a Flatten, a channel is one input per position.
                masks[names[id(reader)]][1][:, output :: layer.outputs] = True
    return masks


@pytest.mark.parametrize("env", [VECTOR, GRID, FRAMES], ids=["vector", "grid", "frames"])
@pytest.mark.parametrize(
    ("variant", "activation", "norm"),
    [
        ("plain", "relu", "none"),
        ("plain", "tanh", "layer"),
        ("hadamard", "tanh", "none"),
        ("hadamard", "relu", "layer"),
        ("hadamard2", "tanh", "none"),
        ("widened", "tanh", "none"),
        ("crelu", "relu", "none"),
        ("layernorm", "relu", "none"),
    ],
)
def test_redo_recycles_the_dormant_neurons_and_nothing_else(
    variant: str, activation: str, norm: str, env: EnvSpec
) -> None:
    network, optimizer, obs = learner(variant, env, activation, norm)
    layers = network.encoder.layers
    silenced = [[0, 3] for _ in layers]
    silenced[-2] = [5]
    for layer, neurons in zip(layers, silenced, strict=True):
        for neuron in neurons:
            silence(layer, neuron)
    # Which neurons are dormant, computed independently: by mean magnitude over batch and
    # positions, for both outputs of a concatenated activation.
    chosen = []
    x = obs.float() / (255 if env.frames > 1 else 1)
    with torch.no_grad():
        for layer in layers:
            if isinstance(layer.affine, nn.Linear) and x.dim() == 4:
                x = x.permute(0, 2, 3, 1).flatten(1)
            x = layer(x)
            magnitude = x.abs().numpy().swapaxes(0, 1).reshape(x.shape[1], -1).mean(1)
            width = min(len(layer.affine.weight), layer.outputs)
            low = (magnitude / magnitude.mean() <= 0.01).reshape(-1, width).all(0)
            chosen.append(np.flatnonzero(low).tolist())
    for neurons, dormant in zip(silenced, chosen, strict=True):
        assert set(neurons) <= set(dormant)
    assert all(len(dormant) < layer.outputs for dormant, layer in zip(chosen, layers, strict=True))
    before = snapshot(network, optimizer)
    redo = ReDo(network, optimizer, tau=0.01, period=10, seed=4)
    global_state = torch.get_rng_state()
    redo(19, obs)
    assert same(snapshot(network, optimizer), before)  # 19 is no multiple of the period
    redo(20, obs)
    assert torch.equal(torch.get_rng_state(), global_state)
    assert redo.recycled == sum(map(len, chosen))

    after = snapshot(network, optimizer)
    for name, (reinitialized, zeroed) in recycled_parts(network, chosen).items():
        changed_entries = reinitialized | zeroed
        assert torch.equal(after[name][~changed_entries], before[name][~changed_entries]), name
        fresh = after[name][reinitialized]
        if name.endswith("affine.weight"):
            bound = before[name][0].numel() ** -0.5 * (1 + 1e-6)
            assert ((fresh != 0) & (fresh.abs() <= bound)).all()
        if "norm.weight" in name:
            assert (fresh == 1).all()
        assert (after[name][zeroed & ~reinitialized] == 0).all()
        for moment in ("exp_avg", "exp_avg_sq"):
            key = f"{name} {moment}"
            assert (after[key][changed_entries] == 0).all(), key
            assert torch.equal(after[key][~changed_entries], before[key][~changed_entries]), key
        assert torch.equal(after[f"{name} step"], before[f"{name} step"])


@pytest.mark.parametrize("env", [VECTOR, GRID, FRAMES], ids=["vector", "grid", "frames"])
@pytest.mark.parametrize("variant", sorted({*variants()} - {"layernorm", "hadamax", "fourier"}))
def test_recycling_silent_neurons_leaves_the_networks_output(variant: str, env: EnvSpec) -> None:
    # Silent neurons output zero before, and their outgoing weights are zero after. Norms are left
    # out, whose statistics include the new rows, and cosines, which are 1 for a unit of 0.
    network, optimizer, obs = learner(variant, env, "tanh")
    for layer in network.encoder.layers:
        silence(layer, 1)
    output = network(obs).detach()
    redo = ReDo(network, optimizer, tau=0.0, period=1)
    redo(1, obs)
    assert redo.recycled == len(network.encoder.layers)
    assert torch.equal(network(obs), output)
    for layer in network.encoder.layers:
        assert neuron_scores(network, obs)[layer][1] > 0


def test_recycled_rows_of_both_branches_are_new_and_different() -> None:
    network, optimizer, obs = learner("hadamard", VECTOR, "tanh")
    layer = network.encoder.layers[-1]
    with torch.no_grad():
        # One silent branch makes the product zero, so the live branch is reinitialized too.
        layer.affine.weight[2] = 0
        layer.affine.bias[2] = 0
    before = layer.affine.weight.detach().clone()
    ReDo(network, optimizer, tau=0.0, period=1)(1, obs)
    after = layer.affine.weight.detach()
    changed = (after != before).any(1).nonzero().flatten().tolist()
    assert changed == [2, 2 + 12]
    assert (after[[2, 14]] != before[[2, 14]]).all()
    assert not (after[2] == after[14]).any()


def test_a_concatenated_neuron_with_one_live_side_stays() -> None:
    network, optimizer, obs = learner("crelu", GRID)
    layer = network.encoder.layers[-1]
    with torch.no_grad():
        layer.affine.bias[4] = 100.0  # always positive: its negative side is all zero
    scores = neuron_scores(network, obs)[layer]
    assert scores[4] > 1
    assert scores[4 + 12] == 0
    before = snapshot(network, optimizer)
    ReDo(network, optimizer, tau=0.0, period=1)(1, obs)
    assert same(snapshot(network, optimizer), before)


def test_redo_draws_the_same_for_the_same_update_only() -> None:
    network, _, obs = learner("hadamard", GRID, "tanh")
    silence(network.encoder.layers[-1], 1)
    results = []
    for seed, update in ((0, 10), (0, 10), (0, 20), (1, 10)):
        again = copy.deepcopy(network)
        redo = ReDo(again, torch.optim.Adam(again.parameters()), tau=0.0, period=10, seed=seed)
        redo(update, obs)
        assert redo.recycled == 1
        results.append(again.encoder.layers[-1].affine.weight.detach()[1])
    assert torch.equal(results[0], results[1])
    assert not (results[0] == results[2]).any()
    assert not (results[0] == results[3]).any()


def test_scores_are_relative_to_the_layers_mean() -> None:
    network, _, obs = learner("plain", VECTOR)
    layer = network.encoder.layers[0]
    with torch.no_grad():
        layer.affine.weight.zero_()
        layer.affine.bias.copy_(torch.arange(12.0))
    scores = neuron_scores(network, obs)[layer]
    torch.testing.assert_close(scores, torch.arange(12.0) / 5.5)
    assert len(layer._forward_hooks) == 0
