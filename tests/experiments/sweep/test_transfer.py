"""Jobs as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.transfer import job_from_text, job_to_text, with_absolute_path
from hadamard.training.start import default_spec
from tests.support.sweep import small_job


def test_a_job_is_written_as_text_and_read_again(tmp_path: Path) -> None:
    job = small_job(tmp_path, algo__learning_rate=0.1, train__greedy_envs=2)
    same = job_from_text(job_to_text(job))
    assert job_to_text(same) == job_to_text(job)
    assert same.path == job.path
    assert same.spec.train.greedy_envs == 2
    assert same.spec.algo["learning_rate"] == 0.1
    with pytest.raises(ValueError, match="has no run_dir"):
        Job("dqn", default_spec("dqn"))


def test_the_path_of_a_job_can_be_made_absolute() -> None:
    job = with_absolute_path(small_job(Path("runs"), "one"))
    assert job.path == Path.cwd() / "runs" / "one"
