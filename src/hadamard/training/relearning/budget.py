"""How much networks relearn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """How networks relearn; all of it is recorded beside the results."""

    observations: int = 2_048
    """Observations of each target."""
    updates: int = 200
    """Updates on each target, with Adam and a new last layer."""
    batch_size: int = 256
    """Observations in an update."""
    learning_rate: float = 1e-3
    """Adam's learning rate."""
    checkpoints: int = 4
    """Checkpoints of each run, at most: evenly spaced, the last one among them."""

    def check(self) -> None:
        """Refuse settings out of range."""
        for name in ("observations", "updates", "batch_size", "checkpoints"):
            least = 1 if name in ("updates", "checkpoints") else 2
            if getattr(self, name) < least:
                option = f"--{name}".replace("_", "-")
                raise ValueError(f"{option} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"--learning-rate must be above 0, got {self.learning_rate}")
        if self.batch_size > self.observations:
            raise ValueError(
                f"--batch-size {self.batch_size} is more than --observations {self.observations}: "
                "lower the first, or raise the second"
            )
