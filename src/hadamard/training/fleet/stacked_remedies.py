"""The remedies of a fleet's runs, which act on the rows of one matrix of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hadamard.compute.stack import Stack
from hadamard.plasticity import StackedRemedies


class FleetRemedies(StackedRemedies):
    """The same, given the gradients as a matrix."""

    def __init__(self, agents: Sequence[Any], stack: Stack) -> None:
        # A CPU rounds by a number's place in a loop: there each run has its own call.
        one_by_one = stack.matrix.device.type == "cpu"
        remedies = [agent.after_update for agent in agents]
        super().__init__(remedies, stack.parameters("network"), one_by_one=one_by_one)
        self._by_name = stack.by_name

    def change_gradient(self, gradient: Tensor) -> None:
        """Let them act between the gradients (runs, weights) and the optimizers' step."""
        if self.in_update:
            self.change_gradients(self._by_name(gradient))
