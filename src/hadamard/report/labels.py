"""What runs are called: variants in words, and the settings by which they are told apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hadamard.report.runs import RunData

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


def algorithm_name(algorithm: str) -> str:
    """Write an algorithm as papers do.

    Examples:
        >>> algorithm_name("dqn"), algorithm_name("mrq")
        ('DQN', 'MR.Q')
    """
    return _ALGORITHMS.get(algorithm, algorithm.upper())


def experiment(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that make the experiment: not the seed, nor what is written where."""
    return {
        name: value
        for name, value in spec.items()
        if name not in _BOOKKEEPING
        and (not name.startswith("train.") or name == "train.steps")
        and (not name.startswith("redo.") or name == "redo.enabled" or spec["redo.enabled"])
    }


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name the settings of the experiment in which two runs differ."""
    before, after = experiment(old), experiment(new)
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names.

    Examples:
        >>> flat({"seed": 0, "net": {"width": 512}})
        {'seed': 0, 'net.width': 512}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


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
    kept: dict[tuple[Any, ...], RunData] = {}
    repeated = []
    for run, label in zip(runs, labels, strict=True):
        names = differing[run.algorithm, label]
        told = label + "".join(f", {name} {run.spec.get(name)}" for name in names)
        first = kept.setdefault((run.algorithm, run.env, told, run.seed), run)
        if first is not run:
            repeated.append(
                f"{first.path} and {run.path} are the same run ({told}, seed {run.seed}): "
                "leave one of them out"
            )
    return [dataclasses.replace(run, label=told) for (_, _, told, _), run in kept.items()], repeated


def differing_settings(runs: Sequence[RunData]) -> list[str]:
    """Name the settings of the experiment in which any of the runs differ."""
    specs = [experiment(run.spec) for run in runs]
    names = dict.fromkeys(name for spec in specs for name in spec)
    return [
        name for name in names if any(spec.get(name) != specs[0].get(name) for spec in specs[1:])
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
