"""A run's state and progress, read from its files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from hadamard.core.lock import holder
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.status import Progress, run_progress, run_state
from hadamard.experiments.sweep.supervisor import command
from tests.support.sweep import LONG, current_step, small_job, wait_until


def test_the_state_of_a_run_is_read_from_its_folder(tmp_path: Path, undisturbed: Job) -> None:
    assert run_state(undisturbed) == "finished"
    job = small_job(tmp_path, train__steps=LONG)
    assert run_state(job) == "absent"
    process = subprocess.Popen(command([job]), stdout=subprocess.DEVNULL)
    wait_until(lambda: current_step(job) > 0)
    assert run_state(job) == "running"
    assert holder(job.path) == process.pid
    process.terminate()
    assert process.wait(600) == INTERRUPTED
    assert run_state(job) == "interrupted"
    job.failure.write_text("{}")
    assert run_state(job) == "failed"


def test_progress_is_read_from_the_last_rows(tmp_path: Path) -> None:
    assert run_progress(tmp_path) == Progress()
    layers = [
        {"name": name, "dormant_fraction": dormant, "effective_rank": 40, "full_rank": 64}
        for name, dormant in (("first", 0.5), ("last", 0.25))
    ]
    streams = {
        "train": [{"step": 100, "score": 1.0}, {"step": 200, "score": 2.5}],
        "timing": [{"step": 100, "seconds": 4.0}, {"step": 200, "seconds": 6.0}],
        "health": [{"step": 100, "representation": "last", "layers": layers}],
    }
    for name, rows in streams.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines + '{"step": 30')
    progress = run_progress(tmp_path)
    assert progress == Progress(200, rate=50, score=2.5, dormant=0.25, rank=40, full_rank=64)
    assert progress.seconds_left(1_200) == 20
    assert Progress(200).seconds_left(1_200) is None


def test_damaged_values_are_unknown(tmp_path: Path) -> None:
    rows = {
        "train": '{"step": "many", "score": [1]}',
        "timing": '{"step": 3, "seconds": Infinity}',
        "health": '{"representation": "z", "layers": [{"name": "z", "dormant_fraction": {}}]}',
    }
    for name, line in rows.items():
        (tmp_path / f"{name}.jsonl").write_text(line + "\n")
    assert run_progress(tmp_path) == Progress()
    (tmp_path / "health.jsonl").write_text('{"layers": 7}\n[]\nnull\n')
    assert run_progress(tmp_path) == Progress()


def test_watching_runs_does_not_import_torch() -> None:
    script = (
        "import sys; from hadamard.experiments.sweep import launch, queue, ray, slurm, view; "
        "print('torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert process.stdout == "False\n", process.stderr
