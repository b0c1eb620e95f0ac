"""``diagnose``: measure every hidden representation of a network, or of many together."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hadamard.health import drawing, printing
from hadamard.health.capture import DictAs, Representation, capture, capture_alike
from hadamard.health.dormant import THRESHOLD, check_threshold
from hadamard.health.layer import LayerHealth
from hadamard.health.measuring import Settings, group_size, measured
from hadamard.health.network import (
    Chosen,
    Loss,
    Weights,
    choose,
    network_health,
    weight_norms,
)
from hadamard.health.outputs import tensors
from hadamard.health.rank import check_delta
from hadamard.health.samples import Positions, check_positions
from hadamard.health.selection import LayerChoice, choose_modules
from hadamard.modules import refuse_torchscript

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Sequence[LayerHealth]):
    """The health of a network: a sequence of its layers, with methods to print and plot it."""

    model: str
    observations: int
    """Number of inputs the network was run on."""
    layers: tuple[LayerHealth, ...]
    threshold: float
    delta: float
    network: Mapping[str, float | None] = field(default_factory=dict)
    """Measures of the whole network by name: ``weight_norm``, and those that were chosen."""

    def __getitem__(self, key: Any) -> Any:
        """Return a layer by position or by name."""
        if isinstance(key, str):
            for layer in self.layers:
                if layer.name == key:
                    return layer
            names = ", ".join(layer.name for layer in self.layers)
            raise KeyError(f"no layer {key!r} in this diagnosis; it has: {names}")
        return self.layers[key]

    def __len__(self) -> int:
        return len(self.layers)

    def __str__(self) -> str:
        return printing.summary(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return drawing.html_table(self)

    def verdict(self) -> str:
        """Say in words which layers are unhealthy and why, most dormant neurons first."""
        return printing.verdict(self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as plain Python values, ready for JSON."""
        return {
            "model": self.model,
            "observations": self.observations,
            "threshold": self.threshold,
            "delta": self.delta,
            "network": dict(self.network),
            "layers": [layer.to_dict() for layer in self.layers],
            "verdict": self.verdict(),
        }

    def plot(self) -> Figure:
        """Draw dormant neurons, effective rank and hidden bias of every layer."""
        return drawing.health_figure(self)

    def plot_kde(self, layer: str | int = -1) -> Figure:
        """Draw the densities of 16 neurons of a layer, dormant ones outlined in red."""
        return drawing.density_figure(self[layer])

    def save_html(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Write the diagnosis as one self-contained HTML page."""
        title = title or f"Diagnosis of {self.model}"
        drawing.save_comparison(path, {self.model: self}, title=title)


def diagnose(
    model: nn.Module,
    inputs: Any,
    layers: LayerChoice | None = None,
    *,
    forward: Callable[..., Any] | None = None,
    threshold: float = THRESHOLD,
    delta: float = 0.01,
    positions: Positions = "samples",
    generator: torch.Generator | None = None,
    measures: str | Sequence[str] = (),
    loss: Loss | None = None,
    before: Weights | None = None,
    discrete: bool = True,
    dict_as: DictAs = "keywords",
) -> Diagnosis:
    """Measure the hidden representations of any network on a batch of inputs.

    ``inputs`` is a tensor or an array, a tuple of positional arguments or a dict; a few thousand
    observations make a good batch. A dict holds keyword arguments; with ``dict_as="positional"``
    it is one argument itself, as the observations of many environments are. ``forward`` replaces
    ``model(...)`` for networks without a forward method (``forward=agent.get_value``).

    ``layers`` chooses what to measure: a glob pattern, several, or a predicate on (name, module).
    By default these are the marked modules (``mark``), or else every activation, including
    functions such as ``F.relu``, and the output of every recurrent layer. What returns several
    tensors has them by name (``lstm.output``, ``lstm.cell``). A module that is called repeatedly
    is measured at each call, named after where that is: ``act (after fc1)``, ``act (in critic)``.
    With ``positions="samples"`` each channel of a feature map is one neuron, and its positions
    are further samples; with ``"neurons"`` each channel at each position is one neuron.

    ``measures`` chooses more, of the whole network: ``gradient`` (of ``loss(network, inputs)``),
    ``update`` and ``churn`` (against the weights ``before``, see ``weights_of``) and ``ntk``; not
    ``discrete`` means that outputs are no action values or logits.

    A replica of the network, which shares its weights, runs once in evaluation mode and without
    gradients. The network itself is not changed, and another thread may train it meanwhile.

    Examples:
        >>> net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        >>> diagnose(net, torch.randn(256, 4))["1"].neurons
        32
    """
    check_arguments(
        model,
        layers,
        forward=forward,
        threshold=threshold,
        delta=delta,
        positions=positions,
        generator=generator,
        dict_as=dict_as,
    )
    chosen = choose(measures, loss, discrete=discrete)
    if chosen.needs_earlier_weights and before is None:
        raise ValueError(
            f"measures={measures!r} compares with earlier weights: pass before=weights, taken with "
            "hadamard.health.weights_of(network) before the update"
        )
    target = _runnable(model, forward)
    call = forward or target
    settings = Settings(threshold, delta, positions)
    representations = capture(target, call, inputs, layers, dict_as)
    (result,) = measured([representations], settings, [generator])
    if isinstance(result, ValueError):
        raise result
    diagnosis = _diagnosis(target, representations, result, settings)
    (norm,) = weight_norms([target])
    inputs = tensors(inputs, target)
    if isinstance(inputs, Mapping) and dict_as == "positional":
        inputs = (inputs,)
    return _with_network(diagnosis, norm, target, call, inputs, representations, chosen, before)


def diagnose_together(
    models: Sequence[nn.Module],
    inputs: Sequence[Any] | Tensor,
    layers: LayerChoice | None = None,
    *,
    threshold: float = THRESHOLD,
    delta: float = 0.01,
    positions: Positions = "samples",
    generators: Sequence[torch.Generator | None] | None = None,
    chosen: Chosen | None = None,
    before: Sequence[Weights | None] | None = None,
) -> list[Diagnosis | ValueError]:
    """Diagnose many networks, each on its own inputs, as one computation.

    The networks may differ in their parameters and buffers only: the modules of the first one run
    with the weights of each. Returns what ``diagnose`` returns for each network, up to the rounding
    of densities and contributions. In the place of a network with NaN or infinite activations or
    outputs stands the error that ``diagnose`` raises for it, so the others are still diagnosed.

    ``chosen`` are measures of whole networks (``choose``), taken one network after the other;
    ``before`` are the earlier weights of each.

    Examples:
        >>> nets = [nn.Sequential(nn.Linear(4, 32), nn.Tanh()) for _ in range(3)]
        >>> [report["1"].neurons for report in diagnose_together(nets, torch.randn(3, 256, 4))]
        [32, 32, 32]
    """
    targets = [_runnable(model, None) for model in models]
    noise = [None] * len(targets) if generators is None else list(generators)
    settings = Settings(threshold, delta, positions)
    earlier = [None] * len(targets) if before is None else list(before)
    norms = weight_norms(targets) if targets else []
    chosen = chosen or Chosen()
    results: list[Diagnosis | ValueError] = []
    while len(results) < len(targets):
        start = len(results)
        first = targets[start]
        group = [capture(first, first, inputs[start], layers)]
        end = start + group_size(group[0])
        others, their_inputs = targets[start + 1 : end], list(inputs[start + 1 : end])
        group += capture_alike(first, others, first, their_inputs, layers)
        outcomes = measured(group, settings, noise[start:end])
        for place, captured, outcome in zip(range(start, end), group, outcomes, strict=False):
            if isinstance(outcome, ValueError):
                results.append(outcome)
                continue
            target = targets[place]
            diagnosis = _diagnosis(target, captured, outcome, settings)
            results.append(
                _try_with_network(
                    diagnosis,
                    norms[place],
                    target,
                    target,
                    inputs[place],
                    captured,
                    chosen,
                    earlier[place],
                )
            )
    return results


def check_arguments(
    model: nn.Module,
    layers: LayerChoice | None = None,
    *,
    forward: Callable[..., Any] | None = None,
    threshold: float = THRESHOLD,
    delta: float = 0.01,
    positions: Positions = "samples",
    generator: torch.Generator | None = None,
    dict_as: DictAs = "keywords",
) -> None:
    """Raise the errors that ``diagnose`` would raise for these arguments whatever the inputs."""
    target = _runnable(model, forward)
    check_threshold(threshold)
    check_delta(delta)
    check_positions(positions)
    choose_modules(target, layers)
    if dict_as not in ("keywords", "positional"):
        raise ValueError(f"dict_as must be 'keywords' or 'positional', got {dict_as!r}")
    if forward is not None and not callable(forward):
        raise TypeError(f"forward must be callable, got {type(forward).__name__}")
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")


def _runnable(model: nn.Module, forward: Callable[..., Any] | None) -> nn.Module:
    """Return the network to run; raise an error if that is not possible."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    # A compiled network is diagnosed as the network it was compiled from.
    target: nn.Module = getattr(model, "_orig_mod", model)
    refuse_torchscript(target, "diagnose")
    if forward is None and type(target).forward is nn.Module.forward:
        raise ValueError(
            f"{type(target).__name__} defines no forward(): pass the function to run, for example "
            "forward=agent.get_value"
        )
    return target


def _diagnosis(
    model: nn.Module,
    representations: Sequence[Representation],
    layers: tuple[LayerHealth, ...],
    settings: Settings,
) -> Diagnosis:
    observations = len(representations[0].values)
    threshold, delta = settings.threshold, settings.delta
    return Diagnosis(type(model).__name__, observations, layers, threshold, delta)


def _with_network(
    diagnosis: Diagnosis,
    weight_norm: float | None,
    model: nn.Module,
    call: Callable[..., Any],
    inputs: Any,
    representations: Sequence[Representation],
    chosen: Chosen,
    before: Weights | None,
) -> Diagnosis:
    """Add the measures of the whole network to a diagnosis of its layers."""
    health = network_health(model, call, inputs, representations, chosen, before)
    layers = tuple(
        dataclasses.replace(layer, gradient_dormant_fraction=health.gradient_dormant[layer.name])
        if layer.name in health.gradient_dormant
        else layer
        for layer in diagnosis.layers
    )
    network = {"weight_norm": weight_norm, **health.values}
    return dataclasses.replace(diagnosis, layers=layers, network=network)


def _try_with_network(*arguments: Any) -> Diagnosis | ValueError:
    """Do the same, or return what about the network is not finite."""
    try:
        return _with_network(*arguments)
    except ValueError as error:
        return error.with_traceback(None)
