"""All measures of the captured representations, of networks of one shape together.

A network alone is a batch of one. Only the capture, the calls of the layers after a representation
and the drawing of jitter are made for one network after the other. Everything is queued on the
device first, and then brought to the CPU together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hadamard.health.bias import (
    affine_of,
    finite_outputs,
    hidden_bias,
    mean_magnitudes,
    output_dim,
    split_outputs,
)
from hadamard.health.capture import Representation
from hadamard.health.dormant import stacked_dormancy
from hadamard.health.inactive import TAU, low_outputs
from hadamard.health.layer import LayerHealth
from hadamard.health.rank import PendingRanks
from hadamard.health.samples import (
    Positions,
    as_samples,
    stacked,
    stacked_samples,
    within_limits,
)

_SATURATED = 0.95
"""Smallest absolute mean of a saturated neuron, where activations lie between -1 and 1."""
_PLOTTED_NEURONS = 16
_PLOTTED_SAMPLES = 2048
_CAPTURED_BYTES = {"cpu": 2**22, "cuda": 2**32}
"""For the representations measured together: what fits into a CPU's cache, or occupies a GPU."""


@dataclass(frozen=True)
class Settings:
    """How representations are measured, see ``diagnose``."""

    threshold: float
    delta: float
    positions: Positions


