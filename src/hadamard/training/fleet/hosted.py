"""Playing of many runs whose games are played on the host, and learning while they play.

A block is a fixed number of rounds, and a round is one step of every game::

    host     act | send | queue learning ahead | receive | queue storing and learning | act | ...
    workers             |------- play -------|                                              |-- ...
    GPU      act |             learn                     | store, learn               | act | ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.compute.stack import StackedModules
from hadamard.core.types import Episode, Metrics, Step
from hadamard.training.fleet.failure import Failure
from hadamard.training.fleet.host_games import HostGames
from hadamard.training.trainer import Trainer

ROUNDS = 100
"""Steps of each game in a block."""


class HostedComputation(Protocol):
    """Acting and learning of many runs at once: an agent with a leading dimension of runs."""

    updates: int
    """How many updates each run has made."""
    metrics: Metrics
    """Of the newest update, each (runs,)."""

    @property
    def stack(self) -> StackedModules:
        """The stacked networks."""

    def act(self, obs: Tensor, step: int) -> Tensor:
        """Choose actions (runs, games, ...) for observations (runs, games, ...).

        ``step`` is the number of each run's environment steps before.
        """

    def learn_ahead(self) -> None:
        """Make updates that are due after the step in flight and do not need it."""

    def observe(self, obs: Tensor, action: Tensor, step: Step) -> None:
        """Store a step of all games, and make the updates that are due.

        ``step`` holds the games of all runs, those of the first run first; see ``split_step`` of
        ``envs.groups``.
        """


class Ended:
    """The episodes that ended in a block."""

    def __init__(self, runs: int, num_envs: int) -> None:
        self.num_envs = num_envs
        self.episodes: list[tuple[int, Episode]] = []
        """With the round in which each ended."""
        self._shape = runs, ROUNDS, num_envs

    def arrays(self) -> list[NDArray[Any]]:
        """Return flags, scores and lengths of these episodes, each (runs, steps, games)."""
        ended, score = np.zeros(self._shape, dtype=bool), np.zeros(self._shape)
        length = np.zeros(self._shape, dtype=np.int64)
        for place, episode in self.episodes:
            run, env = divmod(episode.env, self.num_envs)
            index = run, place, env
            ended[index], score[index], length[index] = True, episode.score, episode.length
        return [ended, score, length]


class Hosted:
    """The computation of a fleet whose games are played on the host, block by block."""

    def __init__(self, trainers: Sequence[Trainer], computation: HostedComputation) -> None:
        self.trainers, self.computation = list(trainers), computation
        self.games = HostGames(trainers)
        self.num_envs = self.games.num_envs
        self.block = ROUNDS * self.num_envs
        """Steps of a run in a block."""
        self.failures: dict[int, Failure] = {}
        """By the run's number."""
        self._seen: list[Tensor] = []
        self._clock = trainers[0].clock
        self._learns_ahead = trainers[0].spec.train.learn_ahead
        self._hand_over()

    @property
    def stack(self) -> StackedModules:
        """The stacked networks."""
        return self.computation.stack

    @property
    def metrics(self) -> Metrics:
        """Measurements of the newest update."""
        return self.computation.metrics

    def queue_block(self, step: int, updates: int) -> tuple[Ended, int]:
        """Play a block of runs that are at this step and have made so many updates.

        Returns the episodes that end in it, and the number of updates of each run.
        """
        ended = Ended(len(self.trainers), self.num_envs)
        self._seen = []
        for place in range(ROUNDS):
            episodes = self._round(step)
            step += self.num_envs
            ended.episodes += [(place, episode) for episode in episodes]
            if len(self.games.failures) > len(self.failures):
                new = self.games.failures.items() - self.failures.keys()
                self.failures |= {run: Failure(step, error) for run, error in new}
        self._hand_over()
        return ended, self.computation.updates - updates

    def _round(self, step: int) -> tuple[Episode, ...]:
        """Play one step of every game; return the episodes that ended."""
        games, computation, obs = self.games, self.computation, self.games.obs
        self._seen.append(obs)
        with self._clock("acting"):
            action = computation.act(obs, step)
        with self._clock("stepping"):
            games.send(action)
        if self._learns_ahead:
            with self._clock("learning"):
                computation.learn_ahead()
        with self._clock("stepping"):
            outcome = games.receive()
        with self._clock("learning"):
            computation.observe(obs, action, outcome)
        return outcome.episodes

    def _hand_over(self) -> None:
        """Give each run the observations it would act on next, for its checkpoint."""
        for trainer, obs in zip(self.trainers, self.games.obs, strict=True):
            trainer.pipeline.obs = obs

    def recent(self, index: int) -> Tensor:
        """Return the observations of a run's block, oldest first."""
        return torch.cat([obs[index] for obs in self._seen])

    def close(self) -> None:
        """End the games."""
        self.games.close()
