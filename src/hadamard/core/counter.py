"""Random numbers as a function of seed, step and row, the same on every device.

A generator with a state would give a run other numbers in a fleet than alone. These numbers come
from Philox 4x32-10 (Salmon et al. 2011): a seed is the key, and where a number is used (step, row,
lane) is the counter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_MASK = 0xFFFFFFFF


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return four 32-bit numbers for four counters and two keys, all held in int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _product(_MULTIPLIERS[0], c0)
        high1, low1 = _product(_MULTIPLIERS[1], c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def _product(a: int, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the high and the low half of a 64-bit product."""
    # The product wraps around into the sign; the mask removes the sign from the high half.
    product = (a - 2**32) * b + (b << 32) if a >= 2**31 else a * b
    return (product >> 32) & _MASK, product & _MASK


def uniforms(seed: Tensor, step: Tensor, rows: int, lanes: int) -> Tensor:
    """Return numbers in [0, 1), multiples of 2^-24, for every seed and step: (..., rows, lanes).

    Args:
        seed: 32-bit seeds, int64.
        step: Steps, int64, of a shape that broadcasts with the seeds'.
        rows: How many environments, or other things that draw independently.
        lanes: How many numbers each of them needs.
    """
    row = torch.arange(rows, device=seed.device).view(rows, 1)
    block = torch.arange(-(-lanes // 4), device=seed.device)
    seed, step = seed[..., None, None], step[..., None, None]
    shape = torch.broadcast_shapes(seed.shape, step.shape, row.shape, block.shape)
    counter = tuple(part.expand(shape) for part in (step & _MASK, (step >> 32) & _MASK, row, block))
    numbers = philox(counter, (seed.expand(shape), torch.zeros_like(seed).expand(shape)))
    bits = torch.stack(numbers, -1).flatten(-2)[..., :lanes]
    return (bits >> 8).to(torch.float32) * 2.0**-24


def normals(seed: Tensor, step: Tensor, rows: int, lanes: int) -> Tensor:
    """Return numbers with mean 0 and variance 1, (..., rows, lanes); see ``uniforms``."""
    return normals_from(uniforms(seed, step, rows, lanes + lanes % 2))[..., :lanes]


def normals_from(uniform: Tensor) -> Tensor:
    """Turn every two uniform numbers of the last dimension into two normal ones (Box-Muller).

    They are at most 5.8, because the uniform numbers are multiples of 2^-24.
    """
    first, second = uniform.unflatten(-1, (-1, 2)).unbind(-1)
    length, angle = (-2 * (1 - first).log()).sqrt(), 2 * math.pi * second
    return torch.stack([length * angle.cos(), length * angle.sin()], -1).flatten(-2)


def permutations(seed: Tensor, step: Tensor, length: int) -> Tensor:
    """Return a random order of ``length`` things for each run, (len(seed), length)."""
    keys = uniforms(seed, step, length, 2)
    # 48 random bits: two things hardly ever have the same key.
    order = keys[..., 0].double() + keys[..., 1].double() * 2.0**-24
    return order.argsort(dim=1, stable=True)
