"""How the runs of a sweep ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hadamard.core.files import RunError, read_json
from hadamard.core.stopping import INTERRUPTED
from hadamard.core.typed import WrongType, checked
from hadamard.experiments.grid import Job
from hadamard.text import counted


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    job: Job
    state: Literal["finished", "interrupted", "failed"]
    attempts: int = 0
    log_tail: str = ""
    """The end of a failed run's log."""

    @property
    def printable_log(self) -> list[str]:
        """The log's lines without control characters, which could change what a terminal shows."""
        lines = self.log_tail.splitlines()
        return ["".join(c if c.isprintable() else " " for c in line) for line in lines]


def failed_outcome(job: Job) -> Outcome:
    """Read why a job has failed for good."""
    try:
        failure = read_json(job.failure)
        attempts = checked(failure.get("attempts"), int, "attempts")
        return Outcome(job, "failed", attempts, checked(failure.get("log"), str, "log"))
    except (OSError, RunError, WrongType) as error:
        return Outcome(job, "failed", log_tail=f"{job.failure} cannot be read: {error}")


@dataclass(frozen=True)
class Summary:
    """How a sweep ended: every job is in one of the lists."""

    finished: tuple[Job, ...] = ()
    failed: tuple[Outcome, ...] = ()
    interrupted: tuple[Job, ...] = ()
    """Runs that were stopped and have saved."""
    not_started: tuple[Job, ...] = ()
    """Runs that had not begun when the sweep was stopped."""
    queued: tuple[Job, ...] = ()
    """Runs submitted to a cluster, which trains them later."""
    advice: str = "run the same command again to continue"
    """How to continue if runs are left to train."""

    @property
    def exit_code(self) -> int:
        """The exit code of the sweep's command."""
        if self.failed:
            return 1
        return INTERRUPTED if self.interrupted or self.not_started else 0

    def __str__(self) -> str:
        lines = []
        for outcome in self.failed:
            attempts = f" after {counted(outcome.attempts, 'attempt')}" if outcome.attempts else ""
            lines.append(f"\n{outcome.job.name} failed{attempts}; {outcome.job.log} ends:")
            lines += [f"  {line}" for line in outcome.printable_log]
        if lines:
            lines.append("")
        by_state = {
            "finished": self.finished,
            "failed": self.failed,
            "stopped and saved": self.interrupted,
            "not started": self.not_started,
            "in the queue": self.queued,
        }
        counts = ", ".join(f"{len(jobs)} {state}" for state, jobs in by_state.items() if jobs)
        advice = f"; {self.advice}" if self.exit_code else ""
        return "\n".join([*lines, f"{counts or 'nothing to do'}{advice}"])


def summarize(jobs: Sequence[Job], outcomes: Mapping[Path, Outcome]) -> Summary:
    """Sort jobs by outcome, with outcomes by run folder; jobs without one never started."""
    ended = [outcomes[job.path] for job in jobs if job.path in outcomes]
    return Summary(
        finished=tuple(o.job for o in ended if o.state == "finished"),
        failed=tuple(o for o in ended if o.state == "failed"),
        interrupted=tuple(o.job for o in ended if o.state == "interrupted"),
        not_started=tuple(job for job in jobs if job.path not in outcomes),
    )
