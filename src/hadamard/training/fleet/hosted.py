"""Playing of many runs whose games are played on the host, and learning while they play.

A block is a fixed number of steps of every game. Learners of the newest step act in rounds, each
one step of all games::

    host     act | send | queue learning ahead | receive | queue storing and learning | act | ...
    workers             |------- play -------|                                              |-- ...
    GPU      act |             learn                     | store, learn               | act | ...

Where the weights change only every few steps, the runs need not wait for each other in between
(``PlaysApart``). The host acts for those whose games have answered, and stores their steps while
the next ones are played. An update is made when all runs have acted for the last time before it.
A game that begins anew takes twenty times as long as a step, and so delays the other runs little::

    host     act | send | store the steps before, queue learning | receive | act | ...
    workers             |--------------- play -----------------|                 |-- ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

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


class PlaysInRounds(Protocol):
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


@runtime_checkable
class PlaysApart(Protocol):
    """The same for runs that may be at different steps between two updates."""

    updates: int
    metrics: Metrics

    @property
    def stack(self) -> StackedModules:
        """The stacked networks."""

    def act(self, obs: Tensor, step: NDArray[np.int64]) -> Tensor:
        """Choose actions (runs, games, ...) for runs at these steps."""

    def rounds_until_update(self, step: int, limit: int) -> int:
        """Return how many rounds runs at a step can act with the same weights, up to a limit."""

    def store(self, action: Tensor, step: Step) -> None:
        """Store a step of the games that made one."""

    def learn(self, step: int, in_flight: NDArray[np.bool_]) -> bool:
        """Make the updates that are due up to a step that all runs have acted for.

        ``in_flight`` are the runs whose last step before it is not stored yet. Returns whether
        the updates are made; if not, one of them needs such a step.
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

    def __init__(
        self, trainers: Sequence[Trainer], computation: PlaysInRounds | PlaysApart
    ) -> None:
        self.trainers, self.computation = list(trainers), computation
        self.games = HostGames(trainers)
        self.num_envs = self.games.num_envs
        self.block = ROUNDS * self.num_envs
        """Steps of a run in a block."""
        self.failures: dict[int, Failure] = {}
        """By the run's number."""
        self._everyone = np.ones(len(self.trainers), dtype=bool)
        self._seen: list[tuple[Tensor, NDArray[np.bool_]]] = []
        """The observations of the block, and which runs acted on them."""
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
        self._seen, computation = [], self.computation
        if isinstance(computation, PlaysApart):
            self._play_apart(computation, step, ended)
        else:
            for place in range(ROUNDS):
                episodes = self._round(computation, step + place * self.num_envs)
                ended.episodes += [(place, episode) for episode in episodes]
                self._note_failures(step + (place + 1) * self.num_envs)
        self._hand_over()
        return ended, computation.updates - updates

    def _round(self, computation: PlaysInRounds, step: int) -> tuple[Episode, ...]:
        """Play one step of every game; return the episodes that ended."""
        games, obs = self.games, self.games.obs
        self._seen.append((obs, self._everyone))
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

    def _play_apart(self, computation: PlaysApart, step: int, ended: Ended) -> None:
        """Play a block in which runs wait for each other no longer than the weights ask for."""
        games, count = self.games, len(self.trainers)
        sent, played = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        limit = computation.rounds_until_update(step, ROUNDS)
        actions: Tensor | None = None  # the last ones of every run
        unstored: tuple[Tensor, Step] | None = None
        while True:
            ready = (sent == played) & (sent < limit)
            if ready.any():
                self._seen.append((games.obs, ready))
                with self._clock("acting"):
                    chosen = computation.act(games.obs, step + sent * self.num_envs)
                if actions is not None:
                    chosen[~ready] = actions[~ready]
                actions = chosen
                with self._clock("stepping"):
                    games.send(actions, ready if games.apart else None)
                sent += ready
            in_flight = sent > played
            with self._clock("learning"):  # while the games are played
                if unstored is not None:
                    computation.store(*unstored)
                    unstored = None
                after = step + limit * self.num_envs
                settled = sent.min() == limit and (self._learns_ahead or not in_flight.any())
                learned = settled and computation.learn(after, in_flight)
            if learned and limit < ROUNDS:
                limit += computation.rounds_until_update(after, ROUNDS - limit)
                continue
            if not in_flight.any():
                return
            assert actions is not None
            with self._clock("stepping"):
                outcome = games.receive(some=games.apart)
            unstored = actions.flatten(0, 1), outcome
            played += 1 if outcome.present is None else outcome.present
            ended.episodes += [
                (int(played[e.env // self.num_envs]) - 1, e) for e in outcome.episodes
            ]
            self._note_failures(step + int(played.min()) * self.num_envs)

    def _note_failures(self, step: int) -> None:
        """Note which games have failed by this step."""
        if len(self.games.failures) > len(self.failures):
            for run, error in self.games.failures.items():
                self.failures.setdefault(run, Failure(step, error))

    def _hand_over(self) -> None:
        """Give each run the observations it would act on next, for its checkpoint."""
        for trainer, obs in zip(self.trainers, self.games.obs, strict=True):
            trainer.pipeline.obs = obs

    def recent(self, index: int) -> Tensor:
        """Return the observations of a run's block, oldest first."""
        return torch.cat([obs[index] for obs, runs in self._seen if runs[index]])

    def close(self) -> None:
        """End the games."""
        self.games.close()
