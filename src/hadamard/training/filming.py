"""Films during training: a greedy episode every so many steps, in the run's folder ``films``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch

from hadamard import envs
from hadamard.core import files, record
from hadamard.core.config import RunSpec
from hadamard.core.random import child_seed
from hadamard.core.types import Agent, Envs
from hadamard.training import film

MAX_STEPS = 3_000
"""Steps after which a filmed episode is stopped."""
FOLDER = "films"


def check(spec: RunSpec[Any], device: torch.device) -> None:
    """Refuse films that could not be made, before anything is trained."""
    if not spec.train.film_every:
        return
    film.check_format(film.default_output(Path()))
    envs.prepare_to_draw(spec.env)
    environment = _environment(spec, device, 0)
    try:
        environment.reset()
        environment.render()
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"--train.film-every {spec.train.film_every}: {spec.env} cannot be filmed ({error}): "
            "leave the option out"
        ) from error
    finally:
        environment.close()


def _environment(spec: RunSpec[Any], device: torch.device, step: int) -> Envs:
    """Return the environment of the film at a step: the same whenever it is made."""
    seed = child_seed(spec.seed, 13, step)
    return envs.make(spec.env, seed, 1, device, training=False, atari_reset=spec.train.atari_reset)


class Films:
    """The films of one run. If one fails, there is a warning, and training goes on without."""

    def __init__(self, spec: RunSpec[Any], device: torch.device, run: Path) -> None:
        self.spec, self.device, self.folder = spec, device, run / FOLDER
        self.failed = False

    def take(self, agent: Agent, step: int) -> None:
        """Film a greedy episode."""
        if self.failed:
            return
        try:
            files.make_folder(self.folder)
            suffix = film.default_output(self.folder).suffix
            path = self.folder / f"{record.name_of(step)}{suffix}"
            environment = _environment(self.spec, self.device, step)
            try:
                film.film(agent, environment, path, max_steps=MAX_STEPS)
            finally:
                environment.close()
        except Exception as error:
            self.failed = True
            warnings.warn(f"no more films from step {step:,} on: {error}", stacklevel=2)