def group_size(representations: Sequence[Representation]) -> int:
    """Return how many such networks may be captured before they are measured."""
    size = sum(representation.values.nbytes for representation in representations)
    limit = _CAPTURED_BYTES.get(representations[0].values.device.type, 2**26)
    return max(1, limit // max(1, size))


@torch.no_grad()
def measured(
    group: Sequence[Sequence[Representation]],
    settings: Settings,
    generators: Sequence[torch.Generator | None],
) -> list[tuple[LayerHealth, ...] | ValueError]:
    """Measure the representations of each network, or say what about them is not finite."""
    shapes: dict[object, list[int]] = {}
    for index, representations in enumerate(group):
        shapes.setdefault(tuple(map(_shape, representations)), []).append(index)
    layers: list[list[_StackedLayer]] = []
    for members in shapes.values():
        own_generators = [generators[index] for index in members]
        layers.append(
            [
                _StackedLayer(same_layer, settings, own_generators)
                for same_layer in zip(*(group[index] for index in members), strict=True)
            ]
        )
    results: dict[int, tuple[LayerHealth, ...] | ValueError] = {}
    for members, stack in zip(shapes.values(), layers, strict=True):
        outcomes = [layer.results() for layer in stack]
        for index, of_network in zip(members, zip(*outcomes, strict=True), strict=True):
            errors = [health for health in of_network if isinstance(health, ValueError)]
            health = tuple(h for h in of_network if isinstance(h, LayerHealth))
            results[index] = errors[0] if errors else health
    return [results[index] for index in range(len(group))]


def _shape(representation: Representation) -> object:
    """Return what representations that are measured together have in common."""
    values = representation.values
    readers = [
        (name, order, type(layer), getattr(layer.weight, "shape", None))
        for name, layer, order in representation.readers
    ]
    own = (representation.name, representation.kind, representation.feature_dim)
    return own, values.shape, values.dtype, values.device, tuple(readers)


@dataclass(frozen=True)
class _Reader:
    """The layer of each network that reads a representation, with what it reads."""

    name: str
    layers: list[nn.Module]
    inputs: Tensor
    mask: Tensor
    feature_dim: int | None


class _StackedLayer:
    """One representation of several networks, measured; the numbers are still on the device."""

    def __init__(
        self,
        representations: Sequence[Representation],
        settings: Settings,
        generators: Sequence[torch.Generator | None],
    ) -> None:
        self.representations, self.settings = representations, settings
        self.first = first = representations[0]
        values = stacked([representation.values for representation in representations])
        # Half precision has too few digits for densities and ranks.
        half = values.dtype in (torch.bfloat16, torch.float16)
        self.values = values = values.float() if half else values
        self.label = f"the activations of {first.name or 'the network'}"
        samples = stacked_samples(values, settings.positions, first.feature_dim, self.label)
        low, high = samples.amin(dim=1), samples.amax(dim=1)
        finite = within_limits(low, high).all(dim=1)
        # A diverged network is measured as if it were all zeros, so that it cannot stop the others.
        self.samples = samples = torch.where(finite[:, None, None], samples, 0)
        self.ranks = PendingRanks(samples, settings.delta)
        self.mask, self.by_zeros, _ = stacked_dormancy(
            samples, first.kind, settings.threshold, generators
        )
        dead = (low == 0) & (high == 0)
        constant = (low == high) & ~dead
        bounded = ((low >= -1) & (high <= 1)).all(dim=1, keepdim=True)
        saturated = self.mask & (samples.mean(dim=1).abs() >= _SATURATED) & bounded
        self.readers = self._readers()
        finite_outputs, contributions = self._contributions()
        flags = (self.mask, dead, saturated, constant, low_outputs(samples, TAU))
        counts = [neurons.sum(dim=1) for neurons in flags]
        precision = torch.float32 if samples.device.type == "mps" else torch.float64
        self.numbers = torch.stack(
            [n.to(precision) for n in (finite & finite_outputs, *counts, *contributions)], dim=1
        )
        width = samples.shape[2]
        self.plotted = torch.linspace(0, width - 1, min(_PLOTTED_NEURONS, width)).long()
        step = -(-samples.shape[1] // _PLOTTED_SAMPLES)
        self.plotted_samples = samples[:, ::step, self.plotted.to(samples.device)].float()

    def results(self) -> list[LayerHealth | ValueError]:
        """Wait for the numbers; return each network's, or its error."""
        count, samples, width = self.samples.shape
        numbers: list[list[float]] = self.numbers.tolist()
        masks, plotted = self.mask.cpu().numpy(), self.plotted_samples.cpu().numpy()
        ranks, spectra = self.ranks.results(), self.ranks.spectra()
        results: list[LayerHealth | ValueError] = []
        for index in range(count):
            is_finite, dormant, dead, saturated, constant, low, *contributions = numbers[index]
            if not is_finite:
                results.append(self._error(index))
                continue
            live_part, dormant_part, bias_part = contributions or (None, None, None)
            results.append(
                LayerHealth(
                    name=self.first.name,
                    kind="relu" if self.by_zeros[index] else "tanh",
                    neurons=width,
                    samples=samples,
                    dormant=int(dormant),
                    dead=int(dead),
                    saturated=int(saturated),
                    constant=int(constant),
                    tau_dormant=int(low),
                    effective_rank=ranks[index],
                    stable_rank=spectra[index].stable_rank,
                    entropy_rank=spectra[index].entropy_rank,
                    readers=tuple(reader.name for reader in self.readers),
                    live_contribution=live_part,
                    dormant_contribution=dormant_part,
                    bias_contribution=bias_part,
                    dormant_mask=masks[index],
                    plotted_neurons=self.plotted.numpy(),
                    plotted_samples=plotted[index],
                )
            )
        return results

    def _readers(self) -> list[_Reader]:
        """Return the affine layers that read the representation, and their inputs."""
        readers = {}
        for position, (name, layer, order) in enumerate(self.first.readers):
            inputs, mask, feature_dim = self.values, self.mask, self.first.feature_dim
            if order == "features last":
                inputs, feature_dim = inputs.movedim(2, -1), inputs.dim() - 2
                if mask.shape[1] != self.values.shape[2]:  # one neuron for each position
                    per_position = mask.view(len(mask), *self.values.shape[2:])
                    mask = per_position.movedim(1, -1).flatten(1)
            weight = layer.weight
            assert isinstance(weight, Tensor)
            layers = [r.readers[position].layer for r in self.representations]
            readers[name] = _Reader(name, layers, inputs.to(weight.dtype), mask, feature_dim)
        return list(readers.values())

    def _contributions(self) -> tuple[Tensor, list[Tensor]]:
        """Return whether the readers' outputs are finite, and the average absolute contributions.

        The contributions are those of live neurons, dormant neurons and the bias, averaged over all
        outputs of all readers; none without a reader.
        """
        finite = self.mask.new_ones(len(self.mask))
        magnitudes: list[list[Tensor]] = []
        for reader in self.readers:
            layers = [affine_of(layer) for layer in reader.layers]
            live, dormant, bias = split_outputs(
                layers, reader.inputs, reader.mask, reader.feature_dim
            )
            finite = finite & finite_outputs(live, dormant)
            dim = output_dim(layers[0])
            magnitudes.append([mean_magnitudes(part, dim) for part in (live, dormant, bias)])
        parts = zip(*magnitudes, strict=True)
        return finite, [torch.cat(part, dim=1).mean(dim=1) for part in parts]

    def _error(self, index: int) -> ValueError:
        """Return the error that says what of a network is not finite."""
        positions, feature_dim = self.settings.positions, self.first.feature_dim
        try:
            as_samples(self.values[index], positions, feature_dim, self.label)
            for reader in self.readers:
                mask = reader.mask[index]
                hidden_bias(reader.inputs[index], reader.layers[index], mask, reader.feature_dim)
        except ValueError as error:
            return error.with_traceback(None)
        raise AssertionError(f"{self.label} were not finite and now are")
