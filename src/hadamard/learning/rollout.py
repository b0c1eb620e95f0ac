"""A rollout of fixed length; its tensors stay on their devices until they are learned from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def check_minibatches(num_envs: int, steps: int, minibatches: int) -> None:
    """Raise an error if a rollout does not divide into minibatches of one size."""
    if num_envs * steps % minibatches:
        raise ValueError(
            f"--algo.minibatches {minibatches} does not divide a rollout of {num_envs} "
            f"environments x {steps} steps = {num_envs * steps}"
        )


class Rollout:
    """Collects named tensors step by step; ``data[name]`` is (steps, environments, ...)."""

    def __init__(self, steps: int, device: torch.device) -> None:
        self.steps, self.device = steps, device
        self.length = 0
        self.data: dict[str, Tensor] = {}

    @property
    def full(self) -> bool:
        """Whether all steps are collected."""
        return self.length == self.steps

    def add(self, **tensors: Tensor) -> None:
        """Append one step."""
        for name, tensor in tensors.items():
            if name not in self.data:
                self.data[name] = tensor.new_zeros((self.steps, *tensor.shape))
            self.data[name][self.length].copy_(tensor, non_blocking=True)
        self.length += 1

    def clear(self) -> None:
        """Remove all steps and keep the memory."""
        self.length = 0

    def minibatches(
        self, names: Sequence[str], epochs: int, count: int, generator: torch.Generator
    ) -> Iterator[list[Tensor]]:
        """Yield the named tensors in ``count`` random parts, in a new order each epoch."""
        tensors = [self.data[name].flatten(0, 1).to(self.device) for name in names]
        for _ in range(epochs):
            order = torch.randperm(len(tensors[0]), generator=generator).to(self.device)
            for indices in order.chunk(count):
                yield [tensor[indices] for tensor in tensors]
