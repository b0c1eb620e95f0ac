"""The cost of runs: measured once for each kind, and summed."""

from __future__ import annotations

import pytest

from hadamard.experiments import estimate, paper


@pytest.mark.parametrize("cached", ["[]", '{"KEY": 7}', '{"KEY": {"steps_per_second": "fast"}}'])
def test_a_damaged_cache_is_measured_again(cached: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = paper.jobs("fig-kde", "smoke", "runs")[0]
    file = estimate.cache_file()
    file.parent.mkdir(parents=True)
    file.write_text(cached.replace("KEY", "kind"))
    monkeypatch.setattr(estimate, "measure", lambda job, threads: "measured again")
    kinds = {"kind": estimate.LabeledJob("tanh", job)}
    assert estimate.costs_of_kinds(kinds, 1) == {"kind": "measured again"}
