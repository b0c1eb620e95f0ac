"""`hadamard play`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from hadamard import envs
from hadamard.cli.common import UserError, parse
from hadamard.core import require
from hadamard.core.random import child_seed
from hadamard.text import counted
from hadamard.training import film, start
from hadamard.training.load_agent import load_agent


@dataclass(frozen=True)
class _Play:
    """Film greedy episodes of a run's agent: whole games with unclipped rewards."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    output: Path | None = None
    """The film, .mp4 or .gif; by default play.mp4 in the run folder (play.gif without ffmpeg)."""
    episodes: int = 1
    """How many episodes to play, one after another."""
    seed: int = 0
    """Seed of the episodes, which differ from those of training."""
    max_steps: int = 0
    """Steps after which an episode is stopped; 0 plays to its end."""
    fps: float | None = None
    """Frames a second, one per step. By default the film runs at the speed of the environment's own
    time, or at ten steps a second where that has no unit."""
    device: str = "auto"
    """cpu, cuda, ...; auto uses a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(_Play, words, "hadamard play")
    if options.episodes < 1 or (options.fps is not None and options.fps <= 0):
        raise UserError("--episodes and --fps must be positive")
    if options.max_steps < 0:
        raise UserError("--max-steps must be 0 or more")
    require.not_negative(options, "seed", section="")
    run, _, spec = start.open_run(options.run)
    output = options.output or film.default_output(run.path)
    film.check_output(output)
    envs.prepare_to_draw(spec.env)
    agent, spec, step, device = load_agent(options.run, options.device)
    environment = envs.make(
        spec.env,
        child_seed(options.seed, 22),
        1,
        device,
        training=False,
        atari_reset=spec.train.atari_reset,
    )
    try:
        result = film.film(
            agent,
            environment,
            output,
            episodes=options.episodes,
            max_steps=options.max_steps,
            fps=options.fps,
            report=_show_frames,
        )
    finally:
        environment.close()
        _show_frames(0)
    print(f"{options.run} at step {step:,}, {spec.env}")
    for number, episode in enumerate(result.episodes, start=1):
        complete = result.finished or number < len(result.episodes)
        length = counted(episode.length, "step") + ("" if complete else " (stopped before its end)")
        print(f"  episode {number}: score {episode.score:.2f}, {length}")
    print(f"wrote {result}")
    return 0


def _show_frames(frames: int) -> None:
    """Show the number of frames on a terminal; print nothing to logs."""
    if sys.stdout.isatty():
        print(f"\r{frames:,} frames" if frames else "\r\033[K", end="", flush=True)
