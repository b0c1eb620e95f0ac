"""What an experiment of the paper is made of: arms, panels, claims, drawings."""

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
    """What it changes beyond its variant."""
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
    """In the paper's words, after the value."""
    where: str
    measure: str = "score"
    """Of `report.measures`, or "change" (of the score), "dormancy_change" or "time"."""
    against: Arm | None = None
    """What a change is measured against."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that runs can support or contradict."""

    text: str
    """What is claimed, in our words."""
    where: str
    algorithm: str
    kind: Literal["higher", "lower", "equal"]
    """Direction (of a difference) or equality."""
    arm: Arm
    against: Arm | None = None
    """What the arm is compared with; None: with nothing (an equality then is with 0)."""
    measure: str = "score"
    by: float = 0.0
    """Direction: by at least how much, in percent. Equality: the margin, in percent of what the
    arm is compared with (of measures that are shares and compared with nothing: in points).
    Chosen before any run was made."""
    since: float | None = None
    """Compare the arm at the end with itself after this share of its training instead."""


@dataclass(frozen=True)
class Panel:
    """The arms of one algorithm, and the protocol they are run under."""

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
    """An arm that is not compared, but whose runs the normalization needs."""
    stretch: int = 1
    """How many times the usual budget ``steps`` is."""
    minatar: tuple[str, ...] = ()
    """Tasks at the MinAtar scales, if not those of the algorithm's `Setting`."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What the scale changes in every run."""
    health_aggregations: tuple[str, ...] = ("mean",)
    """The same for dormancy and rank."""
    share: float = 1.0
    """How much of the scale's budget ``steps`` is."""
    until: int = 0
    """Steps after which every run stops for now; 0 trains them to their end."""

    @property
    def baseline(self) -> Arm:
        """The arm the others are compared with: the first."""
        return self.arms[0]

    @property
    def trained(self) -> tuple[Arm, ...]:
        """All arms there must be runs of."""
        return self.arms if self.yardstick is None else (*self.arms, self.yardstick)

    def of(self, *arms: Arm, **changes: Any) -> Panel:
        """Return the panel with these arms."""
        return dataclasses.replace(self, arms=arms, **changes)


Shading = Literal["interval", "deviation", "error"]
"""95 % interval, standard deviation over seeds, or standard error of their mean."""


@dataclass(frozen=True)
class Plot:
    """One drawing of a figure: a measure over training, aggregated over a panel's tasks."""

    algorithm: str
    measure: str = "score"
    arms: tuple[Arm, ...] = ()
    """Which arms it shows; none named: all of the panel's."""
    title: str = ""
    """By default the measure's name."""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper."""

    name: str
    place: str
    """Figure or table, as they are numbered in the order of the source."""
    anchor: str
    """Words of the paper's source by which it is found: a label or a caption's beginning."""
    shows: str
    composition: str
    """How it is drawn: a module of `report.compositions`."""
    panels: tuple[Panel, ...]
    plots: tuple[Plot, ...] = ()
    """Of the composition "curves": its drawings, row by row."""
    columns: int = 3
    """Drawings in a row."""
    kde_at: tuple[float, ...] = ()
    """When densities are shown, as shares of the budget."""
    shading: Shading = "interval"
    """What is shaded around curves."""
    stated: tuple[Stated, ...] = ()
    claims: tuple[Claim, ...] = ()
    imported: tuple[str, ...] = ()
    """Methods whose curves the paper took from elsewhere: drawn if supplied with --curves."""
    note: str = ""
    """What the paper leaves open, and how it is settled here."""

    def at(self, scale: str, share: float = 1.0, until: int | None = None) -> tuple[Panel, ...]:
        """Return the panels as they are run at a scale.

        Args:
            scale: One of `SCALES`.
            share: Of the scale's budget, which all schedules follow.
            until: Steps after which every run stops, with its full-length schedules; runs that
                are no longer than that are trained to their end.
        """
        if scale not in SCALES:
            raise ValueError(f"unknown scale {scale!r}; there are: {', '.join(SCALES)}")
        if not 0 < share <= 1:
            raise ValueError(f"--share must be above 0 and at most 1, got {share:g}")
        if until is not None and until < 0:
            raise ValueError(f"--until must not be negative, got {until}")
        panels = []
        for panel in self.panels:
            sized = at_scale(panel, scale)
            steps = max(1, round(sized.steps * share))
            stop = until if until and until < steps else 0
            panels.append(dataclasses.replace(sized, steps=steps, share=share, until=stop))
        return tuple(panels)
