"""GPU kernel for elu(conv2d(x / 255 - 0.5)) of bytes, or the product of two of these.

A byte x is read as the number 256 + x, whose mantissa ends in the bits of x: one cheap integer
operation, and exact. So only the weights are rounded (to TF32, where convolutions may use it), and
only once, before the convolution. With s the sum of a channel's rounded weights,
    conv(x / 255 - 0.5) + bias = conv(256 + x) / 255 + bias - (256 / 255 + 0.5) * s.
"""

# Triton kernels have no type annotations.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# 32 * warps <= BLOCK_M, so that every thread has its own position.
_TILE = {"BLOCK_M": 128, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2}
_PARTS = 264
"""Programs of the gradient kernel that share the positions: two per processor of a large GPU."""
_TAPS = 128
"""Taps of the convolution kernel that a program of the gradient kernel handles."""


@triton.jit
def _to_tf32(x):
    # Round to nearest with 10 bits of mantissa; NaN stays NaN.
    nearest = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, nearest.to(tl.float32, bitcast=True), x)


@triton.jit
def _pack_kernel(
    weight, bias, packed, offset,
    BIASED: tl.constexpr, TF32: tl.constexpr, WIDTH: tl.constexpr, WIDTH_PADDED: tl.constexpr,
    TAPS: tl.constexpr, TAPS_PADDED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Round the weights, pad them with zeros, and sum the weights of each channel."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    # Each branch of a product is padded separately.
    within = row % WIDTH_PADDED
    channel, exists = row // WIDTH_PADDED * WIDTH + within, within < WIDTH
    total = tl.zeros((ROWS,), tl.float32)
    for first in range(0, TAPS_PADDED, BLOCK):
        tap = first + tl.arange(0, BLOCK)
        inside = exists[:, None] & (tap < TAPS)[None, :]
        w = tl.load(weight + channel[:, None] * TAPS + tap[None, :], mask=inside, other=0.0)
        if TF32:
            w = _to_tf32(w)
        tl.store(packed + row[:, None] * TAPS_PADDED + tap[None, :], w)
        total += tl.sum(w, 1)
    start = -(256.0 / 255 + 0.5) * total
    if BIASED:
        start += tl.load(bias + channel, mask=exists, other=0.0)
    tl.store(offset + row, start)


@triton.jit
def _activated(sums, offset):
    x = sums * (1 / 255) + offset[None, :]
    # expm1 takes several times as many instructions and differs by about 1e-7.
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
    # A matrix product: rows are the output positions of all images, columns the output channels,
    # and the sum is over the taps of the kernel.
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    # Pixels (BLOCK_K, BLOCK_M) are loaded as one long row. This forces Triton to give neighboring
    # threads neighboring positions, and all threads the same taps. The compiler then knows the
    # taps, and a load's address is the address of its window plus a constant.
    cell = tl.arange(0, BLOCK_K * BLOCK_M)
    # Rows beyond the last position read its pixels again, which needs no mask.
    position = tl.minimum(tl.program_id(0) * BLOCK_M + cell % BLOCK_M, positions - 1)
    number, place = position // (OUT_HEIGHT * OUT_WIDTH), position % (OUT_HEIGHT * OUT_WIDTH)
    corner = (place // OUT_WIDTH * WIDTH + place % OUT_WIDTH) * STRIDE
    window = image + number.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH) + corner

    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    sums_2 = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in tl.static_range(0, CHANNELS * KERNEL_HEIGHT * KERNEL_WIDTH, BLOCK_K):
        tap = first + cell // BLOCK_M
        channel = tap // (KERNEL_HEIGHT * KERNEL_WIDTH)
        row = channel * HEIGHT + tap // KERNEL_WIDTH % KERNEL_HEIGHT
        step = row * WIDTH + tap % KERNEL_WIDTH
        pixel = tl.load(window + step, mask=channel < CHANNELS, other=0)
        pixel = tl.trans(tl.reshape(pixel, (BLOCK_K, BLOCK_M)))
        numbers = (pixel.to(tl.int32) << 15 | 0x43800000).to(tl.float32, bitcast=True)
        # Weights are padded to complete blocks, so no mask is needed.
        taps = first + tl.arange(0, BLOCK_K)
        columns = packed + n[None, :] * TAPS_PADDED + taps[:, None]
        sums = tl.dot(numbers, tl.load(columns), sums, input_precision=PRECISION)
        if PRODUCT:
            second = tl.load(columns + WIDTH_PADDED * TAPS_PADDED)
            sums_2 = tl.dot(numbers, second, sums_2, input_precision=PRECISION)

    result = _activated(sums, tl.load(offset + n))
    if PRODUCT:
        result *= _activated(sums_2, tl.load(offset + WIDTH_PADDED + n))
    inside = (m < positions)[:, None] & (n < OUT_CHANNELS)[None, :]
    tl.store(out + m.to(tl.int64)[:, None] * OUT_CHANNELS + n[None, :], result, mask=inside)


@triton.jit
def _slope(y):
    """The derivative of the ELU, from its output y."""
    return tl.where(y > 0.0, 1.0, y + 1.0)


@triton.jit
def _gradient_kernel(
    image, factors, grad, out, positions, positions_per_part,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    KERNEL_HEIGHT: tl.constexpr, KERNEL_WIDTH: tl.constexpr, STRIDE: tl.constexpr,
    OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr, OUT_CHANNELS: tl.constexpr,
    PRODUCT: tl.constexpr, TF32: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_P: tl.constexpr,
):  # fmt: skip
    # A matrix product: rows are taps, columns channels, and the sum is over some of the positions.
    n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)
    cell = tl.arange(0, BLOCK_T * BLOCK_P)
    tap = tl.program_id(1) * BLOCK_T + cell // BLOCK_P
    channel = tap // (KERNEL_HEIGHT * KERNEL_WIDTH)
    row = channel * HEIGHT + tap // KERNEL_WIDTH % KERNEL_HEIGHT
    step = row * WIDTH + tap % KERNEL_WIDTH
    start = tl.program_id(0) * positions_per_part
    end = tl.minimum(start + positions_per_part, positions)
    branches: tl.constexpr = 2 if PRODUCT else 1
    precision: tl.constexpr = "tf32" if TF32 else "ieee"
    sums = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    sums_2 = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    for first in range(start, end, BLOCK_P):
        # Rows beyond the last position read its pixels again, and their gradients are zero.
        position = tl.minimum(first + cell % BLOCK_P, end - 1)
        number, place = position // (OUT_HEIGHT * OUT_WIDTH), position % (OUT_HEIGHT * OUT_WIDTH)
        corner = (place // OUT_WIDTH * WIDTH + place % OUT_WIDTH) * STRIDE
        window = image + number.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH) + corner
        pixel = tl.load(window + step, mask=channel < CHANNELS, other=0)
        # Half-integers below 128 are exact in TF32. After the last tap comes a column of 255s,
        # whose sum is the gradient of the bias.
        centered = tl.where(channel < CHANNELS, pixel.to(tl.float32) - 127.5, 255.0)
        centered = tl.reshape(centered, (BLOCK_T, BLOCK_P))
        p = first + tl.arange(0, BLOCK_P)
        inside = (p < end)[:, None] & (n < OUT_CHANNELS)[None, :]
        at = p.to(tl.int64)[:, None] * OUT_CHANNELS
        g = tl.load(grad + at + n[None, :], mask=inside, other=0.0)
        factor = tl.load(factors + at * branches + n[None, :], mask=inside, other=0.0)
        if PRODUCT:
            second = factors + at * branches + OUT_CHANNELS + n[None, :]
            other = tl.load(second, mask=inside, other=0.0)
            h = g * factor * _slope(other)
            g *= other
            h = _to_tf32(h) if TF32 else h
            sums_2 = tl.dot(centered, h, sums_2, input_precision=precision)
        g *= _slope(factor)
        g = _to_tf32(g) if TF32 else g
        sums = tl.dot(centered, g, sums, input_precision=precision)
    width = tl.num_programs(2) * BLOCK_N
    first_row = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * BLOCK_T
    target = out + (first_row + tl.arange(0, BLOCK_T))[:, None] * (width * branches) + n[None, :]
    tl.store(target, sums)
    if PRODUCT:
        tl.store(target + width, sums_2)


