"""Several runs whose weights belong on the sphere, and their steps by a kernel and without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hadamard.compute.sphere import SphereAdam
from hadamard.compute.stacked_sphere import StackedSphereAdam

RATES = 1e-2, 3e-2, 1e-3
STEPS_BEFORE = 0.0, 5.0, 1e6
"""How long each run has learned already."""


def learner(
    shapes: Sequence[tuple[int, ...]], device: str, *, with_targets: bool
) -> StackedSphereAdam:
    """Return the optimizer of three runs; all their matrices of several rows are on the sphere."""
    draw = torch.Generator(device).manual_seed(0)
    runs, rates = len(RATES), torch.tensor(RATES, device=device)
    weights = [torch.randn((runs, *s), generator=draw, device=device) for s in shapes]
    optimizers = []
    for run in range(runs):
        own = [weight[run].requires_grad_() for weight in weights]
        sphere = [weight for weight in own if weight.dim() > 1 and weight.shape[-2] > 1]
        on_gpu = device == "cuda"
        optimizers.append(SphereAdam(own, lr=rates[run], sphere=sphere, capturable=on_gpu))
    named = {str(index): weight for index, weight in enumerate(weights)}
    targets = [torch.zeros_like(weight) for weight in weights] if with_targets else None
    stacked = StackedSphereAdam(named, optimizers, targets, 0.1)
    stacked.steps.copy_(torch.tensor(STEPS_BEFORE))  # those that the step reads
    return stacked


def assert_equal_steps(
    fast: StackedSphereAdam, plain: StackedSphereAdam, kernels: Any, count: int
) -> None:
    """Take so many steps, of one optimizer by these kernels, and compare all that they change."""
    fast.kernels, plain.kernels = kernels, None
    device = fast.weights[0].device
    rates = torch.tensor(RATES, device=device)
    draw = torch.Generator(device).manual_seed(1)
    for _ in range(count):
        gradients = {n: _gradient(w, draw) for n, w in zip(fast.names, fast.weights, strict=True)}
        for optimizer in (fast, plain):
            optimizer.step(gradients, rates)
    for tensor, expected in zip(fast.tensors, plain.tensors, strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)


def _gradient(weight: Tensor, draw: torch.Generator) -> Tensor:
    """Draw numbers of very different sizes."""
    normal, uniform = (torch.empty_like(weight) for _ in range(2))
    return normal.normal_(generator=draw) * 10 ** (-6 * uniform.uniform_(generator=draw))
