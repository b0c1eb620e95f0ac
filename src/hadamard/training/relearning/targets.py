"""What networks relearn: observations, and the numbers to predict from them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hadamard import envs
from hadamard.compute.stack import StackedModules
from hadamard.core.random import child_seed
from hadamard.core.types import Envs, EnvSpec

RANDOM_OUTPUTS = 4
"""Random targets of each observation."""
_SEED = 30
"""Of all random numbers: the same for every network, so that they compare."""
_GAMES = 16
"""Games that a network plays side by side."""
_WARM_UP = 64
"""Steps before observations are kept: the beginnings of games are alike."""
_APART = 2
"""Steps between observations that are kept."""
_RANDOM_SHARE = 0.05
"""Share of actions that are random."""
_FREQUENCY = 10.0
"""What the projections of random targets are multiplied with: many periods of the sine."""
_DISCOUNT = 0.9
"""Of later rewards, in the returns of another game."""
_TAIL = 32
"""Steps after the last kept observation, whose rewards still count to a return."""


class Player:
    """A network's outputs, for many at once."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def scores(self, obs: Tensor) -> Tensor:
        """Return a number for each action."""
        outputs = self.network(obs)
        scores: Tensor = outputs if isinstance(outputs, Tensor) else outputs[0]
        return scores


@torch.no_grad()
def own_observations(
    networks: Sequence[nn.Module], env: str, count: int, device: torch.device
) -> Tensor:
    """Return observations of each network's own play, (networks, count, ...).

    It plays greedily but for one random action in 20, in games that begin alike for all networks.
    """
    seed = child_seed(_SEED, 0)
    games = _make(env, seed, len(networks) * _GAMES, device)
    generator = torch.Generator(device).manual_seed(seed)
    scores = StackedModules([Player(network) for network in networks], ["network"]).over_agents(
        "scores"
    )
    kept: list[Tensor] = []
    try:
        obs = games.reset().to(device)
        for step in range(_WARM_UP + _APART * -(-count // _GAMES)):
            by_network = obs.unflatten(0, (len(networks), _GAMES))
            if step >= _WARM_UP and step % _APART == 0:
                kept.append(by_network.clone())
            greedy = scores(by_network).argmax(2).flatten()
            action = _with_random_actions(greedy, games.spec.num_actions, generator)
            obs = games.step(action.cpu()).obs.to(device)
    finally:
        games.close()
    return torch.stack(kept, 2).flatten(1, 2)[:, :count]


def random_targets(obs: Tensor, scale: float) -> Tensor:
    """Return targets that are a fixed random function of the observation, (networks, count, 4).

    The sine of a random projection that is many periods long: equal observations have equal
    targets, and those of others are as good as independent.
    """
    flat = obs.flatten(2).float() * scale
    generator = torch.Generator().manual_seed(child_seed(_SEED, 1))
    projection = torch.randn(flat.shape[2], RANDOM_OUTPUTS, generator=generator).to(obs.device)
    return torch.sin(_FREQUENCY * flat @ projection)


def other_task(env: str, spec: EnvSpec, device: torch.device) -> str | None:
    """Return the first other task of the suite whose observations fit; None without any.

    They fit if they have as many channels at most and are of the same size otherwise.
    """
    suite, _, own = env.partition("/")
    for task in sorted(envs.tasks(suite)) if envs.plays_on_device(env) else ():
        if task != own and _fits(_spec_of(f"{suite}/{task}", device), spec):
            return f"{suite}/{task}"
    return None


@torch.no_grad()
def returns_of(env: str, spec: EnvSpec, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return observations of random play and their standardized discounted returns.

    Observations (count, ...) are padded with empty channels to those of ``spec``; returns are
    (count, 1).
    """
    seed = child_seed(_SEED, 2)
    games = _make(env, seed, _GAMES, device)
    generator = torch.Generator(device).manual_seed(seed)
    frames, rewards, ends = [], [], []
    steps = _APART * -(-count // _GAMES)
    try:
        obs = games.reset().to(device)
        first_action = torch.zeros(_GAMES, dtype=torch.int64, device=device)
        for _ in range(_WARM_UP + steps + _TAIL):
            frames.append(obs.clone())
            action = _with_random_actions(
                first_action, games.spec.num_actions, generator, share=1.0
            )
            outcome = games.step(action.cpu())
            obs = outcome.obs.to(device)
            rewards.append(outcome.reward)
            ends.append(outcome.terminated | outcome.truncated)
    finally:
        games.close()
    returns = discounted(torch.stack(rewards), torch.stack(ends)).to(device)
    kept = range(_WARM_UP, _WARM_UP + steps, _APART)
    chosen = torch.stack([returns[step] for step in kept]).flatten()[:count]
    chosen = (chosen - chosen.mean()) / chosen.std().clamp_min(1e-6)
    padded = _padded(torch.stack([frames[step] for step in kept]).flatten(0, 1)[:count], spec)
    return padded, chosen.unsqueeze(1)


def discounted(rewards: Tensor, ends: Tensor) -> Tensor:
    """Return the sums of later rewards up to the end of the game, each (steps, games).

    Examples:
        >>> rewards = torch.tensor([[0.0], [1.0], [1.0]])
        >>> discounted(rewards, torch.tensor([[False], [True], [False]])).squeeze().tolist()
        [0.8999999761581421, 1.0, 1.0]
    """
    returns = torch.empty_like(rewards)
    later = torch.zeros_like(rewards[0])
    for step in reversed(range(len(rewards))):
        later = rewards[step] + _DISCOUNT * torch.where(ends[step], 0.0, later)
        returns[step] = later
    return returns


def _make(env: str, seed: int, count: int, device: torch.device) -> Envs:
    if envs.plays_on_device(env):
        return envs.make_on_device(env, seed, count, device)
    return envs.make(env, seed, count, device)


def _spec_of(env: str, device: torch.device) -> EnvSpec:
    games = _make(env, 0, 1, device)
    games.close()
    return games.spec


def _fits(other: EnvSpec, own: EnvSpec) -> bool:
    same_size = other.obs_shape[1:] == own.obs_shape[1:] and other.obs_dtype == own.obs_dtype
    return same_size and other.obs_shape[0] <= own.obs_shape[0] and not other.continuous


def _padded(obs: Tensor, spec: EnvSpec) -> Tensor:
    missing = spec.obs_shape[0] - obs.shape[1]
    empty = obs.new_zeros(len(obs), missing, *obs.shape[2:])
    assert math.prod(spec.obs_shape[1:]) == math.prod(obs.shape[2:])
    return torch.cat([obs, empty], 1)


def _with_random_actions(
    action: Tensor, actions: int, generator: torch.Generator, share: float = _RANDOM_SHARE
) -> Tensor:
    """Replace a share of actions by random ones."""
    chance = torch.rand(action.shape, generator=generator, device=action.device)
    random = torch.randint(actions, action.shape, generator=generator, device=action.device)
    return torch.where(chance < share, random, action)
