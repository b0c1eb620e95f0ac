"""The paper's compositions at its full layout, every number computed again here, independently."""

from __future__ import annotations

import csv
import html
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadamard import cli
from hadamard.core.config import flattened, overridden, to_dict
from hadamard.core.run import PROTOCOL
from hadamard.experiments import paper
from hadamard.experiments.grid import Job
from hadamard.experiments.paper import EXPERIMENTS
from hadamard.experiments.selection import select
from hadamard.report import compositions
from hadamard.report.compositions import Composed, Drawing
from hadamard.report.data.packed import SUFFIX, packed
from hadamard.report.data.runs import RunData, gather
from hadamard.report.statistics.normalise import ATARI, HUMANOID
from hadamard.theory import predicted_dormant

PLACES = 200
HEALTH_ROWS = 10
Values = dict[tuple[str, str, str], list["Fake"]]


def natural_scale(task: str) -> tuple[float, float]:
    """Return what is about a poor and a good score on a task."""
    suite, _, name = task.partition("/")
    if suite == "atari":
        return ATARI[name]
    return HUMANOID[name] if suite == "humanoid" else (0.0, 500.0)


class Fake:
    """What a made-up run is made of: numbers that follow from what the run is."""

    def __init__(self, job: Job, arm: str) -> None:
        self.job, self.arm = job, arm
        self.task, self.seed = job.spec.env, job.spec.seed
        key = f"{job.algorithm} {arm} {self.task} {self.seed}"
        rng = np.random.default_rng(zlib.crc32(key.encode()))
        low, high = natural_scale(self.task)
        center = {"ReLU": 1.0, "tanh": 0.8}.get(arm, 1.3)
        self.start = low + (high - low) * float(rng.uniform(0, 0.1))
        self.end = low + (high - low) * float(center + 0.2 * rng.standard_normal())
        self.late = self.end + 0.01 * (high - low) * float(rng.normal())
        self.dormant = float(rng.uniform(0.1, 0.9))
        self.rank = float(rng.integers(50, 500))
        self.live, self.dead = float(rng.uniform(1, 3)), float(rng.uniform(0, 2))
        self.speed = float(rng.uniform(900, 1100))

    @property
    def evaluated(self) -> bool:
        return bool(self.job.spec.train.eval_every)

    @property
    def final(self) -> float:
        """The score it is judged by."""
        return self.late if self.evaluated else self.end

    def steps(self) -> np.ndarray:
        train = self.job.spec.train
        if self.evaluated:
            return np.arange(0, train.steps + 1, train.eval_every)
        return np.arange(1, PLACES + 1) * train.steps // PLACES

    def curve(self) -> np.ndarray:
        return self.start + (self.end - self.start) * self.steps() / self.job.spec.train.steps

    def record(self) -> dict[str, Any]:
        spec = flattened(to_dict(self.job.spec))
        train = self.job.spec.train
        share = np.arange(1, HEALTH_ROWS + 1) / HEALTH_ROWS
        curve = self.curve().tolist()
        kinds: dict[str, Any] = {"training": {"values": [0.0] * PLACES, "final": -1.0}}
        if self.evaluated:
            kinds["evaluation"] = {
                "steps": self.steps().tolist(), "values": curve, "final": self.late,
            }  # fmt: skip
        elif train.greedy_envs:
            kinds["greedy"] = {"values": curve, "final": self.end}
        else:
            kinds["training"] = {"values": curve, "final": self.end}
        ones = np.ones(HEALTH_ROWS)
        measures = {
            "dormant_fraction": (self.dormant * share).tolist(),
            "effective_rank": (self.rank * ones).tolist(),
            "full_rank": (512 * ones).tolist(),
            "hidden_bias_share": (0.1 * ones).tolist(),
            "live_contribution": (self.live * ones).tolist(),
            "dormant_contribution": (self.dead * share).tolist(),
            "bias_contribution": (0.1 * ones).tolist(),
        }
        grid = np.linspace(-0.9, 0.9, 16)
        densities = [
            {
                "step": int(at * train.steps),
                "layer": "z",
                "title": "z",
                "bounded": True,
                "neurons": list(range(16)),
                "dormant": [False] * 15 + [True],
                "low": (grid - 0.05).tolist(),
                "high": (grid + 0.05).tolist(),
                "peak": grid.tolist(),
                "height": [10.0] * 16,
                "levels": [[999] * 48] * 16,
            }
            for at in (0.1, 1.0)
        ]
        return {
            "name": self.job.path.name,
            "algorithm": self.job.algorithm,
            "spec": {name: value for name, value in spec.items() if name != "run_dir"},
            "versions": {},
            "commit": "c0ffee",
            "protocol": PROTOCOL,
            "machine": "a machine",
            "summary": {"steps": train.steps},
            "reached": train.steps,
            "seconds": train.steps / self.speed,
            "steps_per_second": self.speed,
            "episodes": 1000,
            "lost_episodes": 0,
            "scores": kinds,
            "health": {
                "steps": (share * train.steps).astype(int).tolist(),
                "layers": [{"name": "z", "measures": measures}],
                "representation": "z",
                "threshold": [20.0] * HEALTH_ROWS,
                "delta": [0.01] * HEALTH_ROWS,
                "observations": [2048] * HEALTH_ROWS,
            },
            "densities": densities,
            "troubles": [],
        }


