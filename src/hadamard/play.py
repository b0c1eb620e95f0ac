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

Picture = NDArray[np.uint8]

EXTRA = "pip install 'hadamard-rl[play]'"
STEPS_PER_SECOND = 10.0
"""How fast a world is shown whose time has no unit."""


@dataclass(frozen=True)
class Film:
    """What was filmed."""

    path: Path
    episodes: tuple[Episode, ...]
    finished: bool
    """Whether the last episode was played to its end."""
    frames: int
    height: int
    width: int
    fps: float

    def __str__(self) -> str:
        size = self.path.stat().st_size
        told = f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"
        count = f"{self.frames} frame{'s' if self.frames != 1 else ''}"
        return (
            f"{self.path}: {count} of {self.width}x{self.height}, {self.fps:.3g} a second, {told}"
        )


def default_output(folder: Path) -> Path:
    """Return where a run's film goes: MP4 where it can be written, otherwise GIF."""
    return folder / ("play.mp4" if _ffmpeg() or not _has("PIL") else "play.gif")


def check_output(path: Path) -> None:
    """Refuse a film that could not be written, before anything is played for it."""
    if path.suffix.lower() not in _FORMATS:
        ending = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise ValueError(f"a film is written as {' or '.join(_FORMATS)}; {path} {ending}")
    if path.suffix.lower() == ".mp4" and not _ffmpeg():
        instead = ", or name a .gif" if _has("PIL") else ""
        raise ImportError(f"an MP4 needs ffmpeg: {EXTRA}{instead}")
    if path.suffix.lower() == ".gif" and not _has("PIL"):
        raise ImportError(f"a GIF needs pillow: {EXTRA}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file in it")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from error


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
        agent: Who plays.
        envs: One environment.
        path: The film, ``.mp4`` or ``.gif``; it appears when it is complete.
        episodes: How many are played, one after another.
        max_steps: Steps after which an episode is left; 0 plays to its end.
        fps: Frames, each of one step, in a second. By default time passes as in the
            environment's world, and steps are left out where a film cannot be as fast.
        report: Told how many frames there are, after each.
    """
    check_output(path)
    is_gif = path.suffix.lower() == ".gif"
    every = 1
    if fps is None:
        rate = 1 / envs.spec.step_seconds if envs.spec.step_seconds else STEPS_PER_SECOND
        every = math.ceil(rate / (50 if is_gif else 60) - 1e-6)
        fps = rate / every
    if is_gif:
        # A frame lasts whole hundredths of a second, and browsers take one for ten.
        fps = 100 / max(2, round(100 / fps))
    playing = _Playing(agent, envs, episodes, max_steps, every, report)
    # Beside the film, so that it appears in one step; the writers go by the ending.
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        _FORMATS[path.suffix.lower()](part, iter(playing), fps)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return Film(path, tuple(playing.episodes), playing.finished, playing.frames, *playing.size, fps)


class _Playing:
    """Plays while its pictures are taken, and remembers what happened."""

    def __init__(
        self,
        agent: Agent,
        envs: Envs,
        episodes: int,
        max_steps: int,
        every: int,
        report: Callable[[int], None],
    ) -> None:
        self.agent, self.envs = agent, envs
        self.wanted, self.max_steps, self.every = episodes, max_steps, every
        self.report = report
        self.episodes: list[Episode] = []
        self.finished = True
        self.frames = 0
        self.size = (0, 0)

    def __iter__(self) -> Iterator[Picture]:
        """Yield a picture of every step, or of every few."""
        for _ in range(self.wanted):
            obs = self.envs.reset()
            score, length, self.finished = 0.0, 0, False
            while not self.finished and not (self.max_steps and length == self.max_steps):
                if length % self.every == 0:
                    picture = self.envs.render()
                    self.size = picture.shape[0], picture.shape[1]
                    yield picture
                    self.frames += 1
                    self.report(self.frames)
                action, _ = self.agent.act(obs, explore=False)
                step = self.envs.step(action)
                obs = step.obs
                score += float(step.reward[0])
                length += 1
                self.finished = bool(step.episodes)
            # A finished game's score may count what nobody chose (Atari's forced actions).
            episode = step.episodes[0] if self.finished else Episode(0, score, length)
            self.episodes.append(episode)


def _write_mp4(path: Path, pictures: Iterator[Picture], fps: float) -> None:
    """Encode as H.264 with the colours that every browser plays."""
    first = next(pictures)
    height, width, _ = first.shape
    command = [_ffmpeg(), "-y", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", str(Fraction(fps).limit_denominator(1_000))]
    command += ["-i", "-", "-an", "-c:v", "libx264", "-crf", "20", "-pix_fmt", "yuv420p"]
    # The colours are kept at half the size, which must be whole.
    command += ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-movflags", "+faststart", str(path)]
    with tempfile.TemporaryFile() as said:
        # A session of its own: Ctrl-C is for this process, which then ends the other.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=said, start_new_session=True
        )
        assert process.stdin is not None
        try:
            # When the pipe breaks, what ffmpeg said of it is told below.
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
                for picture in itertools.chain([first], pictures):
                    pipe.write(np.ascontiguousarray(picture).data)
        except BaseException:
            process.kill()
            raise
        finally:
            process.wait()
        if process.returncode != 0:
            said.seek(0)
            reason = said.read().decode(errors="replace").strip()
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


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _ffmpeg() -> str:
    """Return the ffmpeg of the extra, or the system's; empty where there is none."""
    if _has("imageio_ffmpeg"):
        import imageio_ffmpeg

        with contextlib.suppress(RuntimeError):
            found: str = imageio_ffmpeg.get_ffmpeg_exe()
            return found
    return shutil.which("ffmpeg") or ""
