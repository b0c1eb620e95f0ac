"""How HR changes the fraction of dormant neurons, if branches become dormant independently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


def predicted_dormant(p: float, activation: Literal["relu", "tanh"]) -> float:
    """Predict the dormant fraction with HR from the fraction p without it.

    A tanh product is dormant only if both factors are: p^2. A ReLU product is zero if at least one
    factor is: 2p - p^2.

    Examples:
        >>> predicted_dormant(0.5, "tanh"), predicted_dormant(0.5, "relu")
        (0.25, 0.75)
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p is a fraction between 0 and 1, got {p}")
    if activation == "tanh":
        return p * p
    if activation == "relu":
        return 2 * p - p * p
    raise ValueError(f"the theory covers 'tanh' and 'relu', got {activation!r}")


@dataclass(frozen=True)
class Comparison:
    """One row of the paper's Table 1: dormant fractions without and with HR."""

    activation: Literal["relu", "tanh"]
    without: float
    measured: float

    def __post_init__(self) -> None:
        if not 0 <= self.measured <= 1:
            raise ValueError(f"measured is a fraction between 0 and 1, got {self.measured}")
        predicted_dormant(self.without, self.activation)

    @property
    def predicted(self) -> float:
        """The dormant fraction that the theory predicts with HR."""
        return predicted_dormant(self.without, self.activation)

    def _change(self, fraction: float) -> float | None:
        return None if self.without == 0 else (fraction - self.without) / self.without

    @property
    def predicted_change(self) -> float | None:
        """Relative change that the theory predicts; None if no neuron is dormant without HR."""
        return self._change(self.predicted)

    @property
    def measured_change(self) -> float | None:
        """Relative change that was measured; None if no neuron is dormant without HR."""
        return self._change(self.measured)

    def __str__(self) -> str:
        def percent(change: float | None) -> str:
            return "n/a" if change is None else f"{change:+.0%}"

        return (
            f"{self.activation}: dormant {self.without:.2f} without HR; with HR predicted "
            f"{self.predicted:.2f} ({percent(self.predicted_change)}), measured "
            f"{self.measured:.2f} ({percent(self.measured_change)})"
        )
