"""Tune an algorithm with Optuna: two trials at a time in one process, bad ones stopped early.

    pip install optuna 'hadamard-rl[minatar]'
    python examples/tune_with_optuna.py --trials 20 --jobs 2

Every trial is a run in the folder: `hadamard report FOLDER -o report.html` compares them, and a
trial that was stopped early can be trained on with `hadamard train --resume FOLDER/trial3`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import optuna

import hadamard


def main() -> None:
    """Tune, and print the best settings."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithm", default="pqn")
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--trials", type=int, default=20, help="how many settings to try")
    parser.add_argument("--jobs", type=int, default=2, help="how many trials run at a time")
    parser.add_argument("--steps", type=int, default=300_000, help="steps of each trial")
    parser.add_argument("--folder", type=Path, default=Path("runs/tuning"))
    options = parser.parse_args()

    def objective(trial: optuna.Trial) -> float:
        def prune(event: hadamard.Event) -> None:
            if event.kind == "log" and event.score is not None:
                trial.report(event.score, event.step)
                if trial.should_prune():
                    event.stop()  # saves the run, and train returns

        run = hadamard.train(
            options.algorithm,
            options.env,
            learning_rate=trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
            layer=trial.suggest_categorical("layer", ["plain", "hadamard"]),
            steps=options.steps,
            log_every=max(options.steps // 20, 1),
            threads=1,
            run_dir=options.folder / f"trial{trial.number}",
            callbacks=prune,
            overwrite=True,
            show_progress=False,
        )
        if not run.finished:
            raise optuna.TrialPruned
        return run.score

    pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=options.steps // 4)
    sampler = optuna.samplers.TPESampler(seed=0)
    study = optuna.create_study(direction="maximize", pruner=pruner, sampler=sampler)
    study.optimize(objective, n_trials=options.trials, n_jobs=options.jobs)
    best = study.best_trial
    print(f"best of {len(study.trials)} trials: score {best.value:.2f} with {best.params}")
    print(f"its run: {options.folder / f'trial{best.number}'}")


if __name__ == "__main__":
    main()
