"""Dormant neurons: the ReLU rule, feature maps, and memory use."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from hadamard.health import dormant
from hadamard.health.samples import as_samples


def test_relu_rule_is_exact_zeros() -> None:
    z = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1e-30, 1.0], [0.0, 0.0, 1.0]])
    dormancy = dormant(z, "relu")
    assert dormancy.mask.tolist() == [True, False, False]
    assert dormancy.fraction == pytest.approx(1 / 3)
    assert dormancy.peaks is None
    assert str(dormancy) == "1 of 3 neurons dormant (33.3%)"
    assert dormant(z).kind == "relu"  # none negative, some zero
    assert dormant(z - 1e-3).kind == "tanh"
    assert dormant(torch.tensor([[-1.0], [0.0], [1.0]])).kind == "tanh"  # some zero, one negative
    assert dormant(torch.rand(8, 2) + 1).kind == "tanh"


def test_positions_of_feature_maps_are_samples_or_neurons() -> None:
    z = torch.randn(50, 2, 1, 2)
    z[:, 0, 0, 0] = 0.7  # constant at one position only
    z[:, 1] = 0.2
    assert dormant(z, "tanh").mask.tolist() == [False, True]
    everywhere = dormant(z, "tanh", positions="neurons")
    assert everywhere.mask.tolist() == [True, False, True, True]
    tokens = torch.randn(50, 7, 3)
    tokens[..., 1] = 0
    assert dormant(tokens, "tanh").mask.tolist() == [False, True, False]
    first = dormant(tokens.movedim(-1, 1), "tanh", feature_dim=1)
    assert first.mask.tolist() == [False, True, False]
    assert as_samples(tokens).shape == (350, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_large_inputs_fit_in_a_gibibyte() -> None:
    script = (
        "import re, torch; from hadamard.health import dormant\n"
        "x = torch.empty(8192, 4096).normal_().tanh_()\n"
        "dormant(x[:64], 'tanh')\n"
        "status = lambda: open('/proc/self/status').read()\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', status())[1])\n"
        "before = peak(); dormant(x, 'tanh'); after = peak(); torch.ones(300 * 2**18)\n"
        "print((after - before) // 1024, (peak() - after) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    used, check = map(int, done.stdout.split())
    assert used < 1024 - 128, f"{used} MiB in addition to the input's 128"
    assert 200 < check < 310  # the script's last 300 MiB, as this measure shows them
