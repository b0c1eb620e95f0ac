"""The progress of a run: plain lines, and the live bar of a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hadamard.core.config import overridden
from hadamard.experiments.bench import Quiet
from hadamard.training import progress, start, trainer
from tests.support.commands import Command, small


def test_plain_lines_where_there_is_no_terminal(command: Command, tmp_path: Path) -> None:
    result = command(*small("dqn", tmp_path / "run"))
    assert (result.code, result.err) == (0, "")
    assert "\x1b" not in result.out
    assert "\r" not in result.out
    title, line, done = result.out.splitlines()
    assert title == f"dqn on probe/both: plain, relu, seed 0, cpu -> {tmp_path / 'run'}"
    assert re.fullmatch(
        r"400/400 steps · [\d,]+ steps/s · score -?\d\.\d · dormant \d+\.\d% · rank \d+/16",
        line,
    )
    assert re.fullmatch(r"done: 400 steps, score -?\d\.\d\d \(last 100 episodes\), \d+ s", done)


def test_a_live_bar_on_a_terminal(tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color", "COLUMNS": "120"}
    training = subprocess.Popen(
        [sys.executable, "-m", "hadamard", *small("dqn", tmp_path / "run")],
        stdout=terminal,
        stderr=terminal,
        stdin=terminal,
        env=environment,
    )
    os.close(terminal)
    output = b""
    while True:
        try:
            output += os.read(master, 65536)
        except OSError:  # the other end is closed
            break
    os.close(master)
    assert training.wait(60) == 0
    text = output.decode()
    assert "\r\x1b[2K" in text  # the line is overwritten
    bar = re.sub(r"\x1b\[[\d;?]*\w", "", text)
    # A run of less than 0.2 s shows no speed.
    assert re.search(
        r"100% +([\d,]+ steps/s +)?score -?\d\.\d · dormant \d+\.\d% · rank \d+/16", bar
    )
    assert bar.rstrip().splitlines()[-1].startswith("done: 400 steps")


def test_the_live_bar_always_reaches_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console", lambda: Console(file=screen, force_terminal=True, width=100)
    )
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    live = progress.LiveBar("title", 1_000, 200)
    live.update(400, {})  # too soon to show
    assert live.bar.tasks[0].completed == 200
    now = 101.0
    live.update(700, {"score": 1.0})
    assert live.bar.tasks[0].completed == 700
    assert live.bar.tasks[0].fields["rate"] == "500 steps/s"
    live.update(1_000, {"score": 2.0})  # too soon, but the end
    live.close()
    assert live.bar.tasks[0].completed == 1_000
    assert live.bar.tasks[0].fields["rate"] == "500 steps/s"  # too soon for another measurement
    assert "score 2.0" in screen.getvalue()


def test_a_live_display_of_several_runs_shows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr("rich.console.Console", lambda: console)
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    shared = progress.SharedProgress(progress.LiveBar, 6)
    runs = [shared(f"title {number}", 1_000) for number in range(6)]
    for run in runs:
        now += 1.0
        run.update(1_000, {"score": now, "dormant": 0.25, "rank": 8, "full_rank": 9})
    for run in runs:
        run.close()
    shown = screen.getvalue()
    assert "title 3" in shown
    assert "title 4" not in shown
    assert "... and 2 runs more" in shown
    assert all(f"run {number}: {100 + number}.0, 25% dormant" in shown for number in range(1, 7))


def test_plain_lines_come_every_ten_seconds_and_once_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines = progress.PlainLines("title", 1_000)
    lines.update(100, {})  # too soon
    now = 111.0
    lines.update(550, {"score": 1.0})
    for step in (1_000, 1_002, 1_004):  # the last rollout is finished
        lines.update(step, {"score": 2.0})
    assert capsys.readouterr().out.splitlines() == [
        "title",
        "550/1,000 steps · 50 steps/s · score 1.0 · 9 s left",
        "1,000/1,000 steps · 91 steps/s · score 2.0",
    ]


def test_a_display_is_updated_between_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[tuple[int, dict[str, Any]]] = []

    class Display(Quiet):
        def update(self, step: int, facts: dict[str, Any]) -> None:
            updates.append((step, facts))

    monkeypatch.setattr(trainer, "DISPLAY_SECONDS", 0.0)
    changes = {"run_dir": str(tmp_path / "run"), "train.steps": 40, "train.log_every": 1_000}
    changes |= {"train.tensorboard": False, "algo.learning_starts": 30}
    start.train("dqn", overridden(start.default_spec("dqn", "probe/both"), changes), Display)
    assert [step for step, _ in updates] == [*range(1, 41), 40]
    assert updates[-1][1]["score"] is not None
    assert len((tmp_path / "run" / "train.jsonl").read_text().splitlines()) == 1  # at the end
