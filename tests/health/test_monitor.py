"""Monitor writes a row when a diagnosis is due, and mirrors it to TensorBoard."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hadamard import Monitor, hadamardize
from hadamard.cli import main
from hadamard.core.run import RunError
from hadamard.report.data.runs import load
from tests.support.health import sick_network


def train_for(steps: int, **options) -> tuple[Monitor, list[int]]:
    net, calls = sick_network(), []

    def batch() -> Tensor:
        calls.append(1)
        return torch.randn(50, 6)

    with Monitor(net, **options) as monitor:
        for _ in range(steps):
            monitor.step(batch)
    return monitor, calls


def test_monitor_writes_a_line_when_one_is_due(tmp_path: Path) -> None:
    path = tmp_path / "new" / "er" / "health.jsonl"
    monitor, calls = train_for(10, every=4, path=path)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 8]
    assert len(calls) == 2  # a batch is fetched only when a diagnosis is due
    assert rows[1]["layers"] == monitor.latest.to_dict()["layers"]
    train_for(5, every=5, path=path)
    assert len(path.read_text().splitlines()) == 3  # earlier rows are kept


def test_monitor_takes_tensors_steps_and_options() -> None:
    monitor = Monitor(sick_network(), every=100, path=None, layers="3")
    assert monitor.step(torch.randn(20, 6), step=99) is None
    report = monitor.step(torch.randn(20, 6), step=100)
    assert [layer.name for layer in report] == ["3"]
    monitor.close()
    monitor.close()


def test_monitor_mirrors_to_a_real_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor, _ = train_for(6, every=3, path=None, tensorboard=tmp_path / "tb")
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    values = events.Scalars("health/3/dormant_fraction")
    assert [event.step for event in values] == [3, 6]
    assert values[-1].value == pytest.approx(monitor.latest["3"].dormant_fraction)


def test_a_failing_mirror_does_not_stop_training(tmp_path: Path) -> None:
    class Broken:
        def add_scalar(self, *_: object) -> None:
            raise OSError("disk full")

    path = tmp_path / "health.jsonl"
    with pytest.warns(UserWarning, match="TensorBoard is off from step 2: disk full"):
        train_for(4, every=2, path=path, tensorboard=Broken())
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize("closing_fails", [False, True])
def test_a_tensorboard_that_failed_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closing_fails: bool
) -> None:
    pytest.importorskip("tensorboard")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monitor = Monitor(sick_network(), every=1, path=None, tensorboard=tmp_path)
    writer = monitor._trackers["tensorboard"].writer
    close = writer.close
    monkeypatch.setattr(writer, "add_scalar", fail)
    if closing_fails:
        monkeypatch.setattr(writer, "close", lambda: (close(), fail()))
    with pytest.warns(UserWarning, match="TensorBoard") as caught:
        monitor.step(torch.randn(20, 6))
    assert writer.all_writers is None  # closed
    messages = [str(warning.message) for warning in caught]
    assert messages[-1] == "TensorBoard is off from step 1: disk full"
    assert caught[-1].filename == __file__  # of who trains
    assert messages[:-1] == ["TensorBoard may be incomplete: disk full"] * closing_fails
    assert monitor.step(torch.randn(20, 6)) is not None


def test_a_tensorboard_that_cannot_be_closed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")

    def fail() -> None:
        raise OSError("disk full")

    monitor = Monitor(sick_network(), every=1, path=None, tensorboard=tmp_path)
    writer = monitor._trackers["tensorboard"].writer
    close = writer.close
    monkeypatch.setattr(writer, "close", lambda: (close(), fail()))
    with pytest.warns(UserWarning, match="TensorBoard may be incomplete: disk full") as caught:
        monitor.close()
    assert caught[0].filename == __file__  # of who closes the monitor
    monitor.close()


def test_a_monitor_without_its_tracker_leaves_no_run_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        Monitor(sick_network(), path=tmp_path / "run", tensorboard=tmp_path / "file")
    assert not (tmp_path / "run").exists()


def test_a_writer_of_the_caller_is_left_open() -> None:
    class Writer:
        closed = False

        def add_scalar(self, *_: object) -> None:
            raise OSError("disk full")

        def close(self) -> None:
            self.closed = True

    writer = Writer()
    with pytest.warns(UserWarning, match="TensorBoard is off from step 1: disk full"):
        train_for(1, every=1, path=None, tensorboard=writer)
    assert not writer.closed


class Wandb:
    """What wandb.init returns, as far as a monitor uses it."""

    def __init__(self) -> None:
        self.logged: list[dict[str, float]] = []

    def log(self, values: dict[str, float]) -> None:
        self.logged.append(values)


def test_scores_and_prefixed_measures_reach_a_run_of_the_caller() -> None:
    run = Wandb()
    with Monitor(sick_network(), every=2, path=None, wandb=run, prefix="q/") as monitor:
        monitor.step(torch.randn(50, 6))
        monitor.score(torch.tensor(7.0))
        monitor.score(float("nan"))  # no tracker can show it
        monitor.step(torch.randn(50, 6))
    assert run.logged[0] == {"q/score": 7.0, "step": 1}
    assert run.logged[1]["q/3/dormant_fraction"] == monitor.latest["3"].dormant_fraction
    assert run.logged[1]["step"] == 2
    assert len(run.logged) == 2


def recorded(path: Path, steps: int = 30, **about: object) -> None:
    torch.manual_seed(int(str(about.get("seed", 0))))
    with Monitor(sick_network(), every=10, path=path, about=about) as monitor:
        for step in range(steps):
            monitor.step(torch.randn(64, 6))
            monitor.score(step)


def test_a_monitored_run_is_reported_beside_others(tmp_path: Path) -> None:
    for seed in (0, 1):
        recorded(tmp_path / f"tanh-{seed}", algorithm="mine", env="CartPole-v1", seed=seed)
    runs = load([tmp_path])
    assert [(run.algorithm, run.env, run.seed, run.finished) for run in runs] == [
        ("mine", "CartPole-v1", seed, True) for seed in (0, 1)
    ]
    assert {run.label for run in runs} == {"tanh"}
    assert runs[0].spec["train.steps"] == 30
    assert runs[0].health_steps.tolist() == [10, 20, 30]
    assert runs[0].finals["training"] == pytest.approx(14.5)
    assert set(runs[0].layers) == {"1", "3"}
    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "--output", str(page)]) == 0
    text = page.read_text()
    assert "MINE on CartPole-v1" in text.replace("</span>", "")
    assert "hadamard train mine" not in text  # it cannot be repeated so


def test_a_run_tells_what_it_is(tmp_path: Path) -> None:
    recorded(tmp_path / "run", layer="hadamard", steps=100, gamma=0.9)
    (run,) = load([tmp_path / "run"])
    assert run.label == "tanh + HR"
    assert (run.spec["train.steps"], run.spec["algo.gamma"]) == (100, 0.9)
    net = sick_network()
    hadamardize(net)
    with Monitor(net, path=tmp_path / "converted"):
        pass
    assert load([tmp_path / "converted"])[0].label == "tanh + HR"


def test_a_run_that_broke_off_is_unfinished_and_can_be_reported(tmp_path: Path) -> None:
    def crash() -> None:
        with Monitor(sick_network(), every=2, path=tmp_path / "run") as monitor:
            for _ in range(4):
                monitor.step(torch.randn(50, 6))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    (run,) = load([tmp_path / "run"])
    assert not run.finished
    assert run.health_steps.tolist() == [2, 4]


def test_two_monitors_on_one_path_are_refused(tmp_path: Path) -> None:
    for name, error in (("health.jsonl", "another monitor writes to"), ("run", "run")):
        first = Monitor(sick_network(), path=tmp_path / name)
        with pytest.raises((ValueError, RunError), match=error):
            Monitor(sick_network(), path=tmp_path / name)
        first.close()
    # A run is never continued by another monitor; a file of rows is.
    with pytest.raises(RunError, match="run"):
        Monitor(sick_network(), path=tmp_path / "run")
    Monitor(sick_network(), path=tmp_path / "health.jsonl").close()


def test_a_network_that_diverges_does_not_stop_training(tmp_path: Path) -> None:
    net, path = sick_network(), tmp_path / "health.jsonl"
    with Monitor(net, every=1, path=path) as monitor:
        assert monitor.step(torch.randn(50, 6)) is not None
        with torch.no_grad():
            net[2].weight.fill_(torch.nan)
        with pytest.warns(UserWarning, match="no diagnosis at step 2: .*NaN") as caught:
            assert monitor.step(torch.randn(50, 6)) is None
        assert caught[0].filename == __file__  # of who trains
        with pytest.warns(UserWarning, match="batch of at least 2"):
            monitor.step(torch.randn(1, 6))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert ["error" in row for row in rows] == [False, True, True]
    assert rows[1]["error"].startswith("NotFinite: ")


def test_real_services_get_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B offline, which writes what it would send."""
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    wandb.teardown()  # so that the environment is read anew
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    with Monitor(sick_network(), every=1, path=tmp_path / "run", wandb="project") as monitor:
        monitor.step(torch.randn(50, 6))
    wandb.teardown()  # waits for the process that writes
    (file,) = tmp_path.rglob("*.wandb")
    assert b"health/3/dormant_fraction" in file.read_bytes()


