"""A tanh network and its Hadamard twin learn a task that keeps changing; which stays healthy?

Both networks regress four numbers from sparse binary observations. Every few hundred steps the
targets change, as an RL agent's do when its policy improves. After each change both networks
are diagnosed. Takes about a minute on two cores and writes a page and its figures:

    python examples/tanh_vs_hadamard.py --output example_output
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from hadamard import Diagnosis, HadamardLinear, diagnose
from hadamard.health import save_comparison, theory
from hadamard.report.draw.figures import BLUE, ORANGE, new_figure

OBSERVATIONS, FEATURES, OUTPUTS, WIDTH = 4096, 100, 4, 128
BATCH = 128
NETWORKS = {"tanh": BLUE, "tanh + HR": ORANGE}


def build(network: str) -> nn.Sequential:
    """Two hidden layers of the same width either way."""
    if network == "tanh":
        return nn.Sequential(
            nn.Linear(FEATURES, WIDTH), nn.Tanh(),
            nn.Linear(WIDTH, WIDTH), nn.Tanh(),
            nn.Linear(WIDTH, OUTPUTS),
        )  # fmt: skip
    return nn.Sequential(
        HadamardLinear(FEATURES, WIDTH, "tanh"),
        HadamardLinear(WIDTH, WIDTH, "tanh"),
        nn.Linear(WIDTH, OUTPUTS),
    )


@dataclass
class Course:
    """One network's errors and diagnoses, task by task."""

    errors: list[float]
    diagnoses: list[Diagnosis]


def new_task(observations: Tensor, scale: float) -> Tensor:
    """Targets by a random teacher, standardized and scaled like the returns of a good game."""
    teacher = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, OUTPUTS))
    with torch.no_grad():
        targets = teacher(2 * observations - 0.4)
    scaled: Tensor = scale * (targets - targets.mean(0)) / targets.std(0)
    return scaled


