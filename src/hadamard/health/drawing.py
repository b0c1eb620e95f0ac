"""Diagnoses as figures and HTML pages.

The drawing is done by ``hadamard.report``, which no other module in this folder imports.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from hadamard.health.kde import density_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hadamard.health.diagnosis import Diagnosis
    from hadamard.health.layer import LayerHealth
    from hadamard.report.data.kde_grid import KdeGrid as KdeGrid


def density_grid(layer: LayerHealth) -> KdeGrid:
    """Estimate the densities of a layer's plotted neurons."""
    from hadamard.report.data.kde_grid import KdeGrid

    places, density = density_curves(torch.from_numpy(layer.plotted_samples))
    return KdeGrid(
        neurons=layer.plotted_neurons,
        places=places.numpy(),
        density=density.numpy(),
        dormant=layer.dormant_mask[layer.plotted_neurons],
        bounded=bool(np.abs(layer.plotted_samples).max() <= 1),
        title=f"{layer.name}: {layer.dormant} of {layer.neurons} neurons dormant",
    )


def density_figure(layer: LayerHealth) -> Figure:
    """Draw the densities of a layer's plotted neurons, dormant ones outlined in red."""
    from hadamard.report.draw.densities import kde_grid

    return kde_grid(density_grid(layer))


def health_figure(diagnosis: Diagnosis) -> Figure:
    """Draw dormant neurons, effective rank and hidden bias of every layer."""
    from hadamard.report.draw.layers import health

    return health({diagnosis.model: diagnosis.to_dict()})


def html_table(diagnosis: Diagnosis) -> str:
    """Return the table of layers in HTML, for notebooks."""
    from hadamard.report.pages.diagnosis import layer_table_html

    return layer_table_html(diagnosis.to_dict())


def save_comparison(
    path: str | os.PathLike[str],
    diagnoses: Mapping[str, Diagnosis],
    title: str,
    intro: str = "",
    figures: Mapping[str, Figure] | None = None,
) -> None:
    """Write one self-contained HTML page that compares several networks.

    ``diagnoses`` are by network label, ``intro`` is a text for the top of the page, and ``figures``
    are further figures by caption.
    """
    from hadamard.report.pages.diagnosis import write_diagnosis_page

    if not diagnoses:
        raise ValueError("nothing to compare: diagnoses is empty")
    write_diagnosis_page(
        path,
        {label: diagnosis.to_dict() for label, diagnosis in diagnoses.items()},
        {label: [density_grid(layer) for layer in d] for label, d in diagnoses.items()},
        title=title,
        intro=intro,
        further_figures=figures,
    )
