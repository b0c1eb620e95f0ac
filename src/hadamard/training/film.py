"""Films of an agent: greedy episodes as MP4 or GIF."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hadamard.core.types import Agent, Envs, Episode
from hadamard.text import counted, install, joined

Picture = NDArray[np.uint8]

INSTALL = install("play")
STEPS_PER_SECOND = 10.0
"""Speed of a film if the environment's time has no unit."""


@dataclass(frozen=True)
class Film:
    """A written film and the episodes in it."""

    path: Path
    episodes: tuple[Episode, ...]
    finished: bool
    """Whether the last episode was played to its end."""
    frames: int
    height: int
    width: int
    fps: float
    step: int | None = None
    """The step of the agent's checkpoint, where it was loaded from one."""

    def __str__(self) -> str:
        size = self.path.stat().st_size
        size_text = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"
        return (
            f"{self.path}: {counted(self.frames, 'frame')} of {self.width}x{self.height}, "
            f"{self.fps:.3g} a second, {size_text}"
        )


def default_output(folder: Path) -> Path:
    """Return the path of a run's film: an MP4 if ffmpeg is installed, otherwise a GIF."""
    return folder / ("play.mp4" if _ffmpeg() or not _is_installed("PIL") else "play.gif")


def check_output(path: Path) -> None:
    """Raise an error if a film could not be written here, before anything is played."""
    try:
        check_format(path)
    except ValueError as error:
        raise ValueError(f"--output: {error}") from None
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from error


def check_format(path: Path) -> None:
    """Raise an error if films of this kind cannot be made here."""
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"name a film {joined(_FORMATS, 'or')}, got {path}")
    if path.suffix.lower() == ".mp4" and not _ffmpeg():
        instead = ", or name a .gif" if _is_installed("PIL") else ""
        raise ImportError(f"an MP4 needs ffmpeg: {INSTALL}{instead}")
    if path.suffix.lower() == ".gif" and not _is_installed("PIL"):
        raise ImportError(f"a GIF needs pillow: {INSTALL}")


def film(
    agent: Agent,
    envs: Envs,
    path: Path,
    *,
    episodes: int = 1,
    max_steps: int = 0,
    fps: float | None = None,
    report: Callable[[int], None] = lambda _: None,
) -> Film:
    """Film whole greedy episodes.

    Args:
        agent: The agent that plays.
        envs: A batch of one environment.
        path: The film, ``.mp4`` or ``.gif``; it appears there when it is complete.
        episodes: How many episodes are played, one after another.
        max_steps: Steps after which an episode is stopped; 0 plays to its end.
        fps: Frames a second, one frame per step. By default the film runs at the speed of the
            environment's own time; steps are skipped if that is too fast for a film.
        report: Called after each frame with the number of frames so far.
    """
    check_output(path)
    is_gif = path.suffix.lower() == ".gif"
    steps_per_frame = 1
    if fps is None:
        rate = 1 / envs.spec.step_seconds if envs.spec.step_seconds else STEPS_PER_SECOND
        steps_per_frame = math.ceil(rate / (50 if is_gif else 60) - 1e-6)
        fps = rate / steps_per_frame
    if is_gif:
        # A frame lasts whole hundredths of a second, and browsers show 0.01 s as 0.1 s.
        fps = 100 / max(2, round(100 / fps))
    player = _Player(agent, envs, episodes, max_steps, steps_per_frame, report)
    # Written beside the film and renamed at the end; the writers need the same suffix.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        _FORMATS[path.suffix.lower()](temporary, iter(player), fps)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return Film(path, tuple(player.episodes), player.finished, player.frames, *player.size, fps)


class _Player:
    """Plays greedy episodes, yields their pictures and records their scores."""

    def __init__(
        self,
        agent: Agent,
        envs: Envs,
        episodes: int,
        max_steps: int,
        steps_per_frame: int,
        report: Callable[[int], None],
    ) -> None:
        self.agent, self.envs = agent, envs
        self.num_episodes, self.max_steps, self.steps_per_frame = (
            episodes,
            max_steps,
            steps_per_frame,
        )
        self.report = report
        self.episodes: list[Episode] = []
        self.finished = True
        self.frames = 0
        self.size = (0, 0)

    def __iter__(self) -> Iterator[Picture]:
        """Yield a picture every ``steps_per_frame`` steps."""
        for _ in range(self.num_episodes):
            obs = self.envs.reset()
            score, length, self.finished = 0.0, 0, False
            while not self.finished and not (self.max_steps and length == self.max_steps):
                if length % self.steps_per_frame == 0:
                    picture = self.envs.render()
                    self.size = picture.shape[0], picture.shape[1]
                    yield picture
                    self.frames += 1
                    self.report(self.frames)
                action = self.agent.act_greedily(obs)
                step = self.envs.step(action)
                obs = step.obs
                score += float(step.reward[0])
                length += 1
                self.finished = bool(step.episodes)
            # The score of a finished game may include rewards of Atari's forced actions.
            episode = step.episodes[0] if self.finished else Episode(0, score, length)
            self.episodes.append(episode)


def _write_mp4(path: Path, pictures: Iterator[Picture], fps: float) -> None:
    """Encode as H.264 with the colors that every browser plays."""
    first = next(pictures)
    height, width, _ = first.shape
    command = [_ffmpeg(), "-y", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", str(Fraction(fps).limit_denominator(1_000))]
    command += ["-i", "-", "-an", "-c:v", "libx264", "-crf", "20", "-pix_fmt", "yuv420p"]
    # yuv420p stores colors at half the size, so height and width must be even.
    command += ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-movflags", "+faststart", str(path)]
    with tempfile.TemporaryFile() as errors:
        # In a new session Ctrl-C does not reach ffmpeg; this process then ends it.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        assert process.stdin is not None
        try:
            # If ffmpeg fails, the pipe breaks and its error message is raised below.
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                for picture in itertools.chain([first], pictures):
                    pipe.write(np.ascontiguousarray(picture).data)
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
        if process.returncode != 0:
            errors.seek(0)
            reason = errors.read().decode(errors="replace").strip()
            raise OSError(f"ffmpeg could not write the film: {reason or process.returncode}")


def _write_gif(path: Path, pictures: Iterator[Picture], fps: float) -> None:
    from PIL import Image

    first = Image.fromarray(next(pictures))
    others = (Image.fromarray(picture) for picture in pictures)
    duration = 10 * round(100 / fps)
    first.save(path, save_all=True, append_images=others, duration=duration, loop=0)


_FORMATS: dict[str, Callable[[Path, Iterator[Picture], float], None]] = {
    ".mp4": _write_mp4,
    ".gif": _write_gif,
}


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _ffmpeg() -> str:
    """Return the path of ffmpeg, the extra's or the system's; empty if there is none."""
    if _is_installed("imageio_ffmpeg"):
        import imageio_ffmpeg

        with contextlib.suppress(RuntimeError):
            path: str = imageio_ffmpeg.get_ffmpeg_exe()
            return path
    return shutil.which("ffmpeg") or ""
