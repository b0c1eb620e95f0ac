"""The numbers at the end of the runs of a section, as a table."""

from __future__ import annotations

import math
from functools import partial

from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section, Variant
from hadamard.report.measures import HEALTH, MEASURES, SCORES, ScoreKind, number
from hadamard.report.statistics.task_scores import finite


def final_numbers(section: Section) -> tuple[dict[str, list[str]], str]:
    """Return the columns of the table of a section's variants, and its caption."""
    variants = section.variants
    score_kinds: dict[ScoreKind, None] = dict.fromkeys(v.score_kind for v in variants)
    cells = {
        "variant": [v.label for v in variants],
        "score by seed": [" · ".join(_seed_cell(run) for run in v.runs) for v in variants],
    }
    for key in ("score", "training_score", *HEALTH, "steps_per_second"):
        if key == "training_score" and set(score_kinds) == {"training"}:
            continue  # it is the score
        cell = _rank_cell if key == "effective_rank" else partial(_cell, measure=key)
        cells[MEASURES[key].column] = [cell(v) for v in variants]
    cells = {name: column for name, column in cells.items() if set(column) != {"–"}}
    caption = (
        "Numbers at the end: means over the finished seeds. Score: "
        f"{', or '.join(SCORES[kind].final for kind in score_kinds)}. Dormant neurons, rank and "
        "hidden bias are those of the last diagnosis."
    )
    if "training score" in cells:
        caption += f" Training score: {SCORES['training'].final}."
    return cells, caption


def _seed_cell(run: RunData) -> str:
    score = run.final("score")
    text = number(score) if math.isfinite(score) else "–"
    return text if run.finished else f"({text} at {run.reached:,} steps)"


def _cell(variant: Variant, measure: str) -> str:
    values = finite(variant.finals(measure))
    return MEASURES[measure].text(float(values.mean())) if values.size else "–"


def _rank_cell(variant: Variant) -> str:
    rank, full = (_cell(variant, name) for name in ("effective_rank", "full_rank"))
    return rank if "–" in (rank, full) else f"{rank} / {full}"
