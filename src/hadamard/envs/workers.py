"""Environments of any suite, spread over processes.

Every process holds an equal share of the environments, made by the suite as usual. Observations,
rewards, ends and actions are in memory that all processes share; the pipes carry only commands,
finished episodes and saved states.

Where the system has it, workers are forked from a server process that has loaded the large
packages once. Otherwise each loads them for itself.
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
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import EnvSpec, Episode, State, Step
from hadamard.envs.common import check_actions, check_num_envs, check_saved, copied, spread

START_TIMEOUT = 120.0
"""Seconds a worker may take to import its packages and make its environments."""

_STEP = b"step"
_UNEVENTFUL = b"ok"
"""Answer to a step in which no episode ended."""


class EnvironmentFailure(RuntimeError):
    """A process that held environments died, failed or stopped answering."""


@dataclass(frozen=True)
class _Shared:
    """The memory that all processes write; every tensor leads with the environments."""

    obs: Tensor
    final_obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    action: Tensor

    @classmethod
    def map(cls, folder: str, spec: EnvSpec, num_envs: int) -> _Shared:
        """Map the files of a folder, creating those that are not there."""

        def tensor(name: str, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> Tensor:
            size = torch.Size((num_envs, *shape))
            flat = torch.from_file(
                str(Path(folder, name)), shared=True, size=size.numel(), dtype=dtype
            )
            return flat.view(size)

        return cls(
            obs=tensor("obs", spec.obs_dtype, spec.obs_shape),
            final_obs=tensor("final_obs", spec.obs_dtype, spec.obs_shape),
            reward=tensor("reward", torch.float32),
            terminated=tensor("terminated", torch.bool),
            truncated=tensor("truncated", torch.bool),
            action=tensor("action", spec.action_dtype, spec.action_shape),
        )

    def part(self, environments: slice) -> _Shared:
        """Return the same memory of some of the environments."""
        return _Shared(*(getattr(self, field.name)[environments] for field in fields(self)))


class WorkerEnvs:
    """A batch of environments in several processes.

    Args:
        name: ``suite/task``.
        seed: Environment i is seeded with the i-th number spread from this one, in whatever
            worker it is.
        num_envs: How many in all; the first workers hold one more where it does not divide.
        device: Where the tensors are handed over.
        workers: How many processes.
        timeout: Seconds after which a worker that does not answer is given up.
        options: What else ``hadamard.envs.make_part`` takes.
        preload: Packages to load once for all workers that are started later.
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
    ) -> None:
        check_num_envs(num_envs)
        if not 1 <= workers <= num_envs:
            raise ValueError(
                f"workers (--train.env-workers) must lie in 1..{num_envs}, as many as there are "
                f"environments at most, got {workers}"
            )
        self.name = name
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.timeout = timeout
        share, more = divmod(num_envs, workers)
        bounds = [0]
        for worker in range(workers):
            bounds.append(bounds[-1] + share + (worker < more))
        self._slices = [slice(*pair) for pair in itertools.pairwise(bounds)]
        self._sent = False
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        self._polls: list[select.poll] = []
        # Runs at the latest when this object or the interpreter goes.
        self._end = weakref.finalize(self, _kill, self._processes, self._pipes)
        context = _context(preload)
        seeds = spread(seed, num_envs)
        for part in self._slices:
            pipe, far_pipe = context.Pipe()
            # A server process has the environment variables of when it was started.
            given = (far_pipe, name, seeds[part], part, dict(options or {}), dict(os.environ))
            process = context.Process(target=_work, args=given, daemon=True)
            process.start()
            # Only the worker may hold its end, or its death would go unnoticed.
            far_pipe.close()
            self._processes.append(process)
            self._pipes.append(pipe)
            poll = select.poll()
            poll.register(pipe, select.POLLIN)
            poll.register(process.sentinel, select.POLLIN)
            self._polls.append(poll)
        made = self._answers(max(timeout, START_TIMEOUT))
        self.spec: EnvSpec = made[0][0]
        self.exact: bool = made[0][1]
        self.splits: bool = made[0][2]
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        # Once everyone has mapped the files they need no names, and nothing is left behind.
        with tempfile.TemporaryDirectory(prefix="hadamard-", dir=memory) as folder:
            self._shared = _Shared.map(folder, self.spec, num_envs)
            self._ask("attach", [(folder, self.spec, num_envs)] * workers)

    def reset(self) -> Tensor:
        """Start new episodes everywhere."""
        if self._sent:
            self.receive()
        self._ask("reset")
        return self._shared.obs.to(self.device, copy=True)

    def send(self, action: Tensor) -> None:
        """Start one step in all processes."""
        if self._sent:
            raise RuntimeError("send() twice: the step under way was not received")
        chosen = check_actions(action, self.num_envs, self.spec)
        self._shared.action.copy_(torch.from_numpy(chosen))
        self._tell(_STEP)
        self._sent = True

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""
        if not self._sent:
            raise RuntimeError("receive() without send(): no step was started")
        self._sent = False
        final: list[int] = []
        episodes: list[Episode] = []
        any_truncated = False
        for answer in self._answers(self.timeout):
            if answer is not None:
                worker_final, worker_truncated, worker_episodes = answer
                final += worker_final
                any_truncated |= worker_truncated
                episodes += worker_episodes
        shared = self._shared
        index = torch.tensor(final) if final else None
        return Step(
            obs=copied(shared.obs.numpy(), self.device),
            reward=shared.reward.clone(),
            terminated=shared.terminated.clone(),
            truncated=shared.truncated.clone(),
            final_index=index,
            final_obs=None if index is None else shared.final_obs[index].to(self.device),
            any_truncated=any_truncated,
            episodes=tuple(episodes),
        )

    def step(self, action: Tensor) -> Step:
        """Send and receive."""
        self.send(action)
        return self.receive()

    def close(self) -> None:
        """Let the workers close their environments and end; afterwards none is left."""
        if not self._end.alive:
            return
        with contextlib.suppress(EnvironmentFailure):
            if self._sent:
                self.receive()
            self._tell(_message("close"))
            for process in self._processes:
                process.join(self.timeout)
        self._end()

    def render(self) -> NDArray[np.uint8]:
        """Return a picture of the first environment."""
        if self._sent:
            raise RuntimeError("a step is under way: receive() it before asking for a picture")
        first = [worker == 0 for worker in range(len(self._slices))]
        picture: NDArray[np.uint8] = self._ask("render", first)[0]
        return picture

    def state_dict(self) -> State:
        """Return the state as one process would, where the suite's can be joined."""
        if self._sent:
            raise RuntimeError("a step is under way: receive() it before saving the state")
        states = self._ask("state")
        return _joined(states) if self.splits else {"workers": states}

    def load_state_dict(self, state: State) -> Tensor | None:
        """Return to that state, and return the observations where the suite restores exactly."""
        if self._sent:
            self.receive()
        if self.splits:
            whole = _joined(state["workers"]) if "workers" in state else state
            for values in whole.values():
                check_saved(len(values), self.num_envs)
            saved = [{key: whole[key][part] for key in whole} for part in self._slices]
        elif "workers" not in state or len(state["workers"]) != len(self._slices):
            count = len(state.get("workers", ()))
            raise ValueError(
                f"the saved state is of {count} workers and there are {len(self._slices)} "
                f"here: make the environments with workers={count}"
            )
        else:
            saved = state["workers"]
        shown = self._ask("load", saved)
        return self._shared.obs.to(self.device, copy=True) if all(shown) else None

    def _ask(self, command: str, payloads: Sequence[Any] | None = None) -> list[Any]:
        if payloads is None:
            self._tell(_message(command))
        else:
            self._tell(*(_message(command, payload) for payload in payloads))
        return self._answers(self.timeout)

    def _tell(self, *messages: bytes) -> None:
        """Send every worker its message, or all the same."""
        if not self._end.alive:
            raise RuntimeError("these environments are closed")
        for worker, pipe in enumerate(self._pipes):
            try:
                pipe.send_bytes(messages[worker if len(messages) > 1 else 0])
            except OSError:
                self._read(worker)  # raises what it died of

    def _answers(self, timeout: float) -> list[Any]:
        """Wait for one answer of every worker; give up on all when one fails.

        They are waited for in their order: while the first still plays the others finish, and
        this process is not woken for each.
        """
        deadline = time.monotonic() + timeout
        answers = []
        for worker, poll in enumerate(self._polls):
            left = max(0.0, deadline - time.monotonic())
            if not poll.poll(1e3 * left):
                raise self._failure(worker, f"did not answer within {timeout:g} s")
            answers.append(self._read(worker))
        return answers

    def _read(self, worker: int) -> Any:
        """Return a worker's answer, or fail with what it says or how it died."""
        try:
            message = self._pipes[worker].recv_bytes()
        except (EOFError, OSError):
            process = self._processes[worker]
            process.join(1.0)
            raise self._failure(worker, f"died with exit code {process.exitcode}") from None
        if message == _UNEVENTFUL:
            return None
        problem, answer = pickle.loads(message)
        if problem is not None:
            raise self._failure(worker, f"failed:\n{problem}")
        return answer

    def _failure(self, worker: int, what: str) -> EnvironmentFailure:
        """End all workers, and say which one was at fault."""
        part = self._slices[worker]
        self._end()
        return EnvironmentFailure(
            f"worker {worker} (of {len(self._slices)}; environments {part.start} to "
            f"{part.stop - 1} of {self.name}) {what}"
        )


