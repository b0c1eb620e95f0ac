"""Sweeps on a Ray cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hadamard.cli import main
from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, launch, ray
from hadamard.experiments.sweep.status import run_state, training_process
from tests.support.sweep import (
    STEPS,
    attempts,
    current_step,
    has_checkpoint,
    is_alive,
    jobs_in,
    newest_checkpoint,
    small_job,
    stream_contents,
    sweep_words,
    timing_rows,
    wait_until,
)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A Ray cluster of two nodes with a core each; returns its address."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        cluster.add_node(**size)
        yield str(cluster.address)
    finally:
        cluster.shutdown()


def test_ray_finishes_the_runs_although_workers_are_killed(
    cluster: str,
    tmp_path: Path,
    undisturbed: Job,
    start_sweep: Callable[..., subprocess.Popen[str]],
) -> None:
    jobs = jobs_in(tmp_path)
    options = ["--launcher", "ray", "--address", cluster]
    sweep = start_sweep(*sweep_words(tmp_path, *options, steps=STEPS))
    pids: dict[str, tuple[int, int]] = {}
    for job in jobs:
        wait_until(lambda job=job: has_checkpoint(job) and current_step(job) >= 300)  # type: ignore[misc]
        child = training_process(job.path)
        assert child
        pids[job.name] = (child, parent(child))
        os.kill(parent(child), signal.SIGKILL)
        if job is jobs[0]:  # as if the whole machine had failed
            os.kill(child, signal.SIGKILL)
            saved = newest_checkpoint(job)
            rows = timing_rows(job, saved)
            assert 0 < saved < STEPS
    output, _ = sweep.communicate(timeout=180)
    assert sweep.returncode == 0, output
    assert output.endswith("2 finished\n")
    assert attempts(jobs[0]) == 2
    assert timing_rows(jobs[0], saved) == rows
    assert not any(is_alive(pid) for pair in pids.values() for pid in pair)
    assert stream_contents(jobs[0].path) == stream_contents(undisturbed.path)
    steps = [row["step"] for row in Run(jobs[1].path).rows("train")]
    assert steps == list(range(50, STEPS + 1, 50))


def test_a_killed_ray_sweep_loses_nothing_and_ctrl_c_saves(
    cluster: str, tmp_path: Path, start_sweep: Callable[..., subprocess.Popen[str]]
) -> None:
    jobs = jobs_in(tmp_path)
    words = sweep_words(tmp_path, "--launcher", "ray", "--address", cluster)
    sweep = start_sweep(*words)
    wait_until(lambda: all(has_checkpoint(job) and current_step(job) >= 100 for job in jobs))
    sweep.kill()
    sweep.wait()
    second = start_sweep(*words)
    wait_until(lambda: all(job.log.read_text().count("=== attempt") == 2 for job in jobs))
    # Read here, since Ray may have killed the first process after steps that were not saved.
    reached = [current_step(job) for job in jobs]
    wait_until(
        lambda: all(current_step(job) > step for job, step in zip(jobs, reached, strict=True))
    )
    second.send_signal(signal.SIGINT)
    output, _ = second.communicate(timeout=120)
    assert second.returncode == INTERRUPTED, output
    assert "2 stopped and saved; run the same command again to continue" in output
    assert [run_state(job) for job in jobs] == ["interrupted"] * 2
    for job in jobs:
        steps = [row["step"] for row in Run(job.path).rows("train")]
        assert steps == list(range(50, 50 * len(steps) + 1, 50))
        assert newest_checkpoint(job) >= steps[-1]


def test_a_cluster_that_does_not_answer_is_reported_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = Options(launcher="ray", address=address, timeout=3)
        began = time.monotonic()
        with pytest.raises(ray.ClusterError, match="no Ray cluster at .*ray start --head"):
            launch([small_job(tmp_path)], options)
        words = sweep_words(tmp_path, "--launcher", "ray", "--address", address)
        assert main(["sweep", *words]) == 1
        assert f"hadamard: no Ray cluster at {address}" in capsys.readouterr().err
        silent.listen()
        with pytest.raises(ray.ClusterError, match="within 3 s: is the head node up"):
            launch([small_job(tmp_path)], options)
    assert time.monotonic() - began < 60
    assert not list(tmp_path.iterdir())
