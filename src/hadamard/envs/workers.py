"""Environments of any suite, spread over processes.

Every process holds an equal share of the environments, made by the suite as usual. Observations,
rewards, ends and actions are in memory that all processes share; the pipes carry only commands,
finished episodes and saved states.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import tempfile
import time
import traceback
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import EnvSpec, Episode, State, Step
from hadamard.envs.common import check_actions, check_num_envs, copied, spread

START_TIMEOUT = 120.0
"""Seconds a worker may take to import its packages and make its environments."""


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


class WorkerEnvs:
    """A batch of environments in several processes.

    Args:
        name: ``suite/task``.
        seed: Worker i is seeded with the i-th number spread from this one.
        num_envs: How many in all; the first workers hold one more where it does not divide.
        device: Where the tensors are handed over.
        training: As in ``hadamard.envs.make``.
        exact: As in ``hadamard.envs.make``.
        workers: How many processes.
        timeout: Seconds after which a worker that does not answer is given up.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        training: bool = True,
        exact: bool = False,
        workers: int = 1,
        timeout: float = 60.0,
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
        self._processes: list[SpawnProcess] = []
        self._pipes: list[Connection] = []
        # Runs at the latest when this object or the interpreter goes.
        self._end = weakref.finalize(self, _kill, self._processes, self._pipes)
        context = multiprocessing.get_context("spawn")
        for part, worker_seed in zip(self._slices, spread(seed, workers), strict=True):
            pipe, far_pipe = context.Pipe()
            options = {"training": training, "exact": exact}
            process = context.Process(
                target=_work, args=(far_pipe, name, worker_seed, part, options), daemon=True
            )
            process.start()
            # Only the worker may hold its end, or its death would go unnoticed.
            far_pipe.close()
            self._processes.append(process)
            self._pipes.append(pipe)
        made = self._answers(max(timeout, START_TIMEOUT))
        self.spec: EnvSpec = made[0][0]
        self.exact: bool = made[0][1]
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
        self._tell("step")
        self._sent = True

    def receive(self) -> Step:
        """Wait for the step that ``send`` started."""
        if not self._sent:
            raise RuntimeError("receive() without send(): no step was started")
        self._sent = False
        final: list[int] = []
        episodes: list[Episode] = []
        any_truncated = False
        for worker_final, worker_truncated, worker_episodes in self._answers(self.timeout):
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
            self._tell("close")
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
        """Return the state of every worker's environments."""
        if self._sent:
            raise RuntimeError("a step is under way: receive() it before saving the state")
        return {"workers": self._ask("state")}

    def load_state_dict(self, state: State) -> Tensor | None:
        """Return to that state, and return the observations where the suite restores exactly."""
        if self._sent:
            self.receive()
        saved = state["workers"]
        if len(saved) != len(self._slices):
            raise ValueError(
                f"the saved state is of {len(saved)} workers and there are {len(self._slices)} "
                f"here: make the environments with workers={len(saved)}"
            )
        shown = self._ask("load", saved)
        return self._shared.obs.to(self.device, copy=True) if all(shown) else None

    def _ask(self, command: str, payloads: Sequence[Any] | None = None) -> list[Any]:
        self._tell(command, payloads)
        return self._answers(self.timeout)

    def _tell(self, command: str, payloads: Sequence[Any] | None = None) -> None:
        if not self._end.alive:
            raise RuntimeError("these environments are closed")
        for worker, pipe in enumerate(self._pipes):
            payload = None if payloads is None else payloads[worker]
            try:
                _put(pipe, (command, payload))
            except OSError:
                self._read(worker)  # raises what it died of

    def _answers(self, timeout: float) -> list[Any]:
        """Wait for one answer of every worker; give up on all when one fails."""
        deadline = time.monotonic() + timeout
        answers: dict[int, Any] = {}
        while len(answers) < len(self._pipes):
            waiting: dict[Any, int] = {}
            for worker, pipe in enumerate(self._pipes):
                if worker not in answers:
                    waiting[pipe] = worker
                    waiting[self._processes[worker].sentinel] = worker
            ready = wait(list(waiting), max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self._failure(min(waiting.values()), f"did not answer within {timeout:g} s")
            for worker in {waiting[item] for item in ready}:
                answers[worker] = self._read(worker)
        return [answers[worker] for worker in range(len(self._pipes))]

    def _read(self, worker: int) -> Any:
        """Return a worker's answer, or fail with what it says or how it died."""
        pipe, process = self._pipes[worker], self._processes[worker]
        try:
            problem, answer = _get(pipe) if pipe.poll() else (None, None)
        except (EOFError, OSError):
            problem = answer = None
        if problem is not None:
            raise self._failure(worker, f"failed:\n{problem}")
        if answer is None:
            process.join(1.0)
            raise self._failure(worker, f"died with exit code {process.exitcode}")
        return answer

    def _failure(self, worker: int, what: str) -> EnvironmentFailure:
        """End all workers, and say which one was at fault."""
        part = self._slices[worker]
        self._end()
        return EnvironmentFailure(
            f"worker {worker} (of {len(self._slices)}; environments {part.start} to "
            f"{part.stop - 1} of {self.name}) {what}"
        )


def _kill(processes: list[SpawnProcess], pipes: list[Connection]) -> None:
    for pipe in pipes:
        pipe.close()
    for process in processes:
        # Not terminate(): a stopped process would never see it.
        process.kill()
    for process in processes:
        process.join()
        process.close()


def _put(pipe: Connection, message: Any) -> None:
    # pipe.send() would move every tensor to a shared file; states are full of small ones.
    pipe.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def _get(pipe: Connection) -> Any:
    return pickle.loads(pipe.recv_bytes())


def _work(pipe: Connection, name: str, seed: int, part: slice, options: dict[str, bool]) -> None:
    """Serve commands until the parent says close, or is gone."""
    # Ctrl-C reaches every process of the terminal, and `timeout` or a batch system asks all of a
    # job's processes to end; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    torch.set_num_threads(1)
    try:
        _serve(pipe, name, seed, part, options)
    except (EOFError, ConnectionError):
        return
    except Exception:  # whatever it was, the parent tells it
        _put(pipe, (traceback.format_exc(), None))


def _serve(pipe: Connection, name: str, seed: int, part: slice, options: dict[str, bool]) -> None:
    from hadamard.envs import make

    envs = make(name, seed, part.stop - part.start, "cpu", **options)
    _put(pipe, (None, (envs.spec, envs.exact)))
    command, payload = _get(pipe)
    shared = _Shared.map(*payload)
    _put(pipe, (None, True))
    while True:
        command, payload = _get(pipe)
        answer: Any = True
        if command == "step":
            step = envs.step(shared.action[part].clone())
            final: list[int] = []
            if step.final_index is not None and step.final_obs is not None:
                index = step.final_index + part.start
                shared.final_obs[index] = step.final_obs
                final = index.tolist()
            shared.obs[part] = step.obs
            shared.reward[part] = step.reward
            shared.terminated[part] = step.terminated
            shared.truncated[part] = step.truncated
            episodes = [Episode(e.env + part.start, e.score, e.length) for e in step.episodes]
            answer = (final, step.any_truncated, episodes)
        elif command == "reset":
            shared.obs[part] = envs.reset()
        elif command == "render":
            answer = envs.render() if payload else True
        elif command == "state":
            answer = envs.state_dict()
        elif command == "load":
            obs = envs.load_state_dict(payload)
            answer = isinstance(obs, Tensor)
            if isinstance(obs, Tensor):
                shared.obs[part] = obs
        elif command == "close":
            envs.close()
            return
        _put(pipe, (None, answer))
