"""Do runs made in another way learn the same? Their scores side by side.

    python benchmarks/same_curves.py --group fast FAST/* --group eager EAGER/* [--figure FILE.png]

Two groups, each a name and run folders of any number of algorithms, environments and seeds. What is
compared is the mean score of the training episodes in each tenth of what all runs of a task have
reached: every run, the groups' means, and how likely they would differ as much by chance (the
Mann-Whitney test). The figure shows every run to its own end.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import mannwhitneyu

from hadamard.report.data import rows
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import load

Groups = dict[str, list[RunData]]
POINTS = 10


@functools.cache
def episodes(run: RunData) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps at which a run's episodes ended, and their scores."""
    values = rows.columns(run.path / "episodes.jsonl", ("step", "score")).values
    sound = np.isfinite(values["score"])
    return values["step"][sound], values["score"][sound]


def around(run: RunData, steps: np.ndarray) -> np.ndarray:
    """Return the mean score of the episodes that ended between each step and the one before."""
    ended, scores = episodes(run)
    bounds = np.concatenate([[0], steps])
    parts = itertools.pairwise(bounds)
    return np.array([scores[(ended > low) & (ended <= high)].mean() for low, high in parts])


def on_task(groups: Groups, algorithm: str, env: str) -> Groups:
    """Return the runs of a task; every group must have some."""
    chosen = {
        name: [run for run in runs if (run.algorithm, run.env) == (algorithm, env)]
        for name, runs in groups.items()
    }
    lacking = [name for name, runs in chosen.items() if not runs]
    if lacking:
        sys.exit(f"group {lacking[0]} has no run of {algorithm} on {env}")
    return chosen


def reached(run: RunData) -> int:
    """Return the step of a run's last episode."""
    return int(episodes(run)[0].max())


def print_row(name: str, values: np.ndarray) -> None:
    """Print one number for each tenth."""
    print(f"{name:<12}" + "".join(f"{value:>10.2f}" for value in values))


def main() -> None:
    """Print the scores, and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--group", nargs="+", action="append", required=True, metavar="NAME RUNS")
    parser.add_argument("--figure", type=Path, help="also draw them here")
    options = parser.parse_args()
    if len(options.group) != 2:
        parser.error(f"two groups are compared, got {len(options.group)}: --group NAME RUNS twice")
    groups = {name: list(load([Path(p) for p in paths])) for name, *paths in options.group}
    every_run = [run for runs in groups.values() for run in runs]
    algorithms = sorted({run.algorithm for run in every_run})
    tasks = sorted({run.env for run in every_run})
    size = 4.2 * len(tasks), 3.0 * len(algorithms)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(algorithms), len(tasks), squeeze=False)
    for (algorithm, env), axes in zip(
        itertools.product(algorithms, tasks), panels.flat, strict=True
    ):
        runs = on_task(groups, algorithm, env)
        width = min(reached(run) for group in runs.values() for run in group) / POINTS
        print(f"{algorithm} on {env}, score of training episodes up to step")
        print(f"{'':<12}" + "".join(f"{i * width / 1000:>9,.0f}k" for i in range(1, POINTS + 1)))
        tenths: dict[str, list[np.ndarray]] = {name: [] for name in runs}
        for (name, group), color in zip(runs.items(), ("#c2410c", "#4c566a"), strict=True):
            for i, run in enumerate(group):
                steps = width * np.arange(1, int(reached(run) / width) + 1)
                scores = around(run, steps)
                tenths[name].append(scores[:POINTS])
                print_row(f"{name} {i}", scores[:POINTS])
                axes.plot(steps, scores, lw=1.2, color=color, label=None if i else name)
        for name, runs_scores in tenths.items():
            print_row(f"{name}, mean", np.mean(runs_scores, axis=0))
            if len(runs_scores) > 1:
                print_row("  deviation", np.std(runs_scores, axis=0, ddof=1))
        print_row("p", mannwhitneyu(*tenths.values()).pvalue)
        title = f"{algorithm.upper()}, {env}"
        axes.set(title=title, xlabel="steps", ylabel="score of training episodes")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    if options.figure:
        figure.savefig(options.figure, dpi=130)
        print(f"wrote {options.figure}")


if __name__ == "__main__":
    main()
