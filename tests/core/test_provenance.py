"""What a run's config.json says about the code it was trained with."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from hadamard.core import provenance


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the package seems to run from."""
    module = tmp_path / "src" / "hadamard" / "core" / "provenance.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.setattr(provenance, "__file__", str(module))
    monkeypatch.delenv("HADAMARD_COMMIT", raising=False)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"]
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_named_and_whether_files_have_changed(source: Path) -> None:
    git(source, "init", "--quiet")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "-m", "all")
    commit = git(source, "rev-parse", "HEAD")
    assert provenance.commit() == commit
    (source / "notes.txt").write_text("git does not track this")
    assert provenance.commit() == commit
    (source / "src" / "hadamard" / "core" / "provenance.py").write_text("changed")
    assert provenance.commit() == f"{commit}-dirty"


def test_a_package_without_history_has_no_commit_unless_it_is_named(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert provenance.commit() is None
    monkeypatch.setenv("HADAMARD_COMMIT", "1234abc")
    assert provenance.commit() == "1234abc"


def test_versions_are_of_installed_packages_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.version

    def version(package: str) -> str:
        if package == "minatar":
            raise metadata.PackageNotFoundError(package)
        return installed(package)

    monkeypatch.setattr(metadata, "version", version)
    versions = provenance.versions()
    assert versions["torch"] == installed("torch")
    assert versions["python"].count(".") == 2
    assert "minatar" not in versions
