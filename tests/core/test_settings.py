"""Settings by bare names, as text, and in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hadamard.cli.train import spec_from
from hadamard.core import config, discover, settings, typed
from hadamard.core.config import flattened, to_dict
from hadamard.training.start import default_spec
from tests.support.commands import Command, small

ALGORITHMS = discover.names(discover.ALGORITHMS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_bare_name_is_of_one_setting(algorithm: str) -> None:
    spec = default_spec(algorithm)
    for name in flattened(to_dict(spec)):
        assert settings.full_name(spec, name.rpartition(".")[2]) == name
        assert settings.full_name(spec, name) == name


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_setting_is_read_from_its_text(algorithm: str) -> None:
    spec = config.overridden(default_spec(algorithm), {"remedy": "redo"})
    values = flattened(to_dict(spec))
    texts = {
        name: str(value)
        for name, value in values.items()
        if not isinstance(value, tuple | str) and value is not None
    }
    assert config.overridden(spec, texts) == spec


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("3", int, 3),
        ("1_000", int, 1_000),
        ("3", float, 3),
        ("3e-4", float, 3e-4),
        ("True", bool, True),
        ("false", bool, False),
        ("none", int | None, None),
        ("null", str | None, "null"),
        ("3", str, "3"),
        (Path("runs/x"), str | None, "runs/x"),
    ],
)
def test_text_becomes_what_the_setting_is(value: Any, hint: Any, expected: Any) -> None:
    result = typed.setting(value, hint, "x")
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("value", "hint"),
    [("1e6", int), ("3.5", int), ("1", bool), ("", float), ("none", int), (True, int), (1, bool),
     (2.0, int), ([1], int), (1, str), (None, float)],
)  # fmt: skip
def test_other_values_are_refused(value: Any, hint: Any) -> None:
    with pytest.raises(typed.WrongType, match="x must be"):
        typed.setting(value, hint, "x")


def test_a_name_that_two_settings_end_with_must_be_whole() -> None:
    spec = config.overridden(default_spec("dqn"), {"remedy": "redo"})
    two = spec.__class__(**{**vars(spec), "remedies": {"redo": {"steps": 3}}})
    with pytest.raises(
        ValueError, match=r"'steps' may be train.steps or redo.steps: give its full"
    ):
        settings.full_name(two, "steps")


NESTED = {
    "algorithm": "ppo",
    "env": "probe/both",
    "train": {"steps": 500, "log_every": 100},
    "algo": {"learning_rate": 1e-3},
    "net": {"width": 32},
    "remedy": "redo",
    "redo": {"tau": 0.5},
}
YAML = """
algorithm: ppo
env: probe/both
train.steps: 500
train: {log_every: 100}
algo.learning_rate: 1e-3   # which YAML reads as a text
net:
  width: 32
remedy: redo
redo.tau: 0.5
"""


@pytest.mark.parametrize("form", ["nested.json", "dotted.yaml", "run.json"])
def test_files_say_the_same(form: str, tmp_path: Path) -> None:
    file = tmp_path / form
    words = ["--env", "probe/both", "--train.steps", "500", "--train.log-every", "100"]
    words += ["--algo.learning-rate", "0.001", "--net.width", "32"]
    expected = spec_from("ppo", [*words, "--remedy", "redo", "--redo.tau", "0.5"])
    if form == "dotted.yaml":
        pytest.importorskip("yaml")
        file.write_text(YAML)
    elif form == "nested.json":
        file.write_text(json.dumps(NESTED))
    else:
        spec = {**to_dict(expected), "run_dir": "elsewhere"}
        file.write_text(json.dumps({"algorithm": "ppo", "spec": spec, "protocol": 2}))
    assert spec_from("ppo", ["--config", str(file)]) == expected
    # Options come before the file, and the file before the defaults.
    more = ["--net.width", "8", "--remedy", "none"]
    assert spec_from("ppo", ["--config", str(file), *more]) == spec_from("ppo", [*words, *more])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "- 1", "must hold settings by name, got [1]"),
        ("a.yaml", "train: {1: 2}", "a name must be a text, got 1"),
        ("a.yaml", "a: [", "is no valid file of settings"),
        ("a.json", "{", "is no valid file of settings"),
        ("a.json", "[" * 5_000, "is no valid file of settings"),
        ("a.json", '{"a": ' * 200 + "1" + "}" * 200, "nested too deeply"),
        ("a.json", '{"algorithm": 3}', "algorithm must be a text, got 3"),
        ("a.json", '{"algorithm": "dqn"}', "is a configuration of dqn, not of pqn"),
        ("a.json", '{"train": {"step": 3}}', "unknown setting 'train.step'; did you mean"),
        (
            "a.json",
            '{"train": {"steps": "many"}}',
            "train.steps must be a whole number, got 'many'",
        ),
        ("a.json", '{"train": 3}', "unknown setting 'train'"),
        ("a.json", '{"env": 3}', "env must be a text, got 3"),
        ("a.json", '{"redo": {"tau": 1}}', "sets redo.tau, and its remedy is none: add"),
        ("a.json", '{"remedy": "redu"}', "unknown remedy 'redu'"),
        ("a.txt", "{}", "a file of settings is named .yaml, .yml or .json"),
        ("a.json", None, "cannot be read: No such file or directory"),
        ("", None, "is a folder: name a file, such as"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_trained(
    name: str, text: str | None, message: str, tmp_path: Path, command: Command
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    said = command("train", "pqn", "--config", tmp_path / name, "--run-dir", tmp_path / "run")
    assert (said.code, "Traceback" in said.err) == (2, False)
    assert message in said.err
    assert not (tmp_path / "run").exists()


def test_a_run_is_trained_from_the_config_of_another(tmp_path: Path, command: Command) -> None:
    assert command(*small("ppo", tmp_path / "first", {"--seed": 3})).code == 0
    said = command(
        "train", "--config", tmp_path / "first" / "config.json", "--run-dir", tmp_path / "second"
    )
    assert said.code == 0, said.err
    streams = [(tmp_path / name / "episodes.jsonl").read_text() for name in ("first", "second")]
    assert streams[0] == streams[1]
    said = command("train", "--config", tmp_path / "x.json", "--config", tmp_path / "y.json")
    assert "--config is given twice" in said.err
