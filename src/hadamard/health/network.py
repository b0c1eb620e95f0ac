"""Measures of a whole network: norms, and what gradients, updates and old weights say.

The norm of the weights is always measured. The other measures need backward passes or the weights
of an earlier time, and are chosen by the names in ``CHOICES``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.health.capture import Representation
from hadamard.health.change import norm, policy_churn, update_ratio, value_churn
from hadamard.health.inactive import gradient_dormant
from hadamard.health.random_state import random_state_restored
from hadamard.health.replica import Replica
from hadamard.health.samples import resolve_feature_dim
from hadamard.health.tangent import OBSERVATIONS, jacobian_of, kernel, kernel_rank
from hadamard.text import unknown

Loss = Callable[[nn.Module, Any], Tensor]
"""A function of a network and a batch of inputs that returns one number."""
Weights = Mapping[str, Tensor]

CHOICES = {
    "gradient": "gradient_norm and gradient_dormant_fraction, of a loss",
    "update": "update_ratio, against earlier weights",
    "churn": "policy_churn and value_churn, against earlier weights",
    "ntk": "ntk_rank, of the neural tangent kernel on 64 observations",
}
"""The measures that can be chosen, and what each records."""
NEED_EARLIER_WEIGHTS = ("update", "churn")


@dataclass(frozen=True)
class Chosen:
    """Which measures beyond those of activations are taken, and what they need."""

    measures: tuple[str, ...] = ()
    """Of ``CHOICES``."""
    loss: Loss | None = None
    discrete: bool = True
    """Whether the network's first output has a number for each action, the largest being taken."""

    @property
    def needs_earlier_weights(self) -> bool:
        """Whether weights are compared with those of an earlier time."""
        return any(name in NEED_EARLIER_WEIGHTS for name in self.measures)


def choose(
    measures: str | Sequence[str], loss: Loss | None = None, *, discrete: bool = True
) -> Chosen:
    """Check a choice of measures, given by name or as text with commas (``all`` and ``none`` too).

    Examples:
        >>> choose("churn,ntk").measures
        ('churn', 'ntk')
        >>> choose("gradients", loss=random_residuals)
        Traceback (most recent call last):
        ValueError: unknown measure 'gradients'; did you mean 'gradient'? Known: gradient, update, \
churn, ntk, all, none
    """
    names = names_of(measures)
    if loss is not None and not callable(loss):
        raise TypeError(
            f"loss must be a function of the network and its inputs, got {type(loss).__name__}"
        )
    if "gradient" in names and loss is None:
        raise ValueError(
            "the measure 'gradient' needs a loss: pass loss=lambda network, inputs: ..., or "
            "loss=hadamard.health.random_residuals for one that needs no targets"
        )
    return Chosen(names, loss, discrete)


