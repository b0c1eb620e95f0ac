"""The data of a grid of densities: what the diagnosis hands to the figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class KdeGrid:
    """Densities of a few neurons, ready to draw."""

    neurons: npt.NDArray[np.int64]
    places: npt.NDArray[np.float64]
    """Where the density is evaluated, (neurons, points)."""
    density: npt.NDArray[np.float64]
    dormant: npt.NDArray[np.bool_]
    bounded: bool
    """Whether all activations lie between -1 and +1."""
    title: str

    def thinned(self, points: int) -> KdeGrid:
        """Return it at about so many places, the peaks among them."""
        count = self.places.shape[1]
        if count <= points:
            return self
        even = np.linspace(0, count - 1, points).round().astype(np.int64)
        kept = np.sort([_with(even, int(peak)) for peak in self.density.argmax(axis=1)], axis=1)
        return replace(
            self,
            places=np.take_along_axis(self.places, kept, axis=1),
            density=np.take_along_axis(self.density, kept, axis=1),
        )


def _with(even: npt.NDArray[np.int64], place: int) -> npt.NDArray[np.int64]:
    """Return the places with the nearest one moved to ``place``."""
    moved = even.copy()
    moved[np.abs(even - place).argmin()] = place
    return moved
