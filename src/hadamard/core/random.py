"""Random generators and counters that are saved in checkpoints."""

from __future__ import annotations

import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from hadamard.core.types import State

_ONE_AT_A_TIME = threading.RLock()
"""Held while PyTorch's global generator is seeded: it is one for all threads."""


def child_seed(seed: int, *purpose: int) -> int:
    """Return a different seed for each purpose, so that random streams never coincide."""
    return int(np.random.SeedSequence([seed, *purpose]).generate_state(1)[0])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's global CPU generator inside the block, and restore its state afterwards."""
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the GPUs
        yield


class Random:
    """A generator that can be saved; on the CPU, except for those a CUDA graph draws from."""

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    def state_dict(self) -> State:
        """Return the generator's state."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """Restore a saved state. One from another kind of device is only used as a seed."""
        saved = state["generator"].cpu()
        if len(saved) == len(self.generator.get_state()):
            self.generator.set_state(saved)
            return
        warnings.warn(
            "the run was started on another kind of device and continues with different random "
            "numbers on this one",
            stacklevel=2,
        )
        self.generator.manual_seed(zlib.crc32(saved.numpy().tobytes()))


class Counters:
    """Named integers that are saved in checkpoints."""

    def __init__(self, **values: int) -> None:
        self.values = values

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    def __setitem__(self, name: str, value: int) -> None:
        self.values[name] = value

    def state_dict(self) -> State:
        """Return the counters."""
        return dict(self.values)

    def load_state_dict(self, state: State) -> None:
        """Restore saved counters."""
        self.values.update(state)
