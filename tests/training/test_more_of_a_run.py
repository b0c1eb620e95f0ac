"""Runs that are extended, replaced, filmed, kept and started from others' weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import hadamard
from hadamard.core import checkpoint, files, record
from hadamard.core.lock import InUse
from hadamard.core.run import Run, RunError
from hadamard.envs import probe
from hadamard.report.data.runs import gather
from hadamard.training import film, filming
from tests.support.commands import Command
from tests.support.resume import assert_same_run

SETTINGS: Mapping[str, Any] = {
    "net.width": 16,
    "train.steps": 400,
    "train.log_every": 50,
    "train.health_every": 0,
    "train.checkpoint_every": 100,
    "train.greedy_envs": 0,
    "train.tensorboard": False,
}
OWN: Mapping[str, Mapping[str, Any]] = {
    "pqn": {"num_envs": 4, "rollout_steps": 4, "minibatches": 2},
    "ppo": {"num_envs": 2, "rollout_steps": 16},
    "dqn": {"learning_starts": 40, "batch_size": 8},
    "mrq": {
        "env": "probe/track",
        "random_steps": 200,
        "hidden_width": 8,
        "batch_size": 16,
        "target_period": 50,
        "eval_every": 0,
    },
    "simbav2": {
        "env": "probe/track",
        "learning_starts": 100,
        "updates_per_step": 1,
        "actor_width": 8,
        "batch_size": 16,
        "critic_blocks": 1,
        "eval_every": 0,
    },
}


def train(algorithm: str, path: Path, **settings: Any) -> hadamard.TrainedRun:
    return hadamard.train(
        algorithm,
        settings=SETTINGS,
        run_dir=path,
        show_progress=False,
        **{"env": "probe/both", **OWN[algorithm], **settings},
    )


def newest(path: Path) -> tuple[int, Any]:
    return checkpoint.read(checkpoint.newest(path / "checkpoints"))


# Extended runs


@pytest.mark.parametrize("algorithm", OWN)
def test_a_finished_run_is_extended(algorithm: str, tmp_path: Path) -> None:
    run = train(algorithm, tmp_path / "run", steps=300)
    before = newest(run.path)[1]
    with pytest.warns(UserWarning, match=r"is extended from 300 to 600 steps. From step 3\d\d on"):
        again = hadamard.resume(run, steps=600, show_progress=False)
    assert again.summary is not None
    assert again.summary["steps"] >= 600
    config = Run.open(run).config
    assert config["spec"]["train"]["steps"] == 600
    (extension,) = config["extended"]
    assert (extension["from"], extension["to"]) == (300, 600)
    assert extension["at"] >= 300
    steps = [row["step"] for row in Run.open(run).rows("train")]
    assert steps == sorted(set(steps))
    after = newest(run.path)[1]
    assert not torch.equal(
        *(torch.cat([t.flatten() for t in _tensors(s["agent.network"])]) for s in (before, after))
    )
    # The same command changes nothing more.
    assert hadamard.resume(run, steps=600, show_progress=False).summary == again.summary
    assert Run.open(run).extensions == [extension]


def _tensors(state: Mapping[str, Any]) -> list[torch.Tensor]:
    return [value.double() for value in state.values() if isinstance(value, torch.Tensor)]


def test_an_interrupted_extension_goes_on(tmp_path: Path) -> None:
    def stop(event: hadamard.Event) -> None:
        if event.step >= 450:
            event.stop()

    with pytest.warns(UserWarning, match="is extended"):
        whole = hadamard.resume(train("pqn", tmp_path / "whole"), steps=800, show_progress=False)
    run = train("pqn", tmp_path / "run")
    with pytest.warns(UserWarning, match="is extended"):
        stopped = hadamard.resume(run, steps=800, callbacks=stop, show_progress=False)
    assert not stopped.finished
    assert_same_run(hadamard.resume(run, show_progress=False).path, whole.path)


def test_a_schedule_goes_on_as_that_of_a_longer_run(tmp_path: Path) -> None:
    # Exploration falls over the whole run.
    run = train("pqn", tmp_path / "run", steps=320, epsilon_fraction=1.0)
    with pytest.warns(UserWarning, match="a learning rate that had fallen rises again"):
        hadamard.resume(run, steps=640, show_progress=False)
    longer = train("pqn", tmp_path / "longer", steps=640, epsilon_fraction=1.0)
    ours, theirs = (
        {row["step"]: row["epsilon"] for row in Run.open(path).rows("train")}
        for path in (run, longer)
    )
    assert list(ours) == list(theirs)
    for step in ours:
        assert (ours[step] == theirs[step]) == (step > 320), step


def test_a_replay_grows_with_its_run(tmp_path: Path) -> None:
    run = train("dqn", tmp_path / "run", steps=300)
    old = newest(run.path)[1]["agent.replay"]
    with pytest.warns(UserWarning, match="is extended"):
        hadamard.resume(run, steps=2_000, until=400, show_progress=False)
    new = newest(run.path)[1]["agent.replay"]
    assert new["usable"].shape[1] > old["usable"].shape[1]
    count = min(old["pushed"][0], old["usable"].shape[1]) - 1
    assert torch.equal(new["action"][:, :count], old["action"][:, :count])
    assert torch.equal(new["reward"][:, :count], old["reward"][:, :count])


@pytest.mark.parametrize("steps", [1, 300, 400])
def test_only_more_steps_extend_a_run(steps: int, tmp_path: Path) -> None:
    run = train("pqn", tmp_path / "run")
    with pytest.raises(ValueError, match=f"--train.steps {steps} does not extend .* 400"):
        hadamard.resume(run, steps=steps)
    assert Run.open(run).done is not None


def test_reports_keep_extended_runs_apart(tmp_path: Path) -> None:
    train("pqn", tmp_path / "planned", steps=600)
    run = train("pqn", tmp_path / "run", steps=400)
    with pytest.warns(UserWarning, match="is extended"):
        hadamard.resume(run, steps=600, show_progress=False)
    runs, troubles = gather([tmp_path])
    assert not troubles
    labels = sorted(run.label for run in runs)
    assert labels == ["ReLU, extended from 400 steps at 400", "ReLU, extended no"]


def test_the_command_line_extends(tmp_path: Path, command: Command) -> None:
    run = train("pqn", tmp_path / "run")
    said = command("train", "--resume", run.path, "--train.steps", "600", "--until", "500")
    assert said.code == 0, said.err
    assert "is extended from 400 to 600 steps" in said.err
    assert "done: 512 steps" in said.out or "done: 50" in said.out
    assert command("train", "--resume", run.path, "--until", "0").code == 0
    said = command("train", "--resume", run.path, "--train.steps", "many")
    assert (said.code, "--train.steps must be a number of steps, got 'many'" in said.err) == (
        2,
        True,
    )


# Weights of another run


@pytest.mark.parametrize("algorithm", OWN)
def test_a_run_starts_from_the_weights_of_another(algorithm: str, tmp_path: Path) -> None:
    source = train(algorithm, tmp_path / "source", seed=1)
    step, state = newest(source.path)
    weights: list[Any] = []

    def first(event: hadamard.Event) -> None:
        weights.append(event.step)
        event.stop()

    run = train(algorithm, tmp_path / "run", init_from=source.path, log_every=1, callbacks=first)
    recorded = Run.open(run).config["initial"]
    assert (recorded["run"], recorded["step"]) == (str(source.path), step)
    started, own = newest(run.path)
    assert started < 100
    # Nothing is learned yet in the first steps of those that warm up.
    if algorithm in ("dqn", "mrq", "simbav2"):
        for name, tensor in state["agent.network"].items():
            if "normalizer" not in name:
                assert torch.equal(own["agent.network"][name], tensor), name
    assert hadamard.resume(run, show_progress=False).finished


def test_a_source_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    source = train("pqn", tmp_path / "source")
    for settings, message in (
        ({"width": 8}, "does not fit this run: network cannot be restored"),
        ({"layer": "hadamard"}, "does not fit this run: network cannot be restored"),
        ({"run_dir": None, "init_from": tmp_path}, "is not a run"),
    ):
        given = {"init_from": source.path, **settings}
        given.pop("run_dir", None)
        with pytest.raises(ValueError, match=f"--init-from .*{message}"):
            train("pqn", tmp_path / "run", **given)
    with pytest.raises(ValueError, match="it is a run of pqn, and this one is of dqn"):
        train("dqn", tmp_path / "run", init_from=source.path)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="--overwrite would remove .* whose weights"):
        train("pqn", source.path, init_from=source.path, overwrite=True)
    assert Run.open(source).done is not None


def test_a_run_that_was_never_saved_begins_with_the_same_weights(tmp_path: Path) -> None:
    source = train("pqn", tmp_path / "source", seed=1)
    whole = train("pqn", tmp_path / "whole", init_from=source.path)
    run = train("pqn", tmp_path / "run", init_from=source.path)

    def never_saved() -> None:
        record.remove(record.checkpoints(run.path / "checkpoints"))
        record.write(run.path / "checkpoints", record.Record([], []))
        (run.path / "DONE").unlink()

    never_saved()
    assert_same_run(hadamard.resume(run, show_progress=False).path, whole.path)
    never_saved()
    train("pqn", source.path, seed=2, overwrite=True)
    with pytest.raises(RunError, match="began with the weights of .* which has others now"):
        hadamard.resume(run, show_progress=False)


def test_reports_keep_runs_from_other_weights_apart(tmp_path: Path) -> None:
    source = train("pqn", tmp_path / "source")
    train("pqn", tmp_path / "run", init_from=source.path)
    labels = sorted(run.label for run in gather([tmp_path]).runs)
    assert labels == ["ReLU, init_from another run", "ReLU, init_from none"]


# Replaced runs


def test_a_run_is_replaced_when_asked(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "run"
    first = train("dqn", path, tensorboard=True, seed=1, replay_capacity=150)
    with pytest.raises(RunError, match="holds a run with other settings"):
        train("dqn", path, seed=2)
    with pytest.raises(ValueError, match="unknown setting"):
        train("dqn", path, seed=2, overwrite=True, layers=3)
    with pytest.raises(ValueError, match="unknown"):
        train("dqn", path, overwrite=True, layer="nope")
    assert Run.open(first).done is not None  # nothing is lost by a mistake
    again = train("dqn", path, seed=2, overwrite=True, replay_capacity=150)
    fresh = train("dqn", tmp_path / "fresh", seed=2, replay_capacity=150)
    assert_same_run(again.path, fresh.path)
    said = command("train", "--config", path / "config.json", "--run-dir", path)
    assert said.code == 2
    assert "replace it with --overwrite" in said.err
    words = ("--config", path / "config.json", "--run-dir", path, "--overwrite", "--seed", "4")
    assert command("train", *words).code == 0
    assert Run.open(path).config["spec"]["seed"] == 4


def test_what_is_not_the_runs_own_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train("pqn", path)
    for name in ("notes.txt", "checkpoints/copy", "films"):
        other = path / name
        other.write_text("mine") if "." in name or name == "films" else other.mkdir()
        with pytest.raises(RunError, match=f"holds what no run writes: .*{name}"):
            train("pqn", path, overwrite=True)
        other.unlink() if other.is_file() else other.rmdir()
    run = Run.open(path)
    run.lock()
    with pytest.raises(InUse):
        train("pqn", path, overwrite=True)
    run.close()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="exists and is not a run"):
        train("pqn", tmp_path / "folder", overwrite=True)
    assert train("pqn", path, seed=5, overwrite=True).finished


# Kept checkpoints


def test_checkpoints_are_kept(tmp_path: Path) -> None:
    run = train("dqn", tmp_path / "run", checkpoint_every=50, keep_every=100, steps=500)
    steps = [record.step_of(path) for path in record.checkpoints(run.path / "checkpoints")]
    assert sorted(steps) == [100, 200, 300, 400, 450, 500]
    for step in steps:  # each is whole, with what its replay needs
        assert checkpoint.read(run.path / "checkpoints" / record.name_of(step))[0] == step
        assert hadamard.load_agent(run, step=step, device="cpu").step == step
    for path in record.checkpoints(run.path / "checkpoints")[:3]:
        (path / "state.json").write_text("damaged")
    with pytest.warns(UserWarning, match="an older checkpoint is used"):
        assert hadamard.load_agent(run, device="cpu").step == 300


def test_without_it_two_are_kept(tmp_path: Path) -> None:
    run = train("pqn", tmp_path / "run", checkpoint_every=48)
    assert len(record.checkpoints(run.path / "checkpoints")) == 2
    with pytest.raises(ValueError, match="--train.keep-every 100 keeps checkpoints, and"):
        train("pqn", tmp_path / "other", checkpoint_every=0, keep_every=100)
    with pytest.raises(ValueError, match="--train.keep-every must not be negative, got -1"):
        train("pqn", tmp_path / "other", keep_every=-1)


# Films


@pytest.fixture
def gifs(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    monkeypatch.setattr(film, "_ffmpeg", lambda: "")


@pytest.mark.usefixtures("gifs")
def test_films_change_nothing_and_are_made_again_alike(tmp_path: Path) -> None:
    plain = train("pqn", tmp_path / "plain")
    run = train("pqn", tmp_path / "run", film_every=200)
    assert_same_run(run.path, plain.path)
    names = ["step-000000000208.gif", "step-000000000400.gif"]
    films = sorted(path.name for path in (run.path / "films").iterdir())
    assert len(films) == len(names)

    def stop(event: hadamard.Event) -> None:
        if event.step >= 250:
            event.stop()

    stopped = train("pqn", tmp_path / "stopped", film_every=200, callbacks=stop)
    hadamard.resume(stopped, show_progress=False)
    for name in films:
        ours, theirs = (path / "films" / name for path in (run.path, stopped.path))
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.usefixtures("gifs")
def test_a_film_that_fails_does_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(film, "film", full)
    with pytest.warns(UserWarning, match="no more films from step .* on: no space") as warned:
        assert train("pqn", tmp_path / "run", film_every=100).finished
    assert len([w for w in warned if "no more films" in str(w.message)]) == 1


def test_films_that_cannot_be_made_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(film, "_ffmpeg", lambda: "")
    monkeypatch.setattr(film, "_is_installed", lambda _: False)
    with pytest.raises(ImportError, match=r"pip install 'hadamard-rl\[play\]'"):
        train("pqn", tmp_path / "run", film_every=100)

    monkeypatch.setattr(film, "_is_installed", lambda _: True)
    with monkeypatch.context() as patch:
        patch.delattr(probe.ProbeEnvs, "render")  # a suite that draws nothing
        with pytest.raises(ValueError, match=r"probe/both cannot be filmed \(.*has no pictures"):
            train("pqn", tmp_path / "run", film_every=100)

    class Dark:
        def reset(self) -> None: ...
        def close(self) -> None: ...
        def render(self) -> None:
            raise NotImplementedError("no pictures")

    monkeypatch.setattr(filming, "_environment", lambda *_: Dark())
    with pytest.raises(ValueError, match=r"probe/both cannot be filmed \(no pictures\)"):
        train("pqn", tmp_path / "run", film_every=100)
    assert not (tmp_path / "run").exists()


def test_a_fleet_refuses_films_by_name(tmp_path: Path) -> None:
    pytest.importorskip("minatar")
    with pytest.raises(ValueError, match="--train.fleet on is not possible: --train.film-every 9"):
        train("pqn", tmp_path / "run", env="minatar/breakout", fleet="on", film_every=9)


@pytest.mark.usefixtures("gifs")
def test_a_link_in_place_of_the_films_is_not_followed(tmp_path: Path) -> None:
    run = train("pqn", tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (run.path / "films").symlink_to(tmp_path / "elsewhere")
    config = files.read_json(run.path / "config.json")
    config["spec"]["train"]["film_every"] = 100
    (run.path / "config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning, match="is extended|no more films"):
        hadamard.resume(run, steps=600, show_progress=False)
    assert not list((tmp_path / "elsewhere").iterdir())
