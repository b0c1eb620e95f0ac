"""Norms of weights and gradients, and what an update changed in weights and outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

Tensors = Tensor | Iterable[Tensor | None] | Mapping[str, Tensor]


def weight_norm(weights: Tensors) -> float:
    """Return the Euclidean norm of all weights together, given as tensors or by name.

    Examples:
        >>> weight_norm([torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])])
        5.0
    """
    return float(norm(_listed(weights)))


def gradient_norm(gradients: Tensors) -> float:
    """Return the Euclidean norm of all gradients together; weights without one count as zero.

    Examples:
        >>> layer = torch.nn.Linear(1, 1, bias=False)
        >>> (3 * layer(torch.ones(1, 1))).sum().backward()
        >>> gradient_norm(p.grad for p in layer.parameters())
        3.0
    """
    return float(norm(_listed(gradients)))


def update_ratio(before: Tensors, after: Tensors) -> float:
    """Return the norm of the weights' change over the norm that they had before.

    Infinite if the weights were all zero and are not any more.

    Examples:
        >>> round(update_ratio([torch.tensor([3.0, 4.0])], [torch.tensor([3.0, 4.5])]), 6)
        0.1
    """
    old, new = _listed(before), _listed(after)
    if [t.shape for t in old] != [t.shape for t in new]:
        raise ValueError(
            f"the weights before and after an update must have equal shapes, got {len(old)} and "
            f"{len(new)} tensors: {_first_difference(old, new)}"
        )
    change = float(norm([b - a.to(b.device) for a, b in zip(old, new, strict=True)]))
    size = float(norm(old))
    return change / size if size > 0 else (math.inf if change > 0 else 0.0)


def policy_churn(before: Tensor, after: Tensor) -> float:
    """Return the share of observations whose greedy action an update changed.

    Of Schaul et al. (2022). ``before`` and ``after`` are action values or logits of the same
    observations, (observations, actions).

    Examples:
        >>> before = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> after = torch.tensor([[1.1, 0.0], [1.0, 1.5], [0.0, 1.0], [0.0, 0.2]])
        >>> policy_churn(before, after)
        0.25
    """
    before, after = _outputs(before, after)
    if before.dim() != 2 or before.shape[1] < 2:
        raise ValueError(
            f"policy churn needs the values of two actions or more, got shape {tuple(before.shape)}"
        )
    return float((before.argmax(1) != after.argmax(1)).double().mean())


def value_churn(before: Tensor, after: Tensor) -> float:
    """Return the mean absolute change of values, over their standard deviation before the update.

    Each output's deviation is over observations, and their mean is what divides. So neither the
    scale of rewards nor a constant in all values matters. Infinite if the values were the same
    for all observations and have changed.

    Examples:
        >>> value_churn(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.5], [2.5]]))
        0.5
    """
    before, after = _outputs(before, after)
    if len(before) < 2:
        raise ValueError("value churn needs at least two observations: one has no deviation")
    before, after = before.double().flatten(1), after.double().flatten(1)
    change = float((after - before).abs().mean())
    deviation = float(before.std(0, correction=0).mean())
    return change / deviation if deviation > 0 else (math.inf if change > 0 else 0.0)


def norm(tensors: Sequence[Tensor]) -> Tensor:
    """Return the norm of all tensors together, as a tensor that may still be computed."""
    if not tensors:
        return torch.zeros(())
    norms = [_whole(torch.linalg.vector_norm(tensor.detach())).float() for tensor in tensors]
    total: Tensor = torch.linalg.vector_norm(torch.stack([n.to(norms[0].device) for n in norms]))
    return total


def _whole(value: Tensor) -> Tensor:
    """Return a value that FSDP has divided among processes (a DTensor) as one tensor."""
    full_tensor: Callable[[], Tensor] | None = getattr(value, "full_tensor", None)
    return value if full_tensor is None else full_tensor()


def _listed(tensors: Tensors) -> list[Tensor]:
    if isinstance(tensors, Tensor):
        return [tensors]
    listed = tensors.values() if isinstance(tensors, Mapping) else tensors
    return [tensor for tensor in listed if tensor is not None]


def _first_difference(old: Sequence[Tensor], new: Sequence[Tensor]) -> str:
    for place, (a, b) in enumerate(zip(old, new, strict=False)):
        if a.shape != b.shape:
            return (
                f"the first that differ are tensors {place}, {tuple(a.shape)} and {tuple(b.shape)}"
            )
    return "one network has more weights"


def _outputs(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs to compare; raise an error if they cannot be compared."""
    if before.shape != after.shape or before.dim() < 1 or before.numel() == 0:
        raise ValueError(
            "outputs before and after an update must be of the same observations, got shapes "
            f"{tuple(before.shape)} and {tuple(after.shape)}"
        )
    before, after = before.detach(), after.detach()
    if not (torch.isfinite(before).all() and torch.isfinite(after).all()):
        raise ValueError("outputs hold NaN or infinite values: the network has diverged")
    return before, after
