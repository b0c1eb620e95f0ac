"""What runs are called: variants in words, and the settings by which they are told apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hadamard.report.data.thin import horizon_of
from hadamard.report.measures import SCORES

if TYPE_CHECKING:
    from hadamard.report.data.runs import RunData

_ALGORITHMS = {"simbav2": "SimbaV2", "mrq": "MR.Q"}
_ACTIVATIONS = {"relu": "ReLU", "elu": "ELU", "gelu": "GELU", "silu": "SiLU"}
_LAYERS = {
    "plain": "{}",
    "layernorm": "{} + LayerNorm",
    "crelu": "{}, both signs",
    "widened": "{}, widened",
    "hadamard": "{} + HR",
    "hadamard2": "{} + 2HR",
}
_NORMS = {"none": "{}", "layer": "{} + LayerNorm", "layer_map": "{} + LayerNorm (maps)"}
# What a run writes and where it runs: runs that differ only here are the same experiment.
_BOOKKEEPING = ("env", "seed", "run_dir", "device")
# Of the settings of the loop, those that are part of the experiment.
_PROTOCOL = ("train.steps", "train.atari_reset")


def algorithm_name(algorithm: str) -> str:
    """Write an algorithm as papers do.

    Examples:
        >>> algorithm_name("dqn"), algorithm_name("mrq")
        ('DQN', 'MR.Q')
    """
    return _ALGORITHMS.get(algorithm, algorithm.upper())


def experiment(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that make the experiment: not the seed, nor what is written where."""
    found = {
        name: value
        for name, value in spec.items()
        if name not in _BOOKKEEPING
        and (not name.startswith("train.") or name in _PROTOCOL)
        and (not name.startswith("redo.") or name == "redo.enabled" or spec["redo.enabled"])
    }
    horizon = horizon_of(spec)
    return {**found, "train.until": horizon if horizon < spec["train.steps"] else 0}


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name the settings of the experiment in which two runs differ, of those that both record."""
    before, after = experiment(old), experiment(new)
    return [name for name in before if name in after and before[name] != after[name]]


def labelled(runs: list[RunData]) -> tuple[list[RunData], list[str]]:
    """Return the runs with labels, and what of them is there twice.

    Runs of one label are taken for seeds of one experiment, so a label also says how it differs
    from others that would be labelled alike; and one seed run twice would pass for two.
    """
    norms: dict[str, set[str]] = {}
    for run in runs:
        norms.setdefault(run.algorithm, set()).add(run.spec["net.norm"])
    labels = [_label(run.spec, len(norms[run.algorithm]) > 1) for run in runs]
    alike: dict[tuple[str, str, str], list[RunData]] = {}
    for run, label in zip(runs, labels, strict=True):
        alike.setdefault((run.algorithm, label, run.env), []).append(run)
    # What differs on one environment is told on all, so that a variant has one name.
    differing: dict[tuple[str, str], dict[str, None]] = {}
    for (algorithm, label, _), group in alike.items():
        differing.setdefault((algorithm, label), {}).update(
            dict.fromkeys(differing_settings(group))
        )
    protocols: dict[str, set[int]] = {}
    kinds: dict[tuple[str, str], set[str]] = {}
    for run, label in zip(runs, labels, strict=True):
        protocols.setdefault(run.algorithm, set()).add(run.protocol)
        kinds.setdefault((run.algorithm, label), set()).add(run.score_kind)
    copies: dict[tuple[Any, ...], list[RunData]] = {}
    for run, label in zip(runs, labels, strict=True):
        names = differing[run.algorithm, label]
        settings = experiment(run.spec)
        told = label + "".join(f", {name} {settings.get(name, 'unknown')}" for name in names)
        if len(kinds[run.algorithm, label]) > 1:
            told += f", scored by {SCORES[run.score_kind].of}"
        if len(protocols[run.algorithm]) > 1:
            told += f", protocol {run.protocol}"
        named = dataclasses.replace(run, label=told)
        copies.setdefault((run.algorithm, run.env, told, run.seed), []).append(named)
    kept = {key: _furthest(alike) for key, alike in copies.items()}
    repeated = [
        f"{copy.path} is the same run as {kept[key].path} ({copy.label}, seed {copy.seed}), which "
        "is kept: leave one of them out"
        for key, alike in copies.items()
        for copy in alike
        if copy is not kept[key]
    ]
    return list(kept.values()), repeated


def _furthest(copies: Sequence[RunData]) -> RunData:
    """Return the finished one of some copies of a run, or the one that came furthest."""
    return max(copies, key=lambda run: (run.finished, run.reached))


def differing_settings(runs: Sequence[RunData]) -> list[str]:
    """Name the settings of the experiment in which any of the runs differ.

    A run from before a setting was there does not record it, and so does not differ in it.
    """
    specs = [experiment(run.spec) for run in runs]
    recorded: dict[str, list[Any]] = {}
    for spec in specs:
        for name, value in spec.items():
            recorded.setdefault(name, []).append(value)
    return [
        name for name, values in recorded.items() if any(value != values[0] for value in values)
    ]


def _label(spec: Mapping[str, Any], with_norm: bool) -> str:
    layer, activation = spec["net.layer"], spec["net.activation"]
    if (layer, activation) == ("crelu", "relu"):
        label = "CReLU"
    else:
        label = _LAYERS.get(layer, f"{{}} + {layer}").format(
            _ACTIVATIONS.get(activation, activation)
        )
    if with_norm:
        norm = spec["net.norm"]
        label = _NORMS.get(norm, f"{{}} + {norm}").format(label)
    return f"{label} + ReDo" if spec["redo.enabled"] else label


def order(run: RunData) -> tuple[Any, ...]:
    """Return what variants are sorted by: ordinary layers first."""
    layers = list(_LAYERS)
    layer, norm = run.spec["net.layer"], run.spec["net.norm"]
    return (
        layers.index(layer) if layer in layers else len(layers),
        bool(run.spec["redo.enabled"]),
        norm != "none",
        run.spec["net.activation"],
        run.label,
    )
