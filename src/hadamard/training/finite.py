"""Whether a run's losses and weights are still finite."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hadamard.core import record
from hadamard.core.run import Run
from hadamard.training.outcomes import Diverged


class Finite:
    """Watches the losses of one run, and its weights when asked."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.weights: bool | None = None
        """Whether the weights are finite, where it is known (in a fleet)."""
        self._loss_sum: Tensor | float | None = None  # of all updates since the last question

    def add(self, loss: Tensor | float) -> None:
        """Add up a loss without waiting for the GPU: the sum is finite if every loss is."""
        self._loss_sum = loss if self._loss_sum is None else self._loss_sum + loss

    def problem(self) -> str | None:
        """Say what is not finite; None if all is well."""
        losses, self._loss_sum = self._loss_sum, None
        if losses is not None and not math.isfinite(losses):
            return "the loss is not finite"
        return None if self._weights_are_finite() else "a weight is not finite"

    def check(self, algorithm: str, run: Run, step: int) -> None:
        """Raise an error if a loss or a weight is not finite, before it is recorded or saved."""
        problem = self.problem()
        if problem is None:
            return
        run.flush()
        raise Diverged(
            f"{algorithm} diverged: {problem} at step {step:,}; "
            f"{record.last_saved(run.checkpoints)}. "
            "Try a smaller --algo.learning-rate or another --net.activation"
        )

    def _weights_are_finite(self) -> bool:
        if self.weights is not None:
            return self.weights
        return all(bool(torch.isfinite(p).all()) for p in self.network.parameters())
