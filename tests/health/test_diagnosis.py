"""diagnose: its numbers on many kinds of networks, its errors and its text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hadamard import Hadamard, diagnose, health, layers
from hadamard.health import dormant, effective_rank, hidden_bias
from hadamard.layers import LinearBranch
from tests.support.health import nature_cnn, sick_network


def test_every_number_equals_the_separate_measures() -> None:
    net, x = sick_network(), 2 * torch.randn(400, 6)
    report = diagnose(net, x)
    assert [layer.name for layer in report] == ["1", "3"]
    z = net[:4](x).detach()
    layer = report["3"]
    expected = dormant(z, "tanh")
    assert layer.dormant == expected.count >= 10
    assert layer.dormant_mask.tolist() == expected.mask.tolist()
    assert layer.dormant_fraction == expected.fraction
    assert layer.saturated == int((expected.mask & (z.mean(0).abs() >= 0.95)).sum()) >= 10
    assert layer.effective_rank == effective_rank(z)
    assert (layer.neurons, layer.samples, layer.full_rank) == (30, 400, 30)
    split = hidden_bias(z, net[4], expected.mask)
    assert layer.readers == ("4",)
    assert layer.hidden_bias_share == pytest.approx(split.share)
    assert layer.live_contribution == pytest.approx(float(split.live_contribution.mean()))
    assert layer.dormant_contribution == pytest.approx(float(split.dormant_contribution.mean()))
    assert layer.bias_contribution == pytest.approx(float(split.bias_contribution.mean()))


def test_dead_saturated_and_constant_neurons_are_distinguished() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    with torch.no_grad():
        net[0].weight[1:] = 0
        net[0].bias[1:] = torch.tensor([0.0, 0.5, 20.0])
        net[0].weight[3] = 1e-3
    layer = diagnose(net, 3 * torch.randn(200, 3))["1"]
    assert (layer.dormant, layer.dead, layer.saturated) == (3, 1, 1)
    assert layer.constant == 2  # at tanh(0.5) and, rounded, at 1


def test_a_convolutional_network_with_hadamard_layers() -> None:
    net, x = nature_cnn(), torch.rand(20, 4, 84, 84)
    report = diagnose(net, x)
    assert [layer.name for layer in report] == ["1", "2", "5", "6"]
    assert [layer.kind for layer in report] == ["relu", "relu", "tanh", "tanh"]
    assert [layer.neurons for layer in report] == [8, 16, 64, 32]
    # Read through Flatten, by the joined affine maps, and by the head.
    assert [layer.readers for layer in report] == [("2.affine",), ("4",), ("6.affine",), ("7",)]
    channels = net[:3](x)
    assert report["2"].dormant == dormant(channels, "relu").count
    every = diagnose(net, x, positions="neurons")
    assert every["2"].neurons == 16 * 81
    split = hidden_bias(channels, net[4], torch.from_numpy(every["2"].dormant_mask))
    assert every["2"].hidden_bias_share == pytest.approx(split.share, abs=1e-6)


def test_the_output_of_every_variant_is_measured() -> None:
    net = nn.Sequential(
        layers.build("crelu", LinearBranch(4, 8, "relu")),
        layers.build("hadamard2", LinearBranch(16, 8, "tanh")),
        Hadamard(nn.Linear(8, 5), nn.Sequential(nn.Linear(8, 5), nn.Tanh())),
        layers.build("plain", LinearBranch(5, 3, torch.sin)),
    )
    report = diagnose(net, torch.randn(30, 4))
    assert [(layer.name, layer.neurons) for layer in report] == [
        ("0", 16),
        ("1.0", 8),
        ("1.1", 8),
        ("2", 5),
        ("3.activation", 3),
    ]


def test_neurons_of_a_conv1d_are_its_channels() -> None:
    net = nn.Sequential(nn.Conv1d(3, 5, 3), nn.Tanh(), nn.Conv1d(5, 2, 3))
    layer = diagnose(net, torch.randn(20, 3, 12))["1"]
    assert (layer.neurons, layer.samples) == (5, 200)
    z = net[:2](torch.randn(20, 3, 12))
    assert layer.readers == ("2",)
    split = hidden_bias(z, net[2], torch.ones(5).bool(), feature_dim=1)
    torch.testing.assert_close(split.live + split.dormant + split.bias, net[2](z))


@pytest.mark.parametrize("positions", ["samples", "neurons"])
def test_feature_maps_flattened_with_channels_last(positions: Any) -> None:
    class Net(nn.Module):
        """The same network except for the order of the dense layer's inputs."""

        def __init__(self, last: bool) -> None:
            super().__init__()
            self.conv, self.act, self.head = nn.Conv2d(1, 5, 3), nn.Tanh(), nn.Linear(5 * 4 * 3, 2)
            self.last = last

        def forward(self, x: Tensor) -> Tensor:
            x = self.act(self.conv(x))
            result: Tensor = self.head((x.movedim(1, -1) if self.last else x).flatten(1))
            return result

    first, last = Net(last=False), Net(last=True)
    with torch.no_grad():
        first.conv.bias[:2] = 9.0  # two channels are stuck
    last.load_state_dict(first.state_dict())
    weight = first.head.weight.detach().view(2, 5, 4, 3)
    last.head.weight.data = weight.movedim(1, -1).flatten(1)
    x = torch.randn(200, 1, 6, 5)
    torch.testing.assert_close(last(x), first(x))
    expected, actual = (diagnose(net, x, positions=positions)["act"] for net in (first, last))
    assert actual.readers == expected.readers == ("head",)
    assert expected.dormant > 0
    for part in ("live_contribution", "dormant_contribution", "bias_contribution"):
        assert getattr(actual, part) == pytest.approx(getattr(expected, part), rel=1e-5)


