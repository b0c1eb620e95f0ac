"""Grids of runs: every environment, seed, variant and value of a setting, each with its folder.

Nothing here imports torch before `grid` is called.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadamard.core import identity, remedies, require
from hadamard.core.config import RunSpec, flattened, overridden, to_dict
from hadamard.core.identity import run_name, setting_words, variant, without_unused
from hadamard.core.run import Run, RunError


@dataclass(frozen=True)
class Job:
    """A run to train; its folder is ``spec.run_dir``."""

    algorithm: str
    spec: RunSpec[Any]

    def __post_init__(self) -> None:
        if not self.spec.run_dir:
            raise ValueError("the spec of a job has no run_dir: set the folder its run goes to")

    @property
    def path(self) -> Path:
        """The run folder."""
        return Path(self.spec.run_dir or "")

    @property
    def finished(self) -> bool:
        """Whether the run has been trained to its present horizon; a damaged run has not."""
        run = Run(self.path)
        try:
            done = run.done if run.config else None
        except RunError:
            return False
        return done is not None and bool(done["steps"] >= self.spec.train.horizon)

    @property
    def name(self) -> str:
        """The folder's name, which stands for the run in tables and logs."""
        return self.path.name

    @property
    def log(self) -> Path:
        """File beside the folder for the output of the run's processes."""
        return self.path.with_name(f"{self.path.name}.log")

    @property
    def failure(self) -> Path:
        """File beside the folder that says why the run failed for good."""
        return self.path.with_name(f"{self.path.name}.failed")


def grid(
    algorithm: str,
    envs: str | Sequence[str],
    variants: Sequence[str] | Mapping[str, Mapping[str, Any]],
    seeds: Iterable[int],
    folder: str | Path,
    overrides: Mapping[str, Any] | None = None,
    base: Callable[[str], RunSpec[Any]] | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
) -> list[Job]:
    """Return a job for every environment, seed, variant and value of the ``axes``.

    Values vary fastest, then variants: the first jobs are one seed of each, which can be compared
    early.

    Args:
        algorithm: The algorithm's name.
        envs: Environments, as suite/task.
        variants: Names in `identity.VARIANTS`, or other names with the settings each changes.
        seeds: The seeds.
        folder: Where the run folders go.
        overrides: Settings that all runs change, by dotted names such as ``train.steps``; those
            of a remedy apply to the variants that have it.
        base: Returns the settings for an environment that changes are made to, by default the
            algorithm's own.
        axes: Settings by their dotted names, each with the values to try. Every combination is a
            run; its folder names the values. Those of a remedy apply to the variants that have it.
    """
    from hadamard.training.start import default_spec

    envs = [envs] if isinstance(envs, str) else list(envs)
    seeds = list(seeds)
    chosen = variants if isinstance(variants, Mapping) else {v: variant(v) for v in variants}
    for kind, items in (("environment", envs), ("seed", seeds), ("variant", list(variants))):
        if not items:
            raise ValueError(f"a sweep needs at least one {kind}")
        if repeated := [item for i, item in enumerate(items) if item in items[:i]]:
            raise ValueError(f"{kind} {repeated[0] or repr('')} is named twice")
    jobs = []
    for env in envs:
        spec = base(env) if base is not None else default_spec(algorithm, env)
        for seed in seeds:
            for name, changes in chosen.items():
                if conflicts := sorted(set(changes) & {*(overrides or {}), *(axes or {})}):
                    raise ValueError(f"{conflicts[0]} is set by the variant {name}")
                changed = without_unused({"remedy": spec.remedy, **(overrides or {}), **changes})
                with_variant = overridden(spec, changed)
                for words, values in _combinations(with_variant, axes or {}):
                    run_dir = Path(folder) / run_name(algorithm, env, [name, *words], seed)
                    own = {"env": env, "seed": seed, "run_dir": str(run_dir)}
                    settings = overridden(with_variant, {**values, **own})
                    settings.check()
                    jobs.append(Job(algorithm, settings))
    if unused := [name for name in axes or {} if not any(_has(job.spec, name) for job in jobs)]:
        section, _, setting = unused[0].partition(".")
        raise ValueError(remedies.not_chosen(section, setting))
    return jobs


def _has(spec: RunSpec[Any], name: str) -> bool:
    """Tell whether a run has a setting: those of a remedy that it does not have, it has not."""
    return not identity.is_variant_setting(name) or name in flattened(to_dict(spec))


def _combinations(
    spec: RunSpec[Any], axes: Mapping[str, Sequence[Any]]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Yield every combination of values, and the words that name it in a folder's name."""
    own = {name: _values(spec, name, values) for name, values in axes.items() if _has(spec, name)}
    last = [name.rpartition(".")[2] for name in own]
    for combination in itertools.product(*own.values()):
        values = dict(zip(own, combination, strict=True))
        words = [
            setting_words(name if last.count(word) == 1 else name.replace(".", "-"), value)
            for word, (name, value) in zip(last, values.items(), strict=True)
        ]
        yield words, values


def _values(spec: RunSpec[Any], name: str, given: Sequence[Any]) -> list[Any]:
    """Return the values of a setting with their types; refuse what reports could not tell apart."""
    values = [flattened(to_dict(overridden(spec, {name: value})))[name] for value in given]
    if not values:
        raise ValueError(f"{_flag(name)} needs at least one value")
    if repeated := [value for i, value in enumerate(values) if value in values[:i]]:
        raise ValueError(f"{_flag(name)} {repeated[0]} is named twice")
    if name not in identity.experiment(flattened(to_dict(spec))):
        raise ValueError(
            f"{_flag(name)} is not part of what a run learns, so reports could not tell its values "
            "apart: give one value after a lone --"
        )
    if wrong := [value for value in values if re.search(r"[/\\\s]", str(value))]:
        raise ValueError(f"{_flag(name)} {wrong[0]!r} cannot be part of a folder's name")
    return values


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


_MOST_DIGITS = 19
"""Digits of the largest seed, which has 63 bits."""


def seeds_from(text: str) -> list[int]:
    """Return the seeds that a text names: a number of seeds, a range, or a list.

    Examples:
        >>> seeds_from("3"), seeds_from("5-7"), seeds_from("4,9")
        ([0, 1, 2], [5, 6, 7], [4, 9])
    """
    if len(max(re.findall(r"\d+", text), key=len, default="")) > _MOST_DIGITS:
        raise ValueError(f"--seeds {text[:40]}... has a number of more than {_MOST_DIGITS} digits")
    if re.fullmatch(r"\d+", text, re.ASCII) and int(text) > 0:
        require.seeds(int(text))
        return list(range(int(text)))
    if match := re.fullmatch(r"(\d+)-(\d+)", text, re.ASCII):
        first, last = int(match[1]), int(match[2])
        if first <= last:
            require.seeds(last + 1 - first)
            return list(range(first, last + 1))
    if re.fullmatch(r"\d+(,\d+)+,?|\d+,", text, re.ASCII):
        return [int(seed) for seed in text.split(",") if seed]
    raise ValueError(
        f"--seeds must be a number of seeds (5), a range (5-9) or a list (3,7), got {text!r}"
    )
