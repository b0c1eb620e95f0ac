"""Diagnoses as text, word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hadamard.health import printing
from hadamard.health.diagnosis import Diagnosis, LayerHealth

NONE = np.empty(0)


def layer(name: str = "1", **changes: Any) -> LayerHealth:
    """A healthy layer of 20 neurons, but for the changes."""
    values: dict[str, Any] = {
        "name": name, "kind": "tanh", "neurons": 20, "samples": 100, "dormant": 0, "dead": 0,
        "saturated": 0, "constant": 0, "tau_dormant": 0, "effective_rank": 20, "stable_rank": 9.5,
        "entropy_rank": 17.25, "readers": ("2",),
        "live_contribution": 1.0, "dormant_contribution": 0.0, "bias_contribution": 0.0,
        "dormant_mask": NONE, "plotted_neurons": NONE, "plotted_samples": NONE,
    }  # fmt: skip
    return LayerHealth(**{**values, **changes})


def test_the_table() -> None:
    healthy = layer("encoder", readers=(), live_contribution=None, dormant_contribution=None)
    sick = layer("3", dormant=12, dead=2, saturated=4, constant=6, dormant_contribution=3.0)
    lines = printing.summary(Diagnosis("Agent", 100, (healthy, sick), 20.0, 0.01)).splitlines()
    assert lines == [
        "Agent: 2 hidden layers",
        "layer    neurons  dormant  dead  saturated  constant  eff. rank  hidden bias",
        "----------------------------------------------------------------------------",
        "encoder       20     0.0%     0          0         0      20/20            -",
        "3             20    60.0%     2          4         6      20/20        75.0%",
        "3: 60% of its neurons hardly respond, 75% of the next layer's output is hidden bias.",
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"dormant": 1}, ""),
        ({"dormant": 2, "dead": 1}, "10% of its neurons hardly respond"),
        ({"dormant": 2, "saturated": 1}, "10% of its neurons hardly respond"),
        ({"dormant": 2, "constant": 1}, "10% of its neurons hardly respond"),
        (
            {"dormant": 2},
            "10% of its neurons hardly respond (none dead or saturated: their activations are "
            "small)",
        ),
        ({"live_contribution": 96.0, "dormant_contribution": 4.0}, ""),
        (
            {"live_contribution": 95.0, "dormant_contribution": 5.0},
            "5% of the next layer's output is hidden bias",
        ),
        ({"effective_rank": 2}, ""),
        ({"effective_rank": 1}, "its effective rank is 1 of 20"),
        ({"effective_rank": 1, "samples": 8}, ""),
    ],
)
def test_what_is_unhealthy(changes: dict[str, Any], problem: str) -> None:
    verdict = printing.verdict([layer(**changes)])
    healthy = "Healthy: no layer has 10 % dormant neurons, 5 % hidden bias or a rank below 10 %."
    assert verdict == (f"1: {problem}." if problem else healthy)


def test_the_layer_with_most_dormant_neurons_comes_first() -> None:
    layers = [layer("a"), layer("b", dormant=2, dead=2), layer("c", dormant=4, dead=4)]
    assert [line[:2] for line in printing.verdict(layers).splitlines()] == ["c:", "b:"]
