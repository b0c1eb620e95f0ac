"""The report as a folder: its files, its numbers by hand, its faults told, and a real browser."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import CHROMIUM, Browser
from hadamard.cli import main
from hadamard.core.run import RunError
from test_comparison import BUDGET, measured, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data import rows
from hadamard.report.data.imported import read_curves
from hadamard.report.data.runs import gather, load, sections
from hadamard.report.draw import charts
from hadamard.report.draw.figures import VariantStyle
from hadamard.report.pages.dormancy import dormancy_table
from hadamard.report.pages.full_report import write_report
from hadamard.report.pages.run_tables import mean_of
from hadamard.report.pages.tables import Table, escape_tex
from hadamard.report.statistics.together import SHOWN, combine, normalisation_of

TASKS = ("minatar/breakout", "minatar/asterix", "odd/<i>&_%")
VARIANTS = {"tanh": ("plain", "tanh"), "tanh + HR": ("hadamard", "tanh"), "ReLU": ("plain", "relu")}
SEEDS = (0, 1, 2, 3)


def score_of(task: int, variant: int, seed: int) -> float:
    return (task + 1) * (1.0 + variant) + 0.25 * seed


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks, three variants, four seeds; scores rise to `score_of`."""
    folder = tmp_path_factory.mktemp("runs")
    for task, env in enumerate(TASKS):
        for variant, (layer, activation) in enumerate(VARIANTS.values()):
            for seed in SEEDS:
                end = score_of(task, variant, seed)
                health = [measured(0.5 - 0.1 * variant, 3.0, 0.2)] * 3
                write_run(
                    folder / f"{task}{variant}{seed}", seed, layer, activation, env=env,
                    score=[0.0, *[end * 10 / 9] * 9], health=health, algorithm="dqn",
                    snapshots=[100, 900] if task == 0 and seed == 0 else [],
                )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def report(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "out"
    return write_report(folder, load([runs]), "A <title>").parent


def table(report: Path, name: str) -> list[dict[str, str]]:
    with open(report / "tables" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


# The files


def test_every_figure_and_table_is_there_in_both_formats(report: Path) -> None:
    figures = {path.stem for path in (report / "figures").iterdir()}
    health = ("dormant-neurons", "effective-rank", "hidden-bias", "contributions")
    for task in ("minatar-breakout", "minatar-asterix", "odd-i-_"):
        assert {f"{kind}-dqn-on-{task}" for kind in ("score", *health)} <= figures
    together = (
        "iqm",
        "iqm-curve",
        "mean",
        "median",
        "optimality_gap",
        "improvement",
        "profile",
        "tasks",
    )
    assert {f"{kind}-dqn" for kind in together} <= figures
    kde = {f"kde-dqn-on-minatar-breakout-{i}-{w}" for i in (1, 2, 3) for w in ("first", "last")}
    assert kde <= figures
    for name in figures:
        ElementTree.parse(report / "figures" / f"{name}.svg")
        assert (report / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    tables = {path.stem for path in (report / "tables").iterdir()}
    assert tables == {"results", "aggregates-dqn", "dormancy", "runs"}
    for name in tables:
        lines = table(report, name)
        assert lines
        assert all(None not in line and None not in line.values() for line in lines)
        check_tex((report / "tables" / f"{name}.tex").read_text())


def test_no_figure_is_written_over_another(tmp_path: Path) -> None:
    for name, env in {"a": "odd/one two", "b": "odd/one-two"}.items():
        write_run(tmp_path / name, env=env)
    with pytest.raises(ValueError, match="two figures would be written to .*score-pqn-on-odd-one"):
        write_report(tmp_path / "out", load([tmp_path]), "Clash")


def check_tex(text: str) -> None:
    """Check what a compiler would trip over: groups, environments, columns, special characters."""
    bare = re.sub(r"\\[\\{}&%$#_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert re.findall(r"\\begin\{(\w+)\}", text) == ["table", "tabular"]
    assert re.findall(r"\\end\{(\w+)\}", text) == ["tabular", "table"]
    assert not re.search(r"(?<!\\)[%#_~]", text)
    assert bare.count("$") % 2 == 0
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert columns
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(lines) > 1
    for line in lines:
        assert len(re.findall(r"(?<!\\)&", line)) + 1 == len(columns.group(1))


def test_the_page_is_self_contained_escaped_and_reproducible(
    report: Path, runs: Path, tmp_path: Path
) -> None:
    text = (report / "index.html").read_text()
    again = write_report(tmp_path / "again", load([runs]), "A <title>")
    assert text == again.read_text()
    assert "A &lt;title&gt;" in text
    assert "<i>&_%" not in text
    outside = text.replace("http://www.w3.org", "")
    assert not re.search(r"https?://|@import|url\((?!#)|<link|<img|<iframe", outside)
    assert "default-src &#x27;none&#x27;" in text
    assert len(text) < 2e6
    heads = re.findall(r'<h2 id="[\w-]+">(.*?)</h2>', text)
    assert heads == [
        "What the numbers say", "Mind this", "All tasks together", "Learning curves",
        "The representation", "Single neurons", "Task by task", "Runs",
        "How to read this",
    ]  # fmt: skip
    assert text.count("hadamard train dqn --env") == 36
    assert "One task of each algorithm is shown" in text


def test_tables_and_text_are_escaped() -> None:
    assert escape_tex("\\{}&%$#_~^<>") == (
        r"\textbackslash{}\{\}\&\%\$\#\_\textasciitilde{}\textasciicircum{}"
        r"\textless{}\textgreater{}"
    )
    odd = Table("odd", "50 % & more", {"a_b": ["<1 · 2 – 3×"]}, {"a": [float("nan")], "b": ["x,y"]})
    check_tex(odd.tex())
    assert odd.csv() == 'a,b\n,"x,y"\n'
    assert "&lt;1" in odd.html()


# The numbers


def test_the_tables_numbers_are_those_of_the_rows(report: Path) -> None:
    for line in table(report, "results"):
        task, variant = TASKS.index(line["task"]), list(VARIANTS).index(line["variant"])
        scores = [score_of(task, variant, seed) for seed in SEEDS]
        assert float(line["score"]) == pytest.approx(np.mean(scores))
        reach = 3.182446 * np.std(scores, ddof=1) / 2  # Student's t of 4 seeds
        assert float(line["score_high"]) - float(line["score"]) == pytest.approx(reach, rel=1e-5)
        assert float(line["dormant_fraction"]) == pytest.approx(0.5 - 0.1 * variant)
        assert (line["seeds"], line["finished"], line["score_of"]) == (
            "4",
            "4",
            "training episodes",
        )
    for line in table(report, "runs"):
        task, variant, seed = map(int, Path(line["path"]).name)
        assert float(line["score"]) == pytest.approx(score_of(task, variant, seed))
        assert (int(line["seed"]), float(line["seconds"])) == (seed, 10)
        assert float(line["steps_per_second"]) == pytest.approx(BUDGET / 10)
        assert line["command"].startswith("hadamard train dqn --env ")
        assert line["device"] == "cpu"


def test_aggregates_by_hand(report: Path, runs: Path) -> None:
    lines = {line["variant"]: line for line in table(report, "aggregates-dqn")}
    assert list(lines) == ["ReLU", "tanh", "tanh + HR"]
    assert {line["normalisation"] for line in lines.values()} == {"baseline_min_max"}
    for variant, label in enumerate(VARIANTS):
        normalised = []
        for task in range(3):
            # Baseline ReLU: from 0, its first episode, to the highest seed's highest smoothed
            # score, its last.
            highest = score_of(task, 2, 3)
            normalised.append([score_of(task, variant, seed) / highest for seed in SEEDS])
        line = lines[label]
        assert float(line["mean"]) == pytest.approx(np.mean(normalised))
        assert float(line["median"]) == pytest.approx(np.median(np.mean(normalised, axis=1)))
        middle = np.sort(np.ravel(normalised))[3:9]
        assert float(line["iqm"]) == pytest.approx(middle.mean())
        assert float(line["optimality_gap"]) == pytest.approx(1 - np.mean(normalised))
        assert float(line["iqm_low"]) < float(line["iqm"]) < float(line["iqm_high"])
    assert float(lines["tanh"]["improvement"]) == 0  # each of its scores is below each of ReLU's
    assert lines["tanh"]["against_baseline"] == "lower"
    gap = float(lines["tanh"]["iqm"]) - float(lines["ReLU"]["iqm"])
    assert float(lines["tanh"]["difference"]) == pytest.approx(gap)
    assert (
        float(lines["tanh"]["difference_low"]) < gap < float(lines["tanh"]["difference_high"]) < 0
    )
    assert lines["ReLU"]["improvement"] == ""
    text = (report / "index.html").read_text()
    assert "IQM of all runs: tanh scored lower than ReLU: difference -" in text


def test_dormancy_is_set_beside_what_theory_predicts(tmp_path: Path) -> None:
    tasks = {"minatar/breakout": (0.3, 0.5), "minatar/asterix": (0.1, 0.1)}
    for env, (without, with_hr) in tasks.items():
        for layer, dormant in (("plain", without), ("hadamard", with_hr)):
            for activation in ("relu", "elu"):  # of elu the theory says nothing
                for seed in range(3):
                    health = [measured(dormant + 0.1 * (seed - 1), 3.0, 0.0)]
                    name = f"{env.replace('/', '-')}{layer}{activation}{seed}"
                    write_run(tmp_path / name, seed, layer, activation, env=env, health=health)
    found = dormancy_table(sections(load([tmp_path])))
    assert found is not None
    assert found.data["task"] == ["minatar/asterix", "minatar/breakout", "mean of 2 tasks"]
    assert set(found.data["variant"]) == {"ReLU + HR"}
    assert found.data["without"] == pytest.approx([0.1, 0.3, 0.2])
    # Of the tasks' predictions the mean: that of the mean, 2 * 0.2 - 0.2^2, would be 0.36.
    assert found.data["predicted"] == pytest.approx([0.19, 0.51, 0.35])
    assert found.data["measured"] == pytest.approx([0.1, 0.5, 0.3])
    assert found.data["measured_change"] == pytest.approx([0, 2 / 3, 0.5])
    assert found.shown["predicted change"] == ["+90 %", "+70 %", "+75 %"]
    # Student's t of 0.4, 0.5 and 0.6: 4.3027 standard errors of 0.1 / sqrt(3).
    assert found.data["measured_high"][1] == pytest.approx(0.5 + 0.43027 / math.sqrt(3), abs=1e-4)
    without_hr = sections(load(list(tmp_path.glob("*plain*"))))
    assert dormancy_table(without_hr) is None


@pytest.mark.parametrize(
    "plain", [{"activation": "relu"}, {"redo": True}, {"steps": 500}, {"layer": "layernorm"}]
)
def test_what_hr_does_is_told_against_its_own_activation_only(
    tmp_path: Path, plain: dict[str, Any]
) -> None:
    """Any other network would be another baseline, and the change not that of HR."""
    health = [measured(0.5, 3.0, 0.0)]
    write_run(tmp_path / "hr", layer="hadamard", algorithm="dqn", health=health)
    write_run(tmp_path / "plain", algorithm="dqn", health=health, **plain)
    assert dormancy_table(sections(load([tmp_path]))) is None
    write_run(tmp_path / "tanh", seed=9, algorithm="dqn", health=health)
    assert dormancy_table(sections(load([tmp_path]))) is not None


def arms(folder: Path, dormant: dict[tuple[str, str], float], steps: int, **options: Any) -> None:
    """Write DQN runs of layers and activations with these dormant fractions and scores."""
    for (layer, activation), share in dormant.items():
        name = "-".join([layer, activation, str(steps), *map(str, options.values())])
        write_run(
            folder / name.replace("/", "-"), layer=layer, activation=activation, steps=steps,
            score=[0.0, 10 * share], health=[measured(share, 3.0, 0.0)], algorithm="dqn", **options,
        )  # fmt: skip


RELU, TANH, TANH_HR = ("plain", "relu"), ("plain", "tanh"), ("hadamard", "tanh")


def test_all_tasks_together_compare_only_equal_budgets(tmp_path: Path) -> None:
    for env in TASKS[:2]:
        for seed in range(4):
            arms(tmp_path, {RELU: 0.6, TANH: 0.4}, 1000, env=env, seed=seed)
            arms(tmp_path, {RELU: 0.1}, 200, env=env, seed=seed)
    ((one,), _) = combine(sections(load([tmp_path])))
    long, short = "ReLU, train.steps 1000", "ReLU, train.steps 200"
    assert (one.baseline, one.compared, list(one.not_compared)) == (long, ["tanh"], [short])
    page = write_report(tmp_path / "out", load([tmp_path]), "Budgets").read_text()
    assert f"<li>{short} against {long}: the budgets differ" in page
    told = {
        line["variant"]: line["against_baseline"]
        for line in table(tmp_path / "out", "aggregates-dqn")
    }
    assert told == {long: "baseline", short: "not compared", "tanh": "lower"}


def test_normalisations() -> None:
    assert normalisation_of("dqn", ["atari/Pong", "atari/Alien"]) == "baseline_min_max"
    assert normalisation_of("pqn", ["atari/Pong"]) == "human_normalised"
    assert normalisation_of("simbav2", ["humanoid/h1-run"]) == "success_normalised"
    assert normalisation_of("mrq", ["dmc/dog-run"]) == "per_thousand"
    assert normalisation_of("other", ["atari/Pong"]) == "human_normalised"
    assert normalisation_of("dqn", ["atari/Pong", "dmc/dog-run"]) == "baseline_min_max"


def test_another_normalisation_may_be_asked_for(tmp_path: Path) -> None:
    for env in ("atari/Breakout", "atari/Pong"):
        for seed in range(2):
            write_run(tmp_path / f"{env[6:]}{seed}", seed, "plain", "relu", env=env)
    found = sections(load([tmp_path]))
    ((own,), _), ((asked,), _) = combine(found), combine(found, by="raw")
    assert (own.normalisation, asked.normalisation) == ("human_normalised", "raw")
    raw = found[0].variants[0].finals("score")
    np.testing.assert_allclose(asked.scores["ReLU"][found[0].env], raw)
    # PQN's aggregate can be read in two ways, and both are shown.
    assert own.algorithm == "pqn"
    assert set(own.shown) - set(SHOWN) == {"median_of_runs"}
    write_report(tmp_path / "out", load([tmp_path]), "Both")
    assert "median_of_runs" in table(tmp_path / "out", "aggregates-pqn")[0]
    assert (tmp_path / "out" / "figures" / "median_of_runs-pqn.svg").exists()


CURVES = """method,env,seed,step,score
DrQ-v2,minatar/breakout,0,0,1
DrQ-v2,minatar/breakout,0,1000,5
DrQ-v2,minatar/breakout,1,1000,7
XQC,atari/Pong,0,1000,7
"""


def test_curves_of_other_methods_are_drawn_beside_ours(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "curves.csv"
    file.write_text(CURVES)
    drqv2, xqc = read_curves(file)
    assert (drqv2.method, drqv2.env, xqc.env) == ("DrQ-v2", "minatar/breakout", "atari/Pong")
    np.testing.assert_array_equal(drqv2.scores, [[1, 5], [np.nan, 7]])
    out = tmp_path / "out"
    assert main(["report", str(runs), "-o", str(out), "--curves", str(file)]) == 0
    page = (out / "index.html").read_text()
    assert "Dotted: DrQ-v2, as supplied with --curves" in page
    assert '<li data-variant="DrQ-v2">' in page
    assert "XQC" not in page  # of a task there are no runs of
    data = re.search(r'id="charts">(.*?)</script>', page)
    assert data
    lines = {
        chart["name"]: {line["label"]: line for line in chart["lines"]}
        for chart in json.loads(data.group(1))
    }
    assert lines["score-dqn-on-minatar-breakout"]["DrQ-v2"]["x"] == [0, 1000]
    assert "DrQ-v2" not in lines["score-dqn-on-minatar-asterix"]
    assert not any("DrQ-v2" in str(line) for line in table(out, "aggregates-dqn"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "cannot be read"),
        ("method,env,step,score\n", "has no column seed: its first line must name method, env"),
        ("method,env,seed,step,score\n", "holds no curve"),
        ("method,env,seed,step,score\na,minatar/asterix,0,1k,2\n", "line 2: .* got '1k' and '2'"),
        ("method,env,seed,step,score\na,minatar/asterix,0\n", "line 2: .* got None and None"),
        ("method,env,seed,step,score\na,atari/Pong,0,1,2\n", "curves on atari/Pong, and the runs"),
    ],
)
def test_curves_that_cannot_be_used_are_told(
    text: str | None, told: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "curves.csv"
    if text is not None:
        file.write_text(text)
    assert main(["report", str(runs), "-o", str(tmp_path / "o"), "--curves", str(file)]) == 2
    assert re.search(told, capsys.readouterr().err)
    assert main(["report", str(runs), "-o", str(tmp_path / "o.html"), "--curves", str(file)]) == 2
    assert "name a folder with -o" in capsys.readouterr().err
    assert not (tmp_path / "o.html").exists()


def test_densities_are_shown_a_tenth_of_the_way_and_at_the_end(tmp_path: Path) -> None:
    write_run(tmp_path / "a", snapshots=[10, 90, 100, 500, 900])
    write_run(tmp_path / "b", seed=1, snapshots=[10, 90])
    long, short = load([tmp_path])
    assert [snapshot.step for snapshot in long.snapshots] == [100, 900]
    assert [snapshot.step for snapshot in short.snapshots] == [90]


def test_a_chart_shows_means_intervals_and_seeds() -> None:
    from hadamard.report.draw.figures import variant_style

    steps, values = np.array([1, 2]), np.array([[1.0, 5.0], [3.0, 5.0], [2.0, np.nan]])
    drawn = charts.payload(
        charts.Chart("c", "t", "y", [charts.line("a", variant_style(0), steps, values)])
    )
    (line,) = drawn["lines"]
    assert (line["x"], line["y"]) == ([1, 2], [2, None])  # no mean where a seed is missing
    reach = 4.302653 / math.sqrt(3)
    assert line["high"] == [pytest.approx(2 + reach, rel=1e-3), None]
    assert line["seeds"] == [[1, 5], [3, 5], [2, None]]
    two = charts.line("a", variant_style(0), steps, values[:2])
    assert np.isnan(two.band.low).all()
    long = charts.line("a", variant_style(0), np.arange(1001), np.zeros((3, 1001)))
    assert len(long.steps) == charts.POINTS
    assert (long.steps[0], long.steps[-1]) == (0, 1000)


# Evaluations


def test_the_seeds_of_many_variants_do_not_hide_the_means() -> None:
    values = np.arange(12.0).reshape(3, 4)
    style = VariantStyle("#000000", "o", "-")
    lines = [charts.line(str(i), style, np.arange(4), values) for i in range(charts.CROWD + 1)]
    assert all(line.seeds.size for line in charts.uncrowded(lines[:-1]))
    drawn = charts.uncrowded(lines)
    assert not any(line.seeds.size for line in drawn)
    assert np.isfinite(drawn[0].band.low).all()
    # Two seeds have no interval, and are all there is to see.
    two = charts.line("two", style, np.arange(4), values[:2])
    assert charts.uncrowded([*lines, two])[-1].seeds.size


def test_the_interval_of_a_share_ends_at_0_and_1() -> None:
    assert mean_of(np.array([0.0, 0.0, 0.1]), share=True).low == 0
    assert mean_of(np.array([0.9, 1.0, 1.0]), share=True).high == 1
    assert mean_of(np.array([0.0, 0.0, 0.1])).low < 0
    assert math.isnan(mean_of(np.array([0.5]), share=True).low)


def evaluated(folder: Path, seed: int, layer: str, means: dict[int, float]) -> None:
    write_run(
        folder, seed, layer, "relu", algorithm="simbav2", env="humanoid/h1-run", score=1.0,
        train_eval_every=100,
    )  # fmt: skip
    lines = [
        json.dumps({"step": step, "score": mean + side, "length": 5})
        for step, mean in means.items()
        for side in (-1.0, 1.0)
    ]
    (folder / "eval.jsonl").write_text("\n".join(lines) + "\n")


def test_scores_of_runs_with_evaluations_are_the_evaluations(tmp_path: Path) -> None:
    evaluated(tmp_path / "a", 0, "plain", {500: 20.0, 960: 30.0, 1000: 40.0})
    evaluated(tmp_path / "b", 1, "plain", {500: 20.0, 900: 10.0})
    late, early = load([tmp_path])
    assert late.final("score") == 35  # those of the last 5 % of training
    assert early.final("score") == 10  # there is none, so the last
    (section,) = sections([late, early])
    curve = section.variants[0].score_curve(np.array([100.0, 500.0, 950.0, 1000.0]))
    np.testing.assert_allclose(curve, [[np.nan, 20, 20, 40], [np.nan, 20, 10, 10]])
    page = write_report(tmp_path / "out", [late, early], "Evaluations").read_text()
    assert "Score: mean of the latest evaluation." in page
    (line,) = table(tmp_path / "out", "results")
    assert (float(line["score"]), line["score_of"]) == (22.5, "evaluations")


# Faults


def test_fast_and_slow_reading_agree(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    written = [
        {"step": 1, "env": 0, "score": 2.0, "length": 3},
        {"step": 20, "env": 1, "score": -1.5e-07, "length": 4},
        {"step": 300, "env": 0, "score": 1e22, "length": 5},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in written))
    fast = rows.columns(path, ("step", "score"))
    assert fast.values["score"].tolist() == [2.0, -1.5e-07, 1e22]
    assert rows._uniform(path.read_bytes(), ("step", "score")) is not None
    with open(path, "a") as file:
        file.write('{"step": 301, "env": 0, "score": null, "length": 5}\n{"step": 302, "sco')
    slow = rows.columns(path, ("step", "score"))
    assert rows._uniform(path.read_bytes(), ("step", "score")) is None
    np.testing.assert_array_equal(slow.values["score"], [2.0, -1.5e-07, 1e22, np.nan])
    assert slow.values["step"].tolist() == [1, 20, 300, 301]
    assert not slow.troubles  # a last line may be torn
    assert rows.last_row(path)["step"] == 301
    assert rows.columns(tmp_path / "none.jsonl", ("step",)).values["step"].size == 0


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("not JSON", "line 3 of "),
        ('{"step": 150, "env": 0, "sco\x00\x00', "line 3 of "),
        ('{"score": 5.0}', "line 3 of "),
        ('["step", 3]', "line 3 of "),
        ('{"step": 150, "env": 0}', "lacks 'score'"),
        ('{"step": 150, "score": "high"}', "has something else than numbers"),
    ],
)
def test_a_damaged_row_is_told_and_left_out(tmp_path: Path, line: str, told: str) -> None:
    folder = write_run(tmp_path / "a", score=2.0)
    write_run(tmp_path / "b", seed=1, score=2.0)
    lines = (folder / "episodes.jsonl").read_text().splitlines()
    (folder / "episodes.jsonl").write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    runs, troubles = gather([tmp_path])
    assert not troubles
    (damaged,) = (run for run in runs if run.troubles)
    assert told in damaged.troubles[0]
    assert damaged.episodes == 10
    assert damaged.final("score") == 2
    with pytest.raises(RunError, match="episodes.jsonl"):
        load([tmp_path])


def test_the_page_tells_all_faults_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    healthy = [measured(0.1, 3.0, 0.05)]
    for seed in (0, 1, 2):
        write_run(folder / f"a{seed}", seed, health=healthy)
    write_run(folder / "b0", 0, "hadamard", score=[1.0, 2.0], finished=False)
    write_run(folder / "b1", 1, "hadamard")  # both without a health stream
    write_run(folder / "wide", 0, net_width=8, health=healthy)
    write_run(folder / "other", 0, env="minatar/asterix", health=healthy)
    with open(folder / "a1" / "episodes.jsonl", "a") as file:
        file.write("{broken}\n")
    (folder / "bad").mkdir()
    (folder / "bad" / "config.json").write_text("{")
    (folder / "alien").mkdir()
    (folder / "alien" / "config.json").write_text('{"spec": {}}')
    (folder / "twice").mkdir()
    for file in (folder / "a2").iterdir():
        (folder / "twice" / file.name).write_bytes(file.read_bytes())
    assert main(["report", str(folder), "-o", str(tmp_path / "out")]) == 0
    output = capsys.readouterr()
    assert "from 7 runs" in output.out
    assert "could not be used, or not in full" in output.err
    text = (tmp_path / "out" / "index.html").read_text()
    for told in (
        "bad/config.json is damaged",
        "alien/config.json lacks spec.env",
        "(tanh, net.width 4, seed 2), which is kept: leave one of them out",
        "line 11 of ",
        "tanh + HR, seed 0, is not finished (20% of its steps)",
        "PQN on minatar/breakout: runs of the same variant have different settings (net.width)",
        "tanh + HR lacks seed 2, which other variants have",
        "2 runs without a health stream",
        "tanh + HR seed 0 on minatar/breakout, tanh + HR seed 1 on minatar/breakout",
        "PQN: there is no run of tanh + HR on minatar/asterix",
    ):
        assert told in text, told
    # One page has no folder; it tells what could not be read too.
    assert main(["report", str(folder), "--output", str(tmp_path / "page.html")]) == 0
    assert "bad/config.json is damaged" in (tmp_path / "page.html").read_text()
    (tmp_path / "file").write_text("")
    assert main(["report", str(folder), "-o", str(tmp_path / "file")]) == 2
    assert "is a file: name a page (.html) or a folder" in capsys.readouterr().err


def test_what_cannot_be_put_together_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "a", env="minatar/breakout", score=[0.0, 2.0])
    write_run(tmp_path / "b", env="minatar/asterix", score=1.0)  # nothing to normalise by
    found, refused = combine(sections(load([tmp_path])))
    assert not found
    assert "only one task has final scores of every variant" in refused[0]
    assert "minatar/asterix is left out: minatar/asterix: the baseline scored 1" in refused[0]
    page = write_report(tmp_path / "out", load([tmp_path]), "Little").read_text()
    assert "PQN: there is nothing to aggregate" in page


def test_only_bad_runs_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        gather([tmp_path])


def test_it_never_imports_torch(runs: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"  # any import of it fails
        "from hadamard.report.pages.full_report import write_report\n"
        "from hadamard.report.data.runs import gather\n"
        f"runs, troubles = gather([{str(runs)!r}])\n"
        f"print(write_report({str(tmp_path / 'out')!r}, runs[:3], 'No torch').name)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "index.html\n", done.stderr


# The page in a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


FIRST = "document.querySelector('[data-chart=\"score-dqn-on-minatar-breakout\"]')"


def axis(browser: Browser) -> list[str]:
    found: list[str] = browser.run(
        f"[...{FIRST}.querySelectorAll('.xtick')].map(t => t.textContent)"
    )
    return found


def area(browser: Browser) -> dict[str, Any]:
    """Bring the first chart into sight and return where it is."""
    browser.run(f"{FIRST}.scrollIntoView({{block: 'center'}})")
    box: dict[str, Any] = browser.run(
        f"{FIRST}.querySelector('svg.live').getBoundingClientRect().toJSON()"
    )
    return box


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 390])
def test_it_renders(browser: Browser, report: Path, width: int, dark: bool) -> None:
    page = report / "index.html"
    browser.open(page, width, dark=dark)
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.requests == [page.as_uri()]
    assert browser.messages == []
    sizes = browser.run("[document.documentElement.scrollWidth, document.body.clientWidth]")
    assert sizes[0] <= width
    assert browser.run("document.querySelectorAll('svg.live').length") == 1 + 3 + 3 * 3
    assert browser.run("[...document.querySelectorAll('.static')].every(s => !s.offsetHeight)")
    paths = "[...document.querySelectorAll('svg.live path')].map(p => p.getAttribute('d')).join('')"
    assert "NaN" not in browser.run(paths)
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)))
    assert brightness < 150 if dark else brightness > 700
    # Text on a figure that matplotlib drew is as light or dark as the page's.
    ink, drawn = browser.run(
        "[document.body, document.querySelector('.wide svg text')].map(e => "
        "getComputedStyle(e)[e === document.body ? 'color' : 'fill'])"
    )
    assert ink == drawn


