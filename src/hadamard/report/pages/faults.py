"""What a report's reader has to know about its runs: what is missing, damaged or not alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.runs import RunData, Section, Variant, changed
from hadamard.report.measures import SCORES
from hadamard.report.pages.comparison import damage
from hadamard.report.pages.reading import counted, notes


def faults(found: Sequence[Section], troubles: Iterable[str] = ()) -> list[str]:
    """Say what is wrong with the runs; ``troubles`` is what was found while they were read."""
    runs = [run for section in found for run in section.runs]
    told = [f"{_sentence(trouble)} The report goes on without it." for trouble in troubles]
    told += damage(runs)
    told += _limits(found)
    told += _different_protocols(runs)
    for section in found:
        told += _different_settings(section)
        told += _missing_seeds(section)
        told += _different_scores(section)
    told += _without_health(runs)
    told += _missing_variants(found)
    commits = dict.fromkeys(run.commit or "not recorded" for run in runs)
    if len(commits) > 1:
        shown = ", ".join(commit[:10] for commit in commits)
        told.append(f"The runs are of {len(commits)} different commits: {shown}.")
    if changed_tree := sum((run.commit or "").endswith("-dirty") for run in runs):
        told.append(
            f"{counted(changed_tree, 'run')} of a source tree with changes that are not in its "
            "commit (-dirty)."
        )
    return list(dict.fromkeys(told))


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _limits(found: Sequence[Section]) -> list[str]:
    """Say what limits the comparisons; once what is the same in many sections."""
    where: dict[str, list[str]] = {}
    for section in found:
        for note in notes(section):
            where.setdefault(note, []).append(section.name)
    told = []
    for note, names in where.items():
        if len(found) == 1:
            told.append(note)
        elif len(names) == len(found):
            told.append(f"On every task: {note}")
        else:
            where_to = (
                ", ".join(names) if len(names) <= 3 else f"{len(names)} of {len(found)} tasks"
            )
            told.append(f"{where_to}: {note}")
    return told


def _different_settings(section: Section) -> list[str]:
    """Say where runs that would have one label differ in more than the seed."""
    alike: dict[tuple[object, ...], list[Variant]] = {}
    names = ("net.layer", "net.activation", "net.norm", "redo.enabled")
    for variant in section.variants:
        spec = variant.runs[0].spec
        alike.setdefault(tuple(spec[name] for name in names), []).append(variant)
    told = []
    for variants in alike.values():
        if len(variants) > 1:
            first, *others = (variant.runs[0].spec for variant in variants)
            differing = dict.fromkeys(name for spec in others for name in changed(first, spec))
            if not differing:
                continue  # another protocol or kind of score, which is told of all runs
            told.append(
                f"{section.name}: runs of the same variant have different settings "
                f"({', '.join(differing)}); they are shown as {counted(len(variants), 'variant')}, "
                f"not as seeds of one: {' | '.join(v.label for v in variants)}."
            )
    return told


def _different_protocols(runs: Sequence[RunData]) -> list[str]:
    """Say if runs were trained under different versions of the protocol."""
    protocols = Counter(run.protocol for run in runs)
    if len(protocols) == 1:
        return []
    shown = ", ".join(f"{counted(protocols[v], 'run')} of version {v}" for v in sorted(protocols))
    return [
        f"The runs are of {len(protocols)} versions of the training protocol ({shown}): their "
        "numbers do not compare, and runs of different versions are never seeds of one variant."
    ]


def _different_scores(section: Section) -> list[str]:
    """Say if a section's variants are not judged by the same kind of score."""
    kinds = dict.fromkeys(SCORES[variant.score_kind].of for variant in section.variants)
    if len(kinds) == 1:
        return []
    return [
        f"{section.name}: scores are of {' and of '.join(kinds)}, by variant, and do not compare."
    ]


def _missing_seeds(section: Section) -> list[str]:
    seeds = {v.label: {run.seed for run in v.runs} for v in section.variants}
    every = set().union(*seeds.values())
    told = []
    for label, of_variant in seeds.items():
        if missing := sorted(every - of_variant):
            told.append(
                f"{section.name}: {label} lacks seed{'s' if len(missing) > 1 else ''} "
                f"{', '.join(map(str, missing))}, which other variants have."
            )
    return told


def _missing_variants(found: Sequence[Section]) -> list[str]:
    by_algorithm: dict[str, dict[str, set[str]]] = {}
    for section in found:
        labels = {variant.label for variant in section.variants}
        by_algorithm.setdefault(section.algorithm, {})[section.env] = labels
    told = []
    for algorithm, by_env in by_algorithm.items():
        every = dict.fromkeys(label for labels in by_env.values() for label in sorted(labels))
        for label in every:
            lacking = [env for env, labels in by_env.items() if label not in labels]
            if lacking:
                told.append(f"{algorithm_name(algorithm)}: there is no run of {label} on "
                            f"{', '.join(lacking)}.")  # fmt: skip
    return told


def _without_health(runs: Sequence[RunData]) -> list[str]:
    lacking = [run for run in runs if not run.health_steps.size]
    if not lacking:
        return []
    named = ", ".join(f"{run.label} seed {run.seed} on {run.env}" for run in lacking[:5])
    more = f", and {len(lacking) - 5} more" if len(lacking) > 5 else ""
    return [
        f"{counted(len(lacking), 'run')} without a health stream, so without dormancy, rank and "
        f"hidden bias: {named}{more}."
    ]
