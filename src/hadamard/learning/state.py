"""Numbers that learning carries from update to update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn


class LearningState(nn.Module):
    """Named numbers and flags, as tensors that updates change in place: ``state.reward_scale``.

    As a module they are saved with the networks and move to their device, and a captured graph
    reads their current values.
    """

    def __init__(self, **initial: float) -> None:
        super().__init__()
        for name, value in initial.items():
            self.register_buffer(name, torch.tensor(value))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor: ...

    def record(self, values: Mapping[str, Tensor]) -> None:
        """Set some of the tensors."""
        for name, value in values.items():
            self.get_buffer(name).copy_(value)

    def copies(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return copies of some of the tensors."""
        return {name: self.get_buffer(name).clone() for name in names}
