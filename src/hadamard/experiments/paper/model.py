"""The classes that describe an experiment of the paper: arms, panels, claims, plots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hadamard.experiments.paper.scales import SCALES, at_scale


@dataclass(frozen=True)
class Arm:
    """One of the variants that are compared."""

    label: str
    """As the paper calls it."""
    variant: str
    """Its name among `identity.VARIANTS`."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that it changes beyond those of its variant."""
    style: int = 0
    """Its color and marker in every figure, see `draw.figures.variant_style`."""


@dataclass(frozen=True)
class Stated:
    """A number the paper states. It is also a claim: that the number is this large."""

    algorithm: str
    """The panel it belongs to."""
    arm: Arm
    value: float
    unit: str
    """The paper's words after the value."""
    where: str
    measure: str = "score"
    """Of `report.measures`, or "change" (of the score), "dormancy_change" or "time"."""
    against: Arm | None = None
    """The arm that a change is measured against."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that runs can support or contradict."""

    text: str
    """The claim in our words."""
    where: str
    algorithm: str
    kind: Literal["higher", "lower", "equal"]
    """The direction of a difference, or equality."""
    arm: Arm
    against: Arm | None = None
    """The arm it is compared with. None compares it with nothing: an equality is then with 0."""
    measure: str = "score"
    by: float = 0.0
    """For a direction: the least difference, in percent. For an equality: the margin, in percent
    of the value that the arm is compared with (in percentage points for shares that are compared
    with nothing). 10 wherever the paper calls two variants alike, so that no run can choose it."""
    since: float | None = None
    """If set, the arm at its end is compared with itself after this share of its training."""
    theory: Literal["", "relu", "tanh"] = ""
    """If set, dormancy is compared with what the theory of this activation predicts from that of
    ``against``; the margin of an equality is then in percentage points."""


@dataclass(frozen=True)
class Panel:
    """The arms of one algorithm, with their tasks, seeds, budget and scoring."""

    algorithm: str
    tasks: tuple[str, ...]
    seeds: int
    steps: int
    """Agent steps of a run (on Atari 4 frames each, in continuous control 2 environment steps)."""
    normalization: str
    """One of `normalize.NORMALIZATIONS`."""
    aggregations: tuple[str, ...]
    """Of `estimates.AGGREGATES`, for scores: the first is drawn, all are in the table."""
    arms: tuple[Arm, ...] = ()
    yardstick: Arm | None = None
    """An arm that is trained for the normalization of scores alone, and not compared."""
    stretch: int = 1
    """``steps`` divided by the usual budget."""
    minatar: tuple[str, ...] = ()
    """Tasks at the MinAtar scales, by default those of the algorithm's `Setting`."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the scale changes in every run."""
    health_aggregations: tuple[str, ...] = ("mean",)
    """The same for dormancy and rank."""
    share: float = 1.0
    """``steps`` as a fraction of the scale's budget."""
    until: int = 0
    """Steps after which every run stops for now; 0 trains them to their end."""

    @property
    def baseline(self) -> Arm:
        """The first arm, with which the others are compared."""
        return self.arms[0]

    @property
    def trained(self) -> tuple[Arm, ...]:
        """All arms that runs are trained of."""
        return self.arms if self.yardstick is None else (*self.arms, self.yardstick)

    def with_arms(self, *arms: Arm, **changes: Any) -> Panel:
        """Return a copy with these arms and other changed fields."""
        return dataclasses.replace(self, arms=arms, **changes)


Shading = Literal["interval", "deviation", "error"]
"""95 % interval, standard deviation over seeds, or standard error of their mean."""


@dataclass(frozen=True)
class Plot:
    """One drawing of a figure: a measure over training, aggregated over a panel's tasks."""

    algorithm: str
    measure: str = "score"
    arms: tuple[Arm, ...] = ()
    """The arms it shows; if empty, all of the panel's."""
    title: str = ""
    """By default the measure's name."""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper."""

    name: str
    place: str
    """The figure or table by its number in the paper."""
    anchor: str
    """Text that identifies it in the paper's source: a label or the beginning of a caption."""
    shows: str
    composition: str
    """How it is drawn: a module of `report.compositions`."""
    panels: tuple[Panel, ...]
    plots: tuple[Plot, ...] = ()
    """For the composition "curves": its plots, row by row."""
    columns: int = 3
    """Plots in a row."""
    kde_at: tuple[float, ...] = ()
    """When densities are shown, as fractions of the budget."""
    shading: Shading = "interval"
    """What the shaded band around curves shows."""
    stated: tuple[Stated, ...] = ()
    claims: tuple[Claim, ...] = ()
    imported: tuple[str, ...] = ()
    """Methods whose curves the paper took from other work; drawn if supplied with --curves."""
    note: str = ""
    """What the paper leaves open, and the choice made here."""
    ours: bool = False
    """Whether it is no experiment of the paper but one of our own."""
    relearns: bool = False
    """Whether the networks of its runs' checkpoints are fine-tuned on new targets afterwards."""

    def panels_at(
        self, scale: str, share: float = 1.0, until: int | None = None
    ) -> tuple[Panel, ...]:
        """Return the panels as they are run at a scale.

        Args:
            scale: One of `SCALES`.
            share: Fraction of the scale's budget; all schedules are shortened with it.
            until: Steps after which every run stops, with the schedules of its whole budget;
                shorter runs are trained to their end.
        """
        if scale not in SCALES:
            raise ValueError(f"unknown scale {scale!r}; there are: {', '.join(SCALES)}")
        if not 0 < share <= 1:
            raise ValueError(f"--share must be above 0 and at most 1, got {share:g}")
        if until is not None and until < 0:
            raise ValueError(f"--until must not be negative, got {until}")
        panels = []
        for panel in self.panels:
            scaled = at_scale(panel, scale)
            steps = max(1, round(scaled.steps * share))
            stop = until if until and until < steps else 0
            panels.append(dataclasses.replace(scaled, steps=steps, share=share, until=stop))
        return tuple(panels)
