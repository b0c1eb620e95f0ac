"""The lock of a run's folder, and what is left where the system has no such locks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hadamard.core import lock
from hadamard.core.files import RunError
from tests.support.runs import write_run

WITHOUT_POSIX = """
import os, signal, sys
import torch, tyro  # whatever these need of POSIX is their affair
sys.modules["fcntl"] = None
for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "sched_getaffinity"):
    delattr(os, name)
for name in ("SIGHUP", "SIGALRM", "setitimer"):
    delattr(signal, name)
import hadamard, hadamard.cli
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
hadamard.hadamardize(net)
hadamard.diagnose(net, torch.randn(64, 4))
sys.exit(hadamard.cli.main(sys.argv[1:]))
"""


def without_posix(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_POSIX, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_held_folder_names_its_holder(tmp_path: Path) -> None:
    assert lock.holder(tmp_path) is None
    with lock.hold(tmp_path):
        assert lock.holder(tmp_path) == os.getpid()
        with pytest.raises(lock.InUse, match=f"in use by process {os.getpid()}"):
            lock.hold(tmp_path)
    assert lock.holder(tmp_path) is None


def test_without_locks_nothing_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SUPPORTED", False)
    with pytest.raises(RunError, match="training needs Linux or macOS.*on Windows use WSL"):
        lock.hold(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert lock.holder(tmp_path) is None


def test_without_posix_layer_diagnosis_and_report_work(tmp_path: Path) -> None:
    """Windows, as far as this system can stand in for it: the names that it lacks are removed."""
    run = write_run(tmp_path / "run", score=3.0)
    page = tmp_path / "page.html"
    done = without_posix("report", run, "-o", page)
    assert done.returncode == 0, done.stderr
    assert page.is_file()
    (run / "episodes.jsonl").rename(tmp_path / "elsewhere")
    (run / "episodes.jsonl").symlink_to(tmp_path / "elsewhere")
    done = without_posix("report", run, "-o", page)
    assert "could not be used, or not in full" in done.stderr
    assert "episodes.jsonl is a link" in page.read_text()


@pytest.mark.parametrize("command", ["train", "demo", "sweep"])
def test_without_posix_training_is_refused_at_once(command: str, tmp_path: Path) -> None:
    words = {"train": ["ppo"], "sweep": ["ppo", "--folder", tmp_path / "runs"]}
    refused = without_posix(command, *words.get(command, []))
    assert refused.returncode == 2
    assert "training needs Linux or macOS" in refused.stderr
    assert list(tmp_path.iterdir()) == []
