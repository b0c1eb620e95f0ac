"""The paper's experiments as data: complete, valid at every scale, and as the paper states them."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hadamard import envs
from hadamard.core.config import flattened, overridden, to_dict
from hadamard.core.identity import variant
from hadamard.experiments import paper, reproduce
from hadamard.experiments.grid import Job
from hadamard.experiments.paper import EXPERIMENTS, SCALES, Experiment
from hadamard.plasticity import redo
from hadamard.report.statistics.aggregates import AGGREGATES
from hadamard.report.statistics.normalize import NORMALIZATIONS, normalize
from hadamard.training.setup import Setup
from hadamard.training.start import default_spec
from tests.support.paths import SHARED

PAPER = sorted((SHARED / "paper").glob("*.txt"))
every_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
every_scale = pytest.mark.parametrize("scale", SCALES)


def settings(job: Job) -> str:
    """The settings that determine a run's results."""
    spec = overridden(job.spec, {"run_dir": None})
    return json.dumps([job.algorithm, to_dict(spec)], sort_keys=True)


@pytest.fixture(scope="module")
def all_jobs() -> dict[str, dict[str, list[Job]]]:
    return {
        scale: {name: paper.jobs(name, scale, "runs") for name in EXPERIMENTS} for scale in SCALES
    }


AllJobs = dict[str, dict[str, list[Job]]]


@every_scale
def test_every_experiment_has_valid_runs(all_jobs: AllJobs, scale: str) -> None:
    folders: dict[Path, str] = {}
    for name, jobs in all_jobs[scale].items():
        assert len({job.path for job in jobs}) == len(jobs), name
        panels = EXPERIMENTS[name].panels_at(scale)
        runs = sum(len(p.trained) * len(p.tasks) * p.seeds for p in panels)
        assert len(jobs) == runs
        for job in jobs:
            job.spec.check()
            assert job.path.parent == Path("runs", scale)
            # The same settings are the same folder in every experiment, and the other way round.
            assert folders.setdefault(job.path, settings(job)) == settings(job)
    assert len(set(folders.values())) == len(folders)


@every_scale
def test_tasks_are_there_and_can_be_normalized(scale: str) -> None:
    known = {suite: envs.tasks(suite) for suite in envs.suites()}
    for experiment in EXPERIMENTS.values():
        for panel in experiment.panels_at(scale):
            assert len(set(panel.tasks)) == len(panel.tasks)
            assert panel.normalization in NORMALIZATIONS
            assert panel.aggregations
            assert set(panel.aggregations) <= set(AGGREGATES)
            for task in panel.tasks:
                suite, _, name = task.partition("/")
                assert name in known[suite]
                if panel.normalization == "baseline_min_max":
                    scored = experiment.composition not in (
                        "densities",
                        "contributions",
                        "dormancy",
                    )
                    assert not scored or any(arm.variant == "relu" for arm in panel.trained)
                else:
                    normalize(1.0, task, panel.normalization)


def test_at_the_papers_scale_only_the_variant_changes(all_jobs: AllJobs) -> None:
    for name, jobs in all_jobs["paper"].items():
        arms = {arm.label: arm for panel in EXPERIMENTS[name].panels for arm in panel.trained}
        allowed = {field for arm in arms.values() for field in variant(arm.variant)}
        allowed |= {field for arm in arms.values() for field in arm.overrides}
        for job in jobs:
            default = default_spec(job.algorithm, job.spec.env)
            ignored = {field: _get(default, field) for field in allowed}
            steps = 2_500_000 if name == "fig-visual-humanoid" else default.train.steps
            changes = {**ignored, "train.steps": steps, "seed": job.spec.seed, "run_dir": None}
            assert overridden(job.spec, changes) == overridden(default, changes)


def _get(spec: Any, name: str) -> Any:
    for part in name.split("."):
        spec = getattr(spec, part)
    return spec


