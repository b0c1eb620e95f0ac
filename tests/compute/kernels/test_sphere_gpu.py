"""The fused kernel of ``SphereAdam`` equals its three separate steps. Needs a CUDA device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hadamard.compute.sphere import SphereAdam
from hadamard.compute.stacked_sphere import StackedSphereAdam

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("with_targets", [True, False])
def test_the_fused_step_equals_the_separate_ones(with_targets: bool) -> None:
    shapes = [(2, 71, 512), (2, 1, 512), (2, 512, 2048), (2, 3072, 64), (2, 5000, 7), (128, 19), ()]

    def learner() -> tuple[SphereAdam, list[Any], list[Any]]:
        draw = torch.Generator("cuda").manual_seed(0)
        weights = [torch.randn(s, generator=draw, device="cuda").requires_grad_() for s in shapes]
        sphere = [weight for weight in weights if weight.dim() > 1 and weight.shape[-2] > 1]
        rate = torch.tensor(1e-2, device="cuda")
        optimizer = SphereAdam(weights, lr=rate, sphere=sphere, fused=True, capturable=True)
        return optimizer, weights, [weight.detach().clone() for weight in weights]

    fused, separate = learner(), learner()
    assert fused[0].kernels is not None
    separate[0].kernels = None
    for _ in range(20):
        for weight, other in zip(fused[1], separate[1], strict=True):
            weight.grad = torch.randn_like(weight) * 10 ** (-6 * torch.rand_like(weight))
            other.grad = weight.grad.clone()
        for optimizer, _, targets in (fused, separate):
            if with_targets:
                optimizer.step_with_targets(targets, 0.1)
            else:
                optimizer.step()
    for tensor, expected in zip((*fused[1], *fused[2]), (*separate[1], *separate[2]), strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("with_targets", [True, False])
def test_the_fused_step_of_several_runs_equals_the_plain_one(with_targets: bool) -> None:
    shapes = [(2, 71, 512), (2, 1, 512), (2, 512, 2048), (3, 5000, 7), (128, 19), (51,), ()]
    runs, rates = 3, torch.tensor([1e-2, 3e-2, 1e-3], device="cuda")

    def learner() -> tuple[StackedSphereAdam, list[torch.Tensor], list[torch.Tensor]]:
        draw = torch.Generator("cuda").manual_seed(0)
        weights = [torch.randn((runs, *s), generator=draw, device="cuda") for s in shapes]
        targets = [torch.zeros_like(weight) for weight in weights]
        optimizers = []
        for run in range(runs):
            own = [weight[run].requires_grad_() for weight in weights]
            sphere = [weight for weight in own if weight.dim() > 1 and weight.shape[-2] > 1]
            optimizers.append(SphereAdam(own, lr=rates[run], sphere=sphere, capturable=True))
        named = {str(index): weight for index, weight in enumerate(weights)}
        options = {"targets": targets, "tau": 0.1} if with_targets else {}
        stacked = StackedSphereAdam(named, optimizers, **options)
        stacked.steps.copy_(torch.tensor([0.0, 5.0, 1e6]))  # those that the step reads
        return stacked, weights, targets

    fused, plain = learner(), learner()
    assert fused[0].kernels is not None
    plain[0].kernels = None
    for _ in range(20):
        gradients = {
            str(index): torch.randn_like(weight) * 10 ** (-6 * torch.rand_like(weight))
            for index, weight in enumerate(fused[1])
        }
        for optimizer, _, _ in (fused, plain):
            optimizer.step(gradients, rates)
    for tensor, expected in zip(fused[0].tensors, plain[0].tensors, strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-6)
