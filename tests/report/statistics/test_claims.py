"""The paper's sentences and numbers, judged by runs whose numbers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadamard.experiments.paper import Claim, Experiment, Stated
from hadamard.report.statistics.claims import JudgedClaim, judge_claims
from tests.support.panels import HR, TANH, TASKS, panel, panel_runs

LOW, HIGH = [10.0, 10.1, 9.9, 10.0], [15.0, 15.1, 14.9, 15.0]
SCORES: dict[str, Any] = {
    "tanh": dict.fromkeys(TASKS, LOW),
    "tanh + HR": dict.fromkeys(TASKS, HIGH),
}


def judged(folder: Path, *statements: Claim | Stated, scores: Any = SCORES) -> list[JudgedClaim]:
    claims = tuple(each for each in statements if isinstance(each, Claim))
    stated = tuple(each for each in statements if isinstance(each, Stated))
    experiment = Experiment(
        "name", "place", "anchor", "shows", "curves", (panel(),), claims=claims, stated=stated
    )
    return judge_claims(experiment, {"pqn": panel_runs(folder, scores)})


def claim(kind: Any, **fields: Any) -> Claim:
    return Claim("words", "where", "pqn", kind, **{"arm": HR, **fields})


def stated(value: float, measure: str, **fields: Any) -> Stated:
    return Stated("pqn", HR, value, "unit", "where", measure, **fields)


@pytest.mark.parametrize(
    ("statement", "verdict", "value", "unit", "reason"),
    [
        (claim("higher", against=TANH), "supported", 50, "percent", "lies above 0"),
        (claim("lower", against=TANH), "not supported", 50, "percent", "lies above 0"),
        (claim("higher", against=TANH, by=40), "supported", 50, "percent", "above 40"),
        (claim("higher", against=TANH, by=60), "not supported", 50, "percent", "below 60"),
        (claim("equal", against=TANH, by=60), "supported", 50, "percent", "lies inside"),
        (claim("equal", against=TANH, by=10), "not supported", 50, "percent", "lies outside"),
        (
            claim("equal", measure="dormant_fraction", by=60), "supported", 0.5, "points",
            "lies inside the margin of 0.6",
        ),
        (
            claim("higher", measure="dormant_fraction", since=0.5), "supported", 0.25, "points",
            "lies above 0",
        ),
        (
            claim("higher", measure="dormant_fraction", since=0.1), "undecided", np.nan, "points",
            "no value was measured that early",
        ),
    ],
)  # fmt: skip
def test_sentences(
    tmp_path: Path, statement: Claim, verdict: str, value: float, unit: str, reason: str
) -> None:
    (result,) = judged(tmp_path, statement)
    assert (result.verdict, result.unit, result.paper) == (verdict, unit, None)
    assert result.ours.value == pytest.approx(value, nan_ok=True)
    assert reason in result.reason
    assert result.kind == ("equality" if statement.kind == "equal" else "direction")


@pytest.mark.parametrize(
    ("statement", "verdict", "value", "text"),
    [
        (stated(15.0, "score"), "supported", 15, "tanh + HR: score"),
        (stated(14.0, "score"), "not supported", 15, "tanh + HR: score"),
        (stated(50.0, "change", against=TANH), "supported", 50,
         "tanh + HR against tanh: change of the score"),
        (stated(1.5, "relative", against=TANH), "supported", 1.5,
         "tanh + HR against tanh: score"),
        (stated(1.3, "relative", against=TANH), "not supported", 1.5,
         "tanh + HR against tanh: score"),
        (stated(1.0, "time", against=TANH), "supported", 1,
         "tanh + HR against tanh: time of training"),
        (stated(0.5, "dormant_fraction"), "supported", 0.5, "tanh + HR: dormant neurons"),
    ],
)  # fmt: skip
def test_numbers(tmp_path: Path, statement: Stated, verdict: str, value: float, text: str) -> None:
    (result,) = judged(tmp_path, statement)
    assert (result.verdict, result.text, result.kind) == (verdict, text, "size")
    assert (result.paper, result.unit) == (statement.value, "unit")
    assert result.ours.value == pytest.approx(value)
    assert result.ours.low <= result.ours.value <= result.ours.high


def test_what_was_not_measured_is_undecided(tmp_path: Path) -> None:
    sentence, number = judged(
        tmp_path,
        claim("higher", against=TANH),
        stated(50.0, "change", against=TANH),
        scores={"tanh + HR": SCORES["tanh + HR"]},
    )
    for result in (sentence, number):
        assert (result.verdict, result.reason) == ("undecided", "not measured: tanh")
        assert np.isnan(result.ours).all()
    assert sentence.text == "words"
