"""The process of one worker: it makes its share of the environments and serves commands.

The main process is in ``workers.py``. Both sides share memory for observations, rewards, ends and
actions; the pipe carries only commands, finished episodes and saved states.
"""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hadamard.core import plugins
from hadamard.core.types import Envs, EnvSpec
from hadamard.envs.common import EnvironmentFailure

STEP = b"step"
"""Command to take one step. All other commands are pickled."""
UNEVENTFUL = b"ok"
"""Answer to a step in which no episode ended."""


@dataclass(frozen=True)
class SharedMemory:
    """Tensors that all processes read and write; their first dimension is the environments."""

    obs: Tensor
    final_obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    action: Tensor

    @classmethod
    def map(cls, folder: str, spec: EnvSpec, num_envs: int) -> SharedMemory:
        """Map the files of a folder, creating those that do not exist."""

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

    def part(self, environments: slice) -> SharedMemory:
        """Return the memory of some of the environments."""
        return SharedMemory(*(getattr(self, field.name)[environments] for field in fields(self)))


def message(head: str | EnvironmentFailure | None, body: Any = None) -> bytes:
    """Pickle a command with its argument, or an answer: an error or None, then the result."""
    # pipe.send() would move each of a state's many small tensors to a shared file.
    return pickle.dumps((head, body), protocol=pickle.HIGHEST_PROTOCOL)


def run(
    pipe: Connection,
    name: str,
    seeds: list[int],
    part: slice,
    first: int,
    options: dict[str, Any],
    variables: dict[str, str],
    plugin: str = "",
) -> None:
    """Serve commands until the main process says close, or is gone.

    Args:
        pipe: Where commands come from and answers go.
        name: ``suite/task``.
        seeds: One for each of this worker's environments.
        part: Which environments of the batch they are.
        first: Number of the first of them among all groups.
        options: The suite's own arguments.
        variables: The environment variables of the main process.
        plugin: The file that defines the suite, as text; empty if it needs none.
    """
    # Ctrl-C, `timeout`, a lost terminal and batch systems signal every process of a job.
    # Only the main process decides what to do about it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    os.environ.clear()
    os.environ.update(variables)
    try:
        plugins.load_text(plugin)
        _serve(pipe, name, seeds, part, first, options)
    except (EOFError, ConnectionError):
        return
    except EnvironmentFailure as error:
        pipe.send_bytes(message(error))
    except Exception:  # whatever it is, the main process raises it
        pipe.send_bytes(message(traceback.format_exc(), None))


def _serve(
    pipe: Connection,
    name: str,
    seeds: list[int],
    part: slice,
    first: int,
    options: dict[str, Any],
) -> None:
    from hadamard.envs import make_part

    envs = make_part(name, seeds, part.stop - part.start, options, first)
    pipe.send_bytes(message(None, (envs.spec, envs.exact, getattr(envs, "splittable", False))))
    command, argument = pickle.loads(pipe.recv_bytes())
    shared = SharedMemory.map(*argument).part(part)
    pipe.send_bytes(message(None, True))
    while True:
        request = pipe.recv_bytes()
        if request == STEP:
            pipe.send_bytes(_step(envs, shared, part.start))
            continue
        command, argument = pickle.loads(request)
        answer: Any = True
        if command == "reset":
            shared.obs.copy_(envs.reset())
        elif command == "render":
            answer = envs.render() if argument else True
        elif command == "state":
            answer = envs.state_dict()
        elif command == "load":
            obs = envs.load_state_dict(argument)
            answer = isinstance(obs, Tensor)
            if isinstance(obs, Tensor):
                shared.obs.copy_(obs)
        elif command == "close":
            envs.close()
            return
        pipe.send_bytes(message(None, answer))


def _step(envs: Envs, shared: SharedMemory, first: int) -> bytes:
    """Take a step; ``first`` is the number of this worker's first environment."""
    step = envs.step(shared.action.clone())
    shared.obs.copy_(step.obs)
    shared.reward.copy_(step.reward)
    shared.terminated.copy_(step.terminated)
    shared.truncated.copy_(step.truncated)
    if step.final_index is None or step.final_obs is None:
        return UNEVENTFUL
    shared.final_obs[step.final_index] = step.final_obs
    final_index = (step.final_index + first).tolist()
    episodes = [episode._replace(env=episode.env + first) for episode in step.episodes]
    return message(None, (final_index, step.any_truncated, episodes))