def names_of(measures: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names in a choice of measures; raise an error for unknown ones.

    Examples:
        >>> names_of("none"), names_of(["ntk"]), names_of("all")
        ((), ('ntk',), ('gradient', 'update', 'churn', 'ntk'))
    """
    names = measures.split(",") if isinstance(measures, str) else list(measures)
    if names == ["all"]:
        return tuple(CHOICES)
    if names == ["none"]:
        return ()
    for index, name in enumerate(names):
        if name not in CHOICES:
            raise ValueError(unknown("measure", str(name), [*CHOICES, "all", "none"]))
        if name in names[:index]:
            raise ValueError(f"the measure {name!r} is named twice: leave one of them out")
    return tuple(names)


def random_residuals(network: nn.Module, inputs: Any) -> Tensor:
    """Return a loss whose gradient is that of regression to targets one unit away.

    The unit vectors from outputs to targets are random and always the same, so networks compare.
    It says how well any error reaches the weights, without regard to how large today's errors are.

    Examples:
        >>> layer = nn.Linear(2, 1, bias=False)
        >>> random_residuals(layer, torch.zeros(3, 2)).item()
        0.0
    """
    outputs = torch.cat([output.flatten(1) for output in _tensors(_call(network, inputs))], 1)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(outputs.shape, generator=generator).to(outputs)
    return (outputs * nn.functional.normalize(directions, dim=1)).sum(1).mean()


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a network's parameters and buffers, to measure changes against.

    Examples:
        >>> list(weights_of(nn.Linear(2, 1)))
        ['weight', 'bias']
    """
    network = getattr(network, "_orig_mod", network)  # what torch.compile was given
    named = [*network.named_parameters(), *network.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in named}


def weight_norms(networks: Sequence[nn.Module]) -> list[float | None]:
    """Return the norm of each network's weights, read from the device together."""
    norms = torch.stack([norm(list(network.parameters())) for network in networks])
    return [_finite_or_none(value) for value in norms.tolist()]


@dataclass(frozen=True)
class NetworkHealth:
    """What was measured of a whole network, and layer by layer where that needs gradients."""

    values: dict[str, float | None]
    """By the measures' names; None for a number that is not finite, or that cannot be taken."""
    gradient_dormant: dict[str, float | None]
    """Of each layer, the share of neurons that get hardly any gradient."""


def network_health(
    network: nn.Module,
    call: Callable[..., Any],
    inputs: Any,
    representations: Sequence[Representation],
    chosen: Chosen,
    before: Weights | None = None,
) -> NetworkHealth:
    """Take the chosen measures of a network; ``call`` is what led to the representations.

    ``before`` are weights of an earlier time, see ``weights_of``. Raises ValueError for gradients
    or outputs that are not finite.
    """
    weights = [p for p in network.parameters() if p.requires_grad]
    values: dict[str, float | None] = {}
    layers: dict[str, float | None] = {}
    if chosen.measures:
        replica = Replica(network)
        run, copied = replica.rebuilt(call), replica.module(network)
        with random_state_restored(network), torch.compiler.set_stance("force_eager"):
            if "gradient" in chosen.measures:
                values["gradient_norm"], layers = _gradient(
                    copied, inputs, weights, representations, chosen
                )
            if "ntk" in chosen.measures:
                values["ntk_rank"] = _ntk_rank(run, inputs, weights)
            if before is not None and chosen.needs_earlier_weights:
                values |= _changes(network, copied, run, inputs, chosen, before)
    finite = {key: _finite_or_none(value) for key, value in values.items()}
    return NetworkHealth(finite, layers)


def _gradient(
    network: nn.Module,
    inputs: Any,
    weights: Sequence[nn.Parameter],
    representations: Sequence[Representation],
    chosen: Chosen,
) -> tuple[float, dict[str, float | None]]:
    """Return the gradient's norm, and each layer's share of neurons that get hardly any."""
    assert chosen.loss is not None
    if not weights:
        raise ValueError("the measure 'gradient' needs weights that are trained: all are frozen")
    with torch.enable_grad():
        loss = chosen.loss(network, inputs)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            shape = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"loss must return one number as a tensor, got {shape}")
        if not loss.requires_grad:
            raise ValueError(
                "the loss does not depend on the network's weights: compute it with the network "
                "that it is given, and not under torch.no_grad()"
            )
        gradients = torch.autograd.grad(loss.sum(), weights, materialize_grads=True)
    if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
        raise ValueError("a gradient of the loss is not finite: the network has diverged")
    by_weight = {id(w): g for w, g in zip(weights, gradients, strict=True)}
    shares = {r.name: _gradient_dormant(r, network, by_weight) for r in representations}
    return float(norm(gradients)), shares


def _gradient_dormant(
    representation: Representation, network: nn.Module, gradients: Mapping[int, Tensor]
) -> float | None:
    """Return a layer's share of gradient-dormant neurons; None where it has no such weights."""
    if representation.writer is None:
        return None
    weight = network.get_submodule(representation.writer).get_parameter("weight")
    gradient = gradients.get(id(weight))
    values = representation.values
    features = values.shape[resolve_feature_dim(values, representation.feature_dim)]
    if gradient is None or len(gradient) % min(len(gradient), features):
        return None
    return float(gradient_dormant(gradient, features).double().mean())


