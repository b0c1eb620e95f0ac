"""A run folder is not trusted: whatever is in it, nothing outside it changes and nothing is lost.

Each test resumes a copy of one interrupted run in which something was changed. Either the outcome
equals that of the run that was never interrupted, or the folder is refused and stays as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hadamard.core import files
from hadamard.core.run import Run
from tests.support.commands import Command, checkpoint_names, small
from tests.support.folders import contents
from tests.support.resume import assert_same_run, killed


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An interrupted run, with checkpoints at steps 100 and 200 and later rows, and a whole one."""
    folder = tmp_path_factory.mktemp("runs")
    interrupted, whole = folder / "interrupted", folder / "whole"
    assert killed(signal.SIGKILL, "step", 270, small("dqn", interrupted)) == -signal.SIGKILL
    assert killed(signal.SIGTERM, "step", 999, small("dqn", whole)) == 0
    assert checkpoint_names(interrupted) == ["step-000000000100", "step-000000000200"]
    return interrupted, whole


@pytest.fixture
def run(folders: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders[0], tmp_path / "run"))


@pytest.fixture
def equal(folders: tuple[Path, Path]) -> Callable[[Path], None]:
    def compare(path: Path) -> None:
        assert_same_run(path, folders[1])

    return compare


def refused(command: Command, run: Path, words: str) -> None:
    """Assert that a folder is refused with these words, and stays as it was."""
    before = contents(run)
    result = command("train", "--resume", run)
    assert result.code == 2, result.err
    assert words in result.err
    assert "Traceback" not in result.err
    assert contents(run) == before


