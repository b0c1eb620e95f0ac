"""`hadamard play`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from hadamard import api
from hadamard.cli.common import UserError, parse
from hadamard.core import require
from hadamard.text import counted
from hadamard.training import start


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
    step: int | None = None
    """Step of the checkpoint, by default the newest one; --train.keep-every keeps older ones."""
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
    try:
        result = api.record_video(
            options.run,
            options.output,
            episodes=options.episodes,
            seed=options.seed,
            max_steps=options.max_steps,
            fps=options.fps,
            step=options.step,
            device=options.device,
            report=_show_frames,
        )
    finally:
        _show_frames(0)
    _, _, spec = start.open_run(options.run)
    print(f"{options.run} at step {result.step or 0:,}, {spec.env}")
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