def test_the_numbers_of_runs_are_the_papers(all_jobs: AllJobs) -> None:
    count = {name: len(jobs) for name, jobs in all_jobs["paper"].items()}
    assert count["fig-dqn"] == 8 * 5 * 5
    assert count["fig-kde"] == count["fig-hidden-bias"] == 5
    assert count["table-dormancy"] == 8 * 4 * 5
    assert count["fig-ppo"] == 8 * 3 * 5
    assert count["fig-pqn"] == 51 * 3 * 5
    assert count["fig-simbav2"] == 14 * 2 * 3
    assert count["fig-mrq"] == 7 * 2 * 5
    assert count["fig-visual-humanoid"] == 3 * 2 * 5
    assert count["table-widening"] == 8 * 4 * 5 + 14 * 3 * 3 + 7 * 3 * 5
    assert count["fig-width-lr"] == 8 * (3 + 3 + 1) * 5
    assert count["fig-crelu-redo"] == 51 * 5 * 5
    assert count["fig-dmc-visual"] == 28 * 2 * 5
    assert {job.spec.train.steps for job in all_jobs["paper"]["fig-dqn"]} == {10_000_000}
    for name, jobs in all_jobs["minatar"].items():
        assert len({job.spec.seed for job in jobs}) >= 5, name
        for job in jobs:
            discrete = job.algorithm in ("dqn", "ppo", "pqn")
            assert job.spec.env.startswith("minatar/" if discrete else "dmc-state/")


def test_the_full_scale_has_published_budgets_on_minatar(all_jobs: AllJobs) -> None:
    budgets = {"dqn": 5_000_000, "ppo": 10_000_000, "pqn": 10_000_000}
    for name, jobs in all_jobs["minatar-full"].items():
        assert {job.spec.seed for job in jobs} == set(range(10))
        for panel in EXPERIMENTS[name].panels_at("minatar-full"):
            if panel.algorithm in budgets:
                assert panel.tasks == (panel.minatar or paper.MINATAR_5)
                assert panel.steps == budgets[panel.algorithm]
        for job in jobs:
            if job.algorithm not in budgets:
                continue
            # Apart from the learning rate, the algorithm's settings are its own for MinAtar.
            default = default_spec(job.algorithm, job.spec.env)
            rate = job.spec.algo.learning_rate
            assert job.spec.algo == dataclasses.replace(default.algo, learning_rate=rate)


def test_experiments_share_their_runs(all_jobs: AllJobs) -> None:
    for by_name in all_jobs.values():
        paths = {name: {job.path for job in jobs} for name, jobs in by_name.items()}
        others = set().union(*(paths[name] for name in paths if name != "fig-improvements"))
        assert paths["fig-improvements"] <= others
        assert paths["table-dormancy"] <= paths["fig-dqn"]
        assert paths["fig-pqn"] <= paths["fig-crelu-redo"]
        assert paths["fig-human-normalized"] == paths["fig-dqn"] | paths["fig-ppo"]
        assert paths["fig-kde"] <= paths["fig-dqn"]
        assert paths["fig-hidden-bias"] <= paths["fig-dqn"]
        assert paths["fig-simbav2"] | paths["fig-mrq"] <= paths["fig-improvements"]


def test_an_agent_is_built_for_every_arm(all_jobs: AllJobs, tmp_path: Path) -> None:
    for scale in ("smoke", "minatar"):
        arms = {}
        for jobs in all_jobs[scale].values():
            for job in jobs:
                net = (job.algorithm, job.spec.net, job.spec.remedy, job.spec.algo)
                arms.setdefault(net, job)
        # 10 of DQN, 3 of PPO, 5 of PQN, 3 of SimbaV2 and of MR.Q
        assert len(arms) == 24
        for job in arms.values():
            if scale == "minatar" and job.algorithm in ("dqn", "ppo", "pqn"):
                continue  # as in the smoke scale, but wider
            changes: dict[str, Any] = {"train.eval_every": 0, "train.steps": 20_000}
            changes |= {"train.health_samples": 2, "run_dir": str(tmp_path)}
            Setup(job.algorithm, overridden(job.spec, changes)).close()


