"""The diagnosis is the same on both devices. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hadamard import HadamardLinear, diagnose
from hadamard.health import diagnose_together, dormant, effective_rank
from tests.support.health import assert_same_health

pytestmark = pytest.mark.gpu


def test_the_diagnosis_is_the_same_on_both_devices() -> None:
    pre = torch.randn(2048, 300) * torch.logspace(-3, 0.5, 300) + 2 * torch.randn(300)
    z = torch.tanh(pre)
    on_cpu, on_gpu = dormant(z), dormant(z.cuda())
    assert 0 < on_cpu.count < 300
    assert torch.equal(on_cpu.mask, on_gpu.mask.cpu())
    torch.testing.assert_close(on_cpu.peaks, on_gpu.peaks.cpu(), rtol=1e-4, atol=0)
    assert torch.equal(dormant(z.cuda()).peaks, on_gpu.peaks)  # the same every time
    assert effective_rank(z) == effective_rank(z.cuda())
    net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), HadamardLinear(64, 32), nn.Linear(32, 2))
    x = torch.randn(512, 8)
    cpu, gpu = diagnose(net, x), diagnose(net.cuda(), x.cuda())
    for ours, theirs in zip(cpu, gpu, strict=True):
        assert ours.dormant == theirs.dormant
        assert ours.effective_rank == theirs.effective_rank
        assert ours.hidden_bias_share == pytest.approx(theirs.hidden_bias_share, abs=1e-4)


@pytest.mark.parametrize("width", [24, 64, 300])
def test_networks_diagnosed_together_have_the_health_that_they_have_alone(width: int) -> None:
    networks, inputs = [], torch.randn(6, 700, 8).cuda()
    for index in range(6):
        hidden = HadamardLinear(32, width)
        network = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), hidden, nn.Linear(width, 2)).cuda()
        nn.init.constant_(network[0].bias[: 5 * index], 20.0)
        networks.append(network)

    def noise() -> list[torch.Generator]:
        return [torch.Generator("cuda").manual_seed(index) for index in range(6)]

    expected = [
        diagnose(network, x, generator=generator)
        for network, x, generator in zip(networks, inputs, noise(), strict=True)
    ]
    nn.init.constant_(networks[3][3].weight, float("nan"))
    together = diagnose_together(networks, inputs, generators=noise())
    assert isinstance(together[3], ValueError)
    for index in (0, 1, 2, 4, 5):
        assert_same_health(together[index], expected[index])
