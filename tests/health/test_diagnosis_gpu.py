"""The diagnosis is the same on both devices. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hadamard import HadamardLinear, diagnose
from hadamard.health import dormant, effective_rank

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
