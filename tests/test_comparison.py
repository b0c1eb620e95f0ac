"""The page that compares runs: its labels, its numbers by hand, its words, and a real browser."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadamard.core.run import Run, RunError

pytest.importorskip("matplotlib")
from hadamard.core.scores import greedy_window_mean, greedy_window_means
from hadamard.report.data.runs import RunData, Section, gather, load, sections
from hadamard.report.data.series import Series
from hadamard.report.pages import comparison
from hadamard.report.pages.comparison import command, write_comparison
from hadamard.report.pages.reading import notes, reading

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BUDGET = 1000


def write_run(
    folder: Path,
    seed: int = 0,
    layer: str = "plain",
    activation: str = "tanh",
    norm: str = "none",
    score: float | Sequence[float | None] | None = 1.0,
    health: Sequence[dict[str, float | None]] = (),
    *,
    algorithm: str = "pqn",
    env: str = "minatar/breakout",
    redo: bool = False,
    steps: int = BUDGET,
    finished: bool = True,
    snapshots: Sequence[int] = (),
    **settings: Any,
) -> Path:
    """Write a run whose episodes all score ``score``, or one episode for each of the scores."""
    spec: dict[str, Any] = {
        "env": env,
        "seed": seed,
        "run_dir": None,
        "device": "cpu",
        "algo": {"lambda_": 0.65, "learning_rate": 0.001, "hidden": [64, 64]},
        "net": {"layer": layer, "activation": activation, "norm": norm, "width": 4},
        "train": {"steps": steps, "log_every": 10, "tensorboard": True},
        "redo": {"enabled": redo, "tau": 0.025},
    }
    for name, value in settings.items():
        group, _, field = name.partition("_")
        spec[group][field] = value
    run = Run.create(folder, {"algorithm": algorithm, "spec": spec})
    scores = [score] * 10 if isinstance(score, float) else list(score or ())
    for number, value in enumerate(scores, start=1):
        row = {"step": number * steps // 10, "env": 0, "score": value, "length": 7}
        run.write("episodes", row)
    for number, layer_health in enumerate(health, start=1):
        layers = [{"name": "first", "effective_rank": 99}, {"name": "last", **layer_health}]
        row = {"step": number * steps // len(health), "threshold": 20.0, "delta": 0.01}
        run.write("health", {**row, "layers": layers})
    for step in snapshots:
        run.write("kde", densities(step))
    run.flush()
    if finished:
        run.finish({"steps": steps, "score": None, "seconds": 10.0})
    run.close()
    return folder


def measured(dormant: float | None, rank: float | None, hidden: float | None) -> dict[str, Any]:
    shares = {"live": None, "dormant": hidden, "bias": None}
    if hidden is not None:
        shares |= {"live": 0.9 - hidden, "bias": 0.1}
    return {
        "dormant_fraction": dormant,
        "effective_rank": rank,
        "full_rank": 4,
        "hidden_bias_share": hidden,
        **{f"{part}_contribution": share for part, share in shares.items()},
    }


def densities(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "layer": "last",
        "neurons": [0, 3],
        "places": [[-1.0, 0.0, 1.0]] * 2,
        "density": [[0.1, 1.0, 0.1], [0.0, 0.0, float("nan")]],
        "dormant": [False, True],
        "bounded": True,
        "title": "last: 1 of 4 neurons dormant",
    }


def only_section(folder: Path) -> Section:
    (section,) = sections(load([folder]))
    return section


def labels(folder: Path) -> list[str]:
    return [variant.label for variant in only_section(folder).variants]


# Labels and groups


@pytest.mark.parametrize(
    ("layer", "activation", "redo", "label"),
    [
        ("plain", "relu", False, "ReLU"),
        ("plain", "tanh", False, "tanh"),
        ("layernorm", "tanh", False, "tanh + LayerNorm"),
        ("hadamard", "tanh", False, "tanh + HR"),
        ("hadamard", "relu", False, "ReLU + HR"),
        ("hadamard2", "tanh", False, "tanh + 2HR"),
        ("widened", "tanh", False, "tanh, widened"),
        ("crelu", "relu", False, "CReLU"),
        ("plain", "relu", True, "ReLU + ReDo"),
        ("mixture", "silu", True, "SiLU + mixture + ReDo"),
    ],
)
def test_labels(tmp_path: Path, layer: str, activation: str, redo: bool, label: str) -> None:
    write_run(tmp_path / "run", layer=layer, activation=activation, redo=redo, norm="layer")
    assert labels(tmp_path) == [label]


def test_the_norm_is_named_where_runs_of_an_algorithm_differ_in_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a", norm="layer")
    write_run(tmp_path / "b", norm="layer", layer="hadamard")
    assert labels(tmp_path) == ["tanh", "tanh + HR"]
    write_run(tmp_path / "c", norm="none", algorithm="dqn")
    assert {run.label for run in load([tmp_path])} == {"tanh", "tanh + HR"}
    write_run(tmp_path / "d", norm="none", env="minatar/asterix")
    named = {run.path.name: run.label for run in load([tmp_path])}
    expected = {"a": "tanh + LayerNorm", "b": "tanh + HR + LayerNorm", "c": "tanh", "d": "tanh"}
    assert named == expected


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
    (finding,) = reading(only_section(tmp_path))
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


def test_baselines(tmp_path: Path) -> None:
    kinds = [("plain", "tanh"), ("hadamard", "tanh"), ("plain", "relu"), ("crelu", "relu"),
             ("hadamard", "elu")]  # fmt: skip
    for i, (layer, activation) in enumerate(kinds):
        write_run(tmp_path / str(i), layer=layer, activation=activation)
    write_run(tmp_path / "redo", activation="relu", redo=True)
    section = only_section(tmp_path)
    pairs = {}
    for variant in section.variants:
        baseline = section.baseline(variant)
        pairs[variant.label] = baseline.label if baseline else None
    assert pairs == {
        "ReLU": None,
        "tanh": "ReLU",
        "ReLU + ReDo": "ReLU",
        "CReLU": "ReLU",
        "ELU + HR": "ReLU",
        "tanh + HR": "tanh",
    }


def test_the_baseline_is_the_most_alike(tmp_path: Path) -> None:
    for norm in ("none", "layer"):
        for layer in ("plain", "hadamard"):
            write_run(tmp_path / f"{norm}-{layer}", layer=layer, norm=norm)
    section = only_section(tmp_path)
    *_, normed = section.variants
    baseline = section.baseline(normed)
    assert normed.label == "tanh + HR + LayerNorm"
    assert baseline is not None
    assert baseline.label == "tanh + LayerNorm"


def test_the_baseline_has_the_same_budget_if_there_is_one(tmp_path: Path) -> None:
    plain = [("relu", 1000), ("relu", 200), ("tanh", 1000), ("elu", 500)]
    kinds = [("plain", *kind) for kind in plain]
    kinds += [("hadamard", "tanh", 200), ("hadamard", "tanh", 1000)]
    for i, (layer, activation, steps) in enumerate(kinds):
        write_run(tmp_path / str(i), layer=layer, activation=activation, steps=steps)
    section = only_section(tmp_path)
    pairs = {v.label: (section.baseline(v), section.without_layer(v)) for v in section.variants}
    named = {
        label: tuple(other.label if other else None for other in others)
        for label, others in pairs.items()
    }
    long, short = "ReLU, train.steps 1000", "ReLU, train.steps 200"
    assert named == {
        "ELU": (None, None),
        long: ("ELU", None),
        short: (long, None),
        "tanh": (long, None),
        "tanh + HR, train.steps 1000": ("tanh", "tanh"),
        "tanh + HR, train.steps 200": (short, None),  # not tanh of 1000 steps
    }


@pytest.mark.parametrize("settings", [{}, {"algo_lambda_": 0.9}])
def test_another_budget_alone_gets_no_verdict(tmp_path: Path, settings: dict[str, Any]) -> None:
    for seed in range(4):
        write_run(tmp_path / f"long{seed}", seed, score=5.0 + seed)
        write_run(tmp_path / f"short{seed}", seed, score=1.0, steps=200, **settings)
    section = only_section(tmp_path)
    long, short = (variant.label for variant in section.variants)
    (finding,) = reading(section)
    assert (
        finding.headline == f"{short} against {long}: the budgets differ, so they are not compared."
    )
    assert finding.details[0] == "Final score: 1 (4 seeds, each the same)."
    assert "against" not in "".join(finding.details)


# Numbers


def test_smoothing_is_the_mean_of_the_last_100_up_to_a_step() -> None:
    series = Series(np.arange(1, 151), np.arange(1.0, 151.0))
    # Before the first; the first; the mean of 1..50; of 1..100; of 51..150; of the same later on.
    smooth = series.smoothed([0, 1, 50, 100, 150, 999])
    np.testing.assert_allclose(smooth, [np.nan, 1, 25.5, 50.5, 100.5, 100.5])
    assert np.isnan(Series(np.array([], np.int64), np.array([])).smoothed([5])).all()


def test_curves_and_finals_by_hand(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 0, score=[0.0, 2.0, 4.0], health=[measured(0.5, 3, 0.2)] * 2)
    write_run(
        tmp_path / "b", 1, score=[10.0, None], finished=False, health=[measured(0.7, None, 0.4)]
    )
    section = only_section(tmp_path)
    (variant,) = section.variants
    grid = section.grid()
    assert (len(grid), grid[0], grid[-1]) == (100, 10, 1000)
    curve = variant.score_curve(grid)
    # Episodes end at steps 100, 200 and 300: nothing before, running means after.
    finished, unfinished = curve
    assert np.isnan(finished[:9]).all()
    np.testing.assert_allclose(finished[[9, 19, 29, 99]], [0, 1, 2, 2])
    # The other's last row, a diagnosis, is of step 1000; its episode without a score is dropped.
    np.testing.assert_allclose(unfinished[[9, 99]], [10, 10])
    assert variant.runs[1].lost_episodes == 1
    np.testing.assert_allclose(variant.finals("score"), [2])
    np.testing.assert_allclose(variant.finals("hidden_bias_share"), [0.2])
    np.testing.assert_allclose(variant.finals("steps_per_second"), [100])
    steps, dormant = variant.health_curve("dormant_fraction")
    np.testing.assert_array_equal(steps, [500, 1000])
    np.testing.assert_allclose(dormant, [[0.5, 0.5], [np.nan, 0.7]])
    _, rank = variant.health_curve("effective_rank")
    np.testing.assert_allclose(rank, [[3, 3], [np.nan, np.nan]])


def played_alongside(folder: Path, games: dict[int, float], **options: Any) -> Path:
    """Write a run whose greedy environments finished a game at each step."""
    write_run(folder, train_greedy_envs=8, **options)
    rows = [json.dumps({"step": step, "score": score}) for step, score in games.items()]
    (folder / "eval.jsonl").write_text("\n".join(rows) + "\n")
    return folder


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


def test_the_greedy_window_by_hand() -> None:
    steps = [*range(10, 201, 10), 900, 1000]
    scores = np.arange(22.0)
    means = greedy_window_means(steps, scores, [5, 10, 160, 200, 999, 1000], 1000)
    # None; the first; all 16; the last 16 of 20; the last 16; the same, one further.
    np.testing.assert_allclose(means, [np.nan, 0, 7.5, 11.5, 12.5, 13.5])
    assert greedy_window_mean(steps, scores, 1000, 1000) == 13.5
    # A long window holds more than 16: the steps from 1000 - 5 % of 20,000.
    assert greedy_window_mean(steps, scores, 1000, 20_000) == 10.5
    assert np.isnan(greedy_window_mean([], [], 1000, 1000))


def test_an_unfinished_run_is_drawn_as_far_as_it_came(tmp_path: Path) -> None:
    write_run(tmp_path / "a", score=[1.0] * 4, finished=False)
    section = only_section(tmp_path)
    (curve,) = section.variants[0].score_curve(section.grid())
    assert np.isfinite(curve).nonzero()[0].tolist() == list(range(9, 40))  # steps 100 to 400


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


# Words


def compare(
    tmp_path: Path,
    base: Sequence[float],
    hr: Sequence[float],
    base_health: Sequence[dict[str, Any]] = (),
    hr_health: Sequence[dict[str, Any]] = (),
) -> tuple[str, str]:
    """Return the reading's headline and details for the scores of a baseline and of HR."""
    for seed, score in enumerate(base):
        write_run(tmp_path / f"base{seed}", seed, score=score, health=base_health)
    for seed, score in enumerate(hr):
        write_run(tmp_path / f"hr{seed}", seed, layer="hadamard", score=score, health=hr_health)
    (finding,) = reading(only_section(tmp_path))
    return finding.headline, "\n".join(finding.details)


