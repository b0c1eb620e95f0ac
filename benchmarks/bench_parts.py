"""What an update of PQN on MinAtar consists of on a CPU: its largest parts, one by one.

    OMP_NUM_THREADS=1 python benchmarks/bench_parts.py

Batch 128, a convolution to 16 feature maps of 8 x 8, a dense layer from 1,024 to 128.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F

from hadamard.compute.adam import RAdam
from hadamard.compute.flat import FlatParameters
from hadamard.core.config import TrainSpec
from hadamard.core.machine import torch_settings
from timing import machine, side_by_side

BATCH, CHANNELS, SIDE, WIDTH = 128, 16, 8, 128
INPUTS = CHANNELS * SIDE * SIDE
WEIGHTS = 134_000
LARGE, LARGEST = 1024, "a large matrix product, 1,024 wide"


def main() -> None:
    """Time the parts in turns, and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    x, weight = torch.randn(BATCH, INPUTS), torch.randn(WIDTH, INPUTS)
    upstream, bias = torch.randn(BATCH, WIDTH), torch.randn(WIDTH)
    images = torch.randint(0, 2, (BATCH, 4, 10, 10)).float().to(memory_format=torch.channels_last)
    kernel = torch.randn(CHANNELS, 4, 3, 3, requires_grad=True)
    maps = F.conv2d(images, kernel).detach()
    ours, theirs = (torch.nn.Parameter(torch.randn(WEIGHTS)) for _ in range(2))
    for parameter in (ours, theirs):
        parameter.grad = torch.randn(WEIGHTS)
    flat = FlatParameters(torch.nn.Linear(INPUTS, WIDTH))
    flat.gradient.normal_()
    large = torch.randn(LARGE, LARGE)

    def large_product() -> object:
        return large @ large

    parts: dict[str, Callable[[], object]] = {
        "dense layer, forward": lambda: torch.addmm(bias, x, weight.t()),
        "dense layer, gradient of its input": lambda: upstream @ weight,
        "dense layer, gradient of its weights": lambda: upstream.t() @ x,
        "convolution, forward": lambda: F.conv2d(images, kernel.detach()),
        "convolution, forward and backward": lambda: torch.autograd.grad(
            F.conv2d(images, kernel), kernel, maps
        ),
        "norm of each position": lambda: F.layer_norm(maps.movedim(1, -1), (CHANNELS,)),
        "norm of the whole map": lambda: F.layer_norm(maps.movedim(1, -1).flatten(1), (INPUTS,)),
        "clipping, ours": lambda: flat.clip(10.0),
        "clipping, PyTorch's": lambda: torch.nn.utils.clip_grad_norm_(flat.vector, 10.0),
        "RAdam, ours": RAdam([ours], 1e-3, fused=True).step,
        "RAdam, PyTorch's": torch.optim.RAdam([theirs], 1e-3).step,
    }
    print(machine())
    flops = {name: 2 * BATCH * INPUTS * WIDTH for name in parts if name.startswith("dense")}
    flops[LARGEST] = 2 * LARGE**3
    with torch_settings(TrainSpec(), torch.device("cpu")):  # so that freed memory is kept
        # By itself: beside something this slow the others would have too few turns.
        times = side_by_side({LARGEST: large_product}, 1.0)
        times |= side_by_side(parts, options.seconds)
    for name, seconds in times.items():
        speed = f"{flops[name] / seconds / 1e9:>8.0f} GFLOP/s" if name in flops else ""
        print(f"{name:<40}{1e6 * seconds:>8.0f} us{speed}")


if __name__ == "__main__":
    main()
