"""Evaluations during training."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.commands import Command


def test_no_more_workers_than_episodes_evaluate(command: Command, tmp_path: Path) -> None:
    words = ["train", "ppo", "--env", "probe/both", "--run-dir", str(tmp_path / "run")]
    words += ["--train.steps", "1024", "--train.no-tensorboard", "--train.health-every", "0"]
    words += [
        "--train.eval-every",
        "1024",
        "--train.eval-episodes",
        "2",
        "--train.eval-workers",
        "5",
    ]
    assert command(*words).code == 0
    rows = (tmp_path / "run" / "eval.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [0, 0, 1024, 1024]
