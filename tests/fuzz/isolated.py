"""Run commands of the command line in a process that can do no harm, and see how they end.

The process can write in one folder only: elsewhere the disk is read-only to it, there is no
network, memory is bounded, and what would train in other processes ends there. A command that plays
for longer than any of the cases needs is stopped by SIGTERM, as a person would.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import inspect
import io
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

from hadamard import cli
from hadamard.envs import probe
from hadamard.envs.workers import WorkerEnvs
from hadamard.experiments.sweep.queue import Queue
from tests.support.folders import contents

HANGS = 120.0
"""Seconds after which a command counts as hanging; most take a twentieth of one."""
STEPS = 100
"""Steps of the environments after which a command is told to stop."""
MEMORY = 3 * 2**30
"""Bytes that a case may reserve."""
TOGETHER = 500
"""Cases that are run in one process."""
TRACEBACK, DIED, HUNG, STARTED = 70, 71, 72, 73
"""Ends of a case that are no exit codes; the last one is fine: other processes would work."""
PROCESSES = 32
"""Processes that a case may start."""


class Started(BaseException):
    """Runs would be trained, or games played, in other processes."""


@dataclass(frozen=True)
class Case:
    """A command, and what it must say where it refuses."""

    name: str
    words: tuple[str, ...]
    prepare: Callable[[Path], None] = lambda folder: None
    """Puts what the command reads into the folder it runs in.

    What it put there serves the next case with the same function, if nothing was changed.
    """
    names: tuple[tuple[str, ...], ...] = ()
    """A refusal contains one of the words of each of these."""
    kept: str = ""
    """A folder below the one it runs in, which a refusal leaves as it is."""
    steps: int = STEPS
    """Steps of the environments after which it is told to stop."""


@dataclass(frozen=True)
class End:
    """How a case ended."""

    code: int
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    """CPU time."""
    changed: bool = False
    """Whether the folder that is kept was changed."""


def run(cases: Iterable[Case], folder: Path, hangs: float = HANGS) -> Iterator[tuple[Case, End]]:
    """Run cases one after another; one that hangs or kills its process does not end the others."""
    cases = iter(cases)
    while left := list(islice(cases, TOGETHER)):
        yield from _run_together(left, folder, hangs)


def _run_together(cases: Sequence[Case], folder: Path, hangs: float) -> Iterator[tuple[Case, End]]:
    """Run cases in one process, and those after a lost one in another."""
    left = list(cases)
    while left:
        receiver, sender = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            code = DIED
            try:
                receiver.close()
                _work(left, folder, sender)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        sender.close()
        try:
            with receiver.makefile("rb") as lines:
                for end in _ends(lines, receiver, pid, hangs):
                    yield left.pop(0), end
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            receiver.close()


def _ends(lines: Any, receiver: socket.socket, pid: int, hangs: float) -> Iterator[End]:
    """Yield the ends of cases as they come; the last one may be that of a lost process."""
    while True:
        if not select.select([receiver], [], [], hangs)[0]:
            yield End(HUNG)
            return
        line = lines.readline()
        if not line.endswith(b"\n"):
            yield End(DIED)
            return
        if line == b"{}\n":
            return
        yield End(**json.loads(line))


def _work(cases: Sequence[Case], folder: Path, sender: socket.socket) -> None:
    _restrict(folder)
    prepared, listing = None, _listing(folder / "work")
    for case in cases:
        # Deep enough that ../.. is inside.
        place = folder / "work" / "here" / "run"
        if case.prepare is not prepared or _listing(folder / "work") != listing:
            os.chdir(folder)
            shutil.rmtree(folder / "work", ignore_errors=True)
            place.mkdir(parents=True)
            os.chdir(place)
            case.prepare(place)
            prepared, listing = case.prepare, _listing(folder / "work")
        before, began = _kept(case, place), time.process_time()
        code, out, err = _ended(case)
        seconds, changed = time.process_time() - began, _kept(case, place) != before
        end = {"code": code, "out": out, "err": err, "seconds": seconds, "changed": changed}
        sender.sendall(json.dumps(end).encode() + b"\n")
    sender.sendall(b"{}\n")


def _listing(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what is below a folder, with what changes when it is written to."""
    listing = {}
    for parent, folders, names in os.walk(folder):
        for path in (os.path.join(parent, name) for name in (*folders, *names)):
            status = os.lstat(path)
            listing[path] = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)
    return listing


