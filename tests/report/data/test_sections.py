"""The runs of one task: their baselines, curves and final numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.runs import measured, only_section, write_run

pytest.importorskip("matplotlib")


def test_baselines(tmp_path: Path) -> None:
    kinds = [("plain", "tanh"), ("hadamard", "tanh"), ("plain", "relu"), ("crelu", "relu"),
             ("hadamard", "elu")]  # fmt: skip
    for i, (layer, activation) in enumerate(kinds):
        write_run(tmp_path / str(i), layer=layer, activation=activation)
    write_run(tmp_path / "redo", activation="relu", redo=True)
    section = only_section(tmp_path)
    pairs = {}
    for variant in section.variants:
        baseline = section.baseline(variant)
        pairs[variant.label] = baseline.label if baseline else None
    assert pairs == {
        "ReLU": None,
        "tanh": "ReLU",
        "ReLU + ReDo": "ReLU",
        "CReLU": "ReLU",
        "ELU + HR": "ReLU",
        "tanh + HR": "tanh",
    }


def test_the_baseline_is_the_most_alike(tmp_path: Path) -> None:
    for norm in ("none", "layer"):
        for layer in ("plain", "hadamard"):
            write_run(tmp_path / f"{norm}-{layer}", layer=layer, norm=norm)
    section = only_section(tmp_path)
    *_, normed = section.variants
    baseline = section.baseline(normed)
    assert normed.label == "tanh + HR + LayerNorm"
    assert baseline is not None
    assert baseline.label == "tanh + LayerNorm"


def test_the_baseline_has_the_same_budget_if_there_is_one(tmp_path: Path) -> None:
    plain = [("relu", 1000), ("relu", 200), ("tanh", 1000), ("elu", 500)]
    kinds = [("plain", *kind) for kind in plain]
    kinds += [("hadamard", "tanh", 200), ("hadamard", "tanh", 1000)]
    for i, (layer, activation, steps) in enumerate(kinds):
        write_run(tmp_path / str(i), layer=layer, activation=activation, steps=steps)
    section = only_section(tmp_path)
    pairs = {v.label: (section.baseline(v), section.without_layer(v)) for v in section.variants}
    named = {
        label: tuple(other.label if other else None for other in others)
        for label, others in pairs.items()
    }
    long, short = "ReLU, train.steps 1000", "ReLU, train.steps 200"
    assert named == {
        "ELU": (None, None),
        long: ("ELU", None),
        short: (long, None),
        "tanh": (long, None),
        "tanh + HR, train.steps 1000": ("tanh", "tanh"),
        "tanh + HR, train.steps 200": (short, None),  # not tanh of 1000 steps
    }


def test_curves_and_finals_by_hand(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 0, score=[0.0, 2.0, 4.0], health=[measured(0.5, 3, 0.2)] * 2)
    write_run(
        tmp_path / "b", 1, score=[10.0, None], finished=False, health=[measured(0.7, None, 0.4)]
    )
    section = only_section(tmp_path)
    (variant,) = section.variants
    grid = section.grid()
    assert (len(grid), grid[0], grid[-1]) == (100, 10, 1000)
    curve = variant.score_curve(grid)
    # Episodes end at steps 100, 200 and 300: nothing before, running means after.
    finished, unfinished = curve
    assert np.isnan(finished[:9]).all()
    np.testing.assert_allclose(finished[[9, 19, 29, 99]], [0, 1, 2, 2])
    # The other's last row, a diagnosis, is of step 1000; its episode without a score is dropped.
    np.testing.assert_allclose(unfinished[[9, 99]], [10, 10])
    assert variant.runs[1].lost_episodes == 1
    np.testing.assert_allclose(variant.finals("score"), [2])
    np.testing.assert_allclose(variant.finals("hidden_bias_share"), [0.2])
    np.testing.assert_allclose(variant.finals("steps_per_second"), [100])
    steps, dormant = variant.health_curve("dormant_fraction")
    np.testing.assert_array_equal(steps, [500, 1000])
    np.testing.assert_allclose(dormant, [[0.5, 0.5], [np.nan, 0.7]])
    _, rank = variant.health_curve("effective_rank")
    np.testing.assert_allclose(rank, [[3, 3], [np.nan, np.nan]])


def test_an_unfinished_run_is_drawn_as_far_as_it_came(tmp_path: Path) -> None:
    write_run(tmp_path / "a", score=[1.0] * 4, finished=False)
    section = only_section(tmp_path)
    (curve,) = section.variants[0].score_curve(section.grid())
    assert np.isfinite(curve).nonzero()[0].tolist() == list(range(9, 40))  # steps 100 to 400
