"""PQN's layers on Atari, compiled: norm, activation and product in one kernel, and without it.

    python benchmarks/bench_norm.py [--batch 128] [--seconds 0.5]

Forward + backward of each layer in a CUDA graph, in TF32, images with channels last in memory; both
forms take turns. The kernel takes part wherever a layer with a norm is compiled for a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from unittest.mock import patch

import torch

from hadamard.layers import Conv2dBranch, LinearBranch, build, norm_kernel
from hadamard.layers.branch import Recipe
from timing import captured, machine, side_by_side

LAYERS: dict[str, tuple[Recipe, tuple[int, ...]]] = {
    "Conv(4, 32, 8/4)": (Conv2dBranch(4, 32, kernel_size=8, stride=4), (4, 84, 84)),
    "Conv(32, 64, 4/2)": (Conv2dBranch(32, 64, kernel_size=4, stride=2), (32, 20, 20)),
    "Conv(64, 64, 3/1)": (Conv2dBranch(64, 64, kernel_size=3), (64, 9, 9)),
    "Linear(3136, 512)": (LinearBranch(3136, 512), (3136,)),
}
VARIANTS = {"LayerNorm + ReLU": ("plain", "relu"), "LayerNorm + tanh, HR": ("hadamard", "tanh")}


def step(variant: str, recipe: Recipe, shape: tuple[int, ...], batch: int) -> Callable[[], object]:
    """Compile a new layer and return its forward and backward pass as a graph."""
    layer = build(variant, recipe).cuda()
    # The first convolution reads pixels, which need no gradient.
    x = torch.randn(batch, *shape, device="cuda", requires_grad=shape[0] != 4)
    if x.dim() == 4:
        x = x.detach().to(memory_format=torch.channels_last).requires_grad_(x.requires_grad)
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=False)
    wanted = [p for p in (x, *layer.parameters()) if p.requires_grad]
    gradient = torch.randn_like(compiled(x).detach())
    return captured(lambda: torch.autograd.grad(compiled(x), wanted, gradient))


def main() -> None:
    """Time every layer with and without the kernel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=0.5, help="time spent on each row")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("the kernel is a GPU's, and there is none here")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    print(f"{machine()}; batch {options.batch}, TF32, compiled; forward + backward")
    print(f"{'layer':20}{'':24}{'compiler, us':>14}{'kernel, us':>14}{'ratio':>8}")
    for name, (recipe, shape) in LAYERS.items():
        for title, (variant, activation) in VARIANTS.items():
            normed = recipe.varied(activation=activation, norm="layer")
            arguments = variant, normed, shape, options.batch
            with patch.object(norm_kernel, "available", lambda: False):
                runs = {"compiler": step(*arguments)}
            runs["kernel"] = step(*arguments)
            times = side_by_side(runs, options.seconds, "cuda")
            row = "".join(f"{1e6 * times[form]:>14.1f}" for form in ("compiler", "kernel"))
            ratio = times["compiler"] / times["kernel"]
            print(f"{name:20}{title:24}{row}{ratio:>7.2f}x", flush=True)


if __name__ == "__main__":
    main()
