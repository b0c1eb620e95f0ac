"""A step of Adam and of RAdam on one long parameter: PyTorch's, and ours as training has them.

    python benchmarks/bench_adam.py [--device cpu] [--seconds 1]

On a GPU each is a CUDA graph, and ours are compiled. The sizes are those of networks on MinAtar and
on Atari, and of one twice as large. PyTorch's Adam is the fused one; RAdam has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import nn

from hadamard.compute import optimizers
from hadamard.compute.adam import Adam, RAdam
from hadamard.compute.jit import compiler
from hadamard.core.config import TrainSpec
from hadamard.core.machine import torch_settings
from timing import captured, machine, side_by_side

SIZES = 134_000, 1_690_000, 3_380_000


def main() -> None:
    """Time all four in turns, for each size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="time spent on each row")
    options = parser.parse_args()
    device = torch.device(options.device)
    compiled = compiler("auto", device)
    print(machine())
    print(f"{'weights':>10}{'Adam, us':>12}{'ours':>10}{'':>8}{'RAdam, us':>12}{'ours':>10}")
    kinds: dict[str, Callable[[nn.Parameter], torch.optim.Optimizer]] = {
        "Adam": lambda w: optimizers.make(torch.optim.Adam, [w], 1e-4, device, fused=True),
        "our Adam": lambda w: optimizers.make_for_vector(Adam, w, 1e-4, device, compiled),
        "RAdam": lambda w: optimizers.make(torch.optim.RAdam, [w], 1e-4, device),
        "our RAdam": lambda w: optimizers.make_for_vector(RAdam, w, 1e-4, device, compiled),
    }
    for size in SIZES:
        runs: dict[str, Callable[[], object]] = {}
        for name, make in kinds.items():
            weights = nn.Parameter(torch.randn(size, device=device))
            weights.grad = torch.randn_like(weights)
            step = make(weights).step
            runs[name] = captured(step) if device.type == "cuda" else step
        with torch_settings(TrainSpec(), device):  # so that freed memory is kept, as in training
            times = side_by_side(runs, options.seconds, device.type)
        row = f"{size:>10,}"
        for theirs, ours in (("Adam", "our Adam"), ("RAdam", "our RAdam")):
            ratio = times[theirs] / times[ours]
            row += f"{1e6 * times[theirs]:>12.1f}{1e6 * times[ours]:>10.1f}{ratio:>7.2f}x"
        print(row, flush=True)


if __name__ == "__main__":
    main()
