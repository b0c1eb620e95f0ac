"""The plugins of a sweep reach every process that trains its runs, as they were at its start."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hadamard.core import plugins
from hadamard.core.files import RunError
from hadamard.core.run import Run
from hadamard.experiments.grid import Job, grid
from hadamard.experiments.sweep import Options, launch, slurm
from hadamard.experiments.sweep.queue import Queue
from hadamard.experiments.sweep.transfer import job_to_text
from hadamard.experiments.sweep.view import live_view
from tests.support.plugins import write_plugin
from tests.support.sweep import SMALL

CHANGES = {**SMALL, "train.steps": 300, "train.env_workers": 1}


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Job]]:
    """Runs that need three plugins, whose files are gone."""
    names = ("double_dqn", "grid_world", "maxout")
    paths = [write_plugin(tmp_path, name) for name in names]
    with plugins.named(map(str, paths)):
        for path in paths:
            path.unlink()
        folder, variants = tmp_path / "runs", ["relu", "tanh+maxout"]
        yield grid("double_dqn", "grid-world/small", variants, [0], folder, CHANGES)


def assert_trained(jobs: list[Job]) -> None:
    keys = [{"algos/double_dqn", "envs/grid_world"}] * 2
    keys[1] = keys[1] | {"layers/maxout"}
    for job, names in zip(jobs, keys, strict=True):
        run = Run(job.path)
        assert run.done is not None
        assert set(run.config["plugins"]) == names


def test_workers_of_this_machine_load_the_text_of_the_start(jobs: list[Job]) -> None:
    summary = launch(jobs, Options(jobs=2))
    assert summary.exit_code == 0, summary
    assert_trained(jobs)


def test_a_plugin_that_fails_in_a_worker_is_the_runs_failure(
    jobs: list[Job], tmp_path: Path
) -> None:
    queue = Queue(jobs[:1], [{}], retries=3)
    queue.plugins = json.dumps([[str(tmp_path / "double_dqn.py"), "\nimport not_there\n"]])
    summary = queue.run(live_view)
    (outcome,) = summary.failed
    assert outcome.attempts == 1
    assert "double_dqn.py, line 2: ModuleNotFoundError: No module named" in outcome.log_tail


def test_runs_with_another_plugin_are_not_continued(jobs: list[Job], tmp_path: Path) -> None:
    assert launch(jobs[1:], Options(jobs=1)).exit_code == 0
    path = write_plugin(tmp_path, "maxout")
    path.write_text(path.read_text() + "\n# another\n")
    plugins.load_plugin(path)
    with pytest.raises(RunError, match="plugin layers/maxout: sha256 .* there, sha256 .* here"):
        launch(jobs, Options(jobs=1))
    assert not jobs[0].path.exists()


def test_the_tasks_of_a_ray_cluster_get_them(jobs: list[Job]) -> None:
    pytest.importorskip("ray")
    summary = launch(jobs, Options(launcher="ray", jobs=1))
    assert summary.exit_code == 0, summary
    assert_trained(jobs)


def test_the_jobs_of_a_slurm_array_get_them(jobs: list[Job], tmp_path: Path) -> None:
    submitit = pytest.importorskip("submitit")

    @dataclass
    class Submitted:
        job_id: str

    class Executor:
        tasks: list[Any]

        def submit_array(self, tasks: list[Any]) -> list[Submitted]:
            self.tasks = tasks
            return [Submitted(f"7_{index}") for index, _ in enumerate(tasks)]

    executor = Executor()
    submissions = slurm.Submissions(tmp_path / "runs" / ".slurm")
    submissions.submit(executor, [[job] for job in jobs], Options())
    pickled = pickle.dumps(executor.tasks)
    plugins._loaded.clear()
    tasks = pickle.loads(pickled)
    (submission,) = [task.checkpoint() for task in tasks[:1]]
    assert isinstance(submission, submitit.helpers.DelayedSubmission)
    for task in (submission.function, tasks[1]):
        assert [state for state, *_ in task()] == ["finished"]
    assert_trained(jobs)
    # A task that an earlier version pickled has none.
    old = slurm.SlurmTask([job_to_text(jobs[0])], {}, 0)
    del old.__dict__["plugins"]
    assert pickle.loads(pickle.dumps(old)).plugins == ""
