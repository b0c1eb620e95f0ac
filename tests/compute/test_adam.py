"""Adam and RAdam take the same steps as PyTorch's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hadamard.compute import jit
from hadamard.compute.adam import Adam, RAdam
from hadamard.compute.optimizers import OptimizerState, set_learning_rate


def gradient(step: int, dtype: torch.dtype) -> torch.Tensor:
    """Return gradients of all sizes: always zero for some weights, from step 200 on for others."""
    draws = torch.randn(2, 300, dtype=dtype)
    gradient = draws[0] * draws[1].exp()
    gradient[:10] = 0
    gradient[10:30] *= step < 200
    return gradient


def difference(ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer, steps: int) -> float:
    """Return the largest difference of the weights over some steps with a falling rate."""
    (mine,), (other,) = ours.param_groups[0]["params"], theirs.param_groups[0]["params"]
    largest = 0.0
    for step in range(steps + 1):
        mine.grad = gradient(step, mine.dtype)
        other.grad = mine.grad.clone()
        for optimizer in (ours, theirs):
            set_learning_rate(optimizer, 1e-2 * (1 - step / steps))
            optimizer.step()
        largest = max(largest, float((mine - other).detach().abs().max()))
    return largest


def pair(dtype: torch.dtype) -> tuple[nn.Parameter, nn.Parameter]:
    start = torch.randn(300, dtype=dtype)
    return nn.Parameter(start), nn.Parameter(start.clone())


Kind = type[Adam] | type[RAdam]
each_kind = pytest.mark.parametrize("kind", [Adam, RAdam])
each_form = pytest.mark.parametrize("fused", [True, False])
PLAIN = {Adam: torch.optim.Adam, RAdam: torch.optim.RAdam}


@each_kind
@each_form
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_steps_equal_torchs(kind: Kind, fused: bool, dtype: torch.dtype, close: float) -> None:
    mine, other = pair(dtype)
    start = mine.detach().clone()
    ours = kind([mine], 1e-2, betas=(0.8, 0.99), eps=1e-6, fused=fused)
    theirs = PLAIN[kind]([other], 1e-2, betas=(0.8, 0.99), eps=1e-6)
    assert difference(ours, theirs, 1_000) < close
    assert torch.equal(mine[:10], start[:10])
    assert (mine[30:] - start[30:]).detach().abs().mean() > 0.05


@each_kind
def test_compiled_steps_equal_torchs(kind: Kind) -> None:
    mine, other = pair(torch.float64)
    compiled = jit.compiler("on", torch.device("cpu"))
    ours = kind([mine], 1e-2, compiled=compiled)
    assert difference(ours, PLAIN[kind]([other], 1e-2), 200) < 1e-14


def advanced(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    (parameter,) = optimizer.param_groups[0]["params"]
    for step in range(8):
        parameter.grad = gradient(step, parameter.dtype)
        optimizer.step()
    return optimizer


def copy_state(source: torch.optim.Optimizer, target: torch.optim.Optimizer) -> None:
    """Load the source's state and weights into the target."""
    saved = copy.deepcopy(OptimizerState(source).state_dict())
    OptimizerState(target).load_state_dict(saved)
    (weights,), (copies,) = (o.param_groups[0]["params"] for o in (source, target))
    with torch.no_grad():
        copies.copy_(weights)
    assert target.state[copies]["step"] == 8


@each_kind
@each_form
def test_a_saved_state_continues_exactly(kind: Kind, fused: bool) -> None:
    mine, other = pair(torch.float32)
    ours, again = advanced(kind([mine], 1e-2, fused=fused)), kind([other], 1e-2, fused=fused)
    copy_state(ours, again)
    assert difference(ours, again, 20) == 0


@each_kind
@each_form
def test_a_state_continues_in_the_form_of_another_device(kind: Kind, fused: bool) -> None:
    # The CPU uses PyTorch's fused loop and the GPU does not, and a run may move between them.
    mine, other = pair(torch.float32)
    first, second = kind([mine], 1e-2, eps=1e-6, fused=fused), kind([other], 1e-2, fused=not fused)
    copy_state(advanced(first), second)
    assert second.param_groups[0]["eps"] == 1e-6
    assert second.param_groups[0]["fused"] is not fused
    assert difference(first, second, 200) < 1e-6


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_state_continues_in_pytorchs_adam(ours_first: bool) -> None:
    mine, other = pair(torch.float32)
    ours, theirs = Adam([mine], 1e-2, eps=1e-6), torch.optim.Adam([other], 1e-2, fused=True)
    first, second = (ours, theirs) if ours_first else (theirs, ours)
    copy_state(advanced(first), second)
    assert second.param_groups[0]["eps"] == first.param_groups[0]["eps"]
    assert difference(first, second, 200) < 1e-6


@each_kind
@each_form
def test_weights_without_a_gradient_do_not_change(kind: Kind, fused: bool) -> None:
    mine, other = pair(torch.float32)
    start = mine.detach().clone()
    ours = kind([mine, other], 1e-2, fused=fused)
    other.grad = torch.ones(300)
    ours.step()
    assert torch.equal(mine, start)
    assert (other != start).all()
    with pytest.raises(ValueError, match=f"{kind.__name__} here takes no closure"):
        ours.step(lambda: 0.0)
