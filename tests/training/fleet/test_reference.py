"""A fleet learns what the algorithms' own code learns from the same games and random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hadamard import envs
from hadamard.core.config import overridden
from hadamard.core.counter import permutations, uniforms
from hadamard.core.random import child_seed
from hadamard.core.types import Step
from hadamard.envs import minatar
from hadamard.training.fleet.fleet import Fleet
from hadamard.training.setup import make_agent
from tests.support.fleets import spec_of
from tests.support.trainers import trainer_of

CHOICE, SAMPLE, ORDER, TRAINING = 1, 2, 5, 10
"""Purposes of a run's seed."""
BLOCKS = {"pqn": 6, "ppo": 4, "dqn": 4}
LIMITS = {"pqn": 9, "ppo": 17, "dqn": 7}
"""Steps of an episode: short, so that some are truncated, and longer than a rollout."""
CPU = torch.device("cpu")


def settings(algorithm: str, folder: Path, seed: int, form: str) -> Any:
    spec = spec_of(algorithm, folder, seed, {"train.fleet": form})
    # A ring that comes round.
    return overridden(spec, {"algo.replay_capacity": 300}) if algorithm == "dqn" else spec


class Reference:
    """One run: games, and an agent that acts, observes and learns by its own code."""

    def __init__(self, algorithm: str, folder: Path, seed: int) -> None:
        self.seed = seed
        spec = settings(algorithm, folder, seed, "off")
        count = spec.algo.num_envs
        self.games = envs.make_on_device(spec.env, child_seed(seed, TRAINING), count, CPU)
        self.agent: Any = make_agent(algorithm, spec, self.games, CPU)
        self.config = self.agent.config
        self.obs = self.games.reset()
        self.agent.begin(self.obs)
        self.transitions: list[tuple[Tensor, ...]] = []
        self.truncations = 0
        if algorithm == "dqn":
            self.agent._update = self.update_from_list
        else:
            self.agent.rollout.minibatches = self.minibatches

    def uniforms(self, purpose: int, number: Tensor, rows: int, lanes: int) -> Tensor:
        return uniforms(torch.tensor([child_seed(self.seed, purpose)]), number, rows, lanes)[0]

    def step(self) -> None:
        agent, config = self.agent, self.config
        step_number = agent.counters["steps"]
        draws = self.uniforms(CHOICE, self.games.steps, config.num_envs, agent.choice_draws)
        choice = agent.choose(self.obs, draws, torch.tensor(agent.exploration(step_number)))
        greedy, action = choice.pop("greedy"), choice.pop("action")
        assert greedy.shape == action.shape
        step = self.games.step(action)
        self.truncations += int(step.truncated.sum())
        self.remember(action, step)
        agent.observe(self.obs, action, choice, step)
        self.obs = step.obs

    def remember(self, action: Tensor, step: Step) -> None:
        values = self.obs, action, step.reward, step.terminated, step.next_obs
        self.transitions += zip(*values, strict=True)

    def update_from_list(self, _: Any) -> Any:
        """DQN's update, from the newest transitions."""
        agent, config = self.agent, self.config
        number = torch.tensor([agent.counters["updates"]])
        draws = self.uniforms(SAMPLE, number, config.batch_size, 2).double()
        count, capacity = len(self.transitions), config.replay_capacity
        filled = min(count, capacity)
        slots = ((draws[:, 0] + draws[:, 1] * 2.0**-24) * filled).long().tolist()
        # The newest transition of those whose number is the slot's, counted around the ring.
        indices = [slot + (count - 1 - slot) // capacity * capacity for slot in slots]
        drawn = [self.transitions[index] for index in indices]
        batch = [torch.stack(values) for values in zip(*drawn, strict=True)]
        metrics = agent.learn(*batch)
        agent.counters["updates"] += 1
        return metrics

    def minibatches(
        self, names: tuple[str, ...], epochs: int, minibatches: int, _: torch.Generator
    ) -> Iterator[list[Tensor]]:
        """A rollout in the order that a fleet draws."""
        data = {name: self.agent.rollout.data[name].flatten(0, 1) for name in names}
        first = self.agent.counters["updates"] // minibatches
        for epoch in range(epochs):
            seed = torch.tensor([child_seed(self.seed, ORDER)])
            size = self.config.rollout_steps * self.config.num_envs
            (order,) = permutations(seed, torch.tensor([first + epoch]), size)
            for indices in order.view(minibatches, -1):
                yield [data[name][indices] for name in names]


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "pqn"])
def test_a_fleet_learns_what_each_agent_learns_by_its_own_code(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minatar, "MAX_STEPS", LIMITS[algorithm])
    with ExitStack() as stack:
        trainers = []
        for seed in range(2):
            spec = settings(algorithm, tmp_path / str(seed), seed, "on")
            trainers.append(stack.enter_context(trainer_of(algorithm, spec, tmp_path / str(seed))))
        computation = Fleet(trainers).computation
        references = [Reference(algorithm, tmp_path / f"own{seed}", seed) for seed in range(2)]
        for trainer, reference in zip(trainers, references, strict=True):
            assert torch.equal(trainer.agent.weights.vector, reference.agent.weights.vector)
            assert torch.equal(trainer.pipeline.obs, reference.obs)
        before = computation.stack.matrix.detach().clone()
        step = updates = 0
        for _ in range(BLOCKS[algorithm]):
            _, count = computation.queue_block(step, updates)
            step, updates = step + computation.block, updates + count
        for reference in references:
            while reference.agent.counters["steps"] < step:
                reference.step()
            assert reference.agent.counters["updates"] == updates > 0
            assert reference.truncations
        for index, (trainer, reference) in enumerate(zip(trainers, references, strict=True)):
            assert torch.equal(trainer.pipeline.obs, reference.obs)
            ours, theirs = trainer.agent.weights.vector, reference.agent.weights.vector
            assert (theirs - before[index]).abs().max() > 1e-3
            assert (ours - theirs).abs().max() < 2e-6
            if algorithm == "dqn":
                for name, weight in reference.agent.target.state_dict().items():
                    assert (trainer.agent.target.state_dict()[name] - weight).abs().max() < 2e-6
