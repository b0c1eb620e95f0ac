"""Labels of runs: their variant in words, and the settings that tell runs of one variant apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from hadamard.core import discover, identity
from hadamard.report.data.run_data import RunData
from hadamard.report.measures import SCORES


def algorithm_name(algorithm: str) -> str:
    """Write an algorithm as papers do.

    Examples:
        >>> algorithm_name("dqn"), algorithm_name("mrq")
        ('DQN', 'MR.Q')
    """
    title = discover.title(discover.ALGORITHMS, algorithm)
    return algorithm.upper().replace("_", " ") if title == algorithm else title


def labeled(runs: list[RunData]) -> tuple[list[RunData], list[str]]:
    """Return the runs with labels, and messages about copies of one run.

    Runs with one label count as seeds of one experiment. So a label also says how its runs differ
    from others of the same variant, and of several copies of a run one is used.
    """
    norms: dict[str, set[str]] = {}
    for run in runs:
        norms.setdefault(run.algorithm, set()).add(run.spec["net.norm"])
    variants = [identity.label(run.spec, with_norm=len(norms[run.algorithm]) > 1) for run in runs]
    by_variant: dict[tuple[str, str, str], list[RunData]] = {}
    for run, variant in zip(runs, variants, strict=True):
        by_variant.setdefault((run.algorithm, variant, run.env), []).append(run)
    # A difference on one environment is named on all of them, so that a variant has one label.
    differing: dict[tuple[str, str], dict[str, None]] = {}
    for (algorithm, variant, _), group in by_variant.items():
        names = identity.differing([run.spec for run in group])
        differing.setdefault((algorithm, variant), {}).update(dict.fromkeys(names))
    protocols: dict[str, set[int]] = {}
    kinds: dict[tuple[str, str], set[str]] = {}
    texts: dict[str, set[str]] = {}
    for run in runs:
        for plugin, entry in run.plugins.items():
            texts.setdefault(plugin, set()).add(entry["sha256"])
    for run, variant in zip(runs, variants, strict=True):
        protocols.setdefault(run.algorithm, set()).add(run.protocol)
        kinds.setdefault((run.algorithm, variant), set()).add(run.score_kind)
    copies: dict[tuple[Any, ...], list[RunData]] = {}
    for run, variant in zip(runs, variants, strict=True):
        settings = identity.experiment(run.spec)
        label = variant
        for name in differing[run.algorithm, variant]:
            label += f", {name} {settings.get(name, 'unknown')}"
        if len(kinds[run.algorithm, variant]) > 1:
            label += f", scored by {SCORES[run.score_kind].of}"
        for plugin, entry in run.plugins.items():
            if len(texts[plugin]) > 1:  # plugins of one name that differ
                label += f", {entry['file']} {entry['sha256'][:8]}"
        if len(protocols[run.algorithm]) > 1:
            label += f", protocol {run.protocol}"
        key = (run.algorithm, run.env, label, run.seed)
        copies.setdefault(key, []).append(dataclasses.replace(run, label=label))
    used = {key: _furthest(copies_of_run) for key, copies_of_run in copies.items()}
    messages = [
        f"{copy.path} is the same run as {used[key].path} ({copy.label}, seed {copy.seed}), which "
        "is kept: leave one of them out"
        for key, copies_of_run in copies.items()
        for copy in copies_of_run
        if copy is not used[key]
    ]
    return list(used.values()), messages


def _furthest(copies: Sequence[RunData]) -> RunData:
    """Return the copy of a run that is finished or, if none is, has the most steps."""
    return max(copies, key=lambda run: (run.finished, run.reached))
