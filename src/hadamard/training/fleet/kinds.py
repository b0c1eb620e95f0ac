"""The computation of a fleet, by its agents' ``fleet_kind`` and where the games are played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hadamard.envs.atari_on_device import EmulatedGames, StackedEmulators
from hadamard.envs.tensor_games import StackedGames, TensorGames
from hadamard.training.fleet.hosted import Hosted
from hadamard.training.fleet.hosted_replay import HostedReplay
from hadamard.training.fleet.on_policy import OnPolicy
from hadamard.training.fleet.replayed import Replayed
from hadamard.training.fleet.soft_actor_critic import SoftActorCritic
from hadamard.training.trainer import Trainer

ON_DEVICE: dict[str, type[OnPolicy] | type[Replayed]] = {
    "on_policy": OnPolicy,
    "replay": Replayed,
}
ON_HOST: dict[str, type[HostedReplay] | type[SoftActorCritic]] = {
    "replay": HostedReplay,
    "soft_actor_critic": SoftActorCritic,
}
WITH_EMULATORS: dict[str, type[OnPolicy]] = {"on_policy": OnPolicy}
"""Other kinds treat emulators on the device as games of the host: their replay is there."""
Computation = OnPolicy | Replayed | Hosted

Games = TypeVar("Games", TensorGames, EmulatedGames)


def computation_of(trainers: Sequence[Trainer]) -> Computation:
    """Return the computation of runs of one shape."""
    agents: list[Any] = [trainer.agent for trainer in trainers]
    seeds, train = [trainer.spec.seed for trainer in trainers], trainers[0].spec.train
    kind, envs = agents[0].fleet_kind, trainers[0].envs
    computation: OnPolicy | Replayed
    if isinstance(envs, TensorGames):
        games = StackedGames([_games(trainer, TensorGames) for trainer in trainers])
        computation = ON_DEVICE[kind](agents, seeds, games, train)
    elif isinstance(envs, EmulatedGames) and kind in WITH_EMULATORS:
        emulators = StackedEmulators([_games(trainer, EmulatedGames) for trainer in trainers])
        computation = WITH_EMULATORS[kind](agents, seeds, emulators, train)
    else:
        return Hosted(trainers, ON_HOST[kind](agents, seeds, train))
    count = computation.player.num_envs
    for trainer, obs in zip(trainers, computation.player.obs, strict=True):
        trainer.pipeline.obs = obs[:count]
        if trainer.greedy is not None:
            trainer.greedy.obs = obs[count:]
    return computation


def _games(trainer: Trainer, kind: type[Games]) -> list[Games]:
    """Return a run's games: those of training, then those of the greedy policy."""
    parts = [trainer.envs] if trainer.greedy is None else [trainer.envs, trainer.greedy.envs]
    games = [part for part in parts if isinstance(part, kind)]
    assert len(games) == len(parts)
    return games
