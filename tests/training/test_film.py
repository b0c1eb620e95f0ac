"""Films: their pictures, where they are written, and errors when they cannot be."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import cli, envs
from hadamard.cli.train import spec_from
from hadamard.core.random import child_seed
from hadamard.core.types import EnvSpec, Episode, Step
from hadamard.envs import make
from hadamard.training import film, start
from hadamard.training.load_agent import load_agent

pytestmark = pytest.mark.skipif(
    bool(envs.missing("minatar"))
    or not film._is_installed("PIL")
    or not film._is_installed("imageio_ffmpeg"),
    reason="needs the minatar and play extras",
)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "160")

    def run(*words: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 1
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def train_run(env: str, folder: Path) -> Path:
    spec = spec_from(
        "dqn",
        [
            *("--env", env, "--run-dir", str(folder), "--device", "cpu", "--net.width", "16"),
            *("--train.steps", "120", "--train.health-every", "0", "--train.no-tensorboard"),
            *("--train.checkpoint-every", "0", "--algo.learning-starts", "40"),
            *("--algo.replay-capacity", "200"),
        ],
    )
    start.train("dqn", spec)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {env: train_run(env, folder / env) for env in ("minatar/freeway", "probe/both")}


def read_mp4(path: Path, height: int, width: int) -> Any:
    command = [film._ffmpeg(), "-v", "error", "-i", str(path), "-f", "rawvideo"]
    completed = subprocess.run(
        [*command, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True
    )
    return np.frombuffer(completed.stdout, dtype=np.uint8).reshape(-1, height, width, 3)


def read_gif(path: Path) -> tuple[list[Any], list[int]]:
    """Return the pictures, and how many milliseconds each is shown."""
    from PIL import Image

    pictures, durations = [], []
    with Image.open(path) as image:
        for index in range(getattr(image, "n_frames", 1)):
            image.seek(index)
            pictures.append(np.asarray(image.convert("RGB")))
            durations.append(image.info.get("duration", 0))
    return pictures, durations


def first_picture(seed: int = 0) -> Any:
    batch = make("minatar/freeway", child_seed(seed, 22), 1, training=False)
    batch.reset()
    return batch.render()


def test_an_mp4_of_a_run(runs: dict[str, Path], command: Run) -> None:
    run = runs["minatar/freeway"]
    code, out, err = command("play", run, "--max-steps", "30", "--device", "cpu")
    assert (code, err) == (0, "")
    frames = read_mp4(run / "play.mp4", 400, 400)
    assert len(frames) == 30
    assert not np.array_equal(frames[0], frames[-1])
    # The codec loses a little; a black picture or another game's differs by at least 20.
    assert np.abs(frames[0].astype(int) - first_picture()).mean() < 5
    assert f"{run} at step 120, minatar/freeway" in out
    assert "episode 1: score 0.00, 30 steps (stopped before its end)" in out
    assert f"wrote {run / 'play.mp4'}: 30 frames of 400x400, 10 a second, " in out


def test_a_gif_of_whole_episodes(runs: dict[str, Path], command: Run, tmp_path: Path) -> None:
    path = tmp_path / "film.GIF"
    run = runs["probe/both"]
    code, out, _ = command("play", run, "--output", path, "--episodes", "6", "--fps", "4")
    assert code == 0
    pictures, durations = read_gif(path)
    # Equal pictures in a row become one that is shown longer.
    assert sum(durations) == 6 * 250
    assert len({picture.tobytes() for picture in pictures}) == 2
    assert "episode 6: score" in out
    assert "1 step\n" in out
    assert "stopped before its end" not in out
    assert "6 frames of 240x240, 4 a second" in out


def test_a_seed_determines_the_film(runs: dict[str, Path], command: Run, tmp_path: Path) -> None:
    contents = []
    for name, seed in (("a.gif", 1), ("b.gif", 1), ("c.gif", 2)):
        words = ("--output", tmp_path / name, "--seed", seed, "--max-steps", "8")
        assert command("play", runs["minatar/freeway"], *words)[0] == 0
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]
    # A GIF of few colors loses nothing.
    assert np.array_equal(read_gif(tmp_path / "a.gif")[0][0], first_picture(1))


def test_the_greedy_agent_plays(runs: dict[str, Path], tmp_path: Path) -> None:
    agent, spec, _, device, _ = load_agent(str(runs["minatar/freeway"]), "cpu")
    actions = []
    act_greedily = agent.act_greedily

    def act_and_record(obs: torch.Tensor) -> torch.Tensor:
        action = act_greedily(obs)
        actions.append((int(action), int(agent.network(obs).argmax())))
        return action

    agent.act_greedily = act_and_record
    batch = make(spec.env, 0, 1, device, training=False)
    written = film.film(agent, batch, tmp_path / "x.gif", max_steps=25)
    assert written.episodes[0].length == len(actions) == 25
    assert all(action == best for action, best in actions)


class GrayEnvs:
    """An environment whose n-th picture has the gray value 20 n; episodes last ten steps."""

    num_envs = 1

    def __init__(self, step_seconds: float = 0.0, fails_when: Any = None) -> None:
        self.spec = EnvSpec((1,), torch.float32, 2, step_seconds=step_seconds)
        self.time, self.fails_when = 0, fails_when

    def reset(self) -> torch.Tensor:
        self.time = 0
        return torch.zeros(1, 1)

    def step(self, action: torch.Tensor) -> Step:
        self.time += 1
        ended = self.time == 10
        return Step(
            torch.zeros(1, 1),
            torch.ones(1),
            torch.tensor([ended]),
            torch.tensor([False]),
            episodes=(Episode(0, 10.0, 10),) if ended else (),
        )

    def render(self) -> Any:
        if self.time > 4 and self.fails_when is not None:
            deadline = time.monotonic() + 10
            while not self.fails_when() and time.monotonic() < deadline:
                time.sleep(0.01)
            raise RuntimeError("out of light")
        return np.full((31, 33, 3), 20 * self.time, dtype=np.uint8)  # odd sizes


class Idle:
    def act_greedily(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1, dtype=torch.long)


def write(path: Path, gray: GrayEnvs, **options: Any) -> film.Film:
    agent: Any = Idle()
    envs: Any = gray
    return film.film(agent, envs, path, **options)


@pytest.mark.parametrize(
    ("step_seconds", "ending", "frames", "fps"),
    [
        (0.0, "mp4", 10, 10.0),  # time without a unit
        (0.05, "mp4", 10, 20.0),  # real time
        (0.02, "gif", 10, 50.0),
        (0.008, "mp4", 4, 125 / 3),  # too fast for a film: every third step
        (0.008, "gif", 4, 50.0),  # 42 a second are 2.4 hundredths, which a GIF rounds to 2
        (4 / 60, "gif", 10, 100 / 7),
    ],
)
def test_a_film_runs_at_the_speed_of_the_environment(
    step_seconds: float, ending: str, frames: int, fps: float, tmp_path: Path
) -> None:
    written = write(tmp_path / f"film.{ending}", GrayEnvs(step_seconds))
    assert written.frames == frames
    assert written.fps == pytest.approx(fps)
    every = 1 if frames == 10 else 3
    grays = [20 * time for time in range(0, 10, every)]
    if ending == "gif":
        pictures, durations = read_gif(written.path)
        assert [int(picture[0, 0, 0]) for picture in pictures] == grays
        assert set(durations) == {round(1000 / fps)}
    else:
        pictures = read_mp4(written.path, 32, 34)  # the codec needs even sizes
        assert [int(picture[5, 5, 0]) for picture in pictures] == pytest.approx(grays, abs=3)


def test_with_fps_every_step_is_a_frame(tmp_path: Path) -> None:
    reports: list[int] = []
    written = write(
        tmp_path / "a.mp4", GrayEnvs(0.008), fps=120.0, episodes=2, report=reports.append
    )
    assert (written.frames, written.fps, written.finished) == (20, 120.0, True)
    assert reports == list(range(1, 21))
    assert [episode[1:] for episode in written.episodes] == [(10.0, 10)] * 2
    stopped = write(tmp_path / "a.mp4", GrayEnvs(), episodes=2, max_steps=4)
    assert (stopped.frames, stopped.finished) == (8, False)
    assert [episode[1:] for episode in stopped.episodes] == [(4.0, 4)] * 2
    # An episode may end in the last step allowed.
    assert write(tmp_path / "a.mp4", GrayEnvs(), max_steps=10).finished


@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_failure_keeps_the_earlier_film(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"film.{ending}"
    write(path, GrayEnvs())
    before = path.read_bytes()

    def half_written() -> bool:
        return len(list(tmp_path.iterdir())) == 2

    with pytest.raises(RuntimeError, match="out of light"):
        write(path, GrayEnvs(fails_when=half_written))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_ffmpegs_error_message_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ffmpeg"
    broken.write_text("#!/bin/sh\necho no such encoder >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(film, "_ffmpeg", lambda: str(broken))
    with pytest.raises(OSError, match="ffmpeg could not write the film: no such encoder"):
        write(tmp_path / "film.mp4", GrayEnvs())
    assert [file.name for file in tmp_path.iterdir()] == ["ffmpeg"]


@pytest.fixture
def without_loading(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Errors are found before an agent is loaded."""
    load_agent = "hadamard.training.load_agent.load_agent"
    monkeypatch.setattr(load_agent, lambda *_: pytest.fail("an agent was loaded"))
    return monkeypatch


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "film.avi"], "--output: name a film .mp4 or .gif, got film.avi"),
        (["--output", "film"], "name a film .mp4 or .gif, got film"),
        (["--output", "/nowhere/at/all/film.mp4"], "cannot be written: No such file or directory"),
        (["--output", "/dev/null/film.gif"], "cannot be written: Not a directory"),
        (["--episodes", "0"], "--episodes and --fps must be positive"),
        (["--fps", "0"], "--episodes and --fps must be positive"),
        (["--max-steps", "-1"], "--max-steps must be 0 or more"),
    ],
)
def test_wrong_arguments(
    words: list[str],
    message: str,
    runs: dict[str, Path],
    command: Run,
    without_loading: pytest.MonkeyPatch,
) -> None:
    code, out, err = command("play", runs["probe/both"], *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_folder_is_not_a_film(
    runs: dict[str, Path], command: Run, without_loading: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "films.mp4"
    folder.mkdir()
    assert "is a folder" in command("play", runs["probe/both"], "--output", folder)[2]
    assert "is not a run" in command("play", tmp_path)[2]


def test_without_ffmpeg_or_pillow_the_extra_is_named(
    runs: dict[str, Path], command: Run, without_loading: pytest.MonkeyPatch
) -> None:
    run = runs["probe/both"]
    without_loading.setattr(film, "_ffmpeg", lambda: "")
    assert film.default_output(run) == run / "play.gif"
    code, _, err = command("play", run, "--output", run / "film.mp4")
    assert code == 2
    assert "an MP4 needs ffmpeg: pip install 'hadamard-rl[play]' (from a checkout: " in err
    assert ", or name a .gif" in err
    without_loading.setattr(film, "_is_installed", lambda module: False)
    assert (
        "needs ffmpeg: pip install 'hadamard-rl[play]' (from a checkout: pip install '.[play]')\n"
        in command("play", run)[2]
    )
    words = ("play", run, "--output", run / "film.gif")
    assert "a GIF needs pillow: pip install 'hadamard-rl[play]'" in command(*words)[2]


def test_the_systems_ffmpeg_is_used_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "_is_installed", lambda module: False)
    monkeypatch.setattr(film.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert film._ffmpeg() == "/usr/bin/ffmpeg"


def test_help(command: Run) -> None:
    assert "play" in command("--help")[1]
    code, out, _ = command("play", "--help")
    assert code == 0
    for option in ("--output", "--episodes", "--seed", "--max-steps", "--fps", "--device"):
        assert option in out
