"""Numbers worked out in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor


def array(parameter: Tensor) -> Any:
    return parameter.detach().double().numpy()


def split_between_bins(probability: Any, values: Any, bins: Any) -> Any:
    """``project_on_bins`` as a loop: each atom is split between the two bins beside it."""
    out = np.zeros_like(probability)
    width = (bins[-1] - bins[0]) / (len(bins) - 1)
    for row in range(len(probability)):
        for mass, value in zip(probability[row], values[row], strict=True):
            position = (min(max(value, bins[0]), bins[-1]) - bins[0]) / width
            low = min(math.floor(position + 1e-12), len(bins) - 1)
            high = min(low + 1, len(bins) - 1)
            out[row, low] += mass * (1 - (position - low))
            out[row, high] += mass * (position - low)
    return out


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)
