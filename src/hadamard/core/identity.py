"""What a run is: the settings that make its experiment, its variant, its label and its folder.

Settings are by their dotted names here, see `core.config.flattened`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hadamard.core import discover, remedies, renamed
from hadamard.text import unknown

Settings = Mapping[str, Any]

PLACE = ("env", "seed", "run_dir", "device")
"""On which environment and from which seed a run is trained, where, and on what."""
VARIANT = ("net.layer", "net.activation", "net.norm", "remedy")
"""What makes a variant; the settings of its remedies belong to it too, see `is_variant_setting`."""
REQUIRED = ("env", "seed", *VARIANT[:3], "train.steps", VARIANT[3])
"""What the settings of every run must have."""
_RESUME = ("run_dir", "device", "train.until")
RESTART = (*_RESUME, "train.fleet", "train.emulators")
"""What may differ between two starts of one run; one that was begun keeps its own."""
ADJUSTABLE = (
    *_RESUME,
    "train.tensorboard",
    "train.wandb",
    "train.trackio",
    "train.mlflow",
    "train.threads",
    "train.compile",
    "train.capture",
    "train.learn_ahead",
    "train.env_workers",
    "train.eval_workers",
    "train.film_every",
    "train.keep_every",
)
"""What may be edited in the config.json of an interrupted run: its results do not depend on it."""
_TRAINING = ("train.steps", "train.atari_reset")
"""The settings of the training loop that are part of the experiment; others only write or hurry."""


def experiment(settings: Settings) -> dict[str, Any]:
    """Return the settings that make the experiment: not the seed, nor what is written where."""
    kept = {
        name: value
        for name, value in settings.items()
        if name not in PLACE and (not name.startswith("train.") or name in _TRAINING)
    }
    end = horizon(settings)
    kept["train.until"] = end if end < settings["train.steps"] else 0
    # Seeds of one experiment may start from the weights of one run each.
    kept["init_from"] = "another run" if settings.get("init_from") else "none"
    kept["extended"] = settings.get("extended", "no")
    return kept


def extended(extensions: Sequence[Mapping[str, int]]) -> str:
    """Say in a setting's place how a run's budget was raised: ``core.run.Run.extensions``.

    Examples:
        >>> extended([]), extended([{"at": 90, "from": 100, "to": 300}])
        ('no', 'from 100 steps at 90')
    """
    return ", ".join(f"from {e['from']} steps at {e['at']}" for e in extensions) or "no"


def horizon(settings: Settings) -> int:
    """Return the step at which a run ends: its budget, or the earlier step it is stopped at."""
    until, budget = settings.get("train.until"), int(settings["train.steps"])
    if isinstance(until, bool) or not isinstance(until, int) or until <= 0:
        return budget
    return min(until, budget)


def changed(old: Settings, new: Settings) -> list[str]:
    """Name the settings of the experiment in which two runs differ, of those that both record."""
    before, after = experiment(old), experiment(new)
    return [name for name in before if name in after and before[name] != after[name]]


def differing(runs: Sequence[Settings]) -> list[str]:
    """Name the settings of the experiment in which any of the runs differ.

    A run from before a setting was added does not record it, and so does not differ in it.
    """
    recorded: dict[str, list[Any]] = {}
    for settings in runs:
        for name, value in experiment(settings).items():
            recorded.setdefault(name, []).append(value)
    return [
        name for name, values in recorded.items() if any(value != values[0] for value in values)
    ]


@dataclass(frozen=True)
class Variant:
    """A variant that experiments compare."""

    name: str
    """On the command line, and in the names of folders."""
    label: str
    """In tables and figures."""
    settings: Mapping[str, Any]
    """What it changes in an algorithm's settings."""


