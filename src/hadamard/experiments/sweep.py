"""Many runs: what state each is in, a queue that makes them here, and a live view of all.

A run's folder (with its log and a note if it was given up, beside it) is all a sweep remembers:
a sweep that is started again skips what is finished and goes on with the rest.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from hadamard.core.config import to_dict
from hadamard.core.run import PROTOCOL, Run, RunError, differences
from hadamard.core.stopping import stop_signals
from hadamard.experiments.grid import Job
from hadamard.experiments.single import INTERRUPTED, RETRIES, Outcome, Supervisor, holder
from hadamard.progress import duration

State = Literal["absent", "running", "interrupted", "finished", "failed"]
#: What may differ between two starts of one run.
_BOOKKEEPING = ("run_dir", "device", "train.until")
_LINES_EVERY = 30.0


@dataclass(frozen=True)
class Slurm:
    """What a Slurm job asks for."""

    partition: str | None = None
    """Partition; by default the cluster's."""
    minutes: int = 24 * 60
    """Time limit of a job; a run that is longer is saved before it and queued again."""
    cpus: int = 1
    """Cores of a run."""
    gpus: int = 0
    """GPUs of a run."""
    memory_gb: float | None = None
    """Memory of a run."""
    account: str | None = None
    """Account that is charged."""


