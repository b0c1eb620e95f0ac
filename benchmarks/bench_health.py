"""What the diagnosis costs, against the libraries it replaces, in one run.

KDE dormancy of 512 neurons x 2,048 samples against a loop over scipy.stats.gaussian_kde on the
same grid (8 points per bandwidth over each neuron's range), and effective rank against
numpy.linalg.svd.

    python benchmarks/bench_health.py [--device cpu|cuda] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import gaussian_kde
from torch import Tensor

from hadamard.health import diagnose, dormant, effective_rank
from hadamard.health.kde import draw_jitter
from timing import machine, side_by_side

NEURONS, SAMPLES = 512, 2048


def activations() -> Tensor:
    """Return neurons from nearly constant to fully spread, a third saturated both ways."""
    generator = torch.Generator().manual_seed(0)
    pre = torch.randn(SAMPLES, NEURONS, generator=generator) * torch.logspace(-3, 0.7, NEURONS)
    offset = torch.randn(NEURONS, generator=generator) * 2
    return torch.tanh(pre + offset)


def scipy_peaks(samples: Tensor) -> np.ndarray:
    """Return each neuron's density peak on the grid, by scipy."""
    jitter = draw_jitter(samples, None).cpu().numpy()
    values = samples.cpu().double().numpy() + jitter[:, None]
    peaks = np.empty(values.shape[1])
    for i, neuron in enumerate(values.T):
        density = gaussian_kde(neuron)
        bandwidth = float(np.sqrt(density.covariance[0, 0]))
        grid = np.arange(neuron.min(), neuron.max() + bandwidth, bandwidth / 8)
        peaks[i] = density(grid).max()
    return peaks


def paper_rank(features: np.ndarray, delta: float = 0.01) -> int:
    """Compute the rank by a full SVD, as the paper's function defines it."""
    values = np.linalg.svd(features, compute_uv=False)
    return len(values) - int(np.sum(np.cumsum(values) >= (1 - delta) * values.sum())) + 1


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    device = options.device
    samples = activations()
    ours = samples.to(device)

    flags = dormant(ours, kind="tanh").mask.cpu().numpy()
    agree = float(np.mean(flags == (scipy_peaks(samples) >= 20)))
    print(f"{machine()}\n{NEURONS} neurons x {SAMPLES} samples; flags agree on {agree:.2%}")

    figures: dict[str, Any] = {"machine": machine(), "flags_agree": agree}
    kde = side_by_side({"ours": lambda: dormant(ours, kind="tanh")}, 2.0, device)["ours"]
    reference = side_by_side({"scipy": lambda: scipy_peaks(samples)}, 0.0, "cpu", least=2)["scipy"]
    figures |= {"kde_ms": 1e3 * kde, "scipy_ms": 1e3 * reference, "kde_speedup": reference / kde}
    print(f"KDE dormancy    ours {1e3 * kde:8.2f} ms   scipy {1e3 * reference:8.0f} ms   "
          f"{reference / kde:6.0f}x")  # fmt: skip

    matrix = samples.numpy()
    assert effective_rank(ours) == paper_rank(matrix)
    rank = side_by_side({"ours": lambda: effective_rank(ours)}, 2.0, device)["ours"]
    svd = side_by_side({"numpy": lambda: paper_rank(matrix)}, 2.0, "cpu")["numpy"]
    figures |= {"rank_ms": 1e3 * rank, "svd_ms": 1e3 * svd, "rank_speedup": svd / rank}
    print(f"effective rank  ours {1e3 * rank:8.2f} ms   numpy {1e3 * svd:8.1f} ms   "
          f"{svd / rank:6.1f}x")  # fmt: skip

    net = torch.nn.Sequential(
        torch.nn.Linear(64, NEURONS), torch.nn.Tanh(), torch.nn.Linear(NEURONS, 6)
    )
    net.to(device)
    inputs = torch.randn(SAMPLES, 64, device=device)
    whole = side_by_side({"diagnose": lambda: diagnose(net, inputs)}, 2.0, device)["diagnose"]
    figures["diagnose_ms"] = 1e3 * whole
    print(f"diagnose(net)   ours {1e3 * whole:8.2f} ms   (one hidden layer of {NEURONS})")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
