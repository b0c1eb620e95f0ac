"""Environments of any suite, spread over processes.

Every worker holds an equal share of the environments; ``worker_process.py`` is what it runs.
On Linux, workers are forked from a server process that has loaded the large packages once.
Elsewhere, each worker loads them itself.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import select
import signal
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core import plugins
from hadamard.core.types import EnvSpec, Episode, State, Step
from hadamard.envs import worker_process
from hadamard.envs.common import (
    EnvironmentFailure,
    check_actions,
    check_num_envs,
    check_saved,
    copy_to_device,
    environment_seeds,
)
from hadamard.envs.worker_process import STEP, UNEVENTFUL, SharedMemory, message

START_TIMEOUT = 120.0
"""Seconds a worker may take to import its packages and make its environments."""


class WorkerEnvs:
    """A batch of environments in several processes.

    Args:
        name: ``suite/task``.
        seed: Environment i gets the i-th seed that follows from this one, whichever worker holds
            it. A sequence holds one seed per environment.
        num_envs: How many environments; if they cannot be divided evenly, the first workers hold
            one more.
        device: Where observations are put.
        workers: How many processes.
        timeout: Seconds after which a worker that does not answer counts as failed.
        options: The suite's own arguments.
        preload: Packages to load once for all workers that are started later.
        first: Number of the first environment, if they are one of several groups.
        failures: Where the failures of workers are put, by environment, so that the other workers
            go on; by default the first failure ends all and is raised. Environments that have
            failed stand still.
    """

    def __init__(
        self,
        name: str,
        seed: int | Sequence[int],
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        workers: int = 1,
        timeout: float = 60.0,
        options: Mapping[str, Any] | None = None,
        preload: Sequence[str] = (),
        first: int = 0,
        failures: dict[int, EnvironmentFailure] | None = None,
    ) -> None:
        check_num_envs(num_envs)
        if not 1 <= workers <= num_envs:
            raise ValueError(
                f"workers (--train.env-workers) must be in 1..{num_envs}, at most one for each "
                f"environment, got {workers}"
            )
        self.name, self.first = name, first
        self.num_envs = num_envs
        self._failures: dict[int, EnvironmentFailure] | None = None  # until all have begun
        self._failed: set[int] = set()  # workers
        self.device = torch.device(device)
        self.timeout = timeout
        share, remainder = divmod(num_envs, workers)
        bounds = [0]
        for worker in range(workers):
            bounds.append(bounds[-1] + share + (worker < remainder))
        self._parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
        self._step_in_flight = False
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._polls: list[select.poll] = []
        # Called by close(), or else when this object is collected or the interpreter exits.
        self._finalizer = weakref.finalize(self, _kill, self._processes, self._pipes)
        context = _context(preload)
        seeds = environment_seeds(seed, num_envs)
        suite = plugins.name_of("hadamard.envs", name.partition("/")[0])
        plugin = plugins.to_text("hadamard.envs", suite)
        for part in self._parts:
            pipe, worker_pipe = context.Pipe()
            # The server process keeps the environment variables it was started with.
            variables = dict(os.environ)
            numbers = part, first + part.start
            settings = (*numbers, dict(options or {}), variables, plugin)
            arguments = (worker_pipe, name, seeds[part], *settings)
            process = context.Process(target=worker_process.run, args=arguments, daemon=True)
            process.start()
            # If another process held the worker's end, its death would not close the pipe.
            worker_pipe.close()
            self._processes.append(process)
            self._pipes.append(pipe)
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            poll.register(process.sentinel, select.POLLIN)
            self._polls.append(poll)
        description, *_ = self._receive_answers(max(timeout, START_TIMEOUT))
        self.spec: EnvSpec = description[0]
        self.exact: bool = description[1]
        self.splittable: bool = description[2]
        """Whether every value of a state has one entry per environment."""
        memory_folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        # Mapped files stay usable after they are deleted, so nothing is left behind.
        with tempfile.TemporaryDirectory(prefix="hadamard-", dir=memory_folder) as folder:
            self._shared = SharedMemory.map(folder, self.spec, num_envs)
            self._call("attach", [(folder, self.spec, num_envs)] * workers)
        self._failures = failures

    def reset(self) -> Tensor:
        """Start new episodes everywhere."""
        if self._step_in_flight:
            self.receive()
        self._call("reset")
        return copy_to_device(self._shared.obs.numpy(), self.device)

    def send(self, action: Tensor) -> None:
        """Start one step in all processes."""
        if self._step_in_flight:
            raise RuntimeError("send() twice: the step under way was not received")
        actions = check_actions(action, self.num_envs, self.spec)
        self._shared.action.copy_(torch.from_numpy(actions))
        self._send(STEP)
        self._step_in_flight = True

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""
        if not self._step_in_flight:
            raise RuntimeError("receive() without send(): no step was started")
        self._step_in_flight = False
        return self._outcome(self._receive_answers(self.timeout), self._shared.obs)

    def _outcome(self, answers: Iterable[Any], obs: Tensor) -> Step:
        """Return the step that the workers have answered to, and that led to ``obs``."""
        ended: list[int] = []
        episodes: list[Episode] = []
        any_truncated = False
        for answer in answers:
            if answer is not None:
                worker_ended, worker_truncated, worker_episodes = answer
                ended += worker_ended
                any_truncated |= worker_truncated
                episodes += worker_episodes
        shared = self._shared
        index = np.array(ended)
        return Step(
            obs=copy_to_device(obs.numpy(), self.device),
            reward=shared.reward.clone(),
            terminated=shared.terminated.clone(),
            truncated=shared.truncated.clone(),
            final_index=torch.from_numpy(index) if ended else None,
            final_obs=copy_to_device(shared.final_obs.numpy()[index], self.device, index)
            if ended
            else None,
            any_truncated=any_truncated,
            episodes=tuple(episodes),
        )

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def close(self) -> None:
        """Let the workers close their environments, then end them."""
        if not self._finalizer.alive:
            return
        with contextlib.suppress(EnvironmentFailure):
            if self._step_in_flight:
                self.receive()
            self._send(message("close"))
            for process in self._processes:
                process.join(self.timeout)
        self._finalizer()

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first environment."""
        if self._step_in_flight:
            raise RuntimeError("a step is under way: receive() it before rendering")
        is_first = [worker == 0 for worker in range(len(self._parts))]
        picture: NDArray[np.uint8] = self._call("render", is_first)[0]
        return picture

    def state_dict(self) -> State:
        """Return the state: where it is splittable, as a single process would."""
        if self._step_in_flight:
            raise RuntimeError("a step is under way: receive() it before saving the state")
        states = self._call("state")
        if self._failed and self.splittable:
            states = self._without_gaps(states)
        return _join_states(states) if self.splittable else {"workers": states}

    def _without_gaps(self, states: Sequence[State | None]) -> list[State]:
        """Return a state for each worker: in place of one that failed, copies of another's."""
        (whole, *_) = (state for state in states if state is not None)
        sizes = [part.stop - part.start for part in self._parts]
        return [
            state
            or {
                key: np.concatenate([v[:1]] * size) if isinstance(v, np.ndarray) else v[:1] * size
                for key, v in whole.items()
            }
            for state, size in zip(states, sizes, strict=True)
        ]

    def load_state_dict(self, state: State) -> Tensor | None:
        """Load a state; return its observations, or None if the suite cannot restore exactly."""
        if self._step_in_flight:
            self.receive()
        if self.splittable:
            joined = _join_states(state["workers"]) if "workers" in state else state
            for values in joined.values():
                check_saved(len(values), self.num_envs)
            states = [{key: joined[key][part] for key in joined} for part in self._parts]
        elif "workers" not in state or len(state["workers"]) != len(self._parts):
            count = len(state.get("workers", ()))
            raise ValueError(
                f"the saved state has {count} workers, but here there are {len(self._parts)}: "
                f"make the environments with workers={count}"
            )
        else:
            states = state["workers"]
        restored = self._call("load", states)
        if not all(restored):
            return None
        return copy_to_device(self._shared.obs.numpy(), self.device)

    def _call(self, command: str, arguments: Sequence[Any] | None = None) -> list[Any]:
        """Send every worker a command, each with its own argument, and wait for the answers."""
        if arguments is None:
            self._send(message(command))
        else:
            self._send(*(message(command, argument) for argument in arguments))
        return self._receive_answers(self.timeout)

    def _send(self, *messages: bytes, to: Sequence[int] | None = None) -> None:
        """Send one message to all workers or to some, or each worker its own."""
        if not self._finalizer.alive:
            raise RuntimeError("these environments are closed")
        for worker in range(len(self._pipes)) if to is None else to:
            if worker in self._failed:
                continue
            try:
                self._pipes[worker].send_bytes(messages[worker if len(messages) > 1 else 0])
            except OSError:
                try:
                    self._read_answer(worker)  # raises the cause of its death
                except EnvironmentFailure as failure:
                    self._set_aside(worker, failure)

    def _receive_answers(self, timeout: float) -> list[Any]:
        """Wait for one answer of every worker; of one that has failed it is None.

        They are waited for in order: the others finish while the first still plays, so this
        process wakes up less often than if it waited for any of them.
        """
        deadline = time.monotonic() + timeout
        answers = []
        for worker, poll in enumerate(self._polls):
            answer = None
            if worker not in self._failed:
                seconds_left = max(0.0, deadline - time.monotonic())
                try:
                    if not poll.poll(1e3 * seconds_left):
                        raise self._failure(worker, f"did not answer within {timeout:g} s")
                    answer = self._read_answer(worker)
                except EnvironmentFailure as failure:
                    self._set_aside(worker, failure)
            answers.append(answer)
        return answers

    def _set_aside(self, worker: int, failure: EnvironmentFailure) -> None:
        """End a worker that failed, or all of them where failures are not collected."""
        if self._failures is None:
            self._finalizer()
            raise failure
        self._failed.add(worker)
        self._processes[worker].kill()
        part, shared = self._parts[worker], self._shared
        for tensor in (shared.reward, shared.terminated, shared.truncated):
            tensor[part] = 0
        self._failures.update(dict.fromkeys(range(part.start, part.stop), failure))

    def _read_answer(self, worker: int) -> Any:
        """Return a worker's answer, or raise its error or how it died."""
        try:
            received = self._pipes[worker].recv_bytes()
        except (EOFError, OSError):
            process = self._processes[worker]
            process.join(self.timeout)
            raise self._failure(worker, f"died with exit code {process.exitcode}") from None
        if received == UNEVENTFUL:
            return None
        error, answer = pickle.loads(received)
        if isinstance(error, EnvironmentFailure):
            raise error
        if error is not None:
            raise self._failure(worker, f"failed:\n{error}")
        return answer

    def _failure(self, worker: int, problem: str) -> EnvironmentFailure:
        """Return an error that names the worker that failed."""
        part = self._parts[worker]
        return EnvironmentFailure(
            f"worker {worker} (of {len(self._parts)}; environments "
            f"{self.first + part.start} to {self.first + part.stop - 1} of {self.name}) {problem}"
        )


def _join_states(states: Sequence[State]) -> State:
    """Join states in which every value has one entry per environment."""
    return {
        key: np.concatenate(parts)
        if isinstance(parts[0], np.ndarray)
        else [entry for part in parts for entry in part]
        for key in states[0]
        if (parts := [state[key] for state in states])
    }


def _context(preload: Sequence[str]) -> Any:
    """Return the multiprocessing context that starts the workers."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Takes effect only if the server is not running yet. Only third-party packages are loaded: the
    # server may not find this package, and importing the user's script could do anything.
    context.set_forkserver_preload(["numpy", "torch", *preload])
    # If the server ended, its workers would end too, so like them it must ignore signals: a child
    # process inherits the signals that are blocked while it is started.
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    )
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def _kill(processes: list[BaseProcess], pipes: list[Connection]) -> None:
    for pipe in pipes:
        pipe.close()
    for process in processes:
        # Not terminate(): a stopped process would never see it.
        process.kill()
    for process in processes:
        process.join()
        process.close()
