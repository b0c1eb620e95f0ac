"""Runs of one shape that a sweep trains as one computation."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hadamard.cli import main
from hadamard.core.config import overridden
from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED
from hadamard.experiments.grid import Job
from hadamard.experiments.reproduce import Request, plan
from hadamard.experiments.sweep import Options, fleets, launch, worker
from hadamard.experiments.sweep.queue import Queue
from hadamard.experiments.sweep.status import run_state
from hadamard.experiments.sweep.supervisor import command
from hadamard.experiments.sweep.view import Lines
from hadamard.training import fleet, memory, start
from tests.support.sweep import (
    attempts,
    held_process,
    newest_checkpoint,
    release,
    script,
    small_job,
    stacked_job,
    stacked_words,
    stream_contents,
    timing_rows,
    wait_until,
)

Alone = Callable[..., Path]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Return the folder of a run that was trained alone, from its seed and changed settings."""
    folder = tmp_path_factory.mktemp("alone")

    def train(seed: int, **changes: object) -> Path:
        job = stacked_job(folder, seed, f"{seed}{sorted(changes.items())}".replace("/", ""))
        if not job.finished:
            start.train("pqn", overridden(job.spec, changes))
        return job.path

    return train


def names(groups: list[tuple[Job, ...]]) -> list[list[str]]:
    return [[job.name for job in group] for group in groups]


def on_gpu(job: Job, **changes: object) -> Job:
    changes = {"device": "auto", "train.fleet": "auto", **changes}
    return Job(job.algorithm, overridden(job.spec, changes))


def test_runs_of_one_shape_are_one_fleet_on_a_gpu(tmp_path: Path) -> None:
    jobs = [on_gpu(stacked_job(tmp_path, seed, f"relu{seed}")) for seed in range(2)]
    jobs.insert(1, on_gpu(stacked_job(tmp_path, 0, "tanh0"), **{"net.activation": "tanh"}))
    jobs.append(on_gpu(stacked_job(tmp_path, 2, "rate2"), **{"algo.learning_rate": 0.1}))
    jobs.append(on_gpu(stacked_job(tmp_path, 3, "cpu3"), device="cpu"))
    jobs.append(on_gpu(stacked_job(tmp_path, 4, "unknown"), env="minatar/no-such-game"))
    jobs.append(small_job(tmp_path, "dqn", device="auto"))
    single = [["cpu3"], ["unknown"], ["dqn"]]
    whole = [["relu0", "relu1", "rate2"], ["tanh0"], *single]

    def planned(slots: int = 1, gpus: bool = True, **options: object) -> list[list[str]]:
        return names(fleets.groups(jobs, Options(**options), slots, gpus=gpus))  # type: ignore[arg-type]

    assert planned() == whole
    assert planned(slots=5) == whole
    divided = [["relu0"], ["tanh0"], ["relu1", "rate2"], *single]
    assert planned(slots=6) == planned(fleet_size=2) == divided
    assert planned(slots=100) == planned(gpus=False) == planned(fleet=False)
    assert planned(slots=100) == [[job.name] for job in jobs]


def test_a_run_keeps_the_form_it_began_with(tmp_path: Path) -> None:
    jobs = [stacked_job(tmp_path, seed) for seed in range(4)]
    for job, form in zip(jobs[:3], ("off", "on", "on"), strict=True):
        settings = {"algorithm": "pqn", "spec": {"train": {"fleet": form}}}
        Run.create(job.path, settings).close()
    (jobs[3].path).mkdir()
    (jobs[3].path / "config.json").write_text("damaged")
    groups = fleets.groups([on_gpu(job) for job in jobs], Options(), 1, gpus=False)
    assert names(groups) == [["seed0"], ["seed1", "seed2"], ["seed3"]]


def test_a_fleet_that_is_not_possible_is_refused_before_any_run(tmp_path: Path) -> None:
    refused = small_job(tmp_path, train__fleet="on", train__greedy_envs=1)
    for job, reason in (
        (refused, "--train.greedy-envs 1 plays greedy games beside training"),
        (stacked_job(tmp_path, 0, env="minatar/no-such-game"), "no task 'no-such-game'"),
    ):
        with pytest.raises(ValueError, match=reason):
            launch([job], Options(jobs=1))
    with pytest.raises(ValueError, match="--no-fleet and --train.fleet on contradict"):
        launch([stacked_job(tmp_path, 0)], Options(fleet=False))
    with pytest.raises(ValueError, match="--fleet-size must be at most 256, got 257"):
        launch([stacked_job(tmp_path, 0)], Options(fleet_size=257))
    assert not list(tmp_path.iterdir())


