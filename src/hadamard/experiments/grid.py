"""Runs as data: which algorithm, environment, variant and seed, and where each run goes.

Nothing here imports torch before `grid` is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadamard.core.config import RunSpec, overridden
from hadamard.core.discover import unknown
from hadamard.core.run import Run

#: The variants that are compared, by name, as what each changes in an algorithm's settings.
VARIANTS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "relu": {"net.layer": "plain", "net.activation": "relu"},
    "tanh": {"net.layer": "plain", "net.activation": "tanh"},
    "tanh+layernorm": {"net.layer": "plain", "net.activation": "tanh", "net.norm": "layer"},
    "hr": {"net.layer": "hadamard"},
    "tanh+hr": {"net.layer": "hadamard", "net.activation": "tanh"},
    "relu+hr": {"net.layer": "hadamard", "net.activation": "relu"},
    "2hr": {"net.layer": "hadamard2", "net.activation": "tanh"},
    "widened": {"net.layer": "widened", "net.activation": "tanh"},
    "crelu": {"net.layer": "crelu", "net.activation": "relu"},
    "redo": {"net.layer": "plain", "net.activation": "relu", "redo.enabled": True},
}


@dataclass(frozen=True)
class Job:
    """One run that is to be made; ``spec.run_dir`` says where."""

    algorithm: str
    spec: RunSpec[Any]

    def __post_init__(self) -> None:
        if not self.spec.run_dir:
            raise ValueError("a job must say where its run goes: its spec has no run_dir")

    @property
    def path(self) -> Path:
        """The run folder."""
        return Path(self.spec.run_dir or "")

    @property
    def finished(self) -> bool:
        """Whether the run is trained as far as it is to be."""
        done = Run(self.path).done
        return done is not None and bool(done["steps"] >= self.spec.train.horizon)

    @property
    def name(self) -> str:
        """What the run is called in tables and logs."""
        return self.path.name

    @property
    def log(self) -> Path:
        """What the run's processes print, beside the folder."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def failure(self) -> Path:
        """Why the run was given up, beside the folder; it is only there if it was."""
        return self.path.with_name(f"{self.path.name}.failed")


def grid(
    algorithm: str,
    envs: str | Sequence[str],
    variants: Sequence[str] | Mapping[str, Mapping[str, Any]],
    seeds: Iterable[int],
    folder: str | Path,
    overrides: Mapping[str, Any] | None = None,
    base: Callable[[str], RunSpec[Any]] | None = None,
) -> list[Job]:
    """Return the jobs of all environments, seeds and variants, in this order.

    So the first jobs are one seed of every variant, and comparable.

    Args:
        algorithm: The algorithm's name.
        envs: Environments, as suite/task.
        variants: Names out of `VARIANTS`, or other names with what each changes.
        seeds: The seeds.
        folder: Where the run folders go.
        overrides: What all runs change, by dotted names such as ``train.steps``.
        base: The settings to begin with for an environment, by default the algorithm's own.
    """
    from hadamard.train import default_spec

    envs = [envs] if isinstance(envs, str) else list(envs)
    seeds = list(seeds)
    chosen = variants if isinstance(variants, Mapping) else {v: variant(v) for v in variants}
    for what, listed in (("environment", envs), ("seed", seeds), ("variant", list(variants))):
        if not listed:
            raise ValueError(f"a sweep needs at least one {what}")
        twice = [item for i, item in enumerate(listed) if item in listed[:i]]
        if twice:
            raise ValueError(f"{what} {twice[0]} is there twice")
    made = []
    for env in envs:
        spec = base(env) if base is not None else default_spec(algorithm, env)
        for seed in seeds:
            for name, changes in chosen.items():
                both = sorted(set(changes) & set(overrides or {}))
                if both:
                    raise ValueError(f"{both[0]} is what the variant {name} sets")
                run = f"{algorithm}_{env.replace('/', '-')}_{name}_seed{seed}"
                place = {"env": env, "seed": seed, "run_dir": str(Path(folder) / run)}
                settings = overridden(spec, {**(overrides or {}), **changes, **place})
                settings.check()
                made.append(Job(algorithm, settings))
    return made


def variant(name: str) -> dict[str, Any]:
    """Return what a named variant changes.

    Examples:
        >>> variant("tanh+hr")
        {'net.layer': 'hadamard', 'net.activation': 'tanh'}
    """
    if name not in VARIANTS:
        raise ValueError(unknown("variant", name, tuple(VARIANTS)))
    return VARIANTS[name]


def seeds_from(text: str) -> list[int]:
    """Read seeds: how many, a range, or a list.

    Examples:
        >>> seeds_from("3"), seeds_from("5-7"), seeds_from("4,9")
        ([0, 1, 2], [5, 6, 7], [4, 9])
    """
    if re.fullmatch(r"\d+", text) and int(text) > 0:
        return list(range(int(text)))
    if found := re.fullmatch(r"(\d+)-(\d+)", text):
        first, last = int(found[1]), int(found[2])
        if first <= last:
            return list(range(first, last + 1))
    if re.fullmatch(r"\d+(,\d+)+,?|\d+,", text):
        return [int(seed) for seed in text.split(",") if seed]
    raise ValueError(f"--seeds must be how many (5), a range (5-9) or a list (3,7), got {text!r}")
