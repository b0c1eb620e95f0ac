"""The data of a figure with one small density per neuron."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class KdeGrid:
    """Densities of a few neurons, ready to draw."""

    neurons: npt.NDArray[np.int64]
    places: npt.NDArray[np.float64]
    """The places at which the density is known, (neurons, points)."""
    density: npt.NDArray[np.float64]
    dormant: npt.NDArray[np.bool_]
    bounded: bool
    """Whether all activations lie between -1 and +1."""
    title: str
