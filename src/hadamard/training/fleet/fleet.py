"""The loop of a fleet: blocks of steps for all runs at once, then each run's own records.

Each run keeps its folder, streams, diagnoses and checkpoints (its ``Trainer``). What comes due in a
block (a diagnosis, a checkpoint, a log row) is done at the block's end. A block is recorded while
the device computes the next one, unless something is due that needs the weights at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.core import record
from hadamard.envs.common import EnvironmentFailure
from hadamard.health import Diagnosis
from hadamard.training import health_stream
from hadamard.training.episodes import Episodes
from hadamard.training.fleet.failure import Failure
from hadamard.training.fleet.hosted import Ended
from hadamard.training.fleet.kinds import computation_of
from hadamard.training.fleet.playing import Pending
from hadamard.training.outcomes import Diverged, Interrupted, StoppedByCallback
from hadamard.training.trainer import Trainer

_SAVERS = 8
"""Checkpoints written at the same time."""


class Block(NamedTuple):
    """What a block led to, on its way to the host."""

    updates: int
    ends: Pending | Ended
    """Flags, scores and lengths of the episodes that ended, each (runs, steps, games)."""
    names: tuple[str, ...]
    measurements: Pending
    """(names, runs): of the newest update. The last row says whether the weights are finite."""


class Fleet:
    """Several runs of one shape and at the same step, trained as one computation."""

    def __init__(
        self,
        trainers: Sequence[Trainer],
        on_divergence: Callable[[Trainer, str], None] | None = None,
    ) -> None:
        self.trainers = list(trainers)
        self.on_divergence = on_divergence
        """Told of a run that diverged, and why, as soon as it is known."""
        self.num_envs = self.trainers[0].envs.num_envs
        self.computation = computation_of(trainers)
        self._savers = ThreadPoolExecutor(_SAVERS)
        self._failed: list[str] = []

    def loop(self, stop_requested: Callable[[], bool]) -> Generator[None]:
        """Train all runs to their ends or until a stop is requested; yields between blocks.

        A run that diverges, or whose games fail, is set aside; the error is raised when the others
        are done.
        """
        active = {
            index: trainer
            for index, trainer in enumerate(self.trainers)
            if trainer.step < trainer.spec.train.horizon
        }
        diverged: list[str] = []
        try:
            for trainer in self.trainers:
                if trainer not in active.values():
                    trainer.finish()
            unrecorded: Block | None = None
            while active:
                block = self._queue(active, unrecorded)
                if unrecorded is not None:
                    self._record(active, unrecorded, diverged)
                unrecorded = block
                yield
                stopping = stop_requested()
                if stopping or any(self._weights_needed(t) for t in active.values()):
                    self._record(active, unrecorded, diverged)
                    unrecorded = None
                    if not stopping:
                        self._end_stopped(active, diverged)
                if stopping:
                    if saved := self._save_all(active, diverged):
                        raise Interrupted(*saved)
                    break
        finally:
            self._savers.shutdown()
            self.computation.close()
            for trainer in self.trainers:
                trainer.progress.close()
                trainer.trackers.close()
        if self._failed:
            raise EnvironmentFailure("\n".join(self._failed + diverged))
        if diverged:
            raise Diverged("\n".join(diverged))
        for trainer in self.trainers:
            if (error := trainer.callbacks.error) is not None:
                raise StoppedByCallback(error)

    def _queue(self, active: Mapping[int, Trainer], unrecorded: Block | None) -> Block:
        """Queue the next block of every run."""
        steps = self.computation.block if unrecorded is not None else 0
        updates = unrecorded.updates if unrecorded is not None else 0
        first = next(iter(active.values()))  # all active runs are at the same step
        step, updates = first.step + steps, _counters(first)["updates"] + updates
        for trainer in active.values():
            trainer.recent.add_weights(step, self.computation.block, trainer.agent.network, updates)
        ends, count = self.computation.queue_block(step, updates)
        for index, trainer in active.items():
            if trainer.recent.wants(step, self.computation.block):
                trainer.recent.add(step, self.computation.recent(index), temporary=True)
        metrics = self.computation.metrics
        finite = self.computation.stack.finite()
        rows = torch.stack([*(value.float() for value in metrics.values()), finite.float()])
        return Block(count, ends, tuple(metrics), Pending([rows]))

    def _weights_needed(self, trainer: Trainer) -> bool:
        """Tell whether a run needs its weights at the end of the block that is not recorded yet."""
        after = trainer.step + self.computation.block
        due = trainer.timetable.due(trainer.step, after)
        ends = after >= trainer.spec.train.horizon
        stops = trainer.callbacks.stopping
        return ends or stops or due.evaluation or due.checkpoint or due.diagnosis

    def _end_stopped(self, active: dict[int, Trainer], diverged: list[str]) -> None:
        """Save the runs that a callback stopped; the weights are those at their step."""
        stopped = {i: trainer for i, trainer in active.items() if trainer.callbacks.stopping}
        for index in stopped:
            del active[index]
        self._side_by_side(Trainer.save, stopped, diverged)
        for trainer in stopped.values():
            trainer.progress.close()

    def _save_all(self, active: dict[int, Trainer], diverged: list[str]) -> list[str]:
        """Save the runs that can be continued, and return their folders."""
        self._side_by_side(Trainer.save, active, diverged)
        return [str(trainer.run.path) for trainer in active.values()]

    def _record(self, active: dict[int, Trainer], block: Block, diverged: list[str]) -> None:
        """Write down what a block led to, and do what came due in it."""
        for index, failure in self.computation.failures.items():
            if index in active:
                self._set_aside(active.pop(index), failure)
        ends = block.ends.arrays()
        (measurements,) = block.measurements.arrays()
        diagnoses = self._diagnoses(active, block.updates)
        for index, trainer in list(active.items()):
            counters = _counters(trainer)
            counters["steps"] += self.computation.block
            counters["updates"] += block.updates
            own, greedy = (
                _episodes(trainer.step, self.num_envs, *(array[index, :, games] for array in ends))
                for games in (slice(self.num_envs), slice(self.num_envs, None))
            )
            trainer.record_episodes(own)
            trainer.record_greedy(greedy)
            *values, finite = measurements[:, index].tolist()
            metrics = dict(zip(block.names, values, strict=True))
            try:
                trainer.advance_to(
                    trainer.step + self.computation.block,
                    metrics or None,  # no update was made yet
                    diagnoses.get(index),
                    finite_weights=bool(finite),
                )
            except Diverged as error:
                self._leave_out(active.pop(index), error, diverged)
        self._side_by_side(Trainer.save_if_due, active, diverged)
        ended = {
            index: trainer
            for index, trainer in active.items()
            if trainer.step >= trainer.spec.train.horizon
        }
        for index in ended:
            del active[index]
        self._side_by_side(Trainer.finish, ended, diverged)

    def _set_aside(self, trainer: Trainer, failure: Failure) -> None:
        """Note why the games of a run have failed; its last checkpoint stays."""
        reason = f"at step {failure.step:,}, {str(failure.error).rstrip()}"
        saved = record.last_saved(trainer.run.checkpoints)
        self._failed.append(f"{trainer.run.path}: {reason}; {saved}")
        trainer.progress.close()

    def _diagnoses(
        self, active: Mapping[int, Trainer], made: int
    ) -> dict[int, Diagnosis | ValueError]:
        """Diagnose all runs for which a diagnosis falls due in the block of so many updates."""
        step = next(iter(active.values())).step + self.computation.block
        due = {
            index: trainer
            for index, trainer in active.items()
            if trainer.timetable.due(trainer.step, step).diagnosis
        }
        if not due:
            return {}
        trainers = list(due.values())
        first = trainers[0]
        with first.clock("health"):
            diagnoses = health_stream.examine_together(
                [trainer.agent.network for trainer in trainers],
                [trainer.recent.take() for trainer in trainers],
                first.spec.train,
                [trainer.spec.seed for trainer in trainers],
                step,
                earlier=[
                    trainer.recent.take_weights(trainer.updates + made) for trainer in trainers
                ],
                discrete=not first.envs.spec.continuous,
            )
        return dict(zip(due, diagnoses, strict=True))

    def _side_by_side(
        self, save: Callable[[Trainer], None], active: dict[int, Trainer], diverged: list[str]
    ) -> None:
        """Save all runs at the same time: most of it is waiting for the disk.

        A run whose weights are not finite is not saved, and leaves the active ones.
        """
        saves = {index: self._savers.submit(save, trainer) for index, trainer in active.items()}
        for index, saved in saves.items():
            try:
                saved.result()
            except Diverged as error:
                self._leave_out(active.pop(index), error, diverged)

    def _leave_out(self, trainer: Trainer, error: Diverged, diverged: list[str]) -> None:
        """Train on without a run that has diverged."""
        diverged.append(str(error))
        trainer.progress.close()
        if self.on_divergence is not None:
            self.on_divergence(trainer, str(error))


def _episodes(
    start: int,
    interval: int,
    ended: NDArray[np.bool_],
    score: NDArray[np.float32],
    length: NDArray[np.int32],
) -> Episodes:
    """Return the episodes of games (steps, games) that begin at a step."""
    places, games = np.nonzero(ended)
    step = start + (places + 1) * interval
    columns = step, games, score[places, games], length[places, games]
    return Episodes(*(column.tolist() for column in columns))


def _counters(trainer: Trainer) -> Any:
    return trainer.agent.parts["counters"]
