"""Learning curves of other methods, read from a file: drawn beside ours, in no statistic."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hadamard.core.files import RunError, is_file, read_bytes

LARGEST = 2**28
"""Bytes that a file of curves has at most."""
COLUMNS = ("method", "env", "seed", "step", "score")


class CurvesError(ValueError):
    """A file of curves that cannot be used."""


@dataclass(frozen=True, eq=False)
class ImportedCurve:
    """One method on one task."""

    method: str
    env: str
    steps: npt.NDArray[np.float64]
    """In agent steps, like those of our runs."""
    scores: npt.NDArray[np.float64]
    """(seeds, steps); NaN where a seed has no score."""


def read_curves(path: Path) -> list[ImportedCurve]:
    """Read a CSV with the columns method, env (suite/task), seed, step and score."""
    by_curve: dict[tuple[str, str], dict[tuple[str, float], float]] = {}
    try:
        with io.StringIO(_text(path), newline="") as file:
            rows = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
                raise CurvesError(
                    f"{path} has no column {', '.join(missing)}: its first line must name "
                    f"{', '.join(COLUMNS)}"
                )
            for row in rows:
                points = by_curve.setdefault((row["method"], row["env"]), {})
                points[row["seed"], float(row["step"])] = float(row["score"])
    except (OSError, RunError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CurvesError(f"{str(path)!r} cannot be read: {reason}") from error
    except (TypeError, ValueError) as error:
        if isinstance(error, CurvesError):
            raise
        raise CurvesError(
            f"{path}, line {rows.line_num}: step and score must be numbers, got "
            f"{row['step']!r} and {row['score']!r}"
        ) from None
    if not by_curve:
        raise CurvesError(f"{path} holds no curve: there is no row under its first line")
    return [_curve(method, env, points) for (method, env), points in by_curve.items()]


def _text(path: Path) -> str:
    """Return what a file says; a link that the user names is followed, a device is not read."""
    target = Path(os.path.realpath(path))
    if target.exists() and not is_file(target):
        raise CurvesError(f"{str(path)!r} is not a regular file: name a CSV file")
    return read_bytes(target, LARGEST).decode("utf-8-sig")


def _curve(method: str, env: str, points: dict[tuple[str, float], float]) -> ImportedCurve:
    seeds = list(dict.fromkeys(seed for seed, _ in points))
    steps = sorted({step for _, step in points})
    scores = np.array([[points.get((seed, step), np.nan) for step in steps] for seed in seeds])
    return ImportedCurve(method, env, np.array(steps), scores)