def write(folder: Path, name: str, record: dict[str, Any]) -> None:
    (folder / f"{name}{SUFFIX}").write_bytes(packed(record))


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[RunData], dict[str, Values]]:
    """All runs of the paper, made up, and runs that must not be taken for any of them."""
    folder = tmp_path_factory.mktemp("paper")
    made: dict[str, Values] = {}
    known: dict[str, Fake] = {}
    for name in EXPERIMENTS:
        by_arm: Values = {}
        for arm, job in paper.arms_and_jobs(name, "paper", "runs"):
            if job.path.name not in known:
                known[job.path.name] = Fake(job, arm.label)
                write(folder, job.path.name, known[job.path.name].record())
            key = job.algorithm, arm.label, job.spec.env
            by_arm.setdefault(key, []).append(known[job.path.name])
        made[name] = by_arm
    for name, changes, more in (
        # Another learning rate, norm, place of HR, budget, protocol, seed.
        ("other-rate", {"algo.learning_rate": 3e-4}, {}),
        ("other-norm", {"net.norm": "layer"}, {}),
        ("other-place", {"net.where": "all"}, {}),
        ("longer", {"train.steps": 20_000_000}, {}),
        ("older", {}, {"protocol": 1}),
        ("more-seeds", {"seed": 5}, {}),
    ):
        job = paper.jobs("fig-dqn", "paper", "runs", seeds=1, tasks=["atari/Breakout"])[0]
        # Every strange run would be the best by far.
        fake = Fake(Job("dqn", overridden(job.spec, changes)), "ReLU")
        fake.end = 1e9
        write(folder, name, {**fake.record(), "name": name, **more})
    runs, troubles = gather([folder])
    assert not troubles
    return runs, made


Compose = Callable[..., tuple[Composed, Drawing, Values]]


@pytest.fixture(scope="module")
def composed(layout: tuple[list[RunData], dict[str, Values]]) -> Compose:
    known: dict[str, tuple[Composed, Drawing, Values]] = {}

    def make(name: str) -> tuple[Composed, Drawing, Values]:
        if name not in known:
            experiment = EXPERIMENTS[name]
            drawing = Drawing(
                experiment, select(experiment, layout[0], "paper"), experiment.shading
            )
            known[name] = compositions.compose(drawing), drawing, layout[1][name]
        return known[name]

    return make


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


# The same numbers, worked out another way


def by_task(values: Values, algorithm: str, arm: str) -> dict[str, list[Fake]]:
    return {
        task: runs for (a, label, task), runs in values.items() if (a, label) == (algorithm, arm)
    }


def scale(values: Values, algorithm: str, task: str, normalisation: str) -> tuple[float, float]:
    """Return what becomes 0 and 1."""
    if normalisation == "baseline_min_max":
        curves = [run.curve() for run in values[algorithm, "ReLU", task]]
        return min(c.min() for c in curves), max(c.max() for c in curves)
    if normalisation == "human_normalised":
        return ATARI[task.partition("/")[2]]
    if normalisation == "success_normalised":
        return HUMANOID[task.partition("/")[2]]
    assert normalisation == "per_thousand"
    return 0.0, 1000.0


