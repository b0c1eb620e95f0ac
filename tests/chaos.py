"""Break runs at random, and see that nothing is lost.

    python tests/chaos.py --minutes 30

A round trains a small run of one of the algorithms, which is killed, stopped and starved of disk
space at random moments, and resumed each time; in between its files are damaged. A sweep's round
kills its processes. A fault ends well in one of two ways: the run goes on, and equals the run that
was never disturbed bit for bit; or it is refused in words, and its folder stays as it was. Any
other end is a loss, and the seed of its round is printed.

The disk is filled only as root, who may mount a small one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # a process with more threads cannot be forked
sys.path.insert(0, str(Path(__file__).parents[1]))

from hadamard import cli
from hadamard.core import files, identity
from hadamard.core.config import flattened
from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED
from hadamard.training import start
from tests.support import sweep
from tests.support.folders import contents
from tests.support.resume import ALGORITHMS, STEPS, assert_same_results, assert_same_run
from tests.support.resume import words as resume_words

HANGS = 600.0
"""Seconds after which a process counts as hanging."""
CRASHED = 70
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FILE_WORK = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
"""Audit events of Python that name a file."""


def words(algorithm: str, path: Path) -> list[str]:
    """Return the command of a run, all of it in one process."""
    return resume_words(algorithm, path, **{"--train.eval-workers": 0})


class Lost(Exception):
    """A run was neither continued as if nothing had happened nor refused in words."""


# Processes


def forked(work: Callable[[], int], log: Path) -> int:
    """Do work in another process; return its exit code, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        code = CRASHED
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    deadline = time.monotonic() + HANGS
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise Lost(f"hangs; it said: {log.read_text()[-500:]}")
        time.sleep(0.002)


# Faults in a running process


def before_file_work(path: Path, count: int, act: Callable[[], None]) -> None:
    """Act before so many accesses to a run's files."""
    left = count

    def hook(event: str, arguments: Any) -> None:
        nonlocal left
        if event in FILE_WORK and str(arguments[0]).startswith(str(path)):
            left -= 1
            if left == 0:
                act()

    sys.addaudithook(hook)


def after_steps(count: int, act: Callable[[], None]) -> None:
    """Act after so many calls of the training loop."""
    one_step, left = start.Trainer.one_step, count

    def stepping(self: start.Trainer, *stopping: bool) -> Iterator[None]:
        nonlocal left
        yield from one_step(self, *stopping)
        left -= 1
        if left == 0:
            act()

    start.Trainer.one_step = stepping  # type: ignore[method-assign]


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def kill() -> None:
    send(signal.SIGKILL)


def killed_at_a_step(path: Path, chance: random.Random) -> None:
    after_steps(chance.randint(1, 250), kill)


def killed_in_file_work(path: Path, chance: random.Random) -> None:
    before_file_work(path, chance.randint(1, 150), kill)


def killed_inside_a_write(path: Path, chance: random.Random) -> None:
    """As if the power had failed: of what was not yet on the disk, a part is there."""
    sync, left, share = os.fsync, chance.randint(1, 40), chance.random()
    safe = {file.stat().st_ino: file.stat().st_size for file in path.rglob("*")}

    def syncing(descriptor: int) -> None:
        nonlocal left
        left -= 1
        status = os.fstat(descriptor)
        if left == 0:
            begin = min(safe.get(status.st_ino, 0), status.st_size)
            with suppress(OSError):  # a folder
                os.ftruncate(descriptor, begin + int(share * (status.st_size - begin)))
            kill()
        sync(descriptor)
        safe[status.st_ino] = status.st_size

    os.fsync = syncing


def killed_at_any_time(path: Path, chance: random.Random) -> None:
    timer = threading.Timer(chance.uniform(0, 1.5), kill)
    timer.daemon = True
    timer.start()


def stopped_at_a_step(path: Path, chance: random.Random) -> None:
    number = chance.choice(STOPS)
    after_steps(chance.randint(1, 250), lambda: send(number))


def stopped_in_file_work(path: Path, chance: random.Random) -> None:
    number = chance.choice(STOPS)
    before_file_work(path, chance.randint(1, 150), lambda: send(number))


def clock_jumped(path: Path, chance: random.Random) -> None:
    """The time of day is years off, and so are the files' times."""
    now, seconds = time.time, chance.uniform(-1, 1) * 10 * 365 * 86_400
    time.time = lambda: now() + seconds
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (now() - seconds, now() - seconds))


