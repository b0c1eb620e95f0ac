"""Where a product of branches starts: the weights that its branches get before training.

Two ordinary layers multiplied are quieter than one: the product of two small tanh is smaller
still, and with zero biases it is an even function, z(-x) = z(x), so a layer that was odd can no
longer tell left from right. ``paper`` keeps that start. The others restore the signal:

- ``scaled`` multiplies all weights by one factor, with which the product of independent branches
  has the second moment of the layer that it replaces. Both moments are those of normal
  pre-activations, for inputs whose squares average one (after a norm, for any inputs).
- ``near_one`` shifts every branch after the first, so that its output starts around one: the
  product starts close to the first branch alone, and the others learn to differ from one.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hadamard.layers.branch import Branch
from hadamard.text import unknown

Start = Literal["paper", "scaled", "near_one"]

_STARTS: tuple[str, ...] = get_args(Start)
_HEIGHT = 0.9
"""Output around which a branch starts, as a share of the most that a bounded activation reaches."""
_FURTHEST = 16.0
"""Largest shift that is tried; bounded activations have reached their bound there."""


def check_start(start: object) -> None:
    """Raise an error for a start that does not exist."""
    if not isinstance(start, str) or start not in _STARTS:
        raise ValueError(unknown("start", str(start), _STARTS))


_PREFERRED: tuple[Start, ...] = ("near_one", "scaled")


def apply_best_start(branches: Sequence[Branch]) -> None:
    """Let a product start near one or, if its branches have no bias for that, scaled."""
    for start in _PREFERRED:
        try:
            apply_start(branches, start)
        except ValueError:  # raised before any branch is changed
            continue
        return


@torch.no_grad()
def apply_start(branches: Sequence[Branch], start: Start) -> None:
    """Change freshly drawn branches of one layer, in place, so that their product starts so."""
    check_start(start)
    if start == "near_one":
        shift = near_one_shift(branches[0].activation)
        for branch in branches[1:]:
            _set_shift(branch, shift)
    elif start == "scaled":
        first = branches[0]
        spread = 1.0 if first.norm is not None else _spread(first.affine)
        factor = matching_factor(first.activation, spread, len(branches))
        for branch in branches:
            _multiply(branch, factor)


def near_one_shift(activation: nn.Module) -> float:
    """Return the pre-activation at which an activation is one, or near its bound if that is less.

    Examples:
        >>> near_one_shift(nn.ReLU()), round(near_one_shift(nn.Tanh()), 2)
        (1.0, 1.47)
    """
    f = _function(activation)
    return shift_towards_one(lambda x: float(f(np.array([x]))[0]), str(activation))


def shift_towards_one(f: Callable[[float], float], name: str) -> float:
    """Return where a function of numbers is one, or near its bound if that is less."""
    top = f(_FURTHEST)
    if not math.isfinite(top) or top <= 0:
        raise ValueError(
            f"start='near_one' needs an activation that becomes positive, and {name} is "
            f"{top:g} at {_FURTHEST:g}: choose start='scaled' or 'paper'"
        )
    return _solved(f, min(1.0, _HEIGHT * top), 0.0, _FURTHEST)


def matching_factor(activation: nn.Module, spread: float, branches: int) -> float:
    """Return the factor on pre-activations with which a product has one branch's second moment.

    Args:
        activation: of all branches.
        spread: standard deviation of one branch's pre-activations.
        branches: number of factors in the product.

    Examples:
        >>> round(matching_factor(nn.ReLU(), 1.0, 2), 4)  # (c**2 / 2)**2 = 1 / 2
        1.1892
    """
    f = _function(activation)
    points, weights = np.polynomial.hermite_e.hermegauss(128)
    weights = weights / weights.sum()

    def second_moment(factor: float) -> float:
        return float(weights @ f(factor * spread * points) ** 2)

    target = second_moment(1.0) ** (1 / branches)
    if not spread:
        return 1.0
    if second_moment(1e3) < target:
        raise ValueError(
            f"{branches} branches of {activation} cannot start='scaled': their product is never as "
            "large as one of them; choose start='near_one' or 'paper'"
        )
    return _solved(second_moment, target, 0.0, 1e3)


def _function(activation: nn.Module) -> Callable[[Any], Any]:
    """Return an activation as a function of arrays."""
    # A copy, because some activations draw random numbers in training mode.
    probed = copy.deepcopy(activation).float().cpu().eval()

    def apply(x: Any) -> Any:
        try:
            return probed(torch.as_tensor(x, dtype=torch.float32)).double().numpy()
        except Exception as error:  # users' activations may raise anything
            raise ValueError(
                f"{activation} cannot be applied to single numbers, which start='near_one' and "
                f"'scaled' need ({error}): choose start='paper'"
            ) from None

    return apply


def _solved(f: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Return where an increasing function reaches a value."""
    for _ in range(60):
        middle = (low + high) / 2
        if f(middle) < target:
            low = middle
        else:
            high = middle
    return round(high, 6)


def _spread(affine: Any) -> float:
    """Return the standard deviation of pre-activations for inputs whose squares average one."""
    weight: Tensor = affine.weight
    variance = weight.float().flatten(1).square().sum(dim=1)
    if affine.bias is not None:
        variance = variance + affine.bias.float().square()
    return float(variance.mean().sqrt())


def _multiply(branch: Branch, factor: float) -> None:
    norm: Any = branch.norm
    affine: Any = branch.affine
    scaled = affine if norm is None else norm
    if getattr(scaled, "weight", None) is None:
        raise ValueError(
            "start='scaled' needs a norm with a learned scale: allow one, or choose another start"
        )
    scaled.weight.mul_(factor)
    if getattr(scaled, "bias", None) is not None:
        scaled.bias.mul_(factor)


def _set_shift(branch: Branch, shift: float) -> None:
    norm: Any = branch.norm
    affine: Any = branch.affine
    bias = getattr(affine if norm is None else norm, "bias", None)
    if bias is None:
        part = "layer" if norm is None else "norm"
        raise ValueError(
            f"start='near_one' needs a bias, and the {part} has none: allow one, or choose "
            "start='scaled' or 'paper'"
        )
    bias.add_(shift)