def test_the_legend_hides_a_variant(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html")
    curves = "document.querySelectorAll('svg.live g[data-variant=\"tanh + HR\"]').length"
    button = "document.querySelector('.variants button[data-variant=\"tanh + HR\"]')"
    assert browser.run(curves) == 13
    browser.run(f"{button}.focus()")
    browser.run(f"{button}.click()")
    assert browser.run(curves) == 0
    assert browser.run(f"{button}.getAttribute('aria-pressed')") == "false"
    assert browser.run("document.querySelectorAll('svg.live g[data-variant=tanh]').length") == 13
    browser.run(f"{button}.click()")
    assert browser.run(curves) == 13
    assert browser.messages == []


def test_dragging_zooms_and_the_button_shows_all(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html")
    before = axis(browser)
    assert (before[0], before[-1]) == ("0", "1k")
    box = area(browser)
    middle = box["y"] + box["height"] / 2
    browser.drag((box["x"] + 120, middle), (box["x"] + 180, middle))
    zoomed = axis(browser)
    assert zoomed != before
    assert "0" not in zoomed
    button = f"{FIRST}.querySelector('button')"
    assert browser.run(f"{button}.hidden") is False
    browser.run(f"{button}.click()")
    assert axis(browser) == before
    assert browser.run(f"{button}.hidden") is True


def test_pointer_and_keys_read_values(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html")
    box = area(browser)
    browser.mouse("mouseMoved", box["x"] + box["width"] - 10, box["y"] + 100)
    readout = f"{FIRST}.querySelector('.readout').textContent"
    told = browser.run(readout)
    assert "step 1,000" in told
    assert "ReLU 3.375 (2.861 to 3.889)" in told  # 3 + 0.25 * 1.5, and Student's interval
    browser.mouse("mouseMoved", 5, 5)
    assert browser.run(readout) == ""
    browser.run(f"{FIRST}.querySelector('svg.live').focus()")
    browser.key("End")
    assert "step 1,000" in browser.run(readout)
    browser.key("ArrowLeft")
    assert "step 990" in browser.run(readout)
    whole = axis(browser)
    browser.key("+")
    assert axis(browser) != whole
    browser.key("Escape")
    assert axis(browser) == whole
    assert browser.messages == []


def test_without_scripts_there_are_pictures(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html", script=False)
    snapshot = browser.call("DOMSnapshot.captureSnapshot", computedStyles=["display"])
    strings = snapshot["strings"]
    names = [strings[i] for i in snapshot["documents"][0]["nodes"]["nodeName"]]
    assert names.count("BUTTON") == 0
    assert names.count("svg") > 13
    laid_out = snapshot["documents"][0]["layout"]
    assert len(laid_out["nodeIndex"]) > 500