def test_a_sweep_trains_a_fleet_of_each_variant(
    tmp_path: Path, alone: Alone, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--variants", "relu,tanh+hr", "--seeds", "3", "--folder", str(tmp_path)]
    words += ["--jobs", "2", "--", *stacked_words()]
    assert main(["sweep", "pqn", "--dry-run", *words]) == 0
    end = "6 runs of 320 steps\n6 of them are trained in 2 fleets of 3 runs\n"
    assert capsys.readouterr().out.endswith(end)
    assert main(["sweep", "pqn", *words]) == 0
    output = capsys.readouterr().out
    assert output.endswith("6 finished\n")
    for variant in ("relu", "tanh+hr"):
        paths = [tmp_path / f"pqn_minatar-breakout_{variant}_seed{seed}" for seed in range(3)]
        logs = [path.with_name(f"{path.name}.log") for path in paths]
        for path, log in zip(paths, logs, strict=True):
            assert f"{path.name}: finished · score" in output
            assert log.read_text().count("=== attempt 1 of 3") == 1
            assert log.read_text().count("done: 320 steps") == 1
            assert (f"see {logs[0]}" in log.read_text()) == (log is not logs[0])
    own = {"net.layer": "hadamard", "net.activation": "tanh"}
    assert stream_contents(paths[2]) == stream_contents(alone(2, **own))


def test_the_runs_of_a_killed_fleet_continue_alone_or_together(
    tmp_path: Path, alone: Alone, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [stacked_job(tmp_path, seed) for seed in range(3)]
    script(jobs[1], 160, "hold")
    with subprocess.Popen(command(jobs), stdout=subprocess.DEVNULL) as process:
        assert held_process(jobs[1]) == process.pid
        for job in jobs:
            assert main(["train", "--resume", str(job.path)]) == 2
            message = f"{job.path} is in use by process {process.pid}"
            assert message in capsys.readouterr().err
        process.kill()
    release(jobs[1])
    assert [run_state(job) for job in jobs] == ["interrupted"] * 3
    saved = newest_checkpoint(jobs[2])
    rows = timing_rows(jobs[2], saved)
    assert rows
    assert main(["train", "--resume", str(jobs[0].path)]) == 0
    assert launch(jobs, Options(jobs=1)).finished == tuple(jobs)
    assert timing_rows(jobs[2], saved) == rows
    assert f"see {jobs[1].log}" in jobs[2].log.read_text()
    assert not jobs[0].log.exists()
    for seed, job in enumerate(jobs):
        assert stream_contents(job.path) == stream_contents(alone(seed))


def test_a_killed_fleet_is_started_again_and_a_stopped_one_saves(
    tmp_path: Path, alone: Alone, start_sweep: Callable[..., subprocess.Popen[str]]
) -> None:
    jobs = [stacked_job(tmp_path, seed, f"pqn_minatar-breakout_relu_seed{seed}") for seed in (0, 1)]
    words = ["pqn", "--variants", "relu", "--seeds", "2", "--folder", tmp_path]
    words += ["--jobs", "1", "--", *stacked_words()]
    script(jobs[0], 160, "hold")
    script(jobs[1], 240, "hold")
    sweep = start_sweep(*words)
    os.kill(held_process(jobs[0]), signal.SIGKILL)
    release(jobs[0])
    held_process(jobs[1])
    assert [attempts(job) for job in jobs] == [2, 2]
    sweep.send_signal(signal.SIGTERM)
    output, _ = sweep.communicate(timeout=600)
    assert sweep.returncode == INTERRUPTED, output
    assert "2 stopped and saved; run the same command again to continue" in output
    assert [newest_checkpoint(job) >= 240 for job in jobs] == [True, True]
    release(jobs[1])
    assert launch(jobs, Options(jobs=1)).exit_code == 0
    for seed, job in enumerate(jobs):
        assert stream_contents(job.path) == stream_contents(alone(seed))


def test_a_run_that_diverges_in_a_fleet_is_given_up_alone(tmp_path: Path, alone: Alone) -> None:
    rates = {0: 2.5e-4, 1: 1e30, 2: 2.5e-4}
    jobs = [stacked_job(tmp_path, seed, algo__learning_rate=rates[seed]) for seed in rates]
    summary = launch(jobs, Options(jobs=1))
    assert (summary.exit_code, summary.finished) == (1, (jobs[0], jobs[2]))
    (outcome,) = summary.failed
    assert (outcome.job, outcome.attempts, attempts(jobs[1])) == (jobs[1], 1, 1)
    assert "pqn diverged: " in outcome.log_tail
    assert [run_state(job) for job in jobs] == ["finished", "failed", "finished"]
    assert not Run(jobs[1].path).done
    for seed in (0, 2):
        own = {"algo.learning_rate": rates[seed]}
        assert stream_contents(jobs[seed].path) == stream_contents(alone(seed, **own))


def test_a_run_that_diverged_has_failed_while_its_fleet_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = {0: 2.5e-4, 1: 1e30}
    jobs = [stacked_job(tmp_path, seed, algo__learning_rate=rates[seed]) for seed in rates]
    jobs[1].failure.write_text("{}")  # of an earlier sweep
    script(jobs[0], 160, "hold")
    queue = Queue(jobs, [{}], options=Options(jobs=1))
    seen = []

    @contextmanager
    def view(_: Queue) -> Iterator[Callable[[], None]]:
        lines = Lines(queue)

        def show() -> None:
            lines.print_news()
            if jobs[0].path.with_name("seed0.held").exists() and not seen:
                seen.append([queue.status(job).state for job in jobs])
                seen.append([run_state(job) for job in jobs])
                release(jobs[0])

        yield show

    summary = queue.run(view)
    assert seen == [["running", "failed"]] * 2
    assert summary.finished == (jobs[0],)
    assert [outcome.attempts for outcome in summary.failed] == [1]
    assert [attempts(job) for job in jobs] == [1, 1]
    output = capsys.readouterr().out
    assert "seed1: running\nseed1: failed · pqn diverged: " in output
    assert output.count("seed1: failed") == 1


def test_a_damaged_run_is_given_up_and_the_rest_of_its_fleet_trained(tmp_path: Path) -> None:
    jobs = [stacked_job(tmp_path, seed, train__until=48) for seed in range(3)]
    assert worker.main(command(jobs)[3:]) == 0
    further = [stacked_job(tmp_path, seed) for seed in range(3)]
    for folder in further[1].path.glob("checkpoints/step-*"):
        (folder / "manifest.json").write_text("{}")
    assert worker.main(command(further)[3:]) == 2
    assert [job.finished for job in further] == [True, False, True]
    assert [job.failure.exists() for job in further] == [False, True, False]
    assert "is damaged: it lists the files none" in further[1].failure.read_text()


def test_a_run_that_another_process_holds_is_trained_after_the_others(
    tmp_path: Path, alone: Alone
) -> None:
    jobs = [stacked_job(tmp_path, seed) for seed in range(3)]
    jobs[1].path.mkdir()
    held = Run(jobs[1].path)
    held.lock()
    with subprocess.Popen(command(jobs), stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: all(job.finished for job in (jobs[0], jobs[2])))
        assert not jobs[1].finished
        assert f"waiting for process {os.getpid()}" in jobs[1].log.read_text()
        held.close()
    assert process.returncode == 0
    assert stream_contents(jobs[1].path) == stream_contents(alone(1))


def test_a_fleet_too_large_for_the_memory_is_trained_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [stacked_job(tmp_path, seed, train__until=32) for seed in range(3)]
    device = fleet.machine.choose_device("cpu")
    env = fleet.envs.make_on_device("minatar/breakout", 0, 1, device).spec
    specs = [job.spec for job in jobs]
    needed, _ = memory._needed(specs[:1], device, env)["memory"]
    limit = 5 * needed // 2
    monkeypatch.setattr(memory, "host_memory", lambda: (limit, limit))
    assert memory.fitting(specs, device, env) == 2
    message = "3 runs at once need at least .*: 2 would fit. Either train 2 at once .--seeds 2.*"
    with pytest.raises(ValueError, match=message):
        start.train_together("pqn", specs)
    assert not list(tmp_path.iterdir())
    assert worker.main(command(jobs)[3:]) == 0
    assert "2 of 3 runs fit into memory at once" in capsys.readouterr().out
    assert [run_state(job) for job in jobs] == ["finished"] * 3
    monkeypatch.setattr(memory, "host_memory", lambda: (10 * limit, limit))
    with pytest.warns(UserWarning, match="free now: if it fails, train 2 at once"):
        memory.check_together(specs, device, env)


def test_seeds_of_an_experiment_of_the_paper_are_fleets_on_a_gpu(tmp_path: Path) -> None:
    runs = plan(Request(("fig-pqn",), "minatar", tmp_path))
    units = fleets.groups([run.job for run in runs], Options(), 1, gpus=True)
    assert [job for unit in units for job in unit if job.algorithm != "pqn"] == []
    assert {len(unit) for unit in units} == {5}
    for first, *others in units:
        for job in others:
            own = {"seed": job.spec.seed, "run_dir": job.spec.run_dir}
            assert overridden(first.spec, own) == job.spec
    assert len(units) == len({(job.spec.env, job.spec.net) for unit in units for job in unit})


@pytest.mark.gpu
def test_on_a_gpu_a_sweep_trains_fleets_by_itself(tmp_path: Path) -> None:
    jobs = [on_gpu(stacked_job(tmp_path, seed)) for seed in range(3)]
    assert launch(jobs, Options()).finished == tuple(jobs)
    for job in jobs:
        assert Run(job.path).config["spec"]["train"]["fleet"] == "on"
        assert job is jobs[0] or f"see {jobs[0].log}" in job.log.read_text()
