"""The queue of this machine: its slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, queue
from tests.support.sweep import small_job


def test_slots_have_the_right_gpus_and_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(queue, "visible_gpus", lambda: ["3", "5"])
    monkeypatch.setattr(queue, "usable_cores", lambda: 6)

    def devices(job: Job, **options: Any) -> list[str | None]:
        slots = queue.slots([job] * 9, Options(**options))
        return [variables.get("CUDA_VISIBLE_DEVICES") for variables in slots]

    assert devices(small_job(tmp_path, device="auto")) == ["3", "5"]
    assert devices(small_job(tmp_path, device="cuda"), per_gpu=2) == ["3", "5", "3", "5"]
    assert devices(small_job(tmp_path, device="auto"), jobs=3) == ["3", "5", "3"]
    assert devices(small_job(tmp_path, device="cuda:1"), jobs=1) == [None]
    assert devices(small_job(tmp_path, device="cpu"), threads=2) == ["", "", ""]
    monkeypatch.setattr(queue, "visible_gpus", list)
    assert devices(small_job(tmp_path, device="auto")) == [None] * 6
    assert queue.slots([small_job(tmp_path)], Options(threads=2))[0]["OMP_NUM_THREADS"] == "2"


def test_there_are_no_more_slots_than_runs(tmp_path: Path) -> None:
    job = small_job(tmp_path, device="cpu")
    assert len(queue.slots([job] * 2, Options(jobs=10**18))) == 2
