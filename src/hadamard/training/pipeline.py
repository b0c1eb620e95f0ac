"""The pipeline between agent and environments: act, send, receive, observe.

Environments play between ``send`` and ``receive``: in worker processes, or in this process while
the GPU works. The pipeline uses that time in three ways, none of which changes a result.

An agent that learns from the newest step must observe it before it acts again::

    this process   act 1 | ............ | receive 1, observe 1 (learn) | act 2 | ...
    environments         |--- play 1 ---|                                      |--- play 2 ---

A step that is only stored is observed while the environments play the next one. In the same time,
an agent that ``LearnsAhead`` makes the updates that do not need the step in flight::

    this process   act 1 | ............ | receive 1, act 2 | observe 1, learn ahead | receive 2, ...
    environments         |--- play 1 ---|                  |-------- play 2 --------|

With several groups of environments, one group is acted on while the others play::

    this process   act A1, act B1 | receive A1, act A2 | receive B1, act B2 | observe 1 | ...
    group A             |----- play A1 -----|          |---------- play A2 -----------------
    group B                       |------- play B1 --------|        |-------- play B2 ------
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from hadamard.core.types import Episode, Extra, Step
from hadamard.envs.groups import join_steps
from hadamard.training.clock import Clock
from hadamard.training.setup import Setup


class Transition(NamedTuple):
    """The arguments of ``Agent.observe``."""

    obs: Tensor
    action: Tensor
    extra: Extra
    step: Step


class Pipeline:
    """Moves actions to the environments of a run, and transitions to its agent."""

    def __init__(self, setup: Setup, clock: Clock) -> None:
        self.agent, self.envs, self.groups = setup.agent, setup.envs, setup.groups
        self.greedy, self.acts_with_greedy = setup.greedy, setup.acts_with_greedy
        self.clock = clock
        self.obs = torch.empty(0)
        """The observations to act on next."""
        self._in_flight: list[tuple[Tensor, Extra]] = []  # actions sent, one entry per group
        self._unobserved: Transition | None = None
        self._greedy_episodes: list[Episode] = []

    @property
    def settled(self) -> bool:
        """Whether no step is in flight and none is left to observe."""
        return self._unobserved is None and not self._in_flight

    def reset(self) -> None:
        """Start new episodes everywhere."""
        self.obs = self.envs.reset()
        self.agent.begin(self.obs)

    def act(self, step: int) -> None:
        """Choose actions at a step and send them, unless ``receive`` has done so."""
        if self._in_flight:
            return
        sizes = [group.num_envs for group in self.groups]
        for index, obs in enumerate(self.obs.split(sizes)):
            self._act_in_group(index, obs, step + sum(sizes[:index]))

    def receive(self, step: int, *, act: bool) -> None:
        """Wait for the step in flight.

        With ``act``, each of several groups gets its next actions while the others still play.
        """
        act = act and len(self.groups) > 1
        in_flight, self._in_flight = self._in_flight, []
        steps: list[Step] = []
        for index, group in enumerate(self.groups):
            with self.clock("stepping"):
                steps.append(group.receive())
            if self.acts_with_greedy is not None and group is self.groups[-1]:
                self._receive_greedy()  # its next actions are chosen with this group's
            if act:
                acted_on = sum(len(s.reward) for s in steps[:-1])
                self._act_in_group(index, steps[-1].obs, step + acted_on)
        actions, extras = zip(*in_flight, strict=True)
        extra = {name: _concatenated([e[name] for e in extras]) for name in extras[0]}
        outcome = join_steps(steps)
        self._unobserved = Transition(self.obs, _concatenated(actions), extra, outcome)
        self.obs = outcome.obs

    def take_unobserved(self) -> Transition | None:
        """Hand over the newest transition, once."""
        transition, self._unobserved = self._unobserved, None
        return transition

    def send_greedy(self) -> None:
        """Start a step of the greedy games, unless ``act`` starts them."""
        if self.greedy is not None and self.acts_with_greedy is None:
            with self.clock("greedy play"):
                self.greedy.send()

    def take_greedy_episodes(self) -> list[Episode]:
        """Hand over the greedy games that ended, once; waits for a step in flight."""
        if self.acts_with_greedy is None:
            self._receive_greedy()
        episodes, self._greedy_episodes = self._greedy_episodes, []
        return episodes

    def _act_in_group(self, index: int, obs: Tensor, step: int) -> None:
        greedy_action = None
        with self.clock("acting"):
            last = index == len(self.groups) - 1
            if self.acts_with_greedy is None or self.greedy is None or not last:
                action, extra = self.agent.act(obs, step)
            else:
                sizes = [len(obs), self.greedy.envs.num_envs]
                obs = torch.cat([obs, self.greedy.obs])
                actions, extra = self.acts_with_greedy.act_with_greedy(obs, step, sizes[1])
                action, greedy_action = actions.split(sizes)
            self._in_flight.append((action, extra))
        with self.clock("stepping"):
            self.groups[index].send(action)
        if greedy_action is not None and self.greedy is not None:
            with self.clock("greedy play"):
                self.greedy.send(greedy_action)

    def _receive_greedy(self) -> None:
        if self.greedy is not None:
            with self.clock("greedy play"):
                self._greedy_episodes += self.greedy.receive()


def _concatenated(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors))
