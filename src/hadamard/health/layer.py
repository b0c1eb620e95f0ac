"""The health of one hidden representation, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hadamard.health import drawing


@dataclass(frozen=True, eq=False)
class LayerHealth:
    """The health of one hidden representation."""

    name: str
    kind: str
    """The rule for dormant neurons: ``relu`` by exact zeros, ``tanh`` by the density's peak."""
    neurons: int
    samples: int
    dormant: int
    """Neurons that give (nearly) the same output for every input."""
    dead: int
    """Neurons that are exactly zero for every input."""
    saturated: int
    """Dormant neurons stuck near -1 or +1: their outgoing weights act as a bias."""
    constant: int
    """Neurons with exactly the same nonzero output for every input."""
    tau_dormant: int
    """Neurons whose mean absolute output is at most 0.025 of the layer's, whatever its scale."""
    effective_rank: int
    stable_rank: float
    entropy_rank: float
    """Roy and Vetterli's effective rank."""
    readers: tuple[str, ...]
    """The affine layers that read this representation."""
    live_contribution: float | None
    """Average absolute contribution of live neurons to an output of the next layer."""
    dormant_contribution: float | None
    bias_contribution: float | None
    dormant_mask: npt.NDArray[np.bool_]
    plotted_neurons: npt.NDArray[np.int64]
    """The neurons whose densities are plotted, evenly spread over the layer."""
    plotted_samples: npt.NDArray[np.float32]
    """Activations of these neurons, (samples, neurons), thinned to at most 2,048 samples."""
    gradient_dormant_fraction: float | None = None
    """Share of neurons whose weights get hardly any gradient; None unless it was asked for."""

    @property
    def dormant_fraction(self) -> float:
        """Dormant share of all neurons."""
        return self.dormant / self.neurons

    @property
    def tau_dormant_fraction(self) -> float:
        """Share of neurons that are dormant by their size beside the layer's."""
        return self.tau_dormant / self.neurons

    @property
    def full_rank(self) -> int:
        """The highest effective rank the layer could have on this batch."""
        return min(self.neurons, self.samples)

    @property
    def hidden_bias_share(self) -> float | None:
        """Dormant neurons' share of the next layer's output; None without a reader."""
        if self.dormant_contribution is None:
            return None
        parts = (self.live_contribution, self.dormant_contribution, self.bias_contribution)
        total = sum(part for part in parts if part is not None)
        return self.dormant_contribution / total if total > 0 else 0.0

    def densities(self) -> drawing.KdeGrid:
        """Estimate the densities of the plotted neurons (the paper's 4 x 4 grid)."""
        return drawing.density_grid(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain Python values, without the arrays."""
        plain = {
            name: value for name, value in vars(self).items() if not isinstance(value, np.ndarray)
        }
        plain["readers"] = list(self.readers)
        plain["full_rank"] = self.full_rank
        plain["dormant_fraction"] = self.dormant_fraction
        plain["tau_dormant_fraction"] = self.tau_dormant_fraction
        plain["hidden_bias_share"] = self.hidden_bias_share
        return plain
