"""RAdam takes the steps of PyTorch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hadamard.core import jit
from hadamard.core.optimisers import OptimiserState, set_learning_rate
from hadamard.core.radam import RAdam


def gradient(step: int, dtype: torch.dtype) -> torch.Tensor:
    """Of all sizes; zero for some weights always, for others after a while."""
    drawn = torch.randn(2, 300, dtype=dtype)
    made = drawn[0] * drawn[1].exp()
    made[:10] = 0
    made[10:30] *= step < 200
    return made


def race(ours: torch.optim.Optimizer, theirs: torch.optim.Optimizer, steps: int) -> float:
    """Return how far the weights part in that many steps, whose rate falls to nothing."""
    (mine,), (other,) = ours.param_groups[0]["params"], theirs.param_groups[0]["params"]
    furthest = 0.0
    for step in range(steps + 1):
        mine.grad = gradient(step, mine.dtype)
        other.grad = mine.grad.clone()
        for optimiser in (ours, theirs):
            set_learning_rate(optimiser, 1e-2 * (1 - step / steps))
            optimiser.step()
        furthest = max(furthest, float((mine - other).detach().abs().max()))
    return furthest


def pair(dtype: torch.dtype) -> tuple[nn.Parameter, nn.Parameter]:
    start = torch.randn(300, dtype=dtype)
    return nn.Parameter(start), nn.Parameter(start.clone())


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_it_steps_as_torch_does(dtype: torch.dtype, close: float) -> None:
    mine, other = pair(dtype)
    start = mine.detach().clone()
    ours = RAdam([mine], 1e-2, betas=(0.8, 0.99), eps=1e-6)
    theirs = torch.optim.RAdam([other], 1e-2, betas=(0.8, 0.99), eps=1e-6)
    assert race(ours, theirs, 600) < close
    assert torch.equal(mine[:10], start[:10])
    assert (mine[30:] - start[30:]).detach().abs().mean() > 0.05


def test_compiled_it_steps_as_torch_does() -> None:
    mine, other = pair(torch.float64)
    compiled = jit.compiler("on", torch.device("cpu"))
    ours = RAdam([mine], 1e-2, compiled=compiled)
    assert race(ours, torch.optim.RAdam([other], 1e-2), 200) < 1e-14


def test_a_saved_state_goes_on() -> None:
    mine, other = pair(torch.float32)
    ours = RAdam([mine], 1e-2)
    for step in range(8):
        mine.grad = gradient(step, torch.float32)
        ours.step()
    again = RAdam([other], 1e-2)
    OptimiserState(again).load_state_dict(copy.deepcopy(OptimiserState(ours).state_dict()))
    with torch.no_grad():
        other.copy_(mine)
    assert again.state[other]["step"] == 8
    assert race(ours, again, 20) == 0


def test_what_has_no_gradient_stays() -> None:
    mine, other = pair(torch.float32)
    start = mine.detach().clone()
    ours = RAdam([mine, other], 1e-2)
    other.grad = torch.ones(300)
    ours.step()
    assert torch.equal(mine, start)
    assert (other != start).all()
    with pytest.raises(ValueError, match="takes no closure"):
        ours.step(lambda: 0.0)
