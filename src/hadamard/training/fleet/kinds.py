"""The computation of a fleet, by its agents' ``fleet_kind`` and where the games are played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
Computation = OnPolicy | Replayed | Hosted


def computation_of(trainers: Sequence[Trainer]) -> Computation:
    """Return the computation of runs of one shape."""
    agents: list[Any] = [trainer.agent for trainer in trainers]
    seeds, train = [trainer.spec.seed for trainer in trainers], trainers[0].spec.train
    kind = agents[0].fleet_kind
    if not isinstance(trainers[0].envs, TensorGames):
        return Hosted(trainers, ON_HOST[kind](agents, seeds, train))
    games = StackedGames([_games(trainer) for trainer in trainers])
    computation = ON_DEVICE[kind](agents, seeds, games, train)
    for trainer, obs in zip(trainers, computation.player.obs, strict=True):
        trainer.pipeline.obs = obs[: games.sizes[0]]
        if trainer.greedy is not None:
            trainer.greedy.obs = obs[games.sizes[0] :]
    return computation


def _games(trainer: Trainer) -> list[TensorGames]:
    """Return a run's games: those of training, then those of the greedy policy."""
    parts = [trainer.envs] if trainer.greedy is None else [trainer.envs, trainer.greedy.envs]
    games = [part for part in parts if isinstance(part, TensorGames)]
    assert len(games) == len(parts)
    return games
