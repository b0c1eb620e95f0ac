"""The fused kernel of ``SphereAdam`` equals its three separate steps. Needs a CUDA device."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hadamard.compute.sphere import SphereAdam
from tests.support.sphere import assert_equal_steps, learner

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("with_targets", [True, False])
def test_the_fused_step_equals_the_separate_ones(with_targets: bool) -> None:
    shapes = [(2, 71, 512), (2, 1, 512), (2, 512, 2048), (2, 3072, 64), (2, 5000, 7), (128, 19), ()]

    def of_one_run() -> tuple[SphereAdam, list[Any], list[Any]]:
        draw = torch.Generator("cuda").manual_seed(0)
        weights = [torch.randn(s, generator=draw, device="cuda").requires_grad_() for s in shapes]
        sphere = [weight for weight in weights if weight.dim() > 1 and weight.shape[-2] > 1]
        rate = torch.tensor(1e-2, device="cuda")
        optimizer = SphereAdam(weights, lr=rate, sphere=sphere, fused=True, capturable=True)
        return optimizer, weights, [weight.detach().clone() for weight in weights]

    fused, separate = of_one_run(), of_one_run()
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
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"narrowest": 32, "programs": 1},
        {"registers": 8, "narrowest": 32, "programs": 1, "columns_twice": 16},
        {"registers": 8, "narrowest": 32, "programs": 1, "warps_twice": 8, "per_read_twice": 8},
    ],
)
def test_the_fused_step_of_several_runs_equals_the_plain_one(
    changes: dict[str, Any], with_targets: bool
) -> None:
    shapes = [(2, 71, 512), (2, 1, 512), (2, 512, 2048), (3, 5000, 7), (2, 2048, 512), (51,), ()]
    fast, plain = (learner(shapes, "cuda", with_targets=with_targets) for _ in range(2))
    assert fast.kernels is not None
    tiling = fast.kernels.TILING._replace(**changes)
    kernels = SimpleNamespace(step=functools.partial(fast.kernels.step, tiling=tiling))
    assert_equal_steps(fast, plain, kernels, count=20)
