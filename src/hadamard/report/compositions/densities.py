"""Densities of single neurons, early and at the end: Figure 3."""

from __future__ import annotations

import textwrap
from functools import partial
from typing import TYPE_CHECKING, Any

from hadamard.report.compositions import Composed, Drawing, numbers_table
from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.data.run_data import RunData
from hadamard.report.draw.densities import draw_densities
from hadamard.report.draw.figures import add_footer, new_figure
from hadamard.report.statistics.panel import PanelRuns
from hadamard.text import steps_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compose(drawing: Drawing) -> Composed:
    """Draw one seed's grids side by side."""
    ((algorithm, data),) = drawing.panels.items()
    grids = _grids(drawing, data)
    caption = (
        "Kernel densities of 16 neurons of the last hidden layer, evenly spread over it. Red "
        "outlines mark dormant neurons, whose output is the same for every input."
    )
    return Composed(
        partial(_draw, grids, drawing.footer([])),
        f"{caption} {'; '.join(grids)}." if grids else f"{caption} No run has densities yet.",
        [numbers_table(drawing, {algorithm: ["dormant_fraction"]})],
    )


def _grids(drawing: Drawing, data: PanelRuns) -> dict[str, KdeGrid]:
    """Return the first seed's grids by their titles."""
    grids = {}
    for label in data.shown_labels:
        for task in data.tasks:
            for run in data.complete[label][task][:1]:
                for share in drawing.experiment.kde_at:
                    snapshot = _densities_at(run, share * data.end)
                    if snapshot is not None:
                        step, grid = snapshot
                        name = f"{label} after {steps_words(step)} steps, seed {run.seed}"
                        grids[name] = grid
    return grids


def _densities_at(run: RunData, step: float) -> tuple[int, KdeGrid] | None:
    """Return a run's first densities from this step on, else its last, else None."""
    later = [snapshot for snapshot in run.snapshots if snapshot.step >= step]
    chosen = later[:1] or run.snapshots[-1:]
    return (chosen[0].step, chosen[0].grid) if chosen else None


def _draw(grids: dict[str, KdeGrid], footer: str) -> Figure:
    footer_lines = textwrap.wrap(footer, 150)
    figure = new_figure(
        5.8 * max(1, len(grids)), 6 + 0.15 * len(footer_lines), (0.1, 0.1, 0.1, 0.1)
    )
    if not grids:
        figure.text(0.5, 0.5, "no densities were written yet", ha="center", color="#555555")
    height = figure.get_figheight()
    bottom = 0.55 + 0.15 * len(footer_lines)
    parts: Any = figure.subfigures(1, max(1, len(grids)), squeeze=False)[0]
    for part, (name, grid) in zip(parts, grids.items(), strict=False):
        draw_densities(part, grid, bottom=bottom / height, top=1 - 0.7 / height)
        part.suptitle(name, fontsize=10.5, y=1 - 0.12 / height)
        part.supxlabel("activation", fontsize=9, y=(0.12 + 0.15 * len(footer_lines)) / height)
        part.supylabel("density", fontsize=9)
    add_footer(figure, footer_lines)
    return figure