@pytest.mark.filterwarnings("ignore")  # of the library's own imports
def test_mlflow_gets_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    about = {"env": "mine", "lr": 1e-3}
    with Monitor(
        sick_network(), every=3, path=tmp_path / "run", mlflow="mine", about=about
    ) as monitor:
        for _ in range(6):
            monitor.step(torch.randn(50, 6))
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("mine")
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "health/3/effective_rank")
    assert [metric.step for metric in history] == [3, 6]
    assert history[-1].value == monitor.latest["3"].effective_rank
    assert run.data.params["lr"] == "0.001"
    assert run.info.status == "FINISHED"


@pytest.mark.filterwarnings("ignore")  # of the library's own imports
def test_trackio_gets_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    trackio = pytest.importorskip("trackio", reason="trackio is not installed")
    from trackio.sqlite_storage import SQLiteStorage

    with Monitor(sick_network(), every=3, path=tmp_path / "run", trackio="mine") as monitor:
        for _ in range(6):
            monitor.step(torch.randn(50, 6))
    assert [run.name for run in trackio.Api().runs("mine")] == ["run"]
    rows = SQLiteStorage.get_logs("mine", "run")
    assert [row["step"] for row in rows] == [3, 6]
    rank = monitor.latest["3"].effective_rank
    assert rows[-1]["health/3/effective_rank"] == rank
    assert capsys.readouterr().out == ""  # its greetings are no output of ours