def disk_full(path: Path, chance: random.Random) -> None:
    filler, room = path.parent / "filler", chance.choice((0, 4_096, 50_000, 200_000))

    def fill() -> None:
        disk = os.statvfs(path.parent)
        with suppress(OSError), open(filler, "wb") as file:
            file.write(bytes(max(disk.f_bavail * disk.f_frsize - room, 0)))

    after_steps(chance.randint(1, 200), fill)


IN_A_PROCESS = [
    killed_at_a_step,
    killed_in_file_work,
    killed_inside_a_write,
    killed_at_any_time,
    stopped_at_a_step,
    stopped_in_file_work,
    clock_jumped,
    disk_full,
]

# Damage to a folder at rest


def some_file(path: Path, chance: random.Random) -> Path:
    return chance.choice([file for file in sorted(path.rglob("*")) if files.is_file(file)])


def bit_flipped(path: Path, chance: random.Random) -> str:
    file = some_file(path, chance)
    data = bytearray(file.read_bytes() or b"\0")
    place = chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    return f"byte {place} of {file}"


def truncated(path: Path, chance: random.Random) -> str:
    file = some_file(path, chance)
    size = int(chance.random() * file.stat().st_size)
    os.truncate(file, size)
    return f"{file} to {size} bytes"


def deleted(path: Path, chance: random.Random) -> str:
    entry = chance.choice(sorted(path.rglob("*")))
    shutil.rmtree(entry) if files.is_folder(entry) else entry.unlink()
    return str(entry)


def replaced(path: Path, chance: random.Random) -> str:
    file = some_file(path, chance)
    kind = chance.choice(["noise", "other", "link", "device", "pipe", "folder", "[]", "5", "null"])
    other = some_file(path, chance).read_bytes()
    file.unlink()
    if kind == "link":
        file.symlink_to(path.parent / "precious")
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        noise = chance.randbytes(chance.randrange(10_000))
        file.write_bytes({"noise": noise, "other": other}.get(kind, kind.encode()))
    return f"{file} by {kind}"


def rows_changed(path: Path, chance: random.Random) -> str:
    """Rows that come twice, are missing in the middle or follow that nobody wrote."""
    file = chance.choice(sorted(path.glob("*.jsonl")))
    lines = file.read_bytes().splitlines(keepends=True)
    place = chance.randrange(len(lines) + 1)
    kind = chance.choice(["twice", "missing", "added"])
    if kind == "twice":
        lines[place:place] = lines[:place][-3:]
    elif kind == "missing":
        del lines[place : place + 3]
    else:
        lines.append(chance.choice([b'{"step": 3}\n', b"\xff\n", b'{"step"', b"[]\n"]))
    file.write_bytes(b"".join(lines))
    return f"{kind} at line {place} of {file}"


AT_REST = [bit_flipped, truncated, deleted, replaced, rows_changed]


# Rounds


def is_edited(path: Path, before: Path) -> bool:
    """Tell whether damage left a setting that its owner may edit, with another value."""
    settings = [flattened(Run(folder).config["spec"]) for folder in (path, before)]
    return any(settings[0].get(name) != settings[1].get(name) for name in identity.ADJUSTABLE)


def descendants(pid: int) -> list[int]:
    """Return a process and all that it started."""
    processes = [pid]
    for process in processes:
        with suppress(OSError):
            children = Path(f"/proc/{process}/task/{process}/children").read_text()
            processes += map(int, children.split())
    return processes