_RELU = {"net.layer": "plain", "net.activation": "relu"}
_TANH = {"net.layer": "plain", "net.activation": "tanh"}
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("baseline", "baseline", {}),
        Variant("relu", "ReLU", _RELU),
        Variant("tanh", "tanh", _TANH),
        Variant("tanh+layernorm", "tanh + LayerNorm", {**_TANH, "net.norm": "layer"}),
        Variant("hr", "HR", {"net.layer": "hadamard"}),
        Variant("tanh+hr", "tanh + HR", {**_TANH, "net.layer": "hadamard"}),
        Variant("relu+hr", "ReLU + HR", {**_RELU, "net.layer": "hadamard"}),
        Variant("2hr", "tanh + 2HR", {**_TANH, "net.layer": "hadamard2"}),
        Variant("widened", "tanh, widened", {**_TANH, "net.layer": "widened"}),
        Variant("crelu", "CReLU", {**_RELU, "net.layer": "crelu"}),
        Variant("redo", "ReLU + ReDo", {**_RELU, "remedy": "redo"}),
        Variant("glu", "GLU, sigmoid gate", {"net.layer": "glu", "net.activation": "sigmoid"}),
        Variant("fourier", "Deep Fourier", {"net.layer": "fourier"}),
        Variant("rational", "PAU", {"net.layer": "plain", "net.activation": "rational"}),
        Variant("hadamax", "Hadamax", {"net.layer": "hadamax"}),
    )
}
"""The variants that have a name."""

_ACTIVATIONS = {
    "relu": "ReLU",
    "tanh": "tanh",
    "elu": "ELU",
    "gelu": "GELU",
    "silu": "SiLU",
    "sigmoid": "sigmoid",
    "rational": "PAU",
}
# In the order in which variants are listed: ordinary layers first.
_LAYERS = {
    "plain": "{}",
    "layernorm": "{} + LayerNorm",
    "crelu": "{}, both signs",
    "widened": "{}, widened",
    "hadamard": "{} + HR",
    "hadamard2": "{} + 2HR",
    "glu": "GLU, {} gate",
    "fourier": "Deep Fourier",
    "hadamax": "Hadamax",
}
_NORMS = {"none": "{}", "layer": "{} + LayerNorm", "layer_map": "{} + LayerNorm (maps)"}


def variant(name: str) -> dict[str, Any]:
    """Return what a variant changes: one with a name, or one that is joined from parts.

    Examples:
        >>> variant("tanh+hr")
        {'net.layer': 'hadamard', 'net.activation': 'tanh'}
    """
    if name in VARIANTS:
        return dict(VARIANTS[name].settings)
    changes: dict[str, Any] = {}
    known = parts()
    for word in name.split("+"):
        change = known.get(word, {})
        if "remedy" in change and "remedy" in changes:
            change = {"remedy": f"{changes.pop('remedy')},{change['remedy']}"}
        if not change or set(change) & set(changes):
            raise ValueError(unknown("variant", name, [*VARIANTS, *known]))
        changes |= change
    if "net.activation" in changes:
        changes.setdefault("net.layer", "plain")
    return changes


def parts() -> dict[str, dict[str, Any]]:
    """Return what variants are joined from with +, and what each part changes.

    They are the activations, the layer variants and the remedies, plugins among them.

    Examples:
        >>> parts()["silu"], parts()["crelu"], parts()["redo"]
        ({'net.activation': 'silu'}, {'net.layer': 'crelu'}, {'remedy': 'redo'})
        >>> variant("silu+crelu+redo")
        {'net.activation': 'silu', 'net.layer': 'crelu', 'remedy': 'redo'}
    """
    activations = {name: {"net.activation": name} for name in _ACTIVATIONS}
    layers = {name: {"net.layer": name} for name in discover.names(discover.LAYERS)}
    chosen = {name: {"remedy": name} for name in discover.names(discover.REMEDIES)}
    spelled = {"hr": "hadamard", "2hr": "hadamard2"}
    layers |= {name: {"net.layer": layer} for name, layer in spelled.items()}
    # The norm before the activation, as in tanh+layernorm.
    return {**activations, **layers, **chosen, "layernorm": {"net.norm": "layer"}}


