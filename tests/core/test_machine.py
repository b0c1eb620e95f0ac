"""PyTorch's settings and memory during training."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_training_keeps_freed_memory() -> None:
    program = """
import resource, sys, torch
from hadamard.core.config import TrainSpec
from hadamard.core.machine import torch_settings

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        blocks = [torch.ones(1_000_000) for _ in range(8)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults(10)
with torch_settings(TrainSpec(), torch.device("cpu")):
    faults(2)  # the first rounds allocate what is then kept
    print(usual, faults(10))
"""
    words = [sys.executable, "-c", program]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert int(output[1]) < 40 < int(output[0])  # pages may be as large as 2 MiB
