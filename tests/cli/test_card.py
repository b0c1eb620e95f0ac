"""`hadamard card` writes a folder that loads, and says what the agent does."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
import torch
import yaml

import hadamard
from tests.support.commands import Command, small

pytest.importorskip("minatar")


@pytest.fixture
def run(command: Command, tmp_path: Path) -> Path:
    words = small("pqn", tmp_path / "run")
    words[words.index("--env") + 1] = "minatar/breakout"
    done = command(*words)
    assert done.code == 0, done.err
    return tmp_path / "run"


def test_a_card_shows_and_holds_the_agent(command: Command, run: Path, tmp_path: Path) -> None:
    card = tmp_path / "card"
    (run / "tensorboard").mkdir(exist_ok=True)
    (run / "notes.txt").write_text("private")
    (run / "checkpoints" / "link").symlink_to("/etc/passwd")
    result = command("card", run, "--output", card, "--episodes", 4, "--max-steps", 20)
    assert result.code == 0, result.err
    played = hadamard.evaluate(run, 4)
    text = (card / "README.md").read_text()
    front, body = text.removeprefix("---\n").split("---\n", 1)
    fields = yaml.safe_load(front)
    assert fields["tags"][0] == "reinforcement-learning"
    (metric,) = fields["model-index"][0]["results"][0]["metrics"]
    spread = statistics.stdev(played.scores)
    assert metric["value"] == f"{played.mean:.2f} +/- {spread:.2f}"
    half = 3.182 * spread / 2  # Student's t with three degrees of freedom
    assert f"{played.mean:.2f} ({played.mean - half:.2f} to {played.mean + half:.2f})" in body
    assert "| `encoder.hidden.1` |" in body
    assert "pip install 'hadamard-rl[minatar]'" in body
    assert str(tmp_path) not in text
    settings = json.loads(body.split("```json\n")[1].split("```")[0])
    assert (settings["algorithm"], settings["net"]["width"]) == ("pqn", 16)
    (film,) = card.glob("replay.*")
    assert film.stat().st_size > 0
    names = {path.name for path in (card / "run").rglob("*")}
    assert not names & {"tensorboard", "notes.txt", "link", "lock"}

    original, copied = hadamard.load_agent(run), hadamard.load_agent(card / "run")
    for name, weight in original.network.state_dict().items():
        assert torch.equal(weight, copied.network.state_dict()[name])
    assert hadamard.evaluate(card / "run", 4).scores == played.scores


def test_what_cannot_be_a_card_is_refused(command: Command, run: Path, tmp_path: Path) -> None:
    result = command("card", run, "--output", run, "--no-film")
    assert (result.code, "is not an empty folder" in result.err) == (2, True)
    result = command("card", run, "--output", tmp_path / "card", "--episodes", 1)
    assert "--episodes must be at least 2 for an interval, got 1" in result.err
    result = command("card", tmp_path / "none", "--output", tmp_path / "card")
    assert "is not a run" in result.err
    assert not (tmp_path / "card").exists()