def label(settings: Settings, *, with_norm: bool) -> str:
    """Write a run's variant in words; its norm only ``with_norm``, where runs differ in it.

    Examples:
        >>> plain = {"net.layer": "plain", "net.activation": "tanh", "net.norm": "layer"}
        >>> label({**plain, "remedy": "redo"}, with_norm=True)
        'tanh + LayerNorm + ReDo'
    """
    layer, activation = settings["net.layer"], settings["net.activation"]
    if (layer, activation) == ("crelu", "relu"):
        words = "CReLU"
    else:
        pattern = _LAYERS.get(layer, f"{{}} + {layer}")
        words = pattern.format(_ACTIVATIONS.get(activation, activation))
    if with_norm:
        norm = settings["net.norm"]
        words = _NORMS.get(norm, f"{{}} + {norm}").format(words)
    titles = [
        discover.title(discover.REMEDIES, name) for name in remedies.chosen(settings["remedy"])
    ]
    return " + ".join([words, *titles])


def order(settings: Settings) -> tuple[Any, ...]:
    """Return what variants are sorted by: ordinary layers first, then without remedy or norm."""
    layers = list(_LAYERS)
    layer = settings["net.layer"]
    return (
        layers.index(layer) if layer in layers else len(layers),
        settings["remedy"] != "none",
        settings["net.norm"] != "none",
        settings["net.activation"],
    )


def ordinary(settings: Settings) -> bool:
    """Tell whether a run has ordinary layers and no remedy: what others are compared with."""
    return bool(settings["net.layer"] == "plain" and settings["remedy"] == "none")


def is_variant_setting(name: str) -> bool:
    """Tell whether a setting makes a variant: the network's, or those of a remedy.

    Examples:
        >>> [is_variant_setting(name) for name in ("net.layer", "redo.tau", "net.width")]
        [True, True, False]
    """
    section, dot, _ = name.partition(".")
    return name in VARIANT or (bool(dot) and section not in ("algo", "net", "train"))


def without_unused(changes: Settings) -> dict[str, Any]:
    """Return changes of settings without those of remedies that they do not choose.

    Examples:
        >>> without_unused({"redo.period": 20, "net.width": 16})
        {'net.width': 16}
    """
    chosen = remedies.chosen(changes.get("remedy", "none"))
    return {
        name: value
        for name, value in changes.items()
        if name in VARIANT or not is_variant_setting(name) or name.partition(".")[0] in chosen
    }


_MOST_NAMED = 3
"""Changed settings that the name of a folder spells out, at most."""


def run_name(algorithm: str, env: str, words: Iterable[str], seed: int) -> str:
    """Return the name of a run's folder; ``words`` say what it is between environment and seed.

    Examples:
        >>> run_name("pqn", "minatar/breakout", ["tanh+hr"], 3)
        'pqn_minatar-breakout_tanh+hr_seed3'
    """
    place = env.replace("/", "-").replace(":", "-")  # not every system takes a colon
    return "_".join([algorithm, place, *words, f"seed{seed}"])


def default_run_name(algorithm: str, settings: Settings, defaults: Settings) -> str:
    """Name a run's folder after its variant and what differs from its algorithm's defaults.

    Many such settings are abbreviated to a checksum.
    """
    words = [settings["net.layer"], settings["net.activation"]]
    words += [] if settings["net.norm"] == "none" else [settings["net.norm"]]
    words += remedies.chosen(settings["remedy"])
    # A run keeps its name however far it is trained for now, and in whatever form.
    named = (*PLACE, *VARIANT, "train.until", "train.fleet", "train.emulators")
    changes = {
        renamed.former(name): value
        for name, value in settings.items()
        if name not in named and value != defaults.get(name)
    }
    spelled = [setting_words(name, value) for name, value in changes.items()]
    if len(spelled) > _MOST_NAMED or any("/" in word for word in spelled):
        spelled = [f"{zlib.crc32(repr(sorted(changes.items())).encode()):08x}"]
    return run_name(algorithm, settings["env"], [*words, *spelled], settings["seed"])


def setting_words(name: str, value: Any, *, dashes: bool = False) -> str:
    """Return how the name of a folder spells a setting, with ``dashes`` for underscores.

    Examples:
        >>> setting_words("algo.learning_rate", 0.001)
        'learning_rate-0.001'
    """
    word = name.rpartition(".")[2].strip("_")
    return f"{word.replace('_', '-') if dashes else word}-{value}"