@every_experiment
@pytest.mark.parametrize("scale", ["smoke", "minatar", "minatar-full"])
def test_densities_are_written_when_they_are_shown(experiment: Experiment, scale: str) -> None:
    for job in paper.jobs(experiment, scale, "runs", seeds=1):
        train = job.spec.train
        for share in experiment.kde_at:
            assert share * train.steps % train.checkpoint_every == 0
            assert share * train.steps % train.health_every == 0
        if job.algorithm in ("simbav2", "mrq"):
            assert 0 < train.eval_every <= 0.05 * train.steps


@every_experiment
def test_an_experiment_explains_itself(experiment: Experiment) -> None:
    assert experiment.shows
    assert experiment.note
    assert re.match(r"(Figure|Table) \d+", experiment.place)
    panels = {panel.algorithm: panel for panel in experiment.panels}
    assert len(panels) == len(experiment.panels)
    for stated in experiment.stated:
        assert stated.arm in panels[stated.algorithm].arms
        assert stated.against is None or stated.against in panels[stated.algorithm].arms
    for claim in experiment.claims:
        assert claim.arm in panels[claim.algorithm].arms
        assert claim.against is None or claim.against in panels[claim.algorithm].arms
        # Equality needs a margin that was stated beforehand.
        assert claim.by > 0 or claim.kind != "equal"
    for plot in experiment.plots:
        assert all(arm in panels[plot.algorithm].arms for arm in plot.arms)
    for panel in experiment.panels:
        assert panel.baseline is panel.arms[0]
        # No two arms of a figure look alike.
        assert len({arm.style for arm in panel.arms}) == len(panel.arms)


def test_every_field_of_the_data_is_read() -> None:
    """Each field is used outside of its own class."""
    source = Path(paper.__file__).parents[2]
    code = "".join(path.read_text() for path in source.rglob("*.py"))
    code += Path(__file__).read_text()
    for kind in (paper.Arm, paper.Stated, paper.Claim, paper.Panel, paper.Plot, Experiment):
        for field in dataclasses.fields(kind):
            assert re.search(rf"\.{field.name}\b", code), f"{kind.__name__}.{field.name}"
    for experiment in EXPERIMENTS.values():
        assert (source / "report" / "compositions" / f"{experiment.composition}.py").is_file()
        assert bool(experiment.plots) == (experiment.composition == "curves")
        assert bool(experiment.kde_at) == (experiment.composition == "densities")


def test_every_figure_and_table_of_the_paper_is_listed() -> None:
    places = {re.match(r"\w+ \d+", e.place)[0] for e in EXPERIMENTS.values()}  # type: ignore[index]
    assert not places & set(paper.WITHOUT_RUNS)
    places |= set(paper.WITHOUT_RUNS)
    assert places == {f"Figure {i}" for i in range(1, 19)} | {f"Table {i}" for i in range(1, 7)}


