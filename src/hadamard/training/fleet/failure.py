"""What a fleet knows of a run whose games cannot go on."""

from __future__ import annotations

from typing import NamedTuple


class Failure(NamedTuple):
    """Why a run's games cannot go on, and from which step on."""

    step: int
    error: Exception
