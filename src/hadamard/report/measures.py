"""The table of measures: their names, units, digits, and which direction is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from hadamard.core.scores import GREEDY_GAMES, GREEDY_SHARE

ScoreKind = Literal["evaluation", "greedy", "training"]

TRAINING_WINDOW = 100
"""The number of training episodes that a score averages."""
LATE_SHARE = 0.05
"""The share of training, at its end, whose evaluations are averaged for the final score."""


def number(value: float) -> str:
    """Return a score as text: three digits, or all before the point; whole numbers as they are.

    Examples:
        >>> number(12345.6), number(0.4001), number(-0.01234), number(23.0)
        ('12,346', '0.400', '-0.0123', '23')
    """
    if abs(value) >= 999.5 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def percent(value: float) -> str:
    """Return a share as text, in percent."""
    return f"{value:.1%}"


@dataclass(frozen=True)
class Measure:
    """A number that runs have, and its names."""

    key: str
    """Its name in files and in code."""
    name: str
    """In a sentence."""
    column: str
    """As the head of a table's column."""
    unit: str
    """On an axis."""
    text: Callable[[float], str] = number
    better: Literal["higher", "lower"] | None = None
    above: str = "higher"
    """The comparative for a higher value than another variant's."""
    below: str = "lower"
    """The comparative for a lower value."""
    factor: float = 1.0
    """Values are multiplied by it on an axis."""

    @property
    def title(self) -> str:
        """The name at the head of a figure."""
        return self.name[0].upper() + self.name[1:]

    @property
    def share(self) -> bool:
        """Whether it lies between 0 and 1, and is shown in percent."""
        return self.text is percent


_OF_LAYER, _OF_CONTRIBUTION = "share of the layer (%)", "share of contribution (%)"
_CONTRIBUTION = "absolute contribution to the next layer"


def _contribution(part: str, name: str) -> Measure:
    return Measure(f"{part}_contribution", f"contribution of {name}", name, _CONTRIBUTION)


def _contribution_share(part: str, name: str) -> Measure:
    return Measure(f"{part}_share", f"share of {name}", name, _OF_CONTRIBUTION, percent, factor=100)


_ALL = (
    Measure("score", "final score", "score", "score per episode", better="higher"),
    Measure("training_score", "training score", "training score", "score per episode",
            better="higher"),
    Measure("greedy_score", "greedy score", "greedy score", "score per episode", better="higher"),
    Measure("evaluation_score", "evaluation score", "evaluation score", "score per episode",
            better="higher"),
    Measure("dormant_fraction", "dormant neurons", "dormant", _OF_LAYER, percent, "lower", "more",
            "fewer", 100),
    Measure("effective_rank", "effective rank", "effective rank", "directions", better="higher"),
    Measure("stable_rank", "stable rank", "stable rank", "directions", better="higher"),
    Measure("entropy_rank", "entropy rank", "entropy rank", "directions", better="higher"),
    Measure("tau_dormant_fraction", "tau-dormant neurons", "tau-dormant", _OF_LAYER, percent,
            "lower", "more", "fewer", 100),
    Measure("gradient_dormant_fraction", "gradient-dormant neurons", "gradient-dormant", _OF_LAYER,
            percent, "lower", "more", "fewer", 100),
    Measure("weight_norm", "norm of the weights", "weight norm", "norm of all weights"),
    Measure("gradient_norm", "norm of the gradient", "gradient norm", "norm of a gradient"),
    Measure("update_ratio", "update-to-weight ratio", "update ratio", "change over norm (%)",
            percent, factor=100),
    Measure("policy_churn", "policy churn", "policy churn", "share of observations (%)", percent,
            factor=100),
    Measure("value_churn", "value churn", "value churn", "change over standard deviation"),
    Measure("ntk_rank", "tangent kernel's rank", "NTK rank", "directions", better="higher"),
    Measure("updates", "updates between", "updates", "updates"),
    Measure("full_rank", "highest possible rank", "full rank", "directions"),
    Measure("hidden_bias_share", "hidden bias", "hidden bias", _OF_CONTRIBUTION, percent, "lower",
            "larger", "smaller", 100),
    _contribution("live", "live neurons"),
    _contribution("dormant", "dormant neurons"),
    _contribution("bias", "own bias"),
    _contribution_share("live", "live neurons"),
    _contribution_share("dormant", "dormant neurons"),
    _contribution_share("bias", "own bias"),
    Measure("neurons", "neurons", "neurons", "neurons"),
    Measure("dead", "dead neurons", "dead", "neurons", better="lower"),
    Measure("saturated", "saturated neurons", "saturated", "neurons", better="lower"),
    Measure("constant", "constant neurons", "constant", "neurons", better="lower"),
    Measure("steps_per_second", "speed", "steps/s", "steps per second", better="higher"),
)  # fmt: skip
MEASURES: Mapping[str, Measure] = {measure.key: measure for measure in _ALL}

