"""The figures of a diagnosis, in real matplotlib."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hadamard import diagnose
from tests.support.health import sick

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hadamard.report.draw.figures import RED


def test_kde_grid_outlines_the_dormant_neurons() -> None:
    report = sick()
    figure = report.plot_kde("3")
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 16
    layer = report["3"]
    for axes, neuron in zip(figure.axes, layer.plotted_neurons, strict=True):
        red = to_hex(axes.spines["left"].get_edgecolor()) == RED
        assert red == bool(layer.dormant_mask[neuron])
        assert f"neuron {neuron}," in axes.get_title()
        assert axes.get_xlim() == (-1.25, 1.25)
    assert 0 < sum(layer.dormant_mask[layer.plotted_neurons]) < 16


def test_kde_grid_of_a_small_or_unbounded_layer() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.ELU(), nn.Linear(5, 1))
    figure = diagnose(net, 5 * torch.randn(100, 3)).plot_kde()
    assert sum(axes.get_visible() for axes in figure.axes) == 5


def test_health_figure_shows_the_reports_numbers() -> None:
    report = sick()
    left, middle, right = report.plot().axes[:3]
    # From the bottom up, the last layer first.
    widths = [bar.get_width() for bar in left.patches]
    np.testing.assert_allclose(widths, [100 * layer.dormant_fraction for layer in report][::-1])
    ranks = [bar.get_width() for bar in middle.patches]
    expected = [100 * layer.effective_rank / layer.full_rank for layer in report]
    np.testing.assert_allclose(ranks, expected[::-1])
    assert [label.get_text() for label in left.get_yticklabels()] == ["3", "1"]
    shares = np.array([bar.get_width() for bar in right.patches]).reshape(3, 2)
    np.testing.assert_allclose(shares.sum(axis=0), 100)
    np.testing.assert_allclose(shares[1], [100 * layer.hidden_bias_share for layer in report][::-1])
