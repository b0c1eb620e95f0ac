"""Films: what is in them, where they go, and what is said when they cannot be made."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import cli, envs, play, train
from hadamard.cli.train import spec_from
from hadamard.core.random import child_seed
from hadamard.core.types import EnvSpec, Episode, Step
from hadamard.envs import make
from hadamard.trained import load_agent

pytestmark = pytest.mark.skipif(
    bool(envs.missing("minatar")) or not play._has("PIL") or not play._has("imageio_ffmpeg"),
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
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def trained(env: str, folder: Path) -> Path:
    spec = spec_from(
        "dqn",
        [
            *("--env", env, "--run-dir", str(folder), "--device", "cpu", "--net.width", "16"),
            *("--train.steps", "120", "--train.health-every", "0", "--train.no-tensorboard"),
            *("--train.checkpoint-every", "0", "--algo.learning-starts", "40"),
            *("--algo.replay-capacity", "200"),
        ],
    )
    train.train("dqn", spec)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {env: trained(env, folder / env) for env in ("minatar/freeway", "probe/both")}


def read_mp4(path: Path, height: int, width: int) -> Any:
    command = [play._ffmpeg(), "-v", "error", "-i", str(path), "-f", "rawvideo"]
    done = subprocess.run([*command, "-pix_fmt", "rgb24", "-"], capture_output=True, check=True)
    return np.frombuffer(done.stdout, dtype=np.uint8).reshape(-1, height, width, 3)


def read_gif(path: Path) -> tuple[list[Any], list[int]]:
    """Its pictures, and how many milliseconds each lasts."""
    from PIL import Image

    pictures, durations = [], []
    with Image.open(path) as film:
        for index in range(getattr(film, "n_frames", 1)):
            film.seek(index)
            pictures.append(np.asarray(film.convert("RGB")))
            durations.append(film.info.get("duration", 0))
    return pictures, durations


def first_picture(seed: int = 0) -> Any:
    made = make("minatar/freeway", child_seed(seed, 22), 1, training=False)
    made.reset()
    return made.render()


def test_an_mp4_of_a_run(runs: dict[str, Path], command: Run) -> None:
    run = runs["minatar/freeway"]
    code, out, err = command("play", run, "--max-steps", "30", "--device", "cpu")
    assert (code, err) == (0, "")
    frames = read_mp4(run / "play.mp4", 400, 400)
    assert len(frames) == 30
    assert not np.array_equal(frames[0], frames[-1])
    # The codec loses a little; black or another game's picture is 20 away and more.
    assert np.abs(frames[0].astype(int) - first_picture()).mean() < 5
    assert f"{run} at step 120, minatar/freeway" in out
    assert "episode 1: score 0.00, 30 steps, not to its end" in out
    assert f"wrote {run / 'play.mp4'}: 30 frames of 400x400, 10 a second, " in out


def test_a_gif_of_whole_episodes(runs: dict[str, Path], command: Run, tmp_path: Path) -> None:
    film = tmp_path / "film.GIF"
    run = runs["probe/both"]
    code, out, _ = command("play", run, "--output", film, "--episodes", "6", "--fps", "4")
    assert code == 0
    pictures, durations = read_gif(film)
    # Pictures that follow on the same are one that lasts longer.
    assert sum(durations) == 6 * 250
    assert len({picture.tobytes() for picture in pictures}) == 2
    assert "episode 6: score" in out
    assert "1 steps\n" in out
    assert "not to its end" not in out
    assert "6 frames of 240x240, 4 a second" in out


def test_a_seed_is_a_film(runs: dict[str, Path], command: Run, tmp_path: Path) -> None:
    contents = []
    for name, seed in (("a.gif", 1), ("b.gif", 1), ("c.gif", 2)):
        words = ("--output", tmp_path / name, "--seed", seed, "--max-steps", "8")
        assert command("play", runs["minatar/freeway"], *words)[0] == 0
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]
    # Few colours: nothing is lost.
    assert np.array_equal(read_gif(tmp_path / "a.gif")[0][0], first_picture(1))


def test_it_is_the_greedy_agent_that_plays(runs: dict[str, Path], tmp_path: Path) -> None:
    agent, spec, _, device = load_agent(str(runs["minatar/freeway"]), "cpu")
    chosen = []
    act = agent.act

    def watched(obs: torch.Tensor, *, explore: bool = True) -> Any:
        action, extra = act(obs, explore=explore)
        chosen.append((explore, int(action), int(agent.network(obs).argmax())))
        return action, extra

    agent.act = watched
    made = make(spec.env, 0, 1, device, training=False)
    film = play.film(agent, made, tmp_path / "x.gif", max_steps=25)
    assert film.episodes[0].length == len(chosen) == 25
    assert all(not explore and action == best for explore, action, best in chosen)


class Still:
    """An environment whose n-th picture is the number n, and whose episodes last ten steps."""

    num_envs = 1

    def __init__(self, step_seconds: float = 0.0, fails_when: Any = None) -> None:
        self.spec = EnvSpec((1,), torch.float32, 2, step_seconds=step_seconds)
        self.time, self.fails_when = 0, fails_when

    def reset(self) -> torch.Tensor:
        self.time = 0
        return torch.zeros(1, 1)

    def step(self, action: torch.Tensor) -> Step:
        self.time += 1
        over = self.time == 10
        return Step(
            torch.zeros(1, 1),
            torch.ones(1),
            torch.tensor([over]),
            torch.tensor([False]),
            episodes=(Episode(0, 10.0, 10),) if over else (),
        )

    def render(self) -> Any:
        if self.time > 4 and self.fails_when is not None:
            deadline = time.monotonic() + 10
            while not self.fails_when() and time.monotonic() < deadline:
                time.sleep(0.01)
            raise RuntimeError("out of light")
        return np.full((31, 33, 3), 20 * self.time, dtype=np.uint8)  # odd sizes


class Idle:
    def act(self, obs: torch.Tensor, *, explore: bool = True) -> Any:
        return torch.zeros(1, dtype=torch.long), {}


def film(path: Path, made: Still, **options: Any) -> play.Film:
    agent: Any = Idle()
    envs: Any = made
    return play.film(agent, envs, path, **options)


@pytest.mark.parametrize(
    ("step_seconds", "ending", "frames", "fps"),
    [
        (0.0, "mp4", 10, 10.0),  # time without a unit
        (0.05, "mp4", 10, 20.0),  # real time
        (0.02, "gif", 10, 50.0),
        (0.008, "mp4", 4, 125 / 3),  # too fast for a film: every third step
        (0.008, "gif", 4, 50.0),  # as near as a GIF comes: 42 a second is 2.4 hundredths
        (4 / 60, "gif", 10, 100 / 7),
    ],
)
def test_time_passes_as_in_the_world(
    step_seconds: float, ending: str, frames: int, fps: float, tmp_path: Path
) -> None:
    made = film(tmp_path / f"film.{ending}", Still(step_seconds))
    assert made.frames == frames
    assert made.fps == pytest.approx(fps)
    every = 1 if frames == 10 else 3
    shown = [20 * time for time in range(0, 10, every)]
    if ending == "gif":
        pictures, durations = read_gif(made.path)
        assert [int(picture[0, 0, 0]) for picture in pictures] == shown
        assert set(durations) == {round(1000 / fps)}
    else:
        pictures = read_mp4(made.path, 32, 34)  # a codec's sizes are even
        assert [int(picture[5, 5, 0]) for picture in pictures] == pytest.approx(shown, abs=3)


def test_a_chosen_pace_shows_every_step(tmp_path: Path) -> None:
    told: list[int] = []
    made = film(tmp_path / "a.mp4", Still(0.008), fps=120.0, episodes=2, report=told.append)
    assert (made.frames, made.fps, made.finished) == (20, 120.0, True)
    assert told == list(range(1, 21))
    assert [episode[1:] for episode in made.episodes] == [(10.0, 10)] * 2
    left = film(tmp_path / "a.mp4", Still(), episodes=2, max_steps=4)
    assert (left.frames, left.finished) == (8, False)
    assert [episode[1:] for episode in left.episodes] == [(4.0, 4)] * 2
    # Ended in the last step that was allowed.
    assert film(tmp_path / "a.mp4", Still(), max_steps=10).finished


@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_failure_leaves_what_was_there(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"film.{ending}"
    film(path, Still())
    before = path.read_bytes()

    def half_written() -> bool:
        return len(list(tmp_path.iterdir())) == 2

    with pytest.raises(RuntimeError, match="out of light"):
        film(path, Still(fails_when=half_written))
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_what_ffmpeg_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ffmpeg"
    broken.write_text("#!/bin/sh\necho no such encoder >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(play, "_ffmpeg", lambda: str(broken))
    with pytest.raises(OSError, match="ffmpeg could not write the film: no such encoder"):
        film(tmp_path / "film.mp4", Still())
    assert [found.name for found in tmp_path.iterdir()] == ["ffmpeg"]


@pytest.fixture
def unplayed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What is wrong is said before an agent is loaded."""
    loading = "hadamard.cli.play.load_agent"
    monkeypatch.setattr(loading, lambda *_: pytest.fail("an agent was loaded"))
    return monkeypatch


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--output", "film.avi"], "written as .mp4 or .gif; film.avi ends in '.avi'"),
        (["--output", "film"], "film has no ending"),
        (["--output", "/nowhere/at/all/film.mp4"], "cannot be written: No such file or directory"),
        (["--output", "/dev/null/film.gif"], "cannot be written: Not a directory"),
        (["--episodes", "0"], "--episodes and --fps must be positive"),
        (["--fps", "0"], "--episodes and --fps must be positive"),
        (["--max-steps", "-1"], "--max-steps not negative"),
    ],
)
def test_what_cannot_be_filmed(
    words: list[str],
    message: str,
    runs: dict[str, Path],
    command: Run,
    unplayed: pytest.MonkeyPatch,
) -> None:
    code, out, err = command("play", runs["probe/both"], *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_folder_is_no_film(
    runs: dict[str, Path], command: Run, unplayed: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "films.mp4"
    folder.mkdir()
    assert "is a folder" in command("play", runs["probe/both"], "--output", folder)[2]
    assert "is not a run" in command("play", tmp_path)[2]


def test_a_missing_writer_names_its_extra(
    runs: dict[str, Path], command: Run, unplayed: pytest.MonkeyPatch
) -> None:
    run = runs["probe/both"]
    unplayed.setattr(play, "_ffmpeg", lambda: "")
    assert play.default_output(run) == run / "play.gif"
    code, _, err = command("play", run, "--output", run / "film.mp4")
    assert code == 2
    assert "an MP4 needs ffmpeg: pip install 'hadamard-rl[play]', or name a .gif" in err
    unplayed.setattr(play, "_has", lambda module: False)
    assert "needs ffmpeg: pip install 'hadamard-rl[play]'\n" in command("play", run)[2]
    words = ("play", run, "--output", run / "film.gif")
    assert "a GIF needs pillow: pip install 'hadamard-rl[play]'" in command(*words)[2]


def test_the_systems_ffmpeg_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "_has", lambda module: False)
    monkeypatch.setattr(play.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert play._ffmpeg() == "/usr/bin/ffmpeg"


def test_help(command: Run) -> None:
    assert "play" in command("--help")[1]
    code, out, _ = command("play", "--help")
    assert code == 0
    for option in ("--output", "--episodes", "--seed", "--max-steps", "--fps", "--device"):
        assert option in out


def pictured() -> Iterator[Any]:
    for suite in ("minatar", "probe", "atari"):
        skip = pytest.mark.skipif(bool(envs.missing(suite)), reason=f"needs the {suite} extra")
        for task in ("Breakout",) if suite == "atari" else envs.tasks(suite):
            yield pytest.param(f"{suite}/{task}", marks=skip)


@pytest.mark.parametrize("name", list(pictured()))
def test_a_picture_of_the_first_environment(name: str) -> None:
    made = make(name, 0, 2)
    spec = made.spec
    made.reset()
    seen = set()
    random = torch.Generator().manual_seed(0)
    for _ in range(12):
        picture = made.render()
        assert picture.dtype == np.uint8
        height, width, colours = picture.shape
        assert 200 <= height <= 500
        assert 200 <= width <= 500
        assert colours == 3
        assert np.array_equal(picture, made.render())  # looking changes nothing
        seen.add(picture.tobytes())
        if spec.continuous:
            made.step(2 * torch.rand(2, spec.action_size, generator=random) - 1)
        else:
            made.step(torch.randint(spec.num_actions, (2,), generator=random))
    made.close()
    alike = ("probe/constant", "probe/action")  # where nothing is random and a step is an episode
    assert len(seen) > 1 or name in alike


@pytest.mark.skipif(bool(envs.missing("atari")), reason="needs the atari extra")
def test_atari_is_in_colour() -> None:
    made = make("atari/Breakout", 0, 1)
    made.reset()
    picture = made.render()
    made.close()
    assert picture.shape == (420, 320, 3)
    assert (picture[..., 0] != picture[..., 2]).any()


def test_minatar_channels_have_their_own_colours() -> None:
    made: Any = make("minatar/seaquest", 0, 1)
    obs = made.reset()[0]
    grid = made.render()[20::40, 20::40]
    lit = obs.bool().any(0).numpy()
    background = grid[~lit]
    assert (background == background[0]).all()
    for channel in obs.bool().numpy():
        others = obs.bool().numpy().sum(0) - channel
        colours = {tuple(colour) for colour in grid[channel & (others == 0)].tolist()}
        assert len(colours) <= 1
        assert tuple(background[0].tolist()) not in colours
    from hadamard.envs.minatar import _COLOURS

    assert len({tuple(colour) for colour in _COLOURS.tolist()}) == len(_COLOURS) == 11


def test_workers_ask_the_first_for_a_picture() -> None:
    there = make("probe/image", 3, 4, workers=2)
    try:
        shown = there.reset()
        lit = int(shown[0, 0, 0].argmax())
        column = there.render()[0, :, 0].argmax()
        assert column == lit * 24
    finally:
        there.close()
