"""Sweeps: many runs, several at a time, on this machine, a Ray cluster or Slurm.

    launchers.py   launch(jobs, options): checks the jobs and hands them to one of the launchers
    options.py     where runs are trained, how many at once, and with which resources
    fleets.py      which runs are trained together, by one process
    queue.py       the launcher of this machine: which process starts when, and on which device
    ray.py         the launcher of a Ray cluster
    slurm.py       the launcher of a Slurm cluster
    supervisor.py  starts the process of a run or a fleet, and starts it again if it fails
    worker.py      that process
    transfer.py    jobs as text, for that process or another machine
    status.py      a run's state, progress and process, read from its files
    outcome.py     how runs and sweeps ended
    view.py        the display in the terminal

The state of a sweep is in its run folders, with a log beside each and, once a run has failed for
good, the reason (`.failed`). Launching the same jobs again skips the finished runs and continues
the others.
"""

from __future__ import annotations

from hadamard.experiments.sweep.launchers import launch
from hadamard.experiments.sweep.options import Options

__all__ = ["Options", "launch"]
