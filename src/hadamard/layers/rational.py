"""Rational activations (PAU): a learned quotient of two polynomials, one for each layer.

f(x) = (a0 + a1 x + ... + a5 x^5) / (1 + |b1 x + ... + b4 x^4|). The denominator is at least 1.

Molina, Schramowski and Kersting, "Pade Activation Units", ICLR 2020; in deep RL Delfosse et al.,
"Adaptive Rational Activations to Boost Deep Reinforcement Learning", ICLR 2024. Both codes have
these degrees, start as a leaky ReLU, and default to a denominator with the absolute value of each
term (ml-research/pau, pau/utils.py and pau/cuda/setup.py; ml-research/rational_activations,
rational/torch/rationals.py). Ours: the absolute value of the sum, the latter's version B, and the
coefficients of our fit to the leaky ReLU on [-3, 3]; with these the two denominators are equal.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# The least squares fit to max(x, 0.01 x) on [-3, 3], which is off by 0.034 at most.
_NUMERATOR = (0.033578, 0.505, 1.652225, 2.006975, 0.929754, 0.15195)
_DENOMINATOR = (0.0, 3.974209, 0.0, 0.300891)


class Rational(nn.Module):
    """A rational activation with coefficients of its own.

    Examples:
        >>> Rational()(torch.tensor([-2.0, 2.0])).round(decimals=1)
        tensor([-0., 2.], grad_fn=<RoundBackward1>)
    """

    #: Its parameters belong to no single neuron.
    shared_by_neurons = True

    def __init__(self) -> None:
        super().__init__()
        self.numerator = nn.Parameter(torch.empty(len(_NUMERATOR)))
        self.denominator = nn.Parameter(torch.empty(len(_DENOMINATOR)))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start close to a leaky ReLU."""
        self.numerator.copy_(torch.tensor(_NUMERATOR))
        self.denominator.copy_(torch.tensor(_DENOMINATOR))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function to every element."""
        above = _polynomial(x, self.numerator)
        below = x * _polynomial(x, self.denominator)
        return above / (1 + below.abs())


def _polynomial(x: Tensor, coefficients: Tensor) -> Tensor:
    """Return c0 + c1 x + c2 x^2 + ... by Horner's rule."""
    *rest, value = coefficients.unbind()
    result = value.expand_as(x)
    for coefficient in reversed(rest):
        result = result * x + coefficient
    return result
