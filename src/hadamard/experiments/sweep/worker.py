"""The process of one run or of a fleet, which every launcher starts and restarts.

It trains new runs and continues those in their folders, all that it was given at once. If another
process already trains in a folder (its launcher was killed), that run is left until the others are
trained; then this process waits for the other one, and trains the remaining steps. A run that is
started twice is therefore trained once.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hadamard.core import plugins
from hadamard.core.config import RunSpec, from_dict
from hadamard.core.files import is_file, require_folder
from hadamard.core.lock import InUse, holder
from hadamard.core.run import Run, RunError
from hadamard.core.stopping import INTERRUPTED, Stopped, ignore_signals, stop_at_once
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep.supervisor import (
    LESS_MEMORY,
    PERMANENT,
    WORKER,
    note_failure,
    write_log,
)
from hadamard.experiments.sweep.transfer import job_from_text

if TYPE_CHECKING:
    from hadamard.training.progress import Progress
    from hadamard.training.trainer import Trainer

FAILED = 1
"""Exit code of a run that failed and may succeed at the next attempt."""


def main(arguments: Sequence[str], read_plugins: Callable[[], str] = str) -> int:
    """Train the runs of some jobs unless they are finished; returns the exit code.

    ``read_plugins`` returns the plugins that the launcher sent, as text.
    """
    pairs = zip(arguments[0::2], arguments[1::2], strict=False)  # the last word is the launcher
    jobs = {Path(folder): job_from_text(text) for folder, text in pairs}
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # Slurm's warning, which the supervisor handles
    with stop_at_once():
        remaining = dict(jobs)
        try:
            plugins.load_text(read_plugins())
            code = _train_all(jobs, remaining)
        except plugins.PluginError as error:
            print(f"hadamard: {error}", flush=True)
            code = PERMANENT
        except Stopped:
            code = INTERRUPTED
        if code == INTERRUPTED:
            ignore_signals()
            _stop_orphans(remaining)
        return code


def _train_all(jobs: Mapping[Path, Job], remaining: dict[Path, Job]) -> int:
    """Train the runs in folders that no other process uses; those that have ended are removed.

    Returns the exit code.
    """
    first, announced = next(iter(jobs)), set[Path]()
    while remaining:
        free = {}
        for path, job in remaining.items():
            if (pid := holder(path)) is None:
                free[path] = job
            elif path not in announced:
                announced.add(path)
                text = f"waiting for process {pid}, which trains in {path}"
                if path != first:
                    write_log(job, f"{text}\n")
                print(text, flush=True)
        if free:
            part = Part(free, jobs)
            code = part.train()
            if code is not None:
                return code
            for path in part.ended:
                del remaining[path]
        if remaining:
            time.sleep(0.5)
    return PERMANENT if any(is_file(job.failure) for job in jobs.values()) else 0


def _stop_orphans(paths: Iterable[Path]) -> None:
    """Stop the processes in these folders whose launcher has died, since no launcher would."""
    pids = {path: pid for path in paths if (pid := holder(path))}
    orphans = {path: pid for path, pid in pids.items() if _is_orphan(pid, path)}
    for pid in set(orphans.values()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while any(holder(path) == pid for path, pid in orphans.items()):
        time.sleep(0.1)


def _is_orphan(pid: int, path: Path) -> bool:
    """Tell whether a process is a worker of this machine whose launcher is gone."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:  # a process of another machine, or a system without /proc
        return False
    # When a launcher dies, another process becomes the parent of its runs.
    parent = status.rpartition(")")[2].split()[1]
    return WORKER in command and str(path) in command and parent not in command


