"""A step of Adam on the sphere for SimbaV2's critics, cut into programs in several ways.

    python benchmarks/bench_sphere.py [--runs 16] [--ways 0 3 5]

A step reads weights, gradients, both moments and targets once, and writes all but the gradients: 36
bytes a weight, by which the rate is computed. The first row copies as much memory. Needs a GPU.
"""

from __future__ import annotations

import argparse
import functools
import time

import torch

from hadamard.compute.kernels import sphere_triton
from hadamard.compute.kernels.sphere_triton import TILING, Tiling
from hadamard.core.config import NetSpec
from hadamard.nets.simba import Critic, Shape, sphere_weights
from timing import captured, machine, seconds_of

BYTES = 36
TWICE = {"registers": 8, "narrowest": 32}
"""Read all matrices twice."""
WAYS: list[dict[str, int]] = [
    {},
    {"narrowest": 8},  # tall matrices in narrow columns, held in registers
    {"columns_twice": 16},
    {"columns_twice": 64, "programs": 128},
    {"per_read_twice": 8},
    {"warps_twice": 8, "per_read_twice": 8},
    {"warps_twice": 32},
    {"registers": 64},
    {"warps": 32, "per_read": 4, "registers": 16},
    {"per_read": 4, "registers": 16},
    {**TWICE},
    {**TWICE, "warps_twice": 8, "per_read_twice": 8},
    {**TWICE, "warps_twice": 8},
]


def main() -> None:
    """Time each way, and print a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=16, help="runs of a fleet")
    parser.add_argument("--ways", nargs="+", type=int, default=range(len(WAYS)), help="only these")
    options = parser.parse_args()
    runs, device = options.runs, torch.device("cuda")
    critic = Critic(70, Shape(512, 2, 4, 2), NetSpec(width=512), 101, 5.0)
    on_sphere = {id(weight) for weight in sphere_weights(critic)}
    project = [id(weight) in on_sphere for weight in critic.parameters()]
    weights, gradients, mean, mean_square, targets = (
        [torch.rand((runs, *weight.shape), device=device) for weight in critic.parameters()]
        for _ in range(5)
    )
    rates, steps = (torch.full((runs,), value, device=device) for value in (1e-4, 1e3))
    count = sum(weight.numel() for weight in weights)
    half = torch.empty(BYTES * count // 8, device=device)
    other = torch.empty_like(half)
    print(f"{machine()}; {runs} runs, {count:,} weights, {BYTES} bytes each")
    print(f"{'':62}{'ms':>8}{'TB/s':>7}{'compiled in':>14}")

    def row(label: str, seconds: float, compiling: float) -> None:
        rate = BYTES * count / seconds / 1e12
        print(f"{label:<62}{1e3 * seconds:>8.3f}{rate:>7.2f}{compiling:>12.1f} s", flush=True)

    row("copying", seconds_of(captured(functools.partial(half.copy_, other)), 50, device), 0.0)
    del half, other
    for number in options.ways:
        tiling: Tiling = TILING._replace(**WAYS[number])
        step = functools.partial(
            sphere_triton.step, weights, gradients, mean, mean_square, targets, rates, steps,
            0.005, project, (0.9, 0.999), 1e-8, tiling,
        )  # fmt: skip
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        compiling = time.perf_counter() - start
        label = ", ".join(f"{name} {value}" for name, value in WAYS[number].items()) or "default"
        row(f"{number} {label}", seconds_of(captured(step), 50, device), compiling)


if __name__ == "__main__":
    main()
