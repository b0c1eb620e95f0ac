"""The study of remedies: its arms, a few of its runs, and its figure and table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadamard import plasticity
from hadamard.experiments import paper
from hadamard.experiments.bench import Quiet
from hadamard.experiments.paper import STUDIES
from hadamard.experiments.selection import select
from hadamard.report import compositions
from hadamard.report.compositions import Drawing
from hadamard.report.compositions.additions import base_of
from hadamard.report.data.runs import gather
from hadamard.training import fleet, start
from tests.support.paper_runs import Fake, write

STUDY = STUDIES["remedies"]


def test_every_remedy_is_an_arm_of_both_networks() -> None:
    for panel in STUDY.panels:
        labels = [arm.label for arm in panel.arms]
        assert len(set(labels)) == len(labels)
        jobs = paper.arms_and_jobs(STUDY, "paper", "runs", 1, ["breakout"])
        own = [job.spec for _, job in jobs if job.algorithm == panel.algorithm]
        for layer in ("plain", "hadamard"):
            remedies = {spec.remedy for spec in own if spec.net.layer == layer}
            assert remedies == {"none", *plasticity.names()}
        for spec in own:
            spec.check()
            assert spec.remedy != "nap" or (spec.net.norm, spec.net.where) == ("layer", "all")


@pytest.mark.parametrize("algorithm", ["pqn", "dqn"])
def test_runs_of_a_game_share_fleets(algorithm: str) -> None:
    jobs = paper.jobs(STUDY, "paper", "runs", None, ["breakout"])
    specs = [fleet.with_form(job.spec, "on") for job in jobs if job.algorithm == algorithm]
    groups = fleet.grouped(specs, [algorithm] * len(specs), specs, [0] * len(specs))
    # One of each network, one of each with injected heads, and of DQN one of each with norms.
    sizes = {"pqn": [5, 5, 55, 55], "dqn": [5, 5, 10, 10, 50, 50]}
    assert sorted(map(len, groups)) == sizes[algorithm]


def test_a_few_runs_are_trained_and_drawn(tmp_path: Path) -> None:
    chosen = {"ReLU", "ReLU + L2-init", "tanh + HR", "tanh + HR + UPGD"}
    jobs = [
        job
        for arm, job in paper.arms_and_jobs(STUDY, "smoke", tmp_path, 1, share=0.5)
        if job.algorithm == "pqn" and arm.label in chosen
    ]
    assert len(jobs) == 4
    start.train_together("pqn", [fleet.with_form(job.spec, "on") for job in jobs], Quiet)
    runs, troubles = gather([tmp_path / "smoke"])
    assert not troubles
    drawing = Drawing(STUDY, select(STUDY, runs, "smoke", share=0.5, seeds=1), "interval")
    composed = compositions.compose(drawing)
    assert set(composed.tables[0].data["arm"]) == chosen
    composed.draw()


@pytest.fixture(scope="module")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Drawing, dict[str, Any]]:
    """Made-up runs of three arms, of which one is better in every game."""
    folder = tmp_path_factory.mktemp("made-up")
    better = {"ReLU + ReDo": 30.0}
    finals: dict[str, dict[str, list[float]]] = {}
    for arm, job in paper.arms_and_jobs(STUDY, "paper", "runs"):
        if job.algorithm != "pqn" or arm.label not in ("ReLU", "ReLU + ReDo", "ReLU + NaP"):
            continue
        fake = Fake(job, arm.label)
        fake.end = 10.0 + job.spec.seed + better.get(arm.label, 0.0)
        write(folder, job.path.name, fake.record())
        finals.setdefault(arm.label, {}).setdefault(job.spec.env, []).append(fake.final)
    runs, troubles = gather([folder])
    assert not troubles
    return Drawing(STUDY, select(STUDY, runs, "paper"), "interval"), finals


def test_a_remedy_is_compared_with_the_same_network_without_it(
    drawing: tuple[Drawing, dict[str, Any]],
) -> None:
    composed = compositions.compose(drawing[0])
    (table,) = composed.tables
    row = {name: dict(zip(table.data["arm"], table.data[name], strict=True)) for name in table.data}
    assert row["base"] == {"ReLU": "", "ReLU + ReDo": "ReLU", "ReLU + NaP": "ReLU"}
    assert row["score_percent_verdict"]["ReLU + ReDo"] == "higher"
    assert row["score_percent_verdict"]["ReLU + NaP"] == "no difference shown"
    assert row["score_percent_verdict"]["ReLU"] == ""
    scores = {label: row["score"][label] for label in row["score"]}
    change = 100 * (scores["ReLU + ReDo"] - scores["ReLU"]) / abs(scores["ReLU"])
    assert row["score_percent_change"]["ReLU + ReDo"] == pytest.approx(change)
    assert np.isfinite(row["dormant_fraction"]["ReLU"])
    figure = composed.draw()
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["ReDo", "NaP"]


def test_the_base_is_the_longest_label_that_is_continued() -> None:
    labels = ["ReLU", "ReLU + LayerNorm", "ReLU + LayerNorm + NaP", "tanh"]
    assert [base_of(label, labels) for label in labels] == ["", "ReLU", "ReLU + LayerNorm", ""]
