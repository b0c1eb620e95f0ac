"""What a Hadamard layer costs: forward + backward, against other forms in the same run.

plain:  the ordinary layer of the same width (half the arithmetic)
wide:   the ordinary layer of twice the width (the same arithmetic, no product)
naive:  two branches computed one after the other, then multiplied
fused:  the layer of this package
last:   the same on images with channels last in memory (weights and input)

    python benchmarks/bench_layer.py [--device cpu|cuda] [--seconds 0.3] [--json FILE]

The ratios in the last columns are what the claim is about; absolute times vary by machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hadamard import Hadamard, HadamardConv2d, HadamardLinear
from timing import captured, machine, side_by_side

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "Linear(3136, 512)": ((3136,), (3136, 512)),
    "Conv(4, 32, 8/4)": ((4, 84, 84), (4, 32, 8, 4)),
    "Conv(32, 64, 4/2)": ((32, 20, 20), (32, 64, 4, 2)),
    "Conv(64, 64, 3/1)": ((64, 9, 9), (64, 64, 3, 1)),
}


def forms(sizes: tuple[int, ...], activation: str) -> dict[str, nn.Module]:
    """Build the four forms of one layer."""
    act = {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]

    def ordinary(times: int = 1) -> nn.Module:
        if len(sizes) == 2:
            return nn.Sequential(nn.Linear(sizes[0], times * sizes[1]), act())
        return nn.Sequential(
            nn.Conv2d(sizes[0], times * sizes[1], sizes[2], stride=sizes[3]), act()
        )

    fused: nn.Module
    if len(sizes) == 2:
        fused = HadamardLinear(sizes[0], sizes[1], activation)
    else:
        fused = HadamardConv2d(sizes[0], sizes[1], sizes[2], stride=sizes[3], activation=activation)
    return {
        "plain": ordinary(),
        "wide": ordinary(2),
        "naive": Hadamard(ordinary(), ordinary()),
        "fused": fused,
    }


def forward_backward(layer: nn.Module, x: Tensor) -> Callable[[], object]:
    """Return one training step's work for this layer."""
    with torch.no_grad():
        gradient = torch.randn_like(layer(x))
    wanted = [p for p in (x, *layer.parameters()) if p.requires_grad]

    def run() -> object:
        return torch.autograd.grad(layer(x), wanted, gradient)

    return run


def measure(device: str, seconds: float, activation: str) -> list[dict[str, Any]]:
    """Measure every shape, batch and precision; print a row for each."""
    precisions = ["fp32", "tf32", "bf16"] if device == "cuda" else ["fp32"]
    modes = ["graph", "eager"] if device == "cuda" else ["eager"]
    rows = []
    print(
        f"{'layer':18} {'precision':9} {'mode':6} {'batch':>5} {'plain us':>9} {'fused us':>9} "
        f"{'fused/plain':>12} {'wide/plain':>11} {'last/plain':>11} {'naive/plain':>12} "
        f"{'naive/fused':>12}"
    )
    for (name, (shape, sizes)), precision, mode, batch in itertools.product(
        SHAPES.items(), precisions, modes, (32, 128, 1024)
    ):
        tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        # The first convolution reads pixels, which need no gradient.
        x = torch.randn(batch, *shape, device=device, dtype=dtype).requires_grad_(shape[0] != 4)
        runs = {}
        for form, layer in forms(sizes, activation).items():
            step = forward_backward(layer.to(device, dtype), x)
            runs[form] = captured(step) if mode == "graph" else step
        if x.dim() == 4:
            layer = forms(sizes, activation)["fused"].to(device, dtype)
            images = x.detach().to(memory_format=torch.channels_last)
            to_channels_last: Any = layer.to  # its stubs do not know memory_format
            step = forward_backward(
                to_channels_last(memory_format=torch.channels_last),
                images.requires_grad_(x.requires_grad),
            )
            runs["last"] = captured(step) if mode == "graph" else step
        times = side_by_side(runs, seconds, device)
        row = {
            "layer": name,
            "precision": precision,
            "mode": mode,
            "batch": batch,
            **{f"{form}_us": 1e6 * t for form, t in times.items()},
            **{f"{form}_to_plain": t / times["plain"] for form, t in times.items()},
            "naive_to_fused": times["naive"] / times["fused"],
        }
        rows.append(row)
        last = f"{row['last_to_plain']:11.2f}" if "last" in times else " " * 10 + "-"
        print(
            f"{name:18} {precision:9} {mode:6} {batch:5} {row['plain_us']:9.1f} "
            f"{row['fused_us']:9.1f} {row['fused_to_plain']:12.2f} {row['wide_to_plain']:11.2f} "
            f"{last} {row['naive_to_plain']:12.2f} {row['naive_to_fused']:12.2f}",
            flush=True,
        )
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=0.3, help="time spent on each row")
    parser.add_argument("--activation", choices=["tanh", "relu"], default="tanh")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    print(f"{machine()}; {options.activation}; forward + backward")
    rows = measure(options.device, options.seconds, options.activation)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