def test_names_that_can_be_guessed_are_not_written_through(
    command: Command, run: Path, tmp_path: Path, equal: Callable[[Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("episodes.jsonl", "config.json", "DONE", "train.jsonl"):
        (run / f".{name}.part").symlink_to(victim)
    (run / "checkpoints" / ".part-1").symlink_to(tmp_path)
    (run / "checkpoints" / "record.json.part").symlink_to(victim)
    assert command("train", "--resume", run).code == 0
    assert victim.read_text() == "precious"
    equal(run)


@pytest.mark.parametrize(
    "name", ["lock", "config.json", "episodes.jsonl", "checkpoints/record.json", "checkpoints"]
)
def test_a_link_is_refused(command: Command, run: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    (run / name).rename(victim)
    if victim.is_dir():
        (victim / "step-000000000001").mkdir()
        (victim / ".part-7").mkdir()
    (run / name).symlink_to(victim)
    before = contents(tmp_path)
    refused(command, run, f"{run / name} is a link")
    assert contents(tmp_path) == before


def test_links_in_a_checkpoint_are_not_followed(
    command: Command, run: Path, tmp_path: Path, equal: Callable[[Path], None]
) -> None:
    newest = run / "checkpoints" / "step-000000000200"
    victim = Path(shutil.move(newest, tmp_path / "victim"))
    newest.symlink_to(victim)
    before = contents(victim)
    result = command("train", "--resume", run)
    assert (result.code, "Traceback" in result.err) == (0, False), result.err
    assert contents(victim) == before
    equal(run)


def test_a_replay_folder_that_is_a_link_is_refused(
    command: Command, run: Path, tmp_path: Path
) -> None:
    folder = run / "checkpoints" / "agent.replay"
    victim = Path(shutil.move(folder, tmp_path / "victim"))
    folder.symlink_to(victim)
    before = contents(victim)
    refused(command, run, f"{folder} is a link")
    assert contents(victim) == before


def test_lost_checkpoints_are_not_started_over(command: Command, run: Path) -> None:
    for path in (run / "checkpoints").glob("step-*"):
        shutil.rmtree(path)
    refused(command, run, "its checkpoints (step-000000000200, step-000000000100) cannot be found")
    shutil.rmtree(run / "checkpoints")
    refused(command, run, f"its folder {run / 'checkpoints'} cannot be found")


def test_a_run_that_was_never_saved_starts_over(
    command: Command, tmp_path: Path, equal: Callable[[Path], None]
) -> None:
    run = tmp_path / "run"
    assert killed(signal.SIGKILL, "step", 70, small("dqn", run)) == -signal.SIGKILL
    assert checkpoint_names(run) == []
    assert (run / "train.jsonl").read_bytes()
    assert command("train", "--resume", run).code == 0
    equal(run)


@pytest.mark.parametrize("stream", ["episodes", "train", "health"])
def test_rows_lost_before_every_checkpoint_are_named(
    command: Command, run: Path, stream: str
) -> None:
    path = run / f"{stream}.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:30])
    refused(command, run, f"{stream}.jsonl holds 0 of")
    path.unlink()
    refused(command, run, f"{stream}.jsonl is missing")
    path.write_bytes(whole.replace(b'"step": ', b'"step":  ', 1))
    refused(command, run, f"{stream}.jsonl was changed within its first")


def test_rows_lost_after_the_older_checkpoint_are_trained_again(
    command: Command, run: Path, equal: Callable[[Path], None]
) -> None:
    path = run / "train.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if json.loads(line)["step"] <= 150))
    result = command("train", "--resume", run)
    assert result.code == 0
    assert "an older checkpoint is used: " in result.err
    assert "train.jsonl holds 3 of 4 rows" in result.err
    equal(run)


def test_only_what_the_program_made_is_removed(
    command: Command, run: Path, equal: Callable[[Path], None]
) -> None:
    folder = run / "checkpoints"
    shutil.copytree(folder / "step-000000000200", folder / "step-000000000200-best")
    (folder / "step-000000000100.tar").write_text("mine")
    (folder / ".part-mine").mkdir()
    (folder / "agent.replay" / "frames-mine.safetensors").write_text("mine")
    (folder / "step-000000000350").mkdir()  # not a checkpoint, and not this run's
    (folder / "step-000000000350" / "notes").write_text("mine")
    result = command("train", "--resume", run)
    assert (result.code, "Traceback" in result.err) == (0, False), result.err
    assert (folder / "step-000000000200-best" / "state.json").exists()
    assert (folder / "step-000000000100.tar").read_text() == "mine"
    assert (folder / ".part-mine").is_dir()
    assert (folder / "agent.replay" / "frames-mine.safetensors").read_text() == "mine"
    assert (folder / "step-000000000350" / "notes").read_text() == "mine"
    shutil.rmtree(folder / "step-000000000200-best")
    shutil.rmtree(folder / "step-000000000350")
    (folder / "step-000000000100.tar").unlink()
    equal(run)


def test_a_folder_with_the_name_of_the_next_checkpoint_is_moved_aside(
    command: Command, run: Path, equal: Callable[[Path], None]
) -> None:
    (run / "checkpoints" / "step-000000000300").write_text("mine")
    result = command("train", "--resume", run)
    assert result.code == 0
    assert "was not made by this run" in result.err
    (moved,) = (run / "checkpoints").glob("step-000000000300-moved-*")
    assert moved.read_text() == "mine"
    moved.unlink()
    equal(run)


@pytest.mark.parametrize("stream", ["train", "timing"])
@pytest.mark.parametrize("damage", [b"{\n", b"\xff\xfe\n", b"[]\n5\n", b'{"step": "x"}\n'])
def test_damage_after_the_checkpoint_does_not_matter(
    command: Command, run: Path, equal: Callable[[Path], None], stream: str, damage: bytes
) -> None:
    with open(run / f"{stream}.jsonl", "ab") as file:
        file.write(damage)
    assert command("train", "--resume", run).code == 0
    equal(run)


def test_damaged_timing_does_not_matter(
    command: Command, run: Path, equal: Callable[[Path], None]
) -> None:
    path = run / "timing.jsonl"
    path.write_bytes(b"\xff" + path.read_bytes()[9:])
    result = command("train", "--resume", run)
    assert result.code == 0
    assert "timing goes on without it" in result.err
    equal(run)


JSON = ["[]", "5", '"x"', "null", "{}", '{"step": []}', "[" * 9_999, "1" * 9_999, "\x00", ""]


@pytest.mark.parametrize("name", ["manifest.json", "state.json"])
@pytest.mark.parametrize("text", JSON)
def test_the_older_checkpoint_is_used_where_the_newer_has_other_types(
    command: Command, run: Path, equal: Callable[[Path], None], name: str, text: str
) -> None:
    path = run / "checkpoints" / "step-000000000200"
    (path / name).write_text(text)
    if name == "state.json":  # with a manifest that vouches for it
        digests = {
            file: hashlib.sha256((path / file).read_bytes()).hexdigest()
            for file in ("state.json", "tensors.safetensors")
        }
        (path / "manifest.json").write_text(json.dumps(digests))
    result = command("train", "--resume", run)
    assert (result.code, "Traceback" in result.err) == (0, False), result.err
    assert f"an older checkpoint is used: {path}" in result.err
    equal(run)


@pytest.mark.parametrize("key", ["step", "parts", "agent.network", "agent.replay", "loop", "envs"])
@pytest.mark.parametrize("value", [[], 5, "x", None, {}, -1])
def test_a_state_of_other_types_is_refused(
    command: Command, run: Path, equal: Callable[[Path], None], key: str, value: Any
) -> None:
    for path in (run / "checkpoints").glob("step-*"):
        state = json.loads((path / "state.json").read_text())
        (state if key in state else state["parts"])[key] = value
        (path / "state.json").write_text(json.dumps(state))
        digests = {
            file: hashlib.sha256((path / file).read_bytes()).hexdigest()
            for file in ("state.json", "tensors.safetensors")
        }
        (path / "manifest.json").write_text(json.dumps(digests))
    before = contents(run)
    result = command("train", "--resume", run)
    assert "Traceback" not in result.err
    if result.code:
        assert result.code == 2
        assert "nothing to resume from" in result.err
        assert contents(run) == before


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("loop", "latest", "loss"), {}),
        (("loop", "latest"), {"loss": "x"}),
        (("loop", "scores"), ["x"]),
        (("loop", "facts"), {"dormant": []}),
        (("agent.optimizer", "param_groups", 0, "eps"), {}),
        (("agent.replay", "ages", 0), "one"),
        (("agent.replay", "ages"), []),
        (("agent.replay", "pushed", 0), -1),
        (("agent.replay", "chunks", 0, "end"), ["x"]),
        (("agent.replay", "chunks", 0, "end"), {"__tensor__": "nowhere"}),
    ],
)
def test_values_that_are_used_later_are_checked_at_once(
    command: Command, run: Path, equal: Callable[[Path], None], keys: tuple[Any, ...], value: Any
) -> None:
    path = run / "checkpoints" / "step-000000000200"
    state = json.loads((path / "state.json").read_text())
    place = state["parts"]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    (path / "state.json").write_text(json.dumps(state))
    digests = {
        file: hashlib.sha256((path / file).read_bytes()).hexdigest()
        for file in ("state.json", "tensors.safetensors")
    }
    (path / "manifest.json").write_text(json.dumps(digests))
    result = command("train", "--resume", run)
    assert (result.code, "Traceback" in result.err) == (0, False), result.err
    assert f"an older checkpoint is used: {path}" in result.err
    equal(run)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"step": 50, "score": "high"}', "score must be a number, got 'high'"),
        ('{"step": true, "score": 1}', "step must be a number, got True"),
        ("[50, 1]", "is damaged: it is no JSON object"),
    ],
)
def test_scores_of_another_type_are_refused_by_file(
    command: Command, run: Path, equal: Callable[[Path], None], row: str, words: str
) -> None:
    """Although the checkpoint vouches for them; one that does not is used."""
    line = f"{row}\n".encode()
    (run / "eval.jsonl").write_bytes(line)
    older, newer = sorted((run / "checkpoints").glob("step-*"))

    def vouch(path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        del manifest["checksum"]
        manifest["streams"]["eval"] = [1, len(line), hashlib.sha256(line).hexdigest()]
        checked = {**manifest, "checksum": files.checksum_of(manifest)}
        (path / "manifest.json").write_text(json.dumps(checked))

    vouch(newer)
    copy = Path(shutil.copytree(run, run.with_name("copy")))
    result = command("train", "--resume", copy)
    assert (result.code, "Traceback" in result.err) == (0, False), result.err
    assert f"{newer.name} cannot be continued from: " in result.err
    assert words in result.err
    assert (copy / "eval.jsonl").read_bytes() == b""  # a run of this kind plays no greedy games
    (copy / "eval.jsonl").unlink()
    equal(copy)
    vouch(older)
    refused(command, run, words)
    assert f"{run / 'eval.jsonl'}" in command("train", "--resume", run).err


def test_seconds_of_another_type_do_not_matter(
    command: Command, run: Path, equal: Callable[[Path], None]
) -> None:
    path = run / "timing.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["seconds"] = []
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = command("train", "--resume", run)
    assert (result.code, "Traceback" in result.err) == (0, False), result.err
    assert "seconds must be a number, got []; timing goes on without it" in result.err
    equal(run)


EDITS: dict[str, dict[str, Any]] = {
    "seed": {"seed": 7},
    "net.width": {"net": {"width": 4096}},
    "algo.learning_rate": {"algo": {"learning_rate": 0.5}},
    "env": {"env": "probe/track"},
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_settings_are_refused_by_name(command: Command, run: Path, name: str) -> None:
    config = json.loads((run / "config.json").read_text())
    for key, value in EDITS[name].items():
        config["spec"][key] = {**config["spec"][key], **value} if isinstance(value, dict) else value
    (run / "config.json").write_text(json.dumps(config))
    refused(command, run, f"other settings than the checkpoint was trained with:\n  {name}: ")


def test_settings_that_change_no_result_may_be_edited(
    command: Command, run: Path, equal: Callable[[Path], None]
) -> None:
    config = json.loads((run / "config.json").read_text())
    config["spec"]["train"]["threads"] = 2
    config["spec"]["device"] = "cpu"
    (run / "config.json").write_text(json.dumps(config))
    assert command("train", "--resume", run).code == 0
    equal(run)


@pytest.mark.parametrize("value", ["[]", "5", '{"algorithm": "dqn"}', '{"spec": {}}'])
def test_a_config_of_other_types_is_refused(command: Command, run: Path, value: str) -> None:
    (run / "config.json").write_text(value)
    for name in ("train --resume", "evaluate", "analyze", "play"):
        before = contents(run)
        result = command(*name.split(), run)
        assert result.code == 2, name
        assert "Traceback" not in result.err
        assert str(run) in result.err
        assert contents(run) == before


@pytest.mark.parametrize("section", ["train", "net", "algo", "remedies"])
@pytest.mark.parametrize("value", [[], 5, "x", None, {"width": "x"}, {"steps": [1]}])
def test_a_section_of_settings_of_other_types_is_refused(
    command: Command, run: Path, section: str, value: Any
) -> None:
    config = json.loads((run / "config.json").read_text())
    config["spec"][section] = value
    (run / "config.json").write_text(json.dumps(config))
    refused(command, run, "")


def test_a_manifest_names_the_files_of_a_checkpoint_only(
    command: Command, run: Path, equal: Callable[[Path], None]
) -> None:
    path = run / "checkpoints" / "step-000000000200"
    (path / "manifest.json").write_text(json.dumps({"/dev/zero": "0" * 64}))
    result = command("train", "--resume", run)
    assert result.code == 0
    assert "it lists the files /dev/zero" in result.err
    equal(run)


@pytest.mark.parametrize("name", ["episodes.jsonl", "timing.jsonl", "config.json", "lock"])
def test_a_pipe_does_not_hang(command: Command, run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    refused(command, run, f"{run / name} is not a regular file")


def test_a_damaged_summary_is_written_again(
    command: Command, run: Path, equal: Callable[[Path], None]
) -> None:
    (run / "DONE").write_text("5")
    result = command("train", "--resume", run)
    assert result.code == 0
    assert "DONE is damaged" in result.err
    assert Run.open(run).done is not None
    equal(run)


def test_a_finished_run_that_lost_rows_is_refused(
    command: Command, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(folders[1], tmp_path / "run"))
    assert command("train", "--resume", run).code == 0
    (run / "episodes.jsonl").write_bytes(b"")
    refused(
        command, run, "is finished, and its rows have changed since: episodes.jsonl holds 0 of "
    )


@pytest.mark.parametrize("stream", ["eval", "kde"])
@pytest.mark.parametrize("row", [b'{"step": 3}\n', b"\xff\n", b'{"step"'])
def test_rows_that_a_finished_run_did_not_write_are_refused(
    stream: str, row: bytes, command: Command, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(folders[1], tmp_path / "run"))
    path = run / f"{stream}.jsonl"
    rows = path.read_bytes().count(b"\n") if path.exists() else 0
    with path.open("ab") as file:
        file.write(row)
    refused(command, run, f"since: {stream}.jsonl holds more than its {rows} row")
