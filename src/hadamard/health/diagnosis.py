"""diagnose: the health of every hidden representation of a network, in one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hadamard.health.bias import HiddenBias, hidden_bias
from hadamard.health.capture import LayerChoice, Representation, capture
from hadamard.health.dormant import THRESHOLD, dormant
from hadamard.health.kde import density_curves
from hadamard.health.rank import effective_rank
from hadamard.health.samples import Positions, as_samples
from hadamard.report.data.kde_grid import KdeGrid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Where a bounded activation counts as saturated: its mean lies this close to +-1.
_SATURATED = 0.95
_DRAWN_NEURONS = 16
_DRAWN_SAMPLES = 2048


@dataclass(frozen=True, eq=False)
class LayerHealth:
    """The health of one hidden representation."""

    name: str
    kind: str
    """How dormancy was judged: ``relu`` by exact zeros, ``tanh`` by the density's peak."""
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
    drawn_neurons: npt.NDArray[np.int64]
    """The neurons kept for drawing, evenly spread over the layer."""
    drawn_samples: npt.NDArray[np.float32]
    """Their activations, (samples, neurons), thinned to at most 2,048 samples."""

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
        """Share of the next layer's output that dormant neurons contribute; None if unread."""
        if self.dormant_contribution is None:
            return None
        parts = (self.live_contribution, self.dormant_contribution, self.bias_contribution)
        total = sum(part for part in parts if part is not None)
        return self.dormant_contribution / total if total > 0 else 0.0

    def densities(self) -> KdeGrid:
        """Estimate the densities of the drawn neurons (the paper's 4 x 4 grid)."""
        places, density = density_curves(torch.from_numpy(self.drawn_samples))
        return KdeGrid(
            neurons=self.drawn_neurons,
            places=places.numpy(),
            density=density.numpy(),
            dormant=self.dormant_mask[self.drawn_neurons],
            bounded=bool(np.abs(self.drawn_samples).max() <= 1),
            title=f"{self.name}: {self.dormant} of {self.neurons} neurons dormant",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain Python values, without the arrays."""
        plain = {k: v for k, v in vars(self).items() if not isinstance(v, np.ndarray)}
        plain["readers"] = list(self.readers)
        plain["full_rank"] = self.full_rank
        plain["dormant_fraction"] = self.dormant_fraction
        plain["hidden_bias_share"] = self.hidden_bias_share
        return plain


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Sequence[LayerHealth]):
    """The health of a network: a sequence of layers that prints, saves and draws itself."""

    model: str
    observations: int
    """How many inputs the network was run on."""
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
        rows = [_HEADER] + [_row(layer) for layer in self.layers]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        plural = "s" if len(self) > 1 else ""
        title = f"{self.model}: {len(self)} hidden layer{plural}"
        return "\n".join([title, *lines, self.verdict()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from hadamard.report.pages.document import table_html

        return table_html(self.to_dict())

    def verdict(self) -> str:
        """Say in words what the numbers mean, worst layer first."""
        return "\n".join(_sentences(self.layers))

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
        """Draw dormant neurons, effective rank and hidden bias, layer by layer."""
        from hadamard.report.draw import figures

        return figures.health({self.model: self.to_dict()})

    def plot_kde(self, layer: str | int = -1) -> Figure:
        """Draw the densities of 16 neurons of a layer, dormant ones outlined in red."""
        from hadamard.report.draw import figures

        chosen: LayerHealth = self[layer]
        return figures.kde_grid(chosen.densities())

    def save_html(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Write the whole diagnosis as one self-contained page."""
        save_comparison(path, {self.model: self}, title=title or f"Diagnosis of {self.model}")


def save_comparison(
    path: str | os.PathLike[str],
    diagnoses: Mapping[str, Diagnosis],
    title: str,
    intro: str = "",
    figures: Mapping[str, Figure] | None = None,
) -> None:
    """Write one self-contained page that shows several networks side by side.

    ``intro`` is text for the top, ``figures`` are further figures by caption.
    """
    from hadamard.report.pages.document import write_page

    if not diagnoses:
        raise ValueError("nothing to compare: diagnoses is empty")
    write_page(
        path,
        {label: diagnosis.to_dict() for label, diagnosis in diagnoses.items()},
        {label: [layer.densities() for layer in d] for label, d in diagnoses.items()},
        title=title,
        intro=intro,
        extra=figures,
    )


_HEADER = (
    "layer",
    "neurons",
    "dormant",
    "dead",
    "saturated",
    "constant",
    "eff. rank",
    "hidden bias",
)


def _row(layer: LayerHealth) -> tuple[str, ...]:
    share = layer.hidden_bias_share
    return (
        layer.name,
        str(layer.neurons),
        f"{layer.dormant_fraction:.1%}",
        str(layer.dead),
        str(layer.saturated),
        str(layer.constant),
        f"{layer.effective_rank}/{layer.full_rank}",
        "-" if share is None else f"{share:.1%}",
    )


def _sentences(layers: Sequence[LayerHealth]) -> list[str]:
    found = []
    for layer in sorted(layers, key=lambda layer: -layer.dormant_fraction):
        troubles = []
        if layer.dormant_fraction >= 0.1:
            trouble = f"{layer.dormant_fraction:.0%} of its neurons hardly respond"
            if layer.dead + layer.saturated + layer.constant == 0:
                # The density rule has a scale, and so flags activations that are merely small.
                trouble += " (none dead or saturated: their activations are small)"
            troubles.append(trouble)
        share = layer.hidden_bias_share
        if share is not None and share >= 0.05:
            troubles.append(f"{share:.0%} of the next layer's output is hidden bias")
        if layer.effective_rank < 0.1 * layer.full_rank:
            troubles.append(f"its effective rank is {layer.effective_rank} of {layer.full_rank}")
        if troubles:
            found.append(f"{layer.name}: {', '.join(troubles)}.")
    return found or [
        "Healthy: no layer has 10 % dormant neurons, 5 % hidden bias or a rank below 10 %."
    ]


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
    without a forward method (``forward=agent.get_value``). ``layers`` names what to measure: a
    glob pattern, several, or a predicate on (name, module); left out, it is the marked modules
    (``mark``), or else every activation, bare functions such as
    ``F.relu`` included. ``positions`` says how feature maps are read: channels seen at every
    position (``"samples"``), or every position a neuron of its own (``"neurons"``).

    The network runs once in evaluation mode without gradients and is left as it was.

    Examples:
        >>> net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        >>> diagnose(net, torch.randn(256, 4))["1"].neurons
        32
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module, got {type(model).__name__}")
    # A compiled network is diagnosed as the network it was compiled from.
    target = getattr(model, "_orig_mod", model)
    if forward is None and type(target).forward is nn.Module.forward:
        raise ValueError(
            f"{type(target).__name__} defines no forward(): say what to run, for example "
            "forward=agent.get_value"
        )
    call = forward or target

    def run() -> None:
        if isinstance(inputs, Mapping):
            call(**inputs)
        elif isinstance(inputs, tuple | list):
            call(*inputs)
        else:
            call(inputs)

    found = capture(target, run, layers)
    measured = tuple(_measure(r, threshold, delta, positions, generator) for r in found)
    return Diagnosis(type(target).__name__, len(found[0].values), measured, threshold, delta)


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
    what = f"the activations of {representation.name or 'the network'}"
    samples = as_samples(values, positions, representation.feature_dim, what)
    dormancy = dormant(samples, representation.kind, threshold, generator=generator)
    low, high, mean = samples.amin(dim=0), samples.amax(dim=0), samples.mean(dim=0)
    dead = (low == 0) & (high == 0)
    bounded = bool((samples.abs() <= 1).all())
    saturated = dormancy.mask & (mean.abs() >= _SATURATED) & bounded
    splits = _splits(representation, values, dormancy.mask)
    live, stuck, bias = _contributions(list(splits.values()))
    width = samples.shape[1]
    drawn = torch.linspace(0, width - 1, min(_DRAWN_NEURONS, width)).long()
    thinned = samples[:: -(-len(samples) // _DRAWN_SAMPLES), drawn.to(samples.device)]
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
        live_contribution=live,
        dormant_contribution=stuck,
        bias_contribution=bias,
        dormant_mask=dormancy.mask.cpu().numpy(),
        drawn_neurons=drawn.numpy(),
        drawn_samples=thinned.float().cpu().numpy(),
    )


def _splits(representation: Representation, values: Tensor, mask: Tensor) -> dict[str, HiddenBias]:
    """Split the output of every affine layer that reads the representation."""
    splits = {}
    for name, layer, order in representation.readers:
        read, stuck, feature_dim = values, mask, representation.feature_dim
        if order == "features last":
            read, feature_dim = values.movedim(1, -1), values.dim() - 1
            if len(mask) != values.shape[1]:  # one neuron for each position
                stuck = mask.view(values.shape[1:]).movedim(0, -1).flatten()
        read = read.to(layer.get_parameter("weight").dtype)
        splits[name] = hidden_bias(read, layer, stuck, feature_dim)
    return splits


def _contributions(splits: Sequence[HiddenBias]) -> tuple[float | None, ...]:
    """Average the absolute contributions over all outputs of all readers."""
    if not splits:
        return None, None, None
    parts = (
        [split.live_contribution for split in splits],
        [split.dormant_contribution for split in splits],
        [split.bias_contribution for split in splits],
    )
    return tuple(float(torch.cat(part).mean()) for part in parts)
