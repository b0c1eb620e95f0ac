"""A run folder: who may open it, its configuration, and its rows."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from hadamard.core import streams
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
    run.finish({"steps": 10, "score": 1.5})
    assert Run.open(run.path).done == {"steps": 10, "score": 1.5}


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
        "  spec.net.layer: 'plain' there, 'crelu' here",
        "  spec.seed: 0 there, 3 here",
        "Choose another --run-dir.",
    ]
    with pytest.raises(RunError, match=f"was started .* `hadamard train --resume {run.path}`"):
        Run.create(run.path, CONFIG)
    run.finish({"steps": 10, "score": None})
    with pytest.raises(RunError, match="is finished with exactly these settings"):
        Run.create(run.path, CONFIG)
    # How far it is trained for now is no other setting.
    further = {**CONFIG, "spec": {**CONFIG["spec"], "train": {"until": 70}}}
    Run.create(run.path / "further", further).close()
    further["spec"]["train"] = {"until": 90}
    with pytest.raises(RunError, match=r"exactly these settings: .*/further --until 90`"):
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
    run.reopen(70)
    assert run.done is None
    before["spec"]["train"]["until"] = 70
    assert run.config == before
    run.reopen(70)  # again, as after a crash in between
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


def test_cut_drops_what_was_written_after_a_checkpoint(run: Run) -> None:
    for step in range(3):
        run.write("train", {"step": step, "loss": 1 / 3, "nested": {"a": [1, None]}})
    saved = run.extents()  # rows not yet flushed count
    assert saved["train"].rows == 3
    run.write("train", {"step": 3})
    run.write("kde", {"step": 3})
    run.close()
    path = run.path / "train.jsonl"
    whole = path.read_bytes()
    # Whatever follows: it is dropped, whether it can be read or not.
    for later in (b"", b'{"step": 5, "lo', b"\xff\xfe\n", b"[1, 2]\n", b"{" * 10_000):
        path.write_bytes(whole + later)
        assert run.problems(saved) == []
        run.cut(saved, 2)
        assert [row["step"] for row in run.rows("train")] == [0, 1, 2]
    assert (run.path / "kde.jsonl").read_bytes() == b""
    assert not (run.path / "health.jsonl").exists()
    run.write("train", {"step": 3})
    run.flush(to_disk=True)
    assert path.read_bytes().count(b"\n") == 4
    assert run.extents()["train"] == streams.measured(path)


def test_rows_that_were_lost_are_named(run: Run) -> None:
    for step in range(5):
        run.write("episodes", {"step": step})
        run.write("timing", {"step": step, "seconds": 1.0})
    run.write("eval", {"step": 0})
    run.close()
    saved = run.extents()
    path = run.path / "episodes.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert run.problems(saved) == ["episodes.jsonl holds 3 of 5 rows"]
    path.write_bytes(b"")
    assert run.problems(saved) == ["episodes.jsonl holds 0 of 5 rows"]
    path.write_bytes(whole.replace(b"2", b"7"))
    assert run.problems(saved) == ["episodes.jsonl was changed within its first 5 rows"]
    path.unlink()
    (run.path / "eval.jsonl").unlink()
    (run.path / "timing.jsonl").write_bytes(b"")  # nothing depends on it
    assert run.problems(saved) == [
        "episodes.jsonl is missing, with 5 rows",
        "eval.jsonl is missing, with 1 row",
    ]


def test_damaged_timing_keeps_the_rows_that_can_be_read(run: Run) -> None:
    for step in (1, 2, 3):
        run.write("timing", {"step": step, "seconds": float(step)})
    run.close()
    saved = run.extents()
    path = run.path / "timing.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"seconds": 2.0', b'"seconds" 2.0'))
    with pytest.warns(UserWarning, match="timing.jsonl holds .* of 3 rows; timing goes on"):
        run.cut(saved, 2)
    assert [row["step"] for row in run.rows("timing")] == [1]


def test_without_a_record_of_the_streams_rows_are_dropped_by_step(run: Run) -> None:
    for step in range(5):
        run.write("train", {"step": step})
        run.write("timing", {"step": step})
    run.close()
    path = run.path / "train.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    for torn in (b'{"step": 5, "lo', b"{", b""):
        path.write_bytes(b"".join(whole) + torn)
        assert [row["step"] for row in run.rows("train")] == [0, 1, 2, 3, 4]
    run.cut_after(2, timing=1)
    assert path.read_bytes() == b"".join(whole[:3])
    assert [row["step"] for row in run.rows("timing")] == [0, 1]
    path.write_bytes(b'{"st\n{"step": 1}\n')
    with pytest.raises(RunError, match="line 1 of .*train.jsonl is damaged"):
        list(run.rows("train"))
    path.write_bytes(b'{"step": 1}\n{"step": 2}')  # without its newline
    run.cut_after(2)
    run.write("train", {"step": 3})
    run.flush()
    assert [row["step"] for row in run.rows("train")] == [1, 2, 3]


def test_other_settings_than_a_checkpoints_are_refused_by_name(run: Run) -> None:
    saved = run.settings
    assert saved["net.width"] == 8
    run.check(saved)
    run.check({**saved, "added.since": 1})
    config = json.loads((run.path / "config.json").read_text())
    config["spec"] |= {"seed": 4, "run_dir": "elsewhere", "device": "cuda"}
    (run.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=r"other settings than the checkpoint") as refused:
        run.check(saved)
    assert "  seed: 0 there, 4 here" in str(refused.value).splitlines()
    assert "run_dir" not in str(refused.value)


WRONG = {
    "a list": "[]",
    "a number": "5",
    "a spec that is a text": '{"algorithm": "dqn", "spec": "x"}',
    "an algorithm that is a number": '{"algorithm": 3, "spec": {}}',
    "a protocol that is a text": '{"algorithm": "dqn", "spec": {}, "protocol": "2"}',
    "deep": "[" * 100_000,
    "nested": '{"spec": ' + '{"a": ' * 500 + "1" + "}" * 501,
    "no text": "\ud800",
    "digits": '{"protocol": ' + "9" * 5_000 + "}",
    "large": '{"protocol": ' + "9" * 400 + "}",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_config_of_the_wrong_type_is_refused_by_name(run: Run, case: str) -> None:
    (run.path / "config.json").write_bytes(WRONG[case].encode(errors="surrogatepass"))
    with pytest.raises(RunError, match=r"config.json is damaged .*restore the file"):
        _ = run.config


@pytest.mark.parametrize("text", ["5", "[]", "{}", '{"steps": "x"}', "{", '{"steps": 1e999}'])
def test_a_damaged_summary_counts_as_unfinished(run: Run, text: str) -> None:
    (run.path / "DONE").write_text(text)
    with pytest.warns(UserWarning, match="counts as unfinished: .*DONE is damaged"):
        assert run.done is None


def test_a_changed_summary_counts_as_unfinished(run: Run) -> None:
    run.finish({"steps": 100, "score": 1.5})
    path = run.path / "DONE"
    path.write_text(path.read_text().replace("1.5", "7.5"))
    with pytest.warns(UserWarning, match="DONE is damaged: its checksum is wrong"):
        assert run.done is None


def test_rows_that_a_finished_run_lost_are_named(run: Run) -> None:
    for step in range(3):
        run.write("train", {"step": step})
    run.write("timing", {"step": 1})
    run.finish({"steps": 3})
    run.close()
    assert run.losses() == []
    (run.path / "timing.jsonl").unlink()
    assert run.losses() == []
    (run.path / "train.jsonl").write_text('{"step": 0}\n')
    assert run.losses() == ["train.jsonl holds 1 of 3 rows"]


def test_rows_that_were_added_to_a_finished_run_are_named(run: Run) -> None:
    run.write("train", {"step": 0})
    run.write("timing", {"step": 0})
    run.finish({"steps": 1})
    run.close()
    assert run.additions() == []
    for name in ("train", "timing", "eval"):
        with (run.path / f"{name}.jsonl").open("a") as file:
            file.write('{"step": 1}\n')
    assert run.losses() == []
    assert run.additions() == [
        "train.jsonl holds more than its 1 row",
        "eval.jsonl holds more than its 0 rows",
    ]


def test_a_summary_of_an_earlier_version_is_read(run: Run) -> None:
    (run.path / "DONE").write_text('{"steps": 3}')
    assert run.done == {"steps": 3}
    assert run.losses() == []


@pytest.mark.parametrize("name", ["config.json", "DONE", "episodes.jsonl", "lock"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "device"])
def test_only_regular_files_are_opened(run: Run, tmp_path: Path, name: str, kind: str) -> None:
    victim, path = tmp_path / "victim", run.path / name
    victim.write_text('{"steps": 1}\n')
    run.close()
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(victim if kind == "link" else "/dev/zero")
    uses: dict[str, Callable[[], Any]] = {
        "config.json": lambda: run.config,
        "DONE": lambda: run.done,
        "episodes.jsonl": lambda: list(run.rows("episodes")),
        "lock": run.lock,
    }
    with pytest.raises((RunError, UserWarning), match=f"{path} is .*; replace it"):
        uses[name]()
    refused = pytest.raises(RunError, match="only regular files")
    with refused if name == "episodes.jsonl" else nullcontext():
        run.write("episodes", {"step": 1})
    assert victim.read_text() == '{"steps": 1}\n'


def test_writing_replaces_a_link_and_leaves_what_it_names(run: Run, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run.path / "DONE").symlink_to(victim)
    (run.path / ".DONE.part").symlink_to(victim)  # a name that can be guessed
    run.finish({"steps": 3})
    assert run.done == {"steps": 3}
    assert victim.read_text() == "precious"


def test_a_file_with_another_name_elsewhere_keeps_its_rows_there(run: Run, tmp_path: Path) -> None:
    run.write("train", {"step": 1})
    run.close()
    backup = tmp_path / "backup"
    os.link(run.path / "train.jsonl", backup)
    run.write("train", {"step": 2})
    run.close()
    assert backup.read_text() == '{"step": 1}\n'
    assert [row["step"] for row in run.rows("train")] == [1, 2]
    (run.path / "lock").unlink()
    os.link(backup, run.path / "lock")
    with pytest.raises(RunError, match="hard link"):
        run.lock()
    assert backup.read_text() == '{"step": 1}\n'


def test_leftovers_of_a_crash_do_not_stop_a_new_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = Run.create(folder, CONFIG)
    run.close()
    (folder / "config.json").rename(folder / ".config.json.0123456789abcdef.part")
    Run.create(folder, CONFIG).close()
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "config.json", "lock"]


def test_what_is_not_finite_becomes_null(run: Run) -> None:
    row = {"step": 1, "a": math.nan, "b": [math.inf, (-math.inf, 2.0)], "c": {"d": math.nan}}
    run.write("train", row)
    run.flush()
    text = (run.path / "train.jsonl").read_text()
    assert text == '{"step": 1, "a": null, "b": [null, [null, 2.0]], "c": {"d": null}}\n'


def test_long_settings_are_cut_in_messages(run: Run) -> None:
    with pytest.raises(RunError, match="net.layer: 'xxx.* there, 'plain' here") as refused:
        run.check({**run.settings, "net.layer": "x" * 100_000})
    assert len(str(refused.value)) < 1_000
