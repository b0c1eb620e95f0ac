"""The report as a folder: its files, its numbers by hand, and its caveats."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from hadamard.cli import main
from hadamard.core.run import RunError
from tests.support.report import SEEDS, TASKS, VARIANTS, check_tex, score_of, table
from tests.support.runs import BUDGET, measured, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.runs import gather, load
from hadamard.report.data.sections import sections
from hadamard.report.pages.full_report import write_report
from hadamard.report.statistics.multi_task import SHOWN_AGGREGATES, combine_tasks


def test_every_figure_and_table_is_there_in_both_formats(report: Path) -> None:
    figures = {path.stem for path in (report / "figures").iterdir()}
    health = ("dormant-neurons", "effective-rank", "hidden-bias", "contributions")
    for task in ("minatar-breakout", "minatar-asterix", "odd-i-_"):
        assert {f"{kind}-dqn-on-{task}" for kind in ("score", *health)} <= figures
    all_tasks = (
        "iqm",
        "iqm-curve",
        "mean",
        "median",
        "optimality_gap",
        "improvement",
        "profile",
        "tasks",
    )
    assert {f"{kind}-dqn" for kind in all_tasks} <= figures
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
    text = write_report(tmp_path / "out", load([tmp_path]), "Clash").read_text()
    names = ["score-pqn-on-odd-one-two", "score-pqn-on-odd-one-two-2"]
    first, second = ((tmp_path / "out" / "figures" / f"{n}.svg").read_text() for n in names)
    assert ("odd/one two" in first) != ("odd/one two" in second)
    assert all(f'data-chart="{name}"' in text for name in names)


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
        "What the numbers say", "Caveats", "All tasks together", "Learning curves",
        "The representation", "Single neurons", "Task by task", "Runs",
        "How to read this",
    ]  # fmt: skip
    assert text.count("hadamard train dqn --env") == 36
    assert "One task of each algorithm is shown" in text


def test_the_tables_numbers_are_those_of_the_rows(report: Path) -> None:
    for line in table(report, "results"):
        task, variant = TASKS.index(line["task"]), list(VARIANTS).index(line["variant"])
        scores = [score_of(task, variant, seed) for seed in SEEDS]
        assert float(line["score"]) == pytest.approx(np.mean(scores))
        half_width = 3.182446 * np.std(scores, ddof=1) / 2  # Student's t of 4 seeds
        assert float(line["score_high"]) - float(line["score"]) == pytest.approx(
            half_width, rel=1e-5
        )
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
    assert {line["normalization"] for line in lines.values()} == {"baseline_min_max"}
    for variant, label in enumerate(VARIANTS):
        normalized = []
        for task in range(3):
            # Baseline ReLU: from 0, its first episode, to the highest seed's highest smoothed
            # score, its last.
            highest = score_of(task, 2, 3)
            normalized.append([score_of(task, variant, seed) / highest for seed in SEEDS])
        line = lines[label]
        assert float(line["mean"]) == pytest.approx(np.mean(normalized))
        assert float(line["median"]) == pytest.approx(np.median(np.mean(normalized, axis=1)))
        middle = np.sort(np.ravel(normalized))[3:9]
        assert float(line["iqm"]) == pytest.approx(middle.mean())
        assert float(line["optimality_gap"]) == pytest.approx(1 - np.mean(normalized))
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


def test_another_normalization_may_be_chosen(tmp_path: Path) -> None:
    for env in ("atari/Breakout", "atari/Pong"):
        for seed in range(2):
            write_run(tmp_path / f"{env[6:]}{seed}", seed, "plain", "relu", env=env)
    by_task = sections(load([tmp_path]))
    ((default,), _) = combine_tasks(by_task)
    ((raw,), _) = combine_tasks(by_task, normalization="raw")
    assert (default.normalization, raw.normalization) == ("human_normalized", "raw")
    scores = by_task[0].variants[0].finals("score")
    np.testing.assert_allclose(raw.scores["ReLU"][by_task[0].env], scores)
    # The paper leaves PQN's aggregate open, so both medians are shown.
    assert default.algorithm == "pqn"
    assert set(default.shown_aggregates) - set(SHOWN_AGGREGATES) == {"median_of_runs"}
    write_report(tmp_path / "out", load([tmp_path]), "Both")
    assert "median_of_runs" in table(tmp_path / "out", "aggregates-pqn")[0]
    assert (tmp_path / "out" / "figures" / "median_of_runs-pqn.svg").exists()


def test_densities_are_shown_a_tenth_of_the_way_and_at_the_end(tmp_path: Path) -> None:
    write_run(tmp_path / "a", snapshots=[10, 90, 100, 500, 900])
    write_run(tmp_path / "b", seed=1, snapshots=[10, 90])
    long, short = load([tmp_path])
    assert [snapshot.step for snapshot in long.snapshots] == [100, 900]
    assert [snapshot.step for snapshot in short.snapshots] == [90]


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


def test_the_page_shows_all_caveats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    shutil.copytree(folder / "a2", folder / "twice")
    assert main(["report", str(folder), "-o", str(tmp_path / "out")]) == 0
    output = capsys.readouterr()
    assert "from 7 runs" in output.out
    assert "could not be used, or not in full" in output.err
    text = (tmp_path / "out" / "index.html").read_text()
    for caveat in (
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
        assert caveat in text, caveat
    # The plain page also says what could not be read.
    assert main(["report", str(folder), "--output", str(tmp_path / "page.html")]) == 0
    assert "bad/config.json is damaged" in (tmp_path / "page.html").read_text()
    (tmp_path / "file").write_text("")
    assert main(["report", str(folder), "-o", str(tmp_path / "file")]) == 2
    assert "is a file: name a page (.html) or a folder" in capsys.readouterr().err


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
