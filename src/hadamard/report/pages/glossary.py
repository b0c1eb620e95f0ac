"""Explanations of the words on a page."""

from __future__ import annotations

from collections.abc import Sequence

from hadamard.report.data.run_data import RunData
from hadamard.report.measures import SCORES
from hadamard.report.statistics.aggregates import AGGREGATES
from hadamard.report.statistics.multi_task import COMPARISON_AGGREGATE
from hadamard.report.statistics.widened_bootstrap import TASKS_TO_RESAMPLE

DENSITIES_TEXT = (
    "Kernel densities of up to 16 neurons of {layer}, evenly spread over it. Red outlines mark "
    "dormant neurons, whose output is the same for every input."
)
"""The explanation of a grid of densities of a layer."""
_HEALTH_TERMS = {
    "dormant": "the neuron gives (nearly) the same output for every input. ReLU: zero for the "
    "whole batch. Smooth activations: the peak of the kernel density of the neuron's outputs is at "
    "least {threshold:g}.",
    "dead": "the output is exactly zero for every input.",
    "saturated": "the neuron is dormant with an output near -1 or +1, so its outgoing weights act "
    "as a bias.",
    "constant": "the output is exactly the same for every input, and not zero.",
    "effective rank": "the number of directions that hold {mass:.0%} of the singular-value mass of "
    "the representation, out of those possible on this batch.",
    "hidden bias": "the share of the next layer's output (before its activation, in absolute "
    "contributions) that comes from dormant neurons and so does not depend on the input.",
}
MULTI_TASK_TERMS = {
    "normalized score": "a score on a scale that is common to all tasks, so that they may be "
    "averaged; the axis says what 0 and 1 mean.",
    "IQM": "interquartile mean: the mean of the middle half of all runs, so that neither the best "
    "nor the worst runs decide.",
    "probability of improvement": "how likely a run of one variant scores higher than a run of "
    "the other on the same task; 0.5 means no difference.",
    "performance profile": "for every score, the fraction of runs above it: a higher line is "
    "better.",
    "difference": f"the {AGGREGATES[COMPARISON_AGGREGATE].label} of a variant minus the baseline's "
    "on the same tasks, with the 95 % interval by which all comparisons are made. From "
    f"{TASKS_TO_RESAMPLE} tasks on it allows for other tasks; the shaded intervals do not.",
}
"""The terms of scores over several tasks."""


def health_terms(threshold: float, delta: float) -> dict[str, str]:
    """Return explanations of a representation's measures, for these settings of the diagnosis."""
    settings = {"threshold": threshold, "mass": 1 - delta}
    return {term: text.format(**settings) for term, text in _HEALTH_TERMS.items()}


def run_terms(runs: Sequence[RunData]) -> dict[str, str]:
    """Return explanations of the words on a page about these runs."""
    scores = [SCORES[kind] for kind in SCORES if any(run.score_kind == kind for run in runs)]
    by_kind = " ".join(f"Of runs judged by {score.of}: {score.meaning}" for score in scores)
    terms = {
        "score": by_kind if len(scores) > 1 else scores[0].meaning,
        "seed": "a repetition of a run with other random numbers.",
        "higher, lower, more, fewer": "the 95 % interval of the difference between two variants' "
        "means excludes 0. It is a bootstrap over seeds, widened because there are few of them.",
        "no difference shown": "the interval contains 0, or there are too few seeds. It does not "
        "mean that there is no difference.",
    }
    for run in runs:
        if run.threshold is not None and run.delta is not None:
            health = health_terms(run.threshold, run.delta)
            terms |= {term: health[term] for term in ("dormant", "effective rank", "hidden bias")}
            break
    return terms
