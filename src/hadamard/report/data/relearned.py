"""What a run's networks relearned, and what they measured before: ``relearning.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hadamard.core.files import RunError, read_json
from hadamard.core.run import Run
from hadamard.report.data import rows
from hadamard.report.data.fields import Fields, WrongField
from hadamard.report.data.numbers import is_number, shortened
from hadamard.report.data.series import FloatArray, IntArray

FILE = "relearning.json"
TARGETS = {"random": "random targets", "other": "another game"}
"""What networks relearn, by its name in files."""


@dataclass(frozen=True, eq=False)
class Relearned:
    """The results of one run's checkpoints."""

    steps: IntArray
    measures: Mapping[str, FloatArray]
    """Before relearning, at ``steps``; NaN where one is missing."""
    learned: Mapping[str, FloatArray]
    """By target: the share of its variance that was explained at the end."""
    budget: Mapping[str, Any]
    """The settings of relearning."""
    other_task: str
    """The game whose returns were learned; "" if none fits."""


def thinned_relearning(run: Run, troubles: list[str]) -> dict[str, Any] | None:
    """Return the results in a run's folder as columns; None without any that can be read."""
    path = run.path / FILE
    try:
        values = read_json(path)
    except FileNotFoundError:
        return None
    except (RunError, OSError) as error:
        troubles.append(f"relearning is left out: {error}")
        return None
    listed, budget = values.get("rows"), values.get("budget")
    if not isinstance(listed, list) or not isinstance(budget, dict):
        troubles.append(f"{path} holds no rows and budget of relearning; it is left out")
        return None
    points = [row for row in listed if isinstance(row, dict) and rows.is_step(row.get("step"))]
    points.sort(key=lambda row: row["step"])
    if len(points) < len(listed):
        troubles.append(f"{len(listed) - len(points)} rows of {path} have no step")
    return {
        "steps": [int(row["step"]) for row in points],
        "measures": _columns(points, "measures"),
        "learned": _columns(points, "learned"),
        "budget": {name: value for name, value in budget.items() if is_number(value)},
        "other_task": values["other_task"] if isinstance(values.get("other_task"), str) else "",
    }


def _columns(points: list[dict[str, Any]], group: str) -> dict[str, list[float | int | None]]:
    """Return the numbers of a group of fields by name, None where a row lacks one."""
    groups = [row[group] if isinstance(row.get(group), dict) else {} for row in points]
    names = dict.fromkeys(name for values in groups for name in values)
    columns = {name: shortened([values.get(name) for values in groups]) for name in names}
    return {name: column for name, column in columns.items() if set(column) != {None}}


def relearned(fields: Fields) -> Relearned:
    """Return an untrusted record's results, checked."""
    steps = fields.steps("steps")
    measures, learned = (
        _checked(fields.fields(key), len(steps)) for key in ("measures", "learned")
    )
    budget = fields.fields("budget")
    return Relearned(
        steps,
        measures,
        {name: learned[name] for name in TARGETS if name in learned},
        {name: budget.number(name) for name in budget.values},
        fields.text("other_task"),
    )


def _checked(columns: Fields, count: int) -> dict[str, FloatArray]:
    checked = {name: columns.numbers(name) for name in columns.values}
    for name, values in checked.items():
        if len(values) != count:
            raise WrongField(f"relearning: {name} has {len(values)} values for {count} steps")
    return checked
