"""elu(conv2d(x / 255 - 0.5)) of bytes, or the product of two such, in one GPU kernel.

A byte x is read as the number 256 + x, whose mantissa ends in the bits of x: one cheap integer
operation, and exact. So only the weights are ever rounded (to TF32, where convolutions may use
it), once, beforehand. With s the sum of a channel's rounded weights,
    conv(x / 255 - 0.5) + bias = conv(256 + x) / 255 + bias - (256 / 255 + 0.5) * s.
"""

# Kernels are written in Triton's own language, which has no types.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# 32 * warps <= BLOCK_M, so that every thread has a position of its own.
_TILE = {"BLOCK_M": 128, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
_PARTS = 264
"""Programs that share the positions of a gradient: two for each of a large GPU's processors."""
_TAPS = 128
"""Of a gradient's program."""


@triton.jit
def _to_tf32(x):
    # Nearest with 10 bits of mantissa. A NaN must not become a number by it.
    nearest = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, nearest.to(tl.float32, bitcast=True), x)


@triton.jit
def _pack_kernel(
    weight, bias, packed, offset,
    BIASED: tl.constexpr, TF32: tl.constexpr, WIDTH: tl.constexpr, WIDTH_PADDED: tl.constexpr,
    TAPS: tl.constexpr, TAPS_PADDED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Round the weights, fill them up with zeros, and sum each channel's."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    # Branches of a product are filled up each on its own.
    within = row % WIDTH_PADDED
    channel, real = row // WIDTH_PADDED * WIDTH + within, within < WIDTH
    total = tl.zeros((ROWS,), tl.float32)
    for first in range(0, TAPS_PADDED, BLOCK):
        tap = first + tl.arange(0, BLOCK)
        found = real[:, None] & (tap < TAPS)[None, :]
        w = tl.load(weight + channel[:, None] * TAPS + tap[None, :], mask=found, other=0.0)
        if TF32:
            w = _to_tf32(w)
        tl.store(packed + row[:, None] * TAPS_PADDED + tap[None, :], w)
        total += tl.sum(w, 1)
    start = -(256.0 / 255 + 0.5) * total
    if BIASED:
        start += tl.load(bias + channel, mask=real, other=0.0)
    tl.store(offset + row, start)


@triton.jit
def _activated(sums, offset):
    x = sums * (1 / 255) + offset[None, :]
    # Not expm1, which takes several times as many instructions: they differ by some 1e-7.
    return tl.where(x > 0.0, x, tl.exp(x) - 1.0)


@triton.jit
def _conv_kernel(
    image, packed, offset, out, positions,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr, OUT_CHANNELS: tl.constexpr,
    TAPS_PADDED: tl.constexpr, WIDTH_PADDED: tl.constexpr,
    PRODUCT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # A product of matrices: its rows are the output positions of all images, its columns the
    # output channels, and what is summed over are the taps of the kernel.
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    # Pixels are loaded as (BLOCK_K, BLOCK_M) in one long row. That leaves Triton no choice but to
    # give threads side by side positions side by side, and every thread the same taps: these are
    # then known to the compiler, and a load's address is its window's plus a constant.
    cell = tl.arange(0, BLOCK_K * BLOCK_M)
    # Rows beyond the last position read what that one reads, which needs no mask.
    position = tl.minimum(tl.program_id(0) * BLOCK_M + cell % BLOCK_M, positions - 1)
    number, place = position // (OUT_HEIGHT * OUT_WIDTH), position % (OUT_HEIGHT * OUT_WIDTH)
    corner = (place // OUT_WIDTH * WIDTH + place % OUT_WIDTH) * STRIDE
    window = image + number.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH) + corner

    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    sums_beside = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in tl.static_range(0, CHANNELS * KERNEL_HEIGHT * KERNEL_WIDTH, BLOCK_K):
        tap = first + cell // BLOCK_M
        channel = tap // (KERNEL_HEIGHT * KERNEL_WIDTH)
        row = channel * HEIGHT + tap // KERNEL_WIDTH % KERNEL_HEIGHT
        step = row * WIDTH + tap % KERNEL_WIDTH
        pixel = tl.load(window + step, mask=channel < CHANNELS, other=0)
        pixel = tl.trans(tl.reshape(pixel, (BLOCK_K, BLOCK_M)))
        numbers = (pixel.to(tl.int32) << 15 | 0x43800000).to(tl.float32, bitcast=True)
        # Weights are filled up to whole blocks: no masks.
        taps = first + tl.arange(0, BLOCK_K)
        columns = packed + n[None, :] * TAPS_PADDED + taps[:, None]
        sums = tl.dot(numbers, tl.load(columns), sums, input_precision=PRECISION)
        if PRODUCT:
            beside = tl.load(columns + WIDTH_PADDED * TAPS_PADDED)
            sums_beside = tl.dot(numbers, beside, sums_beside, input_precision=PRECISION)

    result = _activated(sums, tl.load(offset + n))
    if PRODUCT:
        result *= _activated(sums_beside, tl.load(offset + WIDTH_PADDED + n))
    inside = (m < positions)[:, None] & (n < OUT_CHANNELS)[None, :]
    tl.store(out + m.to(tl.int64)[:, None] * OUT_CHANNELS + n[None, :], result, mask=inside)


@triton.jit
def _slope(y):
    """The derivative of the ELU, where it is y."""
    return tl.where(y > 0.0, 1.0, y + 1.0)


@triton.jit
def _gradient_kernel(
    image, factors, grad, out, positions, each,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr, OUT_CHANNELS: tl.constexpr,
    PRODUCT: tl.constexpr, TF32: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    # A product of matrices: taps times channels, summed over a part of the positions.
    n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    cell = tl.arange(0, BLOCK_T * BLOCK_P)
    tap = tl.program_id(1) * BLOCK_T + cell // BLOCK_P
    channel = tap // (KERNEL_HEIGHT * KERNEL_WIDTH)
    row = channel * HEIGHT + tap // KERNEL_WIDTH % KERNEL_HEIGHT
    step = row * WIDTH + tap % KERNEL_WIDTH
    start = tl.program_id(0) * each
    end = tl.minimum(start + each, positions)
    branches: tl.constexpr = 2 if PRODUCT else 1
    precision: tl.constexpr = "tf32" if TF32 else "ieee"
    sums = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    sums_beside = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    for first in range(start, end, BLOCK_P):
        # Beyond the last position pixels are read again, and gradients are zero.
        position = tl.minimum(first + cell % BLOCK_P, end - 1)
        number, place = position // (OUT_HEIGHT * OUT_WIDTH), position % (OUT_HEIGHT * OUT_WIDTH)
        corner = (place // OUT_WIDTH * WIDTH + place % OUT_WIDTH) * STRIDE
        window = image + number.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH) + corner
        pixel = tl.load(window + step, mask=channel < CHANNELS, other=0)
        # Half-integers below 128 are exact in TF32. What comes after the last tap is always 255:
        # with these a sum is the gradient of the bias.
        seen = tl.where(channel < CHANNELS, pixel.to(tl.float32) - 127.5, 255.0)
        seen = tl.reshape(seen, (BLOCK_T, BLOCK_P))
        p = first + tl.arange(0, BLOCK_P)
        inside = (p < end)[:, None] & (n < OUT_CHANNELS)[None, :]
        at = p.to(tl.int64)[:, None] * OUT_CHANNELS
        g = tl.load(grad + at + n[None, :], mask=inside, other=0.0)
        factor = tl.load(factors + at * branches + n[None, :], mask=inside, other=0.0)
        if PRODUCT:
            beside = factors + at * branches + OUT_CHANNELS + n[None, :]
            other = tl.load(beside, mask=inside, other=0.0)
            h = g * factor * _slope(other)
            g *= other
            h = _to_tf32(h) if TF32 else h
            sums_beside = tl.dot(seen, h, sums_beside, input_precision=precision)
        g *= _slope(factor)
        g = _to_tf32(g) if TF32 else g
        sums = tl.dot(seen, g, sums, input_precision=precision)
    width = tl.num_programs(2) * BLOCK_N
    made = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * BLOCK_T
    target = out + (made + tl.arange(0, BLOCK_T))[:, None] * (width * branches) + n[None, :]
    tl.store(target, sums)
    if PRODUCT:
        tl.store(target + width, sums_beside)


@torch.library.custom_op(
    "hadamard::pixel_conv",
    mutates_args=(),
    schema="(Tensor image, Tensor weight, Tensor? bias, int stride, bool product) -> Tensor",
)
def pixel_conv(
    image: Tensor, weight: Tensor, bias: Tensor | None, stride: int, product: bool
) -> Tensor:
    """Return elu(conv2d(image / 255 - 0.5, weight, bias, stride)) of bytes, channels last.

    ``product`` multiplies the first half of its channels by the second. Gradients are those of
    the weights and the bias.
    """
    out: Tensor = _empty(image, weight, bias, stride, product)
    count, width, out_height, out_width = out.shape
    if out.numel() == 0:
        return out
    positions = count * out_height * out_width
    if positions >= 2**31 - _TILE["BLOCK_M"]:
        raise ValueError(f"{count} images are too many at once")
    branches, taps = len(weight) // width, weight[0].numel()
    # No dot product of a GPU is narrower than 16; wider than 64, sums do not fit into registers.
    block = min(64, max(16, triton.next_power_of_2(width)))
    width_padded = -(-width // block) * block
    taps_padded = -(-taps // _TILE["BLOCK_K"]) * _TILE["BLOCK_K"]
    packed = weight.new_empty(branches * width_padded, taps_padded)
    offset = weight.new_empty(branches * width_padded)
    tf32 = torch.backends.cudnn.allow_tf32
    with torch.cuda.device_of(image):
        _pack_kernel[(branches * width_padded // 16,)](
            weight.contiguous(),
            bias,
            packed,
            offset,
            BIASED=bias is not None,
            TF32=tf32,
            WIDTH=width,
            WIDTH_PADDED=width_padded,
            TAPS=taps,
            TAPS_PADDED=taps_padded,
            ROWS=16,
            BLOCK=_TILE["BLOCK_K"],
        )
        _conv_kernel[triton.cdiv(positions, _TILE["BLOCK_M"]), width_padded // block](
            image.contiguous(),
            packed,
            offset,
            out,
            positions,
            **_geometry(image, weight.shape[2:], stride, out),
            TAPS_PADDED=taps_padded,
            WIDTH_PADDED=width_padded,
            PRODUCT=product,
            PRECISION="tf32" if tf32 else "ieee",
            BLOCK_N=block,
            **_TILE,
        )
    return out


@pixel_conv.register_fake
def _empty(
    image: Tensor, weight: Tensor, bias: Tensor | None, stride: int, product: bool
) -> Tensor:
    del bias
    outputs, channels, *kernel = weight.shape
    if image.shape[1] != channels:
        raise ValueError(f"weights for {channels} channels, images have {image.shape[1]}")
    extents = [(size - k) // stride + 1 for size, k in zip(image.shape[2:], kernel, strict=True)]
    return torch.empty(
        (len(image), outputs // 2 if product else outputs, *extents),
        dtype=torch.float32,
        device=image.device,
        memory_format=torch.channels_last,
    )


def _geometry(image: Tensor, kernel: Sequence[int], stride: int, out: Tensor) -> dict[str, int]:
    """Return what both kernels are compiled for."""
    return {
        "CHANNELS": image.shape[1],
        "HEIGHT": image.shape[2],
        "WIDTH": image.shape[3],
        "KERNEL_HEIGHT": kernel[0],
        "KERNEL_WIDTH": kernel[1],
        "STRIDE": stride,
        "OUT_HEIGHT": out.shape[2],
        "OUT_WIDTH": out.shape[3],
        "OUT_CHANNELS": out.shape[1],
    }


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    image, weight, bias, ctx.stride, ctx.product = inputs
    ctx.save_for_backward(image, weight, bias, None if ctx.product else output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    image, weight, bias, factors = ctx.saved_tensors
    if ctx.product:
        # Computing the factors again takes less than keeping them would.
        factors = pixel_conv(image, weight, bias, ctx.stride, False)
    found = pixel_conv_gradient(image, factors, grad, list(weight.shape[2:]), ctx.stride)
    to_bias = None if bias is None else found[:, -1]
    return None, found[:, :-1].reshape(weight.shape), to_bias, None, None


pixel_conv.register_autograd(_backward, setup_context=_remember)


@torch.library.custom_op(
    "hadamard::pixel_conv_gradient",
    mutates_args=(),
    schema="(Tensor image, Tensor factors, Tensor grad, int[] kernel, int stride) -> Tensor",
)
def pixel_conv_gradient(
    image: Tensor, factors: Tensor, grad: Tensor, kernel: list[int], stride: int
) -> Tensor:
    """Return the gradient of the weights, (channels, taps), and in a last column of the bias.

    ``factors`` is what ``pixel_conv`` computes without the product, ``grad`` the gradient of what
    it did compute.
    """
    found: Tensor = _empty_gradient(image, factors, grad, kernel, stride)
    count, width, out_height, out_width = grad.shape
    branches, taps = factors.shape[1] // width, found.shape[1]
    positions = count * out_height * out_width
    block = min(64 // branches, max(16, triton.next_power_of_2(width)))
    wide = triton.cdiv(width, block) * block
    each = triton.cdiv(max(positions, 1), _PARTS)
    parts, blocks = triton.cdiv(positions, each), triton.cdiv(taps, _TAPS)
    sums = grad.new_empty(parts, blocks * _TAPS, branches, wide)
    if sums.numel():
        with torch.cuda.device_of(image):
            _gradient_kernel[parts, blocks, wide // block](
                image.contiguous(),
                factors.contiguous(memory_format=torch.channels_last),
                grad.contiguous(memory_format=torch.channels_last),
                sums,
                positions,
                each,
                **_geometry(image, kernel, stride, grad),
                PRODUCT=branches == 2,
                TF32=torch.backends.cudnn.allow_tf32,
                BLOCK_N=block,
                BLOCK_T=_TAPS,
                BLOCK_P=32,
                num_warps=4,
            )
    total = sums.sum(0)[:taps, :, :width].flatten(1)
    torch.div(total.T, 255, out=found)
    return found


@pixel_conv_gradient.register_fake
def _empty_gradient(
    image: Tensor, factors: Tensor, grad: Tensor, kernel: list[int], stride: int
) -> Tensor:
    del stride
    return grad.new_empty(factors.shape[1], image.shape[1] * kernel[0] * kernel[1] + 1)
