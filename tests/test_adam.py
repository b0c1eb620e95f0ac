"""Adam and RAdam take the steps of PyTorch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hadamard.core import jit
from hadamard.core.adam import Adam, RAdam
from hadamard.core.optimisers import OptimiserState, set_learning_rate


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


Kind = type[Adam] | type[RAdam]
both = pytest.mark.parametrize("kind", [Adam, RAdam])
either_form = pytest.mark.parametrize("fused", [True, False])
PLAIN = {Adam: torch.optim.Adam, RAdam: torch.optim.RAdam}


@both
@either_form
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_it_steps_as_torch_does(kind: Kind, fused: bool, dtype: torch.dtype, close: float) -> None:
    mine, other = pair(dtype)
    start = mine.detach().clone()
    ours = kind([mine], 1e-2, betas=(0.8, 0.99), eps=1e-6, fused=fused)
    theirs = PLAIN[kind]([other], 1e-2, betas=(0.8, 0.99), eps=1e-6)
    assert race(ours, theirs, 1_000) < close
    assert torch.equal(mine[:10], start[:10])
    assert (mine[30:] - start[30:]).detach().abs().mean() > 0.05


@both
def test_compiled_it_steps_as_torch_does(kind: Kind) -> None:
    mine, other = pair(torch.float64)
    compiled = jit.compiler("on", torch.device("cpu"))
    ours = kind([mine], 1e-2, compiled=compiled)
    assert race(ours, PLAIN[kind]([other], 1e-2), 200) < 1e-14


def advanced(optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
    (parameter,) = optimiser.param_groups[0]["params"]
    for step in range(8):
        parameter.grad = gradient(step, parameter.dtype)
        optimiser.step()
    return optimiser


def handed_over(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
    """Let the other go on where the one is."""
    saved = copy.deepcopy(OptimiserState(one).state_dict())
    OptimiserState(other).load_state_dict(saved)
    (source,), (target,) = (o.param_groups[0]["params"] for o in (one, other))
    with torch.no_grad():
        target.copy_(source)
    assert other.state[target]["step"] == 8


@both
@either_form
def test_a_saved_state_goes_on(kind: Kind, fused: bool) -> None:
    mine, other = pair(torch.float32)
    ours, again = advanced(kind([mine], 1e-2, fused=fused)), kind([other], 1e-2, fused=fused)
    handed_over(ours, again)
    assert race(ours, again, 20) == 0


@both
@either_form
def test_a_state_goes_on_in_the_form_of_another_device(kind: Kind, fused: bool) -> None:
    # A CPU has PyTorch's loop, a GPU has not: a run may move from either to the other.
    mine, other = pair(torch.float32)
    first, second = kind([mine], 1e-2, eps=1e-6, fused=fused), kind([other], 1e-2, fused=not fused)
    handed_over(advanced(first), second)
    assert second.param_groups[0]["eps"] == 1e-6
    assert second.param_groups[0]["fused"] is not fused
    assert race(first, second, 200) < 1e-6


@pytest.mark.parametrize("ours_first", [True, False])
def test_a_state_goes_on_in_torchs_own(ours_first: bool) -> None:
    mine, other = pair(torch.float32)
    one, another = Adam([mine], 1e-2, eps=1e-6), torch.optim.Adam([other], 1e-2, fused=True)
    first, second = (one, another) if ours_first else (another, one)
    handed_over(advanced(first), second)
    assert second.param_groups[0]["eps"] == first.param_groups[0]["eps"]
    assert race(first, second, 200) < 1e-6


@both
@either_form
def test_what_has_no_gradient_stays(kind: Kind, fused: bool) -> None:
    mine, other = pair(torch.float32)
    start = mine.detach().clone()
    ours = kind([mine, other], 1e-2, fused=fused)
    other.grad = torch.ones(300)
    ours.step()
    assert torch.equal(mine, start)
    assert (other != start).all()
    with pytest.raises(ValueError, match=f"{kind.__name__} here takes no closure"):
        ours.step(lambda: 0.0)
