"""Charts show means, intervals and seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from hadamard.report.draw import charts
from hadamard.report.draw.figures import VariantStyle


def test_a_chart_shows_means_intervals_and_seeds() -> None:
    from hadamard.report.draw.figures import variant_style

    steps, values = np.array([1, 2]), np.array([[1.0, 5.0], [3.0, 5.0], [2.0, np.nan]])
    data = charts.payload(
        charts.Chart("c", "t", "y", [charts.mean_line("a", variant_style(0), steps, values)])
    )
    (line,) = data["lines"]
    assert (line["x"], line["y"]) == ([1, 2], [2, None])  # no mean where a seed is missing
    half_width = 4.302653 / math.sqrt(3)
    assert line["high"] == [pytest.approx(2 + half_width, rel=1e-3), None]
    assert line["seeds"] == [[1, 5], [3, 5], [2, None]]
    two = charts.mean_line("a", variant_style(0), steps, values[:2])
    assert np.isnan(two.band.low).all()
    long = charts.mean_line("a", variant_style(0), np.arange(1001), np.zeros((3, 1001)))
    assert len(long.steps) == charts.MAX_POINTS
    assert (long.steps[0], long.steps[-1]) == (0, 1000)


def test_the_seeds_of_many_variants_do_not_hide_the_means() -> None:
    values = np.arange(12.0).reshape(3, 4)
    style = VariantStyle("#000000", "o", "-")
    lines = [
        charts.mean_line(str(i), style, np.arange(4), values)
        for i in range(charts.MAX_VARIANTS_WITH_SEEDS + 1)
    ]
    assert all(line.seeds.size for line in charts.uncrowded(lines[:-1]))
    crowded = charts.uncrowded(lines)
    assert not any(line.seeds.size for line in crowded)
    assert np.isfinite(crowded[0].band.low).all()
    # Two seeds have no interval, so they stay.
    two = charts.mean_line("two", style, np.arange(4), values[:2])
    assert charts.uncrowded([*lines, two])[-1].seeds.size
