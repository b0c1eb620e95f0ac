"""How long a report over many runs takes, and where the time goes: synthetic runs, real report.

    python benchmarks/bench_report.py --runs 1000 --rows 10000

The runs lie in a temporary folder, ten tasks with five variants each. Each has ``--rows`` episodes,
and diagnoses, losses and timing as training writes them.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import tempfile
import time
from pathlib import Path

import numpy as np

from hadamard.report.data.runs import gather
from hadamard.report.pages.full_report import write_report

VARIANTS = (
    ("plain", "relu", 0.6),
    ("plain", "tanh", 0.55),
    ("hadamard", "tanh", 0.8),
    ("hadamard", "relu", 0.5),
    ("widened", "tanh", 0.58),
)
TASKS = tuple(f"minatar/task{number}" for number in range(10))


def write_runs(
    folder: Path, runs: int, rows: int, tasks: tuple[str, ...] = TASKS, kde: bool = True
) -> None:
    """Write run folders with made-up learning curves."""
    for number in range(runs):
        layer, activation, skill = VARIANTS[number % len(VARIANTS)]
        task_number = number // len(VARIANTS) % len(tasks)
        seed = number // (len(VARIANTS) * len(tasks))
        rng = np.random.default_rng([number, 1])
        run = folder / f"dqn_{task_number}_{layer}_{activation}_seed{seed}"
        run.mkdir(parents=True)
        steps = 20 * rows
        spec = {
            "env": tasks[task_number],
            "seed": seed,
            "run_dir": str(run),
            "device": "cpu",
            "algo": {"learning_rate": 1e-4, "gamma": 0.99, "batch_size": 32},
            "net": {"layer": layer, "activation": activation, "norm": "none", "width": 128},
            "train": {"steps": steps, "log_every": 1000, "eval_every": 0},
            "redo": {"enabled": False, "tau": 0.025, "period": 1000},
        }
        config = {
            "algorithm": "dqn",
            "spec": spec,
            "versions": {"python": "3.11.7", "torch": "2.13.0"},
            "commit": "0123456789abcdef",
        }
        (run / "config.json").write_text(json.dumps(config))
        at = np.sort(rng.choice(np.arange(1, steps + 1), rows, replace=False))
        level = (task_number + 1) * skill * (1 - np.exp(-4 * at / steps)) * rng.normal(1, 0.12)
        scores = np.maximum(0, level + rng.normal(0, 0.5 * (task_number + 1), rows)).round(1)
        episode = '{{"step": {}, "env": 0, "score": {}, "length": 28}}\n'
        text = "".join(map(episode.format, at.tolist(), scores.tolist()))
        (run / "episodes.jsonl").write_text(text)
        (run / "health.jsonl").write_text(
            "".join(_health(i * steps // 20, layer, activation, rng) for i in range(1, 21))
        )
        losses = (
            f'{{"step": {i * steps // 100}, "score": 1.5, "loss": 0.1}}\n' for i in range(101)
        )
        (run / "train.jsonl").write_text("".join(losses))
        (run / "timing.jsonl").write_text(f'{{"step": {steps}, "seconds": {steps / 1200}}}\n')
        if kde:
            (run / "kde.jsonl").write_text(_densities(steps // 10, rng) + _densities(steps, rng))
        (run / "DONE").write_text(json.dumps({"steps": steps, "seconds": steps / 1200}))


def _health(step: int, layer: str, activation: str, rng: np.random.Generator) -> str:
    dormant = {"plain": 0.3, "widened": 0.35, "hadamard": 0.1}[layer]
    dormant *= (1.4 if activation == "relu" else 1.0) * (1 - np.exp(-step / 50_000))
    dormant = float(np.clip(dormant + rng.normal(0, 0.02), 0, 1))
    last = {
        "name": "encoder.hidden.1",
        "neurons": 128,
        "dormant_fraction": dormant,
        "effective_rank": int(128 * (1 - dormant) * 0.8),
        "full_rank": 128,
        "hidden_bias_share": dormant / 2,
        "live_contribution": 0.9 - dormant / 2,
        "dormant_contribution": dormant / 2,
        "bias_contribution": 0.1,
    }
    row = {"step": step, "threshold": 20.0, "delta": 0.01, "layers": [last]}
    return json.dumps(row) + "\n"


def _densities(step: int, rng: np.random.Generator) -> str:
    places = np.linspace(-1, 1, 200)
    centers = rng.uniform(-1, 1, 16)
    density = np.exp(-(((places - centers[:, None]) / 0.1) ** 2)).round(4)
    row = {
        "step": step,
        "layer": "encoder.hidden.1",
        "neurons": list(range(16)),
        "places": [places.round(4).tolist()] * 16,
        "density": density.tolist(),
        "dormant": (np.abs(centers) > 0.9).tolist(),
        "bounded": True,
        "title": "encoder.hidden.1",
    }
    return json.dumps(row) + "\n"


def main() -> None:
    """Make runs, report on them, tell how long it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument(
        "--keep", type=Path, help="write the runs and the report here and keep them"
    )
    parser.add_argument("--profile", action="store_true", help="show the costliest functions")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        if not (folder / "runs").exists():
            write_runs(folder / "runs", options.runs, options.rows)
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        start, before = time.perf_counter(), os.times()
        runs, troubles = gather([folder / "runs"])
        read, reading = time.perf_counter(), os.times()
        page = write_report(folder / "report", runs, "Synthetic runs", None, troubles)
        end = time.perf_counter()
        profile.disable()
        after = os.times()
        # Of this process and those it started.
        busy = [sum(b[:4]) - sum(a[:4]) for a, b in ((before, reading), (reading, after))]
        figures = len(list((folder / "report" / "figures").iterdir()))
        print(
            f"{len(runs):,} runs of {options.rows:,} episodes: {end - start:.1f} s, reading "
            f"{read - start:.1f} s, statistics, {figures} figure files and the page "
            f"{end - read:.1f} s; CPU time {busy[0]:.1f} + {busy[1]:.1f} s; "
            f"index.html {page.stat().st_size / 1e6:.2f} MB"
        )
        if options.profile:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


if __name__ == "__main__":
    main()