def normalised(
    values: Values, algorithm: str, arm: str, normalisation: str, of: Callable[[Fake], float]
) -> list[list[float]]:
    found = []
    for task, runs in by_task(values, algorithm, arm).items():
        low, high = scale(values, algorithm, task, normalisation)
        found.append([(of(run) - low) / (high - low) for run in runs])
    return found


def aggregated(tasks: list[list[float]], how: str) -> float:
    means = sorted(sum(task) / len(task) for task in tasks)
    every = sorted(value for task in tasks for value in task)
    if how == "mean":
        return sum(means) / len(means)
    if how in ("median", "median_of_runs"):
        line = means if how == "median" else every
        half = len(line) // 2
        return line[half] if len(line) % 2 else (line[half - 1] + line[half]) / 2
    line = every if how == "iqm" else means
    cut = len(line) // 4
    kept = line[cut : len(line) - cut]
    return sum(kept) / len(kept)


_OF: dict[str, Callable[[Fake], float]] = {
    "dormant_fraction": lambda run: run.dormant,
    "effective_rank": lambda run: run.rank,
    "live_contribution": lambda run: run.live,
    "dormant_contribution": lambda run: run.dead,
}


def expected(
    values: Values, drawing: Drawing, algorithm: str, arm: str, measure: str, how: str
) -> float:
    if measure == "score":
        normalisation = drawing.panels[algorithm].panel.normalisation
        tasks = normalised(values, algorithm, arm, normalisation, lambda run: run.final)
    else:
        tasks = [
            [_OF[measure](r) for r in runs] for runs in by_task(values, algorithm, arm).values()
        ]
    return aggregated(tasks, how)


CURVES = [name for name, e in EXPERIMENTS.items() if e.composition in ("curves", "contributions")]
TASKS = [name for name, e in EXPERIMENTS.items() if e.composition == "tasks"]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_only_the_panels_own_runs_are_taken(composed: Compose, name: str) -> None:
    _, drawing, values = composed(name)
    for algorithm, data in drawing.panels.items():
        for arm in data.panel.trained:
            for task in data.panel.tasks:
                wanted = [run.job.path.name for run in values[algorithm, arm.label, task]]
                assert [run.name for run in data.complete[arm.label][task]] == wanted
        assert data.tasks == list(data.panel.tasks)
        assert data.end == data.panel.steps
        assert data.seeds() == (data.panel.seeds, data.panel.seeds)


def test_what_is_left_out_is_said(composed: Compose) -> None:
    _, drawing, _ = composed("fig-dqn")
    told = " ".join(drawing.panels["dqn"].faults())
    assert f"1 run is of protocol 1 left out: this version's is {PROTOCOL}" in told
    assert "1 run is of further seeds left out" in told
    assert len(drawing.panels["dqn"].faults()) == 2


@pytest.mark.parametrize("name", CURVES)
def test_every_number_of_the_table(composed: Compose, name: str) -> None:
    made, drawing, values = composed(name)
    table = rows(made.tables[0].csv())
    measures = {(plot.algorithm, plot.measure) for plot in drawing.experiment.plots}
    if not measures:
        measures = {("dqn", "live_contribution"), ("dqn", "dormant_contribution")}
    wanted = [
        (algorithm, arm.label, measure, how)
        for algorithm, data in drawing.panels.items()
        for arm in data.panel.arms
        for a, measure in measures
        if a == algorithm
        for how in data.aggregations(measure)
    ]
    found = [(r["algorithm"], r["arm"], r["measure"], r["aggregation"]) for r in table]
    assert sorted(found) == sorted(wanted)
    for row in table:
        value = expected(
            values, drawing, row["algorithm"], row["arm"], row["measure"], row["aggregation"]
        )
        assert float(row["value"]) == pytest.approx(value, rel=1e-6), row
        assert float(row["low"]) <= float(row["value"]) <= float(row["high"])
        assert int(row["tasks"]) == len(drawing.panels[row["algorithm"]].panel.tasks)


