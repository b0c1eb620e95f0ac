"""The kernel of random numbers gives the numbers of the CPU. Needs a CUDA device."""

from __future__ import annotations

import pytest
import torch

from hadamard.compute import draws, kernels
from hadamard.core import counter

pytestmark = pytest.mark.gpu

SEEDS = torch.tensor([0, 7, 2**31, 2**32 - 1])
STEPS = torch.tensor([0, 1, 2**32 - 1, 2**32, 2**40 + 3])


@pytest.mark.parametrize(("rows", "lanes"), [(1, 1), (3, 2), (5, 4), (7, 9), (130, 33)])
def test_the_kernel_gives_the_same_numbers(rows: int, lanes: int) -> None:
    kernel = kernels.load("counter_triton")
    for seed, step in ((SEEDS, STEPS[:4]), (SEEDS[:, None], STEPS), (SEEDS[:1], STEPS)):
        expected = counter.uniforms(seed, step, rows, lanes)
        for uniforms in (kernel.uniforms, draws.uniforms, counter.uniforms):
            numbers = uniforms(seed.cuda(), step.cuda(), rows, lanes)
            assert numbers.dtype == torch.float32
            assert torch.equal(numbers.cpu(), expected)


def test_permutations_are_those_of_the_cpu() -> None:
    step = torch.full_like(SEEDS, 3)
    expected = counter.permutations(SEEDS, step, 4_096)
    assert torch.equal(counter.permutations(SEEDS.cuda(), step.cuda(), 4_096).cpu(), expected)
