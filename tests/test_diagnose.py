"""diagnose and Monitor: on any network, in one call, leaving no trace."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hadamard import (
    Hadamard,
    HadamardConv2d,
    HadamardLinear,
    Monitor,
    diagnose,
    health,
    layers,
    mark,
)
from hadamard.health import dormant, effective_rank, hidden_bias
from hadamard.layers import LinearBranch


def sick_network() -> nn.Sequential:
    """tanh, with a third of the second layer saturated by its biases."""
    net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 30), nn.Tanh(), nn.Linear(30, 4))
    with torch.no_grad():
        net[2].bias[:10] = torch.tensor([9.0, -9.0]).repeat(5)
    return net


def nature_cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(4, 8, 8, stride=4),
        nn.ReLU(inplace=True),
        HadamardConv2d(8, 16, 4, stride=2, activation="relu"),
        nn.Flatten(),
        nn.Linear(16 * 81, 64),
        nn.Tanh(),
        HadamardLinear(64, 32),
        nn.Linear(32, 6),
    )


def test_every_number_is_the_one_measured_by_hand() -> None:
    net, x = sick_network(), 2 * torch.randn(400, 6)
    report = diagnose(net, x)
    assert [layer.name for layer in report] == ["1", "3"]
    z = net[:4](x).detach()
    layer = report["3"]
    found = dormant(z, "tanh")
    assert layer.dormant == found.count >= 10
    assert layer.dormant_mask.tolist() == found.mask.tolist()
    assert layer.dormant_fraction == found.fraction
    assert layer.saturated == int((found.mask & (z.mean(0).abs() >= 0.95)).sum()) >= 10
    assert layer.effective_rank == effective_rank(z)
    assert (layer.neurons, layer.samples, layer.full_rank) == (30, 400, 30)
    split = hidden_bias(z, net[4], found.mask)
    assert layer.readers == ("4",)
    assert layer.hidden_bias_share == pytest.approx(split.share)
    assert layer.live_contribution == pytest.approx(float(split.live_contribution.mean()))
    assert layer.dormant_contribution == pytest.approx(float(split.dormant_contribution.mean()))
    assert layer.bias_contribution == pytest.approx(float(split.bias_contribution.mean()))


def test_dead_saturated_and_constant_are_told_apart() -> None:
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


def test_bare_functions_are_representations_too() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2, self.head = nn.Linear(5, 8), nn.Linear(8, 7), nn.Linear(7, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = F.relu(self.fc1(x))
            return self.head(torch.tanh(self.fc2(h)))

    net, x = Net(), torch.randn(50, 5)
    report = diagnose(net, x)
    assert [layer.name for layer in report] == ["fc1:relu", "fc2:tanh"]
    assert [layer.kind for layer in report] == ["relu", "tanh"]
    assert [layer.readers for layer in report] == [("fc2",), ("head",)]
    z = torch.tanh(net.fc2(F.relu(net.fc1(x))))
    assert report[1].effective_rank == effective_rank(z)


def test_marked_modules_come_first() -> None:
    net = sick_network()
    net = nn.Sequential(mark(net[:2], kind="tanh"), net[2:])
    assert [layer.name for layer in diagnose(net, torch.randn(20, 6))] == ["0"]
    encoder = mark(nn.Sequential(nn.Linear(4, 8), nn.Tanh()))
    assert diagnose(encoder, torch.randn(20, 4))[0].neurons == 8
    with pytest.raises(ValueError, match="kind must be"):
        mark(encoder, kind="gelu")


def test_layers_are_chosen_by_name_pattern_or_predicate() -> None:
    net, x = sick_network(), torch.randn(20, 6)
    assert [layer.name for layer in diagnose(net, x, layers="3")] == ["3"]
    assert [layer.name for layer in diagnose(net, x, layers=["1", "[34]"])] == ["1", "3", "4"]
    linear = diagnose(net, x, layers=lambda name, module: isinstance(module, nn.Linear))
    assert [layer.name for layer in linear] == ["0", "2", "4"]


def test_variants_are_measured_after_what_they_do() -> None:
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


def test_sequences_of_a_conv1d_are_read_by_channel() -> None:
    net = nn.Sequential(nn.Conv1d(3, 5, 3), nn.Tanh(), nn.Conv1d(5, 2, 3))
    layer = diagnose(net, torch.randn(20, 3, 12))["1"]
    assert (layer.neurons, layer.samples) == (5, 200)
    z = net[:2](torch.randn(20, 3, 12))
    assert layer.readers == ("2",)
    split = hidden_bias(z, net[2], torch.ones(5).bool(), feature_dim=1)
    torch.testing.assert_close(split.live + split.dormant + split.bias, net[2](z))


def test_readers_are_found_through_any_layout_and_not_imagined() -> None:
    class Rearranged(nn.Module):
        """(batch, channels, length) handed on as (batch, length, channels)."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act, self.fc = nn.Conv1d(3, 5, 3), nn.Tanh(), nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.act(self.conv(x)).transpose(1, 2))

    layer = diagnose(Rearranged(), torch.randn(20, 3, 12))["act"]
    assert layer.readers == ()
    assert layer.hidden_bias_share is None
    assert str(diagnose(Rearranged(), torch.randn(20, 3, 12))).splitlines()[3].endswith("-")

    x = torch.rand(20, 4, 84, 84)
    net = nature_cnn()
    expected = diagnose(net, x)["2"]
    net, x = (thing.to(memory_format=torch.channels_last) for thing in (net, x))
    layer = diagnose(net, x)["2"]
    assert layer.readers == ("4",)  # Flatten makes a copy here
    assert layer.live_contribution == pytest.approx(expected.live_contribution, rel=1e-4)


