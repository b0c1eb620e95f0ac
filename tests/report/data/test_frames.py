"""Runs as pandas frames: from folders and from packed runs alike."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import hadamard
from hadamard.core.run import RunError
from hadamard.report.data import frames
from tests.support.commands import pack
from tests.support.runs import write_run

HEALTH = [{"dormant_fraction": 0.25, "effective_rank": 3.0}, {"dormant_fraction": 0.5}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed in range(2):
        write_run(tmp_path / "runs" / f"tanh{seed}", seed, score=1.0 + seed, health=HEALTH)
        write_run(tmp_path / "runs" / f"hr{seed}", seed, "hadamard", score=4.0, health=HEALTH)
    return tmp_path / "runs"


def test_the_frames_are_tidy(folder: Path) -> None:
    pytest.importorskip("pandas")
    loaded = hadamard.load_runs(folder)
    runs, curves, health = loaded.to_pandas()
    assert len(loaded) == len(runs) == 4
    assert repr(loaded) == "Runs(4: tanh, tanh + HR)"
    assert list(runs.columns[: len(frames.RUN_COLUMNS)]) == frames.RUN_COLUMNS
    assert runs.groupby("variant").score.mean().to_dict() == {"tanh": 1.5, "tanh + HR": 4.0}
    assert set(runs["net.layer"]) == {"plain", "hadamard"}
    assert runs.run.is_unique
    assert runs.dormant_fraction.tolist() == [0.5] * 4
    assert list(curves.columns) == frames.CURVE_COLUMNS
    assert set(curves.kind) == {"training"}
    assert curves.judged.all()
    last = curves.sort_values("step").groupby("run").score.last()
    assert last.to_dict() == runs.set_index("run").score.to_dict()
    assert list(health.columns) == frames.HEALTH_COLUMNS
    assert health.layer.unique().tolist() == ["first", "last"]
    shown = health[health.representation & (health.seed == 0) & (health.variant == "tanh")]
    assert shown.step.tolist() == [500, 1000]
    assert shown.dormant_fraction.tolist() == [0.25, 0.5]
    assert shown.effective_rank.isna().tolist() == [False, True]


def test_packed_runs_give_the_same_frames(folder: Path, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    assert pack(folder, "-o", tmp_path / "packed") == 0
    for ours, theirs in zip(
        hadamard.load_runs(folder).to_pandas(),
        hadamard.load_runs(tmp_path / "packed").to_pandas(),
        strict=True,
    ):
        order = ["variant", "seed", *(name for name in ("layer", "step") if name in ours)]
        frames = [f.drop(columns="run").sort_values(order, ignore_index=True)
                  for f in (ours, theirs)]  # fmt: skip
        pd.testing.assert_frame_equal(*frames)


def test_runs_are_read_without_pandas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    loaded = hadamard.load_runs(folder)
    assert [row["score"] for row in loaded.rows()] == [run.final("score") for run in loaded]
    assert {row["step"] for row in loaded.health_rows()} == {500, 1000}
    assert np.isfinite([row["score"] for row in loaded.curve_rows()][-1])
    assert loaded[0] is loaded.runs[0]
    assert loaded[:2] == loaded.runs[:2]
    with pytest.raises(ImportError, match="to_pandas needs pandas: pip install pandas"):
        loaded.to_pandas()


def test_no_run_and_bad_runs_are_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(TypeError, match="load_runs needs a folder"):
        hadamard.load_runs()
    with pytest.raises(RunError, match="holds no run"):
        hadamard.load_runs(tmp_path.joinpath("empty").mkdir() or tmp_path / "empty")
    (folder / "hr1" / "config.json").write_text("{")
    with pytest.warns(UserWarning, match=r"hr1.config.json is damaged"):
        loaded = hadamard.load_runs(folder)
    assert len(loaded) == 3
    assert len(loaded.troubles) == 1


def test_a_run_with_nothing_in_it_has_empty_curves(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    write_run(tmp_path / "run", score=None, finished=False)
    runs, curves, health = hadamard.load_runs(tmp_path).to_pandas()
    assert (len(runs), len(curves), len(health)) == (1, 0, 0)
    assert list(curves.columns) == frames.CURVE_COLUMNS
    assert not runs.finished[0]
