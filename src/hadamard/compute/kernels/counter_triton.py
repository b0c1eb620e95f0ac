"""A GPU kernel for ``core.counter.uniforms``: the same numbers, in one launch."""

# Triton kernels have no type annotations.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256


@triton.jit
def _uniforms(seeds, steps, out, rows, lanes, blocks, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = place < count
    block = place % blocks
    row = place // blocks
    where = row // rows
    step = tl.load(steps + where, mask=valid, other=0)
    k0 = tl.load(seeds + where, mask=valid, other=0).to(tl.uint32)
    k1 = tl.zeros_like(k0)
    c0, c1 = step.to(tl.uint32), (step >> 32).to(tl.uint32)
    c2, c3 = (row % rows).to(tl.uint32), block.to(tl.uint32)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, 0xD2511F53), c0 * 0xD2511F53
        high1, low1 = tl.umulhi(c2, 0xCD9E8D57), c2 * 0xCD9E8D57
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    first = row.to(tl.int64) * lanes + block * 4
    left = lanes - block * 4
    tl.store(out + first, (c0 >> 8).to(tl.float32) * 5.9604644775390625e-08, mask=valid)
    tl.store(
        out + first + 1, (c1 >> 8).to(tl.float32) * 5.9604644775390625e-08, mask=valid & (left > 1)
    )
    tl.store(
        out + first + 2, (c2 >> 8).to(tl.float32) * 5.9604644775390625e-08, mask=valid & (left > 2)
    )
    tl.store(
        out + first + 3, (c3 >> 8).to(tl.float32) * 5.9604644775390625e-08, mask=valid & (left > 3)
    )


def uniforms(seed: Tensor, step: Tensor, rows: int, lanes: int) -> Tensor:
    """Return what ``core.counter.uniforms`` returns."""
    seed, step = torch.broadcast_tensors(seed, step)
    seed, step = seed.contiguous(), step.contiguous()
    out = torch.empty(*seed.shape, rows, lanes, device=seed.device)
    blocks = -(-lanes // 4)
    count = seed.numel() * rows * blocks
    _uniforms[(triton.cdiv(count, _BLOCK),)](
        seed, step, out, rows, lanes, blocks, count, BLOCK=_BLOCK
    )
    return out
