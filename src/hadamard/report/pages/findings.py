"""Findings: sentences computed from the numbers of a comparison."""

from __future__ import annotations

from typing import NamedTuple

from hadamard.core.identity import changed, is_variant_setting
from hadamard.report.data.sections import Section, Variant, incomparable
from hadamard.report.measures import HEALTH, MEASURES, Measure
from hadamard.report.statistics.difference import Difference, difference
from hadamard.report.statistics.estimates import report_generator
from hadamard.report.statistics.task_scores import finite
from hadamard.text import count_range, counted

_FEW_SEEDS = 10

_SCORE = MEASURES["score"]
_DORMANT, _RANK, _HIDDEN_BIAS = (MEASURES[key] for key in HEALTH)
_HEALTH = (_DORMANT, _RANK, _HIDDEN_BIAS)


class Finding(NamedTuple):
    """A comparison: one sentence with its result, and sentences with the numbers."""

    headline: str
    details: list[str]


def findings(section: Section) -> list[Finding]:
    """Compare every variant of a section with its baseline."""
    results = []
    for variant in section.variants:
        baseline = section.baseline(variant)
        if baseline is None:
            continue
        reason = incomparable(variant, baseline)
        # Different networks are compared in any case: the finding lists what else differs.
        if reason and (variant.steps == baseline.steps or _only_trained_longer(variant, baseline)):
            headline = not_compared(variant.label, baseline.label, reason)
            results.append(_numbers_only(variant, headline))
        else:
            results.append(_compare(variant, baseline))
    if not results:
        (only,) = section.variants
        headline = f"{only.label} is the only variant: there is nothing to compare it with."
        results.append(_numbers_only(only, headline))
    return results


def not_compared(label: str, baseline: str, reason: str) -> str:
    """Return the sentence that a variant is not compared with its baseline, and why."""
    return f"{label} against {baseline}: {reason}, so they are not compared."


def _only_trained_longer(variant: Variant, baseline: Variant) -> bool:
    """Return whether the network is the same and only its training is longer or shorter.

    A shorter training may also change settings that are counted in steps, such as how long
    exploration lasts.
    """
    names = changed(baseline.runs[0].spec, variant.runs[0].spec)
    return "train.steps" in names and not any(map(is_variant_setting, names))


def _numbers_only(variant: Variant, headline: str) -> Finding:
    """Return a variant's numbers without a comparison."""
    return Finding(headline, [_sentence(measure, variant) for measure in (_SCORE, *_HEALTH)])


def _compare(variant: Variant, baseline: Variant) -> Finding:
    """Compare a variant with its baseline."""
    pair = (variant, baseline)
    names = f"{variant.label} against {baseline.label}"
    score_difference = _difference(_SCORE, *pair)
    score = _sentence(_SCORE, *pair)
    if score_difference is None:
        headline = f"{names}: the scores cannot be compared yet."
        score = " ".join(
            f"{v.label} has no finished {'episode' if v.finished else 'run'}."
            for v in pair
            if not finite(v.finals("score")).size
        )
    elif score_difference.too_few:
        headline = f"{names}: too few seeds to show a difference in score."
        score += f" Nothing can be concluded: {score_difference.too_few}."
    elif score_difference.outcome == "no difference shown":
        headline = f"{names}: no difference in score shown."
        score += f" The difference is {score_difference.interval}; its 95 % interval contains 0."
    else:
        headline = _headline(*pair, score_difference.outcome)
        score += f" The difference is {score_difference.interval}, with its 95 % interval."
    health = {measure: _difference(measure, *pair) for measure in _HEALTH}
    details = [score]
    if not any(health.values()):
        details.append("The representations cannot be compared: a diagnosis is missing.")
    else:
        details += [_sentence(measure, *pair) for measure in _HEALTH]
    outcomes = {measure: change.outcome for measure, change in health.items() if change is not None}
    healthier = outcomes.get(_DORMANT) == "lower" and outcomes.get(_RANK) == "higher"
    if healthier and score_difference is not None and score_difference.outcome != "higher":
        details.append("The representation is healthier, but the score is not shown to be higher.")
    return Finding(headline, details + _other_differences(*pair))


def _headline(variant: Variant, baseline: Variant, outcome: str) -> str:
    """Return the sentence that a variant scored higher or lower."""
    # Only a changed layer can "not help"; another activation is an alternative.
    activations = {v.runs[0].spec["net.activation"] for v in (variant, baseline)}
    verb = " did not help: it" if outcome == "lower" and len(activations) == 1 else ""
    return f"{variant.label}{verb} scored {outcome} than {baseline.label}."


def _difference(measure: Measure, variant: Variant, baseline: Variant) -> Difference | None:
    """Return how the means of a measure differ; None where a variant has no finite value."""
    values, baseline_values = (finite(v.finals(measure.key)) for v in (variant, baseline))
    if not values.size or not baseline_values.size:
        return None
    return difference([values], [baseline_values], "mean", rng=report_generator())


def _sentence(measure: Measure, variant: Variant, baseline: Variant | None = None) -> str:
    """Return a sentence about a measure of one variant, or of two."""
    name = measure.name.capitalize()
    if baseline is None:
        return f"{name}: {_mean_text(measure, variant)}."
    sentence = f"{name}: {_mean_text(measure, variant)} against {_mean_text(measure, baseline)}"
    change = _difference(measure, variant, baseline)
    # The headline says how the scores compare.
    if measure is _SCORE or change is None:
        return f"{sentence}."
    words = {"higher": measure.above, "lower": measure.below}
    return f"{sentence}, {words.get(change.outcome, change.outcome)}."


def _other_differences(variant: Variant, baseline: Variant) -> list[str]:
    old, new = baseline.runs[0].spec, variant.runs[0].spec
    differences = [
        f"{name} ({new.get(name)} against {old.get(name)})"
        for name in changed(old, new)
        if not is_variant_setting(name)  # the label says these
    ]
    return [f"Note that they also differ in {', '.join(differences)}."] if differences else []


def limits(section: Section) -> list[str]:
    """Return sentences on what limits all of the section's comparisons."""
    sentences = []
    for run in section.runs:
        if not run.finished:
            share = min(run.reached / run.horizon, 1)
            sentences.append(
                f"{run.label}, seed {run.seed}, is not finished ({share:.0%} of its steps): it "
                "is in the curves but not in the final numbers."
            )
        if run.lost_episodes:
            sentences.append(
                f"{run.label}, seed {run.seed}: {counted(run.lost_episodes, 'episode')} left out, "
                "because the score is not a finite number."
            )
    counts = [len(variant.finished) for variant in section.variants]
    if 0 < min(counts) < _FEW_SEEDS:
        seeds = "One seed is" if max(counts) == 1 else f"{count_range(counts, 'seed')} are"
        sentences.append(f"{seeds} few: scores in deep RL vary widely from seed to seed.")
    return sentences


def _mean_text(measure: Measure, variant: Variant) -> str:
    """Return the mean of a measure over the finished seeds, with the number of seeds and range."""
    values = variant.finals(measure.key)
    measured = finite(values)
    if not measured.size:
        return "not measured"
    notes = []
    if measured.size < values.size:
        notes.append(f"{measured.size} of {values.size} seeds")
    elif measure is _SCORE:
        notes.append(counted(values.size, "seed"))
    if measured.size > 1:
        low, high = measure.text(measured.min()), measure.text(measured.max())
        notes.append(f"{low} to {high}" if low != high else "all equal")
    mean = measure.text(float(measured.mean()))
    return f"{mean} ({', '.join(notes)})" if notes else mean
