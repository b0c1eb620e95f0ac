"""The study of remedies: its arms, a few of its runs, and its figure and table."""

from __future__ import annotations

from pathlib import Path

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
        for arm, job in paper.arms_and_jobs(STUDY, "smoke", tmp_path, 1, share=0.1)
        if job.algorithm == "pqn" and arm.label in chosen
    ]
    assert len(jobs) == 4
    start.train_together("pqn", [fleet.with_form(job.spec, "on") for job in jobs], Quiet)
    runs, troubles = gather([tmp_path / "smoke"])
    assert not troubles
    drawing = Drawing(STUDY, select(STUDY, runs, "smoke", share=0.1, seeds=1), "interval")
    composed = compositions.compose(drawing)
    assert set(composed.tables[0].data["arm"]) == chosen
    composed.draw()


def drawing_of(folder: Path, algorithm: str, labels: tuple[str, ...], seeds: int) -> Drawing:
    """Made-up runs of some arms, of which that with ReDo is better in every game."""
    for arm, job in paper.arms_and_jobs(STUDY, "paper", "runs", seeds):
        if job.algorithm == algorithm and arm.label in labels:
            fake = Fake(job, arm.label)
            fake.end = 10.0 + job.spec.seed + (30.0 if "ReDo" in arm.label else 0.0)
            write(folder, job.path.name, fake.record())
    runs, troubles = gather([folder])
    assert not troubles
    return Drawing(STUDY, select(STUDY, runs, "paper", seeds=seeds), "interval")


def test_a_remedy_is_compared_with_the_same_network_without_it(tmp_path: Path) -> None:
    drawing = drawing_of(tmp_path, "pqn", ("ReLU", "ReLU + ReDo", "ReLU + NaP"), 5)
    composed = compositions.compose(drawing)
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
    pqn, dqn = figure.axes
    assert [text.get_text() for text in pqn.texts] == []
    assert [text.get_text() for text in dqn.texts] == ["no runs"]


def test_what_is_compared_with_a_network_with_norms_is_in_the_legend(tmp_path: Path) -> None:
    labels = ("ReLU", "ReLU + ReDo", "ReLU + LayerNorm", "ReLU + LayerNorm + NaP")
    drawing = drawing_of(tmp_path, "dqn", labels, 2)
    figure = compositions.compose(drawing).draw()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "against ReLU",
        "against ReLU + LayerNorm",
    ]
    markers = {
        str(line.get_label()): line for line in figure.axes[1].lines if line.get_marker() != "None"
    }
    plain, normed = (markers[f"against {base}"] for base in ("ReLU", "ReLU + LayerNorm"))
    assert plain.get_color() == normed.get_color()
    assert (normed.get_markerfacecolor(), plain.get_markerfacecolor()) == (
        "white",
        plain.get_color(),
    )


def test_the_base_is_the_longest_label_that_is_continued() -> None:
    labels = ["ReLU", "ReLU + LayerNorm", "ReLU + LayerNorm + NaP", "tanh"]
    assert [base_of(label, labels) for label in labels] == ["", "ReLU", "ReLU + LayerNorm", ""]
