"""The loop of a fleet: blocks of steps for all runs at once, then each run's own records.

Each run keeps its folder, streams, diagnoses and checkpoints (its ``Trainer``). What comes due in a
block (a diagnosis, a checkpoint, a log row) is done at the block's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hadamard.core.types import Episode
from hadamard.envs.tensor_games import StackedGames, TensorGames
from hadamard.training.fleet.on_policy import OnPolicy
from hadamard.training.trainer import Diverged, Interrupted, Trainer


class Fleet:
    """Several runs of one shape, trained as one computation."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.trainers = list(trainers)
        first = self.trainers[0]
        games = StackedGames([_games(trainer.envs) for trainer in trainers])
        greedy = None
        if first.greedy is not None:
            greedy = StackedGames([_games(t.greedy.envs) for t in trainers if t.greedy])
        self.num_envs = games.num_envs
        self.computation = OnPolicy(
            [trainer.agent for trainer in trainers],
            [trainer.spec.seed for trainer in trainers],
            games,
            greedy,
            first.device,
            first.spec.train,
        )
        for trainer, obs in zip(trainers, self.computation.obs, strict=True):
            trainer.pipeline.obs = obs[: self.num_envs]
            if trainer.greedy is not None:
                trainer.greedy.obs = obs[self.num_envs :]

    def cuda_stream(self) -> AbstractContextManager[Any]:
        """On a GPU, return a CUDA stream of this fleet's own, beside those of others."""
        return self.trainers[0].cuda_stream()

    def loop(self, stop_requested: Callable[[], bool]) -> Iterator[None]:
        """Train all runs to their ends or until a stop is requested; yields between blocks.

        A run that diverges is set aside; the error is raised when the others are done.
        """
        active = dict(enumerate(self.trainers))
        diverged: list[str] = []
        try:
            while active:
                for index, trainer in list(active.items()):
                    if trainer.step >= trainer.spec.train.horizon:
                        trainer.finish()
                        del active[index]
                if not active:
                    break
                self.computation.run_block(
                    [trainer.step for trainer in self.trainers],
                    [_counters(trainer)["updates"] for trainer in self.trainers],
                )
                yield
                outcomes = self.computation.outcomes()
                for index, trainer in list(active.items()):
                    try:
                        self._record(index, trainer, *(outcome[index] for outcome in outcomes))
                    except Diverged as error:
                        diverged.append(str(error))
                        trainer.progress.close()
                        del active[index]
                if stop_requested():
                    for trainer in active.values():
                        trainer.save()
                    raise Interrupted(*(str(trainer.run.path) for trainer in active.values()))
        finally:
            for trainer in self.trainers:
                trainer.progress.close()
                trainer.trackers.close()
        if diverged:
            raise Diverged("\n".join(diverged))

    def _record(
        self,
        index: int,
        trainer: Trainer,
        ended: NDArray[np.bool_],
        scores: NDArray[np.float32],
        lengths: NDArray[np.int32],
    ) -> None:
        """Write down what a block of a run led to, and do what came due in it."""
        block, computation = self.computation, self.computation
        counters = _counters(trainer)
        counters["steps"] += block.block
        counters["updates"] += block.updates
        obs = computation.rollout["obs"][index].flatten(0, 1)
        trainer.recent.add(trainer.step, obs, temporary=True)
        times, places = np.nonzero(ended)
        steps = trainer.step + (times + 1) * self.num_envs
        episodes = [
            (step, Episode(env, score, length))
            for step, env, score, length in zip(
                steps.tolist(),
                places.tolist(),
                scores[times, places].tolist(),
                lengths[times, places].tolist(),
                strict=True,
            )
        ]
        own = [(step, episode) for step, episode in episodes if episode.env < self.num_envs]
        trainer.record_episodes(own)
        greedy = [
            (step, episode._replace(env=episode.env - self.num_envs))
            for step, episode in episodes
            if episode.env >= self.num_envs
        ]
        trainer.record_greedy(greedy)
        metrics = {name: value[index] for name, value in computation.metrics.items()}
        trainer.advance_to(trainer.step + block.block, metrics)


def _games(envs: Any) -> TensorGames:
    assert isinstance(envs, TensorGames)
    return envs


def _counters(trainer: Trainer) -> Any:
    return trainer.agent.parts["counters"]
