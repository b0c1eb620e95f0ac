"""Sweeps: what is finished stays, what was killed goes on, what fails is told; real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hadamard.cli import main
from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.experiments import ray_sweep, slurm_sweep, sweep
from hadamard.experiments.grid import Job, grid, seeds_from
from hadamard.experiments.single import Supervisor, command, dumps, holder, loads
from hadamard.experiments.sweep import Options, Queue, Slurm, launch, state
from hadamard.train import default_spec

STREAMS = ("episodes", "train", "eval", "health", "kde")
STEPS = 2_000
# In the order of the streams' rows: a row every 50 steps, a checkpoint every 110.
SMALL = {
    "device": "cpu",
    "net.width": 16,
    "train.steps": STEPS,
    "train.log_every": 50,
    "train.health_every": 0,
    "train.checkpoint_every": 110,
    "train.tensorboard": False,
    "train.threads": 1,
    "algo.learning_starts": 100,
    "algo.batch_size": 8,
    "algo.replay_capacity": 150,
}
LONG = 2_000_000
FLAGS = [
    word
    for name, value in SMALL.items()
    if name != "train.tensorboard"
    for word in (f"--{name.replace('_', '-')}", str(value))
] + ["--train.no-tensorboard"]


def job(folder: Path, name: str = "run", **changes: Any) -> Job:
    settings = {name.replace("__", "."): value for name, value in changes.items()}
    spec = overridden(default_spec("dqn", "probe/both"), {**SMALL, **settings})
    return Job("dqn", replace(spec, run_dir=str(folder / name)))


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def step(made: Job) -> int:
    return sweep.facts(made.path).step


def saved(made: Job) -> bool:
    return any(made.path.glob("checkpoints/step-*"))


def rows(path: Path) -> dict[str, str]:
    found = {s: path / f"{s}.jsonl" for s in STREAMS}
    return {s: file.read_text() for s, file in found.items() if file.exists()}


def newest(made: Job) -> int:
    return int(max(made.path.glob("checkpoints/step-*")).name.removeprefix("step-"))


def clock(made: Job, upto: int) -> list[dict[str, Any]]:
    """When the rows up to a step were written: a run that started over has other times."""
    return [row for row in Run(made.path).rows("timing") if row["step"] <= upto]


def attempts(made: Job) -> int:
    return made.log.read_text().count("=== attempt")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A run that nothing happened to."""
    made = job(tmp_path_factory.mktemp("whole"))
    assert launch([made], Options(jobs=1)).code == 0
    return made


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Sweeps in processes of their own; what a test leaves running is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str | Path, **environment: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "hadamard.cli", "sweep", *map(str, words)],
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    for lock in tmp_path.rglob("lock"):
        if pid := holder(lock.parent):
            os.kill(pid, signal.SIGKILL)


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    made = grid("dqn", ["probe/both", "minatar/asterix"], ["relu", "tanh+hr"], [3, 4], tmp_path)
    assert [item.name for item in made[:3]] == [
        "dqn_probe-both_relu_seed3",
        "dqn_probe-both_tanh+hr_seed3",
        "dqn_probe-both_relu_seed4",
    ]
    assert len({item.path for item in made}) == len(made) == 8
    assert (made[1].spec.net.layer, made[1].spec.net.activation) == ("hadamard", "tanh")
    # An environment's own defaults stay.
    assert made[0].spec.net.width == 64
    assert made[4].spec.net.width == 128