def train(
    network: str, seed: int, tasks: int, steps: int, learning_rate: float, scale: float
) -> Course:
    """Train one network on one task after the other."""
    torch.manual_seed(seed)
    observations = (torch.rand(OBSERVATIONS, FEATURES) < 0.2).float()
    all_targets = [new_task(observations, scale) for _ in range(tasks)]
    net = build(network)
    optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate)
    course = Course([], [])
    for number, targets in enumerate(all_targets, start=1):
        for _ in range(steps):
            rows = torch.randint(OBSERVATIONS, (BATCH,))
            loss = (net(observations[rows]) - targets[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            error = (net(observations) - targets).square().mean() / scale**2
        report = diagnose(net, observations)
        course.errors.append(float(error))
        course.diagnoses.append(report)
        last = report[-1]
        print(
            f"  {network:10} seed {seed}  task {number}/{tasks}  error {float(error):.4f}  "
            f"dormant {last.dormant_fraction:4.0%}  effective rank {last.effective_rank:3}",
            flush=True,
        )
    return course


def last_layer(courses: list[Course], quantity: str) -> np.ndarray:
    """Return a quantity of the last hidden layer, (seeds, tasks)."""
    return np.array([[getattr(d[-1], quantity) for d in c.diagnoses] for c in courses])


def draw_curves(results: dict[str, list[Course]], steps: int) -> Figure:
    """Draw error, dormancy, rank and hidden bias over training."""
    seeds = len(next(iter(results.values())))
    panels = {
        "Error on the current task (relative)": lambda c: np.array([one.errors for one in c]),
        "Dormant neurons (%)": lambda c: 100 * last_layer(c, "dormant_fraction"),
        f"Effective rank (of {WIDTH})": lambda c: last_layer(c, "effective_rank"),
        "Hidden bias (% of next layer)": lambda c: 100 * last_layer(c, "hidden_bias_share"),
    }
    figure = new_figure(11, 3)
    for axes, (title, values_of) in zip(figure.subplots(1, 4), panels.items(), strict=True):
        for network, courses in results.items():
            values = values_of(courses)
            x = steps * np.arange(1, values.shape[1] + 1)
            color = NETWORKS[network]
            axes.plot(x, values.mean(0), color=color, label=network)
            axes.fill_between(x, values.min(0), values.max(0), color=color, alpha=0.2, linewidth=0)
        axes.set_title(title, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    figure.supxlabel(
        f"training steps (mean and range of {seeds} seeds, last hidden layer)", fontsize=9
    )
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False
    )
    return figure


def reading(results: dict[str, list[Course]]) -> str:
    """Say what came out, computed from the numbers and whatever they are."""
    tanh, hr = (
        {
            "error": np.mean([c.errors[-1] for c in results[network]]),
            "dormant": last_layer(results[network], "dormant_fraction")[:, -1].mean(),
            "rank": last_layer(results[network], "effective_rank")[:, -1].mean(),
        }
        for network in ("tanh", "tanh + HR")
    )
    seeds = len(results["tanh"])
    verdict = "helped" if hr["dormant"] < tanh["dormant"] and hr["error"] < tanh["error"] else (
        "did not help"
        if hr["dormant"] >= tanh["dormant"] and hr["error"] >= tanh["error"]
        else "gave a mixed result"
    )  # fmt: skip
    comparison = theory.Comparison("tanh", float(tanh["dormant"]), float(hr["dormant"]))
    return (
        f"After the last task, mean of {seeds} seed{'s' if seeds > 1 else ''}: the tanh network's "
        f"last hidden layer has "
        f"{tanh['dormant']:.0%} dormant neurons, effective rank {tanh['rank']:.0f} and an error of "
        f"{tanh['error']:.4f}; its Hadamard twin {hr['dormant']:.0%}, {hr['rank']:.0f} and "
        f"{hr['error']:.4f}. Here the Hadamard Representation {verdict}.\n"
        f"If the two branches died independently, the theory would predict "
        f"{comparison.predicted:.0%} dormant neurons with HR; measured {comparison.measured:.0%}.\n"
        "Both networks have the same width; the Hadamard twin has about twice the weights. This is "
        "one small synthetic task, not evidence about RL; the default setting was chosen because "
        "it shows dormancy setting in, and docs/demo.md has the others tried. The diagnoses "
        "below are of seed 0."
    )


def main() -> None:
    """Train, diagnose, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("example_output"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=8, help="how often the targets change")
    parser.add_argument("--steps", type=int, default=600, help="training steps per task")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="Adam's")
    parser.add_argument("--target-scale", type=float, default=10.0, help="spread of the targets")
    options = parser.parse_args()
    for name in ("seeds", "tasks", "steps"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    for name in ("learning_rate", "target_scale"):
        if not getattr(options, name) > 0:
            flag = name.replace("_", "-")
            parser.error(f"--{flag} must be positive, got {getattr(options, name)}")
    options.output.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    print("Training a tanh network and its Hadamard twin on tasks that keep changing")
    settings = (options.tasks, options.steps, options.learning_rate, options.target_scale)
    results = {
        network: [train(network, seed, *settings) for seed in range(options.seeds)]
        for network in NETWORKS
    }
    text = reading(results)
    finals = {network: courses[0].diagnoses[-1] for network, courses in results.items()}
    page = options.output / "index.html"
    curves = draw_curves(results, options.steps)
    save_comparison(
        page,
        finals,
        title="A tanh network and its Hadamard twin",
        intro=text,
        figures={f"The last hidden layer over training, {options.seeds} seeds": curves},
    )
    curves.savefig(options.output / "curves.png", dpi=150)
    for network, report in finals.items():
        name = network.replace(" + ", "_").lower()
        report.plot_kde().savefig(options.output / f"kde_{name}.png", dpi=150)
        report.plot().savefig(options.output / f"health_{name}.png", dpi=150)
    for network, report in finals.items():
        print(f"\n{network}, seed 0\n{report}")
    print(f"\n{text}\n\n{time.perf_counter() - start:.0f} s. Open {page}")


if __name__ == "__main__":
    main()
