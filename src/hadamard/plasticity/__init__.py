"""Remedies: interventions during training that keep a network able to learn, one in each module.

A module has a frozen dataclass ``Config`` with the remedy's settings and a method ``check``, and a
function ``build(network, optimizer, config, seed)``. What it returns acts at one or more of these
moments of an update:

- ``change_gradients(weights, gradients, state)``: between the gradient and the optimizer's step;
- ``change_weights(weights, state, rates)``: after the step;
- as a function ``remedy(updates, obs)``: after the update, with the number of updates so far and
  the observations of this one.

The first two get tensors by the parameters' names, with a leading dimension for networks, and are
captured with the update. A remedy's ``state``, tensors by name, is saved in checkpoints.
``EXCLUDES`` names the remedies that this one does not go with, each with the reason.
``prepare(network)`` changes a network's structure before it is trained. The first line of the
module's docstring names the remedy before a colon.

`attach` lets remedies act on a network of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from hadamard.core import discover, remedies
from hadamard.plasticity._layers import RECOGNIZED, HiddenLayer, hidden_layers
from hadamard.plasticity._recognition import recognize_layers
from hadamard.plasticity._remedies import Remedies, StackedRemedies

__all__ = [
    "HiddenLayer",
    "Remedies",
    "StackedRemedies",
    "attach",
    "build",
    "hidden_layers",
    "names",
    "recognize_layers",
]


def names() -> dict[str, str]:
    """Return the remedies by name, each with a one-line description."""
    known = discover.names(discover.REMEDIES)
    return {name: discover.summary(discover.REMEDIES, name) for name in known}


def build(
    network: nn.Module, optimizer: torch.optim.Optimizer, configs: Mapping[str, Any], seed: int
) -> Remedies:
    """Build remedies by name and settings; they act with every step of the optimizer."""
    built = Remedies(
        network,
        {
            name: discover.find(discover.REMEDIES, name, "remedy").build(
                network, optimizer, config, seed
            )
            for name, config in configs.items()
        },
    )
    built.act_with(optimizer)
    return built


def attach(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    names: str | Sequence[str],
    settings: Mapping[str, Any] | None = None,
    *,
    example: Any = None,
    seed: int = 0,
) -> Remedies:
    """Let remedies act on a network of one's own, from now on.

    Those that change gradients or weights act with every ``optimizer.step()``. The others act when
    the result is called after an update, with the number of updates so far and the inputs of this
    one. Its ``state_dict`` belongs in checkpoints. Frozen weights stay as they are.

    Args:
        network: The network, on its device.
        optimizer: Its optimizer, any of torch.optim.
        names: Remedies by name, in the order in which they act.
        settings: What differs from their defaults, by dotted names such as ``redo.tau``.
        example: An input of the network, from which its hidden layers are recognized; needed by
            remedies that act on neurons, unless the network is one of `hadamard.nets`.
        seed: Of the random numbers.

    Examples:
        >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> optimizer = torch.optim.Adam(network.parameters())
        >>> remedies = attach(network, optimizer, ["redo", "l2_init"], {"redo.period": 1},
        ...                   example=torch.zeros(1, 4))
        >>> x = torch.randn(16, 4)
        >>> network(x).square().mean().backward()
        >>> optimizer.step()
        >>> remedies(1, x)
    """
    chosen = [names] if isinstance(names, str) else list(names)
    nested: dict[str, dict[str, Any]] = {}
    for name, value in (settings or {}).items():
        remedy, _, setting = name.partition(".")
        nested.setdefault(remedy, {})[setting] = value
    configs = remedies.configs(",".join(chosen) or "none", nested)
    remedies.check_together(chosen)
    for config in configs.values():
        config.check()
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    named = dict(network.named_parameters())
    if missing := [n for n, p in named.items() if p.requires_grad and id(p) not in trained]:
        raise ValueError(
            f"the optimizer does not have the parameter {missing[0]} of the network: make it with "
            "network.parameters()"
        )
    if empty := [n for n, p in named.items() if p.numel() == 0]:
        raise ValueError(f"{empty[0]} has no elements: a layer needs at least one neuron and input")
    if example is not None:
        try:
            recognize_layers(network, example)
        except ValueError as problem:
            # Raised by remedies that act on neurons; the others do not need the layers.
            setattr(network, RECOGNIZED, problem)
    for name in configs:
        module = discover.find(discover.REMEDIES, name, "remedy")
        if hasattr(module, "prepare"):
            module.prepare(network)
    return build(network, optimizer, configs, seed)
