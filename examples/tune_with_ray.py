"""Tune an algorithm with Ray Tune: trials in processes of their own, on one machine or a cluster.

    pip install 'ray[tune]' 'hadamard-rl[minatar]'
    python examples/tune_with_ray.py --trials 20

Every trial is a run in the folder, which must be one that all machines share:
`hadamard report FOLDER -o report.html` compares them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler

import hadamard


def objective(config: dict[str, Any]) -> None:
    """Train one trial, and report its score after each log row; Tune stops bad trials."""

    def report(event: hadamard.Event) -> None:
        if event.kind == "log" and event.score is not None:
            tune.report({"score": event.score, "steps": event.step})

    trial = tune.get_context().get_trial_id()
    run = hadamard.train(
        config["algorithm"],
        config["env"],
        learning_rate=config["learning_rate"],
        layer=config["layer"],
        steps=config["steps"],
        log_every=max(config["steps"] // 20, 1),
        threads=1,
        run_dir=Path(config["folder"]) / f"trial_{trial}",
        callbacks=report,
        overwrite=True,
        show_progress=False,
    )
    tune.report({"score": run.score, "steps": config["steps"]})


def main() -> None:
    """Tune, and print the best settings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithm", default="pqn")
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--trials", type=int, default=20, help="how many settings to try")
    parser.add_argument("--steps", type=int, default=300_000, help="steps of each trial")
    parser.add_argument("--folder", type=Path, default=Path("runs/tuning"))
    options = parser.parse_args()
    folder = options.folder.resolve()
    tuner = tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        param_space={
            "learning_rate": tune.loguniform(1e-5, 1e-2),
            "layer": tune.choice(["plain", "hadamard"]),
            "algorithm": options.algorithm,
            "env": options.env,
            "steps": options.steps,
            "folder": str(folder / "runs"),
        },
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            num_samples=options.trials,
            scheduler=ASHAScheduler(
                time_attr="steps", max_t=options.steps, grace_period=max(options.steps // 4, 1)
            ),
        ),
        run_config=tune.RunConfig(storage_path=str(folder / "ray"), verbose=0),
    )
    results = tuner.fit()
    best = results.get_best_result()
    chosen = {name: (best.config or {})[name] for name in ("learning_rate", "layer")}
    score = (best.metrics or {})["score"]
    print(f"best of {len(results)} trials: score {score:.2f} with {chosen}")


if __name__ == "__main__":
    main()
