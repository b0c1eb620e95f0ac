"""Which transitions are drawn from a ring."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from hadamard.learning.replay.ring import Indices, Ring

_ATTEMPTS = 1_000


def draw(ring: Ring, count: int, generator: torch.Generator) -> Indices:
    """Draw where to start, with replacement: uniformly, or by priority where there are any."""
    if ring.priority is None and not ring.usable.is_cuda:
        # The newest frame has no action yet; of an episode that just began, no frame has.
        progress = zip(ring.pushed, ring.ages, strict=True)
        ends = [pushed - 1 - ring.stack * (age == 0) for pushed, age in progress]
        return _draw_by_rejection(ring, count, generator, max(ends))
    weight = ring.usable.flatten().to(torch.float64)
    if ring.priority is not None:
        weight = weight * ring.priority.flatten()
    index = _draw_by_weight(weight, count, generator)
    return Indices(index // ring.slots, index % ring.slots)


def draw_ahead(ring: Ring, count: int, generator: torch.Generator) -> Indices | None:
    """Return what ``draw`` would return after one more step, if that step cannot affect it.

    A draw depends on the step if it draws the step itself, or a slot that the step's frames may
    overwrite (those of a new episode included). Then the result is None and the generator is
    unchanged. For rings with a horizon of one and everything but the frames on the CPU.
    """
    saved_state = generator.get_state()
    indices = None
    try:
        indices = _draw_by_rejection(ring, count, generator, max(ring.pushed), ahead=True)
    except _DependsOnNextStep:
        generator.set_state(saved_state)
    return indices


class _DependsOnNextStep(Exception):
    """A draw depends on a step that is not stored yet."""


def _draw_by_weight(weight: Tensor, count: int, generator: torch.Generator) -> Tensor:
    total = weight.cumsum(0)
    uniform = torch.rand(count, generator=generator, device=generator.device, dtype=torch.float64)
    # The right side of equal sums, so that an entry of weight 0 is never drawn.
    index = torch.searchsorted(total, uniform.to(total.device) * total[-1], right=True)
    return index.clamp_max(len(total) - 1)


def _draw_by_rejection(
    ring: Ring, count: int, generator: torch.Generator, end: int, *, ahead: bool = False
) -> Indices:
    """Draw slots before ``end``, and draw unusable ones again: no pass over all slots."""
    filled, usable = min(end, ring.slots), ring.arrays["usable"]
    randint = functools.partial(torch.randint, generator=generator, device=generator.device)
    newest = np.array(ring.pushed) - 1
    envs = slots = np.empty(0, dtype=np.int64)
    for _ in range(_ATTEMPTS if filled > 0 else 0):
        missing = count - len(slots)
        slot = randint(filled, (missing,)).numpy(force=True)
        env = np.zeros_like(slot)
        if len(ring.pushed) > 1:
            env = randint(len(ring.pushed), (missing,)).numpy(force=True)
        if ahead and ((slot - newest[env]) % ring.slots <= 2 * ring.stack).any():
            raise _DependsOnNextStep
        is_usable = usable[env, slot]
        envs, slots = np.append(envs, env[is_usable]), np.append(slots, slot[is_usable])
        if len(slots) == count:
            return Indices(torch.from_numpy(envs), torch.from_numpy(slots))
    raise RuntimeError(f"the replay holds {len(ring)} transitions: too few to sample from")
