"""elu(conv2d(x)) of feature maps, or the product of two such, in one GPU kernel: forward only."""

# Kernels are written in Triton's own language, which has no types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE = {"BLOCK_M": 128, "num_warps": 4, "num_stages": 3}


@triton.jit
def _activated(x):
    # Not expm1, which takes several times as many instructions: they differ by some 1e-7.
    return tl.where(x > 0.0, x, tl.exp(x) - 1.0)


@triton.jit
def _conv_kernel(
    maps, packed, bias, out, positions,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr, OUT_CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr, BIASED: tl.constexpr, PRODUCT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    # A product of matrices: its rows are the output positions of all maps, its columns the output
    # channels, and what is summed over are the input channels under each tap of the kernel.
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.arange(0, BLOCK_C)
    # Rows beyond the last position read what that one reads, which needs no mask.
    position = tl.minimum(m, positions - 1)
    number, place = position // (OUT_HEIGHT * OUT_WIDTH), position % (OUT_HEIGHT * OUT_WIDTH)
    corner = (place // OUT_WIDTH * WIDTH + place % OUT_WIDTH) * (STRIDE * CHANNELS)
    window = maps + number.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH) + corner
    wanted = n < OUT_CHANNELS

    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    sums_beside = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    blocks: tl.constexpr = (CHANNELS + BLOCK_C - 1) // BLOCK_C
    for step in range(KERNEL_HEIGHT * KERNEL_WIDTH * blocks):
        tap, channel = step // blocks, step % blocks * BLOCK_C + c
        known = channel < CHANNELS
        shift = (tap // KERNEL_WIDTH * WIDTH + tap % KERNEL_WIDTH) * CHANNELS
        x = tl.load(window[:, None] + (shift + channel)[None, :], mask=known[None, :], other=0.0)
        rows = packed + (tap * CHANNELS + channel)[:, None] * OUTPUTS + n[None, :]
        inside = known[:, None] & wanted[None, :]
        sums = tl.dot(x, tl.load(rows, mask=inside, other=0.0), sums, input_precision=PRECISION)
        if PRODUCT:
            beside = tl.load(rows + OUT_CHANNELS, mask=inside, other=0.0)
            sums_beside = tl.dot(x, beside, sums_beside, input_precision=PRECISION)

    if BIASED:
        sums += tl.load(bias + n, mask=wanted, other=0.0)[None, :]
    result = _activated(sums)
    if PRODUCT:
        if BIASED:
            sums_beside += tl.load(bias + OUT_CHANNELS + n, mask=wanted, other=0.0)[None, :]
        result *= _activated(sums_beside)
    inside = (m < positions)[:, None] & wanted[None, :]
    tl.store(out + m.to(tl.int64)[:, None] * OUT_CHANNELS + n[None, :], result, mask=inside)


@torch.library.custom_op("hadamard::map_conv", mutates_args=())
def map_conv(
    maps: Tensor, weight: Tensor, bias: Tensor | None, stride: int, product: bool
) -> Tensor:
    """Return elu(conv2d(maps, weight, bias, stride)), channels last; it has no gradient.

    ``product`` multiplies the first half of its channels by the second.
    """
    out: Tensor = _empty(maps, weight, bias, stride, product)
    count, width, out_height, out_width = out.shape
    positions = count * out_height * out_width
    if positions == 0:
        return out
    if positions >= 2**31 - _TILE["BLOCK_M"]:
        raise ValueError(f"{count} maps are too many at once")
    outputs, channels, kernel_height, kernel_width = weight.shape
    # No dot product of a GPU is narrower than 16; wider than 64, sums do not fit into registers.
    block = min(64, max(16, triton.next_power_of_2(width)))
    with torch.cuda.device_of(maps):
        _conv_kernel[triton.cdiv(positions, _TILE["BLOCK_M"]), triton.cdiv(width, block)](
            maps.contiguous(memory_format=torch.channels_last),
            weight.permute(2, 3, 1, 0).contiguous(),
            bias,
            out,
            positions,
            CHANNELS=channels,
            HEIGHT=maps.shape[2],
            WIDTH=maps.shape[3],
            KERNEL_HEIGHT=kernel_height,
            KERNEL_WIDTH=kernel_width,
            STRIDE=stride,
            OUT_HEIGHT=out_height,
            OUT_WIDTH=out_width,
            OUT_CHANNELS=width,
            OUTPUTS=outputs,
            BIASED=bias is not None,
            PRODUCT=product,
            PRECISION="tf32" if torch.backends.cudnn.allow_tf32 else "ieee",
            BLOCK_C=min(32, max(16, triton.next_power_of_2(channels))),
            BLOCK_N=block,
            **_TILE,
        )
    return out


@map_conv.register_fake
def _empty(maps: Tensor, weight: Tensor, bias: Tensor | None, stride: int, product: bool) -> Tensor:
    del bias
    outputs, channels, *kernel = weight.shape
    if maps.shape[1] != channels:
        raise ValueError(f"weights for {channels} channels, maps have {maps.shape[1]}")
    extents = [(size - k) // stride + 1 for size, k in zip(maps.shape[2:], kernel, strict=True)]
    return torch.empty(
        (len(maps), outputs // 2 if product else outputs, *extents),
        dtype=torch.float32,
        device=maps.device,
        memory_format=torch.channels_last,
    )
