"""Training from outside: new runs and interrupted ones, alone or in turns."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from hadamard.core import discover, machine
from hadamard.core.config import RunSpec, flattened, from_dict, overridden, to_dict
from hadamard.core.run import FORMAT, PROTOCOL, Run, RunError
from hadamard.core.stopping import stop_signals
from hadamard.experiments.defaults import overrides
from hadamard.progress import Progress, Together, make_progress
from hadamard.trainer import ALGORITHMS, Diverged, Interrupted, Trainer

_TOLD = 3
"""Changed settings that a run's folder is named after, at most."""


def default_spec(algorithm: str, env: str | None = None) -> RunSpec[Any]:
    """Return an algorithm's settings before any choice, for an environment or its usual one."""
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    env = env or module.ENV
    spec: RunSpec[Any] = RunSpec(algo=module.Config(), net=module.NET, env=env)
    adapted: RunSpec[Any] = overridden(spec, overrides(algorithm, env))
    return adapted


def default_run_dir(algorithm: str, spec: RunSpec[Any]) -> str:
    """Name a run after what sets it apart; many settings become a short sum of them."""
    parts = [algorithm, spec.env.replace("/", "-"), spec.net.layer, spec.net.activation]
    parts += [] if spec.net.norm == "none" else [spec.net.norm]
    parts += ["redo"] if spec.redo.enabled else []
    usual = flattened(to_dict(default_spec(algorithm, spec.env)))
    said = ["env", "seed", "run_dir", "device", "net.layer", "net.activation", "net.norm"]
    said += ["train.until"]  # a run keeps its name however far it is trained for now
    changed = {
        name: value
        for name, value in flattened(to_dict(spec)).items()
        if name not in (*said, "redo.enabled") and value != usual[name]
    }
    told = [f"{name.rpartition('.')[2].strip('_')}-{value}" for name, value in changed.items()]
    if len(told) > _TOLD or any("/" in words for words in told):
        told = [f"{zlib.crc32(repr(sorted(changed.items())).encode()):08x}"]
    return str(Path("runs") / "_".join([*parts, *told, f"seed{spec.seed}"]))


def train(
    algorithm: str, spec: RunSpec[Any], progress: Callable[..., Progress] = make_progress
) -> dict[str, Any]:
    """Train a new run and return its summary.

    Everything that can be wrong with the settings is found before the folder is made.
    """
    (summary,) = train_together(algorithm, [spec], progress)
    return summary


def train_together(
    algorithm: str,
    specs: Sequence[RunSpec[Any]],
    progress: Callable[..., Progress] = make_progress,
) -> list[dict[str, Any]]:
    """Train new runs side by side in this process, and return their summaries.

    Each is the very run it would be on its own: while the environments of one step, the others
    act and learn, and on a GPU their work overlaps.
    """
    named = [
        replace(spec, run_dir=spec.run_dir or default_run_dir(algorithm, spec)) for spec in specs
    ]
    for spec in named:
        assert spec.run_dir is not None
        if (Path(spec.run_dir) / "config.json").exists():
            Run.create(
                spec.run_dir, {"algorithm": algorithm, "spec": to_dict(spec)}
            )  # says why not
    if len(named) > 1:
        progress = Together(progress, len(named))
    with ExitStack() as stack:
        trainers = [stack.enter_context(closing(Trainer(algorithm, spec))) for spec in named]
        for trainer in trainers:
            assert trainer.spec.run_dir is not None
            settings = {"algorithm": algorithm, "spec": to_dict(trainer.spec)}
            settings["machine"] = machine.describe(trainer.device)
            trainer.open(Run.create(trainer.spec.run_dir, settings), progress, resume=False)
        fit(trainers)
    return [trainer.summary for trainer in trainers]


def resume(
    path: str, progress: Callable[..., Progress] = make_progress, until: int | None = None
) -> dict[str, Any]:
    """Go on with a run from its last whole checkpoint, see `resume_together`."""
    (summary,) = resume_together([path], progress, until)
    return summary


