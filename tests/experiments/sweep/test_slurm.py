"""Sweeps as Slurm job arrays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hadamard.cli import main
from hadamard.core.lock import holder
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, launch
from hadamard.experiments.sweep import slurm as slurm_sweep
from hadamard.experiments.sweep.options import SlurmOptions
from hadamard.experiments.sweep.slurm import Submissions
from hadamard.experiments.sweep.status import run_state
from hadamard.experiments.sweep.transfer import job_to_text
from tests.support.sweep import (
    LONG,
    current_step,
    newest_checkpoint,
    small_job,
    stacked_job,
    stream_contents,
    sweep_words,
    wait_until,
)

# Three scripts stand in for Slurm; sbatch runs the tasks of an array one after another.
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
        # The task waits for its pickled function, which is written when this script has ended.
        subprocess.Popen(["sh", "-c", command], env=environment,
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

    def install(sacct: str = "PENDING", run: bool = False) -> None:
        scripts = {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT}
        for name, text in scripts.items():
            values = {"python": sys.executable, "folder": str(tmp_path), "state": sacct}
            (folder / name).write_text(text.format(**values, wait=run))
            (folder / name).chmod(0o755)

    install()
    return install


def test_runs_are_submitted_once_as_a_job_array(
    tmp_path: Path, slurm: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [small_job(tmp_path / "runs", name) for name in ("one", "two")]
    resources = SlurmOptions(partition="long", minutes=90, cpus=2, gpus=1, memory_gb=1.5)
    options = Options(launcher="slurm", jobs=1, slurm=resources)
    summary = launch(jobs, options)
    assert (summary.exit_code, len(summary.queued)) == (0, 2)
    script = (tmp_path / "sbatch.sh").read_text()
    for line in (
        "--array=0-1%1",
        "--partition=long",
        "--time=90",
        "--cpus-per-task=2",
        "--gpus-per-node=1",
        "--mem=1536MB",
        f"--signal=USR2@{slurm_sweep.SAVING_SECONDS}",
    ):
        assert f"#SBATCH {line}\n" in script
    assert "submitted 2 runs as 77" in capsys.readouterr().out
    (tmp_path / "sbatch.sh").unlink()
    assert len(launch(jobs, options).queued) == 2
    assert "one: pending" in capsys.readouterr().out
    assert not (tmp_path / "sbatch.sh").exists()


def test_a_fleet_is_one_job_of_the_array(
    tmp_path: Path, slurm: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"device": "auto", "train__fleet": "auto"}
    jobs = [stacked_job(tmp_path / "runs", seed, **changes) for seed in range(5)]
    options = Options(launcher="slurm", slurm=SlurmOptions(gpus=1), fleet_size=3)
    assert len(launch(jobs, options).queued) == 5
    assert "#SBATCH --array=0-1%" in (tmp_path / "sbatch.sh").read_text()
    ids = Submissions(tmp_path / "runs" / ".slurm").job_ids
    assert [ids[str(job.path)] for job in jobs] == ["77_0", "77_0", "77_1", "77_1", "77_1"]
    assert len(launch(jobs, options).queued) == 5
    assert capsys.readouterr().out.count(": pending\n") == 5


def test_importing_submitit_leaves_logging_alone(tmp_path: Path) -> None:
    code = (
        "import logging, sys\n"
        "from hadamard.experiments.sweep import slurm\n"
        "handler = logging.FileHandler(sys.argv[1])\n"
        "logging.getLogger().addHandler(handler)\n"
        "slurm.import_submitit()\n"
        "assert handler.stream is not None, 'it was closed'\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "log")], check=True)


def test_an_error_of_slurm_is_reported(
    tmp_path: Path, slurm: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/sh\necho no such partition >&2; exit 1\n")
    words = sweep_words(tmp_path / "runs", "--launcher", "slurm")
    assert main(["sweep", *words]) == 1
    assert "Slurm did not take the runs: no such partition" in capsys.readouterr().err


def test_slurm_tasks_train_the_runs(
    tmp_path: Path, slurm: Callable[..., None], undisturbed: Job
) -> None:
    slurm("RUNNING", run=True)
    folder = tmp_path / "runs"
    jobs = [small_job(folder, "one"), small_job(folder, "two", env="probe/no-such-task")]
    options = Options(launcher="slurm")
    assert len(launch(jobs, options).queued) == 2
    wait_until(lambda: run_state(jobs[0]) == "finished" and run_state(jobs[1]) == "failed")
    assert stream_contents(jobs[0].path) == stream_contents(undisturbed.path)
    slurm("FAILED")
    (tmp_path / "sbatch.sh").unlink()
    summary = launch(jobs, options)
    assert (summary.exit_code, [job.name for job in summary.finished]) == (1, ["one"])
    assert "no-such-task" in str(summary)
    assert not (tmp_path / "sbatch.sh").exists()
    # Without its .failed file it is submitted again, as a single job.
    jobs[1].failure.unlink()
    assert [job.name for job in launch(jobs, options).queued] == ["two"]
    assert "--array" not in (tmp_path / "sbatch.sh").read_text()


def test_a_slurm_job_near_its_time_limit_saves_and_continues(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    job = small_job(tmp_path, train__steps=LONG)
    task = slurm_sweep.SlurmTask([job_to_text(job)], {"OMP_NUM_THREADS": "1"}, 2)
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(task()))
    thread.start()
    wait_until(lambda: current_step(job) >= 100)
    pid = holder(job.path)
    assert pid
    os.kill(pid, signal.SIGUSR2)  # Slurm's warning may reach the run as well
    following = task.checkpoint()
    thread.join()
    ((state, *_),) = ended[0]
    assert state == "interrupted"
    assert run_state(job) == "interrupted"
    assert newest_checkpoint(job) >= current_step(job) >= 100
    assert (following.function.job_texts, following.function.supervisor) == (task.job_texts, None)


def test_missing_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm: Callable[..., None]
) -> None:
    for launcher, module in (("ray", "ray"), ("slurm", "submitit")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=r"pip install 'hadamard-rl\[sweep\]'"):
            launch([small_job(tmp_path)], Options(launcher=launcher))  # type: ignore[arg-type]