@pytest.mark.parametrize("positions", ["samples", "neurons"])
def test_feature_maps_flattened_with_channels_last(positions: Any) -> None:
    class Net(nn.Module):
        """The same network, but for the order of the dense layer's inputs."""

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
    expected, found = (diagnose(net, x, positions=positions)["act"] for net in (first, last))
    assert found.readers == expected.readers == ("head",)
    assert expected.dormant > 0
    for part in ("live_contribution", "dormant_contribution", "bias_contribution"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part), rel=1e-5)


def test_heads_on_one_trunk_count_together() -> None:
    class Agent(nn.Module):
        """As CleanRL writes them: methods, and no forward."""

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
    both = torch.cat(
        [hidden_bias(z, head, mask).dormant_contribution for head in (agent.actor, agent.critic)]
    )
    assert layer.dormant_contribution == pytest.approx(float(both.mean()))


def test_in_place_changes_after_the_fact_do_not_show() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act = nn.Linear(4, 8), nn.Tanh()

        def forward(self, x: Tensor) -> Tensor:
            z = self.act(self.fc(x))
            z.zero_()
            return z

    assert diagnose(Net(), torch.randn(30, 4))["act"].dead == 0


def test_a_module_called_twice_is_measured_twice() -> None:
    class Twins(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.act = nn.Linear(4, 4), nn.Tanh()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.act(self.fc(x)) + self.act(self.fc(self.act(self.fc(y))))

    x = torch.randn(30, 4)
    for inputs in ((x, x), {"x": x, "y": x}):
        names = [layer.name for layer in diagnose(Twins(), inputs)]
        assert names == ["act", "act (call 2)", "act (call 3)"]


class Noisy(nn.Module):
    """Everything a diagnosis could disturb: dropout, running statistics, randomness, modes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm, self.act = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()
        self.drop, self.frozen = nn.Dropout(), nn.BatchNorm1d(8).eval()
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        z = self.act(self.norm(self.fc(x))) + torch.rand(8)
        return self.head(self.frozen(self.drop(z)))


def hook_count(net: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())


def test_nothing_is_left_behind() -> None:
    net, x = Noisy(), torch.randn(40, 6, requires_grad=True)
    before, modes = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    state = torch.get_rng_state()
    diagnose(net, x)
    assert hook_count(net) == 0
    assert [m.training for m in net.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    for key, value in net.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert x.grad is None
    assert all(p.grad is None for p in net.parameters())


def test_hooks_go_and_modes_return_after_an_exception() -> None:
    net = Noisy().train()
    modes = [m.training for m in net.modules()]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        diagnose(net, torch.randn(40, 5))
    with pytest.raises(ValueError, match=r"activations of act hold \d+ NaN"):
        diagnose(net, torch.full((40, 6), float("nan")))
    with pytest.raises(ValueError, match="batch of at least 2 observations, got 1"):
        diagnose(net, torch.randn(1, 6))
    assert hook_count(net) == 0
    assert [m.training for m in net.modules()] == modes
    # No function mode stays active: a plain call records nothing and works.
    assert torch.tanh(torch.zeros(1)).item() == 0


def test_compiled_low_precision_and_autocast_networks() -> None:
    net, x = sick_network(), torch.randn(64, 6)
    expected = diagnose(net, x)
    compiled = diagnose(torch.compile(net), x)
    assert compiled.to_dict() == expected.to_dict()
    low = diagnose(copy.deepcopy(net).bfloat16(), x.bfloat16())
    assert low["3"].dormant >= 10
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert diagnose(net, x)["3"].dormant >= 10


def test_bad_networks_and_choices_are_refused() -> None:
    x = torch.randn(10, 6)
    with pytest.raises(ValueError, match=r"Linear showed no hidden representation.*mark them"):
        diagnose(nn.Linear(6, 2), x)
    with pytest.raises(ValueError, match=r"no layer is called 'fc'; nearest: .*has: 0, 1, 2, 3, 4"):
        diagnose(sick_network(), x, layers="fc")
    with pytest.raises(ValueError, match="predicate chose none of: 0, 1"):
        diagnose(sick_network(), x, layers=lambda name, module: False)
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got function"):
        diagnose(lambda x: x, x)
    recurrent = nn.Sequential(nn.LSTM(6, 4))
    with pytest.raises(TypeError, match="0 returned tuple.*choose a layer inside"):
        diagnose(recurrent, x, layers="0")
    idle = nn.ModuleDict({"used": sick_network(), "unused": nn.Tanh()})
    with pytest.raises(ValueError, match="none of unused was called"):
        diagnose(idle, x, layers="unused", forward=idle["used"])
    with pytest.raises(TypeError, match="must be floating point, got torch.int64"):
        diagnose(nn.Sequential(nn.ReLU()), torch.zeros(4, 3, dtype=torch.int64))
    with pytest.raises(KeyError, match="no layer 'x' in this diagnosis; it has: 1, 3"):
        diagnose(sick_network(), x)["x"]


def test_the_report_prints_and_serialises() -> None:
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
    assert repr(report) == text  # what an interactive session shows
    assert report.observations == 300


def train_for(steps: int, **options) -> tuple[Monitor, list[int]]:
    net, calls = sick_network(), []

    def batch() -> Tensor:
        calls.append(1)
        return torch.randn(50, 6)

    with Monitor(net, **options) as monitor:
        for _ in range(steps):
            monitor.step(batch)
    return monitor, calls


def test_monitor_writes_a_line_when_one_is_due(tmp_path: Path) -> None:
    path = tmp_path / "new" / "health.jsonl"
    monitor, calls = train_for(10, every=4, path=path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 8]
    assert len(calls) == 2  # a batch is fetched only when it is needed
    assert rows[1]["layers"] == monitor.latest.to_dict()["layers"]
    train_for(5, every=5, path=path)
    assert len(path.read_text().splitlines()) == 3  # an earlier record is kept


def test_monitor_takes_tensors_steps_and_options() -> None:
    monitor = Monitor(sick_network(), every=100, path=None, layers="3")
    assert monitor.step(torch.randn(20, 6), step=99) is None
    report = monitor.step(torch.randn(20, 6), step=100)
    assert [layer.name for layer in report] == ["3"]
    monitor.close()
    monitor.close()


def test_monitor_mirrors_to_a_real_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor, _ = train_for(6, every=3, path=None, tensorboard=tmp_path / "tb")
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    values = events.Scalars("3/dormant_fraction")
    assert [event.step for event in values] == [3, 6]
    assert values[-1].value == pytest.approx(monitor.latest["3"].dormant_fraction)


def test_a_failing_mirror_does_not_stop_training(tmp_path: Path) -> None:
    class Broken:
        def add_scalar(self, *_: object) -> None:
            raise OSError("disk full")

    path = tmp_path / "health.jsonl"
    with pytest.warns(UserWarning, match="TensorBoard is off from step 2: disk full"):
        train_for(4, every=2, path=path, tensorboard=Broken())
    assert len(path.read_text().splitlines()) == 2


def test_monitor_refuses_bad_arguments() -> None:
    with pytest.raises(ValueError, match="every must be a whole number of steps from 1 on, got 0"):
        Monitor(sick_network(), every=0, path=None)
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got int"):
        Monitor(3, path=None)
    with pytest.raises(TypeError, match="tensorboard must be a folder or a SummaryWriter, got int"):
        Monitor(sick_network(), path=None, tensorboard=3)


def test_the_drawn_neurons_are_the_layers_own() -> None:
    net, x = sick_network(), torch.randn(5000, 6)
    layer = diagnose(net, x)["3"]
    assert layer.drawn_samples.shape == (1667, 16)
    z = net[:4](x).detach().numpy()
    np.testing.assert_allclose(layer.drawn_samples, z[::3, layer.drawn_neurons], rtol=1e-5)
    grid = layer.densities()
    assert grid.density.shape == (16, 200)
    assert grid.dormant.tolist() == layer.dormant_mask[layer.drawn_neurons].tolist()
    areas = np.trapezoid(grid.density, grid.places, axis=1)
    np.testing.assert_allclose(areas, 1, atol=0.05)
    assert health.diagnose is diagnose