class Part:
    """Runs that are trained at once, of those that this process was given."""

    def __init__(self, runs: Mapping[Path, Job], all_runs: Mapping[Path, Job]) -> None:
        self.runs = runs
        self.first, self.together = next(iter(all_runs)), len(all_runs)
        """The run whose log this process writes to."""
        self.ended: list[Path] = []
        """Runs that are finished or given up."""

    def train(self) -> int | None:
        """Train the runs; return an exit code if it failed or was stopped."""
        for path, job in self.runs.items():
            if _has_config(path) and job.finished:
                self.ended.append(path)
        runs = {path: job for path, job in self.runs.items() if path not in self.ended}
        if not runs:
            return None
        from hadamard.envs.common import EnvironmentFailure
        from hadamard.training.memory import OutOfMemory
        from hadamard.training.outcomes import Interrupted

        try:
            self._fit(_that_fit(runs))
        except Interrupted:
            print("stopped and saved", flush=True)
            return INTERRUPTED
        except (EnvironmentFailure, OSError) as error:
            print(f"hadamard: {error}", flush=True)
            return FAILED
        except OutOfMemory as error:
            print(f"hadamard: {error}. In a sweep: {LESS_MEMORY}", flush=True)
            return FAILED
        except Exception:
            traceback.print_exc()
            return FAILED
        return None

    def _fit(self, runs: Mapping[Path, Job]) -> None:
        """Train the runs, and note how each of them ended."""
        from hadamard.core.checkpoint import CheckpointError
        from hadamard.training import fit, memory
        from hadamard.training.outcomes import Diverged, Interrupted
        from hadamard.training.progress import SharedProgress, make_progress

        # Another attempt would end the same way. Settings are wrong only before a run has started.
        permanent: tuple[type[Exception], ...] = (RunError, CheckpointError, Diverged)
        settings: tuple[type[Exception], ...] = (ValueError, ImportError)
        wrong: tuple[type[Exception], ...]
        progress = SharedProgress(make_progress, len(runs)) if len(runs) > 1 else make_progress
        trainers = {}
        with memory.explained([job.spec for job in runs.values()]), ExitStack() as stack:
            for path, job in runs.items():
                started = _has_config(path)
                wrong = permanent if started else (*permanent, *settings)
                try:
                    require_folder(path)
                    trainers[path] = stack.enter_context(
                        _trainer(path, job, progress, self.together)
                    )
                except InUse as error:
                    self._log(path, f"{error}. The others are trained first")
                except wrong as error:
                    if not started and isinstance(error, RunError) and _has_config(path):
                        continue  # another process started the run in the meantime
                    self._give_up(path, f"{error}")
            if not trainers:
                return
            new = all(trainer.step == 0 for trainer in trainers.values())
            wrong = (*permanent, *settings) if new else permanent
            paths = {trainer: path for path, trainer in trainers.items()}
            reason = ""
            try:
                # The sweep learns of a run that diverged while the others go on.
                fit.fit(list(paths), lambda trainer, why: self._give_up(paths[trainer], why))
            except Diverged:
                pass
            except wrong as error:
                reason = f"{error}"
            for path, trainer in trainers.items():
                if trainer.summary:
                    self._log(path, f"done: {trainer.summary['steps']:,} steps")
                    self.ended.append(path)
                elif reason and path not in self.ended:
                    self._give_up(path, reason)
            stopped = [path for path in trainers if path not in self.ended]
            if stopped:
                raise Interrupted(*map(str, stopped))

    def _give_up(self, path: Path, reason: str) -> None:
        self._log(path, f"hadamard: {reason}")
        note_failure(self.runs[path], 1, PERMANENT, reason)
        self.ended.append(path)

    def _log(self, path: Path, text: str) -> None:
        """Write to a run's log."""
        if path == self.first:
            print(text, flush=True)
        else:
            write_log(self.runs[path], f"{text}\n")


def _that_fit(runs: Mapping[Path, Job]) -> Mapping[Path, Job]:
    """Return as many of the runs as fit into memory at once, if they are a fleet."""
    if len(runs) == 1:
        return runs
    from hadamard.core.machine import choose_device
    from hadamard.training import fleet, memory

    specs = [_with_algorithm_settings(job) for job in runs.values()]
    try:
        device = choose_device(specs[0].device)
        env = fleet.env_spec(specs[0].env)
    except ValueError:  # wrong settings, which every run reports
        return runs
    count = memory.fitting(specs, device, env)
    if count < len(runs):
        print(f"{count} of {len(runs)} runs fit into memory at once: they are trained first")
    return dict(list(runs.items())[:count])


def _trainer(
    path: Path, job: Job, progress: Callable[..., Progress], together: int
) -> AbstractContextManager[Trainer]:
    """Return what opens the run in a folder, or makes a new one."""
    from hadamard.training import start

    if not _has_config(path):
        spec = _with_algorithm_settings(job)
        return start.new_trainer(job.algorithm, spec, progress, together=together)
    # A run that is already past its new end is closed at its present step.
    until = job.spec.train.until
    until = until and max(until, start.trained_steps(Run(path)))
    return start.resumed_trainer(str(path), until, progress)


def _has_config(path: Path) -> bool:
    return os.path.lexists(path / "config.json")


def _with_algorithm_settings(job: Job) -> RunSpec[Any]:
    """Return a job's settings, the algorithm's own as an instance of its Config."""
    from hadamard.core import discover

    module = discover.find(discover.ALGORITHMS, job.algorithm, "algorithm")
    return replace(job.spec, algo=from_dict(module.Config, job.spec.algo, "spec.algo"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdin.read))