def _ntk_rank(
    run: Callable[..., Any], inputs: Any, weights: Sequence[nn.Parameter]
) -> float | None:
    """Return the rank of the kernel of each observation's largest output, on a few of them."""
    if not weights:
        return None
    with torch.enable_grad():
        outputs = _tensors(_call(run, _evenly_spaced(inputs, OBSERVATIONS)))[0]
        jacobian = jacobian_of(outputs.flatten(1).amax(1), list(weights))
    if not torch.isfinite(jacobian).all():
        raise ValueError("a gradient of the outputs is not finite: the network has diverged")
    return kernel_rank(kernel(jacobian))


@torch.no_grad()
def _changes(
    network: nn.Module,
    copied: nn.Module,
    run: Callable[..., Any],
    inputs: Any,
    chosen: Chosen,
    before: Weights,
) -> dict[str, float | None]:
    """Compare weights and outputs with those of an earlier time."""
    now = {name: p for name, p in network.named_parameters() if p.requires_grad}
    if missing := [n for n in now if n not in before or before[n].shape != now[n].shape]:
        raise ValueError(
            f"the earlier weights lack {missing[0]!r} in the shape that it has now "
            f"({tuple(now[missing[0]].shape)}): pass hadamard.health.weights_of(network), taken "
            "before the update"
        )
    values: dict[str, float | None] = {}
    if "update" in chosen.measures:
        values["update_ratio"] = update_ratio([before[name] for name in now], now)
    if "churn" in chosen.measures:
        new = _tensors(_call(run, inputs))
        _use_weights(copied, before)
        old = _tensors(_call(run, inputs))
        if chosen.discrete and old[0].dim() == 2 and old[0].shape[1] > 1:
            values["policy_churn"] = policy_churn(old[0], new[0])
        values["value_churn"] = value_churn(old[-1], new[-1])
    return values


def _use_weights(copied: nn.Module, weights: Weights) -> None:
    """Let a network's replica use other weights from now on."""
    for path, module in copied.named_modules():
        for kind in ("_parameters", "_buffers"):
            own = vars(module)[kind]
            for name, tensor in own.items():
                other = weights.get(f"{path}.{name}" if path else name)
                if tensor is not None and other is not None:
                    other = other.to(tensor.device)
                    own[name] = nn.Parameter(other, False) if kind == "_parameters" else other


def _call(function: Callable[..., Any], inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return function(**inputs)
    return function(*inputs) if isinstance(inputs, tuple | list) else function(inputs)


def _tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors of numbers in a network's outputs, in their order."""
    tensors = list(_floating(outputs))
    if not tensors:
        raise ValueError(
            f"the network returned {type(outputs).__name__} without a tensor of numbers: pass "
            "forward=, a function that returns its outputs"
        )
    return tensors


def _floating(outputs: Any) -> Iterator[Tensor]:
    if isinstance(outputs, Tensor):
        if outputs.is_floating_point():
            yield outputs.reshape(-1, 1) if outputs.dim() < 2 else outputs
    elif isinstance(outputs, Mapping):
        for value in outputs.values():
            yield from _floating(value)
    elif isinstance(outputs, tuple | list):
        for value in outputs:
            yield from _floating(value)


def _evenly_spaced(inputs: Any, count: int) -> Any:
    """Return evenly spaced observations of a batch, as many as ``count`` at most."""
    if isinstance(inputs, Tensor):
        every = -(-len(inputs) // count) if inputs.dim() else 1
        return inputs[::every] if inputs.dim() else inputs
    if isinstance(inputs, Mapping):
        return {name: _evenly_spaced(value, count) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(_evenly_spaced(value, count) for value in inputs)
    return inputs


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
