"""Write rliable.json: seeded scores, and what rliable 1.2.0 makes of them.

rliable does not run beside this project's packages (it breaks on pandas 3), so it is run once,
in an environment of its own, and the tests compare with the numbers it left:

    python -m venv rliable_env
    rliable_env/bin/pip install rliable==1.2.0 'pandas<3' 'arch<8'
    rliable_env/bin/python tests/data/make_rliable.py
"""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from rliable import library, metrics

REPS = 50_000
AGGREGATES = {
    "mean": metrics.aggregate_mean,
    "median": metrics.aggregate_median,
    "iqm": metrics.aggregate_iqm,
    "optimality_gap": metrics.aggregate_optimality_gap,
}
PAIRS = (("spread", "spread_rival"), ("ties", "ties_rival"), ("spread", "spread"))
TAUS = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0]


def scores() -> dict[str, Any]:
    """Make score matrices, (runs, tasks) as rliable has them, with few digits to be readable."""
    rng = np.random.default_rng(2021)
    samples = {
        # As Atari: 51 games of 5 seeds, skewed, a few games far above the others.
        "atari": rng.lognormal(rng.normal(0, 1.2, 51), 0.3, (5, 51)) - 0.2,
        "spread": rng.gamma(2.0, rng.uniform(0.2, 1.0, 8), (10, 8)),
        # Fewer runs than what it is compared with.
        "spread_rival": rng.gamma(2.0, rng.uniform(0.2, 1.0, 8), (6, 8)) + 0.3,
        "ties": rng.integers(-1, 3, (5, 6)).astype(float),
        "ties_rival": rng.integers(-1, 3, (5, 6)).astype(float),
    }
    return {name: np.round(matrix, 3) for name, matrix in samples.items()}


def interval(matrices: Any, function: Any) -> tuple[Any, Any]:
    """Return rliable's estimate and the two ends of its interval."""
    np.random.seed(1)  # rliable draws from the global state, whatever it is given  # noqa: NPY002
    values, bounds = library.get_interval_estimates({"it": matrices}, function, reps=REPS)
    return values["it"].tolist(), bounds["it"].tolist()


def main() -> None:
    """Run rliable on everything and write the file."""
    samples = scores()
    aggregates = {}
    for name, matrix in samples.items():
        values, bounds = interval(
            matrix, lambda x: np.array([function(x) for function in AGGREGATES.values()])
        )
        aggregates[name] = {
            aggregate: {"value": value, "low": low, "high": high}
            for aggregate, value, low, high in zip(AGGREGATES, values, *bounds, strict=True)
        }
    improvements = []
    for x, y in PAIRS:
        (value,), ((low,), (high,)) = interval(
            [samples[x], samples[y]],
            lambda a, b: np.array([metrics.probability_of_improvement(a, b)]),
        )
        improvements.append({"x": x, "y": y, "value": value, "low": low, "high": high})
    np.random.seed(1)  # noqa: NPY002
    profiles, bands = library.create_performance_profile(
        {"spread": samples["spread"]}, np.array(TAUS), reps=REPS
    )
    packages = ("rliable", "arch", "numpy", "scipy", "pandas")
    versions = {name: metadata.version(name) for name in packages}
    reference = {
        "made_by": "tests/data/make_rliable.py, which says how",
        "versions": {"python": platform.python_version(), **versions},
        "reps": REPS,
        "scores": {name: matrix.tolist() for name, matrix in samples.items()},
        "aggregates": aggregates,
        "probability_of_improvement": improvements,
        "performance_profile": {
            "scores": "spread",
            "taus": TAUS,
            "value": profiles["spread"].tolist(),
            "low": bands["spread"][0].tolist(),
            "high": bands["spread"][1].tolist(),
        },
    }
    Path(__file__).with_name("rliable.json").write_text(json.dumps(reference) + "\n")


if __name__ == "__main__":
    main()
