"""Runs that were trained with plugins: what they record, and who needs the plugins again."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hadamard.core import checkpoint, plugins
from hadamard.core.files import RunError
from hadamard.core.run import Run
from hadamard.report.data.runs import load
from hadamard.training import start
from tests.support.commands import Command, small
from tests.support.plugins import environment_with, write_package, write_plugin


def train(command: Command, run: Path, *words: str | Path, until: int = 200) -> None:
    """Train half of a run of Double DQN with weight noise and maxout."""
    settings = {"--train.until": until, "--net.layer": "maxout", "--remedy": "weight_noise"}
    settings |= {"--weight-noise.period": 10}
    result = command(*small("dqn", run, settings), *words)
    assert result.code == 0, result.err


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The options that name a layer and a remedy."""
    paths = [write_plugin(tmp_path, name) for name in ("maxout", "weight_noise")]
    return [word for path in paths for word in ("--plugin", str(path))]


def recorded(run: Path) -> dict[str, Any]:
    plugins: dict[str, Any] = json.loads((run / "config.json").read_text())["plugins"]
    return plugins


def checksum(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_a_run_records_its_plugins_and_asks_for_them_again(
    tmp_path: Path, files: list[str], command: Command
) -> None:
    run = tmp_path / "run"
    unused = write_plugin(tmp_path, "grid_world")
    train(command, run, *files, "--plugin", unused)
    assert recorded(run) == {
        "layers/maxout": {"file": "maxout.py", "sha256": checksum(files[1])},
        "plasticity/weight_noise": {"file": "weight_noise.py", "sha256": checksum(files[3])},
    }
    manifest = checkpoint.manifest(checkpoint.newest(run / "checkpoints"))
    assert manifest.settings is not None
    assert manifest.settings["plugins.layers/maxout"] == checksum(files[1])
    for words in (
        ["train", "--resume", run, "--until", "0"],
        ["evaluate", run],
        ["analyze", run],
        ["play", run, "--output", tmp_path / "film.gif"],
    ):
        result = command(*words)
        assert (result.code, result.out) == (2, "")
        assert (
            f"the plugin maxout.py (layer variant maxout, sha256 {checksum(files[1])})"
            in result.err
        )
        assert "name it with --plugin maxout.py" in result.err
        assert command(*words, *files[:2]).err.count("the plugin weight_noise.py (remedy") == 1
    assert command("evaluate", run, "--episodes", "2", *files).code == 0
    result = command("train", "--resume", run, "--until", "0", *files)
    assert (result.code, result.err) == (0, "")
    # A finished run is the same with and without a stop.
    whole = tmp_path / "whole"
    train(command, whole, *files, until=0)
    for stream in ("train", "episodes", "health"):
        texts = {(path / f"{stream}.jsonl").read_text() for path in (run, whole)}
        assert len(texts) == 1


def test_a_plugin_that_has_changed_is_refused_unless_that_is_stated(
    tmp_path: Path, files: list[str], command: Command
) -> None:
    run, file = tmp_path / "run", Path(files[3])
    train(command, run, *files)
    before = checksum(files[3])
    file.write_text(file.read_text().replace("config.scale *", "2 * config.scale *"))
    after = checksum(files[3])
    kept = (run / "config.json").read_text()
    resume = ["train", "--resume", run, "--until", "300", *files]
    result = command(*resume)
    assert result.code == 2
    changed = f"is not the one that {run} was trained with (sha256 {before[:12]} there, "
    changed += f"sha256 {after[:12]} here)"
    assert f"the plugin {file} {changed}" in result.err
    assert "or state the change with --changed-plugins" in result.err
    assert (run / "config.json").read_text() == kept
    result = command("evaluate", run, "--episodes", "2", *files)
    assert result.code == 0
    assert changed in result.err
    assert command(*resume, "--changed-plugins").code == 0
    assert recorded(run)["plasticity/weight_noise"] == {
        "file": "weight_noise.py",
        "sha256": after,
        "earlier": [{"sha256": before, "until_step": 200}],
    }
    result = command("train", "--resume", run, "--until", "0", *files)
    assert (result.code, result.err) == (0, "")


def test_checkpoints_are_bound_to_the_plugins_they_were_trained_with(
    tmp_path: Path, files: list[str], command: Command
) -> None:
    run = tmp_path / "run"
    train(command, run, *files)
    config = json.loads((run / "config.json").read_text())
    resume = ["train", "--resume", run, "--until", "0", *files]

    def edited(**entries: Any) -> str:
        (run / "config.json").write_text(json.dumps({**config, "plugins": entries}))
        result = command(*resume)
        assert result.code == 2
        return result.err

    both = config["plugins"]
    assert "plugins.layers/maxout: '" in edited(
        **{**both, "layers/maxout": {"file": "maxout.py", "sha256": "0" * 64}}
    )
    removed = {key: both[key] for key in ("layers/maxout",)}
    assert "names plasticity/weight_noise, which is the plugin" in edited(**removed)
    more = {**both, "algos/mine": {"file": "mine.py", "sha256": "1" * 64}}
    assert "the plugin mine.py (algorithm mine, sha256 1111" in edited(**more)
    for wrong in ({"layers/maxout": 3}, {"layers/maxout": {"file": "x"}}):
        assert "config.json is damaged (plugins.layers/maxout" in edited(**wrong)
    strange = {**both["layers/maxout"], "earlier": [{"sha256": 7}]}
    assert "earlier[0].sha256 must be a text" in edited(**{**both, "layers/maxout": strange})


def test_a_report_shows_runs_whose_plugins_are_not_there(tmp_path: Path, command: Command) -> None:
    file = write_plugin(tmp_path, "double_dqn")
    runs = tmp_path / "runs"

    def trained(name: str, *more: str) -> int:
        words = small("dqn", runs / name)[2:]
        return command("train", "double_dqn", *words, "--plugin", file, *more).code

    assert trained("one") == 0
    first = checksum(str(file))
    file.write_text(file.read_text() + "\n# another\n")
    assert trained("two", "--seed", "1") == 0
    assert command("pack", runs, "-o", tmp_path / "packed").code == 0
    file.unlink()
    for source in (runs, tmp_path / "packed"):
        # Seeds that were trained with different texts are no seeds of one variant.
        labels = sorted(run.label for run in load([source]))
        assert f"ReLU, double_dqn.py {first[:8]}" in labels
        assert len(set(labels)) == 2
        page = tmp_path / "report.html"
        assert command("report", source, "-o", page).code == 0
        text = page.read_text()
        assert "DOUBLE DQN" in text
        assert f"algos/double_dqn (sha256 {first[:12]})" in text
        assert "double_dqn --env probe/both --seed 0 --plugin double_dqn.py" in text
        folder = tmp_path / f"full-{source.name}"
        assert command("report", source, "-o", folder).code == 0
        assert "DOUBLE DQN" in (folder / "index.html").read_text()


def test_lists_and_helps_know_plugins(tmp_path: Path, command: Command) -> None:
    names = ("double_dqn", "grid_world", "maxout", "weight_noise")
    options = [w for n in names for w in ("--plugin", str(write_plugin(tmp_path, n)))]
    assert re.search("^double_dqn +Double DQN: ", command("algos", *options).out, re.M)
    assert "grid-world/small" in command("envs", *options).out
    assert command("envs", "grid-world", *options).out.startswith("grid-world: Grid world: walk")
    own = command("train", "double_dqn", *options, "--remedy", "weight_noise", "--help").out
    assert "layernorm, maxout, widened" in own
    assert "The noise's deviation, as a share" in own
    assert "--plugin PATH" in own
    shared = command("train", *options, "--help").out
    for line in ("double_dqn +Double DQN", "weight_noise +Weight noise", "maxout +Maxout"):
        assert re.search(f"^  {line}: ", shared, re.M)
    sweep = command("sweep", *options, "--help").out
    assert "maxout" in sweep
    assert "weight_noise" in sweep
    # They are forgotten when the command is over.
    assert "double_dqn" not in command("algos").out
    assert "maxout" not in command("sweep", "--help").out
    for name in ("evaluate", "analyze", "play", "report", "bench", "demo", "envs", "algos"):
        assert "--plugin" in command(name, "--help").out, name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algos", "--plugin"], "--plugin needs a file or the name of a module after it"),
        (["algos", "--plugin", "maxuot"], "neither such a file nor a module maxuot. Name a file"),
        (["algos", "--plugin="], "--plugin is empty: name a file"),
        (["train", "dqn", "--plugin", "nothing.py"], "the plugin nothing.py is missing"),
        (["sweep", "dqn", "--plugin", "wrong.py"], "fails on import, {}/wrong.py, line 2: Zero"),
        (["report", "x", "--plugin=wrong.py"], "line 2: ZeroDivisionError: division by zero"),
        (["envs", "--plugin", "a.py", "--plugin", "./a.py"], "--plugin names ./a.py twice"),
        (["pack", "x", "--plugin", "a.py"], "Unrecognized options"),
        (["train", "dqn", "--plugin", "redo.py"], "the remedy redo is there already: "),
        (["train", "--resume", "x", "--changed-plugins"], "x is not a run"),
        (["train", "dqn", "--weight-noise.scale", "1"], "Unrecognized options"),
        (["train", "dqn", "--plugin", "weight_noise.py", "--weight-noise.scale", "1"],
         "--weight-noise.scale is a setting of the remedy weight_noise, which is not chosen"),
    ],
)  # fmt: skip
def test_a_wrong_plugin_is_one_line(
    words: list[str],
    message: str,
    tmp_path: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.py").write_text("value = 1\nvalue / 0\n")
    (tmp_path / "a.py").write_text("def build(recipe): ...\n")
    remedy = write_plugin(tmp_path, "weight_noise")
    (tmp_path / "redo.py").write_text(remedy.read_text())
    result = command(*words)
    assert result.code == 2
    shown = result.err + result.out
    assert message.format(tmp_path) in shown
    assert "Traceback" not in shown
    if "Unrecognized" not in message:
        assert result.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_an_installed_package_needs_no_option(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_plugin(tmp_path, "double_dqn").read_text()
    suite = write_plugin(tmp_path, "grid_world").read_text()
    folder = write_package(tmp_path / "site", "hadamard.algos", {"double_dqn": text}, "twin")
    write_package(folder, "hadamard.envs", {"grid_world": suite}, "worlds")
    imported = folder / "imported"
    run = tmp_path / "run"
    variables = environment_with(folder)

    def hadamard(*words: str | Path) -> str:
        line = [sys.executable, "-m", "hadamard", *map(str, words)]
        done = subprocess.run(line, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "double_dqn  Double DQN" in hadamard("algos")
    listed = hadamard("envs")
    assert "of the package worlds 1.0: `hadamard envs grid-world` lists its tasks" in listed
    assert not imported.exists()
    settings = {"--env": "grid-world/small", "--train.env-workers": 1, "--train.until": 200}
    hadamard("train", "double_dqn", *small("dqn", run, settings)[2:])
    assert imported.exists()
    imported.unlink()
    assert recorded(run)["algos/double_dqn"] == {
        "file": "double_dqn.py",
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "package": "twin 1.0",
    }
    assert recorded(run)["envs/grid_world"]["package"] == "worlds 1.0"
    hadamard("report", run, "-o", tmp_path / "report.html")
    assert not imported.exists()
    assert "Double DQN" in (tmp_path / "report.html").read_text()
    hadamard("train", "--resume", run, "--until", "300")
    # Without the package, and with another version of it.
    assert "the package twin 1.0 (double_dqn.py, sha256" in command("evaluate", run).err
    info = folder / "twin-1.0.dist-info" / "METADATA"
    info.write_text(info.read_text().replace("1.0", "1.1"))
    monkeypatch.syspath_prepend(str(folder))
    result = command("train", "--resume", run, "--until", "0")
    assert result.code == 2
    assert "(twin 1.0, sha256" in result.err
    assert "twin 1.1, sha256" in result.err
    assert command("train", "--resume", run, "--until", "0", "--changed-plugins").code == 0


def test_python_uses_the_same_functions(tmp_path: Path) -> None:
    with plugins.named([]):
        plugins.load_plugin(write_plugin(tmp_path, "maxout"))
        spec = start.default_spec("dqn", "probe/both")
        changes = {"net.layer": "maxout", "net.width": 8, "train.steps": 1_200}
        changes |= {"train.until": 1_100, "run_dir": str(tmp_path / "run"), "train.health_every": 0}
        start.train("dqn", start.overridden(spec, {**changes, "train.tensorboard": False}))
    with pytest.raises(RunError, match=r"in Python with hadamard\.load_plugin"):
        start.resume(str(tmp_path / "run"), until=0)
    with plugins.named([str(tmp_path / "maxout.py")]):
        assert start.resume(str(tmp_path / "run"), until=0)["steps"] == 1_200
    assert Run(tmp_path / "run").done
