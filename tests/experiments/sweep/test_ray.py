"""Sweeps on a Ray cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hadamard.cli import main
from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, launch, ray
from hadamard.experiments.sweep.status import run_state
from hadamard.training import start
from tests.support.sweep import (
    STEPS,
    attempts,
    current_step,
    has_checkpoint,
    held_process,
    is_alive,
    jobs_in,
    newest_checkpoint,
    release,
    script,
    small_job,
    stacked_job,
    stacked_words,
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
    for job in jobs:
        script(job, 300, "hold")
    sweep = start_sweep(*sweep_words(tmp_path, *options, steps=STEPS))
    processes: list[int] = []
    for job in jobs:
        child = held_process(job)  # it does not end before it is released
        processes += [child, parent(child)]
        os.kill(parent(child), signal.SIGKILL)
        if job is jobs[0]:  # as if the whole machine had failed
            saved = newest_checkpoint(job)
            rows = timing_rows(job, saved)
            assert 0 < saved < STEPS
            os.kill(child, signal.SIGKILL)
        release(job)
    output, _ = sweep.communicate(timeout=600)
    assert sweep.returncode == 0, output
    assert output.endswith("2 finished\n")
    assert attempts(jobs[0]) == 2
    assert timing_rows(jobs[0], saved) == rows
    wait_until(lambda: not any(map(is_alive, processes)))
    assert stream_contents(jobs[0].path) == stream_contents(undisturbed.path)
    steps = [row["step"] for row in Run(jobs[1].path).rows("train")]
    assert steps == list(range(50, STEPS + 1, 50))


def test_a_killed_ray_sweep_loses_nothing_and_ctrl_c_saves(
    cluster: str, tmp_path: Path, start_sweep: Callable[..., subprocess.Popen[str]]
) -> None:
    jobs = jobs_in(tmp_path)
    words = sweep_words(tmp_path, "--launcher", "ray", "--address", cluster)
    sweep = start_sweep(*words)
    wait_until(lambda: all(map(has_checkpoint, jobs)))
    sweep.kill()
    sweep.wait()
    second = start_sweep(*words)
    wait_until(lambda: all(job.log.read_text().count("=== attempt") >= 2 for job in jobs))
    # Read here, since Ray may have killed the first process after steps that were not saved.
    reached = [current_step(job) for job in jobs]
    wait_until(
        lambda: all(current_step(job) > step for job, step in zip(jobs, reached, strict=True))
    )
    second.send_signal(signal.SIGINT)
    output, _ = second.communicate(timeout=600)
    assert second.returncode == INTERRUPTED, output
    assert "2 stopped and saved; run the same command again to continue" in output
    assert [run_state(job) for job in jobs] == ["interrupted"] * 2
    for job in jobs:
        steps = [row["step"] for row in Run(job.path).rows("train")]
        assert steps == list(range(50, 50 * len(steps) + 1, 50))
        assert newest_checkpoint(job) >= steps[-1]


def test_ray_trains_a_fleet_on_each_node_and_one_continues_on_another_worker(
    cluster: str, tmp_path: Path, start_sweep: Callable[..., subprocess.Popen[str]]
) -> None:
    names = [f"pqn_minatar-breakout_relu_seed{seed}" for seed in range(4)]
    jobs = [stacked_job(tmp_path, seed, name) for seed, name in enumerate(names)]
    script(jobs[1], 160, "hold")
    words = ["pqn", "--variants", "relu", "--seeds", "4", "--folder", tmp_path]
    words += ["--launcher", "ray", "--address", cluster, "--", *stacked_words()]
    sweep = start_sweep(*words)
    child = held_process(jobs[1])
    os.kill(parent(child), signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    release(jobs[1])
    output, _ = sweep.communicate(timeout=600)
    assert sweep.returncode == 0, output
    assert output.endswith("4 finished\n")
    # A fleet for each of the two nodes, of which the first was started twice.
    assert [attempts(job) for job in jobs] == [2, 2, 1, 1]
    for first, second in (jobs[:2], jobs[2:]):
        assert f"see {first.log}" in second.log.read_text()
    alone = stacked_job(tmp_path, 1, "alone")
    start.train("pqn", alone.spec)
    assert stream_contents(jobs[1].path) == stream_contents(alone.path)


def test_a_gpu_of_the_cluster_gets_a_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip("ray")
    changes = {"device": "auto", "train__fleet": "auto"}
    jobs = [stacked_job(tmp_path, seed, **changes) for seed in range(4)]

    def sizes(resources: dict[str, float], **options: Any) -> list[int]:
        monkeypatch.setattr(module, "cluster_resources", lambda: resources)
        tasks = ray.RayTasks(jobs, Options(launcher="ray", **options))
        assert tasks.at_once == (options.get("jobs") or len(tasks.waiting))
        return [len(group) for group in tasks.waiting]

    assert sizes({"CPU": 16.0}) == [1, 1, 1, 1]
    assert sizes({"CPU": 16.0, "GPU": 1.0}) == [4]
    assert sizes({"CPU": 16.0, "GPU": 2.0}) == sizes({"CPU": 9.0, "GPU": 1.0}, per_gpu=2) == [2, 2]
    assert sizes({"CPU": 16.0, "GPU": 4.0}, jobs=1) == [4]


def test_a_cluster_that_does_not_answer_is_reported_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    limits: list[float] = []
    run = subprocess.run

    def limited_run(*arguments: Any, **options: Any) -> Any:
        limits.append(options["timeout"])
        return run(*arguments, **options)

    monkeypatch.setattr(ray.subprocess, "run", limited_run)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        options = Options(launcher="ray", address=address, timeout=3)
        with pytest.raises(ray.ClusterError, match="no Ray cluster at .*ray start --head"):
            launch([small_job(tmp_path)], options)
        words = sweep_words(tmp_path, "--launcher", "ray", "--address", address)
        assert main(["sweep", *words]) == 1
        assert f"hadamard: no Ray cluster at {address}" in capsys.readouterr().err
        silent.listen()
        with pytest.raises(ray.ClusterError, match="within 3 s: is the head node up"):
            launch([small_job(tmp_path)], options)
    # Only the socket that listens needed a process, which was ended at the limit.
    (limit,) = limits
    assert 0 < limit <= 3
    assert not list(tmp_path.iterdir())
