"""Caveats: sentences about runs that are missing, damaged or do not compare with others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hadamard.core.identity import VARIANT, changed
from hadamard.report.data.labels import algorithm_name
from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section, Variant
from hadamard.report.measures import SCORES
from hadamard.report.pages.findings import limits
from hadamard.text import counted


def caveats(sections: Sequence[Section], problems: Iterable[str] = ()) -> list[str]:
    """Return all caveats about a report's runs; ``problems`` are errors of reading them."""
    runs = [run for section in sections for run in section.runs]
    sentences = [f"{_sentence(problem)} The report leaves it out." for problem in problems]
    sentences += unreadable_parts(runs)
    sentences += _limits(sections)
    sentences += _different_protocols(runs)
    for section in sections:
        sentences += _different_settings(section)
        sentences += _missing_seeds(section)
        sentences += _different_scores(section)
    sentences += _without_health(runs)
    sentences += _missing_variants(sections)
    sentences += _different_commits(runs)
    return list(dict.fromkeys(sentences))


def unreadable_parts(runs: Sequence[RunData]) -> list[str]:
    """Return sentences on which parts of the runs could not be read."""
    return [
        f"{run.label}, seed {run.seed}, on {run.env}: {problem}; the rest of it is used."
        for run in runs
        for problem in run.troubles
    ]


def _different_commits(runs: Sequence[RunData]) -> list[str]:
    sentences = []
    commits = dict.fromkeys(run.commit or "not recorded" for run in runs)
    if len(commits) > 1:
        names = ", ".join(commit[:10] for commit in commits)
        sentences.append(f"The runs are of {len(commits)} different commits: {names}.")
    if dirty := sum((run.commit or "").endswith("-dirty") for run in runs):
        sentences.append(
            f"{counted(dirty, 'run')} of a source tree with changes that are not in its "
            "commit (-dirty)."
        )
    return sentences


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _limits(sections: Sequence[Section]) -> list[str]:
    """Return what limits the comparisons; a limit of several sections is one sentence."""
    names_by_limit: dict[str, list[str]] = {}
    for section in sections:
        for limit in limits(section):
            names_by_limit.setdefault(limit, []).append(section.name)
    sentences = []
    for limit, names in names_by_limit.items():
        if len(sections) == 1:
            sentences.append(limit)
        elif len(names) == len(sections):
            sentences.append(f"On every task: {limit}")
        else:
            count = f"{len(names)} of {len(sections)} tasks"
            sentences.append(f"{', '.join(names) if len(names) <= 3 else count}: {limit}")
    return sentences


def _different_settings(section: Section) -> list[str]:
    """Return which variants only differ in settings that labels usually do not name."""
    by_names: dict[tuple[object, ...], list[Variant]] = {}
    for variant in section.variants:
        spec = variant.runs[0].spec
        by_names.setdefault(tuple(spec[name] for name in VARIANT), []).append(variant)
    sentences = []
    for variants in by_names.values():
        if len(variants) > 1:
            first, *others = (variant.runs[0].spec for variant in variants)
            differing = dict.fromkeys(name for spec in others for name in changed(first, spec))
            if not differing:
                continue  # the protocol or the kind of score differs: another caveat says so
            sentences.append(
                f"{section.name}: runs of the same variant have different settings "
                f"({', '.join(differing)}); they are shown as {counted(len(variants), 'variant')}, "
                f"not as seeds of one: {' | '.join(v.label for v in variants)}."
            )
    return sentences


def _different_protocols(runs: Sequence[RunData]) -> list[str]:
    """Return a sentence if the runs were trained under different versions of the protocol."""
    protocols = Counter(run.protocol for run in runs)
    if len(protocols) == 1:
        return []
    counts = ", ".join(f"{counted(protocols[v], 'run')} of version {v}" for v in sorted(protocols))
    return [
        f"The runs are of {len(protocols)} versions of the training protocol ({counts}): their "
        "numbers do not compare, and runs of different versions are never seeds of one variant."
    ]


def _different_scores(section: Section) -> list[str]:
    """Return a sentence if a section's variants are judged by different kinds of score."""
    kinds = dict.fromkeys(SCORES[variant.score_kind].of for variant in section.variants)
    if len(kinds) == 1:
        return []
    return [
        f"{section.name}: variants are scored by different games ({', '.join(kinds)}), so their "
        "scores do not compare."
    ]


def _missing_seeds(section: Section) -> list[str]:
    seeds = {v.label: {run.seed for run in v.runs} for v in section.variants}
    all_seeds = set().union(*seeds.values())
    sentences = []
    for label, seeds_of_variant in seeds.items():
        if missing := sorted(all_seeds - seeds_of_variant):
            sentences.append(
                f"{section.name}: {label} lacks seed{'s' if len(missing) > 1 else ''} "
                f"{', '.join(map(str, missing))}, which other variants have."
            )
    return sentences


def _missing_variants(sections: Sequence[Section]) -> list[str]:
    by_algorithm: dict[str, dict[str, set[str]]] = {}
    for section in sections:
        labels = {variant.label for variant in section.variants}
        by_algorithm.setdefault(section.algorithm, {})[section.env] = labels
    sentences = []
    for algorithm, by_env in by_algorithm.items():
        all_labels = dict.fromkeys(label for labels in by_env.values() for label in sorted(labels))
        for label in all_labels:
            lacking = [env for env, labels in by_env.items() if label not in labels]
            if lacking:
                sentences.append(
                    f"{algorithm_name(algorithm)}: there is no run of {label} on "
                    f"{', '.join(lacking)}."
                )
    return sentences


def _without_health(runs: Sequence[RunData]) -> list[str]:
    lacking = [run for run in runs if not run.health_steps.size]
    if not lacking:
        return []
    names = ", ".join(f"{run.label} seed {run.seed} on {run.env}" for run in lacking[:5])
    further = f", and {len(lacking) - 5} more" if len(lacking) > 5 else ""
    return [
        f"{counted(len(lacking), 'run')} without a health stream, so without dormancy, rank and "
        f"hidden bias: {names}{further}."
    ]
