"""HumanoidBench's model files: downloaded, checked and repaired."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hadamard import cli
from hadamard import envs as suites
from hadamard.envs import humanoid_assets as assets
from hadamard.envs import make
from hadamard.envs.humanoid_tasks import TASKS
from tests.support.humanoid import needs_models

CONTENTS = {
    "LICENSE": b"do what you want",
    "envs/robot.xml": b"<mujoco/>" * 100,
    "robots/leg.stl": bytes(range(256)) * 1_000,
}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the list of files by three small ones, with an empty cache; return their folder."""
    for path, data in CONTENTS.items():
        (tmp_path / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / path).write_bytes(data)
    manifest = tuple(
        assets.Asset(hashlib.sha256(data).hexdigest(), len(data), path)
        for path, data in CONTENTS.items()
    )
    monkeypatch.setattr(assets, "manifest", lambda: manifest)
    monkeypatch.setattr(assets, "PAUSES", (0.0, 0.0))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(assets.VARIABLE, raising=False)
    return tmp_path / "source"


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; ``faults`` lists the failures of the next requests for each path."""

    def __init__(
        self, *args: Any, faults: dict[str, list[str]], requested: list[str], **options: Any
    ):
        self.faults, self.requested = faults, requested
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        self.requested.append(self.path)
        faults = self.faults.get(self.path, [])
        fault = faults.pop(0) if faults else ""
        if fault.isdigit():
            self.send_error(int(fault))
            return
        if not fault:
            super().do_GET()
            return
        data = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == "corrupted":
            self.wfile.write(data[:-1] + b"?")
        elif fault == "truncated":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        else:
            raise AssertionError(fault)

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def serve(folder: Path, faults: dict[str, list[str]], requested: list[str]) -> Iterator[str]:
    handler = functools.partial(Server, directory=str(folder), faults=faults, requested=requested)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@needs_models
def test_the_list_matches_the_real_files() -> None:
    assert len(assets.manifest()) == 55
    assert [asset.path for asset in assets.manifest()] == sorted(a.path for a in assets.manifest())
    assert assets.check() == []
    models = {f"envs/h1_pos_{name.replace('-', '_')}.xml" for name in TASKS}
    assert models == {a.path for a in assets.manifest() if a.path.startswith("envs/")}


def test_the_source_is_the_public_repository() -> None:
    assert assets.SOURCE.startswith("https://raw.githubusercontent.com/carlosferrazza/humanoid-b")
    assert len(assets.COMMIT) == 40
    assert f"/{assets.COMMIT}/humanoid_bench/assets" in assets.SOURCE


def test_download_from_a_folder(source: Path) -> None:
    with pytest.raises(assets.AssetsError, match=r"robot.xml is missing.*hadamard assets human"):
        assets.locate()
    reports: list[tuple[int, int]] = []
    root = assets.download(str(source), lambda present, total: reports.append((present, total)))
    assert contents(root) == CONTENTS
    assert assets.locate() == root == assets.folder()
    assert root.name == assets.COMMIT
    assert assets.check() == []
    assert reports[-1] == (sum(map(len, CONTENTS.values())),) * 2
    assert len(reports) == 3
    # A file:// URL names a folder too, and files already there are not fetched again.
    (source / "robots/leg.stl").unlink()
    assert assets.download(source.as_uri()) == root
    (root / "envs/robot.xml").unlink()
    assets.download(source.as_uri() + "/")
    assert contents(root) == CONTENTS


def test_download_from_a_clone(source: Path, tmp_path: Path) -> None:
    # In a clone, the license is at the top.
    inside = tmp_path / "clone" / "humanoid_bench" / "assets"
    shutil.copytree(source, inside)
    (inside / "LICENSE").rename(tmp_path / "clone" / "LICENSE")
    assert contents(assets.download(str(inside))) == CONTENTS


def test_damage_is_found_and_repaired(source: Path) -> None:
    root = assets.download(str(source))
    leg = root / "robots/leg.stl"
    leg.write_bytes(CONTENTS["robots/leg.stl"][:-5])
    with pytest.raises(assets.AssetsError, match=r"leg.stl is damaged: it has 255,995 bytes inst"):
        assets.locate()
    # Only the thorough check sees this.
    leg.write_bytes(b"?" + CONTENTS["robots/leg.stl"][1:])
    assets.locate()
    assert assets.check() == [f"{leg} is damaged: its SHA-256 is wrong"]
    assets.download(str(source))
    assert assets.check() == []
    # The license is not needed to make environments.
    (root / "LICENSE").unlink()
    assets.locate()
    assert assets.check() == [f"{root / 'LICENSE'} is missing"]


def test_the_variable_names_the_folder(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(assets.VARIABLE, str(source))
    assert assets.locate() == source
    assert suites.trouble("humanoid") is None
    monkeypatch.setenv(assets.VARIABLE, str(source / "nowhere"))
    with pytest.raises(assets.AssetsError, match=rf"nowhere/envs/robot.xml is.*{assets.VARIABLE}"):
        assets.locate()
    assert cli.main(["envs"]) == 0
    assert "nowhere/envs/robot.xml is missing" in capsys.readouterr().out


@pytest.mark.parametrize("fault", ["corrupted", "truncated", "500", "429"])
def test_a_temporary_fault_is_retried(source: Path, fault: str) -> None:
    faults, requested = {"/envs/robot.xml": [fault, fault]}, list[str]()
    with serve(source, faults, requested) as url:
        root = assets.download(url)
    assert contents(root) == CONTENTS
    assert requested == ["/LICENSE", *["/envs/robot.xml"] * 3, "/robots/leg.stl"]


@pytest.mark.parametrize(
    ("fault", "message", "requests"),
    [
        ("corrupted", "leg.stl arrived damaged: its SHA-256 is wrong", 3),
        ("truncated", "leg.stl arrived damaged", 3),
        ("503", "leg.stl cannot be read: HTTP Error 503", 3),
        ("404", "leg.stl cannot be read: HTTP Error 404", 1),
    ],
)
def test_an_interrupted_download_continues(
    source: Path, fault: str, message: str, requests: int
) -> None:
    faults, requested = {"/robots/leg.stl": [fault] * requests}, list[str]()
    with serve(source, faults, requested) as url:
        with pytest.raises(assets.AssetsError, match=rf"{message}.*stay: continue.*--source"):
            assets.download(url)
        assert requested.count("/robots/leg.stl") == requests
        # Complete files stay, and there are no others.
        complete = {path: CONTENTS[path] for path in ("LICENSE", "envs/robot.xml")}
        assert contents(assets.folder()) == complete
        requested.clear()
        assert contents(assets.download(url)) == CONTENTS
    assert requested == ["/robots/leg.stl"]


def test_a_dead_server_and_wrong_sources(source: Path) -> None:
    with serve(source, {}, []) as url:
        pass
    with pytest.raises(assets.AssetsError, match="LICENSE cannot be read.*refused"):
        assets.download(url)
    with pytest.raises(assets.AssetsError, match="nowhere is neither a folder nor an http"):
        assets.download(str(source / "nowhere"))
    with pytest.raises(assets.AssetsError, match="LICENSE cannot be read.*No such file"):
        assets.download((source / "nowhere").as_uri())


def test_a_full_disk_is_not_retried(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        assets.download(str(source))
    assert contents(assets.folder()) == {}


def test_the_command(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        code = cli.main(["assets", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    code, out, _ = run()
    assert code == 0
    assert "3 missing or damaged" in out
    code, _, err = run("humanoidbench", "--check")
    assert code == 1
    assert (
        "LICENSE is missing (2 more damaged or missing files). Fetch them with: hadamard assets"
        in err
    )
    code, out, _ = run("humanoidbench", "--source", str(source))
    assert code == 0
    assert f"3 files, 0.3 MB, all verified, in {assets.folder()}" in out
    assert "\r" not in out
    code, out, _ = run("humanoidbench", "--check")
    assert (code, out.count("\n")) == (0, 1)
    assert "all present" in run()[1]
    code, _, err = run("humanoidbnch")
    assert code == 2
    assert "did you mean 'humanoidbench'" in err


def test_a_terminal_shows_the_progress(
    source: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    cli.main(["assets", "humanoidbench", "--source", str(source)])
    lines = capsys.readouterr().out.splitlines(keepends=True)
    assert lines[1:4] == ["\r", "0.0 of 0.3 MB\r", "0.0 of 0.3 MB\r"]
    assert lines[4] == "0.3 of 0.3 MB\n"


def test_missing_files_are_named_when_environments_are_made(source: Path) -> None:
    if suites.missing("humanoid"):
        pytest.skip("needs the humanoid extra")
    for workers in (0, 2):  # in the main process, not in a worker
        with pytest.raises(
            assets.AssetsError, match=r"robot.xml is missing.*hadamard assets human"
        ):
            make("humanoid/h1-walk", 0, 2, workers=workers)
    assert suites.install_command("humanoid").endswith("&& hadamard assets humanoidbench")
