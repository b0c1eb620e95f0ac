"""Many networks diagnosed together: what each has alone, also beside a diverged one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hadamard import HadamardLinear, diagnose, layers
from hadamard.health import Diagnosis, capture, diagnose_together, kde, measuring, rank
from hadamard.layers import LinearBranch
from tests.support.health import assert_same_health

MEMBERS = 5


def vectors(activation: Callable[[], nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 40), activation(), nn.Linear(40, 30), activation(), nn.Linear(30, 4)
    )


def images() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 8, 3),
        nn.ReLU(),
        nn.Conv2d(8, 5, 3),
        nn.Tanh(),
        nn.Flatten(),
        HadamardLinear(5 * 16, 20),
        nn.Linear(20, 3),
    )


class ChannelsLast(nn.Module):
    """Flattens feature maps with the channels last, and has two layers after the last hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu = nn.Conv2d(2, 6, 3), nn.ReLU()
        self.hidden = nn.Sequential(nn.Linear(6 * 36, 24), nn.Tanh())
        self.actor, self.critic = nn.Linear(24, 3), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.hidden(self.relu(self.conv(x)).movedim(1, -1).flatten(1))
        return self.actor(z), self.critic(z)


def crelu() -> nn.Sequential:
    return nn.Sequential(
        layers.build("crelu", LinearBranch(6, 16, "relu")),
        layers.build("hadamard2", LinearBranch(32, 12, "tanh")),
        nn.Linear(12, 2),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: vectors(nn.ReLU),
    "tanh": lambda: vectors(nn.Tanh),
    "hadamard": lambda: nn.Sequential(
        HadamardLinear(6, 30), HadamardLinear(30, 30), nn.Linear(30, 2)
    ),
    "crelu": crelu,
    "images": images,
    "channels last": ChannelsLast,
}


def members(name: str) -> tuple[list[nn.Module], list[Tensor]]:
    """Return networks of one shape, with more sick neurons from one to the next, and inputs."""
    torch.manual_seed(3)
    networks = [NETWORKS[name]() for _ in range(MEMBERS)]
    with torch.no_grad():
        for index, network in enumerate(networks):
            for module in network.modules():
                if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
                    module.bias[:index] += 30 * (-1) ** index
    shape = (2, 8, 8) if name in ("images", "channels last") else (6,)
    return networks, [2 * torch.randn(300, *shape) for _ in networks]


def noise() -> list[torch.Generator]:
    return [torch.Generator().manual_seed(100 + index) for index in range(MEMBERS)]


def alone(
    networks: Sequence[nn.Module], inputs: Sequence[Tensor], **options: Any
) -> list[Diagnosis]:
    return [
        diagnose(network, x, generator=generator, **options)
        for network, x, generator in zip(networks, inputs, noise(), strict=True)
    ]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("positions", ["samples", "neurons"])
def test_each_network_has_the_health_that_it_has_alone(name: str, positions: Any) -> None:
    networks, inputs = members(name)
    expected = alone(networks, inputs, positions=positions, threshold=3.0)
    assert len({layer.dormant for report in expected for layer in report}) > 1
    together = diagnose_together(
        networks, inputs, positions=positions, threshold=3.0, generators=noise()
    )
    for ours, theirs in zip(together, expected, strict=True):
        assert_same_health(ours, theirs)


def test_the_noise_is_each_networks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    networks, inputs = members("tanh")
    draws: list[Tensor] = []
    draw = kde.draw_jitter

    def recorded(samples: Tensor, generator: torch.Generator | None) -> Tensor:
        draws.append(draw(samples, generator))
        return draws[-1]

    monkeypatch.setattr(kde, "draw_jitter", recorded)
    alone(networks, inputs)
    one_by_one = torch.stack(draws).view(MEMBERS, 2, -1)
    draws.clear()
    diagnose_together(networks, inputs, generators=noise())
    assert torch.equal(torch.stack(draws).view(2, MEMBERS, -1).transpose(0, 1), one_by_one)
    samples = torch.randn(1, 300, 1).expand(3, -1, -1)
    seeded = [torch.Generator().manual_seed(seed) for seed in (1, 2, 1)]
    first, second, third = kde.density_peaks(samples, seeded)
    assert torch.equal(first, third)
    assert not torch.equal(first, second)


def test_the_rule_for_dormant_neurons_is_each_networks_own() -> None:
    networks = [nn.Sequential(nn.Linear(3, 4), nn.Identity(), nn.Linear(4, 1)) for _ in range(4)]
    for index, network in enumerate(networks):
        nn.init.zeros_(network[0].weight[: index + 1])
        nn.init.zeros_(network[0].bias[:2])
        if index % 2:  # nothing negative, some zeros: judged as after a ReLU
            network[0].weight.data.abs_()
            network[0].bias.data.abs_()
    inputs = [torch.rand(60, 3) for _ in networks]
    together = diagnose_together(networks, inputs, "1")
    for ours, network, x in zip(together, networks, inputs, strict=True):
        assert_same_health(ours, diagnose(network, x, "1"))
    assert [report["1"].kind for report in together] == ["tanh", "relu", "tanh", "relu"]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("sick", [0, 2])
