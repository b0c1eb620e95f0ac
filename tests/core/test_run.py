"""A run folder: who may open it, its configuration, and its rows."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hadamard.core.run import PROTOCOL, Run, RunError

CONFIG = {"algorithm": "dqn", "spec": {"seed": 0, "net": {"width": 8, "layer": "plain"}}}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run.create(tmp_path / "run", CONFIG)
    yield run
    run.close()


def test_a_run_records_what_it_was_made_from(run: Run) -> None:
    recorded = Run.open(run.path).config
    assert {key: recorded[key] for key in CONFIG} == CONFIG
    assert torch.__version__.startswith(recorded["versions"]["torch"])  # "+cu130" may follow
    assert "commit" in recorded
    assert run.done is None
    run.finish({"score": 1.5})
    assert Run.open(run.path).done == {"score": 1.5}


def test_a_folder_held_by_another_process_is_refused_with_its_pid(run: Run) -> None:
    run.close()
    source = sys.modules[Run.__module__].__file__
    code = (
        "import importlib.util, sys; spec = importlib.util.spec_from_file_location('run', "
        f"{source!r}); module = importlib.util.module_from_spec(spec); "
        f"spec.loader.exec_module(module); run = module.Run({str(run.path)!r}); run.lock(); "
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match=f"in use by process {holder.pid}: .*--run-dir"):
            run.lock()
        with pytest.raises(RunError, match=f"in use by process {holder.pid}"):
            run.lock()  # having asked changes nothing
        holder.stdin.close()
    run.lock()  # free once the holder is gone
    assert (run.path / "lock").read_text() == str(os.getpid())


def test_another_configuration_is_refused_line_by_line(run: Run) -> None:
    other = {"algorithm": "dqn", "spec": {"seed": 3, "net": {"width": 8, "layer": "crelu"}}}
    with pytest.raises(RunError) as refused:
        Run.create(run.path, other)
    assert str(refused.value).splitlines() == [
        f"{run.path} holds a run with other settings:",
        "  spec.net.layer: 'plain' there, 'crelu' asked for",
        "  spec.seed: 0 there, 3 asked for",
        "Choose another --run-dir.",
    ]
    with pytest.raises(RunError, match=f"was started .* `hadamard train --resume {run.path}`"):
        Run.create(run.path, CONFIG)
    run.finish({"score": None})
    with pytest.raises(RunError, match="is finished with these very settings"):
        Run.create(run.path, CONFIG)
    # How far it is trained for now is no other setting.
    further = {**CONFIG, "spec": {**CONFIG["spec"], "train": {"until": 70}}}
    Run.create(run.path / "further", further).close()
    further["spec"]["train"] = {"until": 90}
    with pytest.raises(RunError, match=r"these very settings: .*/further --until 90`"):
        Run.create(run.path / "further", further)


def test_a_run_tells_the_protocol_it_was_trained_under(run: Run) -> None:
    assert run.config["protocol"] == PROTOCOL == run.protocol == 2
    config = run.config
    del config["protocol"]
    (run.path / "config.json").write_text(json.dumps(config))
    assert Run.open(run.path).protocol == 1


def test_a_finished_run_is_opened_for_more_steps(tmp_path: Path) -> None:
    config = {"algorithm": "dqn", "spec": {"seed": 3, "train": {"steps": 100, "until": 40}}}
    run = Run.create(tmp_path / "run", config)
    run.finish({"steps": 40})
    before = run.config
    run.train_until(70)
    assert run.done is None
    before["spec"]["train"]["until"] = 70
    assert run.config == before
    run.train_until(70)  # again, as after a crash in between
    assert run.config == before
    run.close()


def test_what_is_not_a_run_is_not_opened(tmp_path: Path, run: Run) -> None:
    with pytest.raises(RunError, match="has no config.json$"):
        Run.open(tmp_path)
    with pytest.raises(RunError, match="has no config.json .there is no such folder."):
        Run.open(tmp_path / "absent")
    with pytest.raises(RunError, match="exists and is not a run"):
        Run.create(tmp_path, CONFIG)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="exists and is not a run"):
        Run.create(tmp_path / "file", CONFIG)
    (tmp_path / "empty").mkdir()
    Run.create(tmp_path / "empty", CONFIG).close()
    (run.path / "config.json").write_text("{")
    with pytest.raises(RunError, match="config.json is damaged"):
        _ = Run.open(run.path).config


def test_cut_drops_later_rows_and_a_torn_line(run: Run) -> None:
    for step in range(5):
        run.write("train", {"step": step, "loss": 1 / 3, "nested": {"a": [1, None]}})
    run.write("timing", {"step": 4})
    run.close()
    path = run.path / "train.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    for torn in (b'{"step": 5, "lo', b"{", b""):
        path.write_bytes(b"".join(whole) + torn)
        assert [row["step"] for row in run.rows("train")] == [0, 1, 2, 3, 4]
    path.write_bytes(b"".join(whole) + b'{"step": 5, "lo')
    run.cut(2)
    assert path.read_bytes() == b"".join(whole[:3])
    assert (run.path / "timing.jsonl").read_bytes() == b""
    run.write("train", {"step": 3})
    run.flush(to_disk=True)
    assert [row["step"] for row in run.rows("train")] == [0, 1, 2, 3]
    assert not (run.path / "health.jsonl").exists()
    run.write("timing", {"step": 3})
    run.flush()
    run.cut(3, train=1)  # a stream of its own
    assert [row["step"] for row in run.rows("train")] == [0, 1]
    assert [row["step"] for row in run.rows("timing")] == [3]
    path.write_bytes(b'{"st\n{"step": 1}\n')
    with pytest.raises(RunError, match="line 1 of .*train.jsonl is damaged"):
        list(run.rows("train"))


def test_a_row_that_is_cut_between_line_and_newline_is_kept_whole(run: Run) -> None:
    path = run.path / "train.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}')
    run.cut(2)
    run.write("train", {"step": 3})
    run.flush()
    assert [row["step"] for row in run.rows("train")] == [1, 2, 3]


def test_what_is_not_finite_becomes_null(run: Run) -> None:
    row = {"step": 1, "a": math.nan, "b": [math.inf, (-math.inf, 2.0)], "c": {"d": math.nan}}
    run.write("train", row)
    run.flush()
    text = (run.path / "train.jsonl").read_text()
    assert text == '{"step": 1, "a": null, "b": [null, [null, 2.0]], "c": {"d": null}}\n'
