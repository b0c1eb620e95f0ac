"""The Hadamard layers that replace layers of a network, with the weights they start from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.layers.branch import Branch
from hadamard.layers.conversion.tracing import Affine, TracedLayer
from hadamard.layers.fused import FusedHadamard
from hadamard.layers.hadamard import Hadamard, fuse
from hadamard.layers.norm import BranchNorm
from hadamard.layers.start import Start, apply_best_start, apply_start


def build_replacements(
    layers: Sequence[TracedLayer],
    activation: nn.Module | None,
    branches: int,
    init: Callable[[nn.Module], Any] | None,
    start: Start | None,
) -> list[nn.Module]:
    """Build the Hadamard layers that replace these layers; the network is not changed."""
    built: list[tuple[Branch, list[Branch]]] = []
    products = []
    for layer in layers:
        first = _first_branch(layer, activation)
        others = [copy.deepcopy(first) for _ in range(branches - 1)]
        twin_others = next((rest for twin, rest in built if _identical(first, twin)), None)
        for i, branch in enumerate(others):
            if twin_others is None:
                _initialize(branch, init)
            else:
                branch.load_state_dict(twin_others[i].state_dict())
        built.append((first, others))
        drawn = copy.deepcopy([first, *others])  # a twin is known by the weights before the start
        if start is None:
            apply_best_start(drawn)
        else:
            try:
                apply_start(drawn, start)
            except ValueError as error:
                raise ValueError(f"cannot convert {layer.name}: {error}") from None
        product = fuse(drawn)
        for module in product.modules():
            # train() would also change a norm that was frozen separately.
            if isinstance(module, (Hadamard, FusedHadamard, Branch, nn.ModuleList)):
                module.training = layer.affine.training
        products.append(product)
    return products


def _first_branch(layer: TracedLayer, activation: nn.Module | None) -> Branch:
    """Build the branch with the layer's weights, and its activation unless another is given."""
    affine = copy.deepcopy(layer.affine)
    branch_activation = copy.deepcopy(layer.activation if activation is None else activation)
    assert branch_activation is not None
    if activation is not None:
        branch_activation = branch_activation.to(affine.weight).train(affine.training)
    if getattr(branch_activation, "inplace", False):
        branch_activation.inplace = False  # type: ignore[assignment]
    return Branch(affine, _copied_norm(layer.norm, affine), branch_activation)


def _copied_norm(norm: nn.Module | None, affine: Affine) -> nn.Module | None:
    if (
        type(norm) is nn.LayerNorm
        and type(affine) is nn.Linear
        and norm.normalized_shape == (affine.out_features,)
        and norm.weight is not None
        and norm.bias is not None
        and norm.weight.dtype == affine.weight.dtype
    ):
        # BranchNorm computes the same, and allows the branches to be fused.
        fusible = BranchNorm(affine.out_features, eps=norm.eps).train(norm.training)
        fusible.weight, fusible.bias = copy.deepcopy(norm.weight), copy.deepcopy(norm.bias)
        return fusible
    return copy.deepcopy(norm)


def _identical(first: Branch, second: Branch) -> bool:
    state, second_state = first.state_dict(), second.state_dict()
    return repr(first) == repr(second) and all(
        state[key].device == second_state[key].device
        and state[key].dtype == second_state[key].dtype
        and torch.equal(state[key], second_state[key])
        for key in state
    )


@torch.no_grad()
def _initialize(branch: Branch, init: Callable[[nn.Module], Any] | None) -> None:
    """Give the branch new random weights, from the distribution of its present ones."""
    affine: Any = branch.affine
    gain = _orthogonal_gain(affine.weight)
    zero_bias = affine.bias is not None and not affine.bias.any()
    affine.reset_parameters()
    if zero_bias:
        affine.bias.zero_()
    if init is not None:
        init(affine)
    elif gain is not None:
        weight = affine.weight
        # Orthogonal initialization does not exist in half precision.
        precise = torch.promote_types(weight.dtype, torch.float32)
        weight.copy_(nn.init.orthogonal_(torch.empty_like(weight, dtype=precise), gain))
    for part in (branch.norm, branch.activation):
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()  # type: ignore[union-attr, operator]


def _orthogonal_gain(weight: Tensor) -> float | None:
    """Return g if the weight is g times an orthogonal matrix, None if it is not."""
    matrix = weight.detach().flatten(1).cpu().double()
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.T
    gram = matrix @ matrix.T
    square = gram.diagonal().mean()
    tolerance = max(1e-4, torch.finfo(weight.dtype).eps)
    error = (gram - square * torch.eye(len(gram), dtype=gram.dtype)).abs().max()
    return square.sqrt().item() if square > 0 and error <= tolerance * square else None