@pytest.mark.skipif(not PAPER, reason="the paper's text is not here")
def test_stated_numbers_stand_in_the_paper() -> None:
    text = "".join(path.read_text() for path in PAPER)
    figures = re.findall(r"\\begin\{(?:figure\*?|wrapfigure)\}.*?\\end\{\w+\*?\}", text, re.S)
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.S)
    # A figure with parts ends at the first of them in this pattern, so only the beginnings count.
    assert (len(figures), len(tables)) == (18, 6)
    starts = [m.start() for m in re.finditer(r"\\begin\{(?:figure\*?|wrapfigure)\}", text)]
    starts.append(len(text))
    for experiment in EXPERIMENTS.values():
        kind, number = experiment.place.replace(",", "").split()[:2]
        where = int(number) - 1
        source = text[starts[where] : starts[where + 1]] if kind == "Figure" else tables[where]
        assert experiment.anchor in source, experiment.name

    by_name = {name: experiment.stated for name, experiment in EXPERIMENTS.items()}
    table_1, table_2 = tables[0], tables[1]
    for stated in by_name["table-dormancy"]:
        value = stated.value
        text_1 = f"({value:.2f})" if stated.measure == "dormant_fraction" else f"${value:+.0f}\\%$"
        assert text_1 in table_1
    for stated in by_name["table-widening"]:
        value = stated.value
        row = stated.where.rpartition(", ")[2]
        line = next(line for line in table_2.splitlines() if line.strip().startswith(row))
        column = {"dqn": 1, "simbav2": 2, "mrq": 3}[stated.algorithm]
        cell = line.split("&")[column]
        assert (f"${value:+.0f}\\%$" if stated.measure == "change" else f"{value:.2f}") in cell
    for sentence in (
        r"HR delivers over 10\% gains for DQN~\citep{mnih2013playing} and PPO",
        r"around 60\% of $\relu$ neurons",
        r"($\sim$40\% vs 60\%)",
        r"improving over standard $\tanh$ by more than 100\%",
        "roughly 1.2x",
        r"ReDo ($\tau$=0.025)",
    ):
        assert sentence in text
    assert redo.Config().tau == 0.025
    for task in (task.partition("/")[2] for task in paper.HUMANOID_14):
        assert rf"\texttt{{{task}}}" in tables[5]


def test_the_data_needs_no_torch() -> None:
    code = (
        "import sys; from hadamard.experiments import paper; paper.listing(); "
        "[e.panels_at(s) for e in paper.EXPERIMENTS.values() for s in paper.SCALES]; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_share_at_the_papers_scale_shortens_all_intervals() -> None:
    for algorithm, name, counted in (
        ("dqn", "fig-kde", {"algo.epsilon_steps", "algo.learning_starts"}),
        ("pqn", "fig-pqn", set()),
        ("simbav2", "fig-simbav2", {"algo.learning_starts", "train.eval_every"}),
        ("mrq", "fig-mrq", {"algo.random_steps", "train.eval_every"}),
    ):
        (full, *_) = paper.jobs(name, "paper", "runs", seeds=1)
        (part, *_) = paper.jobs(name, "paper", "runs", seeds=1, share=0.2)
        assert full.algorithm == algorithm
        counted |= {f"train.{field}" for field in ("steps", "log_every", "health_every")}
        counted |= {"train.checkpoint_every"}
        before, after = (flattened(to_dict(job.spec)) for job in (full, part))
        assert {field for field in before if before[field] != after[field]} == {
            *counted,
            "run_dir",
        }
        for field in counted:
            assert after[field] == before[field] // 5, field
    (shortest,) = paper.jobs("fig-kde", "paper", "runs", seeds=1, share=0.001)
    assert shortest.spec.train.health_every == shortest.spec.train.health_samples
    # Kept checkpoints stay at the same places of the budget.
    (kept, *_) = paper.jobs("remedies", "paper", "runs", seeds=1, share=0.2)
    assert kept.spec.train.keep_every * 5 == 2 * kept.spec.train.steps
    # Disabled intervals stay disabled.
    (job, *_) = paper.jobs("fig-ppo", "paper", "runs", seeds=1, share=0.1)
    assert job.spec.train.eval_every == 0


@every_scale
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_a_share_of_every_experiment_has_valid_runs(scale: str, share: float) -> None:
    # A plan makes all checks of a run's settings.
    runs = reproduce.plan(reproduce.Request(("all",), scale, Path("nowhere"), seeds=1, share=share))
    assert {run.job.algorithm for run in runs} == {"dqn", "ppo", "pqn", "simbav2", "mrq"}
    for run in runs:
        assert run.job.spec.train.health_every > 0