def test_contributions_are_averaged_over_all_readers() -> None:
    class Agent(nn.Module):
        """CleanRL's agent, with methods but without forward."""

        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
            self.actor, self.critic = nn.Linear(16, 3), nn.Linear(16, 1)

        def get_action_and_value(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.trunk(x)
            return self.actor(z), self.critic(z)

    agent, x = Agent(), torch.randn(60, 4)
    with torch.no_grad():
        agent.trunk[0].bias[:8] = 12
    with pytest.raises(
        ValueError, match=r"Agent defines no forward\(\): .*forward=agent.get_value"
    ):
        diagnose(agent, x)
    layer = diagnose(agent, x, forward=agent.get_action_and_value)["trunk.1"]
    assert layer.readers == ("actor", "critic")
    z, mask = agent.trunk(x), torch.from_numpy(layer.dormant_mask)
    contributions = torch.cat(
        [hidden_bias(z, head, mask).dormant_contribution for head in (agent.actor, agent.critic)]
    )
    assert layer.dormant_contribution == pytest.approx(float(contributions.mean()))


def test_bad_networks_and_choices_are_refused() -> None:
    x = torch.randn(10, 6)
    with pytest.raises(
        ValueError, match=r"Linear has no hidden representation to measure.*mark them"
    ):
        diagnose(nn.Linear(6, 2), x)
    with pytest.raises(
        ValueError, match=r"no layer is called 'fc'. The network has: 0, 1, 2, 3, 4"
    ):
        diagnose(sick_network(), x, layers="fc")
    with pytest.raises(ValueError, match="predicate chose none of: 0, 1"):
        diagnose(sick_network(), x, layers=lambda name, module: False)
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got function"):
        diagnose(lambda x: x, x)

    class Counts(nn.Module):
        def forward(self, x: Tensor) -> tuple[int, Tensor]:
            return len(x), x.argmax(1)

    with pytest.raises(TypeError, match="0 returned tuple.*choose a layer inside"):
        diagnose(nn.Sequential(Counts()), x, layers="0")
    idle = nn.ModuleDict({"used": sick_network(), "unused": nn.Tanh()})
    with pytest.raises(ValueError, match="none of unused was called"):
        diagnose(idle, x, layers="unused", forward=idle["used"])
    with pytest.raises(TypeError, match="must be floating point, got torch.int64"):
        diagnose(nn.Sequential(nn.ReLU()), torch.zeros(4, 3, dtype=torch.int64))
    with pytest.raises(KeyError, match="no layer 'x' in this diagnosis; it has: 1, 3"):
        diagnose(sick_network(), x)["x"]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_torchscript_modules_are_refused() -> None:
    x = torch.randn(10, 6)
    for compiled in (torch.jit.script(sick_network()), torch.jit.trace(sick_network().eval(), x)):
        with pytest.raises(TypeError, match="the model is a TorchScript module.*: diagnose the"):
            diagnose(compiled, x)
        mixed = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), compiled)
        with pytest.raises(TypeError, match=r"^'2' is a TorchScript module.*before torch.jit"):
            diagnose(mixed, x)