@pytest.mark.parametrize(
    ("envs", "variants", "seeds", "overrides", "message"),
    [
        (["probe/both", "probe/both"], ["relu"], [0], {}, "environment probe/both is there twice"),
        (["probe/both"], ["relu", "relu"], [0], {}, "variant relu is there twice"),
        (["probe/both"], ["relu"], [1, 1], {}, "seed 1 is there twice"),
        (["probe/both"], [], [1], {}, "at least one variant"),
        (["probe/both"], ["rely"], [1], {}, "unknown variant 'rely'; did you mean 'relu'"),
        (["probe/both"], ["relu"], [1], {"net.layer": "crelu"}, "net.layer is what the variant"),
        (["probe/both"], ["relu"], [1], {"train.steps": 0}, "--train.steps must be at least 1"),
    ],
)
def test_a_wrong_grid_is_refused(
    envs: list[str], variants: list[str], seeds: list[int], overrides: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        grid("dqn", envs, variants, seeds, "runs", overrides)


@pytest.mark.parametrize("text", ["0", "", "x", "7-3", "1,,2", "-3"])
def test_wrong_seeds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds must be"):
        seeds_from(text)


def test_a_job_travels_as_text(tmp_path: Path) -> None:
    made = job(tmp_path, algo__learning_rate=0.1, redo__enabled=True)
    there = loads(dumps(made))
    assert dumps(there) == dumps(made)
    assert there.path == made.path
    assert there.spec.redo.enabled
    assert there.spec.algo["learning_rate"] == 0.1
    with pytest.raises(ValueError, match="has no run_dir"):
        Job("dqn", default_spec("dqn"))


def test_whoever_watches_a_run_has_no_need_of_torch() -> None:
    modules = "grid, single, sweep, ray_sweep, slurm_sweep"
    script = (
        f"import sys; from hadamard.experiments import {modules}; print('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.stdout == "False\n", told.stderr


def test_all_states_are_read_from_the_folder(tmp_path: Path, whole: Job) -> None:
    assert state(whole) == "finished"
    made = job(tmp_path, train__steps=LONG)
    assert state(made) == "absent"
    process = subprocess.Popen(command(made), stdout=subprocess.DEVNULL)
    until(lambda: step(made) > 0)
    assert state(made) == "running"
    assert holder(made.path) == process.pid
    process.terminate()
    assert process.wait(120) == 75
    assert state(made) == "interrupted"
    made.failure.write_text("{}")
    assert state(made) == "failed"


def test_a_run_that_ended_early_is_carried_on_by_a_job_with_a_later_end(
    tmp_path: Path, whole: Job
) -> None:
    early, later, full = (job(tmp_path, train__until=end) for end in (500, 1_200, 0))
    assert launch([early], Options(jobs=1)).finished == (early,)
    assert [state(made) for made in (early, later, full)] == ["finished", *["interrupted"] * 2]
    assert launch([later], Options(jobs=1)).finished == (later,)
    done = Run(later.path).done
    assert done is not None
    assert done["steps"] == 1_200
    assert state(early) == "finished"
    assert launch([full], Options(jobs=1)).finished == (full,)
    assert rows(full.path) == rows(whole.path)


def test_a_run_that_is_beyond_its_new_end_is_closed_there(tmp_path: Path) -> None:
    made = job(tmp_path, train__steps=LONG)
    process = subprocess.Popen(command(made), stdout=subprocess.DEVNULL)
    until(lambda: step(made) > 300)
    process.terminate()
    assert process.wait(120) == 75
    reached = newest(made)
    early = job(tmp_path, train__steps=LONG, train__until=200)
    assert launch([early], Options(jobs=1)).finished == (early,)
    done = Run(early.path).done
    assert done is not None
    assert done["steps"] == reached > 300


def test_runs_of_another_protocol_are_refused(tmp_path: Path) -> None:
    made = job(tmp_path, train__until=150)
    assert launch([made], Options(jobs=1)).code == 0
    config = Run(made.path).config
    del config["protocol"]
    (made.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RuntimeError, match="holds a run of protocol 1, and this version trains"):
        launch([made])


def test_finished_runs_are_skipped_and_others_refused(
    whole: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.path.rglob("*")}
    assert launch([whole], Options(jobs=1)).finished == (whole,)
    assert {path: path.stat().st_mtime_ns for path in whole.path.rglob("*")} == before
    assert "1 runs, 1 of them finished before" in capsys.readouterr().out
    longer = Job("dqn", overridden(whole.spec, {"train.steps": 2 * STEPS}))
    with pytest.raises(RuntimeError, match="train.steps: 2000 there, 4000 asked for"):
        launch([longer])
    with pytest.raises(ValueError, match="2 jobs would write to one run folder"):
        launch([whole, whole])


def test_a_failing_run_is_tried_again_and_told_and_stops_nobody(
    tmp_path: Path, whole: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    # The learning rate is within bounds, and the loss soon is not.
    bad = job(tmp_path, "bad", algo__learning_rate=1e30, train__log_every=10)
    wrong = job(tmp_path, "wrong", env="probe/no-such-task")
    good = job(tmp_path, "good")
    summary = launch([bad, wrong, good], Options(jobs=2))
    assert (summary.code, summary.finished) == (1, (good,))
    told = {outcome.job.name: outcome for outcome in summary.failed}
    assert told["bad"].attempts == attempts(bad) == 3
    assert "dqn diverged" in told["bad"].tail
    # What is wrong before the run begins does not mend itself.
    assert told["wrong"].attempts == attempts(wrong) == 1
    assert "no-such-task" in told["wrong"].tail
    assert state(bad) == state(wrong) == "failed"
    assert json.loads(bad.failure.read_text())["attempts"] == 3
    assert "bad failed after 3 attempts" in str(summary)
    assert "dqn diverged" in str(summary)
    assert "1 finished, 2 failed; the same command goes on" in str(summary)
    assert "bad: running (attempt 3)" in capsys.readouterr().out
    assert rows(good.path) == rows(whole.path)


def test_a_run_killed_half_way_is_gone_on_with(tmp_path: Path, whole: Job) -> None:
    made = job(tmp_path)
    killed: list[int] = []
    kept: list[dict[str, Any]] = []

    def kill() -> None:
        until(lambda: saved(made) and step(made) >= 400)
        pid = holder(made.path)
        assert pid
        os.kill(pid, signal.SIGKILL)
        killed.append(newest(made))
        kept.extend(clock(made, newest(made)))

    killer = threading.Thread(target=kill)
    killer.start()
    summary = launch([made], Options(jobs=1))
    killer.join()
    assert killed
    assert killed[0] < STEPS
    assert summary.finished == (made,)
    assert attempts(made) == 2
    assert kept
    assert clock(made, killed[0]) == kept
    assert rows(made.path) == rows(whole.path)


def test_a_run_that_somebody_else_stops_is_gone_on_with(tmp_path: Path, whole: Job) -> None:
    made = job(tmp_path)
    stopped: list[int] = []

    def stop() -> None:
        until(lambda: step(made) >= 400)
        pid = holder(made.path)
        assert pid
        os.kill(pid, signal.SIGTERM)
        stopped.append(pid)

    other = threading.Thread(target=stop)
    other.start()
    outcome = Supervisor(made, retries=0).run()
    other.join()
    assert stopped
    assert (outcome.state, outcome.attempts) == ("finished", 1)
    assert "stopped and saved" in made.log.read_text()
    assert rows(made.path) == rows(whole.path)


SWALLOWING = """
import builtins, sys, time
from hadamard.experiments import single

found = builtins.__import__

def swallows(name, *arguments, **options):
    builtins.__import__ = found
    try:
        print("imports", flush=True)
        time.sleep(60)
    except BaseException as stopped:
        print("swallowed", repr(stopped), flush=True)
    return found(name, *arguments, **options)

builtins.__import__ = swallows
sys.exit(single.main(sys.argv[1:]))
"""


def test_a_stop_that_is_swallowed_by_an_import_is_said_again(tmp_path: Path) -> None:
    made = job(tmp_path, train__steps=LONG)
    words = [sys.executable, "-c", SWALLOWING, str(made.path), dumps(made)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "imports\n"
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=60)
    assert "swallowed _Stopped()" in told
    assert process.returncode == 75


def test_a_run_begun_twice_is_made_once(tmp_path: Path, whole: Job) -> None:
    made = job(tmp_path)
    outcomes = []
    twice = [
        threading.Thread(target=lambda: outcomes.append(Supervisor(made, retries=0).run()))
        for _ in range(2)
    ]
    for thread in twice:
        thread.start()
    for thread in twice:
        thread.join()
    assert [outcome.state for outcome in outcomes] == ["finished", "finished"]
    assert rows(made.path) == rows(whole.path)


def sweep_words(folder: Path, *more: str, steps: int = LONG) -> list[str]:
    grid_words = ["dqn", "--envs", "probe/both", "--variants", "relu,tanh", "--seeds", "1"]
    flags = [*FLAGS, "--train.steps", str(steps)]
    return [*grid_words, "--folder", str(folder), *more, "--", *flags]


def runs_in(folder: Path) -> list[Job]:
    names = ("dqn_probe-both_relu_seed0", "dqn_probe-both_tanh_seed0")
    return [job(folder, name) for name in names]


def test_ctrl_c_saves_all_and_the_same_command_goes_on(
    tmp_path: Path, driver: Callable[..., subprocess.Popen[str]]
) -> None:
    first, second = runs_in(tmp_path)
    sweeping = driver(*sweep_words(tmp_path, "--jobs", "1"))
    until(lambda: step(first) >= 200)
    sweeping.send_signal(signal.SIGINT)
    told, _ = sweeping.communicate(timeout=120)
    assert sweeping.returncode == 75, told
    assert "1 stopped and saved, 1 not begun; the same command goes on" in told
    assert (state(first), state(second)) == ("interrupted", "absent")
    # Nothing is lost: the checkpoint is of the last step.
    stopped = newest(first)
    assert stopped >= step(first) >= 200
    kept = clock(first, stopped)
    again = driver(*sweep_words(tmp_path, "--jobs", "1"))
    until(lambda: step(first) > stopped)
    again.terminate()
    assert again.wait(120) == 75
    assert clock(first, stopped) == kept


def test_a_killed_driver_loses_nothing(
    tmp_path: Path, driver: Callable[..., subprocess.Popen[str]]
) -> None:
    made = runs_in(tmp_path)
    words = sweep_words(tmp_path, "--jobs", "2")
    sweeping = driver(*words)
    until(lambda: all(step(run) >= 100 for run in made))
    sweeping.kill()
    sweeping.wait()
    orphans = [holder(run.path) for run in made]
    reached = [step(run) for run in made]
    assert all(orphans)
    # The runs go on by themselves, and the next driver waits for them instead of starting others.
    again = driver(*words)
    until(lambda: all("waiting for process" in run.log.read_text() for run in made))
    until(lambda: all(step(run) > at for run, at in zip(made, reached, strict=True)))
    assert [holder(run.path) for run in made] == orphans
    # One of them is killed: the driver takes over.
    os.kill(orphans[0] or 0, signal.SIGKILL)
    until(lambda: holder(made[0].path) not in (None, 0, orphans[0]))
    # A stop reaches those too that the first driver began.
    again.send_signal(signal.SIGINT)
    told, _ = again.communicate(timeout=120)
    assert again.returncode == 75, told
    assert [state(run) for run in made] == ["interrupted"] * 2
    assert not any(is_alive(pid) for pid in orphans if pid)
    for run in made:
        steps = [row["step"] for row in Run(run.path).rows("train")]
        assert steps == list(range(50, 50 * len(steps) + 1, 50))


def test_stopping_one_driver_leaves_the_runs_of_another_alone(
    tmp_path: Path, driver: Callable[..., subprocess.Popen[str]]
) -> None:
    made = runs_in(tmp_path)
    words = sweep_words(tmp_path, "--jobs", "2", steps=STEPS)
    first = driver(*words)
    held: dict[str, int] = {}

    def all_held() -> bool:
        """Hold the runs as they begin: none is over before the second driver waits for it."""
        for run in made:
            begun = (run.path / "config.json").exists()
            if begun and run.name not in held and (pid := holder(run.path)):
                os.kill(pid, signal.SIGSTOP)
                held[run.name] = pid
        return len(held) == len(made)

    until(all_held)
    second = driver(*words)
    until(lambda: all("waiting for process" in run.log.read_text() for run in made))
    second.terminate()
    told, _ = second.communicate(timeout=120)
    assert second.returncode == 75, told
    assert {run.name: holder(run.path) for run in made} == held
    for pid in held.values():
        os.kill(pid, signal.SIGCONT)
    told, _ = first.communicate(timeout=120)
    assert first.returncode == 0, told
    assert told.endswith("2 finished\n")
    assert [state(run) for run in made] == ["finished"] * 2
    for run in made:
        assert "stopped and saved" not in run.log.read_text()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *sweep_words(tmp_path, "--dry-run", steps=300)]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[0] == f"absent      {tmp_path / 'dqn_probe-both_relu_seed0'}"
    assert "2 runs of 300 steps" in told
    assert not list(tmp_path.iterdir())
    words.remove("--dry-run")
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("2 finished\n")
    config = Run(runs_in(tmp_path)[1].path).config["spec"]
    assert (config["net"]["activation"], config["train"]["steps"]) == ("tanh", 300)


def test_a_dry_run_refuses_what_the_sweep_would(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", *sweep_words(tmp_path, "--jobs", "2", steps=300)]
    assert main(words) == 0
    dry = ["sweep", *sweep_words(tmp_path, "--dry-run", steps=300)]
    capsys.readouterr()
    assert main(dry) == 0
    assert capsys.readouterr().out.count("finished ") == 2
    # Finished, but with other settings than are asked for now.
    assert main(["sweep", *sweep_words(tmp_path, "--dry-run", steps=400)]) == 2
    assert "train.steps: 300 there, 400 asked for" in capsys.readouterr().err
    config = runs_in(tmp_path)[0].path / "config.json"
    config.write_text(config.read_text()[:100])
    for refused in (dry, words):
        assert main(refused) == 2
        told = capsys.readouterr().err
        assert f"{config} is damaged (" in told
        assert f"restore the file, or remove the folder {config.parent} to run it anew" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "--seed", "3"], "--seed is what the sweep sets"),
        (["--", "--net.activation=elu"], "--net.activation is what the variant"),
        (["--variants", "relu,hrr"], "unknown variant 'hrr'"),
        (["--envs", "probe/bth"], "did you mean 'both'"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--retries", "-1"], "--retries must not be negative"),
        (["--address", "here:1"], "say --launcher ray too"),
        (["--launcher", "ray", "--address", "nowhere"], "--address must be host:port"),
        (["--launcher", "slurm"], "there is no Slurm here"),
    ],
)
def test_a_wrong_sweep_is_told_before_any_run(
    words: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    more = [] if "--envs" in words else ["--envs", "probe/both"]
    # A dry run asks no cluster; it refuses all the rest alike.
    for dry in ([],) if "--launcher" in words else ([], ["--dry-run"]):
        assert main(["sweep", "dqn", "--folder", str(tmp_path / "runs"), *more, *dry, *words]) == 2
        assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))


