"""Do runs made in another way learn the same? Their scores side by side.

    python benchmarks/same_curves.py --group fast FAST/* --group eager EAGER/* [--figure FILE.png]

A group is a name and run folders, of any number of environments and seeds; what is compared is the
mean score of the training episodes around ten points of the budget that all runs of an environment
have reached.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hadamard.report.runs import RunData, load

Groups = dict[str, list[RunData]]
POINTS = 10


def around(run: RunData, steps: np.ndarray) -> np.ndarray:
    """Return the mean score of the episodes that ended in the tenth up to each step."""
    ended, scores = run.episodes.steps, run.episodes.values
    bounds = np.concatenate([[0], steps])
    parts = itertools.pairwise(bounds)
    return np.array([scores[(ended > low) & (ended <= high)].mean() for low, high in parts])


def compare(groups: Groups, env: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the steps, and of each group the scores (runs, steps) there."""
    of_env = {name: [r for r in runs if r.env == env] for name, runs in groups.items()}
    lacking = [name for name, runs in of_env.items() if not runs]
    if lacking:
        sys.exit(f"group {lacking[0]} has no run of {env}")
    reached = min(int(r.episodes.steps.max()) for runs in of_env.values() for r in runs)
    steps = np.linspace(0, reached, POINTS + 1)[1:]
    return steps, {n: np.stack([around(r, steps) for r in rs]) for n, rs in of_env.items()}


def main() -> None:
    """Print the scores, and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--group", nargs="+", action="append", required=True, metavar="NAME RUNS")
    parser.add_argument("--figure", type=Path, help="also draw them here")
    asked = parser.parse_args()
    groups = {name: list(load([Path(p) for p in paths])) for name, *paths in asked.group}
    tasks = sorted({run.env for runs in groups.values() for run in runs})
    figure = Figure(figsize=(4.2 * len(tasks), 3.2), layout="constrained")
    for axes, env in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        steps, scores = compare(groups, env)
        print(f"{env}, score of training episodes up to step")
        print(f"{'':<12}" + "".join(f"{step / 1000:>9,.0f}k" for step in steps))
        for (name, found), colour in zip(scores.items(), ("#c2410c", "#4c566a"), strict=True):
            for i, row in enumerate(found):
                print(f"{f'{name} {i}':<12}" + "".join(f"{score:>10.2f}" for score in row))
                axes.plot(steps, row, lw=1.2, color=colour, label=None if i else name)
        axes.set(title=env, xlabel="steps", ylabel="score of training episodes")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    if asked.figure:
        figure.savefig(asked.figure, dpi=130)
        print(f"wrote {asked.figure}")


if __name__ == "__main__":
    main()