PARTS = ("live_contribution", "dormant_contribution", "bias_contribution")
"""The parts of what the next layer receives."""
PART_SHARES = ("live_share", "dormant_share", "bias_share")
"""The same parts as shares of the whole."""
HEALTH = ("dormant_fraction", "effective_rank", "hidden_bias_share")
"""The measures of a representation that every page shows."""
FURTHER = ("tau_dormant_fraction", "gradient_dormant_fraction", "stable_rank", "entropy_rank")
"""Further measures of a representation; rows of older versions lack them."""
NETWORK = (
    "weight_norm", "gradient_norm", "update_ratio", "policy_churn", "value_churn", "ntk_rank",
    "updates",
)  # fmt: skip
"""The measures that a row of health.jsonl may hold of the whole network: all but the first if a
run chose them. ``updates`` is how many lie between the weights that the changes compare."""
RECORDED = (*HEALTH, "full_rank", *PARTS, "neurons", "dead", "saturated", "constant", *FURTHER)
"""The measures that a row of health.jsonl holds of each layer."""


@dataclass(frozen=True)
class ScoreWords:
    """The texts about a kind of score in tables, captions and explanations."""

    of: str
    """What is scored, in the plural."""
    curve: str
    """What a point of its curve is."""
    final: str
    """What its final number is."""
    meaning: str
    """What a score is, explained."""


def _window(period: str) -> str:
    return (
        f"that ended in the last {100 * GREEDY_SHARE:g} % of {period}, reaching further back until "
        f"there are at least {GREEDY_GAMES}"
    )


_LATE = f"the evaluations in the last {100 * LATE_SHARE:g} % of training, or of the last one"

SCORES: Mapping[ScoreKind, ScoreWords] = {
    "evaluation": ScoreWords(
        of="evaluations",
        curve="mean of the latest evaluation",
        final=f"mean of {_LATE}",
        meaning="mean reward of an evaluation's whole episodes, played greedily and not learned "
        f"from. A final score is the mean of {_LATE}.",
    ),
    "greedy": ScoreWords(
        of="greedy games",
        curve=f"mean of the greedy games, played alongside, {_window('the budget')}",
        final=f"mean of the greedy games, played alongside, {_window('training')}",
        meaning="reward of a whole game, unclipped, that the greedy policy played alongside and "
        "did not learn from. Every score here is a mean of the games "
        f"{_window('the budget')}.",
    ),
    "training": ScoreWords(
        of="training episodes",
        curve=f"mean of the last {TRAINING_WINDOW} training episodes, of all so far while there "
        "are fewer",
        final=f"mean of the last {TRAINING_WINDOW} training episodes, of all where there are fewer",
        meaning="reward of a whole training episode, unclipped, exploration included. Every score "
        f"here is a mean of the last {TRAINING_WINDOW} such episodes, of all where there are "
        "fewer.",
    ),
}
"""By kind, in the order in which they are preferred: a run is judged by the first it has."""
