"""Callbacks are told what was written, and stop runs that can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import hadamard
from hadamard import Event
from hadamard.core import record
from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.training import start
from hadamard.training.progress import Quiet
from tests.support.resume import assert_same_run

SETTINGS: Mapping[str, Any] = {
    "algo.num_envs": 4,
    "algo.rollout_steps": 4,
    "algo.minibatches": 2,
    "net.width": 16,
    "train.steps": 400,
    "train.log_every": 50,
    "train.health_every": 0,
    "train.checkpoint_every": 100,
    "train.greedy_envs": 0,
    "train.eval_every": 200,
    "train.eval_episodes": 2,
    "train.tensorboard": False,
}


def train(path: Path, callbacks: Any = (), **settings: Any) -> hadamard.TrainedRun:
    return hadamard.train(
        "pqn",
        "probe/both",
        SETTINGS,
        run_dir=path,
        callbacks=callbacks,
        show_progress=False,
        **settings,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("callbacks") / "whole").path


def test_every_event_comes_after_what_it_tells_of_is_written(tmp_path: Path) -> None:
    events: list[Event] = []

    def callback(event: Event) -> None:
        events.append(event)
        rows = {name: list(Run(event.run).rows(name)) for name in ("train", "eval")}
        if event.kind == "log":
            assert rows["train"][-1] == json.loads(json.dumps(dict(event.values)))
            assert event.score == rows["train"][-1]["score"]
        elif event.kind == "evaluation":
            scores = [row["score"] for row in rows["eval"] if row["step"] == event.step]
            assert event.values["scores"] == scores
            assert event.greedy_score is not None
        else:
            assert record.checkpoints(event.run / "checkpoints")[0] == event.values["path"]

    run = train(tmp_path / "run", callback)
    assert run.finished
    steps = {kind: [e.step for e in events if e.kind == kind] for kind in
             ("log", "evaluation", "checkpoint")}  # fmt: skip
    assert steps["evaluation"] == [0, 208, 400] or steps["evaluation"][0] == 0
    assert len(steps["log"]) == 8
    assert steps["checkpoint"][-1] == 400
    assert {event.steps for event in events} == {400}


@pytest.mark.parametrize("kind", ["log", "evaluation", "checkpoint"])
def test_a_stopped_run_is_saved_and_resumed_as_if_nothing_had_happened(
    kind: str, tmp_path: Path, whole: Path
) -> None:
    def stop(event: Event) -> None:
        if event.kind == kind and event.step >= 150:
            event.stop()

    run = train(tmp_path / "run", [stop])
    assert not run.finished
    assert run.summary is None
    assert 150 <= record.step_of(record.checkpoints(run.path / "checkpoints")[0]) < 400
    assert Run.open(run).done is None
    again = hadamard.resume(run, show_progress=False)
    assert again.finished
    assert_same_run(again.path, whole)


def test_a_resumed_run_can_be_stopped_again(tmp_path: Path, whole: Path) -> None:
    def stop(event: Event) -> None:
        if event.kind == "log":
            event.stop()

    run, stops = train(tmp_path / "run", stop), 1
    while not run.finished:
        run = hadamard.resume(run, callbacks=stop, show_progress=False)
        stops += 1
    assert stops > 3
    assert_same_run(run.path, whole)


def test_an_exception_saves_the_run_first(tmp_path: Path, whole: Path) -> None:
    calls: list[str] = []

    def fail(event: Event) -> None:
        if event.kind == "log" and event.step >= 200:
            calls.append("fail")
            raise LookupError("pruned")

    def other(event: Event) -> None:
        calls.append("other")

    with pytest.raises(LookupError, match="pruned"):
        train(tmp_path / "run", [fail, other])
    assert calls.count("fail") == 1
    assert calls[-1] == "fail"  # no callback is called after the exception
    assert record.step_of(record.checkpoints(tmp_path / "run" / "checkpoints")[0]) >= 200
    assert_same_run(hadamard.resume(tmp_path / "run", show_progress=False).path, whole)


def test_a_stop_at_the_end_changes_nothing(tmp_path: Path, whole: Path) -> None:
    def stop(event: Event) -> None:
        if event.step >= 400:
            event.stop()

    run = train(tmp_path / "run", stop)
    assert run.finished
    assert_same_run(run.path, whole)


def test_one_of_several_runs_is_stopped(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if event.run.name == "seed1" and event.step >= 100:
            event.stop()

    spec = overridden(start.default_spec("pqn", "probe/both"), SETTINGS)
    specs = [
        overridden(spec, {"seed": seed, "run_dir": str(tmp_path / f"seed{seed}")})
        for seed in range(3)
    ]
    summaries = start.train_together("pqn", specs, Quiet, [stop])
    assert [bool(summary) for summary in summaries] == [True, False, True]


def test_a_fleet_honours_callbacks(tmp_path: Path) -> None:
    pytest.importorskip("minatar")
    seen: list[tuple[str, str]] = []

    def stop(event: Event) -> None:
        seen.append((event.run.name, event.kind))
        if event.run.name == "seed1" and event.kind == "log" and event.step >= 1_000:
            event.stop()

    settings = {
        **SETTINGS,
        "algo.num_envs": 8,
        "train.steps": 2_048,
        "train.log_every": 256,
        "train.eval_every": 0,
        "train.fleet": "on",
        "device": "cpu",
    }
    spec = overridden(start.default_spec("pqn", "minatar/breakout"), settings)

    def specs(folder: str) -> list[Any]:
        return [
            overridden(spec, {"seed": seed, "run_dir": str(tmp_path / folder / f"seed{seed}")})
            for seed in range(3)
        ]

    summaries = start.train_together("pqn", specs("stopped"), Quiet, [stop])
    assert [bool(summary) for summary in summaries] == [True, False, True]
    assert ("seed0", "checkpoint") in seen
    stopped = tmp_path / "stopped" / "seed1"
    assert 1_000 <= record.step_of(record.checkpoints(stopped / "checkpoints")[0]) < 2_048
    start.resume(str(stopped), Quiet)
    start.train_together("pqn", specs("whole"), Quiet)
    for seed in range(3):
        ours, theirs = (tmp_path / name / f"seed{seed}" for name in ("stopped", "whole"))
        assert_same_run(ours, theirs)

    def fail(event: Event) -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        start.train_together("pqn", specs("failed"), Quiet, [fail])
    for seed in range(3):
        assert record.checkpoints(tmp_path / "failed" / f"seed{seed}" / "checkpoints")
