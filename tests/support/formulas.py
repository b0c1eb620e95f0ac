"""Networks, gradients and Adam written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from hadamard.core import discover
from hadamard.core.config import overridden
from hadamard.core.types import EnvSpec
from hadamard.training import start

CPU = torch.device("cpu")
VECTOR = EnvSpec((3,), torch.float32, 4)


def forward(weights: list[Tensor], obs: Tensor) -> Tensor:
    """Two tanh layers and one affine map on top, from the weights alone."""
    w1, b1, w2, b2, w3, b3 = weights
    return torch.tanh(torch.tanh(obs @ w1.T + b1) @ w2.T + b2) @ w3.T + b3


def exact(parameters: Any) -> list[Tensor]:
    return [p.detach().double().requires_grad_() for p in parameters]


class HandAdam:
    """Adam, or RAdam with ``rectified``, from the papers, in float64."""

    def __init__(self, size: int, epsilon: float, rectified: bool = False) -> None:
        self.first, self.second = np.zeros(size), np.zeros(size)
        self.time, self.epsilon, self.rectified = 0, epsilon, rectified

    def change(self, gradient: np.ndarray, rate: float) -> np.ndarray:
        self.time += 1
        t, beta1, beta2 = self.time, 0.9, 0.999
        self.first = beta1 * self.first + (1 - beta1) * gradient
        self.second = beta2 * self.second + (1 - beta2) * gradient**2
        mean = self.first / (1 - beta1**t)
        if not self.rectified:
            return -rate * mean / (np.sqrt(self.second / (1 - beta2**t)) + self.epsilon)
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * t * beta2**t / (1 - beta2**t)
        if length <= 5:
            return -rate * mean
        top = (length - 4) * (length - 2) * longest
        rectification = np.sqrt(top / ((longest - 4) * (longest - 2) * length))
        return (
            -rate
            * mean
            * rectification
            * np.sqrt(1 - beta2**t)
            / (np.sqrt(self.second) + self.epsilon)
        )


def flat(tensors: Any) -> np.ndarray:
    return torch.cat([t.detach().flatten() for t in tensors]).double().numpy()


def clipped(gradient: np.ndarray, largest: float) -> np.ndarray:
    return gradient * min(1.0, largest / np.linalg.norm(gradient))


def vector_agent(algorithm: str, **algo: Any) -> Any:
    changes = {f"algo.{name}": setting for name, setting in algo.items()}
    changes |= {"net.width": 8, "net.activation": "tanh", "net.norm": "none", "train.steps": 999}
    spec = overridden(start.default_spec(algorithm, "probe/both"), changes)
    return discover.find("hadamard.algos", algorithm, "algorithm").build(VECTOR, spec, CPU)
