"""The display of a sweep."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from hadamard.core.run import Run
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import view
from hadamard.experiments.sweep.queue import Queue
from hadamard.experiments.sweep.view import JobStatus, folder_name, table
from tests.support.sweep import STEPS, small_job


def lines_of_table(queue: Queue, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), record=True)
    console.print(table(queue, folder_name, 75.0, width, height))
    return console.export_text().splitlines()


def test_the_table_shows_states_and_progress(undisturbed: Job, tmp_path: Path) -> None:
    others = [small_job(tmp_path, f"other{i}") for i in range(30)]
    lines = lines_of_table(Queue([undisturbed, *others], [{}]), 140, 20)
    assert len(lines) < 20
    assert "1 finished · 30 waiting · 1 min 15 s so far" in lines[0]
    finished = next(line for line in lines if "finished" in line and "run" in line)
    score = (Run(undisturbed.path).done or {})["score"]
    assert f"{STEPS:,}" in finished
    assert f"{score:.1f}" in finished
    assert any("and 19 more waiting" in line for line in lines)


def test_a_narrow_terminal_shows_fewer_columns(undisturbed: Job, tmp_path: Path) -> None:
    small = small_job(tmp_path, "a_run_with_quite_a_long_name")
    queue = Queue([undisturbed, small], [{}])

    def headings(width: int) -> list[str]:
        lines = lines_of_table(queue, width, 20)
        return next(line.split() for line in lines if "state" in line)

    # These runs were never diagnosed: no terminal shows columns for their health.
    assert headings(140) == ["run", "state", "progress", "step", "score"]
    assert headings(60) == ["run", "state", "progress", "score"]


def test_lines_report_changes(
    undisturbed: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Sweep:
        jobs = [undisturbed]  # noqa: RUF012
        now = JobStatus("running", 1)

        def status(self, _: Job) -> JobStatus:
            return self.now

    sweep = Sweep()
    lines = view.Lines(sweep, lambda _: "seed 3")
    lines.print_news()
    assert capsys.readouterr().out == "1 run\n"
    monkeypatch.setattr(view, "SECONDS_BETWEEN_LINES", 0.0)
    lines.print_news()
    assert capsys.readouterr().out.startswith(f"seed 3: {STEPS:,}/{STEPS:,} steps · ")
    sweep.now = JobStatus("running", 2)
    lines.print_news()
    assert capsys.readouterr().out == "seed 3: running (attempt 2)\n"
    sweep.now = JobStatus("finished", 2)
    lines.print_news()
    score = (Run(undisturbed.path).done or {})["score"]
    assert capsys.readouterr().out == f"seed 3: finished (attempt 2) · score {score:.1f}\n"