@dataclass(frozen=True)
class Options:
    """How runs are made."""

    launcher: Literal["local", "ray", "slurm"] = "local"
    """local: a queue on this machine; ray: tasks on a Ray cluster; slurm: a job array."""
    jobs: int | None = None
    """Runs at a time; by default one a core, or --per-gpu on each GPU.
    ray, slurm: as many as the cluster has room for."""
    per_gpu: int = 1
    """Runs that share a GPU."""
    threads: int = 1
    """CPU threads of a run."""
    retries: int = RETRIES
    """Times a failed run is tried again, from its last checkpoint."""
    address: str | None = None
    """Ray: the cluster, as host:port, ray://host:port or auto; by default one is started here."""
    timeout: float = 20.0
    """Ray: seconds in which the cluster must answer."""
    slurm: Slurm = field(default_factory=Slurm)
    """Slurm: what a job asks for."""

    def check(self) -> None:
        """Refuse what no sweep can be made with."""
        for name in ("jobs", "per_gpu", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
        if self.retries < 0:
            raise ValueError(f"--retries must not be negative, got {self.retries}")
        if self.address is not None and self.launcher != "ray":
            raise ValueError("--address is a Ray cluster's: say --launcher ray too")


@dataclass(frozen=True)
class Summary:
    """How a sweep ended; jobs that another launcher has in hand are in no list but ``pending``."""

    finished: tuple[Job, ...] = ()
    failed: tuple[Outcome, ...] = ()
    interrupted: tuple[Job, ...] = ()
    unbegun: tuple[Job, ...] = ()
    """The sweep was stopped before these."""
    pending: tuple[Job, ...] = ()
    remedy: str = "the same command goes on"

    @property
    def code(self) -> int:
        """The exit code."""
        return 1 if self.failed else INTERRUPTED if self.interrupted or self.unbegun else 0

    def __str__(self) -> str:
        lines = []
        for outcome in self.failed:
            times = f" after {outcome.attempts} attempt{'s' if outcome.attempts != 1 else ''}"
            times = times if outcome.attempts else ""
            lines.append(f"\n{outcome.job.name} failed{times}; {outcome.job.log} ends:")
            lines += [f"  {line}" for line in outcome.tail.splitlines()]
        lines += [""] if lines else []
        counts = {"finished": self.finished, "failed": self.failed}
        counts |= {"stopped and saved": self.interrupted, "not begun": self.unbegun}
        counts |= {"in the queue": self.pending}
        told = ", ".join(f"{len(jobs)} {word}" for word, jobs in counts.items() if jobs)
        again = f"; {self.remedy}" if self.code else ""
        return "\n".join([*lines, f"{told or 'nothing to do'}{again}"])


def state(job: Job) -> State:
    """Tell from a run's folder what state it is in."""
    if job.finished:
        return "finished"
    if holder(job.path) is not None:
        return "running"
    if job.failure.exists():
        return "failed"
    return "interrupted" if (job.path / "config.json").exists() else "absent"


def launch(jobs: Sequence[Job], options: Options | None = None) -> Summary:
    """Make all runs that are not finished, and show how they come along."""
    options = options or Options()
    options.check()
    check(jobs)
    if options.launcher == "ray":
        from hadamard.experiments.ray_sweep import launch_ray

        return launch_ray(jobs, options)
    if options.launcher == "slurm":
        from hadamard.experiments.slurm_sweep import launch_slurm

        return launch_slurm(jobs, options)
    queue = Queue(jobs, slots(jobs, options), options.retries)
    return queue.run(live_view)


def check(jobs: Sequence[Job]) -> None:
    """Refuse two jobs in one folder, and folders with a run of other settings."""
    paths = Counter(job.path.resolve() for job in jobs)
    for path, count in paths.items():
        if count > 1:
            raise ValueError(f"{count} jobs would write to one run folder, {path}")
    for job in jobs:
        if not (job.path / "config.json").exists():
            continue
        run = Run(job.path)
        config = run.config
        there = _comparable(config.get("algorithm"), config.get("spec", {}))
        asked = _comparable(job.algorithm, json.loads(json.dumps(to_dict(job.spec))))
        # What a run does not know was added since, and is at its default.
        changed = differences(there, _known(asked, there))
        if changed:
            raise RunError(
                "\n".join([f"{job.path} holds a run with other settings:", *changed])
                + "\nChoose another folder, or remove the run."
            )
        if run.protocol != PROTOCOL:
            raise RunError(
                f"{job.path} holds a run of protocol {run.protocol}, and this version trains "
                f"under {PROTOCOL}: choose another folder, or remove the run"
            )


def _comparable(algorithm: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        key: {name: inner for name, inner in value.items() if f"{key}.{name}" not in _BOOKKEEPING}
        if isinstance(value, Mapping)
        else value
        for key, value in spec.items()
        if key not in _BOOKKEEPING
    }
    return {"algorithm": algorithm, **kept}


def _known(asked: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _known(value, there[key])
        if isinstance(value, Mapping) and isinstance(there[key], Mapping)
        else value
        for key, value in asked.items()
        if key in there
    }


def slots(jobs: Sequence[Job], options: Options) -> list[dict[str, str]]:
    """Return the environment variables of each place in which a run can be made at a time."""
    shared = thread_variables(options.threads)
    devices = {job.spec.device for job in jobs}
    if devices <= {"cpu"}:
        count = options.jobs or max(cores() // options.threads, 1)
        return [{**shared, "CUDA_VISIBLE_DEVICES": ""}] * count
    found = gpus()
    if not found or any(":" in device for device in devices):  # the jobs name their GPUs
        return [shared] * (options.jobs or max(cores() // options.threads, 1))
    count = options.jobs or len(found) * options.per_gpu
    return [{**shared, "CUDA_VISIBLE_DEVICES": found[i % len(found)]} for i in range(count)]


def thread_variables(threads: int) -> dict[str, str]:
    """Return the variables that keep a process to some threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    named = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    return named[:count] if named else [str(i) for i in range(count)]


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):  # where the system tells
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Queue:
    """Makes runs on this machine, as many at a time as there are slots.

    Every run is a process of its own. If this process is killed they go on, and the next queue
    waits for them where it would have started them.
    """

    def __init__(
        self, jobs: Sequence[Job], places: Sequence[Mapping[str, str]], retries: int = RETRIES
    ) -> None:
        self.jobs, self.places, self.retries = list(jobs), list(places), retries
        self.outcomes: dict[Path, Outcome] = {}
        self.active: dict[Path, Supervisor] = {}
        self.waiting: deque[Job] = deque()
        self._guard = threading.Lock()
        self._stopping = False
        for job in self.jobs:
            if job.finished:
                self.outcomes[job.path] = Outcome(job, "finished")
            else:
                self.waiting.append(job)

    def run(self, view: View) -> Summary:
        """Make all runs; SIGINT and SIGTERM have them save and end, a second SIGINT kills them."""
        workers = [
            threading.Thread(target=self._work, args=(place,), daemon=True) for place in self.places
        ]
        with stop_signals() as stopping, view(self) as show:
            try:
                for worker in workers:
                    worker.start()
                while any(worker.is_alive() for worker in workers):
                    if stopping() and not self._stopping:
                        self.stop()
                        print("stopping: the runs save", file=sys.stderr, flush=True)
                    show()
                    time.sleep(0.2)
                show()
            except BaseException:
                self.stop(signal.SIGKILL)
                for worker in workers:
                    worker.join()
                raise
        return self.summary()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Start nothing more, and ask the runs to save and end."""
        with self._guard:
            self._stopping = True
            active = list(self.active.values())
        for supervisor in active:
            supervisor.stop(number)

    def status(self, job: Job) -> tuple[str, int]:
        """Return a job's state, and which attempt it is at."""
        with self._guard:
            if (outcome := self.outcomes.get(job.path)) is not None:
                return outcome.state, outcome.attempts
            if (supervisor := self.active.get(job.path)) is not None:
                return "running", supervisor.attempt
        return "waiting", 0

    def summary(self) -> Summary:
        """Return how it all ended."""
        return summarise(self.jobs, self.outcomes)

    def _work(self, place: Mapping[str, str]) -> None:
        while True:
            with self._guard:
                if self._stopping or not self.waiting:
                    return
                job = self.waiting.popleft()
                supervisor = self.active[job.path] = Supervisor(job, place, self.retries)
            try:
                outcome = supervisor.run()
            except Exception as error:  # such as a disk that is full: the other runs go on
                outcome = Outcome(job, "failed", supervisor.attempt, f"{error}")
            with self._guard:
                self.outcomes[job.path] = outcome
                del self.active[job.path]


def summarise(jobs: Sequence[Job], outcomes: Mapping[Path, Outcome]) -> Summary:
    """Sort jobs by how they ended; those without an outcome were not begun."""
    ended = [outcomes[job.path] for job in jobs if job.path in outcomes]
    return Summary(
        finished=tuple(o.job for o in ended if o.state == "finished"),
        failed=tuple(o for o in ended if o.state == "failed"),
        interrupted=tuple(o.job for o in ended if o.state == "interrupted"),
        unbegun=tuple(job for job in jobs if job.path not in outcomes),
    )


@dataclass(frozen=True)
class Facts:
    """How far a run is."""

    step: int = 0
    rate: float | None = None
    score: float | None = None

    def left(self, steps: int) -> float | None:
        """Return the seconds to the end of the budget, if they can be told."""
        return max(steps - self.step, 0) / self.rate if self.rate else None


def facts(path: Path) -> Facts:
    """Read how far a run is from the ends of its streams."""
    train, timing = last_rows(path / "train.jsonl"), last_rows(path / "timing.jsonl")
    if not train:
        return Facts()
    rate = None
    if timing:
        now, before = timing[-1], timing[-2] if len(timing) > 1 else {"step": 0, "seconds": 0.0}
        seconds = now["seconds"] - before["seconds"]
        rate = (now["step"] - before["step"]) / seconds if seconds > 0 else None
    return Facts(train[-1]["step"], rate, train[-1].get("score"))


def last_rows(path: Path, count: int = 2, reach: int = 8_192) -> list[dict[str, Any]]:
    """Return the last whole rows of a stream, without reading all of it."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(end - reach, 0))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    rows = []
    # What follows the last newline is being written, what leads may be cut.
    for line in lines[1 if end > reach else 0 : -1][-count:]:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


class Board(Protocol):
    """What a view shows: the jobs, and what state each is in."""

    jobs: list[Job]

    def status(self, job: Job) -> tuple[str, int]:
        """Return a job's state, and which attempt it is at (0: not told)."""


View = Callable[[Any], AbstractContextManager[Callable[[], None]]]


@contextmanager
def live_view(board: Board) -> Iterator[Callable[[], None]]:
    """Show a live table on a terminal, plain lines elsewhere."""
    began = time.monotonic()
    if not sys.stdout.isatty():
        yield Lines(board)
        return
    from rich.console import Console
    from rich.live import Live

    console, last = Console(), [0.0]
    with Live(table(board, began, console.height), console=console, auto_refresh=False) as live:

        def show() -> None:
            if time.monotonic() - last[0] >= 0.5:
                last[0] = time.monotonic()
                live.update(table(board, began, console.height), refresh=True)

        yield show
        live.update(table(board, began, console.height), refresh=True)


class Lines:
    """A line for each change of a run's state, and now and then one for each that is running."""

    def __init__(self, board: Board) -> None:
        self.board, self.last = board, time.monotonic()
        self.seen: dict[Path, tuple[str, int]] = {job.path: board.status(job) for job in board.jobs}
        count = Counter(word for word, _ in self.seen.values())
        done = f", {count['finished']} of them finished before" if count["finished"] else ""
        print(f"{len(self.seen)} runs{done}", flush=True)

    def __call__(self) -> None:
        """Print what is new."""
        due = time.monotonic() - self.last >= _LINES_EVERY
        self.last = time.monotonic() if due else self.last
        for job in self.board.jobs:
            status = self.board.status(job)
            if status != self.seen[job.path]:
                self.seen[job.path] = status
                again = f" (attempt {status[1]})" if status[1] > 1 else ""
                print(f"{job.name}: {status[0]}{again}", flush=True)
            elif due and status[0] == "running":
                known, steps = facts(job.path), job.spec.train.horizon
                words = [f"{known.step:,}/{steps:,} steps"]
                words += [f"{known.rate:,.0f}/s"] if known.rate else []
                words += [f"score {known.score:.1f}"] if known.score is not None else []
                left = known.left(steps)
                words += [f"{duration(left)} left"] if left is not None else []
                print(f"{job.name}: {' · '.join(words)}", flush=True)


_STYLES = {
    "running": "bold",
    "finished": "green",
    "failed": "bold red",
    "interrupted": "yellow",
    "waiting": "dim",
}
_ORDER = ("running", "failed", "interrupted", "finished", "waiting")


def table(board: Board, began: float, height: int) -> Any:
    """Return all runs as a table no higher than the terminal, running ones first."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    rows = [(job, *board.status(job)) for job in board.jobs]
    count = Counter(word for _, word, _ in rows)
    told = [f"{count[word]} {word}" for word in (*_ORDER[3:], *_ORDER[:3]) if count[word]]
    left = _all_left(rows)
    told += [f"{duration(time.monotonic() - began)} so far"]
    told += [f"about {duration(left)} left"] if left is not None else []
    shown = Table(title=" · ".join(told), title_justify="left", title_style="")
    shown.add_column("run", no_wrap=True, overflow="ellipsis", ratio=1)
    shown.add_column("state", no_wrap=True)
    for heading in ("progress", "step", "steps/s", "score", "left"):
        justify: Literal["left", "right"] = "left" if heading == "progress" else "right"
        shown.add_column(heading, justify=justify, no_wrap=True)
    room = max(height - 7, 1)
    rows.sort(key=lambda row: _ORDER.index(row[1]))
    for job, word, attempt in rows[:room]:
        known, steps = facts(job.path), job.spec.train.horizon
        seconds = known.left(steps) if word == "running" else None
        shown.add_row(
            job.name,
            f"{word} ({attempt})" if attempt > 1 else word,
            ProgressBar(total=steps, completed=min(known.step, steps), width=12)
            if known.step
            else "",
            f"{known.step:,}" if known.step else "",
            f"{known.rate:,.0f}" if known.rate and word == "running" else "",
            f"{known.score:.1f}" if known.score is not None else "",
            duration(seconds) if seconds is not None else "",
            style=_STYLES[word],
        )
    if len(rows) > room:
        rest = Counter(word for _, word, _ in rows[room:])
        words = ", ".join(f"{rest[word]} more {word}" for word in rest)
        shown.add_row(f"and {words}", style="dim")
    return shown


def _all_left(rows: Sequence[tuple[Job, str, int]]) -> float | None:
    """Estimate when all is done, if what waits is as fast as what is running."""
    running = [(job, facts(job.path)) for job, word, _ in rows if word == "running"]
    rates = [known.rate for _, known in running if known.rate]
    if not rates:
        return None
    steps = sum(max(job.spec.train.horizon - known.step, 0) for job, known in running)
    steps += sum(job.spec.train.horizon for job, word, _ in rows if word == "waiting")
    return steps / sum(rates)