@pytest.mark.parametrize("name", CURVES)
def test_the_end_points_of_every_curve(composed: Compose, name: str) -> None:
    made, drawing, values = composed(name)
    curves = rows(made.curves_csv())
    plots = drawing.experiment.plots
    if drawing.experiment.composition == "contributions":
        ends = {row["arm"]: float(row["value"]) for row in curves}
        for label, measure in (("live neurons", "live_contribution"),
                               ("dormant neurons", "dormant_contribution")):  # fmt: skip
            value = expected(values, drawing, "dqn", "tanh", measure, "mean")
            assert ends[label] == pytest.approx(value, rel=1e-6)
        return
    assert len(made.charts) == len(plots)
    for plot, chart in zip(plots, made.charts, strict=True):
        data = drawing.panels[plot.algorithm]
        arms = [arm.label for arm in plot.arms or data.panel.arms]
        assert [line.label for line in chart.lines] == arms
        for line in chart.lines:
            how = data.aggregations(plot.measure)[0]
            if plot.measure == "score":
                # The curve's own last value, which of evaluated runs is not the final score.
                value = aggregated(
                    normalised(values, plot.algorithm, line.label, data.panel.normalisation,
                               lambda run: run.end),
                    how,
                )  # fmt: skip
            else:
                value = expected(values, drawing, plot.algorithm, line.label, plot.measure, how)
            factor = 100 if plot.measure == "dormant_fraction" else 1
            assert line.steps[-1] == data.panel.steps
            assert line.band.value[-1] == pytest.approx(factor * value, rel=1e-6)
            assert line.band.low[-1] <= line.band.value[-1] <= line.band.high[-1]


def test_the_shading_is_the_papers(composed: Compose) -> None:
    made, drawing, values = composed("fig-human-normalised")
    for line in made.charts[0].lines:
        tasks = normalised(values, "dqn", line.label, "human_normalised", lambda run: run.end)
        seeds = np.mean(tasks, axis=0)
        assert line.band.value[-1] == pytest.approx(seeds.mean(), rel=1e-6)
        assert line.band.high[-1] - line.band.value[-1] == pytest.approx(
            seeds.std(ddof=1), rel=1e-6
        )
    for name, divisor in (("fig-dqn-games", 1.0), ("fig-simbav2-tasks", math.sqrt(3))):
        made, drawing, values = composed(name)
        for chart, task in zip(made.charts, next(iter(drawing.panels.values())).tasks, strict=True):
            for line in chart.lines:
                algorithm = next(iter(drawing.panels))
                ends = np.array([run.end for run in values[algorithm, line.label, task]])
                half = ends.std(ddof=1) / divisor
                assert line.band.value[-1] == pytest.approx(ends.mean(), rel=1e-6)
                assert line.band.value[-1] - line.band.low[-1] == pytest.approx(half, rel=1e-6)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_its_chart_and_its_numbers(composed: Compose, name: str) -> None:
    made, drawing, values = composed(name)
    ((algorithm, data),) = drawing.panels.items()
    assert len(made.charts) == len(data.panel.tasks) in (3, 8, 14, 28, 51)
    table = rows(made.tables[0].csv())
    assert len(table) == len(data.panel.tasks) * len(data.panel.arms)
    for row in table:
        finals = [run.final for run in values[algorithm, row["arm"], row["task"]]]
        assert float(row["score"]) == pytest.approx(np.mean(finals), rel=1e-6)
        assert float(row["deviation"]) == pytest.approx(np.std(finals, ddof=1), rel=1e-6)
        assert int(row["seeds"]) == len(finals)


def test_longer_runs_bend_no_curve(composed: Compose) -> None:
    # Figure 9's runs are of tasks of Figure 18, with five times the budget.
    made, _, values = composed("fig-dmc-visual")
    chart = next(chart for chart in made.charts if chart.title == "humanoid-walk")
    assert max(line.steps[-1] for line in chart.lines) == 500_000
    ends = [run.end for run in values["mrq", "MR.Q", "dmc/humanoid-walk"]]
    assert chart.lines[0].band.value[-1] == pytest.approx(np.mean(ends), rel=1e-6)


