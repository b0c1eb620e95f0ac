"""Training from Python: train, load_agent, evaluate and record_video, as ``hadamard.train(...)``.

The command line does the same with the same settings.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from hadamard import envs
from hadamard.core import settings as setting_names
from hadamard.core.config import RunSpec
from hadamard.core.identity import without_unused
from hadamard.core.random import child_seed
from hadamard.core.run import Run, RunError
from hadamard.core.types import Agent, Envs, EnvSpec
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import read_run
from hadamard.report.data.series import Series
from hadamard.training import evaluate as playing
from hadamard.training import film, progress, start
from hadamard.training import load_agent as loading
from hadamard.training.callbacks import Callback, listed

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class TrainedRun:
    """A run that `train` or `resume` has trained; wherever a run is asked for, it will do."""

    path: Path
    """The run's folder."""
    summary: Mapping[str, Any] | None
    """Steps, scores, episodes and seconds; None if the run was stopped before its end."""

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def finished(self) -> bool:
        """Whether it was trained to its end; if not, `resume` continues it."""
        return self.summary is not None

    @property
    def data(self) -> RunData:
        """Everything a report reads of it."""
        return read_run(self.path)

    @property
    def score(self) -> float:
        """Its final score, of the kind it is judged by; NaN if there is none yet."""
        return self.data.final("score")

    @property
    def scores(self) -> Series:
        """Its scores over training as ``steps`` and ``values``, of the kind it is judged by."""
        return self.data.score_series().finite()


def train(
    algorithm: str | None = None,
    env: str | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    config: AnyPath | None = None,
    seed: int | None = None,
    run_dir: AnyPath | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    overwrite: bool = False,
    show_progress: bool = True,
    **named: Any,
) -> TrainedRun:
    """Train a new run.

    May be called in several threads at once; torch's own settings (``train.threads``) are then
    those of the newest run.

    Args:
        algorithm: The algorithm's name; ``config`` may name it instead.
        env: The environment, as suite/task; by default the algorithm's usual one.
        settings: Settings by name: ``{"train.steps": 100_000, "net.layer": "hadamard"}``.
        config: A file of settings (.yaml, .yml or .json), or a run's config.json. The other
            arguments override it.
        seed: Seed of all random numbers of the run.
        run_dir: The run's folder; by default one under runs/ named after the settings.
        callbacks: Functions of an `Event`, called after each log row, evaluation and checkpoint.
            ``event.stop()`` saves and ends the run. If one raises an exception, the run is saved
            too, and then the exception is raised.
        overwrite: Replace a run that is in the folder already.
        show_progress: Show a live bar on a terminal, lines elsewhere.
        named: Settings by their last word: ``learning_rate=1e-3, steps=100_000``; they override
            ``settings``.

    Examples:
        >>> import tempfile
        >>> options = {"num_envs": 4, "rollout_steps": 8, "steps": 512, "health_every": 0}
        >>> run = train(
        ...     "ppo", "probe/constant", options, run_dir=tempfile.mkdtemp(), show_progress=False
        ... )
        >>> run.summary["steps"]
        512
    """
    functions = listed(callbacks)
    algorithm, spec = _spec(algorithm, env, settings, config, seed, run_dir, named)
    shown = progress.make_progress if show_progress else progress.Quiet
    summary = start.train(algorithm, spec, shown, functions, overwrite=overwrite)
    assert spec.run_dir is not None
    return TrainedRun(Path(spec.run_dir), summary or None)


def _spec(
    algorithm: str | None,
    env: str | None,
    settings: Mapping[str, Any] | None,
    config: AnyPath | None,
    seed: int | None,
    run_dir: AnyPath | None,
    named: Mapping[str, Any],
) -> tuple[str, RunSpec[Any]]:
    """Return the algorithm and the settings that the arguments of `train` ask for."""
    if config is not None:
        file = setting_names.read(Path(config))
        algorithm = file.named(algorithm, Path(config))
    else:
        file = setting_names.ConfigFile(None, {})
    if algorithm is None:
        raise TypeError(
            "train needs an algorithm, such as train('pqn'), or a config that names one"
        )
    given = {"env": env, "seed": seed, "run_dir": run_dir}
    own = {name: value for name, value in given.items() if value is not None}
    default = start.default_spec(algorithm)
    if (remedy := named.get("remedy", (settings or {}).get("remedy"))) is not None:
        default = setting_names.changed(default, {"remedy": remedy})  # before its settings
    changes: dict[str, Any] = {}
    for source in (settings or {}, named, own):
        changes |= setting_names.full_names(default, source)
    remedy = changes.get("remedy", file.settings.get("remedy", "none"))
    changes = {**without_unused({**file.settings, "remedy": remedy}), **changes}
    if not isinstance(changes.get("env"), str | None):
        raise ValueError(f"env must be a text such as 'minatar/breakout', got {changes['env']!r}")
    default = start.default_spec(algorithm, changes.get("env"))
    spec = setting_names.changed(default, changes)
    return algorithm, replace(spec, run_dir=spec.run_dir or start.default_run_dir(algorithm, spec))


def resume(
    run: AnyPath,
    *,
    until: int | None = None,
    steps: int | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    show_progress: bool = True,
) -> TrainedRun:
    """Continue a run from its last whole checkpoint.

    Args:
        run: The run's folder.
        until: Stop after this many steps; 0 trains all of them.
        steps: Extend the run to this many steps. From here on, what changes on a schedule over
            all steps has the value of a run of so many steps there, and reports keep the run
            apart from runs that were planned this long.
        callbacks: As in `train`.
        show_progress: Show a live bar on a terminal, lines elsewhere.
    """
    shown = progress.make_progress if show_progress else progress.Quiet
    path = os.fspath(run)
    summary = start.resume(path, shown, until, listed(callbacks), steps=steps)
    return TrainedRun(Path(path), summary or None)


