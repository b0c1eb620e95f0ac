"""Train the runs of one process to their ends: fleets of one shape, the others in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch

from hadamard.core import record
from hadamard.core.stopping import stop_signals
from hadamard.envs.common import EnvironmentFailure
from hadamard.training import fleet
from hadamard.training.fleet.fleet import Fleet
from hadamard.training.memory import is_out_of_memory
from hadamard.training.outcomes import Diverged, Interrupted, StoppedByCallback
from hadamard.training.trainer import Trainer


class GpuFailure(RuntimeError):
    """The GPU stopped working in the middle of training."""


def _gpu_failure(trainers: Sequence[Trainer], error: RuntimeError) -> GpuFailure:
    """Say what is saved of the runs; nothing on the GPU can be read any more."""
    lines = [f"the GPU failed: {str(error).splitlines()[0]}. What is saved can be continued:"]
    for trainer in trainers:
        if not trainer.summary:
            saved = record.checkpoints(trainer.run.checkpoints)
            path = trainer.run.path
            lines.append(
                f"  hadamard train --resume {path} (from step {record.step_of(saved[0]):,})"
                if saved
                else f"  {path} has no checkpoint yet: train it anew"
            )
    return GpuFailure("\n".join(lines))


def own_stream(unit: Trainer | Fleet) -> torch.cuda.Stream | None:
    """On a GPU, return a CUDA stream for a unit, beside those of others."""
    device = (unit.trainers[0] if isinstance(unit, Fleet) else unit).device
    if device.type != "cuda":
        return None
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream


def fit(
    trainers: Sequence[Trainer],
    on_divergence: Callable[[Trainer, str], None] | None = None,
) -> None:
    """Run the trainers in turns to their end, or until a signal asks to stop.

    Those of one shape are trained as one computation, if their settings say so. If a run diverges,
    or the games of a run in a fleet fail, the others go on; the error is raised when they are done.
    So is what a callback raised; a run that a callback stopped has no summary. ``on_divergence`` is
    told of a run that diverged, and why, as soon as it is known.
    """
    stacked = [trainer for trainer in trainers if trainer.spec.train.fleet == "on"]
    groups = fleet.grouped(
        stacked,
        [t.algorithm for t in stacked],
        [t.spec for t in stacked],
        [t.step for t in stacked],
    )
    alone = [trainer for trainer in trainers if trainer.spec.train.fleet != "on"]
    units: list[Trainer | Fleet] = [*alone, *(Fleet(group, on_divergence) for group in groups)]
    streams = {unit: own_stream(unit) if len(units) > 1 else None for unit in units}
    interrupted: set[str] = set()
    messages: list[str] = []
    failures: list[str] = []
    errors: list[Exception] = []
    with stop_signals() as stop_requested:
        loops = {unit: unit.loop(stop_requested) for unit in units}
        while loops:
            for unit, loop in list(loops.items()):
                try:
                    stream = streams[unit]
                    with nullcontext() if stream is None else torch.cuda.stream(stream):
                        next(loop)
                    continue
                except StopIteration:
                    pass
                except Interrupted as stopped:
                    interrupted.update(stopped.args)
                except StoppedByCallback as stopped_by:
                    errors += [stopped_by.error] if stopped_by.error is not None else []
                except Diverged as error:
                    messages.append(str(error))
                    if isinstance(unit, Trainer) and on_divergence is not None:
                        on_divergence(unit, str(error))
                except EnvironmentFailure as error:
                    if isinstance(unit, Trainer):
                        raise
                    failures.append(str(error))
                except RuntimeError as error:
                    if "CUDA error" in str(error) and not is_out_of_memory(error):
                        raise _gpu_failure(trainers, error) from error
                    raise
                del loops[unit]
    if failures:
        raise EnvironmentFailure("\n".join(failures + messages))
    if messages:
        raise Diverged("\n".join(messages))
    if errors:
        raise errors[0]
    if interrupted:
        paths = [str(trainer.run.path) for trainer in trainers]
        raise Interrupted(*(path for path in paths if path in interrupted))
