"""What the numbers of a comparison say, in words computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hadamard.report.data.runs import FloatArray, Section, Variant, changed, incomparable
from hadamard.report.measures import HEALTH, MEASURES, Measure
from hadamard.report.statistics.decision import Difference, difference

_FEW_SEEDS = 10
# What a label already says, or what is allowed to differ between the runs of a variant.
_SAID = ("net.layer", "net.activation", "net.norm", "redo.enabled", "redo.tau", "redo.period")


_SCORE = MEASURES["score"]
_DORMANT, _RANK, _HIDDEN_BIAS = (MEASURES[key] for key in HEALTH)
_HEALTH = (_DORMANT, _RANK, _HIDDEN_BIAS)


class Finding(NamedTuple):
    """One comparison in words."""

    headline: str
    details: list[str]


def reading(section: Section) -> list[Finding]:
    """Say what came out, computed from the numbers and whatever they are."""
    found = []
    for variant in section.variants:
        baseline = section.baseline(variant)
        if baseline is None:
            continue
        why = incomparable(variant, baseline)
        # Of different networks, a comparison says what else differs.
        if why and (variant.steps == baseline.steps or _only_trained_longer(variant, baseline)):
            found.append(_alone(variant, not_compared(variant.label, baseline.label, why)))
        else:
            found.append(_against(variant, baseline))
    if not found:
        (only,) = section.variants
        headline = f"{only.label} is the only variant: there is nothing to compare it with."
        found.append(_alone(only, headline))
    return found


def not_compared(ours: str, theirs: str, why: str) -> str:
    """Say that two labels are not compared, and why."""
    return f"{ours} against {theirs}: {why}, so they are not compared."


def _only_trained_longer(variant: Variant, baseline: Variant) -> bool:
    """Tell whether the network is the same and only its training is longer or shorter.

    A shorter training also changes what is counted in steps, such as how long exploration lasts.
    """
    names = changed(baseline.runs[0].spec, variant.runs[0].spec)
    return "train.steps" in names and not any(name in _SAID for name in names)


def _alone(variant: Variant, headline: str) -> Finding:
    """Tell the numbers of a variant that is compared with no other."""
    return Finding(headline, [_sentence(measure, variant) for measure in (_SCORE, *_HEALTH)])


def _against(variant: Variant, baseline: Variant) -> Finding:
    """Compare a variant with its baseline."""
    pair = (variant, baseline)
    names = f"{variant.label} against {baseline.label}"
    shown = _difference(_SCORE, *pair)
    score = _sentence(_SCORE, *pair)
    if shown is None:
        headline = f"{names}: the scores cannot be compared yet."
        score = " ".join(
            f"{v.label} has no finished {'episode' if v.finished else 'run'}."
            for v in pair
            if not finite(v.finals("score")).size
        )
    elif shown.too_few:
        headline = f"{names}: too few seeds to show a difference in score."
        score += f" Nothing can be concluded: {shown.too_few}."
    elif shown.outcome == "no difference shown":
        headline = f"{names}: no difference in score shown."
        score += f" The difference is {shown.interval}; its 95 % interval contains 0."
    else:
        headline = _changed(*pair, shown.outcome)
        score += f" The difference is {shown.interval}, a 95 % interval."
    health = {measure: _difference(measure, *pair) for measure in _HEALTH}
    details = [score]
    if not any(health.values()):
        details.append("The representations cannot be compared: a diagnosis is missing.")
    else:
        details += [_sentence(measure, *pair) for measure in _HEALTH]
    outcomes = {measure: found.outcome for measure, found in health.items() if found is not None}
    healthier = outcomes.get(_DORMANT) == "lower" and outcomes.get(_RANK) == "higher"
    if healthier and shown is not None and shown.outcome != "higher":
        details.append("So the representation is healthier, and the score does not show it.")
    return Finding(headline, details + _other_changes(*pair))


def _changed(variant: Variant, baseline: Variant, outcome: str) -> str:
    """Say that a variant scored higher or lower."""
    # Another activation is an alternative; only a changed layer is meant to help.
    activations = {v.runs[0].spec["net.activation"] for v in (variant, baseline)}
    helped = " did not help: it" if outcome == "lower" and len(activations) == 1 else ""
    return f"{variant.label}{helped} scored {outcome} than {baseline.label}."


def _difference(measure: Measure, variant: Variant, baseline: Variant) -> Difference | None:
    """Return how the means of a measure differ; None where a variant has no finite value."""
    ours, theirs = (finite(v.finals(measure.key)) for v in (variant, baseline))
    if not ours.size or not theirs.size:
        return None
    return difference([ours], [theirs], "mean", rng=np.random.default_rng(0))


def _sentence(measure: Measure, variant: Variant, baseline: Variant | None = None) -> str:
    """Tell one measure, of one variant or of two."""
    name = measure.name.capitalize()
    if baseline is None:
        return f"{name}: {_told(measure, variant)}."
    sentence = f"{name}: {_told(measure, variant)} against {_told(measure, baseline)}"
    shown = _difference(measure, variant, baseline)
    # The score's headline says how it compares.
    if measure is _SCORE or shown is None:
        return f"{sentence}."
    words = {"higher": measure.above, "lower": measure.below}
    return f"{sentence}, {words.get(shown.outcome, shown.outcome)}."


def _other_changes(variant: Variant, baseline: Variant) -> list[str]:
    old, new = baseline.runs[0].spec, variant.runs[0].spec
    also = [
        f"{name} ({new.get(name)} against {old.get(name)})"
        for name in changed(old, new)
        if name not in _SAID
    ]
    return [f"Mind that they also differ in {', '.join(also)}."] if also else []


def notes(section: Section) -> list[str]:
    """Say what limits all of the section's comparisons."""
    told = []
    for run in section.runs:
        if not run.finished:
            share = min(run.reached / run.horizon, 1)
            told.append(
                f"{run.label}, seed {run.seed}, is not finished ({share:.0%} of its steps): the "
                "curves show it, the final numbers leave it out."
            )
        if run.lost_episodes:
            told.append(
                f"{run.label}, seed {run.seed}: {counted(run.lost_episodes, 'episode')} left out "
                "whose score is not a finite number."
            )
    counts = [len(variant.finished) for variant in section.variants]
    if 0 < min(counts) < _FEW_SEEDS:
        seeds = "One seed is" if max(counts) == 1 else f"{spanned(counts)} seeds are"
        told.append(f"{seeds} few: scores in deep RL vary widely from seed to seed.")
    return told


def spanned(counts: Sequence[int]) -> str:
    """Write the lowest and the highest of some counts."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def finite(values: FloatArray) -> FloatArray:
    """Return the values without what is not a finite number."""
    return values[np.isfinite(values)]


def _told(measure: Measure, variant: Variant) -> str:
    """Write a measure's mean over the finished seeds, with their range and any that lack it."""
    values = variant.finals(measure.key)
    sound = finite(values)
    if not sound.size:
        return "not measured"
    notes = []
    if sound.size < values.size:
        notes.append(f"{sound.size} of {values.size} seeds")
    elif measure is _SCORE:
        notes.append(counted(values.size, "seed"))
    if sound.size > 1:
        low, high = measure.text(sound.min()), measure.text(sound.max())
        notes.append(f"{low} to {high}" if low != high else "each the same")
    mean = measure.text(float(sound.mean()))
    return f"{mean} ({', '.join(notes)})" if notes else mean


def counted(amount: int, noun: str) -> str:
    """Write an amount with its noun in the right number."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"
