"""Worker processes that play the games of several runs, which need not wait for each other.

A game that begins anew takes twenty times as long as another step. If all games were awaited in
every step, one of many would nearly always be late.
"""

from __future__ import annotations

import select
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Step
from hadamard.envs.common import EnvironmentFailure, check_actions
from hadamard.envs.worker_process import STEP
from hadamard.envs.workers import WorkerEnvs

GRACE = 0.0012
"""Seconds that workers have to answer together with the others, after the last step was sent."""


class FleetWorkers(WorkerEnvs):
    """A batch of environments in several processes, of which some may be stepped alone.

    Environments of one process are always stepped together.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._playing: set[int] = set()  # workers that owe an answer to a step
        self._sent = 0.0  # when
        self._obs = self._shared.obs.clone()
        """Of every game after its last step, in contrast to what the workers are writing."""
        self._first_games = [part.start for part in self._parts]
        self._any = select.poll()
        self._worker_of: dict[int, int] = {}
        for worker, (pipe, process) in enumerate(zip(self._pipes, self._processes, strict=True)):
            for number in (pipe.fileno(), process.sentinel):
                self._any.register(number, select.POLLIN)
                self._worker_of[number] = worker

    def send(self, action: Tensor, games: NDArray[np.bool_] | None = None) -> None:
        """Start a step of some of the games, by default of all."""
        if games is None:
            super().send(action)
            self._playing = set(range(len(self._parts)))
            return
        if not self._playing:
            self._obs = self._shared.obs.clone()
        workers = np.flatnonzero(games[self._first_games]).tolist()
        if not self._playing.isdisjoint(workers):
            raise RuntimeError("send() twice: the step under way was not received")
        actions = torch.from_numpy(check_actions(action, self.num_envs, self.spec))
        chosen = torch.from_numpy(games)
        self._shared.action[chosen] = actions[chosen]
        self._send(STEP, to=workers)
        self._playing.update(workers)
        self._step_in_flight, self._sent = True, time.monotonic()

    def receive(self, *, some: bool = False) -> Step:
        """Wait for the steps under way, or with ``some`` for those that are not late.

        Then `Step.present` says which. If all are late, the next one is awaited.
        """
        if not some and len(self._playing) == len(self._parts):
            self._playing.clear()
            return super().receive()
        if not self._playing:
            raise RuntimeError("receive() without send(): no step was started")
        answers = self._punctual_answers() if some else {}
        while self._playing and not (some and answers):
            answers |= self._next_answers()
        self._step_in_flight = bool(self._playing)
        present = np.zeros(self.num_envs, dtype=bool)
        for worker in answers:
            present[self._parts[worker]] = True
        absent = torch.from_numpy(~present)
        self._obs[~absent] = self._shared.obs[~absent]
        step = self._outcome(answers.values(), self._obs)
        for values in (step.reward, step.terminated, step.truncated):
            values[absent] = 0
        return replace(step, present=present, any_truncated=bool(step.truncated.any()))

    def _punctual_answers(self) -> dict[int, Any]:
        """Return the answers of workers that are not late; they are awaited in order."""
        answers, deadline = {}, self._sent + GRACE
        for worker in sorted(self._playing):
            seconds_left = max(0.0, deadline - time.monotonic())
            if worker in self._failed or self._polls[worker].poll(1e3 * seconds_left):
                answers[worker] = self._answer(worker)
        self._playing.difference_update(answers)
        return answers

    def _next_answers(self) -> dict[int, Any]:
        """Wait until a worker answers; return all answers there are."""
        answers: dict[int, Any] = {}
        events = self._any.poll(1e3 * self.timeout)
        for number, _ in events:
            worker = self._worker_of.get(number)  # none, if it has just been set aside
            if worker in self._playing and worker not in answers:
                answers[worker] = self._answer(worker)
        for worker in [] if events else self._playing:
            problem = f"did not answer within {self.timeout:g} s"
            self._set_aside(worker, self._failure(worker, problem))
            answers[worker] = None
        self._playing.difference_update(answers)
        return answers

    def _answer(self, worker: int) -> Any:
        """Read a worker's answer; of one that has failed it is None."""
        if worker in self._failed:
            return None
        try:
            return self._read_answer(worker)
        except EnvironmentFailure as failure:
            self._set_aside(worker, failure)
        return None

    def _set_aside(self, worker: int, failure: EnvironmentFailure) -> None:
        super()._set_aside(worker, failure)
        for number in [number for number, owner in self._worker_of.items() if owner == worker]:
            self._any.unregister(number)
            del self._worker_of[number]