def test_complex_activations_are_refused_and_complex_weights_are_not_looked_at() -> None:
    net = nn.Sequential(nn.Linear(6, 8, dtype=torch.complex64), nn.Tanh())
    x = torch.randn(10, 6, dtype=torch.complex64)
    message = r"the activations of 1 must be real, got torch.complex64: .*\.abs\(\).*mark\(\)"
    with pytest.raises(TypeError, match=message):
        diagnose(net, x)
    with pytest.raises(TypeError, match=r"Linear has complex weights \(torch.complex64\)"):
        hidden_bias(torch.randn(10, 6), net[0], torch.ones(6).bool())

    class Magnitude(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.abs()

    assert diagnose(nn.Sequential(*net, health.mark(Magnitude())), x)["2"].neurons == 8


def test_the_report_prints_and_serializes() -> None:
    report = diagnose(sick_network(), 2 * torch.randn(300, 6))
    text = str(report)
    lines = text.splitlines()
    assert lines[0] == "Sequential: 2 hidden layers"
    assert lines[1].split() == [
        "layer",
        "neurons",
        "dormant",
        "dead",
        "saturated",
        "constant",
        "eff.",
        "rank",
        "hidden",
        "bias",
    ]
    share = report["3"].hidden_bias_share
    assert f"{report['3'].dormant_fraction:.1%}" in lines[4]
    assert f"{share:.1%}" in lines[4]
    assert f"3: {report['3'].dormant_fraction:.0%} of its neurons hardly respond" in text
    data = json.loads(json.dumps(report.to_dict()))
    assert data["layers"][1]["hidden_bias_share"] == pytest.approx(share)
    assert data["threshold"] == 20
    assert data["verdict"] == report.verdict()
    small = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    assert "hardly respond (none dead" in diagnose(small, 1e-3 * torch.randn(300, 6)).verdict()
    assert "none dead" not in text
    healthy = diagnose(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), 2 * torch.randn(300, 6))
    assert healthy.verdict().startswith("Healthy")
    assert "<td>" in report._repr_html_()
    assert len(report) == 2
    assert report[0] is report["1"]
    assert repr(report) == text  # as an interactive session shows it
    assert report.observations == 300


def test_plotted_samples_are_activations_of_the_layer() -> None:
    net, x = sick_network(), torch.randn(5000, 6)
    layer = diagnose(net, x)["3"]
    assert layer.plotted_samples.shape == (1667, 16)
    z = net[:4](x).detach().numpy()
    np.testing.assert_allclose(layer.plotted_samples, z[::3, layer.plotted_neurons], rtol=1e-5)
    grid = layer.densities()
    assert grid.density.shape == (16, 200)
    assert grid.dormant.tolist() == layer.dormant_mask[layer.plotted_neurons].tolist()
    areas = np.trapezoid(grid.density, grid.places, axis=1)
    np.testing.assert_allclose(areas, 1, atol=0.05)
    assert health.diagnose is diagnose