def test_the_places_of_a_queue(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sweep, "gpus", lambda: ["3", "5"])
    monkeypatch.setattr(sweep, "cores", lambda: 6)

    def visible(made: Job, **options: Any) -> list[str | None]:
        return [
            place.get("CUDA_VISIBLE_DEVICES") for place in sweep.slots([made], Options(**options))
        ]

    assert visible(job(tmp_path, device="auto")) == ["3", "5"]
    assert visible(job(tmp_path, device="cuda"), per_gpu=2) == ["3", "5", "3", "5"]
    assert visible(job(tmp_path, device="auto"), jobs=3) == ["3", "5", "3"]
    assert visible(job(tmp_path, device="cuda:1"), jobs=1) == [None]
    assert visible(job(tmp_path, device="cpu"), threads=2) == ["", "", ""]
    monkeypatch.setattr(sweep, "gpus", list)
    assert visible(job(tmp_path, device="auto")) == [None] * 6
    assert sweep.slots([job(tmp_path)], Options(threads=2))[0]["OMP_NUM_THREADS"] == "2"


def test_the_table_shows_what_the_folders_say(whole: Job, tmp_path: Path) -> None:
    others = [job(tmp_path, f"other{i}") for i in range(30)]
    queue = Queue([whole, *others], [{}])
    console = Console(width=100, height=20, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(sweep.table(queue, time.monotonic(), console.height))
    console.file.close()
    lines = console.export_text().splitlines()
    assert len(lines) < 20
    assert "1 finished · 30 waiting" in lines[0]
    finished = next(line for line in lines if "finished" in line and "run" in line)
    score = (Run(whole.path).done or {})["score"]
    assert "2,000" in finished
    assert f"{score:.1f}" in finished
    assert any("and 18 more waiting" in line for line in lines)


# Slurm is played by three scripts: sbatch runs the array it is given, one task after another.
SBATCH = """#!{python}
import os, re, subprocess, sys
text = open(sys.argv[1]).read()
array = re.search(r"--array=0-(\\d+)", text)
log = open({folder!r} + "/sbatch.sh", "w"); log.write(text); log.close()
command = next(line for line in text.splitlines() if line.startswith("srun"))
for task in range(int(array[1]) + 1 if array else 0):
    names = {{"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_JOB_ID": "77"}}
    environment = {{**os.environ, **names, "SUBMITIT_EXECUTOR": "slurm", "SLURM_PROCID": "0"}}
    if {wait}:
        subprocess.Popen(["sh", "-c", "sleep 0.5; " + command], env=environment,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("Submitted batch job 77")
"""
SRUN = """#!/bin/sh
while [ "$1" != "{python}" ]; do shift; done
exec "$@"
"""
SACCT = """#!/bin/sh
echo 'JobID|State|NodeList'
for i in 0 1; do echo "77_$i|{state}|here"; done
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    pytest.importorskip("submitit")
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def play(sacct: str = "PENDING", run: bool = False) -> None:
        scripts = {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT}
        for name, text in scripts.items():
            values = {"python": sys.executable, "folder": str(tmp_path), "state": sacct}
            (folder / name).write_text(text.format(**values, wait=run))
            (folder / name).chmod(0o755)

    play()
    return play


def test_slurm_gets_a_job_array_and_is_not_asked_twice(
    tmp_path: Path, slurm: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    made = [job(tmp_path / "runs", name) for name in ("one", "two")]
    asked = Slurm(partition="long", minutes=90, cpus=2, gpus=1, memory_gb=1.5)
    options = Options(launcher="slurm", jobs=1, slurm=asked)
    summary = launch(made, options)
    assert (summary.code, len(summary.pending)) == (0, 2)
    script = (tmp_path / "sbatch.sh").read_text()
    for line in (
        "--array=0-1%1",
        "--partition=long",
        "--time=90",
        "--cpus-per-task=2",
        "--gpus-per-node=1",
        "--mem=1536MB",
        f"--signal=USR2@{slurm_sweep.SAVING}",
    ):
        assert f"#SBATCH {line}\n" in script
    assert "submitted 2 runs as 77" in capsys.readouterr().out
    (tmp_path / "sbatch.sh").unlink()
    assert len(launch(made, options).pending) == 2
    assert "one: pending" in capsys.readouterr().out
    assert not (tmp_path / "sbatch.sh").exists()


def test_slurm_leaves_the_logging_of_others_alone(tmp_path: Path) -> None:
    code = (
        "import logging, sys\n"
        "from hadamard.experiments import slurm_sweep\n"
        "handler = logging.FileHandler(sys.argv[1])\n"
        "logging.getLogger().addHandler(handler)\n"
        "slurm_sweep._submitit()\n"
        "assert handler.stream is not None, 'it was closed'\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "log")], check=True)


def test_slurm_refusing_is_told(
    tmp_path: Path, slurm: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho no such partition >&2; exit 1\n")
    words = sweep_words(tmp_path / "runs", "--launcher", "slurm")
    assert main(["sweep", *words]) == 1
    assert "Slurm did not take the runs: no such partition" in capsys.readouterr().err


def test_slurm_tasks_make_the_runs(tmp_path: Path, slurm: Callable[..., None], whole: Job) -> None:
    slurm("RUNNING", run=True)
    made = [job(tmp_path / "runs", "one"), job(tmp_path / "runs", "two", env="probe/no-such-task")]
    options = Options(launcher="slurm")
    assert len(launch(made, options).pending) == 2
    until(lambda: state(made[0]) == "finished" and state(made[1]) == "failed")
    assert rows(made[0].path) == rows(whole.path)
    slurm("FAILED")
    (tmp_path / "sbatch.sh").unlink()
    summary = launch(made, options)
    assert (summary.code, [run.name for run in summary.finished]) == (1, ["one"])
    assert "no-such-task" in str(summary)
    assert not (tmp_path / "sbatch.sh").exists()
    # Without the note it is submitted again, a single job.
    made[1].failure.unlink()
    assert [run.name for run in launch(made, options).pending] == ["two"]
    assert "--array" not in (tmp_path / "sbatch.sh").read_text()


def test_a_slurm_job_near_its_limit_saves_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    made = job(tmp_path, train__steps=LONG)
    task = slurm_sweep.Task(dumps(made), {"OMP_NUM_THREADS": "1"}, 2)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(task()))
    thread.start()
    until(lambda: step(made) >= 100)
    pid = holder(made.path)
    assert pid
    os.kill(pid, signal.SIGUSR2)  # Slurm's warning may reach the run as well
    following = task.checkpoint()
    thread.join()
    assert ended[0][0] == "interrupted"
    assert state(made) == "interrupted"
    assert newest(made) >= step(made) >= 100
    assert (following.function.text, following.function.supervisor) == (task.text, None)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray cluster of two nodes with a core each; returns its address."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 * 1024**2}
    made = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        made.add_node(**size)
        yield str(made.address)
    finally:
        made.shutdown()


def test_ray_makes_the_runs_though_workers_are_killed(
    cluster: str, tmp_path: Path, whole: Job, driver: Callable[..., subprocess.Popen[str]]
) -> None:
    made = runs_in(tmp_path)
    more = ["--launcher", "ray", "--address", cluster]
    sweeping = driver(*sweep_words(tmp_path, *more, steps=STEPS))
    pids: dict[str, tuple[int, int]] = {}
    for run in made:
        until(lambda run=run: saved(run) and step(run) >= 300)  # type: ignore[misc]
        child = holder(run.path)
        assert child
        pids[run.name] = (child, parent(child))
        os.kill(parent(child), signal.SIGKILL)
        if run is made[0]:  # as if the machine were gone: nothing of it survives
            os.kill(child, signal.SIGKILL)
            at, kept = newest(run), clock(run, newest(run))
            assert 0 < at < STEPS
    told, _ = sweeping.communicate(timeout=180)
    assert sweeping.returncode == 0, told
    assert told.endswith("2 finished\n")
    assert attempts(made[0]) == 2
    assert clock(made[0], at) == kept
    assert not any(is_alive(pid) for pair in pids.values() for pid in pair)
    assert rows(made[0].path) == rows(whole.path)
    steps = [row["step"] for row in Run(made[1].path).rows("train")]
    assert steps == list(range(50, STEPS + 1, 50))


def test_a_killed_ray_driver_loses_nothing_and_ctrl_c_saves(
    cluster: str, tmp_path: Path, driver: Callable[..., subprocess.Popen[str]]
) -> None:
    made = runs_in(tmp_path)
    words = sweep_words(tmp_path, "--launcher", "ray", "--address", cluster)
    sweeping = driver(*words)
    until(lambda: all(saved(run) and step(run) >= 100 for run in made))
    sweeping.kill()
    sweeping.wait()
    again = driver(*words)
    until(lambda: all(run.log.read_text().count("=== attempt") == 2 for run in made))
    # Only now: Ray may have killed a run's first process after some steps that were not saved.
    reached = [step(run) for run in made]
    until(lambda: all(step(run) > at for run, at in zip(made, reached, strict=True)))
    again.send_signal(signal.SIGINT)
    told, _ = again.communicate(timeout=120)
    assert again.returncode == 75, told
    assert "2 stopped and saved; the same command goes on" in told
    assert [state(run) for run in made] == ["interrupted"] * 2
    for run in made:
        steps = [row["step"] for row in Run(run.path).rows("train")]
        assert steps == list(range(50, 50 * len(steps) + 1, 50))
        assert newest(run) >= steps[-1]


def test_a_cluster_that_does_not_answer_is_told_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = Options(launcher="ray", address=address, timeout=3)
        began = time.monotonic()
        with pytest.raises(ray_sweep.ClusterError, match="no Ray cluster at .*ray start --head"):
            launch([job(tmp_path)], options)
        words = sweep_words(tmp_path, "--launcher", "ray", "--address", address)
        assert main(["sweep", *words]) == 1
        assert f"hadamard: no Ray cluster at {address}" in capsys.readouterr().err
        silent.listen()
        with pytest.raises(ray_sweep.ClusterError, match="within 3 s: is the head node up"):
            launch([job(tmp_path)], options)
    assert time.monotonic() - began < 60
    assert not list(tmp_path.iterdir())


def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: Callable[..., None]
) -> None:
    for launcher, module in (("ray", "ray"), ("slurm", "submitit")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r"pip install 'hadamard-rl\[sweep\]'"):
            launch([job(tmp_path)], Options(launcher=launcher))  # type: ignore[arg-type]
