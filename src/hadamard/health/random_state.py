"""The global random state, which a diagnosis leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class RandomDraws(TorchDispatchMode):
    """Notices operations of this thread that draw from the global random state."""

    supports_higher_order_operators = True
    any_seen = False

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in getattr(func, "tags", ()):
            self.any_seen = True
        return func(*args, **(kwargs or {}))


@contextmanager
def random_state_restored(model: nn.Module) -> Iterator[RandomDraws]:
    """Restore the random state if this thread drew from it, which the value says.

    Otherwise it is left alone: another thread may have drawn meanwhile, and would draw the same
    numbers again.
    """
    gpus = {p.device for p in model.parameters() if p.device.type == "cuda"}
    cpu_state = torch.get_rng_state()
    gpu_states = {gpu: torch.cuda.get_rng_state(gpu) for gpu in gpus}
    draws = RandomDraws()
    try:
        with draws:
            yield draws
    finally:
        if draws.any_seen:
            torch.set_rng_state(cpu_state)
            for gpu, state in gpu_states.items():
                torch.cuda.set_rng_state(state, gpu)
