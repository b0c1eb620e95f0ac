"""The paper's experiments as data: complete, valid at every scale, and as the paper states them."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hadamard import cli, envs
from hadamard.core.config import flattened, overridden, to_dict
from hadamard.core.run import Run
from hadamard.experiments import paper, reproduce
from hadamard.experiments.grid import Job, variant
from hadamard.experiments.paper import EXPERIMENTS, SCALES, Experiment
from hadamard.experiments.sweep import Options
from hadamard.report.statistics.estimates import AGGREGATES
from hadamard.report.statistics.normalise import NORMALISATIONS, normalise
from hadamard.train import Trainer, default_spec

PAPER = sorted((Path(__file__).parents[2] / "shared" / "paper").glob("*.txt"))
every_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
every_scale = pytest.mark.parametrize("scale", SCALES)

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["reproduce", *map(str, words)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def settings(job: Job) -> str:
    """All that makes a run what it is."""
    spec = overridden(job.spec, {"run_dir": None})
    return json.dumps([job.algorithm, to_dict(spec)], sort_keys=True)


@pytest.fixture(scope="module")
def all_jobs() -> dict[str, dict[str, list[Job]]]:
    return {
        scale: {name: paper.jobs(name, scale, "runs") for name in EXPERIMENTS} for scale in SCALES
    }


AllJobs = dict[str, dict[str, list[Job]]]


@every_scale
def test_every_experiment_is_made_of_valid_runs(all_jobs: AllJobs, scale: str) -> None:
    folders: dict[Path, str] = {}
    for name, jobs in all_jobs[scale].items():
        assert len({job.path for job in jobs}) == len(jobs), name
        panels = EXPERIMENTS[name].at(scale)
        runs = sum(len(p.trained) * len(p.tasks) * p.seeds for p in panels)
        assert len(jobs) == runs
        for job in jobs:
            job.spec.check()
            assert job.path.parent == Path("runs", scale)
            # The same settings are the same folder in every experiment, and the other way round.
            assert folders.setdefault(job.path, settings(job)) == settings(job)
    assert len(set(folders.values())) == len(folders)


@every_scale
def test_tasks_are_there_and_can_be_normalised(scale: str) -> None:
    known = {suite: envs.tasks(suite) for suite in envs.suites()}
    for experiment in EXPERIMENTS.values():
        for panel in experiment.at(scale):
            assert len(set(panel.tasks)) == len(panel.tasks)
            assert panel.normalisation in NORMALISATIONS
            assert panel.aggregations
            assert set(panel.aggregations) <= set(AGGREGATES)
            for task in panel.tasks:
                suite, _, name = task.partition("/")
                assert name in known[suite]
                if panel.normalisation == "baseline_min_max":
                    scored = experiment.composition not in (
                        "densities",
                        "contributions",
                        "dormancy",
                    )
                    assert not scored or any(arm.variant == "relu" for arm in panel.trained)
                else:
                    normalise(1.0, task, panel.normalisation)


def test_at_the_papers_scale_nothing_is_changed_but_the_variant(all_jobs: AllJobs) -> None:
    for name, jobs in all_jobs["paper"].items():
        arms = {arm.label: arm for panel in EXPERIMENTS[name].panels for arm in panel.trained}
        allowed = {field for arm in arms.values() for field in variant(arm.variant)}
        allowed |= {field for arm in arms.values() for field in arm.overrides}
        for job in jobs:
            own = default_spec(job.algorithm, job.spec.env)
            kept = {field: _get(own, field) for field in allowed}
            steps = 2_500_000 if name == "fig-visual-humanoid" else own.train.steps
            expected = {**kept, "train.steps": steps, "seed": job.spec.seed, "run_dir": None}
            assert overridden(job.spec, expected) == overridden(own, expected)


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
        for panel in EXPERIMENTS[name].at("minatar-full"):
            if panel.algorithm in budgets:
                assert panel.tasks == (panel.minatar or paper.MINATAR_5)
                assert panel.steps == budgets[panel.algorithm]
        for job in jobs:
            if job.algorithm not in budgets:
                continue
            # All that trains is as the algorithm has it on MinAtar.
            own = default_spec(job.algorithm, job.spec.env)
            kept = dict.fromkeys(("learning_rate",), job.spec.algo.learning_rate)
            assert job.spec.algo == dataclasses.replace(own.algo, **kept)


def test_experiments_share_their_runs(all_jobs: AllJobs) -> None:
    for by_name in all_jobs.values():
        paths = {name: {job.path for job in jobs} for name, jobs in by_name.items()}
        others = set().union(*(paths[name] for name in paths if name != "fig-improvements"))
        assert paths["fig-improvements"] <= others
        assert paths["table-dormancy"] <= paths["fig-dqn"]
        assert paths["fig-pqn"] <= paths["fig-crelu-redo"]
        assert paths["fig-human-normalised"] == paths["fig-dqn"] | paths["fig-ppo"]
        assert paths["fig-kde"] <= paths["fig-dqn"]
        assert paths["fig-hidden-bias"] <= paths["fig-dqn"]
        assert paths["fig-simbav2"] | paths["fig-mrq"] <= paths["fig-improvements"]


def test_every_arm_makes_an_agent(all_jobs: AllJobs, tmp_path: Path) -> None:
    for scale in ("smoke", "minatar"):
        arms = {}
        for jobs in all_jobs[scale].values():
            for job in jobs:
                net = (job.algorithm, job.spec.net, job.spec.redo, job.spec.algo)
                arms.setdefault(net, job)
        # 10 of DQN, 3 of PPO, 5 of PQN, 3 of SimbaV2 and of MR.Q
        assert len(arms) == 24
        for job in arms.values():
            if scale == "minatar" and job.algorithm in ("dqn", "ppo", "pqn"):
                continue  # as in the smoke scale, but wider
            changes: dict[str, Any] = {"train.eval_every": 0, "train.steps": 20_000}
            changes |= {"train.health_samples": 2, "run_dir": str(tmp_path)}
            Trainer(job.algorithm, overridden(job.spec, changes)).close()


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


def test_whatever_is_declared_is_read() -> None:
    """Every field of the data is used by something beside its own class."""
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


def test_nothing_of_the_paper_is_left_out() -> None:
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
        found = text[starts[where] : starts[where + 1]] if kind == "Figure" else tables[where]
        assert experiment.anchor in found, experiment.name

    by_name = {name: experiment.stated for name, experiment in EXPERIMENTS.items()}
    one, two = tables[0], tables[1]
    for stated in by_name["table-dormancy"]:
        value = stated.value
        told = f"({value:.2f})" if stated.measure == "dormant_fraction" else f"${value:+.0f}\\%$"
        assert told in one
    for stated in by_name["table-widening"]:
        value = stated.value
        row = stated.where.rpartition(", ")[2]
        line = next(line for line in two.splitlines() if line.strip().startswith(row))
        column = {"dqn": 1, "simbav2": 2, "mrq": 3}[stated.algorithm]
        cell = line.split("&")[column]
        assert (f"${value:+.0f}\\%$" if stated.measure == "change" else f"{value:.2f}") in cell
    for words in (
        r"HR delivers over 10\% gains for DQN~\citep{mnih2013playing} and PPO",
        r"around 60\% of $\relu$ neurons",
        r"($\sim$40\% vs 60\%)",
        r"improving over standard $\tanh$ by more than 100\%",
        "roughly 1.2x",
        r"ReDo ($\tau$=0.025)",
    ):
        assert words in text
    assert default_spec("pqn", "atari/Pong").redo.tau == 0.025
    for task in (task.partition("/")[2] for task in paper.HUMANOID_14):
        assert rf"\texttt{{{task}}}" in tables[5]


def test_the_data_needs_no_torch() -> None:
    code = (
        "import sys; from hadamard.experiments import paper; paper.listing(); "
        "[e.at(s) for e in paper.EXPERIMENTS.values() for s in paper.SCALES]; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_list_has_a_line_for_each_experiment(command: Command) -> None:
    code, out, _ = command("--list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(EXPERIMENTS)
    for line, experiment in zip(out.splitlines(), EXPERIMENTS.values(), strict=True):
        assert experiment.place in line
        assert experiment.shows in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fig-dnq"], "unknown experiment 'fig-dnq'; did you mean 'fig-dqn'"),
        (["nonsense"], "There are: fig-improvements, fig-dqn, "),
        ([], "say which experiments to reproduce, or all. There are: fig-improvements, "),
        (["fig-dqn", "--scale", "large"], "there are: smoke, minatar, minatar-full, paper"),
        (["fig-dqn", "--until", "-5"], "--until must not be negative, got -5"),
        (["fig-dqn", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["fig-dqn", "--tasks", "brekout"], "did you mean 'minatar/breakout'?"),
        (["fig-dqn", "--jobs", "0"], "--jobs must be at least 1, got 0"),
    ],
)
def test_mistakes_are_explained(command: Command, words: list[str], told: str) -> None:
    code, _, err = command(*words, "--folder", "/nonexistent")
    assert code == cli.WRONG
    assert told in err


def test_what_is_not_installed_is_said_before_anything_runs(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(envs, "missing", lambda suite: ("ale_py",) if suite == "atari" else ())
    words = ("fig-kde", "--scale", "paper", "--folder", tmp_path)
    code, _, err = command(*words)
    assert code == cli.WRONG
    assert "not installed: atari: pip install 'hadamard-rl[atari]'" in err
    assert not (tmp_path / "paper").exists()
    code, out, err = command(*words, "--dry-run")
    assert (code, err) == (0, "")
    assert "dqn: 1 arm x 1 task x 5 seeds = 5 runs of 10,000,000 steps" in out
    assert "5 runs, unknown (atari is not installed: pip install 'hadamard-rl[atari]')" in out
    assert "unknown for 5 of 5 runs" in out


def test_a_dry_run_measures_once_and_starts_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "SECONDS", 0.2)
    words = ("fig-kde", "fig-hidden-bias", "--folder", tmp_path, "--dry-run", "--jobs", "2")
    code, out, err = command(*words)
    assert code == 0
    assert err == "measuring dqn on minatar, tanh (1 of 1) ...\n"
    assert out.count("1 arm x 1 task x 2 seeds = 2 runs of 2,000 steps") == 2
    assert f"2 different runs in {tmp_path / 'smoke'}, 0 finished already" in out
    line = r"  dqn on minatar, tanh: 2 runs of \d+s \([\d,]+ steps/s\), .* memory, .* disk each"
    assert re.search(line, out)
    assert re.search(r"in all about .* one after another, .* with 2 at a time", out)
    assert not (tmp_path / "smoke").exists()
    assert command(*words) == (0, out, "")


def test_a_broken_measurement_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    job = paper.jobs("fig-kde", "smoke", "runs")[0]
    broken = Job("dqn", overridden(job.spec, {"algo.batch_size": 0}))
    told = reproduce.measure(broken)
    assert isinstance(told, str)
    assert "batch-size must be at least 1" in told
    monkeypatch.setattr(reproduce, "LIMIT", 0.01)
    assert reproduce.measure(job) == "nothing was measured within 0 s"


def test_an_estimate_counts_all_that_a_run_does() -> None:
    job = paper.jobs("fig-kde", "smoke", "runs")[0]
    measured = reproduce.Measured(
        steps_per_second=100,
        learning=0.005,
        start=2.0,
        diagnosis=0.1,
        evaluation=3.0,
        saving=0.2,
        memory=1_000,
        gpu_memory=0,
        frame=10,
        checkpoint=500,
        rows=2.0,
        diagnosis_rows=7,
        density_rows=30,
        load=1.0,
        when="today",
    )
    # 2,000 steps, 200 of them without learning; 10 diagnoses and checkpoints; one evaluation.
    assert measured.seconds(job.spec) == pytest.approx(2 + 20 - 1 + 10 * 0.1 + 10 * 0.2 + 3)
    assert measured.bytes_in_memory(job.spec) == 1_000 + 2_000 * 10
    assert measured.bytes_on_disk(job.spec) == 2 * 500 + 20_000 + 4_000 + 70 + 300


def test_an_experiment_runs_from_beginning_to_end(command: Command, tmp_path: Path) -> None:
    words = ("fig-kde", "--folder", tmp_path, "--jobs", "2")
    code, out, _ = command(*words)
    assert code == 0
    assert "2 finished" in out
    folder = tmp_path / "smoke" / "figures" / "fig-kde"
    assert out.splitlines()[-1] == f"wrote {folder / 'index.html'}"
    files = {path.name for path in folder.iterdir()}
    assert files >= {"index.html", "figure.svg", "figure.png", "figure.pdf", "numbers.csv"}
    page = (folder / "index.html").read_text()
    assert "after 200 steps, seed 0" in page
    assert "evenly spread over the layer" in page
    assert f"hadamard reproduce fig-kde --scale smoke --folder {tmp_path}" in page
    jobs = paper.jobs("fig-kde", "smoke", tmp_path)
    assert len(jobs) == 2
    for job in jobs:
        run = Run.open(job.path)
        assert run.done is not None
        assert run.done["steps"] >= job.spec.train.steps
        health = list(run.rows("health"))
        assert len(health) == 10
        assert {row["step"] for row in run.rows("kde")} >= {200, 2_000}
        assert all(row["layers"][-1]["dormant_fraction"] is not None for row in health)
        assert all(row["representation"] == row["layers"][-1]["name"] for row in health)
    # What is trained to its end is far enough for any other end.
    assert all(
        Job(job.algorithm, overridden(job.spec, {"train.until": 900})).finished for job in jobs
    )
    # They are runs of other experiments too.
    for name in ("fig-hidden-bias", "fig-dqn", "table-dormancy", "fig-width-lr"):
        runs = reproduce.plan(reproduce.Asked((name,), "smoke", tmp_path))
        assert [run.arm.label for run in runs if run.finished] == ["tanh", "tanh"]
    code, out, err = command(*words, "--dry-run")
    assert (code, err) == (0, "")
    assert "2 different runs" in out
    assert "2 finished already" in out
    assert "in all" not in out
    # A run of other settings under the same name is not taken for it.
    config = json.loads((jobs[0].path / "config.json").read_text())
    config["spec"]["net"]["width"] = 999
    (jobs[0].path / "config.json").write_text(json.dumps(config))
    code, _, err = command(*words, "--dry-run")
    assert code == cli.WRONG
    assert "holds a run with other settings" in err


def test_tasks_are_chosen_with_or_without_their_suite() -> None:
    for name in ("Space-Invaders", "minatar/space_invaders", "SPACE_INVADERS"):
        jobs = paper.jobs("fig-dqn", "minatar", "runs", seeds=1, tasks=[name])
        assert {job.spec.env for job in jobs} == {"minatar/space_invaders"}
        assert len(jobs) == 5
    assert paper.jobs("fig-simbav2", "minatar", "runs", tasks=["breakout"]) == []
    runs = reproduce.plan(
        reproduce.Asked(("all",), "paper", Path("runs"), 1, ("atari/Seaquest", "dog-run"))
    )
    assert {run.job.spec.env for run in runs} == {"atari/Seaquest", "dmc/dog-run"}
    assert Options().launcher == "local"


def test_a_share_at_the_papers_scale_takes_all_that_belongs_to_the_budget_along() -> None:
    for algorithm, name, counted in (
        ("dqn", "fig-kde", {"algo.epsilon_steps", "algo.learning_starts"}),
        ("pqn", "fig-pqn", set()),
        ("simbav2", "fig-simbav2", {"algo.learning_starts", "train.eval_every"}),
        ("mrq", "fig-mrq", {"algo.random_steps", "train.eval_every"}),
    ):
        (whole, *_) = paper.jobs(name, "paper", "runs", seeds=1)
        (part, *_) = paper.jobs(name, "paper", "runs", seeds=1, share=0.2)
        assert whole.algorithm == algorithm
        counted |= {f"train.{what}" for what in ("steps", "log_every", "health_every")}
        counted |= {"train.checkpoint_every"}
        before, after = (flattened(to_dict(job.spec)) for job in (whole, part))
        assert {field for field in before if before[field] != after[field]} == {
            *counted,
            "run_dir",
        }
        for field in counted:
            assert after[field] == before[field] // 5, field
    (least,) = paper.jobs("fig-kde", "paper", "runs", seeds=1, share=0.001)
    assert least.spec.train.health_every == least.spec.train.health_samples
    # What is off stays off.
    (job, *_) = paper.jobs("fig-ppo", "paper", "runs", seeds=1, share=0.1)
    assert job.spec.train.eval_every == 0


def test_runs_end_early_and_keep_their_names_and_schedules(command: Command) -> None:
    for until, told in ((None, 0), (0, 0), (2_000_000, 2_000_000), (10_000_000, 0)):
        jobs = paper.jobs("fig-dqn", "paper", "runs", seeds=1, until=until)
        assert {job.spec.train.until for job in jobs} == {told}
        whole = paper.jobs("fig-dqn", "paper", "runs", seeds=1)
        assert [overridden(job.spec, {"train.until": 0}) for job in jobs] == [
            job.spec for job in whole
        ]
    # Runs that are no longer than that are trained to their end.
    ends = {
        (run.job.algorithm, run.job.spec.train.horizon)
        for run in reproduce.plan(reproduce.Asked(("all",), "paper", seeds=1, until=1_000_000))
    }
    assert {("dqn", 1_000_000), ("simbav2", 500_000), ("mrq", 500_000)} <= ends
    assert ("mrq", 1_000_000) in ends  # of 2.5 million
    words = ("fig-kde", "--scale", "minatar", "--until", "100000", "--dry-run")
    assert "300,000 steps, until 100,000 for now" in command(*words)[1]


@every_scale
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_a_share_of_every_experiment_is_made_of_valid_runs(scale: str, share: float) -> None:
    # A plan checks all that a run would be refused for.
    runs = reproduce.plan(reproduce.Asked(("all",), scale, Path("nowhere"), seeds=1, share=share))
    assert {run.job.algorithm for run in runs} == {"dqn", "ppo", "pqn", "simbav2", "mrq"}
    for run in runs:
        assert run.job.spec.train.health_every > 0


def test_a_share_of_the_budget_shortens_what_is_counted_in_steps(command: Command) -> None:
    (whole,) = paper.jobs("fig-kde", "minatar", "runs", seeds=1)
    (part,) = paper.jobs("fig-kde", "minatar", "runs", seeds=1, share=0.4)
    counted = {"train.steps", "train.log_every", "train.health_every", "train.checkpoint_every"}
    counted |= {"algo.epsilon_steps", "algo.learning_starts"}
    before, after = (flattened(to_dict(job.spec)) for job in (whole, part))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {*counted, "run_dir"}
    for name in counted:
        assert after[name] == pytest.approx(0.4 * before[name])
    assert whole.path.name.replace("300k", "120k") == part.path.name
    # No run ends before it begins to learn, or has diagnoses on the same observations.
    (least, *_) = paper.jobs("fig-simbav2", "minatar", "runs", seeds=1, share=0.05)
    assert (least.spec.train.steps, least.spec.algo.learning_starts) == (1_000, 50)
    assert least.spec.train.health_every == least.spec.train.health_samples == 1_024
    (least, *_) = paper.jobs("fig-mrq", "minatar", "runs", seeds=1, share=0.05)
    assert least.spec.algo.random_steps == 50
    # What is too little even so is told as what was asked for.
    broken = Job("dqn", overridden(part.spec, {"train.health_every": 10}))
    with pytest.raises(ValueError, match="^--share 0.4 is too little for dqn_minatar.*: --train"):
        reproduce._check(broken, 0.4)
    with pytest.raises(ValueError, match="^--train.health-every 10 leaves no room"):
        reproduce._check(broken, 1.0)
    for share in ("0", "1.5"):
        code, _, err = command("fig-dqn", "--share", share)
        assert code == cli.WRONG
        assert f"--share must be above 0 and at most 1, got {share}" in err