def _joined(states: Sequence[State]) -> State:
    """Join states whose every value has one entry for each environment."""
    return {
        key: np.concatenate(parts)
        if isinstance(parts[0], np.ndarray)
        else [entry for part in parts for entry in part]
        for key in states[0]
        if (parts := [state[key] for state in states])
    }


def _context(preload: Sequence[str]) -> Any:
    """Return how processes are started here."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # Has an effect on a server that is yet to be started. Only packages of others: this one's own
    # modules are found by the worker's path, and the script that trains may do anything.
    context.set_forkserver_preload(["numpy", "torch", *preload])
    # A server that ends takes its workers along: like them it leaves signals to the parent. What
    # is blocked here stays so in the processes that are started meanwhile.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
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


def _message(head: str | None, body: Any = None) -> bytes:
    # pipe.send() would move every tensor to a shared file; states are full of small ones.
    return pickle.dumps((head, body), protocol=pickle.HIGHEST_PROTOCOL)


def _work(
    pipe: Connection,
    name: str,
    seeds: list[int],
    part: slice,
    options: dict[str, Any],
    environment: dict[str, str],
) -> None:
    """Serve commands until the parent says close, or is gone."""
    # Ctrl-C reaches every process of the terminal, and `timeout` or a batch system asks all of a
    # job's processes to end; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    torch.set_num_threads(1)
    os.environ.clear()
    os.environ.update(environment)
    try:
        _serve(pipe, name, seeds, part, options)
    except (EOFError, ConnectionError):
        return
    except Exception:  # whatever it was, the parent tells it
        pipe.send_bytes(_message(traceback.format_exc(), None))


def _serve(
    pipe: Connection, name: str, seeds: list[int], part: slice, options: dict[str, Any]
) -> None:
    from hadamard.envs import make_part

    envs = make_part(name, seeds, part.stop - part.start, **options)
    pipe.send_bytes(_message(None, (envs.spec, envs.exact, getattr(envs, "splits", False))))
    command, payload = pickle.loads(pipe.recv_bytes())
    shared = _Shared.map(*payload).part(part)
    pipe.send_bytes(_message(None, True))
    while True:
        message = pipe.recv_bytes()
        if message == _STEP:
            step = envs.step(shared.action.clone())
            shared.obs.copy_(step.obs)
            shared.reward.copy_(step.reward)
            shared.terminated.copy_(step.terminated)
            shared.truncated.copy_(step.truncated)
            if step.final_index is None or step.final_obs is None:
                pipe.send_bytes(_UNEVENTFUL)
                continue
            shared.final_obs[step.final_index] = step.final_obs
            final = (step.final_index + part.start).tolist()
            episodes = [e._replace(env=e.env + part.start) for e in step.episodes]
            pipe.send_bytes(_message(None, (final, step.any_truncated, episodes)))
            continue
        command, payload = pickle.loads(message)
        answer: Any = True
        if command == "reset":
            shared.obs.copy_(envs.reset())
        elif command == "render":
            answer = envs.render() if payload else True
        elif command == "state":
            answer = envs.state_dict()
        elif command == "load":
            obs = envs.load_state_dict(payload)
            answer = isinstance(obs, Tensor)
            if isinstance(obs, Tensor):
                shared.obs.copy_(obs)
        elif command == "close":
            envs.close()
            return
        pipe.send_bytes(_message(None, answer))
