"""Start training: new runs and interrupted ones, alone or several in one process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hadamard.core import checkpoint, discover, identity, machine, plugin_records, record
from hadamard.core.config import (
    RunSpec,
    flattened,
    from_dict,
    overridden,
    to_dict,
    with_remedy_defaults,
)
from hadamard.core.run import FORMAT, PROTOCOL, Run, RunError
from hadamard.training import fleet, initial, memory
from hadamard.training.callbacks import Callback
from hadamard.training.fit import fit
from hadamard.training.progress import Progress, SharedProgress, make_progress
from hadamard.training.setup import ALGORITHMS, Setup
from hadamard.training.trainer import Trainer

SUITES: dict[str, dict[str, Any]] = {
    # A network for a 10 x 10 grid occupies two threads at most, and runs share a machine.
    "minatar": {"train.threads": 1},
    # Toy tasks need neither a large network nor long logs.
    "probe": {
        "net.width": 64,
        "train.steps": 20_000,
        "train.log_every": 1_000,
        "train.threads": 1,
    },
}
"""What a suite changes in every algorithm's settings; an algorithm's own ``SUITES`` override it."""


def default_spec(algorithm: str, env: str | None = None) -> RunSpec[Any]:
    """Return an algorithm's default settings for an environment, by default its usual one."""
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    env = env or module.ENV
    suite, suites = env.partition("/")[0], getattr(module, "SUITES", {})
    changes = {**suites.get("*", {}), **SUITES.get(suite, {}), **suites.get(suite, {})}
    spec: RunSpec[Any] = RunSpec(algo=module.Config(), net=module.NET, env=env)
    adapted: RunSpec[Any] = overridden(spec, changes)
    return adapted


def default_run_dir(algorithm: str, spec: RunSpec[Any]) -> str:
    """Name a run's folder after its variant and what differs from the default settings."""
    defaults = overridden(default_spec(algorithm, spec.env), {"remedy": spec.remedy})
    settings = flattened(to_dict(with_remedy_defaults(spec)))
    name = identity.default_run_name(algorithm, settings, flattened(to_dict(defaults)))
    return str(Path("runs") / name)


