"""How many processor cores there are to use. Needs only the standard library."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return how many cores this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
