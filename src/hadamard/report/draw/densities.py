"""Figures of single neurons: a small density of each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hadamard.report.data.kde_grid import KdeGrid
from hadamard.report.draw.figures import BLUE, MOST_POINTS, RED, evenly, name_in_figure, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

MOST_NEURONS = 32
"""Neurons in a grid; of more, evenly spread ones are drawn."""


def kde_grid(grid: KdeGrid) -> Figure:
    """Draw each neuron's density in a cell of its own; dormant neurons' cells have red outlines."""
    shown = min(len(grid.neurons), MOST_NEURONS)
    columns = min(4, shown)
    rows = math.ceil(shown / columns)
    width, height = 1.9 * columns + 0.3, 1.35 * rows + 0.7
    figure = new_figure(width, height, (0.4, 0.1, 0.55, 0.6))
    draw_densities(figure, grid, 0.55 / height, 1 - 0.6 / height, 0.4 / width, 1 - 0.1 / width)
    figure.suptitle(title(grid), fontsize=10.5, y=1 - 0.12 / height)
    figure.supxlabel("activation", fontsize=9, y=0.1 / height)
    figure.supylabel("density", fontsize=9)
    return figure


def draw_densities(
    figure: Figure | SubFigure,
    grid: KdeGrid,
    bottom: float,
    top: float,
    left: float = 0.08,
    right: float = 0.98,
) -> None:
    """Draw a grid of densities into a figure or a subfigure."""
    neurons = evenly(len(grid.neurons), MOST_NEURONS)
    count = len(neurons)
    columns = min(4, count)
    figure.subplots_adjust(left, bottom, right, top, wspace=0.12, hspace=0.75)
    cells = np.atleast_1d(figure.subplots(math.ceil(count / columns), columns)).ravel()
    for cell in cells[count:]:
        cell.set_visible(False)
    points = evenly(grid.places.shape[1], MOST_POINTS)
    for i, cell in zip(neurons, cells[:count], strict=True):
        color = RED if grid.dormant[i] else BLUE
        places, density = grid.places[i, points], grid.density[i, points]
        if grid.bounded:
            # All cells share one axis, so a spike at -1 or +1 stands at the edge.
            places = np.concatenate([[-1.25], places, [1.25]])
            density = np.concatenate([[0.0], density, [0.0]])
            cell.set_xlim(-1.25, 1.25)
            cell.set_xticks([-1, 0, 1])
        cell.fill_between(places, density, color=color, alpha=0.25, linewidth=0)
        cell.plot(places, density, color=color, linewidth=1.1)
        cell.set_ylim(0, 1.25 * float(density.max()))
        cell.set_yticks([])
        cell.tick_params(labelsize=7, length=2)
        cell.set_title(
            f"neuron {grid.neurons[i]}, peak {density.max():.3g}", fontsize=6.5, color="#222", pad=3
        )
        for spine in cell.spines.values():
            spine.set_color(RED if grid.dormant[i] else "#c8ccd2")
            spine.set_linewidth(2.2 if grid.dormant[i] else 0.8)


def title(grid: KdeGrid) -> str:
    """Return the title of a grid, which says if not all of its neurons are drawn."""
    name, count = name_in_figure(grid.title), len(grid.neurons)
    return name if count <= MOST_NEURONS else f"{name}\n{MOST_NEURONS} of {count:,} are drawn"