def resume_together(
    paths: Sequence[str],
    progress: Callable[..., Progress] = make_progress,
    until: int | None = None,
) -> list[dict[str, Any]]:
    """Go on with interrupted runs side by side; those that are finished stay as they are.

    ``until`` is their new ``train.until``, for a run too that ended at an earlier one.
    """
    opened = [open_run(path) for path in paths]
    if until is not None:
        opened = [(run, name, _with_until(run, spec, until)) for run, name, spec in opened]
    left = [
        (run, name, spec)
        for run, name, spec in opened
        if (done := run.done) is None or done["steps"] < spec.train.horizon
    ]
    for run, _, _ in left:
        _check_protocol(run)
    if len(left) > 1:
        progress = Together(progress, len(left))
    with ExitStack() as stack:
        trainers = []
        for run, algorithm, spec in left:
            run.lock()
            stack.callback(run.close)
            trainers.append(stack.enter_context(closing(Trainer(algorithm, spec))))
            run.train_until(spec.train.until)
            trainers[-1].open(run, progress, resume=True)
        fit(trainers)
    return [summary for run, _, _ in opened if (summary := run.done) is not None]


def reached(run: Run) -> int:
    """Return how many steps a run has been trained for, as far as it is saved."""
    if (done := run.done) is not None:
        steps: int = done["steps"]
        return steps
    saved = sorted((run.path / "checkpoints").glob("step-*"))
    return int(saved[-1].name.removeprefix("step-")) if saved else 0


def _with_until(run: Run, spec: RunSpec[Any], until: int) -> RunSpec[Any]:
    """Return the settings with another end, if the run can still be trained until there."""
    train = replace(spec.train, until=until)
    if until < 0:
        raise ValueError(f"--until must not be negative, got {until} (0: to the end)")
    if until > train.steps:
        raise ValueError(
            f"--until {until} is beyond the {train.steps} steps {run.path} is planned for: "
            "give fewer, or 0 for all of them"
        )
    if train.horizon != spec.train.horizon and train.horizon < (steps := reached(run)):
        raise ValueError(
            f"--until {until} is less than the {steps} steps {run.path} was trained for already: "
            "give more, or 0 for all it is planned for"
        )
    return replace(spec, train=train)


def _check_protocol(run: Run) -> None:
    """Refuse to go on with a run under other rules than it began with."""
    if run.protocol != PROTOCOL:
        raise RunError(
            f"{run.path} was trained under protocol {run.protocol} and this version of hadamard "
            f"trains under {PROTOCOL}, whose runs are not comparable: train it anew, or go on "
            "with it in the version that made it (it can still be evaluated and reported here)"
        )


def fit(trainers: Sequence[Trainer]) -> None:
    """Run the loops of opened trainers in turns to their end, or until a signal asks to stop.

    One that diverges does not stop the others; it is told of when they are done.
    """
    several = len(trainers) > 1
    stopped: set[Trainer] = set()
    diverged: list[Diverged] = []
    with stop_signals() as stopping:
        loops = {trainer: trainer.loop(stopping) for trainer in trainers}
        while loops:
            for trainer, loop in list(loops.items()):
                try:
                    with trainer.own_stream() if several else nullcontext():
                        next(loop)
                    continue
                except StopIteration:
                    pass
                except Interrupted:
                    stopped.add(trainer)
                except Diverged as trouble:
                    diverged.append(trouble)
                del loops[trainer]
    if diverged:
        raise diverged[0] if not several else Diverged("\n".join(map(str, diverged)))
    if stopped:
        raise Interrupted(*(str(trainer.run.path) for trainer in trainers if trainer in stopped))


def open_run(path: str) -> tuple[Run, str, RunSpec[Any]]:
    """Open a run folder and read its settings."""
    run = Run.open(path)
    config = run.config
    if config.get("format") != FORMAT:
        raise RunError(
            f"{run.path} was made by another version of hadamard, whose networks read their "
            "features in another order: train it anew (its report can still be made)"
        )
    algorithm: str = config["algorithm"]
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    try:
        values = dict(config["spec"])
        algo = from_dict(module.Config, values.pop("algo"), "config.json: spec.algo")
        spec = from_dict(RunSpec, {**values, "algo": None}, "config.json: spec")
    except (KeyError, ValueError, TypeError) as error:
        raise RunError(f"{run.path} cannot be opened: {error}") from error
    return run, algorithm, replace(spec, algo=algo, run_dir=str(run.path))
