"""Packed runs: the same report as from folders, small, deterministic, and refused when damaged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hadamard.cli import main
from hadamard.core.run import RunError
from hadamard.core.scores import greedy_window_mean
from tests.support.commands import pack
from tests.support.runs import measured, played_alongside, write_run

pytest.importorskip("matplotlib")
from hadamard.report.data.packed import LARGEST, packed, record_of
from hadamard.report.data.runs import gather, load
from hadamard.report.data.sections import sections
from hadamard.report.pages.full_report import write_report

SEEDS = range(3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs judged by each kind of score, two tasks, ragged health, one unfinished, one damaged."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    for task, env in enumerate(("minatar/breakout", "minatar/asterix")):
        for layer, skill in (("plain", 1.0), ("hadamard", 2.0)):
            for seed in SEEDS:
                name = f"{task}-{layer}-{seed}"
                health = [measured(float(rng.random()), 3.0, 0.2 * float(rng.random()))] * 4
                options: dict[str, Any] = {
                    "layer": layer, "env": env, "seed": seed, "health": health,
                    "score": (skill * rng.random(10)).tolist(),
                }  # fmt: skip
                write_run(folder / "dqn" / name, algorithm="dqn", snapshots=[100, 900], **options)
                games = {int(step): float(rng.random()) for step in range(7, 1000, 7)}
                played_alongside(folder / "pqn" / f"pqn-{name}", games, **options)
                evaluated = write_run(
                    folder / "simbav2" / f"sim-{name}", algorithm="simbav2", train_eval_every=100,
                    **options,
                )  # fmt: skip
                rows = [
                    json.dumps({"step": step, "score": skill * step + side})
                    for step in range(0, 1001, 100)
                    for side in (-0.5, 0.75)
                ]
                (evaluated / "eval.jsonl").write_text("\n".join(rows) + "\n")
    write_run(folder / "dqn" / "unfinished", 7, algorithm="dqn", score=[3.0], finished=False)
    damaged = write_run(folder / "dqn" / "damaged", 8, algorithm="dqn", score=[1.0, 2.0])
    with open(damaged / "episodes.jsonl", "a") as file:
        file.write("no row\n")
    return folder


@pytest.fixture(scope="module")
def packed_runs(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("packed") / "new" / "results"
    assert pack(runs, "-o", output) == 0
    return output


def files_of(report: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(report)): path.read_bytes()
        for path in sorted(report.rglob("*"))
        if path.is_file()
    }


def test_a_report_of_packed_runs_is_that_of_the_folders(
    runs: Path, packed_runs: Path, tmp_path: Path
) -> None:
    # In one order: folders are found by name, and files among folders after them.
    folders, troubles = gather(sorted(path.parent for path in runs.rglob("config.json")))
    files, same = gather(sorted(packed_runs.iterdir()))
    assert not troubles
    assert not same
    for each in (folders, files):
        each.sort(key=lambda run: run.name)
    from_folders = files_of(write_report(tmp_path / "a", folders, "Both").parent)
    from_files = files_of(write_report(tmp_path / "b", files, "Both").parent)
    assert from_folders.keys() == from_files.keys()
    assert {name for name in from_folders if name.endswith(".csv")} >= {
        "tables/results.csv", "tables/runs.csv", "tables/dormancy.csv",
        "tables/aggregates-dqn.csv", "tables/aggregates-pqn.csv",
    }  # fmt: skip
    for run in folders:  # the paths are all that differs
        for name, content in from_folders.items():
            from_folders[name] = content.replace(
                f"{run.path}".encode(), f"{packed_runs / run.name}.hrun".encode()
            )
        packed_path = f"{packed_runs / run.name}.hrun/".encode()
        index = from_folders["index.html"]
        from_folders["index.html"] = index.replace(packed_path, f"{run.name}/".encode())
    for name, content in from_files.items():
        assert content == from_folders[name], name


def test_every_number_is_the_same(runs: Path, packed_runs: Path) -> None:
    folders = {run.name: run for run in gather([runs]).runs}
    files = {run.name: run for run in gather([packed_runs]).runs}
    assert folders.keys() == files.keys()
    assert len(files) == 2 * 2 * 3 * 3 + 2
    for name, run in folders.items():
        other = files[name]
        for field in ("label", "spec", "versions", "commit", "protocol", "machine", "summary",
                      "reached", "episodes", "lost_episodes", "representation", "threshold",
                      "delta", "score_kind", "finished"):  # fmt: skip
            assert getattr(run, field) == getattr(other, field), field
        np.testing.assert_equal(run.scores, other.scores)
        np.testing.assert_equal(run.finals, other.finals)
        np.testing.assert_equal(run.layers, other.layers)
        np.testing.assert_array_equal(run.health_steps, other.health_steps)
        np.testing.assert_equal([vars(s.grid) for s in run.snapshots],
                                [vars(s.grid) for s in other.snapshots])  # fmt: skip
    assert set(folders["0-plain-0"].layers) == {"first", "last"}
    assert folders["0-plain-0"].representation == "last"
    assert [snapshot.step for snapshot in files["0-plain-0"].snapshots] == [100, 900]


def test_thinned_numbers_are_those_of_the_streams(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    budget, step = 1_000_003, 0
    run = write_run(tmp_path / "long", steps=budget, score=None, train_greedy_envs=8,
                    finished=False)  # fmt: skip
    ended, scores = [], rng.normal(100, 30, 5000)
    with open(run / "episodes.jsonl", "w") as episodes, open(run / "eval.jsonl", "w") as games:
        for score in scores.tolist():
            step += int(rng.integers(1, 300))
            ended.append(step)
            line = json.dumps({"step": step, "score": score}) + "\n"
            episodes.write(line)
            games.write(line)
    (data,) = load([run])
    at = np.array(ended)
    for kind in ("training", "greedy"):
        series = data.score_series(kind)  # type: ignore[arg-type]
        assert len(series.steps) == int(200 * step / budget)
        for place, value in zip(*series, strict=True):
            count = int((at <= place).sum())
            since = max(int((at < place - 0.05 * budget).sum()), 0)
            window = slice(max(count - 100, 0), count)
            if kind == "greedy":
                window = slice(max(min(since, count - 16), 0), count)
            expected = scores[window].mean() if count else np.nan
            assert value == pytest.approx(expected, rel=1e-6, nan_ok=True), (kind, place)
    assert data.final("training_score") == scores[-100:].mean()
    assert data.final("score") == greedy_window_mean(at, scores, step, step)
    late = scores[at >= 0.95 * step]
    assert data.final("score") == pytest.approx(late.mean())


def test_a_run_that_has_just_begun_has_no_scores(tmp_path: Path) -> None:
    run = played_alongside(tmp_path / "new", {}, score=None, finished=False)
    record = record_of(run)
    assert record["reached"] == 0
    nothing = {"values": [], "final": None}
    assert record["scores"] == {"training": nothing, "greedy": nothing}
    (data,), troubles = gather([run])
    assert not troubles
    assert np.isnan(data.final("score"))


def test_many_evaluations_are_averaged_over_equal_parts(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", steps=3000, train_eval_every=5)
    rows = [json.dumps({"step": step, "score": float(step)}) for step in range(0, 3001, 5)]
    (run / "eval.jsonl").write_text("\n".join(rows) + "\n")
    (data,) = load([run])
    series = data.score_series()
    assert data.score_kind == "evaluation"
    np.testing.assert_array_equal(series.steps, np.arange(15, 3001, 15))
    np.testing.assert_allclose(series.values[:2], [7.5, 25])  # of 0, 5, 10, 15; of 20, 25, 30
    assert data.final("score") == np.mean(range(2850, 3001, 5))


def test_a_run_stopped_early_ends_at_its_horizon(tmp_path: Path) -> None:
    stopped = write_run(tmp_path / "a", score=[1.0, 2.0], train_until=200)
    (stopped / "DONE").write_text('{"steps": 200, "seconds": 2.0}')
    whole = write_run(tmp_path / "b", seed=1, score=2.0, train_until=0)
    old = write_run(tmp_path / "c", seed=2)
    by_name = {run.name: run for run in load([stopped, whole, old])}
    run = by_name["a"]
    assert (run.steps, run.horizon, run.reached) == (1000, 200, 200)
    assert run.finished
    assert run.score_series().steps[-1] == 200
    assert by_name["b"].horizon == by_name["c"].horizon == 1000
    # It is no seed of the whole runs, which are of one variant, recorded or not.
    assert run.label == "tanh, train.until 200"
    assert by_name["b"].label == by_name["c"].label == "tanh, train.until 0"


def test_densities_keep_their_peaks(tmp_path: Path) -> None:
    places = np.linspace(-1, 1, 200)
    density = np.exp(-(((places - 0.37) / 0.004) ** 2)) * 12.3456 + 0.1  # a spike of two places
    row = {
        "step": 100, "layer": "last", "neurons": [5], "places": [places.tolist()],
        "density": [density.tolist()], "dormant": [True], "bounded": True, "title": "t",
    }  # fmt: skip
    run = write_run(tmp_path / "a")
    (run / "kde.jsonl").write_text(json.dumps(row) + "\n")
    ((snapshot,),) = (run.snapshots for run in load([run]))
    grid = snapshot.grid
    assert grid.density.max() == pytest.approx(density.max())
    assert grid.places[0, grid.density[0].argmax()] == pytest.approx(places[density.argmax()])
    assert grid.density.shape == (1, 48)
    assert grid.places[0, [0, -1]].tolist() == [-1, 1]
    away = np.abs(grid.places[0] - 0.37) > 0.1
    np.testing.assert_allclose(grid.density[0, away], 0.1, atol=12.5 / 999)


def test_packing_is_deterministic(runs: Path, packed_runs: Path, tmp_path: Path) -> None:
    assert pack(runs, "-o", tmp_path) == 0
    for path in packed_runs.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    moved = shutil.copytree(runs / "dqn" / "damaged", tmp_path / "moved" / "damaged")
    assert packed(record_of(moved)) == (packed_runs / "damaged.hrun").read_bytes()
    assert str(runs).encode() not in zlib.decompress((tmp_path / "damaged.hrun").read_bytes(), 31)


def test_a_run_of_the_papers_length_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    budget = 10_000_000
    health = [
        {
            "dormant_fraction": float(rng.random()), "effective_rank": int(rng.integers(512)),
            "full_rank": 512, "hidden_bias_share": float(rng.random()),
            **{f"{part}_contribution": float(rng.random()) for part in ("live", "dormant", "bias")},
        }
        for _ in range(100)
    ]  # fmt: skip
    run = write_run(tmp_path / "long", steps=budget, score=None, health=health, train_greedy_envs=8)
    for stream in ("episodes", "eval"):
        rows = (f'{{"step": {1000 * i}, "score": {rng.normal(400, 50)}}}' for i in range(1, 10_001))
        (run / f"{stream}.jsonl").write_text("\n".join(rows) + "\n")
    rows = []
    for step in (budget // 10, budget):
        centers = rng.uniform(-1, 1, (16, 3, 1))
        places = np.linspace(-1, 1, 200) + rng.normal(0, 0.1, (16, 1))
        density = np.exp(-(((places[:, None] - centers) / 0.2) ** 2)).sum(axis=1)
        rows.append(json.dumps({
            "step": step, "layer": "last", "neurons": list(range(16)), "places": places.tolist(),
            "density": density.tolist(), "dormant": [False] * 16, "bounded": True, "title": "last",
        }))  # fmt: skip
    (run / "kde.jsonl").write_text("\n".join(rows) + "\n")
    size = len(packed(record_of(run)))
    assert size < 12_000


def rewritten(data: bytes, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
    """Return a packed run whose head and record were changed, with a checksum that fits."""
    head, record = map(json.loads, zlib.decompress(data, 31).splitlines())
    change(head, record)
    body = json.dumps(record).encode() + b"\n"
    head["sha256"] = hashlib.sha256(body).hexdigest()
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compressor.compress(json.dumps(head).encode() + b"\n" + body) + compressor.flush()


def set_field(path: str, value: Any) -> Callable[[bytes], bytes]:
    def change(_: dict[str, Any], record: dict[str, Any]) -> None:
        *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
        place: Any = record
        for key in parents:
            place = place[key]
        place[last] = value

    return lambda data: rewritten(data, change)


def set_schema(schema: Any) -> Callable[[bytes], bytes]:
    return lambda data: rewritten(data, lambda head, _: head.update(schema=schema))


def zipped(text: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compressor.compress(text) + compressor.flush()


def unmatched(data: bytes) -> bytes:
    """Return a packed run with another score in it, and the old checksum."""
    text = zlib.decompress(data, 31)
    assert b'"reached":1000' in text
    return zipped(text.replace(b'"reached":1000', b'"reached":1001'))


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "is damaged or no packed run"),
    "text": (lambda data: b"hello", "is damaged or no packed run"),
    "cut off early": (lambda data: data[:30], "is damaged or no packed run|is cut off"),
    "cut off late": (lambda data: data[:-9], "is cut off"),
    "a flipped bit": (lambda data: data[:900] + bytes([data[900] ^ 1]) + data[901:], "damaged|cut"),
    "checksum": (unmatched, "its checksum is another"),
    "more behind it": (lambda data: data + data, "its checksum is another"),
    "another format": (
        lambda data: rewritten(data, lambda head, _: head.update(format="x")),
        "is damaged or no packed run",
    ),
    "newer": (set_schema(3), "schema 3, and this version reads 1 to 2: update hadamard"),
    "no schema": (set_schema(None), "schema None, and .* reads 1 to 2: pack the run again"),
    "bomb": (lambda data: zipped(b"0" * (LARGEST + 10**6)), "holds more than 33,554,432 bytes"),
    "deep": (
        lambda data: zipped(b'{"a":' * 100_000 + b"\n"), "is damaged or no packed run"
    ),
    "name": (set_field("name", 3), "name is 3, not a text"),
    "algorithm": (set_field("algorithm", None), "algorithm is missing, not a text"),
    "spec": (set_field("spec", []), "spec is .*, not an object"),
    "seed": (set_field("spec/seed", "0"), "spec.seed is '0', not a whole number from 0"),
    "budget": (set_field("spec/train.steps", 0), "spec.train.steps is 0, not a whole number"),
    "huge budget": (set_field("spec/train.steps", 10**30), "spec.train.steps is 1000"),
    "remedy": (set_field("spec/remedy", 1), "spec.remedy is 1, not a text"),
    "old remedy": (set_field("spec/redo.enabled", 1), "spec.remedy is 1, not a text"),
    "versions": (set_field("versions/python", 3), "versions.python is 3, not a text"),
    "values": (
        set_field("scores/training/values/3", "a"),
        r"scores.training.values\[3\] is 'a', not a finite number",
    ),
    "too many values": (
        set_field("scores/training/values", [1.0] * 201), "has 201 values for 200 steps"
    ),
    "infinite": (set_field("scores/training/final", 1e400), "holds no record of a run"),
    "no scores": (set_field("scores", {}), "scores.training is missing, not an object"),
    "health": (set_field("health/steps", [200, 100, 300, 400]), "health.steps goes back"),
    "layer": (
        set_field("health/layers/1/measures/effective_rank", [1.0]), "has 1 values for 4 rows"
    ),
    "densities": (set_field("densities", {"a": 1}), "densities is .*, not a list"),
    "levels": (set_field("densities/0/levels/0", [1, 2]), "densities.*"),
    "heights": (set_field("densities/0/height/0", None), "no range or no height"),
    "troubles": (set_field("troubles", [1]), r"troubles\[0\] is 1, not a text"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_reported_and_the_report_goes_on(
    damage: str, packed_runs: Path, tmp_path: Path
) -> None:
    change, message = DAMAGES[damage]
    sound = packed_runs / "0-plain-0.hrun"
    bad = tmp_path / "runs" / "bad.hrun"
    bad.parent.mkdir()
    bad.write_bytes(change(sound.read_bytes()))
    with pytest.raises(RunError, match=message) as error:
        load([bad])
    assert str(error.value).startswith(str(bad))
    assert "leave the file out" in str(error.value)
    shutil.copy(sound, bad.parent)
    (run,), troubles = gather([bad.parent])
    assert run.name == "0-plain-0"
    assert troubles == [str(error.value)]


def test_damage_is_listed_in_the_report(
    packed_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    shutil.copy(packed_runs / "0-plain-0.hrun", folder)
    (folder / "bad.hrun").write_bytes(b"nothing")
    assert main(["report", str(folder), "-o", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    caveats = page[page.index('<h2 id="caveats">') :]
    assert f"{folder / 'bad.hrun'} is damaged or no packed run" in caveats
    assert "The report leaves it out." in caveats
    assert "1 of the runs could not be used" in capsys.readouterr().err


def test_links_and_pipes_are_not_followed(packed_runs: Path, tmp_path: Path) -> None:
    inside = tmp_path / "runs"
    inside.mkdir()
    (inside / "link.hrun").symlink_to(packed_runs / "0-plain-0.hrun")
    shutil.copy(packed_runs / "0-plain-1.hrun", inside)
    (run,), troubles = gather([inside])
    assert run.name == "0-plain-1"
    assert troubles == [f"{inside / 'link.hrun'} is a link, which is not followed: name its target"]
    assert load([inside / "link.hrun"])[0].name == "0-plain-0"  # named by its user
    os.mkfifo(inside / "pipe.hrun")
    _, troubles = gather([inside])
    assert any("pipe.hrun is not a file" in trouble for trouble in troubles)


@pytest.mark.parametrize("stream", ["episodes", "health", "timing"])
def test_a_stream_that_is_a_link_is_not_followed(stream: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", score=5.0)
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text('{"step": 100, "score": 99.0, "seconds": 1.0}\n')
    (run / f"{stream}.jsonl").unlink(missing_ok=True)
    (run / f"{stream}.jsonl").symlink_to(elsewhere)
    (data,), _ = gather([run])
    assert data.troubles == [
        f"{run / f'{stream}.jsonl'} is a link or no plain file, which is not followed"
    ]
    assert data.final("score") != 99


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("algorithm", 7, r"config.json is damaged \(algorithm must be a text, got 7\)"),
        ("versions", {"a": 1}, "versions.a is 1, not a text"),
        ("protocol", "new", "protocol must be a whole number, got 'new'"),
        ("spec", [1], r"spec must be an object, got \[1\]"),
    ],
)
def test_a_config_of_wrong_types_is_refused(
    field: str, value: Any, message: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "a")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, field: value}))
    with pytest.raises(RunError, match=message):
        load([run])


def test_a_damaged_summary_leaves_a_run_unfinished(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    (run / "DONE").write_text("[1]")
    (data,), _ = gather([run])
    assert not data.finished
    assert len(data.troubles) == 1
    assert data.troubles[0].startswith(f"{run} counts as unfinished: {run / 'DONE'} is damaged")


def test_copies_of_a_run_are_one_run(runs: Path, packed_runs: Path) -> None:
    folder, file = runs / "dqn" / "0-plain-0", packed_runs / "0-plain-0.hrun"
    (run,), troubles = gather([folder, file, file])
    assert (run.path, len(troubles)) == (folder, 1)
    assert f"{file} is the same run as {folder} (tanh, seed 0), which is kept" in troubles[0]
    alone, _ = gather([runs])
    mixed, repeated = gather([runs, packed_runs])
    assert len(mixed) == len(alone) == len(repeated)
    deep, _ = gather([packed_runs.parents[1]])
    assert len(deep) == len(alone)


def test_protocols_are_told_apart(tmp_path: Path) -> None:
    for seed in range(4):
        for layer in ("plain", "hadamard"):
            run = write_run(tmp_path / "runs" / f"{layer}{seed}", seed, layer)
            config = json.loads((run / "config.json").read_text())
            protocol = {"protocol": 1 if seed < 2 else 2}
            (run / "config.json").write_text(json.dumps({**config, **protocol}))
    loaded = load([tmp_path / "runs"])
    assert sorted(run.protocol for run in loaded) == [1] * 4 + [2] * 4
    (section,) = sections(loaded)
    pairs = {v.label: (len(v.runs), section.baseline(v)) for v in section.variants}
    assert {label: (count, base and base.label) for label, (count, base) in pairs.items()} == {
        "tanh, protocol 1": (2, None),
        "tanh, protocol 2": (2, "tanh, protocol 1"),  # there is no other before it
        "tanh + HR, protocol 1": (2, "tanh, protocol 1"),
        "tanh + HR, protocol 2": (2, "tanh, protocol 2"),
    }
    page = write_report(tmp_path / "out", loaded, "Mixed").read_text()
    assert (
        "The runs are of 2 versions of the training protocol (4 runs of version 1, 4 runs of "
        "version 2): their numbers do not compare" in page
    )
    assert (
        "tanh, protocol 2 against tanh, protocol 1: their versions of the training protocol "
        "differ, so they are not compared." in page
    )


def test_kinds_of_scores_are_told_apart(tmp_path: Path) -> None:
    played_alongside(tmp_path / "runs" / "a", {500: 9.0})
    write_run(tmp_path / "runs" / "b", seed=1)
    loaded = load([tmp_path / "runs"])
    assert [run.label for run in loaded] == [
        "tanh, scored by greedy games", "tanh, scored by training episodes",
    ]  # fmt: skip
    page = write_report(tmp_path / "out", loaded, "Kinds").read_text()
    assert "variants are scored by different games (greedy games, training episodes)" in page