def test_the_improvements_of_figure_1(composed: Compose) -> None:
    made, drawing, values = composed("fig-improvements")
    table = {row["algorithm"]: row for row in rows(made.tables[0].csv())}
    assert list(table) == ["dqn", "ppo", "pqn", "simbav2", "mrq"]
    for algorithm, row in table.items():
        how = drawing.panels[algorithm].panel.aggregations[0]
        old, new = (expected(values, drawing, algorithm, arm, "score", how)
                    for arm in (row["against"], row["arm"]))  # fmt: skip
        change = 100 * (new - old) / abs(old)
        assert float(row["change_percent"]) == pytest.approx(change, rel=1e-6)
        assert float(row["low"]) < change < float(row["high"])


def test_table_1(composed: Compose) -> None:
    made, _, values = composed("table-dormancy")
    table = {row["activation"]: row for row in rows(made.tables[0].csv())}
    for name, activation, hr in (("tanh", "tanh", "tanh + HR"), ("ReLU", "relu", "ReLU + HR")):
        before, after = (
            [
                np.mean([run.dormant for run in runs])
                for runs in by_task(values, "dqn", arm).values()
            ]
            for arm in (name, hr)
        )
        row = table[name]
        predicted = np.mean([predicted_dormant(float(p), activation) for p in before])  # type: ignore[arg-type]
        assert float(row["without"]) == pytest.approx(np.mean(before), rel=1e-6)
        assert float(row["with"]) == pytest.approx(np.mean(after), rel=1e-6)
        assert float(row["predicted"]) == pytest.approx(predicted, rel=1e-6)
        change = float(row["measured_change_percent"])
        assert change == pytest.approx(100 * (np.mean(after) / np.mean(before) - 1), rel=1e-6)
        points = float(row["predicted_change_points"])
        assert points == pytest.approx(predicted - np.mean(before), rel=1e-6)
    tasks = rows(made.tables[1].csv())
    assert len(tasks) == 16
    for row in tasks:
        runs = values["dqn", row["activation"], row["task"]]
        assert float(row["without"]) == pytest.approx(np.mean([r.dormant for r in runs]), rel=1e-6)


def test_table_2_is_in_the_papers_units(composed: Compose) -> None:
    made, drawing, values = composed("table-widening")
    table = rows(made.tables[0].csv())
    assert [row["row"] for row in table] == [
        "Baseline", "+ HR", "+ Widen", "+ 2HR", *2 * ("Baseline", "+ HR", "+ Widen"),
    ]  # fmt: skip
    for row in table:
        algorithm = row["algorithm"]
        panel = drawing.panels[algorithm].panel
        how = panel.aggregations[0]
        old, new = (expected(values, drawing, algorithm, arm, "score", how)
                    for arm in (panel.baseline.label, row["arm"]))  # fmt: skip
        assert float(row["value"]) == pytest.approx(
            new / old if algorithm == "mrq" else new, rel=1e-6
        )
        if row["row"] != "Baseline":
            change = 100 * (new - old) / abs(old)
            assert float(row["change_percent"]) == pytest.approx(change, rel=1e-6)
    latex = made.tables[0].tex()
    for word in ("Baseline", "+ HR", "+ Widen", "+ 2HR", "DQN", "SimbaV2", "MR.Q"):
        assert word in latex


def test_figure_3_shows_a_tenth_and_the_end(composed: Compose) -> None:
    made, _, _ = composed("fig-kde")
    assert "after 1 M steps, seed 0" in made.caption
    assert "after 10 M steps, seed 0" in made.caption
    figure = made.draw()
    cells = [axes for part in figure.subfigs for axes in part.axes]
    assert len(cells) == 32
    red = [axes for axes in cells if axes.spines["left"].get_edgecolor()[0] > 0.7
           and axes.spines["left"].get_linewidth() > 2]  # fmt: skip
    assert len(red) == 2


@pytest.mark.parametrize(
    "name", ["fig-pqn-games", "fig-dmc-visual", "fig-control", "table-widening"]
)
def test_the_largest_figures_are_drawn(composed: Compose, name: str) -> None:
    made, _, _ = composed(name)
    figure = made.draw()
    figure.canvas.draw()
    if made.charts:
        assert len([axes for axes in figure.axes if axes.get_visible()]) == len(made.charts)


# What a person sees: `hadamard reproduce NAME --draw`


Draw = Callable[..., tuple[int, str, str]]


