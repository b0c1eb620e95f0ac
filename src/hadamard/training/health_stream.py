"""The health stream of a run: diagnoses of its network on recent observations, as rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hadamard.core.config import TrainSpec
from hadamard.core.random import child_seed
from hadamard.core.run import Run
from hadamard.core.types import State
from hadamard.health import Diagnosis, diagnose, diagnose_together
from hadamard.nets.hidden import Hidden, Representation


class RecentObservations:
    """Collects the last observations before each diagnosis, and none in between."""

    def __init__(self, train: TrainSpec, device: torch.device) -> None:
        self.device = device
        self.every, self.count = train.health_every, train.health_samples
        if self.count <= train.steps < self.every:
            self.every = train.steps  # a short run is diagnosed at its end
        self._batches: list[Tensor] = []

    def add(self, step: int, obs: Tensor, *, temporary: bool = False) -> None:
        """Keep a step's observations, if the next diagnosis needs them.

        Those that are ``temporary`` will be overwritten, so they are copied.
        """
        if self.wants(step, len(obs)):
            self._batches.append(obs[-self.count :].clone() if temporary else obs)

    def wants(self, step: int, count: int) -> bool:
        """Tell whether the next diagnosis needs some of so many observations from a step on."""
        return bool(self.every) and (-step) % self.every <= self.count + count

    def take(self) -> Tensor:
        """Return the last ``count`` observations, and forget them."""
        batch = torch.cat(self._batches)[-self.count :]
        self._batches = []
        return batch

    def state_dict(self) -> State:
        """Return the observations collected so far."""
        return {"observations": torch.cat(self._batches) if self._batches else None}

    def load_state_dict(self, state: State) -> None:
        """Restore collected observations."""
        saved = state["observations"]
        self._batches = [] if saved is None else [saved.to(self.device)]


def hidden_layers(network: nn.Module, which: str) -> list[str]:
    """Return the names of a network's marked hidden layers: all of them, or the last."""
    marked = (Hidden, Representation)
    names = [name for name, module in network.named_modules() if isinstance(module, marked)]
    return names if which == "all" else names[-1:]


def examine(network: nn.Module, obs: Tensor, train: TrainSpec, seed: int, step: int) -> Diagnosis:
    """Diagnose a network's hidden layers; the last one is the representation.

    The noise that the diagnosis adds follows from the run's seed and the step.
    """
    layers = hidden_layers(network, train.health_layers)
    diagnosis = diagnose(network, obs, layers, generator=_noise(obs, seed, step))
    return _in_order(diagnosis, layers)


def examine_together(
    networks: Sequence[nn.Module],
    observations: Sequence[Tensor],
    train: TrainSpec,
    seeds: Sequence[int],
    step: int,
) -> list[Diagnosis | ValueError]:
    """Diagnose networks of one shape as one computation, each on its own observations.

    Returns what ``examine`` returns for each network, up to the rounding of densities and
    contributions; for a network that has diverged, the error that it raises.
    """
    layers = hidden_layers(networks[0], train.health_layers)
    noise = [_noise(obs, seed, step) for obs, seed in zip(observations, seeds, strict=True)]
    results = diagnose_together(networks, observations, layers, generators=noise)
    return [_in_order(r, layers) if isinstance(r, Diagnosis) else r for r in results]


def _noise(obs: Tensor, seed: int, step: int) -> torch.Generator:
    return torch.Generator(obs.device).manual_seed(child_seed(seed, 3, step))


def _in_order(diagnosis: Diagnosis, layers: list[str]) -> Diagnosis:
    """Put layers into the order of the network's modules, which need not be the order they run."""
    return dataclasses.replace(diagnosis, layers=tuple(diagnosis[name] for name in layers))


def write(run: Run, step: int, diagnosis: Diagnosis, *, densities: bool) -> None:
    """Write a diagnosis to a run's streams, with the densities of neurons if asked for."""
    run.write("health", {"step": step, **health_row(diagnosis)})
    if densities:
        run.write("kde", {"step": step, **kde_row(diagnosis)})


def scalars(diagnosis: Diagnosis) -> Iterator[dict[str, Any]]:
    """Yield each layer's measures by the names that trackers show."""
    for layer in diagnosis:
        yield {f"health/{layer.name}/{key}": value for key, value in layer.to_dict().items()}


def health_row(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as a row of health.jsonl, which names the representation."""
    row = diagnosis.to_dict()
    shared = {key: row[key] for key in ("observations", "threshold", "delta", "layers")}
    return {"representation": diagnosis[-1].name, **shared}


def kde_row(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the densities of 16 neurons of the representation as a row of kde.jsonl."""
    layer = diagnosis[-1]
    grid = layer.densities()
    return {
        "layer": layer.name,
        "neurons": grid.neurons.tolist(),
        "places": [[round(x, 5) for x in curve] for curve in grid.places.tolist()],
        "density": [[round(x, 5) for x in curve] for curve in grid.density.tolist()],
        "dormant": grid.dormant.tolist(),
        "bounded": grid.bounded,
        "title": grid.title,
    }
