"""`reproduce measures`: trained, relearned and drawn on two variants, and what the drawing says."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadamard.experiments import paper
from hadamard.experiments.paper import STUDIES
from hadamard.experiments.paper.model import Arm, Experiment
from hadamard.report import compositions
from hadamard.report.compositions import Drawing
from hadamard.report.compositions.predictors import PREDICTORS
from hadamard.report.data.runs import load
from hadamard.report.measures import MEASURES
from hadamard.report.statistics.panel import PanelRuns
from hadamard.training import start
from tests.support.commands import Command
from tests.support.runs import measured, write_run

MEASURES_STUDY = STUDIES["measures"]


def _with_two_arms() -> Experiment:
    arms = Arm("ReLU", "relu"), Arm("tanh + HR", "tanh+hr", style=1)
    panels = tuple(panel.with_arms(*arms) for panel in MEASURES_STUDY.panels)
    return dataclasses.replace(MEASURES_STUDY, panels=panels)


def test_it_has_the_runs_of_remedies_with_kept_checkpoints() -> None:
    assert MEASURES_STUDY.panels == STUDIES["remedies"].panels
    for job in paper.jobs(_with_two_arms(), "paper", "runs", seeds=1, tasks=["breakout"]):
        train = job.spec.train
        assert train.keep_every % train.checkpoint_every == 0
        # Kept at 40 and 80 %, and the last one.
        assert (train.keep_every * 5, train.steps % train.checkpoint_every) == (2 * train.steps, 0)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_trained_relearned_and_drawn(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = _with_two_arms()
    study = dataclasses.replace(study, panels=study.panels[:1])
    monkeypatch.setitem(STUDIES, "measures", study)
    for job in paper.jobs(study, "smoke", tmp_path / "runs", share=0.2):
        start.train(job.algorithm, job.spec)
    words = [
        "reproduce",
        "measures",
        "--folder",
        str(tmp_path / "runs"),
        "--jobs",
        "1",
        "--share",
        "0.2",
    ]
    result = command(*words)
    assert result.code == 0, result.err
    page = tmp_path / "runs" / "smoke" / "figures" / "measures"
    rows = list(csv.DictReader((page / "numbers.csv").open()))
    assert {row["target"] for row in rows} == {"random", "other"}
    assert {row["algorithm"] for row in rows} == {"pqn"}
    shown = {row["measure"] for row in rows}
    # At this size some measures are the same for all networks, which have no correlation.
    assert {"effective_rank", "stable_rank", "weight_norm", "value_churn"} <= shown
    for row in rows:
        assert -1 <= float(row["rank_correlation"]) <= 1
        assert (row["networks"], row["runs"], row["games"]) == ("8", "4", "1")
        assert row["low"] == ""  # four runs are too few for an interval
    for name in ("figure.svg", "figure.png", "numbers.tex", "index.html"):
        assert (page / name).stat().st_size > 500
    again = command(*words)
    assert again.code == 0
    assert "4 runs done before" in again.out


def run_of(folder: Path, task: str, variant: int, seed: int, values: Any) -> None:
    """Write a run whose networks at 400 and 1000 steps measured and learned these numbers."""
    name = f"{task}-{variant}-{seed}"
    layer = ("plain", "hadamard")[variant]
    health = [measured(0.1, 3.0, 0.2)] * 5
    write_run(folder / name, seed, layer, env=f"minatar/{task}", health=health)
    rows = [
        {"step": step, "measures": {"stable_rank": rank}, "learned": {"random": learned}}
        for step, (rank, learned) in zip((400, 1000), values, strict=True)
    ]
    text = json.dumps({"budget": {"updates": 20}, "rows": rows})
    (folder / name / "relearning.json").write_text(text)


def drawing_of(folder: Path, tasks: tuple[str, ...]) -> Drawing:
    panel = dataclasses.replace(MEASURES_STUDY.panels[0], steps=1000, tasks=tasks)
    runs = load([folder])
    by_arm: dict[str, dict[str, list[Any]]] = {}
    for run in runs:
        label = "ReLU" if run.name.split("-")[1] == "0" else "tanh + HR"
        by_arm.setdefault(label, {}).setdefault(run.env, []).append(run)
    data = PanelRuns(panel.with_arms(*panel.arms, tasks=tasks), 1000, by_arm)
    return Drawing(MEASURES_STUDY, {"pqn": data}, "interval")


def test_the_numbers_are_those_of_the_networks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for task in ("breakout", "asterix"):
        for variant in range(2):
            for seed in range(5):
                # What is learned rises with the rank at 1000 steps, and falls with it at 400.
                ranks = rng.uniform(1, 9, 2)
                values = [(ranks[0], -ranks[0] / 10), (ranks[1], ranks[1] ** 2 / 100)]
                run_of(tmp_path, task, variant, seed, values)
    drawing = drawing_of(tmp_path, ("minatar/breakout", "minatar/asterix"))
    composed = compositions.compose(drawing)
    (table,) = composed.tables
    assert table.data["measure"] == ["stable_rank"]
    assert table.data["rank_correlation"] == pytest.approx([0.0])
    assert (table.data["networks"], table.data["runs"], table.data["games"]) == ([40], [20], [2])
    assert table.data["low"][0] <= 0 <= table.data["high"][0]
    assert table.text["measure"] == ["stable rank"]
    (axes,) = composed.draw().axes
    assert axes.get_title() == "PQN: random targets"
    assert "draws games, then runs within a game" in composed.caption


def test_without_relearning_there_is_nothing_but_a_hint(tmp_path: Path) -> None:
    write_run(tmp_path / "breakout-0-0")
    composed = compositions.compose(drawing_of(tmp_path, ("minatar/breakout",)))
    assert not len(composed.tables[0])
    figure = composed.draw()
    text = " ".join(t.get_text() for t in figure.texts)
    assert "no run has relearned" in " ".join(text.split())


def test_every_predictor_is_in_the_table_of_measures() -> None:
    assert set(PREDICTORS) <= set(MEASURES)
