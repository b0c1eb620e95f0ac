"""Figures as part of a page."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("matplotlib")
from hadamard.report.draw.figures import new_figure
from hadamard.report.draw.svg import inline_figure


def test_only_coordinates_are_shortened_on_a_page() -> None:
    figure = new_figure(4, 2)
    axes = figure.subplots()
    axes.plot([1 / 3, 2 / 3], [1 / 3, 1])
    axes.set_xticks([1 / 3, 2 / 3], ["learning_rate 0.0001", "0.0002"])
    axes.set_yticks([0.333], ["0.005 > 0.004"])
    text = inline_figure(figure, "small")
    for label in ("learning_rate 0.0001", "0.0002", "0.005 &gt; 0.004"):
        assert f">{label}</text>" in text
    lines = re.findall(r' d="(M[^"]*)"', text)
    assert lines
    assert not any(re.search(r"\d\.\d{3}", line) for line in lines)