def _kept(case: Case, place: Path) -> dict[str, str]:
    return contents(place / case.kept) if case.kept else {}


def _ended(case: Case) -> tuple[int, str, str]:
    """Run a command; return its exit code, its output and its messages."""
    _Steps.left, _Processes.left = case.steps, PROCESSES
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    code = TRACEBACK
    shown = warnings.showwarning
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            code = cli.main(list(case.words))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except Started:
            code = STARTED
        except BaseException:
            traceback.print_exc()
    warnings.showwarning = shown
    texts = []
    for stream in (out, err):
        stream.flush()
        buffer = stream.buffer
        assert isinstance(buffer, io.BytesIO)
        texts.append(buffer.getvalue().decode(errors="surrogateescape"))
    return code, texts[0][-20_000:], texts[1][-20_000:]


class _Steps:
    left = 0


class _Processes:
    left = 0


def _restrict(folder: Path) -> None:
    """Take from this process what could do harm."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "HOME": str(home),
        "TMPDIR": str(home),
        "COLUMNS": "160",
        "HADAMARD_COMMIT": "fuzz",
        "HADAMARD_HUMANOIDBENCH_ASSETS": str(home / "assets"),
    }
    tempfile.tempdir = str(home)
    sys.dont_write_bytecode = True
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Services of others, which start processes, write databases and print errors of their own.
    sys.modules.update(dict.fromkeys(("wandb", "trackio", "mlflow")))
    # Reading the help of every option again takes a third of a case's time, and so do processes
    # that draw. What was imported is no garbage.
    mock.patch.object(inspect, "findsource", functools.cache(inspect.findsource)).start()
    mock.patch.object(os, "sched_getaffinity", return_value={0}).start()
    gc.collect()
    gc.freeze()
    # Nothing here must outlive a power failure.
    mock.patch.object(os, "fsync", return_value=None).start()
    receive = probe.ProbeEnvs.receive

    def receiving(self: probe.ProbeEnvs) -> Any:
        _Steps.left -= 1
        if _Steps.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return receive(self)

    mock.patch.object(probe.ProbeEnvs, "receive", receiving).start()

    def started(*_: Any, **__: Any) -> Any:
        raise Started

    mock.patch.object(Queue, "run", started).start()
    mock.patch.object(WorkerEnvs, "__init__", started).start()
    sys.addaudithook(_Guard(folder))


_MOVES = ("os.rename", "os.link", "os.symlink")
_CHANGES = ("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.utime", *_MOVES)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Guard:
    """Refuses, as a read-only disk and an unplugged network would."""

    def __init__(self, folder: Path) -> None:
        self.allowed = (f"{folder}/", "/dev/null", "/dev/shm/", "/dev/full")

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self.require_inside(path)
        elif event in _CHANGES:
            # A path beside an open folder, as rmtree has them: that folder was opened before.
            if arguments[-1] in (-1, None) or not isinstance(arguments[-1], int):
                for path in arguments[: 2 if event in _MOVES else 1]:
                    self.require_inside(path)
        elif event in ("socket.connect", "socket.getaddrinfo"):
            raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
        elif event == "subprocess.Popen":
            if sys.executable in map(os.fspath, arguments[1]):
                raise Started
            self.count()
        elif event in ("os.fork", "os.posix_spawn"):
            self.count()

    def require_inside(self, path: Any) -> None:
        """Refuse a path outside of the folder."""
        if isinstance(path, int):  # an open file
            return
        text = os.path.join(os.getcwd(), os.fsdecode(path))
        full = f"{os.path.realpath(os.path.dirname(text))}/{os.path.basename(text)}"
        if not f"{os.path.normpath(full)}/".startswith(self.allowed):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fsdecode(path))

    def count(self) -> None:
        """Refuse more processes than a case may start."""
        _Processes.left -= 1
        if _Processes.left < 0:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
