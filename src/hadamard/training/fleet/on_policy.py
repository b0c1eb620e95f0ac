"""Rollouts and updates of many on-policy runs at once, all on one device.

A block is one rollout of every run and the updates that learn from it. Playing and learning are two
functions without a host in between: on a GPU each is compiled, captured as a CUDA graph and
replayed, once for every step and once for every update::

    GPU    play x steps | targets | learn x updates        | play x steps | ...
    host   queue both   |         | episodes of this block | queue both   | ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hadamard.compute.jit import compiler, jit
from hadamard.compute.stack import Stack, StackedAdam, clipped
from hadamard.core.config import TrainSpec
from hadamard.core.counter import permutations, uniforms
from hadamard.core.random import child_seed
from hadamard.core.types import Metrics
from hadamard.envs.tensor_games import StackedGames

_CHOICE, _ORDER = 1, 5
"""Purposes of random numbers, see ``child_seed``."""


class OnPolicy:
    """The computation of a fleet of on-policy runs."""

    def __init__(
        self,
        agents: Sequence[Any],
        seeds: Sequence[int],
        games: StackedGames,
        greedy: StackedGames | None,
        device: torch.device,
        train: TrainSpec,
    ) -> None:
        self.agents, self.games, self.greedy, self.device = list(agents), games, greedy, device
        self.config = config = agents[0].config
        self.count, self.steps, self.num_envs = len(agents), config.rollout_steps, games.num_envs
        self.block = self.steps * self.num_envs
        """Steps of a run in a block."""
        self.updates = config.epochs * config.minibatches
        self.batch_size = self.block // config.minibatches
        self.stack = Stack(agents)
        self.optimizer = StackedAdam(self.stack, agents)
        self._choose = self.stack.over_agents("choose")
        self._targets = self.stack.over_agents("targets")
        self._gradient = self.stack.gradient("_loss")
        self._choice_seed, self._order_seed = (
            torch.tensor([child_seed(seed, purpose) for seed in seeds], device=device)
            for purpose in (_CHOICE, _ORDER)
        )
        self._allocate()
        compiled = compiler(train.compile, device)
        changed = [*games.tensors, *(greedy.tensors if greedy is not None else [])]
        changed += [self.obs, self.final_obs, self.position]
        self._play_step = jit(compiled(self._play), device, changed, train.capture)
        self._finish = jit(self._finish_rollout, device, [], train.capture, reuse_output=True)
        changed = [*self.optimizer.tensors, self.position]
        self._update = jit(
            compiled(self._learn), device, changed, train.capture, reuse_output=True
        )

    def _allocate(self) -> None:
        """Make all tensors that stay at their place in memory."""
        device, count = self.device, self.count
        self._members = torch.arange(count, device=device).unsqueeze(1)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        """Of the step in the rollout, then of the update."""
        self.exploration = torch.zeros(count, self.steps, device=device)
        self.rates = torch.zeros(count, self.updates, dtype=torch.float64, device=device)
        self.obs = self._all_observations()
        self.final_obs = self.obs[:, : self.num_envs].clone()
        """The last observations of truncated episodes; an episode is longer than a rollout."""
        places = torch.zeros(count, self.num_envs, self.agents[0].choice_draws, device=device)
        with torch.no_grad():
            choice = self._choose(self.final_obs, places, self.exploration[:, 0])
        flag = torch.zeros(count, self.num_envs, dtype=torch.bool, device=device)
        kept = {name: value for name, value in choice.items() if name != "greedy"}
        kept |= {"obs": self.final_obs, "reward": flag.float()}
        kept |= {"terminated": flag, "truncated": flag}
        self.rollout = {name: self._over_time(value) for name, value in kept.items()}
        """Each (runs, steps, games, ...)."""
        everyone = torch.zeros(count, self.obs.shape[1], device=device)
        self.ended = self._over_time(everyone.bool())
        self.scores, self.lengths = (
            self._over_time(everyone),
            self._over_time(everyone.to(torch.int32)),
        )
        self.order = torch.zeros(
            count, self.updates, self.batch_size, dtype=torch.int64, device=device
        )
        pinned = device.type == "cuda"
        self._outcomes = [
            torch.empty(t.shape, dtype=t.dtype, pin_memory=pinned)
            for t in (self.ended, self.scores, self.lengths)
        ]

    def _over_time(self, value: Tensor) -> Tensor:
        """Return zeros for a value of every step of the rollout."""
        return value.new_zeros(len(value), self.steps, *value.shape[1:])

    def _all_observations(self) -> Tensor:
        obs = [games.observation() for games in (self.games, self.greedy) if games is not None]
        return torch.cat(obs, 1)

    def run_block(self, steps: Sequence[int], updates: Sequence[int]) -> None:
        """Queue a rollout of every run and its updates; the runs are at these steps."""
        agents, device = self.agents, self.device
        exploration = [
            [agent.exploration(step + t * self.num_envs) for t in range(self.steps)]
            for agent, step in zip(agents, steps, strict=True)
        ]
        rates = [
            [agent.learning_rate(made + update) for update in range(self.updates)]
            for agent, made in zip(agents, updates, strict=True)
        ]
        self.exploration.copy_(torch.tensor(exploration), non_blocking=True)
        self.rates.copy_(torch.tensor(rates, dtype=torch.float64), non_blocking=True)
        self.position.zero_()
        for _ in range(self.steps):
            self._play_step()
        self.rollout |= self._finish()
        for kept, tensor in zip(
            self._outcomes, (self.ended, self.scores, self.lengths), strict=True
        ):
            kept.copy_(tensor, non_blocking=True)
        self._played = torch.cuda.Event() if device.type == "cuda" else None
        if self._played is not None:
            self._played.record()
        self._shuffle(updates)
        self.position.zero_()
        for update in range(1, self.updates + 1):
            output = self._update()
            self._apply_remedies(output["obs"], updates, update)
        self.metrics: Metrics = {
            name: value.clone() for name, value in output.items() if name != "obs"
        }

    def outcomes(self) -> tuple[Any, Any, Any]:
        """Wait for the rollout; return which games ended in it, their scores and lengths."""
        if self._played is not None:
            self._played.synchronize()
        ended, scores, lengths = (tensor.numpy() for tensor in self._outcomes)
        return ended, scores, lengths

    def timed(self, timer: Callable[[Callable[[], object], int], float]) -> dict[str, float]:
        """Return the seconds of playing and of learning in a block, for measurements only."""
        self.position.zero_()
        playing = timer(self._play_step, self.steps) * self.steps
        self.position.zero_()
        learning = timer(self._update, self.updates) * self.updates
        return {"playing": playing, "learning": learning}

    @torch.no_grad()
    def _play(self) -> Metrics:
        """Take one step in all games, and store it."""
        obs, games = self.obs, self.games
        exploration = self.exploration.index_select(1, self.position).squeeze(1)
        draws = uniforms(
            self._choice_seed, games.steps, self.num_envs, self.agents[0].choice_draws
        )
        if self.greedy is not None:  # its rows draw nothing
            draws = torch.cat([draws, draws.new_zeros(*self._greedy_shape, draws.shape[2])], 1)
        choice = self._choose(obs, draws, exploration)
        best = choice.pop("greedy")[:, self.num_envs :]
        choice = {name: value[:, : self.num_envs] for name, value in choice.items()}
        own_obs = obs[:, : self.num_envs].clone()
        next_obs, outcome = games.step(choice["action"])
        self.final_obs.copy_(
            torch.where(outcome.truncated[..., None, None, None], outcome.obs, self.final_obs)
        )
        ended = outcome.terminated | outcome.truncated
        score, length = outcome.score, outcome.length
        if self.greedy is not None:
            greedy_obs, greedy = self.greedy.step(best)
            next_obs = torch.cat([next_obs, greedy_obs], 1)
            ended = torch.cat([ended, greedy.terminated | greedy.truncated], 1)
            score = torch.cat([score, greedy.score], 1)
            length = torch.cat([length, greedy.length], 1)
        self._store(self.rollout, obs=own_obs, **choice)
        self._store(
            self.rollout,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
        )
        self._store(
            {"ended": self.ended, "scores": self.scores, "lengths": self.lengths},
            ended=ended,
            scores=score,
            lengths=length.to(torch.int32),
        )
        self.obs.copy_(next_obs)
        self.position += 1
        return {}

    @property
    def _greedy_shape(self) -> tuple[int, int]:
        return self.count, self.obs.shape[1] - self.num_envs

    def _store(self, buffers: dict[str, Tensor], **values: Tensor) -> None:
        for name, value in values.items():
            buffers[name].index_copy_(1, self.position, value.unsqueeze(1))

    @torch.no_grad()
    def _finish_rollout(self) -> Metrics:
        """Compute what the loss compares with."""
        draws = self.rates.new_zeros(
            self.count, self.num_envs, self.agents[0].choice_draws, dtype=torch.float32
        )
        exploration = self.exploration[:, 0]
        last, final = (
            self._choose(obs, draws, exploration)["value"]
            for obs in (self.obs[:, : self.num_envs], self.final_obs)
        )
        names = ("reward", "terminated", "truncated", "value")
        data = {name: self.rollout[name] for name in names}
        targets: Metrics = self._targets(data, last, final)
        return targets

    def _shuffle(self, updates: Sequence[int]) -> None:
        """Draw the order of the transitions for every pass over the rollout."""
        made = torch.tensor(updates, device=self.device)
        epochs = self.config.epochs
        for epoch in range(epochs):
            order = permutations(self._order_seed, made * epochs + epoch, self.block)
            parts = order.unflatten(1, (self.config.minibatches, self.batch_size))
            first = epoch * self.config.minibatches
            self.order[:, first : first + self.config.minibatches].copy_(parts)

    def _learn(self) -> Metrics:
        """Make one update of every run."""
        index = self.order.index_select(1, self.position).squeeze(1)
        rates = self.rates.index_select(1, self.position).squeeze(1)
        names = self.agents[0].learns_from
        batch = [self.rollout[name].flatten(1, 2)[self._members, index] for name in names]
        gradient, loss, metrics = self._gradient(*batch)
        with torch.no_grad():
            gradient, norm = clipped(gradient, self.config.max_grad_norm)
            self.optimizer.step(gradient, rates)
            self.position += 1
        named = metrics if isinstance(metrics, dict) else {"value": metrics}
        return {"loss": loss, **named, "gradient_norm": norm, "obs": batch[0]}

    def _apply_remedies(self, obs: Tensor, updates: Sequence[int], update: int) -> None:
        for index, agent in enumerate(self.agents):
            if agent.after_update is not None:
                agent.after_update(updates[index] + update, obs[index])
