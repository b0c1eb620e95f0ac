"""Do runs made in another way end alike? Final scores and health of every setting, side by side.

    python benchmarks/same_results.py results/fleet-check/alone results/fleet-check/together

Two folders of runs or packed runs of the same settings with several seeds. For every task and
variant: the means of both, and how likely they would differ as much by chance (the Mann-Whitney
test). Of the comparisons of two groups that are alike, one in twenty falls below 0.05.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy.stats import mannwhitneyu

from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import load

Values = dict[str, list[float]]
"""Of each run, by measure."""
Setting = tuple[str, str, str]
"""Algorithm, task and variant."""


def measured(run: RunData) -> dict[str, float]:
    """Return what is compared of a run."""
    health = run.layers[run.representation]
    return {
        **{f"{kind} score": final for kind, final in sorted(run.finals.items())},
        "episodes": run.episodes,
        "dormant share": health["dormant_fraction"][-1],
        "effective rank": health["effective_rank"][-1],
    }


def by_setting(runs: Iterable[RunData]) -> dict[Setting, Values]:
    """Return the measures of all runs of each setting."""
    settings: dict[Setting, Values] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for name, value in measured(run).items():
            settings[run.algorithm, run.env, run.label][name].append(float(value))
    return settings


def chance(one: list[float], other: list[float]) -> float:
    """Return how likely two samples of one distribution differ as much; 1 if all are equal."""
    return 1.0 if len({*one, *other}) == 1 else float(mannwhitneyu(one, other).pvalue)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs=2, type=Path, metavar="FOLDER")
    folders = parser.parse_args().folders
    groups = [by_setting(load([folder])) for folder in folders]
    if not (common := sorted(set(groups[0]) & set(groups[1]))):
        sys.exit(f"{folders[0]} and {folders[1]} have no algorithm, task and variant in common")
    chances: dict[str, list[float]] = defaultdict(list)
    for setting in common:
        one, other = (group[setting] for group in groups)
        print(", ".join(setting))
        for name in one:
            likely = chance(one[name], other[name])
            chances[name].append(likely)
            means = f"{np.mean(one[name]):12.5g} {np.mean(other[name]):12.5g}"
            runs = f"{len(one[name])} and {len(other[name])} runs"
            print(f"  {name:<16} {means}   {runs}, p {likely:.2g}")
    print()
    for name, values in chances.items():
        below = sum(value < 0.05 for value in values)
        counted = f"{below} of {len(values)} comparisons below 0.05"
        print(f"{name:<16} {counted}, smallest {min(values):.2g}")


if __name__ == "__main__":
    main()
