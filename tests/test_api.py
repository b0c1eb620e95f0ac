"""Training from Python: what `hadamard.train` and its siblings take, return and refuse."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hadamard
from hadamard.core.files import RunError
from hadamard.core.run import Run
from tests.support.paths import ROOT
from tests.support.resume import assert_same_run

TINY: Mapping[str, Any] = {
    "algo.num_envs": 4,
    "algo.rollout_steps": 4,
    "algo.minibatches": 2,
    "net.width": 16,
    "train.steps": 400,
    "train.log_every": 50,
    "train.health_every": 0,
    "train.checkpoint_every": 100,
    "train.tensorboard": False,
    "train.threads": 1,
}


def train(path: Path, settings: Mapping[str, Any] = {}, **options: Any) -> hadamard.TrainedRun:
    merged = {**TINY, **settings}
    return hadamard.train("pqn", "probe/both", merged, run_dir=path, show_progress=False, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> hadamard.TrainedRun:
    return train(tmp_path_factory.mktemp("api") / "run", seed=3, layer="hadamard")


def test_a_trained_run_says_how_it_went(run: hadamard.TrainedRun) -> None:
    assert run.finished
    assert run.summary is not None
    assert run.summary["steps"] == 400
    assert run.score == run.summary["greedy_score"]
    assert len(run.scores.steps) == len(run.scores.values) > 0
    assert np.isfinite(run.scores.values).all()
    spec = Run.open(run).config["spec"]
    assert (spec["seed"], spec["net"]["layer"], spec["net"]["width"]) == (3, "hadamard", 16)


def test_names_are_bare_or_dotted_and_text_is_read(tmp_path: Path) -> None:
    run = train(
        tmp_path / "run",
        {"train.steps": "160", "algo.learning_rate": "1e-3"},
        remedy="redo",
        tau=np.float32(0.5),
        gamma=np.float64(0.9),
        device="cpu",
    )
    spec = Run.open(run).config["spec"]
    assert spec["train"]["steps"] == 160
    assert (spec["algo"]["learning_rate"], spec["algo"]["gamma"]) == (1e-3, 0.9)
    assert spec["remedies"] == {"redo": {"tau": 0.5, "period": 1000}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": "fast"}, "algo.learning_rate must be a number, got 'fast'"),
        ({"learning_rat": 1}, "unknown setting 'learning_rat'; did you mean 'learning_rate'"),
        ({"settings": {"train.step": 5}}, "unknown setting 'train.step'; did you mean 'train.step"),
        ({"settings": {"train.steps": 1e6}}, "train.steps must be a whole number, got 1000000.0"),
        ({"settings": {"train.steps": 9, "steps": 9}}, "the setting train.steps is given twice"),
        ({"settings": {"net": 3}}, "unknown setting 'net'"),
        ({"tau": 0.1}, "unknown setting 'tau'"),
        ({"settings": {"redo.tau": 0.1}}, "setting of the remedy redo, which is not chosen"),
        ({"remedy": "redo", "tau": "x"}, "redo.tau must be a number, got 'x'"),
        ({"remedy": "redoo"}, "unknown remedy 'redoo'; did you mean 'redo'"),
        ({"norm": "leyer"}, "net.norm must be 'none' or 'layer' or 'layer_map', got 'leyer'"),
        ({"tf32": "maybe"}, "train.tf32 must be true or false, got 'maybe'"),
        ({"env": "minatar/brekout"}, "minatar has no task 'brekout'; did you mean 'breakout'"),
        ({"config": "settings.txt"}, "is named .yaml, .yml or .json, got settings.txt"),
        ({"callbacks": 3}, "a callback must be a function of one event, got 3"),
        ({"callbacks": [print, 3]}, "a callback must be a function of one event, got 3"),
        ({"init_from": "nowhere"}, "--init-from nowhere: nowhere is not a run"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_made(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError)) as refusal:
        hadamard.train("pqn", run_dir=tmp_path / "run", show_progress=False, **options)
    assert message in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_an_algorithm_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="train needs an algorithm"):
        hadamard.train(run_dir=tmp_path / "run")
    file = tmp_path / "settings.json"
    file.write_text("{}")
    with pytest.raises(ValueError, match="names no algorithm"):
        hadamard.train(config=file)


def test_a_config_file_comes_after_what_is_given(tmp_path: Path, run: hadamard.TrainedRun) -> None:
    again = hadamard.train(
        config=run.path / "config.json",
        run_dir=tmp_path / "again",
        show_progress=False,
        width=8,
        seed=5,
    )
    spec, first = (Run.open(path).config["spec"] for path in (again, run))
    assert (spec["seed"], spec["net"]["width"]) == (5, 8)
    spec |= {"seed": first["seed"], "net": first["net"], "run_dir": first["run_dir"]}
    assert spec == first


def test_the_same_settings_give_the_run_of_the_command_line(tmp_path: Path) -> None:
    from hadamard.cli import main

    ours = train(tmp_path / "ours", seed=1)
    words = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    words = [word for word in words if "tensorboard" not in word] + ["--train.no-tensorboard"]
    words += ["--env", "probe/both", "--seed", "1", "--run-dir", str(tmp_path / "theirs")]
    assert main(["train", "pqn", *words]) == 0
    assert_same_run(ours.path, tmp_path / "theirs")


def test_an_agent_acts_on_one_observation_or_a_batch(run: hadamard.TrainedRun) -> None:
    agent = hadamard.load_agent(run, device="cpu")
    assert agent.step == 400
    shape = agent.env_spec.obs_shape
    batch = np.random.default_rng(0).random((5, *shape)).astype(np.float32)
    actions = agent.act(batch)
    assert actions.shape == (5,)
    for obs, action in zip(batch, actions, strict=True):
        assert agent.act(obs) == action
        assert isinstance(agent.act(obs.tolist()), int)
        assert agent.act(torch.from_numpy(obs)) == action
    with torch.no_grad():
        values = agent.network(torch.from_numpy(batch))
    assert np.array_equal(actions, values.argmax(1).numpy())
    with pytest.raises(ValueError, match=r"an observation of probe/both has the shape"):
        agent.act(np.zeros((2, 2, *shape)))
    with pytest.raises(ValueError, match=r"an observation of probe/both has the shape"):
        agent.act(3.0)


def test_a_continuous_action_is_an_array(tmp_path: Path) -> None:
    run = hadamard.train(
        "simbav2",
        "probe/track",
        {"algo.learning_starts": 60, "algo.updates_per_step": 1, "algo.actor_width": 8},
        run_dir=tmp_path / "run",
        width=8,
        batch_size=16,
        critic_blocks=1,
        steps=80,
        health_every=0,
        eval_every=0,
        tensorboard=False,
        show_progress=False,
    )
    agent = hadamard.load_agent(run, device="cpu")
    one = agent.act(np.zeros(agent.env_spec.obs_shape))
    many = agent.act(np.zeros((3, *agent.env_spec.obs_shape)))
    assert one.shape == (agent.env_spec.action_size,)
    assert many.shape == (3, agent.env_spec.action_size)
    assert (np.abs(many) <= 1).all()


def test_an_evaluation_is_that_of_the_command(
    run: hadamard.TrainedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    from hadamard.cli import main

    played = hadamard.evaluate(run, 6, seed=2)
    assert (len(played.scores), len(played.lengths), played.step) == (6, 6, 400)
    assert hadamard.evaluate(run, 6, seed=2) == played
    assert main(["evaluate", str(run.path), "--episodes", "6", "--seed", "2"]) == 0
    assert f"at step 400: {played.mean:.2f}" in capsys.readouterr().out
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        hadamard.evaluate(run, 0)


def test_another_checkpoint_is_chosen_by_its_step(run: hadamard.TrainedRun) -> None:
    assert hadamard.load_agent(run, step=304).step == 304
    assert hadamard.evaluate(run, 2, step=304).step == 304
    with pytest.raises(ValueError, match="has no checkpoint at step 5; it has: 304, 400"):
        hadamard.load_agent(run, step=5)


def test_a_video_is_written(run: hadamard.TrainedRun, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    frames: list[int] = []
    film = hadamard.record_video(
        run, tmp_path / "film.gif", max_steps=5, seed=1, report=frames.append
    )
    assert film.path.stat().st_size > 100
    assert film.step == 400
    assert len(frames) == film.frames
    for wrong in ({"episodes": 0}, {"fps": 0.0}, {"max_steps": -1}):
        with pytest.raises(ValueError, match="must be"):
            hadamard.record_video(run, tmp_path / "film.gif", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name a film"):
        hadamard.record_video(run, tmp_path / "film.avi")
    with pytest.raises(RunError, match="is not a run"):
        hadamard.record_video(tmp_path, tmp_path / "film.gif")


def test_the_names_are_on_the_api_page() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    for name in hadamard.__all__:
        if name != "__version__":
            assert name in page, name
