"""Random numbers whose state is a part of the checkpoint."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from hadamard.core.types import State


def child_seed(seed: int, *purpose: int) -> int:
    """Return a seed of its own for each purpose, so that streams never coincide."""
    return int(np.random.SeedSequence([seed, *purpose]).generate_state(1)[0])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw on the CPU from a known global state inside, and leave the outside as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed GPUs too
        yield


class Random:
    """A generator that can be saved, on the CPU unless a captured graph draws from it."""

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    def state_dict(self) -> State:
        """Return the generator's state."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """Return to a saved state; one of another kind of device only seeds this generator."""
        saved = state["generator"].cpu()
        if len(saved) == len(self.generator.get_state()):
            self.generator.set_state(saved)
            return
        warnings.warn(
            "the run was on another kind of device: it goes on with other random numbers than it "
            "would have there",
            stacklevel=2,
        )
        self.generator.manual_seed(zlib.crc32(saved.numpy().tobytes()))


class Counters:
    """Named whole numbers as a part of the checkpoint."""

    def __init__(self, **values: int) -> None:
        self.values = values

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    def __setitem__(self, name: str, value: int) -> None:
        self.values[name] = value

    def state_dict(self) -> State:
        """Return the numbers."""
        return dict(self.values)

    def load_state_dict(self, state: State) -> None:
        """Return to saved numbers."""
        self.values.update(state)
