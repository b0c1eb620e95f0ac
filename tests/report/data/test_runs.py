"""Runs are read from folders: which are the same, which are refused, and their scores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from hadamard.core.run import RunError
from tests.support.runs import labels, measured, only_section, played_alongside, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.runs import gather, load
from hadamard.report.pages.comparison import write_comparison
from hadamard.report.pages.findings import findings


def test_other_differences_are_no_seeds(tmp_path: Path) -> None:
    write_run(tmp_path / "a", seed=0)
    write_run(tmp_path / "b", seed=1, train_log_every=99)  # changes nothing in the result
    assert labels(tmp_path) == ["tanh"]
    write_run(tmp_path / "c", seed=0, net_width=8)
    assert labels(tmp_path) == ["tanh, net.width 4", "tanh, net.width 8"]
    counts = [len(variant.runs) for variant in only_section(tmp_path).variants]
    assert counts == [2, 1]


def test_one_run_twice_is_not_two_seeds(tmp_path: Path) -> None:
    first = write_run(tmp_path / "deep" / "er" / "a")
    assert len(load([first, tmp_path, tmp_path / "deep"])) == 1  # one folder by several ways
    log = tmp_path / "a.log"
    log.write_text("what a run's process printed")
    assert len(load([log, first])) == 1
    with pytest.raises(RunError, match=r"a.log holds no run"):
        load([log])
    shutil.copytree(first, tmp_path / "copy")
    with pytest.raises(
        RunError, match=r"a is the same run as .*copy \(tanh, seed 0\), which is kept"
    ):
        load([tmp_path])


def test_of_copies_the_one_that_came_furthest_is_kept(tmp_path: Path) -> None:
    write_run(tmp_path / "a", score=[1.0], finished=False)
    write_run(tmp_path / "b", score=1.0, finished=False)  # its last episode ends with the budget
    (run,), troubles = gather([tmp_path])
    assert run.path.name == "b"
    write_run(tmp_path / "c", score=[3.0])
    write_run(tmp_path / "d", score=[1.0, 2.0], finished=False)
    (run,), troubles = gather([tmp_path])
    assert (run.path.name, run.label) == ("c", "tanh")
    kept = f"is the same run as {tmp_path / 'c'} (tanh, seed 0), which is kept"
    assert [trouble.partition(":")[0] for trouble in troubles] == [
        f"{tmp_path / name} {kept}" for name in "abd"
    ]


def test_a_setting_that_older_runs_lack_makes_no_variant(tmp_path: Path) -> None:
    write_run(tmp_path / "old", seed=0)
    write_run(tmp_path / "new", seed=1, algo_clip=0.5)
    assert labels(tmp_path) == ["tanh"]
    write_run(tmp_path / "hr", layer="hadamard", algo_clip=0.5)
    (finding,) = findings(only_section(tmp_path))
    assert not any("differ in" in detail for detail in finding.details)
    # Where runs that record it differ in it, it tells them apart.
    write_run(tmp_path / "other", seed=1, algo_clip=0.1)
    known = ["tanh, algo.clip 0.1", "tanh, algo.clip 0.5", "tanh, algo.clip unknown"]
    assert labels(tmp_path) == [*known, "tanh + HR"]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere: there is no such folder"):
        load([tmp_path / "nowhere"])
    with pytest.raises(RunError, match="holds no run: nothing in it has a config.json"):
        load([tmp_path])
    (tmp_path / "config.json").write_text('{"spec": {"env": "x", "seed": 0}}')
    with pytest.raises(RunError, match=r"config.json lacks spec.net.layer: .*leave the folder out"):
        load([tmp_path])
    run = write_run(tmp_path / "other" / "run")
    (run / "episodes.jsonl").write_text('{"step": 3}\n')
    with pytest.raises(RunError, match=r"a row of .*episodes.jsonl lacks 'score'"):
        load([run])
    with pytest.raises(ValueError, match="runs is empty"):
        write_comparison(tmp_path / "page.html", [], title="Nothing")


def test_greedy_games_judge_the_runs_that_have_them(tmp_path: Path) -> None:
    games = {step: float(step) for step in range(10, 1001, 10)}
    games |= dict.fromkeys(range(951, 990), 3.0)  # 39 and 5 more in the last 5 % of training
    games = dict(sorted(games.items()))
    played_alongside(tmp_path / "a", games, score=[1.0, 2.0])
    few = {100 * n: float(n) for n in range(1, 11)}
    played_alongside(tmp_path / "b", few, seed=1)
    played_alongside(tmp_path / "c", {1: 4.0}, seed=2, finished=False, score=None)
    many, early, one = load([tmp_path])
    late = [score for step, score in games.items() if step > 950]
    assert many.score_kind == "greedy"
    assert many.final("score") == many.final("greedy_score") == pytest.approx(np.mean(late))
    assert many.final("training_score") == 1.5
    assert early.final("score") == 5.5  # fewer than 16: of all
    assert one.final("score") == 4
    assert np.isnan(one.final("training_score"))
    assert np.isnan(many.final("evaluation_score"))
    # The curve: at 500 the games since 450 are six, so the last 16 count.
    curve = many.score_series()
    at_500 = np.mean([games[step] for step in range(350, 501, 10)])
    assert curve.values[curve.steps == 500] == pytest.approx(at_500)
    assert curve.values[-1] == pytest.approx(np.mean(late))
    assert np.isnan(curve.values[0])  # no game had ended by step 5
    training = many.score_series("training")
    assert training.values[training.steps == 100] == 1
    assert many.score_series("evaluation").steps.size == 0
    write_comparison(tmp_path / "page.html", [many, early], title="Greedy")
    page = (tmp_path / "page.html").read_text()
    assert "Score: mean of the greedy games, played alongside, that ended in the last 5 %" in page
    assert "reaching further back until there are at least 16" in page
    assert "Training score: mean of the last 100 training episodes" in page


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", score=[1.0, 3.0])
    with open(folder / "episodes.jsonl", "a") as file:
        file.write('{"step": 300, "sco')
    (run,) = load([folder])
    assert run.episodes == 2
    assert run.final("score") == 2


def test_snapshots_are_the_first_and_the_last(tmp_path: Path) -> None:
    write_run(tmp_path / "a", snapshots=[100, 500, 900])
    (run,) = load([tmp_path])
    assert [snapshot.step for snapshot in run.snapshots] == [100, 900]
    assert run.snapshots[0].grid.neurons.tolist() == [0]  # the other's density is not finite


def test_a_row_names_the_representation(tmp_path: Path) -> None:
    """Whatever the order of its layers; rows of earlier versions name none, and it is the last."""
    for name, named in (("named", {"representation": "first"}), ("older", {})):
        run = write_run(tmp_path / name, 0)
        layers = [{**measured(0.25, 3.0, 0.0), "name": "first"},
                  {**measured(0.75, 3.0, 0.0), "name": "second"}]  # fmt: skip
        row = {"step": 10, "threshold": 20.0, "delta": 0.01, "observations": 64, "layers": layers}
        (run / "health.jsonl").write_text(json.dumps({**row, **named}) + "\n")
    for name, layer, dormant in (("named", "first", 0.25), ("older", "second", 0.75)):
        (run,) = load([tmp_path / name])
        assert run.representation == layer
        assert run.final("dormant_fraction") == dormant