def test_a_diverged_network_does_not_stop_the_others(name: str, sick: int) -> None:
    networks, inputs = members(name)
    expected = alone(networks, inputs)
    weight = next(networks[sick].parameters())
    nn.init.constant_(weight, float("nan"))
    with pytest.raises(ValueError, match="the network has diverged") as error:
        diagnose(networks[sick], inputs[sick])
    together = diagnose_together(networks, inputs, generators=noise())
    failure = together[sick]
    assert isinstance(failure, ValueError)
    assert str(failure) == str(error.value)
    for index in set(range(MEMBERS)) - {sick}:
        assert_same_health(together[index], expected[index])


class Noisy(nn.Module):
    """Draws in evaluation mode, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = vectors(nn.Tanh)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x + 0.1 * torch.randn_like(x))
        return out


def test_networks_that_draw_leave_the_random_state_as_it_was() -> None:
    networks, inputs = [Noisy() for _ in range(MEMBERS)], torch.randn(MEMBERS, 64, 6)
    before = torch.get_rng_state()
    together = diagnose_together(networks, inputs)
    assert torch.equal(torch.get_rng_state(), before)
    for network, own, report in zip(networks, inputs, together, strict=True):
        assert isinstance(report, Diagnosis)
        assert_same_health(report, diagnose(network, own))
        assert torch.equal(torch.get_rng_state(), before)


def test_a_network_whose_last_layer_diverged_is_named_too() -> None:
    networks, inputs = members("relu")
    nn.init.constant_(networks[1][4].weight, float("inf"))
    together = diagnose_together(networks, inputs)
    assert [isinstance(report, ValueError) for report in together] == [False, True, *[False] * 3]
    assert "Linear returns NaN or infinite values for finite activations" in str(together[1])


@pytest.mark.parametrize("working_bytes", [1, 2**20])
def test_little_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch, working_bytes: int) -> None:
    networks, inputs = members("images")
    expected = alone(networks, inputs)
    monkeypatch.setitem(kde._WORKING_BYTES, "cpu", working_bytes)
    monkeypatch.setitem(rank._WORKING_BYTES, "cpu", working_bytes)
    monkeypatch.setitem(measuring._CAPTURED_BYTES, "cpu", working_bytes)
    together = diagnose_together(networks, inputs, generators=noise())
    for ours, theirs in zip(together, expected, strict=True):
        assert_same_health(ours, theirs)


def test_as_many_networks_are_captured_as_fit_into_memory() -> None:
    """4 MiB of representations on a CPU, 64 MiB on a device of another kind; at least one."""

    def representations(mebibytes: float, device: str) -> list[capture.Representation]:
        values = torch.zeros(2, int(mebibytes * 2**20) // 16, device=device)
        return [capture.Representation(name, "tanh", values, values) for name in ("a", "b")]

    for mebibytes, device, count in (
        (1.0, "cpu", 4),
        (1.3, "cpu", 3),
        (8.0, "cpu", 1),
        (1.0, "meta", 64),
        (80.0, "meta", 1),
    ):
        assert measuring.group_size(representations(mebibytes, device)) == count


def test_checks_of_convergence_may_be_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = torch.tanh(torch.randn(300, 40) * torch.logspace(-3, 0.5, 40))[None]
    often = kde.density_peaks(samples, [None])
    monkeypatch.setitem(kde._STEPS_BETWEEN_CHECKS, "cpu", 3)
    assert torch.equal(kde.density_peaks(samples, [None]), often)


def test_rank_near_the_threshold_is_decided_for_each_matrix() -> None:
    spectra = [[98.9, 1.0], [99.0, 1.0], [99.0 * (1 + 1e-9), 1.0], [0.0, 0.0], [1.0, 1.0]]
    matrices = torch.stack([torch.diag(torch.tensor(s, dtype=torch.float64)) for s in spectra])
    ranks = rank.PendingRanks(matrices, 0.01).results()
    assert ranks == [rank.effective_rank(matrix) for matrix in matrices]
    assert (ranks[0], ranks[3], ranks[4]) == (2, 1, 2)


def test_the_networks_are_left_as_they_are() -> None:
    networks, inputs = members("images")
    before = [network.state_dict() for network in networks]
    saved = [{name: value.clone() for name, value in state.items()} for state in before]
    diagnose_together(networks, inputs)
    for network, expected in zip(networks, saved, strict=True):
        assert network.training
        assert all(
            torch.equal(network.state_dict()[name], value) for name, value in expected.items()
        )
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())


def test_networks_with_other_modules_are_refused() -> None:
    networks = [vectors(nn.ReLU), vectors(nn.Tanh)]
    with pytest.raises(ValueError, match="this Sequential is not like the others: it has other"):
        diagnose_together(networks, torch.randn(2, 50, 6))


def test_readers_are_found_for_feature_maps_that_are_not_numbers() -> None:
    network = ChannelsLast()
    nn.init.constant_(network.conv.weight, float("nan"))
    maps, _ = capture.capture(network, network, torch.randn(4, 2, 8, 8))
    assert [reader.name for reader in maps.readers] == ["hidden.0"]
