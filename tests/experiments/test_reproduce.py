"""`hadamard reproduce`: its runs, its error messages, and a complete experiment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hadamard import cli, envs
from hadamard.core.config import flattened, overridden, to_dict
from hadamard.core.run import Run
from hadamard.experiments import cost, paper, reproduce
from hadamard.experiments.grid import Job
from hadamard.experiments.paper import EXPERIMENTS, STUDIES

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["reproduce", *map(str, words)])
        return code, *capsys.readouterr()

    return run


def test_the_list_has_a_line_for_each_experiment(command: Command) -> None:
    code, out, _ = command("--list")
    assert code == 0
    experiments = {**EXPERIMENTS, **STUDIES}
    assert [line.split()[0] for line in out.splitlines()] == list(experiments)
    for line, experiment in zip(out.splitlines(), experiments.values(), strict=True):
        assert experiment.place in line
        assert experiment.shows in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig-dnq"], "unknown experiment 'fig-dnq'; did you mean 'fig-dqn'"),
        (["nonsense"], "There are: fig-improvements, fig-dqn, "),
        ([], "name the experiments to reproduce, or all. There are: fig-improvements, "),
        (["fig-dqn", "--scale", "large"], "there are: smoke, minatar, minatar-full, paper"),
        (["fig-dqn", "--until", "-5"], "--until must not be negative, got -5"),
        (["fig-dqn", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["fig-dqn", "--seeds", "1000000000"], "too many runs: 10,000 seeds are the most"),
        (["fig-dqn", "--draw", "--output", ""], "--output is empty: name a file or a folder"),
        (["fig-dqn", "--tasks", "brekout"], "did you mean 'breakout'?"),
        (["fig-dqn", "--jobs", "0"], "--jobs must be at least 1, got 0"),
    ],
)
def test_mistakes_are_explained(command: Command, words: list[str], message: str) -> None:
    code, _, err = command(*words, "--folder", "/nonexistent")
    assert code == cli.WRONG
    assert message in err


def test_missing_suites_are_reported_before_anything_runs(
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
    monkeypatch.setattr(cost, "MEASURED_SECONDS", 0.2)
    words = ("fig-kde", "fig-hidden-bias", "--folder", tmp_path, "--dry-run", "--jobs", "2")
    code, out, err = command(*words)
    assert code == 0
    assert err == "measuring dqn on minatar, tanh (1 of 1) ...\n"
    assert out.count("1 arm x 1 task x 2 seeds = 2 runs of 2,000 steps") == 2
    assert f"2 different runs in {tmp_path / 'smoke'}, 0 finished already" in out
    line = r"  dqn on minatar, tanh: 2 runs of [^(]+ \([\d,.]+ steps/s\), .* memory, .* disk each"
    assert re.search(line, out)
    assert re.search(r"in all about .* one after another, .* with 2 at a time", out)
    assert not (tmp_path / "smoke").exists()
    assert command(*words) == (0, out, "")


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
    # A run trained to its end counts as finished for any earlier end.
    assert all(
        Job(job.algorithm, overridden(job.spec, {"train.until": 900})).finished for job in jobs
    )
    # Other experiments use the same runs.
    for name in ("fig-hidden-bias", "fig-dqn", "table-dormancy", "fig-width-lr"):
        runs = reproduce.plan(reproduce.Request((name,), "smoke", tmp_path))
        assert [run.label for run in runs if run.finished] == ["tanh", "tanh"]
    code, out, err = command(*words, "--dry-run")
    assert (code, err) == (0, "")
    assert "2 different runs" in out
    assert "2 finished already" in out
    assert "in all" not in out
    # A run with other settings in the same folder is refused.
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
        reproduce.Request(("all",), "paper", Path("runs"), 1, ("atari/Seaquest", "dog-run"))
    )
    assert {run.job.spec.env for run in runs} == {"atari/Seaquest", "dmc/dog-run"}


def test_runs_end_early_and_keep_their_names_and_schedules(command: Command) -> None:
    for until, expected in ((None, 0), (0, 0), (2_000_000, 2_000_000), (10_000_000, 0)):
        jobs = paper.jobs("fig-dqn", "paper", "runs", seeds=1, until=until)
        assert {job.spec.train.until for job in jobs} == {expected}
        full = paper.jobs("fig-dqn", "paper", "runs", seeds=1)
        assert [overridden(job.spec, {"train.until": 0}) for job in jobs] == [
            job.spec for job in full
        ]
    # Shorter runs are trained to their end.
    ends = {
        (run.job.algorithm, run.job.spec.train.horizon)
        for run in reproduce.plan(reproduce.Request(("all",), "paper", seeds=1, until=1_000_000))
    }
    assert {("dqn", 1_000_000), ("simbav2", 500_000), ("mrq", 500_000)} <= ends
    assert ("mrq", 1_000_000) in ends  # of 2.5 million
    words = ("fig-kde", "--scale", "minatar", "--until", "100000", "--dry-run")
    assert "300,000 steps, until 100,000 for now" in command(*words)[1]


def test_a_share_of_the_budget_shortens_all_intervals(command: Command) -> None:
    (full,) = paper.jobs("fig-kde", "minatar", "runs", seeds=1)
    (part,) = paper.jobs("fig-kde", "minatar", "runs", seeds=1, share=0.4)
    counted = {"train.steps", "train.log_every", "train.health_every", "train.checkpoint_every"}
    counted |= {"algo.epsilon_steps", "algo.learning_starts"}
    before, after = (flattened(to_dict(job.spec)) for job in (full, part))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {*counted, "run_dir"}
    for name in counted:
        assert after[name] == pytest.approx(0.4 * before[name])
    assert full.path.name.replace("300k", "120k") == part.path.name
    # No run ends before it begins to learn, or has diagnoses on the same observations.
    (shortest, *_) = paper.jobs("fig-simbav2", "minatar", "runs", seeds=1, share=0.05)
    assert (shortest.spec.train.steps, shortest.spec.algo.learning_starts) == (1_000, 50)
    assert shortest.spec.train.health_every == shortest.spec.train.health_samples == 1_024
    (shortest, *_) = paper.jobs("fig-mrq", "minatar", "runs", seeds=1, share=0.05)
    assert shortest.spec.algo.random_steps == 50
    # A share that is still too small is named in the error.
    broken = Job("dqn", overridden(part.spec, {"train.health_every": 10}))
    with pytest.raises(ValueError, match="^--share 0.4 is too little for dqn_minatar.*: --train"):
        reproduce.check_settings(broken, 0.4)
    with pytest.raises(ValueError, match="^--train.health-every 10 is fewer steps"):
        reproduce.check_settings(broken, 1.0)
    for share in ("0", "1.5"):
        code, _, err = command("fig-dqn", "--share", share)
        assert code == cli.WRONG
        assert f"--share must be above 0 and at most 1, got {share}" in err