@pytest.mark.parametrize("service", ["wandb", "trackio", "mlflow", "tensorboard"])
def test_a_missing_library_is_an_error_at_construction(
    service: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = "torch.utils.tensorboard" if service == "tensorboard" else service
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install 'hadamard-rl\["):
        Monitor(sick_network(), path=tmp_path / "run", **{service: "mine"})
    assert not (tmp_path / "run").exists()


def test_monitor_refuses_bad_arguments() -> None:
    with pytest.raises(
        ValueError, match="every must be a number of steps, an integer from 1 up, got 0"
    ):
        Monitor(sick_network(), every=0, path=None)
    with pytest.raises(TypeError, match=r"model must be an nn\.Module, got int"):
        Monitor(3, path=None)
    with pytest.raises(TypeError, match="tensorboard must be a folder or a SummaryWriter, got int"):
        Monitor(sick_network(), path=None, tensorboard=3)


BAD = {
    "wandb": ({"wandb": 3}, TypeError, "wandb must be the name of a project, or a run"),
    "wandb's module": ({"wandb": json}, TypeError, "wandb must be .* got module"),
    "trackio": ({"trackio": " "}, TypeError, "trackio must be the name of a project, got str"),
    "mlflow": ({"mlflow": Path("x")}, TypeError, "mlflow must be the name of an experiment"),
    "a layer": ({"layers": "7"}, ValueError, "no layer is called '7'"),
    "an option": ({"layrs": "7"}, TypeError, "layrs"),
    "forward": ({"forward": 3}, TypeError, "forward must be callable, got int"),
    "threshold": ({"threshold": "20"}, TypeError, "threshold must be a number, got str"),
    "delta": ({"delta": 3}, ValueError, "delta must lie between 0 and 1"),
    "positions": ({"positions": "all"}, ValueError, "positions must be"),
    "generator": ({"generator": 3}, TypeError, "generator must be a torch.Generator, got int"),
    "prefix": ({"prefix": None}, TypeError, "prefix must be a text, got NoneType"),
    "example": ({"example": torch.randn(1, 6)}, ValueError, "batch of at least 2"),
    "path": ({"path": 3}, TypeError, "path must be a file or a folder, got int"),
    "about": ({"about": 3}, TypeError, "about must be a mapping"),
    "seed": ({"about": {"seed": "1"}}, TypeError, r"about\['seed'\] must be int, got str"),
    "steps": ({"about": {"steps": 0}}, ValueError, "counts from 1 up"),
    "nearly": ({"about": {"algoritm": "x"}}, ValueError, "did you mean 'algorithm'"),
    "a setting": ({"about": {"lr": [1]}}, TypeError, r"about\['lr'\] must be a text"),
    "no run": ({"about": {}}, ValueError, "is a file of diagnoses: give a folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_at_construction(case: str, tmp_path: Path) -> None:
    arguments, error, message = BAD[case]
    place = {} if "about" in arguments and case != "no run" else {"path": tmp_path / "h.jsonl"}
    place = place or {"path": tmp_path / "run"}
    with pytest.raises(error, match=message):
        Monitor(sick_network(), **{**place, **arguments})
    assert not any(tmp_path.iterdir())
