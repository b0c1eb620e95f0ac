"""Worker processes that go wrong: each function replaces ``worker_process.run``."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import torch

from hadamard.core.types import Step
from hadamard.envs import probe, worker_process


def _change_steps(arguments: tuple[Any, ...], **changes: Any) -> None:
    """Run the second worker with parts of its steps replaced, and the others as they are."""
    part: slice = arguments[3]
    receive = probe.ProbeEnvs.receive

    def changed(self: probe.ProbeEnvs) -> Step:
        return replace(receive(self), **changes)

    if part.start:
        probe.ProbeEnvs.receive = changed  # type: ignore[method-assign]
    worker_process.run(*arguments)


def with_nan_reward(*arguments: Any) -> None:
    _change_steps(arguments, reward=torch.tensor([0.5, torch.nan]))


def with_infinite_observation(*arguments: Any) -> None:
    _change_steps(arguments, obs=torch.tensor([[0.5], [torch.inf]]))


def with_wrong_shape(*arguments: Any) -> None:
    _change_steps(arguments, reward=torch.zeros(1))


def that_end_at_once(*arguments: Any) -> None:
    os._exit(3)


def that_never_start(*arguments: Any) -> None:
    signal.pause()


def that_cannot_make_environments(*arguments: Any) -> None:
    def make(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("no such game")

    probe.make = make  # type: ignore[assignment]
    worker_process.run(*arguments)


def that_do_not_close(*arguments: Any) -> None:
    def close(self: probe.ProbeEnvs) -> None:
        signal.pause()

    probe.ProbeEnvs.close = close  # type: ignore[method-assign]
    worker_process.run(*arguments)