@pytest.fixture
def draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Draw:
    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["reproduce", *words, "--folder", str(tmp_path), "--draw"])
        return code, *capsys.readouterr()

    return run


def made_up(
    folder: Path,
    name: str,
    keep: Callable[[Fake], bool] = lambda _: True,
    change: Callable[[dict[str, Any]], None] = lambda _: None,
    seeds: int = 4,
) -> None:
    """Write an experiment's runs at the smoke scale, those that are kept, changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for arm, job in paper.arms_and_jobs(name, "smoke", "runs", seeds):
        fake = Fake(job, arm.label)
        if keep(fake):
            record = fake.record()
            change(record)
            write(folder, job.path.name, record)


def words_of(folder: Path, name: str) -> str:
    """Return what is written on a figure."""
    svg = (folder / "smoke" / "figures" / name / "figure.svg").read_text()
    return " ".join(html.unescape(" ".join(re.findall(r">([^<>]+)</text>", svg))).split())


def page(folder: Path, name: str) -> str:
    return html.unescape((folder / "smoke" / "figures" / name / "index.html").read_text())


def test_a_figure_is_drawn_from_packed_runs(draw: Draw, tmp_path: Path) -> None:
    made_up(tmp_path / "packed", "fig-dqn")
    code, out, err = draw("fig-dqn", "--runs", str(tmp_path / "packed"), "--seeds", "4")
    folder = tmp_path / "smoke" / "figures" / "fig-dqn"
    assert (code, out, err) == (0, f"wrote {folder / 'index.html'}\n", "")
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "index.html", "figure.svg", "figure.png", "figure.pdf", "curves.csv",
        "numbers.csv", "numbers.tex", "claims.csv", "claims.tex",
    }  # fmt: skip
    text = page(tmp_path, "fig-dqn")
    for claim in EXPERIMENTS["fig-dqn"].claims:
        assert claim.text in text
    assert EXPERIMENTS["fig-dqn"].note in text
    assert "signs and orders may be compared with the paper" in text
    assert "1 task, 4 seeds, 2 k steps" in words_of(tmp_path, "fig-dqn")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    draw("fig-dqn", "--runs", str(tmp_path / "packed"), "--seeds", "4")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_without_runs_the_command_that_makes_them_is_named(draw: Draw, tmp_path: Path) -> None:
    code, _, err = draw("fig-ppo", "--seeds", "3")
    assert code == cli.WRONG
    assert "there are no runs of fig-ppo in" in err
    assert f"`hadamard reproduce fig-ppo --scale smoke --folder {tmp_path} --seeds 3`" in err


def test_all_draws_what_there_is_and_an_index(draw: Draw, tmp_path: Path) -> None:
    made_up(tmp_path / "smoke", "fig-ppo")
    code, out, err = draw("all", "--seeds", "4")
    assert code == 0
    index = (tmp_path / "smoke" / "figures" / "index.html").read_text()
    assert index.count('src="fig-ppo/figure.png"') == 1
    # Figures that share these runs are drawn too, those without any run are named.
    assert "fig-ppo-games/index.html" in out
    assert "fig-simbav2: no runs yet; make them with `hadamard reproduce fig-simbav2" in err
    assert index.count("no runs yet") == index.count('class="missing"') > 10
    for name in ("fig-ppo", "fig-ppo-pqn"):
        assert (tmp_path / "smoke" / "figures" / name / "figure.png").exists()
    # PQN's half of Figure 7 has no runs.
    assert "PQN: no runs." in words_of(tmp_path, "fig-ppo-pqn")


def test_missing_arms_and_unequal_seeds_are_said(draw: Draw, tmp_path: Path) -> None:
    made_up(tmp_path / "smoke", "fig-dqn",
            lambda run: run.arm != "ReLU + HR" and (run.arm, run.seed) != ("tanh", 0))  # fmt: skip
    code, _, _ = draw("fig-dqn", "--seeds", "4")
    assert code == 0
    for text in (page(tmp_path, "fig-dqn"), words_of(tmp_path, "fig-dqn")):
        assert "Drawn without ReLU + HR: no complete runs." in text
        assert "Seeds are unequal: 3 to 4 runs of an arm on a task." in text
    judged = rows((tmp_path / "smoke/figures/fig-dqn/claims.csv").read_text())
    missing = [row for row in judged if "not measured: ReLU + HR" in row["reason"]]
    assert {row["verdict"] for row in missing} == {"undecided"}
    assert len(missing) == 2


def test_a_run_without_health_is_said(draw: Draw, tmp_path: Path) -> None:
    def without(record: dict[str, Any]) -> None:
        record["health"] |= {"steps": [], "layers": [], "representation": "", "threshold": [],
                             "delta": [], "observations": []}  # fmt: skip

    made_up(tmp_path / "smoke", "fig-dqn", change=without)
    code, _, _ = draw("fig-dqn", "--seeds", "4")
    assert code == 0
    for text in (page(tmp_path, "fig-dqn"), words_of(tmp_path, "fig-dqn")):
        assert "No dormant neurons on minatar/breakout: a run is without health." in text
    numbers = rows((tmp_path / "smoke/figures/fig-dqn/numbers.csv").read_text())
    assert all((row["value"] == "") == (row["measure"] != "score") for row in numbers)


def test_runs_of_another_protocol_are_left_out_with_a_sentence(draw: Draw, tmp_path: Path) -> None:
    def older(record: dict[str, Any]) -> None:
        if record["spec"]["seed"] == 3:
            record["protocol"] = PROTOCOL - 1

    made_up(tmp_path / "smoke", "fig-ppo", change=older)
    draw("fig-ppo", "--seeds", "4")
    told = f"3 runs are of protocol {PROTOCOL - 1} left out: this version's is {PROTOCOL}"
    assert told in page(tmp_path, "fig-ppo")


def test_damaged_packed_runs_are_named_and_left_out(draw: Draw, tmp_path: Path) -> None:
    made_up(tmp_path / "smoke", "fig-ppo")
    broken = sorted((tmp_path / "smoke").glob(f"*{SUFFIX}"))[0]
    broken.write_bytes(broken.read_bytes()[:-20])
    code, _, err = draw("fig-ppo", "--seeds", "4")
    assert code == 0
    assert f"hadamard: left out: {broken}" in err
    assert "Seeds are unequal: 3 to 4 runs" in page(tmp_path, "fig-ppo")


def test_runs_that_stop_early_say_how_far_they_came(draw: Draw, tmp_path: Path) -> None:
    made_up(tmp_path / "smoke", "fig-dqn")
    code, _, _ = draw("fig-dqn", "--seeds", "4", "--until", "1000")
    assert code == 0
    assert "to 1 k of 2 k steps" in words_of(tmp_path, "fig-dqn")
    curves = rows((tmp_path / "smoke/figures/fig-dqn/curves.csv").read_text())
    assert max(float(row["step"]) for row in curves) == 1000
    numbers = rows((tmp_path / "smoke/figures/fig-dqn/numbers.csv").read_text())
    # Dormancy rises evenly: half of it at half of the budget.
    for row in numbers:
        if row["measure"] == "dormant_fraction":
            fakes = [Fake(job, arm.label) for arm, job in paper.arms_and_jobs(
                "fig-dqn", "smoke", "runs", 4) if arm.label == row["arm"]]  # fmt: skip
            half = np.mean([fake.dormant for fake in fakes]) / 2
            assert float(row["value"]) == pytest.approx(half, rel=1e-6)
    # None came so far: drawn to where all of them are.
    unfinished = tmp_path / "unfinished"

    def stopped(record: dict[str, Any]) -> None:
        record["summary"], record["reached"] = None, 1500
        for kind in record["scores"].values():
            kind["values"] = kind["values"][:150]

    made_up(unfinished / "smoke", "fig-dqn", change=stopped)
    cli.main(["reproduce", "fig-dqn", "--seeds", "4", "--folder", str(unfinished), "--draw"])
    assert "No run has come to 2 k steps: all are drawn to 1.5 k" in page(unfinished, "fig-dqn")


def test_a_run_that_came_to_two_ends_counts_once_by_the_further(draw: Draw, tmp_path: Path) -> None:
    """Packed when it had come to half of its budget, and still a run of the same settings."""

    def half(record: dict[str, Any]) -> None:
        record["spec"]["train.until"] = record["reached"] = record["summary"]["steps"] = 1000
        for kind in record["scores"].values():
            kind["values"] = kind["values"][:100]
            kind["final"] = kind["values"][-1]

    made_up(tmp_path / "half", "fig-dqn", change=half)
    code, _, err = draw("fig-dqn", "--seeds", "4", "--runs", str(tmp_path / "half"))
    assert (code, err) == (0, "")
    assert "to 1 k of 2 k steps" in words_of(tmp_path, "fig-dqn")
    made_up(tmp_path / "smoke", "fig-dqn")
    draw("fig-dqn", "--seeds", "4", "--runs", str(tmp_path / "half"))
    assert "4 seeds, 2 k steps" in words_of(tmp_path, "fig-dqn")
    curves = rows((tmp_path / "smoke/figures/fig-dqn/curves.csv").read_text())
    assert max(float(row["step"]) for row in curves) == 2000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fig-dnq"], "did you mean 'fig-dqn'"),
        (["fig-dqn", "--runs", "nowhere"], "--runs nowhere: there is no such file or folder"),
        (["fig-dqn", "--until", "-3"], "--until must not be negative, got -3"),
        (["fig-dqn", "--curves", "none.csv"], "none.csv cannot be read"),
    ],
)
def test_what_cannot_be_drawn_is_explained(draw: Draw, words: list[str], told: str) -> None:
    code, _, err = draw(*words)
    assert code == cli.WRONG
    assert told in err


def test_the_shading_may_be_asked_for(draw: Draw, tmp_path: Path) -> None:
    made_up(tmp_path / "smoke", "fig-dqn-games")
    for asked, told in (("paper", "standard deviation"), ("interval", "95 % interval")):
        draw("fig-dqn-games", "--seeds", "4", "--shading", asked)
        assert f"Shaded: {told}" in page(tmp_path, "fig-dqn-games").replace("shaded", "Shaded")


def test_published_curves_are_drawn_where_the_paper_has_them(draw: Draw, tmp_path: Path) -> None:
    made_up(tmp_path / "smoke", "fig-visual-humanoid")
    curves = tmp_path / "others.csv"
    points = [(method, seed, step) for method in ("XQC", "Other") for seed in (1, 2)
              for step in (0, 100, 200)]  # fmt: skip
    lines = [f"{method},probe/track84,{seed},{step},{step / 10}" for method, seed, step in points]
    curves.write_text("\n".join(["method,env,seed,step,score", *lines]))
    draw("fig-visual-humanoid", "--seeds", "4", "--curves", str(curves))
    drawn = tmp_path / "smoke/figures/fig-visual-humanoid/curves.csv"
    assert {row["arm"] for row in rows(drawn.read_text())} == {"MR.Q", "MR.Q + HR", "XQC"}


def test_claims_are_judged_by_the_one_rule(draw: Draw, tmp_path: Path) -> None:
    """Claims on made-up runs whose truth is known."""

    def known(record: dict[str, Any]) -> None:
        spec, seed = record["spec"], record["spec"]["seed"]
        tanh = spec["net.activation"] == "tanh"
        level = {True: {"plain": 40, "hadamard": 60}, False: {"plain": 50}}[tanh][spec["net.layer"]]
        values = [min(place, level + 0.1 * seed) for place in range(1, PLACES + 1)]
        record["scores"]["training"] = {"values": values, "final": values[-1]}

    made_up(tmp_path / "smoke", "fig-ppo", change=known, seeds=5)
    draw("fig-ppo", "--seeds", "5")
    judged = {row["claim"]: row for row in rows(
        (tmp_path / "smoke/figures/fig-ppo/claims.csv").read_text())}  # fmt: skip
    assert judged["tanh + HR is best: above ReLU"]["verdict"] == "supported"
    assert judged["tanh + HR is best: above tanh"]["verdict"] == "supported"
    assert judged["HR improves PPO by over 10 %"]["verdict"] == "supported"
    assert judged["tanh and ReLU are comparable"]["verdict"] == "not supported"
    # (60 - 50) / (50 - 1) of the baseline's range, in percent of the baseline's 1.
    change = float(judged["HR improves PPO by over 10 %"]["ours"])
    assert change == pytest.approx(100 * 10 / 49.2, rel=0.01)
