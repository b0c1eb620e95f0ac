"""Where the emulators of a run play: on the CPU or on the GPU (``--train.emulators``)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from hadamard import envs
from hadamard.core import machine
from hadamard.core.config import RunSpec

MANY = 256
"""Environments of the runs of a process, in all, from which on a GPU's emulators are faster."""


def check(spec: RunSpec[Any], device: torch.device) -> None:
    """Refuse a run whose emulators cannot play where its settings say."""
    if spec.train.emulators != "gpu":
        return
    if not envs.has_emulators(spec.env):
        raise ValueError(
            f"--train.emulators gpu is for Atari, and not for {spec.env}: leave the option out"
        )
    if (trouble := envs.emulator_trouble(spec.env, device)) is not None:
        raise ValueError(
            f"--train.emulators gpu is not possible: {trouble}. Train with --train.emulators cpu, "
            "which gives the same games (a run that was begun on a GPU is continued on one)"
        )


def resolved(
    specs: Sequence[RunSpec[Any]], possible: Callable[[RunSpec[Any]], bool], *, together: int = 1
) -> list[RunSpec[Any]]:
    """Return the settings of new runs with ``train.emulators`` decided, where it is automatic.

    Args:
        specs: The runs of one process.
        possible: Whether a run with these settings can be trained as a fleet.
        together: As how many runs each of these counts.
    """
    open_ = [
        index
        for index, spec in enumerate(specs)
        if spec.train.emulators == "auto" and envs.has_emulators(spec.env)
    ]
    candidates = [
        index
        for index in open_
        if specs[index].train.fleet != "off"
        and machine.choose_device(specs[index].device).type == "cuda"
        and possible(with_emulators(specs[index], "gpu"))
    ]
    on_gpu = set[int]()
    if together * sum(environments(specs[index]) for index in candidates) >= MANY:
        troubles = {index: _trouble(specs[index]) for index in candidates}
        on_gpu = {index for index, trouble in troubles.items() if trouble is None}
        for trouble in dict.fromkeys(trouble for trouble in troubles.values() if trouble):
            warnings.warn(f"emulators play on the CPU: {trouble}", stacklevel=3)
    settings = list(specs)
    for index in open_:
        settings[index] = with_emulators(specs[index], "gpu" if index in on_gpu else "cpu")
    return settings


def environments(spec: RunSpec[Any]) -> int:
    """Return how many games a run plays side by side."""
    count: int = spec.algo.num_envs + spec.train.greedy_envs
    return count


def _trouble(spec: RunSpec[Any]) -> str | None:
    return envs.emulator_trouble(spec.env, machine.choose_device(spec.device))


def with_emulators(spec: RunSpec[Any], choice: Literal["cpu", "gpu"]) -> RunSpec[Any]:
    """Return the settings with the emulators on the CPU or on the GPU."""
    return replace(spec, train=replace(spec.train, emulators=choice))