def test_better(tmp_path: Path) -> None:
    healthy, sick = [measured(0.1, 3.0, 0.05)], [measured(0.5, 2.0, 0.25)]
    headline, details = compare(tmp_path, [1.0, 2.0, 3.0, 2.0], [5.0, 6.0, 7.0, 6.0], sick, healthy)
    assert headline == "tanh + HR scored higher than tanh."
    assert "Final score: 6 (4 seeds, 5 to 7) against 2 (4 seeds, 1 to 3)." in details
    # Student's interval, of 6 degrees of freedom, would be 2.59 to 5.41.
    assert "The difference is 4 (2.56 to 5.44), a 95 % interval." in details
    assert "Dormant neurons: 10.0% (each the same) against 50.0% (each the same), fewer." in details
    assert "Effective rank: 3 (each the same) against 2 (each the same), higher." in details
    assert "Hidden bias: 5.0% (each the same) against 25.0% (each the same), smaller." in details
    assert notes(only_section(tmp_path)) == [
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
    (finding,) = reading(only_section(tmp_path))
    assert finding.headline == "tanh scored lower than ReLU."


def test_no_difference_but_healthier(tmp_path: Path) -> None:
    healthy, sick = [measured(0.1, 3.0, 0.05)], [measured(0.5, 2.0, 0.25)]
    base, hr = [1.0, 3.0, 2.0, 4.0], [2.0, 9.0, 1.0, 3.0]
    headline, details = compare(tmp_path, base, hr, sick, healthy)
    assert headline == "tanh + HR against tanh: no difference in score shown."
    assert "its 95 % interval contains 0." in details
    assert "So the representation is healthier, and the score does not show it." in details


def test_equal(tmp_path: Path) -> None:
    same = [measured(0.0, 4.0, 0.0)]
    headline, details = compare(tmp_path, [0.0] * 4, [0.0] * 4, same, same)
    assert headline == "tanh + HR against tanh: no difference in score shown."
    unlike = "Dormant neurons: 0.0% (each the same) against 0.0% (each the same), no difference"
    assert f"{unlike} shown." in details
    assert "healthier" not in details


def test_one_seed(tmp_path: Path) -> None:
    headline, details = compare(tmp_path, [1.0], [2.0], [measured(0.5, 2.0, None)])
    assert headline == "tanh + HR against tanh: too few seeds to show a difference in score."
    assert "Final score: 2 (1 seed) against 1 (1 seed)." in details
    assert "Nothing can be concluded: too few seeds (1; a single task needs 4 a side)." in details
    assert "cannot be compared: a diagnosis is missing" in details
    assert notes(only_section(tmp_path))[-1].startswith("One seed is few")


def test_partly_missing_health(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 0, health=[measured(0.5, 2.0, None)])
    write_run(tmp_path / "b", 1, health=[measured(0.5, 2.0, None), measured(None, None, None)])
    write_run(tmp_path / "c", 0, layer="hadamard", health=[measured(0.25, 2.0, 0.1)])
    (finding,) = reading(only_section(tmp_path))
    details = "\n".join(finding.details)
    assert "Dormant neurons: 25.0% against 50.0% (1 of 2 seeds), no difference shown." in details
    assert "Effective rank: 2 against 2 (1 of 2 seeds), no difference shown." in details
    assert "Hidden bias: 10.0% against not measured." in details


def test_no_finished_run_and_no_episode(tmp_path: Path) -> None:
    write_run(tmp_path / "a", score=None)
    write_run(tmp_path / "b", layer="hadamard", finished=False, score=[1.0, None])
    section = only_section(tmp_path)
    (finding,) = reading(section)
    assert finding.headline == "tanh + HR against tanh: the scores cannot be compared yet."
    expected = "tanh + HR has no finished run. tanh has no finished episode."
    assert finding.details[0] == expected
    assert notes(section) == [
        "tanh + HR, seed 0, is not finished (20% of its steps): the curves show it, the final "
        "numbers leave it out.",
        "tanh + HR, seed 0: 1 episode left out whose score is not a finite number.",
    ]
    write_comparison(tmp_path / "page.html", load([tmp_path]), title="So far")
    assert "2 runs, 1 finished" in (tmp_path / "page.html").read_text()


def test_a_single_variant_and_further_differences(tmp_path: Path) -> None:
    write_run(tmp_path / "a", health=[measured(0.5, 2.0, 0.25)])
    (finding,) = reading(only_section(tmp_path))
    assert finding.headline == "tanh is the only variant: there is nothing to compare it with."
    assert finding.details[:2] == ["Final score: 1 (1 seed).", "Dormant neurons: 50.0%."]
    write_run(tmp_path / "b", layer="hadamard", steps=2000)
    (finding,) = reading(only_section(tmp_path))
    assert finding.details[-1] == "Mind that they also differ in train.steps (2000 against 1000)."


# Commands


def test_commands_name_what_differs_from_the_defaults(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", seed=3, layer="hadamard", env="odd name/x", redo=True)
    (run,) = load([folder])
    head = "hadamard train pqn --env 'odd name/x' --seed 3"
    assert command(run) == (
        f"{head} --algo.lambda_ 0.65 --algo.learning-rate 0.001 --algo.hidden 64 64 "
        "--net.layer hadamard --net.activation tanh --net.norm none --net.width 4 "
        "--train.steps 1000 --redo.enabled --redo.tau 0.025"
    )
    default = json.loads((folder / "config.json").read_text())["spec"]
    default["net"]["layer"] = "plain"
    default["train"]["tensorboard"] = False
    default["algo"]["hidden"] = (64, 64)  # as a dataclass has it
    assert command(run, default) == f"{head} --net.layer hadamard --train.tensorboard"
    default["redo"]["enabled"] = True
    default["train"]["tensorboard"] = True
    assert command(run, default) == f"{head} --net.layer hadamard"
    assert shlex.split(command(run))[4] == "odd name/x"


# The page


def example(folder: Path) -> list[RunData]:
    healthy = [measured(0.1, 3.0, 0.05), measured(0.2, 3.0, 0.1)]
    odd = "suite/<script>alert(1)</script>&"
    for env in ("minatar/breakout", odd):
        for seed in (0, 1):
            name = f"{env[:8].replace('/', '-')}{seed}"
            snapshots = [100, 900] if env != odd else []
            health = healthy if env != odd else []
            write_run(folder / f"a{name}", seed, env=env, health=health, snapshots=snapshots)
            write_run(folder / f"b{name}", seed, "hadamard", env=env, score=2.0, health=health)
    write_run(folder / "c", 0, "<b>&", health=[measured(None, None, None)], finished=False)
    return load([folder])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    path = folder / "new" / "page.html"
    write_comparison(path, example(folder / "runs"), title="A <title>")
    return path


def test_page_is_complete_escaped_and_reproducible(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    write_comparison(tmp_path / "two.html", load([page.parents[1] / "runs"]), title="A <title>")
    assert text == (tmp_path / "two.html").read_text()
    assert "<script" not in text
    assert "<b>" not in text
    assert "A &lt;title&gt;" in text
    assert "PQN on suite/&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in text
    assert not re.search(r'(src|href)="?(https?:)?//', text.replace("http://www.w3.org", ""))
    assert "9 runs, 8 finished" in text
    assert "after 10% of the budget (100 steps)" in text
    assert "after 90% of the budget (900 steps)" in text
    assert "(1 at 1,000 steps)" in text  # the unfinished run in the table
    assert "Not measured at the end: tanh + &lt;b&gt;&amp;" in text
    assert "1 to 2 seeds for each variant." in text
    assert "No diagnosis of the representation was written" in text  # of the second environment
    assert text.count("hadamard train pqn --env") == 9
    # Legends of 3 and 2, curves of 3 and 1, hidden bias over training and in parts, 2 densities.
    assert text.count("<svg") == 5 + 4 + 2 + 2
    assert "nan" not in re.sub("<svg.*?</svg>", "", text, flags=re.DOTALL)


def test_the_curves_show_the_runs_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    real = comparison.figures.curves

    def spy(*arguments: Any, **options: Any) -> Any:
        drawn.append(real(*arguments, **options))
        return drawn[-1]

    monkeypatch.setattr(comparison.figures, "curves", spy)
    runs = [run for run in example(tmp_path / "runs") if run.finished and "minatar" in run.env]
    write_comparison(tmp_path / "page.html", runs, title="Curves")
    scores, dormant, ranks, hidden = drawn
    # Per variant a thin line for each of the two seeds, then the mean.
    tanh, hr = scores.axes[0].lines[2], scores.axes[0].lines[5]
    assert (tanh.get_ydata()[-1], hr.get_ydata()[-1]) == (1, 2)
    assert tanh.get_color() != hr.get_color()
    assert tanh.get_marker() != hr.get_marker()
    np.testing.assert_allclose(dormant.axes[0].lines[2].get_ydata(), [10, 20])
    np.testing.assert_allclose(ranks.axes[0].lines[2].get_ydata(), [3, 3])
    np.testing.assert_allclose(hidden.axes[0].lines[2].get_ydata(), [5, 10])
    assert ranks.axes[0].get_ylabel() == "directions (of 4)"
    assert scores.axes[0].get_xlabel() == "training steps"


def test_reading_runs_needs_no_torch() -> None:
    script = "import sys, hadamard.report.pages.comparison; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_page_in_a_real_browser(page: Path, tmp_path: Path) -> None:
    """It loads without a console message and nothing sticks out sideways, on a phone either."""
    opened = page.read_text().replace("<details>", "<details open>")
    (tmp_path / "page.html").write_text(opened)
    widths = (1200, 400)
    frames = "".join(
        f'<iframe src="page.html" style="width:{width}px;height:900px;border:0"></iframe>'
        for width in widths
    )
    (tmp_path / "probe.html").write_text(
        f"{frames}<script>window.onload = () => {{ document.title = "
        "[...document.querySelectorAll('iframe')].map(f => { const d = f.contentDocument;"
        "const e = d.documentElement; return [e.scrollWidth, e.clientWidth,"
        "d.querySelectorAll('svg').length].join(' ') }).join(' ') }</script>"
    )
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--allow-file-access-from-files", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
            (tmp_path / "probe.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    title = re.search(r"<title>([\d ]+)</title>", done.stdout)
    assert title, done.stdout[:500] + done.stderr[-2000:]
    numbers = list(map(int, title.group(1).split()))
    assert len(numbers) == 3 * len(widths)
    for scroll_width, client_width, svgs in zip(*[iter(numbers)] * 3, strict=True):
        assert scroll_width <= client_width, f"{scroll_width - client_width} px stick out"
        assert svgs == 13
    assert "CONSOLE" not in done.stderr