@torch.library.custom_op(
    "hadamard::pixel_conv",
    mutates_args=(),
    schema="(Tensor image, Tensor weight, Tensor? bias, int stride, bool product) -> Tensor",
)
def pixel_conv(
    image: Tensor, weight: Tensor, bias: Tensor | None, stride: int, product: bool
) -> Tensor:
    """Return elu(conv2d(image / 255 - 0.5, weight, bias, stride)) of bytes, channels last.

    With ``product``, the first half of the channels is multiplied by the second half. There are
    gradients for the weights and the bias, not for the image.
    """
    out: Tensor = _empty(image, weight, bias, stride, product)
    count, width, out_height, out_width = out.shape
    if out.numel() == 0:
        return out
    positions = count * out_height * out_width
    if positions >= 2**31 - _TILE["BLOCK_M"]:
        raise ValueError(f"{count} images are too many for one call; use smaller batches")
    branches, taps = len(weight) // width, weight[0].numel()
    # A GPU's dot products have at least 16 columns; with more than 64 the sums do not fit into
    # registers.
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
        raise ValueError(
            f"the weights are for {channels} channels, but the images have {image.shape[1]}"
        )
    extents = [(size - k) // stride + 1 for size, k in zip(image.shape[2:], kernel, strict=True)]
    return torch.empty(
        (len(image), outputs // 2 if product else outputs, *extents),
        dtype=torch.float32,
        device=image.device,
        memory_format=torch.channels_last,
    )


def _geometry(image: Tensor, kernel: Sequence[int], stride: int, out: Tensor) -> dict[str, int]:
    """Return the constants that both kernels are compiled with."""
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


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    image, weight, bias, ctx.stride, ctx.product = inputs
    ctx.save_for_backward(image, weight, bias, None if ctx.product else output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    image, weight, bias, factors = ctx.saved_tensors
    if ctx.product:
        # Computing the factors again is faster than storing them.
        factors = pixel_conv(image, weight, bias, ctx.stride, False)
    gradient = pixel_conv_gradient(image, factors, grad, list(weight.shape[2:]), ctx.stride)
    to_bias = None if bias is None else gradient[:, -1]
    return None, gradient[:, :-1].reshape(weight.shape), to_bias, None, None


pixel_conv.register_autograd(_backward, setup_context=_save_inputs)


@torch.library.custom_op(
    "hadamard::pixel_conv_gradient",
    mutates_args=(),
    schema="(Tensor image, Tensor factors, Tensor grad, int[] kernel, int stride) -> Tensor",
)
def pixel_conv_gradient(
    image: Tensor, factors: Tensor, grad: Tensor, kernel: list[int], stride: int
) -> Tensor:
    """Return the gradient of the weights, (channels, taps), with that of the bias as last column.

    ``factors`` is the output of ``pixel_conv`` without the product, ``grad`` the gradient of its
    actual output.
    """
    gradient: Tensor = _empty_gradient(image, factors, grad, kernel, stride)
    count, width, out_height, out_width = grad.shape
    branches, taps = factors.shape[1] // width, gradient.shape[1]
    positions = count * out_height * out_width
    block = min(64 // branches, max(16, triton.next_power_of_2(width)))
    width_padded = triton.cdiv(width, block) * block
    positions_per_part = triton.cdiv(max(positions, 1), _PARTS)
    parts, blocks = triton.cdiv(positions, positions_per_part), triton.cdiv(taps, _TAPS)
    sums = grad.new_empty(parts, blocks * _TAPS, branches, width_padded)
    if sums.numel():
        with torch.cuda.device_of(image):
            _gradient_kernel[parts, blocks, width_padded // block](
                image.contiguous(),
                factors.contiguous(memory_format=torch.channels_last),
                grad.contiguous(memory_format=torch.channels_last),
                sums,
                positions,
                positions_per_part,
                **_geometry(image, kernel, stride, grad),
                PRODUCT=branches == 2,
                TF32=torch.backends.cudnn.allow_tf32,
                BLOCK_N=block,
                BLOCK_T=_TAPS,
                BLOCK_P=32,
                num_warps=4,
            )
    total = sums.sum(0)[:taps, :, :width].flatten(1)
    torch.div(total.T, 255, out=gradient)
    return gradient


@pixel_conv_gradient.register_fake
def _empty_gradient(
    image: Tensor, factors: Tensor, grad: Tensor, kernel: list[int], stride: int
) -> Tensor:
    del stride
    return grad.new_empty(factors.shape[1], image.shape[1] * kernel[0] * kernel[1] + 1)
