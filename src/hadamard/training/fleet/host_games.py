"""The games of a fleet that are played on the host: those of all runs as one batch.

Where a state can be divided by environment, worker processes play the games of all runs, so that
one message to each worker and one copy to the device serve them all. Otherwise each run's own
environments play one after another. Emulators on a GPU play the games of all runs in one launch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard import envs
from hadamard.core.config import RunSpec
from hadamard.core.cores import usable_cores
from hadamard.core.random import child_seed
from hadamard.core.types import Envs, State, Step
from hadamard.envs import atari_on_device
from hadamard.envs.atari_on_device import EmulatedGames
from hadamard.envs.common import EnvironmentFailure, environment_seeds
from hadamard.envs.groups import join_steps
from hadamard.training.setup import TRAINING
from hadamard.training.trainer import Trainer

_PROCESSES_PER_CORE = 2


class HostGames:
    """The games of several runs, those of the first run first."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.own: list[Envs] = [trainer.envs for trainer in trainers]
        first = trainers[0]
        self.num_envs = first.envs.num_envs
        """Of each run."""
        self.failures: dict[int, EnvironmentFailure] = {}
        """Why a run's games cannot go on, by the run's number."""
        self.obs = torch.stack([trainer.pipeline.obs for trainer in trainers])
        """What to act on next, (runs, games, ...)."""
        self._failed_games: dict[int, EnvironmentFailure] = {}
        self._state: State | None = None  # as long as no further step is played
        self._lock = threading.Lock()  # runs are saved at the same time
        self._joined: Any = None  # environments of all runs
        self._emulated = isinstance(first.envs, EmulatedGames)
        count = len(trainers) * self.num_envs
        workers = _workers([trainer.spec for trainer in trainers], count)
        if self._emulated:
            self._joined = self._joined_emulators()
        elif workers and first.envs.exact and getattr(first.envs, "splittable", False):
            self._joined = self._joined_games(trainers, workers)
        for index, trainer in enumerate(trainers):
            # The fleet plays them. Of its environments, a run needs no more than their state.
            trainer.envs = cast(Envs, GamesOfRun(self, index))

    def _joined_games(self, trainers: Sequence[Trainer], workers: int) -> Any:
        """Let worker processes (`FleetWorkers`) go on with the games of all runs."""
        spec, device = trainers[0].spec, trainers[0].device
        seeds = [
            seed
            for trainer in trainers
            for seed in environment_seeds(child_seed(trainer.spec.seed, TRAINING), self.num_envs)
        ]
        state = _joined([games.state_dict() for games in self.own])
        for games in self.own:
            games.close()
        joined = envs.make(
            spec.env,
            seeds,
            len(seeds),
            device,
            atari_reset=spec.train.atari_reset,
            workers=workers,
            failures=self._failed_games,
        )
        obs: Any = joined.load_state_dict(state)
        for failure in self._failed_games.values():
            raise failure
        self.obs = obs.unflatten(0, self.obs.shape[:2])
        return joined

    def _joined_emulators(self) -> EmulatedGames:
        """Let the emulators go on with the games of all runs as one batch."""
        own = [games for games in self.own if isinstance(games, EmulatedGames)]
        joined = atari_on_device.joined(own)
        state = _joined([games.state_dict() for games in own])
        self.obs = joined.load_state_dict(state).unflatten(0, self.obs.shape[:2])
        return joined

    @property
    def apart(self) -> bool:
        """Whether some runs may be ahead of others."""
        return self._joined is not None and self.num_envs == 1 and not self._emulated

    def send(self, action: Tensor, runs: NDArray[np.bool_] | None = None) -> None:
        """Start a step of all games, (runs, games, ...), or of some runs' where they are apart."""
        self._state = None
        if self._emulated:
            self._joined.send(action.flatten(0, 1))
            return
        if self._joined is not None:
            self._joined.send(action.flatten(0, 1), games=runs)
            return
        for games, own_action in zip(self.own, action, strict=True):
            games.send(own_action)

    def receive(self, *, some: bool = False) -> Step:
        """Wait for the step, or until ``some`` runs have made it; failed games stand still."""
        step: Step
        if self._emulated:
            step = self._joined.receive()
        elif self._joined is not None:
            step = self._joined.receive(some=some)
            for game, failure in self._failed_games.items():
                self.failures[game // self.num_envs] = failure
        else:
            step = join_steps([self._received(index) for index in range(len(self.own))])
        self.obs = step.obs.unflatten(0, self.obs.shape[:2])
        return step

    def _received(self, run: int) -> Step:
        try:
            if run not in self.failures:
                return self.own[run].receive()
        except EnvironmentFailure as failure:
            self.failures[run] = failure
        zero = torch.zeros(self.num_envs)
        return Step(self.obs[run], zero, zero.bool(), zero.bool())

    def state_of(self, run: int) -> State:
        """Return the state of a run's games, as its own environments would."""
        if self._joined is None:
            return self.own[run].state_dict()
        with self._lock:
            if self._state is None:
                self._state = self._joined.state_dict()
            first = run * self.num_envs
            part: State = _part(self._state, slice(first, first + self.num_envs))
            return part

    def close(self) -> None:
        """End the worker processes."""
        if self._joined is not None:
            self._joined.close()


class GamesOfRun:
    """A run's part of the games of a fleet, as its checkpoints hold it."""

    def __init__(self, games: HostGames, run: int) -> None:
        own = games.own[run]
        self.games, self.run, self.own = games, run, own
        self.spec, self.num_envs, self.exact = own.spec, own.num_envs, own.exact

    def state_dict(self) -> State:
        """Return the state of the games."""
        return self.games.state_of(self.run)

    def close(self) -> None:
        """Free what the run's own environments hold."""
        self.own.close()


def _workers(specs: Sequence[RunSpec[Any]], count: int) -> int:
    """Return how many processes play so many games of a fleet; 0: this one plays them."""
    if (each := specs[0].train.env_workers) is not None:
        return min(each * len(specs), count)
    return min(count, _PROCESSES_PER_CORE * usable_cores()) if count > 1 else 0


def _joined(states: Sequence[Any]) -> Any:
    """Join states that have one entry per environment."""
    first = states[0]
    if isinstance(first, Mapping):
        return {key: _joined([state[key] for state in states]) for key in first}
    if isinstance(first, Tensor):
        return torch.cat(list(states))
    if isinstance(first, np.ndarray):
        return np.concatenate(states)
    return [entry for state in states for entry in state]


def _part(state: Any, part: slice) -> Any:
    """Return some environments' part of a joined state."""
    if isinstance(state, Mapping):
        return {key: _part(value, part) for key, value in state.items()}
    return state[part]
