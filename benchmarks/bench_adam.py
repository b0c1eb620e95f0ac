"""A step of Adam on one long parameter: PyTorch's fused one, ours, and ours compiled.

    python benchmarks/bench_adam.py [--device cpu] [--seconds 1]

On a GPU each is a CUDA graph, as in training. The sizes are those of DQN's and PPO's networks on
MinAtar and on Atari, and of one twice as large.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

from hadamard.core import optimisers
from hadamard.core.adam import Adam
from hadamard.core.jit import compiler
from timing import captured, machine, side_by_side

SIZES = 134_000, 1_690_000, 3_380_000


def main() -> None:
    """Time all three in turns, for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each row")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    kinds = {
        "fused": (torch.optim.Adam, {"fused": True}),
        "ours": (Adam, {}),
        "compiled": (Adam, {"compiled": compiler("on", device)}),
    }
    print(machine())
    print(f"{'weights':>10}" + "".join(f"{name + ', us':>14}" for name in kinds) + f"{'ratio':>8}")
    for size in SIZES:
        runs: dict[str, Callable[[], object]] = {}
        for name, (kind, options) in kinds.items():
            weights = nn.Parameter(torch.randn(size, device=device))
            weights.grad = torch.randn_like(weights)
            step = optimisers.make(kind, [weights], 1e-4, device, **options).step
            runs[name] = captured(step) if device.type == "cuda" else step
        times = side_by_side(runs, asked.seconds, device.type)
        row = "".join(f"{1e6 * times[name]:>14.1f}" for name in kinds)
        print(f"{size:>10,}{row}{times['fused'] / times['compiled']:>7.2f}x", flush=True)


if __name__ == "__main__":
    main()
