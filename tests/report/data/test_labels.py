"""The labels of variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.runs import labels, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.runs import load


@pytest.mark.parametrize(
    ("layer", "activation", "redo", "label"),
    [
        ("plain", "relu", False, "ReLU"),
        ("plain", "tanh", False, "tanh"),
        ("layernorm", "tanh", False, "tanh + LayerNorm"),
        ("hadamard", "tanh", False, "tanh + HR"),
        ("hadamard", "relu", False, "ReLU + HR"),
        ("hadamard2", "tanh", False, "tanh + 2HR"),
        ("widened", "tanh", False, "tanh, widened"),
        ("crelu", "relu", False, "CReLU"),
        ("plain", "relu", True, "ReLU + ReDo"),
        ("mixture", "silu", True, "SiLU + mixture + ReDo"),
    ],
)
def test_labels(tmp_path: Path, layer: str, activation: str, redo: bool, label: str) -> None:
    write_run(tmp_path / "run", layer=layer, activation=activation, redo=redo, norm="layer")
    assert labels(tmp_path) == [label]


def test_the_norm_is_named_where_runs_of_an_algorithm_differ_in_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a", norm="layer")
    write_run(tmp_path / "b", norm="layer", layer="hadamard")
    assert labels(tmp_path) == ["tanh", "tanh + HR"]
    write_run(tmp_path / "c", norm="none", algorithm="dqn")
    assert {run.label for run in load([tmp_path])} == {"tanh", "tanh + HR"}
    write_run(tmp_path / "d", norm="none", env="minatar/asterix")
    named = {run.path.name: run.label for run in load([tmp_path])}
    expected = {"a": "tanh + LayerNorm", "b": "tanh + HR + LayerNorm", "c": "tanh", "d": "tanh"}
    assert named == expected