@dataclass(frozen=True, eq=False)
class LoadedAgent:
    """A trained agent, which acts greedily; it cannot learn."""

    path: Path
    """Its run's folder."""
    spec: RunSpec[Any]
    """Its run's settings."""
    step: int
    """The step of the checkpoint."""
    device: torch.device
    agent: Agent
    env_spec: EnvSpec
    """Shapes and kinds of observations and actions."""

    @property
    def network(self) -> nn.Module:
        """Its network, to be diagnosed, converted or used elsewhere."""
        return self.agent.network

    def act(self, obs: ArrayLike | torch.Tensor) -> Any:
        """Choose the best action for an observation, or one for each of a batch.

        Observations are as the run's environment gives them. Returns a number for a discrete
        action and an array for a continuous one; for a batch, an array with a row for each.
        """
        shape, dtype = self.env_spec.obs_shape, self.env_spec.obs_dtype
        values = torch.as_tensor(obs if isinstance(obs, torch.Tensor) else np.asarray(obs))
        if tuple(values.shape[-len(shape) :]) != shape or values.dim() > len(shape) + 1:
            raise ValueError(
                f"an observation of {self.spec.env} has the shape {shape} (a batch one more "
                f"dimension in front), got {tuple(values.shape)}"
            )
        single = values.dim() == len(shape)
        batch = (values.unsqueeze(0) if single else values).to(self.device, dtype)
        actions: NDArray[Any] = self.agent.act_greedily(batch).cpu().numpy().copy()
        if not single:
            return actions
        return actions[0] if self.env_spec.continuous else int(actions[0])


def load_agent(run: AnyPath, *, step: int | None = None, device: str = "auto") -> LoadedAgent:
    """Load a run's agent from a checkpoint.

    Args:
        run: The run's folder.
        step: The step of the checkpoint; by default the newest one.
        device: cpu, cuda, ...; auto uses a GPU if there is one.
    """
    path = Path(run)
    agent, spec, found, place, env_spec = loading.load_agent(str(path), device, step)
    return LoadedAgent(path, spec, found, place, agent, env_spec)


@dataclass(frozen=True)
class Evaluation:
    """Whole greedy episodes, with unclipped rewards."""

    run: Path
    step: int
    """The step of the checkpoint."""
    env: str
    scores: tuple[float, ...]
    lengths: tuple[int, ...]
    """In agent steps."""

    @property
    def mean(self) -> float:
        """The mean score."""
        return statistics.fmean(self.scores)


def evaluate(
    run: AnyPath,
    episodes: int = 20,
    *,
    seed: int = 0,
    step: int | None = None,
    device: str = "auto",
) -> Evaluation:
    """Play whole greedy episodes with a run's agent.

    Args:
        run: The run's folder.
        episodes: How many episodes to play.
        seed: Seed of the episodes, which differ from those of training.
        step: The step of the checkpoint; by default the newest one.
        device: cpu, cuda, ...; auto uses a GPU if there is one.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    loaded = load_agent(run, step=step, device=device)
    parallel = max(n for n in range(1, 21) if episodes % n == 0)
    environments = _environments(loaded, child_seed(seed, 20), parallel, workers=None)
    try:
        played = playing.evaluate(loaded.agent, environments, episodes)
    finally:
        environments.close()
    return Evaluation(
        loaded.path,
        loaded.step,
        loaded.spec.env,
        tuple(episode.score for episode in played),
        tuple(episode.length for episode in played),
    )


def _environments(loaded: LoadedAgent, seed: int, count: int, workers: int | None) -> Envs:
    return envs.make(
        loaded.spec.env,
        seed,
        count,
        loaded.device,
        training=False,
        atari_reset=loaded.spec.train.atari_reset,
        workers=workers,
    )


def record_video(
    run: AnyPath,
    output: AnyPath | None = None,
    *,
    episodes: int = 1,
    seed: int = 0,
    max_steps: int = 0,
    fps: float | None = None,
    step: int | None = None,
    device: str = "auto",
    report: Callable[[int], None] = lambda _: None,
) -> film.Film:
    """Film greedy episodes of a run's agent.

    Args:
        run: The run's folder.
        output: The film, .mp4 or .gif; by default play.mp4 in the run's folder (play.gif without
            ffmpeg).
        episodes: How many episodes to play, one after another.
        seed: Seed of the episodes, which differ from those of training.
        max_steps: Steps after which an episode is stopped; 0 plays to its end.
        fps: Frames a second, one per step; by default the speed of the environment's own time.
        step: The step of the checkpoint; by default the newest one.
        device: cpu, cuda, ...; auto uses a GPU if there is one.
        report: Called after each frame with the number of frames so far.
    """
    if episodes < 1 or (fps is not None and fps <= 0):
        raise ValueError("episodes and fps must be positive")
    if max_steps < 0:
        raise ValueError("max_steps must be 0 or more")
    folder = Run.open(run).path
    path = film.default_output(folder) if output is None else Path(output)
    film.check_output(path)
    _, _, spec = start.open_run(str(folder))
    try:
        envs.prepare_to_draw(spec.env)
    except ValueError as error:
        raise RunError(f"{folder}/config.json: {error}") from None
    loaded = load_agent(folder, step=step, device=device)
    environment = _environments(loaded, child_seed(seed, 22), 1, workers=0)
    try:
        written = film.film(
            loaded.agent,
            environment,
            path,
            episodes=episodes,
            max_steps=max_steps,
            fps=fps,
            report=report,
        )
        return replace(written, step=loaded.step)
    finally:
        environment.close()
