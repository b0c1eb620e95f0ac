"""`hadamard play`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from hadamard import envs, play, train
from hadamard.cli.common import UserError, parse
from hadamard.core.random import child_seed
from hadamard.trained import load_agent


@dataclass(frozen=True)
class _Play:
    """Film greedy episodes of a run's agent, unclipped and on full games."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    output: Path | None = None
    """The film, .mp4 or .gif; by default play.mp4 in the run folder."""
    episodes: int = 1
    """How many episodes, one after another."""
    seed: int = 0
    """Seed of the games, which are other ones than in training."""
    max_steps: int = 0
    """Steps after which an episode is left; 0 plays to its end."""
    fps: float | None = None
    """Frames a second, one a step; by default time passes as in the environment's world.
    Where its time has no unit: ten steps a second."""
    device: str = "auto"
    """cpu, cuda, ...; auto takes a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    asked = parse(_Play, words, "hadamard play")
    if asked.episodes < 1 or asked.max_steps < 0 or (asked.fps is not None and asked.fps <= 0):
        raise UserError("--episodes and --fps must be positive, and --max-steps not negative")
    run, _, spec = train.open_run(asked.run)
    output = asked.output or play.default_output(run.path)
    play.check_output(output)
    envs.prepare_to_draw(spec.env)
    agent, spec, step, device = load_agent(asked.run, asked.device)
    made = envs.make(
        spec.env,
        child_seed(asked.seed, 22),
        1,
        device,
        training=False,
        atari_reset=spec.train.atari_reset,
    )
    try:
        film = play.film(
            agent,
            made,
            output,
            episodes=asked.episodes,
            max_steps=asked.max_steps,
            fps=asked.fps,
            report=_show_frames,
        )
    finally:
        made.close()
        _show_frames(0)
    print(f"{asked.run} at step {step:,}, {spec.env}")
    for number, episode in enumerate(film.episodes, start=1):
        left = "" if film.finished or number < len(film.episodes) else ", not to its end"
        print(f"  episode {number}: score {episode.score:.2f}, {episode.length:,} steps{left}")
    print(f"wrote {film}")
    return 0


def _show_frames(frames: int) -> None:
    """Show on a terminal that the film grows; logs are spared."""
    if sys.stdout.isatty():
        print(f"\r{frames:,} frames" if frames else "\r\033[K", end="", flush=True)
