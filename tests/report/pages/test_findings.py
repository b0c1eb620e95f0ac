"""Findings: what a comparison says in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import measured, only_section, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.runs import load
from hadamard.report.pages.comparison import write_comparison
from hadamard.report.pages.findings import findings, limits


@pytest.mark.parametrize("settings", [{}, {"algo_q_lambda": 0.9}])
def test_another_budget_alone_gets_no_verdict(tmp_path: Path, settings: dict[str, Any]) -> None:
    for seed in range(4):
        write_run(tmp_path / f"long{seed}", seed, score=5.0 + seed)
        write_run(tmp_path / f"short{seed}", seed, score=1.0, steps=200, **settings)
    section = only_section(tmp_path)
    long, short = (variant.label for variant in section.variants)
    (finding,) = findings(section)
    assert (
        finding.headline == f"{short} against {long}: the budgets differ, so they are not compared."
    )
    assert finding.details[0] == "Final score: 1 (4 seeds, all equal)."
    assert "against" not in "".join(finding.details)


def compare(
    tmp_path: Path,
    base: Sequence[float],
    hr: Sequence[float],
    base_health: Sequence[dict[str, Any]] = (),
    hr_health: Sequence[dict[str, Any]] = (),
) -> tuple[str, str]:
    """Return the headline and the details of the finding about a baseline and HR."""
    for seed, score in enumerate(base):
        write_run(tmp_path / f"base{seed}", seed, score=score, health=base_health)
    for seed, score in enumerate(hr):
        write_run(tmp_path / f"hr{seed}", seed, layer="hadamard", score=score, health=hr_health)
    (finding,) = findings(only_section(tmp_path))
    return finding.headline, "\n".join(finding.details)


def test_better(tmp_path: Path) -> None:
    healthy, sick = [measured(0.1, 3.0, 0.05)], [measured(0.5, 2.0, 0.25)]
    headline, details = compare(tmp_path, [1.0, 2.0, 3.0, 2.0], [5.0, 6.0, 7.0, 6.0], sick, healthy)
    assert headline == "tanh + HR scored higher than tanh."
    assert "Final score: 6 (4 seeds, 5 to 7) against 2 (4 seeds, 1 to 3)." in details
    # Student's interval, of 6 degrees of freedom, would be 2.59 to 5.41.
    assert "The difference is 4 (2.56 to 5.44), with its 95 % interval." in details
    assert "Dormant neurons: 10.0% (all equal) against 50.0% (all equal), fewer." in details
    assert "Effective rank: 3 (all equal) against 2 (all equal), higher." in details
    assert "Hidden bias: 5.0% (all equal) against 25.0% (all equal), smaller." in details
    assert limits(only_section(tmp_path)) == [
        "4 seeds are few: scores in deep RL vary widely from seed to seed."
    ]


def test_better_with_too_few_seeds(tmp_path: Path) -> None:
    headline, details = compare(tmp_path, [1.0, 2.0, 3.0], [500.0, 600.0, 700.0])
    assert headline == "tanh + HR against tanh: too few seeds to show a difference in score."
    few = "Nothing can be concluded: too few seeds (3; a single task needs 4 a side)."
    assert few in details
    assert "The representations cannot be compared: a diagnosis is missing." in details


def test_worse(tmp_path: Path) -> None:
    headline, details = compare(tmp_path, [5.0, 6.0, 7.0, 6.0], [1.0, 2.0, 3.0, 2.0])
    assert headline == "tanh + HR did not help: it scored lower than tanh."
    assert "Final score: 2 (4 seeds, 1 to 3) against 6 (4 seeds, 5 to 7)." in details


def test_another_activation_is_not_said_to_help(tmp_path: Path) -> None:
    for seed in range(4):
        write_run(tmp_path / f"r{seed}", seed, activation="relu", score=5.0 + seed)
        write_run(tmp_path / f"t{seed}", seed, score=0.1 * seed)
    (finding,) = findings(only_section(tmp_path))
    assert finding.headline == "tanh scored lower than ReLU."


def test_no_difference_but_healthier(tmp_path: Path) -> None:
    healthy, sick = [measured(0.1, 3.0, 0.05)], [measured(0.5, 2.0, 0.25)]
    base, hr = [1.0, 3.0, 2.0, 4.0], [2.0, 9.0, 1.0, 3.0]
    headline, details = compare(tmp_path, base, hr, sick, healthy)
    assert headline == "tanh + HR against tanh: no difference in score shown."
    assert "its 95 % interval contains 0." in details
    assert "representation is healthier, but the score is not shown to be higher." in details


def test_equal(tmp_path: Path) -> None:
    same = [measured(0.0, 4.0, 0.0)]
    headline, details = compare(tmp_path, [0.0] * 4, [0.0] * 4, same, same)
    assert headline == "tanh + HR against tanh: no difference in score shown."
    sentence = "Dormant neurons: 0.0% (all equal) against 0.0% (all equal), no difference"
    assert f"{sentence} shown." in details
    assert "healthier" not in details


def test_one_seed(tmp_path: Path) -> None:
    headline, details = compare(tmp_path, [1.0], [2.0], [measured(0.5, 2.0, None)])
    assert headline == "tanh + HR against tanh: too few seeds to show a difference in score."
    assert "Final score: 2 (1 seed) against 1 (1 seed)." in details
    assert "Nothing can be concluded: too few seeds (1; a single task needs 4 a side)." in details
    assert "cannot be compared: a diagnosis is missing" in details
    assert limits(only_section(tmp_path))[-1].startswith("One seed is few")


def test_partly_missing_health(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 0, health=[measured(0.5, 2.0, None)])
    write_run(tmp_path / "b", 1, health=[measured(0.5, 2.0, None), measured(None, None, None)])
    write_run(tmp_path / "c", 0, layer="hadamard", health=[measured(0.25, 2.0, 0.1)])
    (finding,) = findings(only_section(tmp_path))
    details = "\n".join(finding.details)
    assert "Dormant neurons: 25.0% against 50.0% (1 of 2 seeds), no difference shown." in details
    assert "Effective rank: 2 against 2 (1 of 2 seeds), no difference shown." in details
    assert "Hidden bias: 10.0% against not measured." in details


def test_no_finished_run_and_no_episode(tmp_path: Path) -> None:
    write_run(tmp_path / "a", score=None)
    write_run(tmp_path / "b", layer="hadamard", finished=False, score=[1.0, None])
    section = only_section(tmp_path)
    (finding,) = findings(section)
    assert finding.headline == "tanh + HR against tanh: the scores cannot be compared yet."
    expected = "tanh + HR has no finished run. tanh has no finished episode."
    assert finding.details[0] == expected
    assert limits(section) == [
        "tanh + HR, seed 0, is not finished (20% of its steps): it is in the curves but not in the "
        "final numbers.",
        "tanh + HR, seed 0: 1 episode left out, because the score is not a finite number.",
    ]
    write_comparison(tmp_path / "page.html", load([tmp_path]), title="So far")
    assert "2 runs, 1 finished" in (tmp_path / "page.html").read_text()


def test_a_single_variant_and_further_differences(tmp_path: Path) -> None:
    write_run(tmp_path / "a", health=[measured(0.5, 2.0, 0.25)])
    (finding,) = findings(only_section(tmp_path))
    assert finding.headline == "tanh is the only variant: there is nothing to compare it with."
    assert finding.details[:2] == ["Final score: 1 (1 seed).", "Dormant neurons: 50.0%."]
    write_run(tmp_path / "b", layer="hadamard", steps=2000)
    (finding,) = findings(only_section(tmp_path))
    assert finding.details[-1] == "Note that they also differ in train.steps (2000 against 1000)."
