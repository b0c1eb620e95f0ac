"""What the diagnosis costs, against the libraries it replaces, in one run.

KDE dormancy of 512 neurons x 2,048 samples against a loop over scipy.stats.gaussian_kde on the
same grid (8 points per bandwidth over each neuron's range), and effective rank against
numpy.linalg.svd. Then many networks of one shape diagnosed one by one and together: those of
MinAtar with 128 neurons and 2,048 observations, and small ones, where calls cost most. Last, what
the measures of a diagnosis cost as a share of training at the default interval, 100,000 steps: of
PQN on MinAtar, alone, and with --runs N as a fleet.

    python benchmarks/bench_health.py [--device cpu|cuda] [--networks N] [--runs N] [--json FILE]
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import gaussian_kde
from torch import Tensor

from hadamard.core.config import NetSpec, TrainSpec, overridden
from hadamard.core.types import EnvSpec
from hadamard.health import (
    diagnose,
    diagnosis,
    dormant,
    effective_rank,
    measuring,
    rank,
    weights_of,
)
from hadamard.health.kde import draw_jitter
from hadamard.health.network import CHOICES
from hadamard.nets.heads import ActorCritic, QNetwork
from hadamard.training.health_stream import Earlier, examine, examine_together
from hadamard.training.start import default_spec, resume_together, train_together
from timing import in_turns, machine, print_kernels, seconds_of, side_by_side

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


def one_by_one(
    networks: Sequence[ActorCritic], observations: Sequence[Tensor], train: TrainSpec
) -> None:
    """Diagnose each network alone, with its place as the seed."""
    for seed, (network, obs) in enumerate(zip(networks, observations, strict=True)):
        examine(network, obs, train, seed, 0)


def together(
    count: int, device: torch.device, *, profiled: bool = False
) -> dict[str, dict[str, float]]:
    """Print and return the milliseconds a network takes when diagnosed alone and together.

    The first diagnosis of a process also loads libraries and compiles kernels.
    """
    minatar = EnvSpec((4, 10, 10), torch.bool, num_actions=3)
    vectors = EnvSpec((8,), torch.float32, num_actions=3)
    cases = {
        "MinAtar, ReLU": (minatar, NetSpec(width=128), SAMPLES),
        "MinAtar, tanh HR": (minatar, NetSpec("hadamard", "tanh", width=128), SAMPLES),
        "small, ReLU": (vectors, NetSpec(width=64), 256),
        "small, tanh HR": (vectors, NetSpec("hadamard", "tanh", width=64), 256),
    }
    figures, train, seeds = {}, TrainSpec(), range(count)
    for name, (env, net, samples) in cases.items():
        networks = [ActorCritic(env, net).to(device) for _ in range(count)]
        shape = (count, samples, *env.obs_shape)
        observations = (torch.rand(shape, device=device) < 0.1).to(env.obs_dtype)

        calls: dict[str, Callable[[], object]] = {
            "alone": functools.partial(one_by_one, networks, list(observations), train),
            "together": functools.partial(
                examine_together, networks, list(observations), train, seeds, 0
            ),
        }
        first = 1e3 * seconds_of(calls["together"], 1, device)
        seconds = in_turns(calls, 1, 7, device)
        alone, joint = (1e3 * seconds[key] / count for key in calls)
        figures[name] = {"alone_ms": alone, "together_ms": joint, "first_round_ms": first}
        print(
            f"{name:18}one by one {alone:8.2f} ms   {count} together {joint:8.2f} ms a network   "
            f"{alone / joint:6.1f}x   first round {first:8.0f} ms, later ones {count * joint:8.1f}",
            flush=True,
        )
        if profiled:
            print_kernels(f"{name}, {count} together", calls["together"])
    return figures


def measure_costs(runs: int, device: torch.device) -> dict[str, dict[str, float]]:
    """Print and return the milliseconds of a diagnosis by measures, and their share of training."""
    steps = TrainSpec().health_every
    with tempfile.TemporaryDirectory() as folder:
        spec = overridden(
            default_spec("pqn", "minatar/breakout"),
            {
                "train.steps": 2 * steps,
                "train.health_every": 0,
                "train.checkpoint_every": 0,
                "train.greedy_envs": 0,
                "train.tensorboard": False,
                "train.threads": torch.get_num_threads() if device.type == "cpu" else 0,
                "train.fleet": "on" if runs > 1 else "auto",
                "device": str(device),
            },
        )
        specs = [
            overridden(spec, {"seed": seed, "run_dir": f"{folder}/{seed}"}) for seed in range(runs)
        ]
        # The first half of a training holds what starting costs.
        seconds = []
        for until in (steps, 2 * steps):
            start = time.perf_counter()
            if until == steps:
                train_together("pqn", [overridden(s, {"train.until": until}) for s in specs])
            else:
                resume_together([f"{folder}/{seed}" for seed in range(runs)], until=until)
            seconds.append(time.perf_counter() - start)
        interval = min(seconds)
    env = EnvSpec((4, 10, 10), torch.uint8, num_actions=3)
    networks = [QNetwork(env, spec.net, init="he").to(device) for _ in range(runs)]
    observations = [(torch.rand(2048, 4, 10, 10, device=device) < 0.05).byte() for _ in networks]
    earlier = [Earlier(weights_of(network), 0) for network in networks]
    calls: dict[str, Callable[[], object]] = {
        name: functools.partial(
            examine_together,
            networks,
            observations,
            TrainSpec(measures=name),
            range(runs),
            0,
            earlier=earlier,
        )
        for name in ("none", *CHOICES)
    }
    calls["before"] = functools.partial(_without_new_measures, calls["none"])
    timed = in_turns(calls, 1, 7, device)
    figures = {}
    print(f"PQN on MinAtar, {runs} runs: {interval:.2f} s for {steps:,} steps of each")
    for name, value in timed.items():
        own = value - (0 if name in ("none", "before") else timed["none"])
        share = own / interval
        figures[name] = {"ms": 1e3 * own, "share_of_training": share}
        words = {"none": "default measures", "before": "without tau, stable and entropy rank, norm"}
        print(f"  {words.get(name, '+ ' + name):44}{1e3 * own:9.2f} ms   {share:7.3%} of training")
    return figures


def _without_new_measures(call: Callable[[], object]) -> None:
    """Diagnose with dormancy, effective rank and hidden bias alone."""
    replaced = (
        (measuring, "low_outputs", lambda samples, _: torch.zeros_like(samples[:, 0]).bool()),
        (rank.PendingRanks, "spectra", lambda self: [rank.Spectrum(0, 0)] * len(self.matrices)),
        (diagnosis, "weight_norms", lambda networks: [None] * len(networks)),
    )
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    try:
        for owner, name, stand_in in replaced:
            setattr(owner, name, stand_in)
        call()
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", type=int, default=32, help="diagnosed together")
    parser.add_argument("--runs", type=int, default=1, help="trained together for the costs")
    parser.add_argument(
        "--together-only", action="store_true", help="only many networks of one shape"
    )
    parser.add_argument("--profile", action="store_true", help="list the kernels of these")
    parser.add_argument("--costs-only", action="store_true", help="only what the measures cost")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    device = options.device
    if options.costs_only:
        print(machine())
        measure_costs(options.runs, torch.device(device))
        return
    if options.together_only:
        print(machine())
        together(options.networks, torch.device(device), profiled=options.profile)
        return
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
    figures["together"] = together(options.networks, torch.device(device), profiled=options.profile)
    figures["measures"] = measure_costs(options.runs, torch.device(device))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
