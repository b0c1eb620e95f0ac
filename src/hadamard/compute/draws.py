"""Random numbers of ``core.counter``, with a GPU kernel where there is one."""

from __future__ import annotations

from torch import Tensor

from hadamard.compute import kernels
from hadamard.core import counter


def uniforms(seed: Tensor, step: Tensor, rows: int, lanes: int) -> Tensor:
    """Return numbers in [0, 1) for every seed and step, (..., rows, lanes)."""
    kernel = kernels.load("counter_triton") if seed.is_cuda else None
    if kernel is None:
        return counter.uniforms(seed, step, rows, lanes)
    numbers: Tensor = kernel.uniforms(seed, step, rows, lanes)
    return numbers


def normals(seed: Tensor, step: Tensor, rows: int, lanes: int) -> Tensor:
    """Return normal numbers for every seed and step, (..., rows, lanes)."""
    return counter.normals_from(uniforms(seed, step, rows, lanes + lanes % 2))[..., :lanes]