def train(
    algorithm: str,
    spec: RunSpec[Any],
    progress: Callable[..., Progress] = make_progress,
    callbacks: Sequence[Callback] = (),
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Train a new run and return its summary, which is empty if a callback stopped it.

    Mistakes in the settings are reported before the run folder is made, and before an earlier
    run in it is removed (``overwrite``).
    """
    (summary,) = train_together(algorithm, [spec], progress, callbacks, overwrite=overwrite)
    return summary


def train_together(
    algorithm: str,
    specs: Sequence[RunSpec[Any]],
    progress: Callable[..., Progress] = make_progress,
    callbacks: Sequence[Callback] = (),
    *,
    overwrite: bool = False,
) -> list[dict[str, Any]]:
    """Train new runs in turns in this process, and return their summaries.

    Each gives the same results as alone: while the environments of one play, the others act and
    learn. On a GPU their work overlaps.
    """
    specs = fleet.resolved_together(algorithm, [with_remedy_defaults(spec) for spec in specs])
    specs = [
        replace(spec, run_dir=spec.run_dir or default_run_dir(algorithm, spec)) for spec in specs
    ]
    for spec in specs:
        assert spec.run_dir is not None
        if not Run(spec.run_dir).exists:
            continue
        if overwrite:
            _require_replaceable(spec)
        else:
            Run.create(spec.run_dir, {"algorithm": algorithm, "spec": to_dict(spec)})  # refuses
    if len(specs) > 1:
        progress = SharedProgress(progress, len(specs))
    with memory.explained(specs), ExitStack() as stack:
        setups = []
        for spec in specs:
            setups.append(stack.enter_context(closing(Setup(algorithm, spec))))
            if len(setups) == 1:
                memory.check_together(specs, setups[0].device, setups[0].envs.spec)
        trainers = [
            _created(setup, progress, stack, callbacks, overwrite=overwrite) for setup in setups
        ]
        fit(trainers)
    return [trainer.summary for trainer in trainers]


def _require_replaceable(spec: RunSpec[Any]) -> None:
    """Refuse to replace a run that is needed, is being trained, or holds other files too."""
    assert spec.run_dir is not None
    if (
        spec.init_from is not None
        and Path(spec.init_from).resolve() == Path(spec.run_dir).resolve()
    ):
        raise ValueError(
            f"--overwrite would remove {spec.run_dir}, whose weights --init-from asks for: choose "
            "another --run-dir"
        )
    Run.open(spec.run_dir).require_removable()


def _created(
    setup: Setup,
    progress: Callable[..., Progress],
    stack: ExitStack,
    callbacks: Sequence[Callback] = (),
    *,
    overwrite: bool = False,
) -> Trainer:
    """Make the folder and the trainer of a new run, which the stack closes."""
    assert setup.spec.run_dir is not None
    settings: dict[str, Any] = {"algorithm": setup.algorithm, "spec": to_dict(setup.spec)}
    if plugins := plugin_records.of_run(setup.algorithm, settings["spec"]):
        settings["plugins"] = plugins
    settings["machine"] = machine.describe(setup.device)
    if (weights := initial.take_weights(setup)) is not None:
        settings["initial"] = weights
    if overwrite and Run(setup.spec.run_dir).exists:
        Run.open(setup.spec.run_dir).remove()
    run = stack.enter_context(closing(Run.create(setup.spec.run_dir, settings)))
    trainer = Trainer(setup, run, progress, resume=False, callbacks=callbacks)
    return stack.enter_context(closing(trainer))


@contextmanager
def new_trainer(
    algorithm: str,
    spec: RunSpec[Any],
    progress: Callable[..., Progress] = make_progress,
    *,
    together: int = 1,
) -> Iterator[Trainer]:
    """Make a new run, to be trained with `fit`, so many of its shape together."""
    spec = with_remedy_defaults(spec)
    spec = fleet.resolved(algorithm, spec, together=together > 1, count=together)
    with ExitStack() as stack:
        setup = stack.enter_context(closing(Setup(algorithm, spec)))
        yield _created(setup, progress, stack)


def resume(
    path: str,
    progress: Callable[..., Progress] = make_progress,
    until: int | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    steps: int | None = None,
    changed_plugins: bool = False,
) -> dict[str, Any]:
    """Continue a run from its last whole checkpoint, see `resume_together`.

    Returns its summary, which is empty if a callback stopped it.
    """
    summaries = resume_together(
        [path], progress, until, callbacks, steps=steps, changed_plugins=changed_plugins
    )
    return summaries[0] if summaries else {}


def resume_together(
    paths: Sequence[str],
    progress: Callable[..., Progress] = make_progress,
    until: int | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    steps: int | None = None,
    changed_plugins: bool = False,
) -> list[dict[str, Any]]:
    """Continue interrupted runs in turns in this process; finished runs stay as they are.

    ``until`` replaces their ``train.until``; runs that ended at an earlier step continue too.
    ``steps`` extends them: it replaces their ``train.steps``, from here on along the schedules of
    a run of so many steps. With ``changed_plugins`` a plugin may have changed since; the run
    records both checksums.
    """
    opened = [open_run(path) for path in paths]
    if steps is not None:
        opened = [(run, name, _with_steps(run, spec, steps)) for run, name, spec in opened]
    if until is not None:
        opened = [(run, name, _with_until(run, spec, until)) for run, name, spec in opened]
    unfinished = []
    for run, name, spec in opened:
        if (done := run.done) is None or done["steps"] < spec.train.horizon:
            _check_protocol(run)
            unfinished.append((run, name, spec))
        else:
            _require_rows(run)
    if len(unfinished) > 1:
        progress = SharedProgress(progress, len(unfinished))
    with memory.explained([spec for *_, spec in unfinished]), ExitStack() as stack:
        trainers: list[Trainer] = []
        for run, algorithm, spec in unfinished:
            setup = _reopened(run, algorithm, spec, stack, changed_plugins=changed_plugins)
            if not trainers:
                specs = [spec for *_, spec in unfinished]
                memory.check_together(specs, setup.device, setup.envs.spec)
            trainer = Trainer(setup, run, progress, resume=True, callbacks=callbacks)
            trainers.append(stack.enter_context(closing(trainer)))
        fit(trainers)
    return [summary for run, _, _ in opened if (summary := run.done) is not None]


def _reopened(
    run: Run,
    algorithm: str,
    spec: RunSpec[Any],
    stack: ExitStack,
    *,
    changed_plugins: bool = False,
) -> Setup:
    """Lock and check an interrupted run, which the stack closes."""
    run.lock()
    stack.enter_context(closing(run))
    require_resumable(run)
    if changes := plugin_records.changes(run.config, run.path):
        if not changed_plugins:
            raise RunError(
                f"{'; '.join(changes)}: continue with the same, or state the change with "
                "--changed-plugins"
            )
        run.replace_plugins(trained_steps(run))
    setup = stack.enter_context(closing(Setup(algorithm, spec)))
    initial.take_again(setup, run)
    return setup


@contextmanager
def resumed_trainer(
    path: str, until: int, progress: Callable[..., Progress] = make_progress
) -> Iterator[Trainer]:
    """Open an interrupted run with another ``train.until``, to be trained with `fit`."""
    run, algorithm, spec = open_run(path)
    spec = _with_until(run, spec, until)
    _check_protocol(run)
    with ExitStack() as stack:
        setup = _reopened(run, algorithm, spec, stack)
        yield stack.enter_context(closing(Trainer(setup, run, progress, resume=True)))


def trained_steps(run: Run) -> int:
    """Return how many steps a run has been trained for, as far as it is saved."""
    if (done := run.done) is not None:
        steps: int = done["steps"]
        return steps
    saved = record.checkpoints(run.checkpoints)
    return record.step_of(saved[0]) if saved else 0


def require_resumable(run: Run) -> None:
    """Refuse a run whose checkpoints are lost, or belong to other settings than config.json's."""
    saved = record.checkpoints(run.checkpoints)
    record.own(run.checkpoints)  # refuses a damaged record
    extents = run.extents()  # refuses streams that are no regular files
    if not saved:
        rows = any(extent.bytes for extent in extents.values())
        record.require_never_saved(run.checkpoints, rows=rows)
    require_settings(run)


def require_settings(run: Run) -> None:
    """Refuse a run whose newest checkpoint was saved with other settings than config.json's."""
    for path in record.checkpoints(run.checkpoints):
        try:
            settings = checkpoint.manifest(path).settings
        except (OSError, ValueError, RunError):
            continue  # it is damaged, which its reader reports
        if settings is not None:
            run.check(settings)
        return


def _with_until(run: Run, spec: RunSpec[Any], until: int) -> RunSpec[Any]:
    """Return the settings with another ``train.until``, if the run can be trained to there."""
    train = replace(spec.train, until=until)
    if until < 0:
        raise ValueError(f"--until must not be negative, got {until} (0: to the end)")
    if until > train.steps:
        raise ValueError(
            f"--until {until} is beyond the {train.steps} steps {run.path} is planned for: "
            "give fewer, or 0 for all of them"
        )
    if train.horizon != spec.train.horizon and train.horizon < (steps := trained_steps(run)):
        raise ValueError(
            f"--until {until} is less than the {steps} steps {run.path} was trained for already: "
            "give more, or 0 for all it is planned for"
        )
    return replace(spec, train=train)


def _with_steps(run: Run, spec: RunSpec[Any], steps: int) -> RunSpec[Any]:
    """Return the settings with more ``train.steps``, if the run can be extended to there."""
    trained, planned = trained_steps(run), spec.train.steps
    if steps == planned and run.extensions:
        return spec  # the same command again
    if steps <= max(planned, trained):
        raise ValueError(
            f"--train.steps {steps} does not extend {run.path}, which is planned for {planned} "
            f"steps and was trained for {trained}: give more, or choose an earlier end with --until"
        )
    warnings.warn(
        f"{run.path} is extended from {planned:,} to {steps:,} steps. From step {trained:,} on, "
        f"what changes on a schedule over all steps has the value of a run of {steps:,} steps "
        "there: a learning rate that had fallen rises again. Reports keep the run apart from runs "
        "that were planned this long",
        stacklevel=3,
    )
    return replace(spec, train=replace(spec.train, steps=steps, until=0))


def _check_protocol(run: Run) -> None:
    """Refuse to continue a run under other rules than it began with."""
    if run.protocol != PROTOCOL:
        raise RunError(
            f"{run.path} was trained under protocol {run.protocol} and this version of hadamard "
            f"trains under {PROTOCOL}, so the results would not be comparable: train it anew, or "
            "continue it in the version that made it (evaluate and report work here too)"
        )


def _require_rows(run: Run) -> None:
    """Refuse a finished run whose rows have changed since its end."""
    if changes := run.losses() + run.additions():
        raise RunError(
            f"{run.path} is finished, and its rows have changed since: {'; '.join(changes)}. "
            f"Restore these files from a copy, or remove {run.path} to train it anew"
        )


def open_run(path: str) -> tuple[Run, str, RunSpec[Any]]:
    """Open a run folder and read its settings."""
    run = Run.open(path)
    config = run.config
    if config.get("format") != FORMAT:
        raise RunError(
            f"{run.path} was made by another version of hadamard, whose networks read their "
            "features in another order: train it anew (its report can still be made)"
        )
    plugin_records.require(config, run.path)
    try:
        algorithm: str = config["algorithm"]
        module = discover.find(ALGORITHMS, algorithm, "algorithm")
        values = dict(config["spec"])
        algo = from_dict(module.Config, values.pop("algo"), "config.json: spec.algo")
        spec = from_dict(RunSpec, {**values, "algo": None}, "config.json: spec")
    except (KeyError, ValueError, TypeError) as error:
        raise RunError(f"{run.path} cannot be opened: {error}") from error
    return run, algorithm, replace(spec, algo=algo, run_dir=str(run.path))
