"""The measures of one run, over training and at a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hadamard.report.data.runs import read_run
from hadamard.report.statistics.run_values import measure_series, value_at
from tests.support.runs import measured, write_run


def test_a_measure_has_the_value_it_last_had(tmp_path: Path) -> None:
    health = [measured(share, 3.0, 0.2) for share in (0.1, 0.3)]
    run = read_run(write_run(tmp_path / "a", score=[float(n) for n in range(10)], health=health))
    assert measure_series(run, "dormant_fraction").values.tolist() == [0.1, 0.3]
    assert [value_at(run, "dormant_fraction", step) for step in (500, 999, 1000)] == [0.1, 0.1, 0.3]
    assert np.isnan(value_at(run, "dormant_fraction", 499))
    assert value_at(run, "steps_per_second", 0) == run.steps_per_second == 100.0
    # The mean of the episodes so far; at the end, the exact final score.
    assert value_at(run, "score", 200) == 0.5
    assert value_at(run, "score", 1000) == run.final("score") == 4.5


def test_the_excess_of_dormant_neurons_is_relative_to_live_ones(tmp_path: Path) -> None:
    health = [measured(0.5, 3.0, hidden) for hidden in (0.3, 0.45, 0.6, 0.9, None)]
    run = read_run(write_run(tmp_path / "a", health=health))
    series = measure_series(run, "dormant_excess")
    # Live neurons contribute 0.9 less the hidden bias; where they give nothing, there is no ratio.
    assert series.steps.tolist() == [200, 400, 600]
    assert series.values.tolist() == pytest.approx([-0.5, 0.0, 1.0])
