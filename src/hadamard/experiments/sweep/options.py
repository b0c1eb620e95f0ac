"""The options of a sweep: where runs are trained, how many at once, and with which resources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RETRIES = 2
"""How many times a failed run is started again by default."""
LARGEST_FLEET = 256
"""The most runs of one process, whose settings are passed on its command line."""


@dataclass(frozen=True)
class SlurmOptions:
    """The resources of each Slurm job."""

    partition: str | None = None
    """Slurm partition of the jobs; by default the cluster's own."""
    minutes: int = 24 * 60
    """Time limit of a Slurm job in minutes. A run that needs longer is saved before the limit,
    and its job is queued again."""
    cpus: int = 1
    """CPU cores of a Slurm job."""
    gpus: int = 0
    """GPUs of a Slurm job."""
    memory_gb: float | None = None
    """Memory of a Slurm job in GB; by default the cluster's own."""
    account: str | None = None
    """Slurm account to charge; by default your own."""


@dataclass(frozen=True)
class Options:
    """Where runs are trained, how many at once, and with which resources."""

    launcher: Literal["local", "ray", "slurm"] = "local"
    """Where the runs are trained.
    local: in processes on this machine; ray: as tasks on a Ray cluster; slurm: as a job array."""
    jobs: int | None = None
    """How many processes train at once, each a run or a fleet of runs.
    By default one a core, or --per-gpu on each GPU; ray, slurm: as many as the cluster allows."""
    per_gpu: int = 1
    """How many processes share a GPU."""
    threads: int = 1
    """CPU threads of each process."""
    fleet: bool = True
    """Train every run in a process of its own: short for --train.fleet off.
    By default runs of one shape (seeds, learning rates) are one computation on a GPU."""
    fleet_size: int = 128
    """How many runs one process trains as a fleet, at most; fewer if the memory is too small."""
    retries: int = RETRIES
    """How many times a failed run is started again, from its last checkpoint."""
    address: str | None = None
    """Address of the Ray cluster: host:port, ray://host:port, or auto for one on this machine.
    By default $RAY_ADDRESS; without that, a cluster is started on this machine."""
    timeout: float = 20.0
    """Seconds in which the Ray cluster must answer."""
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    """The resources of each Slurm job."""

    def check(self) -> None:
        """Raise ValueError for options that no sweep can run with."""
        for name in ("jobs", "per_gpu", "threads", "fleet_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
        if self.fleet_size > LARGEST_FLEET:
            raise ValueError(
                f"--fleet-size must be at most {LARGEST_FLEET}, got {self.fleet_size}: more runs "
                "of one shape are divided over several fleets"
            )
        if self.retries < 0:
            raise ValueError(f"--retries must not be negative, got {self.retries}")
        if self.address is not None and self.launcher != "ray":
            raise ValueError("--address names a Ray cluster: add --launcher ray, or leave it out")
