"""Our evaluations beside the published ones: is the return inside the ten seeds' range?

    python benchmarks/published_curves.py CURVES.csv RUNS... [--per-step 2] [--figure FILE.png]

CURVES.csv has the columns task, seed, env_step and mean_return; RUNS are run folders or folders of
them. ``--per-step`` is how many of the file's steps one of ours is (2 for SimbaV2 on
HumanoidBench, where an action is repeated).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import load

Curves = dict[str, dict[int, list[float]]]


def published(path: Path) -> Curves:
    """Return the published returns of all seeds by task and step."""
    curves: Curves = defaultdict(lambda: defaultdict(list))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            task = row["task"].removesuffix("-v0").replace("_", "-")
            curves[task][int(row["env_step"])].append(float(row["mean_return"]))
    return curves


def evaluations(run: RunData, per_step: int) -> dict[int, float]:
    """Return the mean of every evaluation of a run, by the published count of steps."""
    series = run.score_series("evaluation")
    return {int(step) * per_step: float(mean) for step, mean in zip(*series, strict=True)}


def table(curves: Curves, runs: list[RunData], per_step: int) -> None:
    """Print the last evaluations of every run that have a published counterpart."""
    print(f"{'task':<18}{'variant':<16}{'seed':>5}{'steps':>10}{'return':>9}  published range")
    inside = total = 0
    for run in sorted(runs, key=lambda run: (run.env, run.label, run.seed)):
        task = run.env.partition("/")[2]
        ours = evaluations(run, per_step)
        shared = sorted(set(ours) & set(curves[task]))
        for step in shared[-2:]:
            low, high = min(curves[task][step]), max(curves[task][step])
            where = (
                "inside" if low <= ours[step] <= high else "below" if ours[step] < low else "above"
            )
            inside += where == "inside"
            total += 1
            print(
                f"{task:<18}{run.label:<16}{run.seed:>5}{step:>10,}{ours[step]:>9.1f}  "
                f"{low:.1f} to {high:.1f}: {where}"
            )
    print(f"{inside} of {total} inside")


def draw(curves: Curves, runs: list[RunData], per_step: int, path: Path) -> None:
    """Draw every run over the published seeds."""
    tasks = sorted({run.env.partition("/")[2] for run in runs})
    labels = sorted({run.label for run in runs}, key=lambda label: ("HR" in label, label))
    colors = dict(zip(labels, ("#4c566a", "#c2410c", "#0f766e", "#7c3aed"), strict=False))
    figure = Figure(figsize=(4.2 * len(tasks), 3.4), layout="constrained")
    for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        task_runs = [run for run in runs if run.env.partition("/")[2] == task]
        end = max(max(evaluations(run, per_step), default=0) for run in task_runs)
        steps = np.array(sorted(step for step in curves[task] if step <= 1.05 * end))
        returns = [curves[task][step] for step in steps.tolist()]
        low, high = [min(v) for v in returns], [max(v) for v in returns]
        axes.fill_between(steps, low, high, color="#d8dee9", label="published, 10 seeds: range")
        axes.plot(steps, [np.mean(v) for v in returns], color="#9aa5b8", lw=1, label="their mean")
        for run in task_runs:
            ours = evaluations(run, per_step)
            label = run.label if run.seed == min(r.seed for r in task_runs) else None
            axes.plot(
                list(ours), list(ours.values()), "o-", ms=3, lw=1.2, color=colors[run.label],
                label=label,
            )  # fmt: skip
        axes.set(title=task, xlabel="environment steps", ylabel="return of an evaluation")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
        axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("curves", type=Path, help="the published curves")
    parser.add_argument("runs", type=Path, nargs="+", help="run folders, or folders of them")
    parser.add_argument("--per-step", type=int, default=1, help="published steps in one of ours")
    parser.add_argument("--figure", type=Path, help="also draw them here")
    options = parser.parse_args()
    curves, runs = published(options.curves), list(load(options.runs))
    unknown = {run.env.partition("/")[2] for run in runs} - set(curves)
    if unknown:
        sys.exit(f"{options.curves} has no task {', '.join(sorted(unknown))}")
    table(curves, runs, options.per_step)
    if options.figure:
        draw(curves, runs, options.per_step, options.figure)
        print(f"wrote {options.figure}")


if __name__ == "__main__":
    main()