class Chaos:
    """Rounds of faults in one folder, and how they ended."""

    def __init__(self, folder: Path, *, fills_disks: bool) -> None:
        self.folder, self.log = folder, folder / "log"
        self.went_on: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.edits: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.losses: list[str] = []
        self.in_a_process = [
            fault for fault in IN_A_PROCESS if fills_disks or fault is not disk_full
        ]
        self.undisturbed = {name: self.folder / f"whole-{name}" for name in ALGORITHMS}

    @property
    def count(self) -> int:
        """How many faults there were."""
        return sum(map(Counter.total, self._ends.values()))

    @property
    def _ends(self) -> dict[str, Counter[str]]:
        return {
            "went on, equal": self.went_on,
            "refused, unchanged": self.refused,
            "an edited setting": self.edits,
            "lost": self.lost,
        }

    def counts(self) -> dict[str, dict[str, int]]:
        """Return how often each fault came to each end."""
        names = sorted(set().union(*self._ends.values()))
        return {name: {end: self._ends[end][name] for end in self._ends} for name in names}

    def table(self) -> str:
        """Return the counts as a table in Markdown."""
        lines = [f"| fault | times | {' | '.join(self._ends)} |", "|---|" + "---:|" * 5]
        for name, counts in self.counts().items():
            cells = [name.replace("_", " "), sum(counts.values()), *counts.values()]
            lines.append(f"| {' | '.join(map(str, cells))} |")
        totals = [self.count, *map(Counter.total, self._ends.values())]
        lines.append(f"| all | {' | '.join(map(str, totals))} |")
        return "\n".join(lines)

    def whole(self, algorithm: str) -> Path:
        """Return the undisturbed run of an algorithm."""
        path = self.undisturbed[algorithm]
        if not path.exists() and forked(lambda: cli.main(words(algorithm, path)), self.log):
            raise SystemExit(f"the undisturbed run of {algorithm} failed: {self.log.read_text()}")
        return path

    def round(self, seed: str) -> None:
        """Train one run through faults to its end."""
        chance = random.Random(seed)
        algorithm = chance.choice(ALGORITHMS)
        whole, path = self.whole(algorithm), self.folder / "run"
        faults: list[str] = []
        finished = False
        try:
            while not finished:
                if Run(path).exists and chance.random() < 0.5:
                    self._damage(path, whole, chance)
                fault = chance.choice(self.in_a_process)
                # Most rounds see several faults, and each comes to its end.
                if len(faults) < 6:
                    finished = self._live(algorithm, path, fault, chance, faults)
                else:
                    finished = self._live(algorithm, path, None, chance, faults)
            self._compare(path, whole)
            self._damage(path, whole, chance, finished=True)
        except Lost as loss:
            self.lost.update(faults or ["damage"])
            self.losses.append(f"round {seed} ({algorithm}; {', '.join(faults)}): {loss}")
        else:
            self.went_on.update(faults)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _live(
        self,
        algorithm: str,
        path: Path,
        fault: Callable[[Path, random.Random], None] | None,
        chance: random.Random,
        faults: list[str],
    ) -> bool:
        """Let a run live until a fault ends it; tell whether it finished."""
        resume = ["train", "--resume", str(path)]
        command = resume if Run(path).exists else words(algorithm, path)

        def life() -> int:
            if fault is not None:
                fault(path, chance)
            return cli.main(command)

        code = forked(life, self.log)
        said = self.log.read_text(errors="replace")
        chance.random()  # only the other process drew the fault's numbers
        (path.parent / "filler").unlink(missing_ok=True)
        ends = [0, -signal.SIGKILL, INTERRUPTED, *(128 + number for number in STOPS)]
        full = fault is disk_full and code == 1 and "no space left" in said
        if (code not in ends and not full) or "Traceback" in said:
            raise Lost(f"ended with {code}, and said: {said[-1_500:]}")
        if fault is not None and (code != 0 or fault is clock_jumped):
            faults.append(fault.__name__)
        return code == 0

    def _damage(
        self, path: Path, whole: Path, chance: random.Random, *, finished: bool = False
    ) -> None:
        """Damage a copy of the run, which must be refused or end like the undisturbed one."""
        backup = self.folder / "backup"
        os.rename(path, backup)
        shutil.copytree(backup, path, symlinks=True)
        fault = chance.choice(AT_REST)
        what = fault(path, chance)
        before = contents(path)
        try:
            code = forked(lambda: cli.main(["train", "--resume", str(path)]), self.log)
            said = self.log.read_text(errors="replace")
            if code not in (0, 2) or "Traceback" in said:
                raise Lost(f"ended with {code}, and said: {said[-1_500:]}")
            if (self.folder / "precious").exists():
                raise Lost("wrote through a link")
            if code == 2:
                if contents(path) != before:
                    raise Lost("refused, and the folder was changed")
                self.refused[fault.__name__] += 1
            elif is_edited(path, backup):
                self.edits[fault.__name__] += 1
            else:
                self._compare(path, whole, finished=finished)
                self.went_on[fault.__name__] += 1
        except Lost as loss:
            self.lost[fault.__name__] += 1
            self.losses.append(f"{fault.__name__}, {what}: {loss}")
        finally:
            shutil.rmtree(path)
            os.rename(backup, path)

    def _compare(self, path: Path, whole: Path, *, finished: bool = False) -> None:
        """Compare two runs; the checkpoints of a finished run are not needed any more."""

        def compare() -> int:
            (assert_same_results if finished else assert_same_run)(path, whole)
            return 0

        if forked(compare, self.log):
            raise Lost(f"another run than the undisturbed one: {self.log.read_text()[-1_500:]}")

    def sweep_round(self, seed: str, launcher: str) -> None:
        """Kill the processes of a sweep twice; the same command continues it."""
        chance, folder = random.Random(seed), self.folder / "sweep"
        options = {"ray": ["--launcher", "ray"]}.get(launcher, ["--jobs", "2"])
        command = [sys.executable, "-m", "hadamard", "sweep"]
        command += sweep.sweep_words(folder, *options, steps=STEPS)
        fault = f"{launcher} sweep: a process killed"
        try:
            for _ in range(2):
                with open(self.log, "w") as log:
                    process = subprocess.Popen(command, stdout=log, stderr=log)
                time.sleep(chance.uniform(0, 12))
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(descendants(process.pid)), signal.SIGKILL)
                time.sleep(chance.uniform(0, 2))
                process.kill()
                process.wait()
            with open(self.log, "w") as log:
                code = subprocess.run(
                    command, stdout=log, stderr=log, timeout=HANGS, check=False
                ).returncode
            if code:
                raise Lost(f"ended with {code}, and said: {self.log.read_text()[-1_500:]}")
            for job in sweep.jobs_in(folder):
                whole = self.folder / f"whole-{job.name}"
                if not whole.exists():
                    self._train_whole(job.path, whole)
                self._compare_streams(job.path, whole)
        except Lost as loss:
            self.lost[fault] += 2
            self.losses.append(f"round {seed} ({launcher} sweep): {loss}")
        else:
            self.went_on[fault] += 2
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _train_whole(self, path: Path, whole: Path) -> None:
        _, _, spec = start.open_run(str(path))

        def work() -> int:
            start.train("dqn", replace(spec, run_dir=str(whole)))
            return 0

        if forked(work, self.log):
            raise SystemExit(f"the undisturbed run failed: {self.log.read_text()}")

    def _compare_streams(self, path: Path, whole: Path) -> None:
        if sweep.stream_contents(path) != sweep.stream_contents(whole):
            raise Lost(f"{path.name} is another run than the undisturbed one")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, help="how long to go on; default 10")
    parser.add_argument("--faults", type=int, help="how many faults, instead of minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sweeps", type=float, default=0.02, help="share of rounds with a sweep")
    parser.add_argument("--rays", type=float, default=0.01, help="share of rounds with a Ray sweep")
    parser.add_argument("--output", type=Path, help="write the counts there, as JSON")
    options = parser.parse_args()
    begun = time.monotonic()

    def done(count: int) -> float:
        if options.faults is not None:
            return count / options.faults
        return (time.monotonic() - begun) / (60 * (options.minutes or 10))

    with place() as (folder, fills_disks):
        chaos = Chaos(folder, fills_disks=fills_disks)
        number = 0
        while done(chaos.count) < 1:
            seed = f"{options.seed}/{number}"
            kind = random.Random(seed).random()
            if kind < options.rays:
                chaos.sweep_round(seed, "ray")
            elif kind < options.rays + options.sweeps:
                chaos.sweep_round(seed, "local")
            else:
                chaos.round(seed)
            number += 1
            if sys.stderr.isatty():
                print(f"\r{chaos.count} faults, {number} rounds", end="", file=sys.stderr)
    print(chaos.table())
    print(f"{number} rounds from seed {options.seed}, {time.monotonic() - begun:.0f} seconds")
    for loss in chaos.losses:
        print(f"\nLOST in {loss}")
    if options.output:
        options.output.write_text(json.dumps(chaos.counts(), indent=2) + "\n")
    return 1 if chaos.losses else 0


@contextmanager
def place() -> Iterator[tuple[Path, bool]]:
    """Make a folder for the runs, as root on a disk of its own that can be filled."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-")).resolve()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200m", "none", str(folder)]
    try:
        mounted = not subprocess.run(mount, capture_output=True, check=False).returncode
    except FileNotFoundError:
        mounted = False
    try:
        yield folder, mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
