"""``diagnose``: measure every hidden representation of a network."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hadamard.health import drawing, printing
from hadamard.health.bias import HiddenBias, hidden_bias
from hadamard.health.capture import Representation, capture
from hadamard.health.dormant import THRESHOLD, dormant
from hadamard.health.rank import effective_rank
from hadamard.health.samples import Positions, as_samples
from hadamard.health.selection import LayerChoice
from hadamard.modules import refuse_torchscript

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SATURATED = 0.95
"""Smallest absolute mean of a saturated neuron, where activations lie between -1 and 1."""
_PLOTTED_NEURONS = 16
_PLOTTED_SAMPLES = 2048


@dataclass(frozen=True, eq=False)
class LayerHealth:
    """The health of one hidden representation."""

    name: str
    kind: str
    """The rule for dormant neurons: ``relu`` by exact zeros, ``tanh`` by the density's peak."""
    neurons: int
    samples: int
    dormant: int
    """Neurons that give (nearly) the same output for every input."""
    dead: int
    """Neurons that are exactly zero for every input."""
    saturated: int
    """Dormant neurons stuck near -1 or +1: their outgoing weights act as a bias."""
    constant: int
    """Neurons with exactly the same nonzero output for every input."""
    effective_rank: int
    readers: tuple[str, ...]
    """The affine layers that read this representation."""
    live_contribution: float | None
    """Average absolute contribution of live neurons to an output of the next layer."""
    dormant_contribution: float | None
    bias_contribution: float | None
    dormant_mask: npt.NDArray[np.bool_]
    plotted_neurons: npt.NDArray[np.int64]
    """The neurons whose densities are plotted, evenly spread over the layer."""
    plotted_samples: npt.NDArray[np.float32]
    """Activations of these neurons, (samples, neurons), thinned to at most 2,048 samples."""

    @property
    def dormant_fraction(self) -> float:
        """Dormant share of all neurons."""
        return self.dormant / self.neurons

    @property
    def full_rank(self) -> int:
        """The highest effective rank the layer could have on this batch."""
        return min(self.neurons, self.samples)

    @property
    def hidden_bias_share(self) -> float | None:
        """Dormant neurons' share of the next layer's output; None without a reader."""
        if self.dormant_contribution is None:
            return None
        parts = (self.live_contribution, self.dormant_contribution, self.bias_contribution)
        total = sum(part for part in parts if part is not None)
        return self.dormant_contribution / total if total > 0 else 0.0

    def densities(self) -> drawing.KdeGrid:
        """Estimate the densities of the plotted neurons (the paper's 4 x 4 grid)."""
        return drawing.density_grid(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain Python values, without the arrays."""
        plain = {
            name: value for name, value in vars(self).items() if not isinstance(value, np.ndarray)
        }
        plain["readers"] = list(self.readers)
        plain["full_rank"] = self.full_rank
        plain["dormant_fraction"] = self.dormant_fraction
        plain["hidden_bias_share"] = self.hidden_bias_share
        return plain


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Sequence[LayerHealth]):
    """The health of a network: a sequence of its layers, with methods to print and plot it."""

    model: str
    observations: int
    """Number of inputs the network was run on."""
    layers: tuple[LayerHealth, ...]
    threshold: float
    delta: float

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
) -> Diagnosis:
    """Measure the hidden representations of any network on a batch of inputs.

    ``inputs`` is a tensor, a tuple of positional arguments or a dict of keyword arguments; a few
    thousand observations make a good batch. ``forward`` replaces ``model(...)`` for networks
    without a forward method (``forward=agent.get_value``). ``layers`` chooses what to measure: a
    glob pattern, several, or a predicate on (name, module). By default these are the marked modules
    (``mark``), or else every activation, including functions such as ``F.relu``. With
    ``positions="samples"`` each channel of a feature map is one neuron, and its positions are
    further samples; with ``"neurons"`` each channel at each position is one neuron.

    A replica of the network, which shares its weights, runs once in evaluation mode and without
    gradients. The network itself is not changed, and another thread may train it meanwhile.

    Examples:
        >>> net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        >>> diagnose(net, torch.randn(256, 4))["1"].neurons
        32
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    # A compiled network is diagnosed as the network it was compiled from.
    target = getattr(model, "_orig_mod", model)
    refuse_torchscript(target, "diagnose")
    if forward is None and type(target).forward is nn.Module.forward:
        raise ValueError(
            f"{type(target).__name__} defines no forward(): pass the function to run, for example "
            "forward=agent.get_value"
        )
    representations = capture(target, forward or target, inputs, layers)
    observations = len(representations[0].values)
    measured = tuple(_measure(r, threshold, delta, positions, generator) for r in representations)
    return Diagnosis(type(target).__name__, observations, measured, threshold, delta)


def _measure(
    representation: Representation,
    threshold: float,
    delta: float,
    positions: Positions,
    generator: torch.Generator | None,
) -> LayerHealth:
    values = representation.values
    # Half precision has too few digits for densities and ranks.
    values = values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
    label = f"the activations of {representation.name or 'the network'}"
    samples = as_samples(values, positions, representation.feature_dim, label)
    dormancy = dormant(samples, representation.kind, threshold, generator=generator)
    low, high, mean = samples.amin(dim=0), samples.amax(dim=0), samples.mean(dim=0)
    dead = (low == 0) & (high == 0)
    bounded = bool((samples.abs() <= 1).all())
    saturated = dormancy.mask & (mean.abs() >= _SATURATED) & bounded
    splits = _split_outputs(representation, values, dormancy.mask)
    live_part, dormant_part, bias_part = _mean_contributions(list(splits.values()))
    width = samples.shape[1]
    plotted = torch.linspace(0, width - 1, min(_PLOTTED_NEURONS, width)).long()
    thinned = samples[:: -(-len(samples) // _PLOTTED_SAMPLES), plotted.to(samples.device)]
    return LayerHealth(
        name=representation.name,
        kind=dormancy.kind,
        neurons=width,
        samples=samples.shape[0],
        dormant=dormancy.count,
        dead=int(dead.sum()),
        saturated=int(saturated.sum()),
        constant=int(((low == high) & ~dead).sum()),
        effective_rank=effective_rank(samples, delta),
        readers=tuple(splits),
        live_contribution=live_part,
        dormant_contribution=dormant_part,
        bias_contribution=bias_part,
        dormant_mask=dormancy.mask.cpu().numpy(),
        plotted_neurons=plotted.numpy(),
        plotted_samples=thinned.float().cpu().numpy(),
    )


def _split_outputs(
    representation: Representation, values: Tensor, mask: Tensor
) -> dict[str, HiddenBias]:
    """Split the output of every affine layer that reads the representation."""
    splits = {}
    for name, layer, order in representation.readers:
        inputs, dormant_inputs, feature_dim = values, mask, representation.feature_dim
        if order == "features last":
            inputs, feature_dim = values.movedim(1, -1), values.dim() - 1
            if len(mask) != values.shape[1]:  # one neuron for each position
                dormant_inputs = mask.view(values.shape[1:]).movedim(0, -1).flatten()
        weight: Tensor = layer.weight  # type: ignore[assignment]
        inputs = inputs.to(weight.dtype)
        splits[name] = hidden_bias(inputs, layer, dormant_inputs, feature_dim)
    return splits


def _mean_contributions(splits: Sequence[HiddenBias]) -> tuple[float | None, ...]:
    """Average the absolute contributions over all outputs of all readers."""
    if not splits:
        return None, None, None
    parts = (
        [split.live_contribution for split in splits],
        [split.dormant_contribution for split in splits],
        [split.bias_contribution for split in splits],
    )
    return tuple(float(torch.cat(part).mean()) for part in parts)
