"""The MinAtar table of docs/results.md, from finished runs.

    python benchmarks/minatar_table.py RUNS [--peers FOLDER] [--episodes 20]

``RUNS`` holds runs of `hadamard train`. A score is the mean of a run's last 100 training episodes;
greedy is the mean of ``--episodes`` whole games without exploration, played now with the run's
last checkpoint. The table shows mean and standard deviation over the seeds. ``--peers`` holds the
results of another implementation, one JSON file a run with "algo", "game", "seed", "steps",
"final_score" and "greedy_score".
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from hadamard import envs
from hadamard.core.random import child_seed
from hadamard.report.data.runs import load
from hadamard.training.evaluate import evaluate
from hadamard.training.load_agent import load_agent

Table = dict[tuple[str, str, int], dict[str, list[float]]]


def greedy_score(path: Path, episodes: int) -> float:
    """Play greedy episodes with a run's agent."""
    agent, spec, _step, device, _ = load_agent(str(path), "cpu")
    played = envs.make(spec.env, child_seed(spec.seed, 20), episodes, device, training=False)
    try:
        return float(np.mean([e.score for e in evaluate(agent, played, episodes)]))
    finally:
        played.close()


def ours(folder: Path, episodes: int) -> Table:
    """Collect the scores of our runs."""
    table: Table = defaultdict(lambda: defaultdict(list))
    for run in load([folder]):
        if run.finished:
            key = (run.algorithm, run.env.partition("/")[2], run.steps)
            table[key]["score"].append(run.final("score"))
            table[key]["greedy"].append(greedy_score(run.path, episodes))
    return table


def peers(folder: Path) -> Table:
    """Collect the scores of the other implementation."""
    table: Table = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        if result.get("done", True):
            # The budget in the settings; whole rollouts may end a little earlier.
            key = (result["algo"], result["game"], result["steps"])
            table[key]["score"].append(result["final_score"])
            table[key]["greedy"].append(result["greedy_score"])
    return table


def cell(values: list[float] | None) -> str:
    """Return mean and standard deviation over the seeds, and their number if it is not three."""
    if not values:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
    count = "" if len(values) == 3 else f" ({len(values)} seeds)"
    return f"{np.mean(values):.1f}{spread}{count}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--episodes", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    own_table = ours(options.runs, options.episodes)
    peer_table = peers(options.peers) if options.peers else {}
    print("| | steps | score, ours | score, theirs | greedy, ours | greedy, theirs |")
    print("|---|---|---|---|---|---|")
    for key in sorted(own_table):
        algorithm, game, steps = key
        pair = own_table[key], peer_table.get(key, {})
        cells = [cell(scores.get(kind)) for kind in ("score", "greedy") for scores in pair]
        print(f"| {algorithm.upper()} {game} | {steps:,} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
