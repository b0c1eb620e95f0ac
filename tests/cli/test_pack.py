"""The command that packs runs: what it writes, replaces and refuses."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import pack
from tests.support.runs import write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.packed import read_packed
from hadamard.report.data.runs import load


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", seed=1, score=[1.0], finished=False)
    trained = write_run(tmp_path / "runs" / "c", seed=2, score=[1.0, 1.0], finished=False)
    output = tmp_path / "results"
    with open(trained / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert pack(tmp_path / "runs", "-o", output) == 0
        message = capsys.readouterr().out
        assert "unfinished, 10% of its steps" in message
        assert "being trained, 20% of its steps" in message
        assert "3 of 3 runs written to" in message
        assert pack(tmp_path / "runs", "-o", tmp_path / "none", "--finished") == 2
        message = capsys.readouterr().err
        assert "2 of 3 runs are not finished, so none is packed" in message
        assert not (tmp_path / "none").exists()
    size = sum(path.stat().st_size for path in output.iterdir())
    before = {path: path.stat().st_mtime_ns for path in output.iterdir()}
    assert pack(tmp_path / "runs", "-o", output) == 0
    message = capsys.readouterr().out
    assert message.count("unchanged") == 3
    assert f"0 of 3 runs written to {output}, {size / 1000:.1f} KB in all" in message
    assert before == {path: path.stat().st_mtime_ns for path in output.iterdir()}
    assert pack(output, "-o", tmp_path / "again") == 0
    assert "is packed already: left as it is" in capsys.readouterr().out


def test_other_content_is_replaced_only_by_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "a", score=1.0)
    write_run(tmp_path / "new", seed=1)
    output = tmp_path / "results"
    assert pack(run, "-o", output) == 0
    target = output / "a.hrun"
    old = target.read_bytes()
    with open(run / "episodes.jsonl", "a") as file:
        file.write('{"step": 1000, "score": 50.0}\n')
    assert pack(tmp_path / "new", run, "-o", output) == 2
    assert f"{target} already exists with other content" in capsys.readouterr().err
    assert [*output.iterdir()] == [target]  # nothing was written
    assert target.read_bytes() == old
    assert pack(run, "-o", output, "--force") == 0
    assert load([target])[0].final("score") == pytest.approx(60 / 11)
    target.write_bytes(old[:50])
    assert pack(run, "-o", output) == 2
    assert pack(run, "-o", output, "--force") == 0
    assert read_packed(target)["name"] == "a"


def test_links_are_not_written_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "a")
    output = tmp_path / "results"
    output.mkdir()
    mine = tmp_path / "mine"
    mine.write_text("kept")
    (output / "a.hrun").symlink_to(mine)
    assert pack(run, "-o", output, "--force") == 2
    assert "a.hrun is a link or not a file: remove it" in capsys.readouterr().err
    (output / "a.hrun").unlink()
    (output / ".a.hrun.part").symlink_to(mine)
    assert pack(run, "-o", output) == 0
    assert mine.read_text() == "kept"
    assert [path.name for path in output.iterdir()] == ["a.hrun"]


def test_what_cannot_be_packed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write_run(tmp_path / "x" / "same")
    second = write_run(tmp_path / "y" / "same", seed=1)
    write_run(tmp_path / "z", seed=2)

    def refused(*words: str | Path) -> str:
        assert pack(*words) == 2
        return capsys.readouterr().err

    message = refused(tmp_path / "x", tmp_path / "y", "-o", tmp_path / "out")
    assert f"{first} and {second} would both become same.hrun" in message
    assert "lies inside the run" in refused(first, "-o", tmp_path / "z" / "checkpoints")
    assert "lies inside the run" in refused(first, "-o", tmp_path / "z")
    (tmp_path / "file").write_text("")
    assert "is a file: name a folder" in refused(first, "-o", tmp_path / "file")
    assert "holds no run" in refused(tmp_path / "file", "-o", tmp_path / "out")
    assert "there is no such folder" in refused(tmp_path / "nowhere", "-o", tmp_path / "out")
    assert "nothing to pack" in refused("-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_packing_needs_no_torch(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    script = (
        "import sys; from hadamard.cli import main; "
        f"code = main(['pack', {str(run)!r}, '-o', {str(tmp_path / 'out')!r}]); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert (tmp_path / "out" / "a.hrun").is_file()
