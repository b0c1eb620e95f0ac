"""The health stream of a run: diagnoses of its network on recent observations, as rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hadamard.core.config import TrainSpec
from hadamard.core.random import child_seed
from hadamard.core.run import Run
from hadamard.core.types import State
from hadamard.health import Diagnosis, diagnose_together, random_residuals
from hadamard.health.network import Chosen, choose, weights_of
from hadamard.nets.hidden import Hidden, Representation


class RecentObservations:
    """Collects the last observations before each diagnosis, and none in between."""

    def __init__(self, train: TrainSpec, device: torch.device, rollout: int = 0) -> None:
        self.device = device
        self.every, self.count = train.health_every, train.health_samples
        if self.count <= train.steps < self.every:
            self.every = train.steps  # a short run is diagnosed at its end
        self._batches: list[Tensor] = []
        self._span = max(self.count, rollout)
        self._compares = chosen(train).needs_earlier_weights
        self._earlier: Earlier | None = None

    def add(self, step: int, obs: Tensor, *, temporary: bool = False) -> None:
        """Keep a step's observations, if the next diagnosis needs them.

        Those that are ``temporary`` will be overwritten, so they are copied.
        """
        if self.wants(step, len(obs)):
            self._batches.append(obs[-self.count :].clone() if temporary else obs)

    def add_weights(self, step: int, count: int, network: nn.Module, updates: int) -> None:
        """Keep a copy of the weights before a step, if the next diagnosis compares with them.

        It reaches back as far as the observations, and over a whole rollout at least, so that
        updates lie between. ``count`` is the number of environments' steps that are taken next.
        """
        if not self._compares or self._earlier is not None or not self.every:
            return
        if self.every - step % self.every <= self._span + count:
            self._earlier = Earlier(weights_of(network), updates)

    def take_weights(self, updates: int) -> Earlier | None:
        """Return the weights that were kept, if any, and forget them, after so many updates."""
        earlier, self._earlier = self._earlier, None
        return earlier and Earlier(earlier.weights, updates - earlier.updates)

    def wants(self, step: int, count: int) -> bool:
        """Tell whether the next diagnosis needs some of so many observations from a step on."""
        return bool(self.every) and (-step) % self.every <= self.count + count

    def take(self) -> Tensor:
        """Return the last ``count`` observations, and forget them."""
        batch = torch.cat(self._batches)[-self.count :]
        self._batches = []
        return batch

    def state_dict(self) -> State:
        """Return the observations collected so far, and the weights if measures compare them."""
        state: State = {"observations": torch.cat(self._batches) if self._batches else None}
        if self._earlier is not None:
            state |= {"weights": dict(self._earlier.weights), "updates": self._earlier.updates}
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore collected observations."""
        saved = state["observations"]
        self._batches = [] if saved is None else [saved.to(self.device)]
        weights = state.get("weights")
        self._earlier = None
        if weights is not None:
            on_device = {name: weight.to(self.device) for name, weight in weights.items()}
            self._earlier = Earlier(on_device, state["updates"])


class Earlier(NamedTuple):
    """A copy of a network's weights, and the number of updates that had led to them."""

    weights: dict[str, Tensor]
    updates: int
    """Made before, while the weights are kept; made since, once they are taken."""


def chosen(train: TrainSpec, *, discrete: bool = True) -> Chosen:
    """Return the measures of whole networks that a run takes; raise an error for unknown ones."""
    try:
        return choose(train.measures, random_residuals, discrete=discrete)
    except ValueError as error:
        raise ValueError(f"--train.measures {train.measures}: {error}") from None


def hidden_layers(network: nn.Module, which: str) -> list[str]:
    """Return the names of a network's marked hidden layers: all of them, or the last."""
    marked = (Hidden, Representation)
    names = [name for name, module in network.named_modules() if isinstance(module, marked)]
    return names if which == "all" else names[-1:]


def examine(
    network: nn.Module,
    obs: Tensor,
    train: TrainSpec,
    seed: int,
    step: int,
    *,
    earlier: Earlier | None = None,
    discrete: bool = True,
) -> Diagnosis:
    """Diagnose a network's hidden layers; the last one is the representation.

    The noise that the diagnosis adds follows from the run's seed and the step. ``earlier`` are the
    weights that measures compare with, and ``discrete`` says whether the network has an output for
    each action.
    """
    (result,) = examine_together(
        [network], [obs], train, [seed], step, earlier=[earlier], discrete=discrete
    )
    if isinstance(result, ValueError):
        raise result
    return result


def examine_together(
    networks: Sequence[nn.Module],
    observations: Sequence[Tensor],
    train: TrainSpec,
    seeds: Sequence[int],
    step: int,
    *,
    earlier: Sequence[Earlier | None] | None = None,
    discrete: bool = True,
) -> list[Diagnosis | ValueError]:
    """Diagnose networks of one shape as one computation, each on its own observations.

    Returns what ``examine`` returns for each network, up to the rounding of densities and
    contributions; for a network that has diverged, the error that it raises.
    """
    layers = hidden_layers(networks[0], train.health_layers)
    noise = [_noise(obs, seed, step) for obs, seed in zip(observations, seeds, strict=True)]
    earlier = [None] * len(networks) if earlier is None else earlier
    results = diagnose_together(
        networks,
        observations,
        layers,
        generators=noise,
        chosen=chosen(train, discrete=discrete),
        before=[old and old.weights for old in earlier],
    )
    return [
        _in_order(_with_updates(result, old), layers) if isinstance(result, Diagnosis) else result
        for result, old in zip(results, earlier, strict=True)
    ]


def _with_updates(diagnosis: Diagnosis, earlier: Earlier | None) -> Diagnosis:
    """Say beside changes of weights how many updates made them."""
    if earlier is None:
        return diagnosis
    network = {**diagnosis.network, "updates": float(earlier.updates)}
    return dataclasses.replace(diagnosis, network=network)


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
    """Yield the network's and each layer's measures by the names that trackers show."""
    yield {f"health/{key}": value for key, value in diagnosis.network.items()}
    for layer in diagnosis:
        yield {f"health/{layer.name}/{key}": value for key, value in layer.to_dict().items()}


def health_row(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as a row of health.jsonl, which names the representation."""
    row = diagnosis.to_dict()
    shared = {key: row[key] for key in ("observations", "threshold", "delta", "network", "layers")}
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
