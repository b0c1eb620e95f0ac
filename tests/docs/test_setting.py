"""The tables of docs/setting.md against the code, and against the paper where its text is here."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch

from hadamard.core.config import flattened, to_dict
from hadamard.envs import atari_game
from hadamard.experiments import paper
from hadamard.report.statistics.normalize import HUMANOID
from hadamard.training.start import default_spec
from tests.support import pages
from tests.support.defaults import (
    BREAKOUT,
    agent,
    clipped_rewards,
    ends_with_a_life,
    frames,
    rates_fall,
)
from tests.support.pages import DOCS
from tests.support.paths import SHARED

PATH = DOCS / "setting.md"
PAGE = PATH.read_text()
PAPER = sorted((SHARED / "paper").glob("*.txt"))
SCORES = "HumanoidBench's scores"
TABLES = {"dqn": "DQN's settings", "ppo": "PPO's settings", "pqn": "PQN's settings"}


def table(heading: str) -> list[list[str]]:
    """The rows of a section's table."""
    first = "task" if heading == SCORES else "what"
    return pages.table(pages.section(PATH, heading), first)


def value(text: str) -> Any:
    """A cell's number, or its words."""
    text = text.replace(",", "") if re.fullmatch(r"[\d,.]+", text) else text
    try:
        return float(text)
    except ValueError:
        return text


def printed(heading: str) -> list[list[str]]:
    """The cells of a table of the paper, in plain characters."""
    text = "".join(path.read_text() for path in PAPER)
    body = text[text.index(rf"\caption{{{heading}") :].partition(r"\midrule")[2]
    rows = []
    for line in body.partition(r"\bottomrule")[0].replace(r"\\", "").splitlines():
        line = re.sub(r"\$(\S+) \\times 10\^\{(\S+)\}\$", r"\1e\2", line)
        line = re.sub(r"\$10\^\{(\S+)\}\$", r"1e\1", line)
        line = re.sub(r"\\texttt\{(.*?)\}", r"\1", line)
        if "&" in line:
            rows.append([cell.strip() for cell in line.split("&")])
    return rows


def yes(answer: bool) -> str:
    return "yes" if answer else "no"


def loss(algorithm: str) -> str:
    """Of ends, whose target is the reward alone."""
    dqn, obs, action = agent("dqn"), frames(4), torch.tensor([0, 1, 2, 3])
    reward, ended = torch.tensor([0.0, 5.0, -9.0, 40.0]), torch.ones(4, dtype=torch.bool)
    with torch.no_grad():
        errors = dqn.network(obs).gather(1, action[:, None]).squeeze(1) - reward
        measured = dqn._loss(obs, action, reward, ended, obs)[0]
    torch.testing.assert_close(measured, errors.square().mean())
    return "mean squared error"


def advantages_normalized(algorithm: str) -> str:
    ppo, obs, action = agent("ppo"), frames(4), torch.tensor([0, 1, 2, 3])
    advantage = torch.tensor([1.0, -2.0, 0.5, 3.0])
    old, value_ = torch.full((4,), -1.0), torch.zeros(4)
    losses = [
        ppo._loss(obs, action, old, value_, scaled)[1]["policy_loss"]
        for scaled in (advantage, 10 * advantage + 3)
    ]
    return yes(torch.allclose(losses[0], losses[1], atol=1e-5))


def value_loss_clipped(algorithm: str) -> str:
    """Whether a value that moved by 1, to where it should be, counts as having moved by 0.1."""
    ppo, obs, action = agent("ppo"), frames(4), torch.tensor([0, 1, 2, 3])
    with torch.no_grad():
        now = ppo.network(obs)[1]
    error = ppo._loss(obs, action, torch.zeros(4), now - 1, torch.ones(4))[1]["value_loss"]
    return yes(error.item() == pytest.approx(0.5 * 0.9**2, rel=1e-4))


def greedy_exploration(algorithm: str) -> float:
    torch.manual_seed(0)
    obs = frames(20)
    action, _ = agent("pqn").act_with_greedy(obs, 0, 10)
    with torch.no_grad():
        best = agent("pqn").network(obs).argmax(1)
    assert (action[:10] != best[:10]).any()
    return float((action[10:] != best[10:]).float().mean())


def kl_to_stop_at(algorithm: str) -> str:
    fields = {field.name for field in dataclasses.fields(default_spec(algorithm, BREAKOUT).algo)}
    return "none" if not any("kl" in name for name in fields) else "some"


FIXED = {
    "frames for each action": lambda algorithm: atari_game.FRAME_SKIP,
    "frames stacked": lambda algorithm: (
        agent(algorithm).network.encoder.layers[0].affine.in_channels
    ),
    "image": lambda algorithm: " x ".join(map(str, agent("dqn").replay.frames.shape[-2:])),
    "most no-ops at the start": lambda algorithm: atari_game.NOOP_MAX,
    "optimizer": lambda algorithm: type(agent(algorithm).optimizer).__name__,
    "greedy games beside training": lambda algorithm: yes(
        default_spec(algorithm, BREAKOUT).train.greedy_envs > 0
    ),
    "rewards clipped to": lambda _: "[{:g}, {:g}]".format(*clipped_rewards()),
    "a lost life ends an episode": lambda _: yes(ends_with_a_life()),
    "loss": loss,
    "advantages normalized": advantages_normalized,
    "value loss clipped": value_loss_clipped,
    "learning rate falls to 0": lambda algorithm: yes(rates_fall(algorithm)),
    "exploration of the greedy games": greedy_exploration,
    "KL divergence to stop at": kl_to_stop_at,
}
"""What is no setting, by its name on the page, and what it is here."""


@pytest.mark.parametrize("algorithm", TABLES)
def test_our_values_are_the_defaults(algorithm: str) -> None:
    settings = flattened(to_dict(default_spec(algorithm, BREAKOUT)))
    named = {f"--{name.strip('_').replace('_', '-')}": name for name in settings}
    shown = set()
    for what, setting, ours, _ in table(TABLES[algorithm]):
        if setting == "-":
            actual = FIXED[what](algorithm)
        else:
            actual = settings[named[setting]]
            actual = yes(actual) if isinstance(actual, bool) else actual
            shown.add(named[setting])
        assert value(ours) == actual, what
    # Where the replay's frames are kept changes no result.
    own = {name for name in settings if name.startswith("algo.")} - {"algo.replay_storage"}
    assert own <= shown


@pytest.mark.parametrize("algorithm", TABLES)
def test_ours_are_the_papers_where_it_says(algorithm: str) -> None:
    for what, _, ours, papers in table(TABLES[algorithm]):
        if not papers.startswith("open"):
            assert papers.removesuffix(" (text)") == ours, what


def test_scores_are_those_that_normalize() -> None:
    rows = table(SCORES)
    assert [row[0] for row in rows] == list(HUMANOID)
    for task, random, papers_random, target, papers_target in rows:
        assert (value(random), value(target)) == HUMANOID[task]
        assert (random, target) == (papers_random, papers_target)


@pytest.mark.skipif(not PAPER, reason="the paper's text is not here")
@pytest.mark.parametrize("algorithm", TABLES)
def test_the_papers_values_are_its_own_row_by_row(algorithm: str) -> None:
    rows = table(TABLES[algorithm])
    stated = [value(row[3].lower()) for row in rows if not re.search(r"^open|\(text\)$", row[3])]
    words = {"True": "yes", "Mean Squared Error": "mean squared error"}
    cells = [words.get(row[1], row[1]) for row in printed(f"{algorithm.upper()} Hyperparameters")]
    # PQN's table says that rewards are clipped, and to what in its description.
    clipped = [row[0] for row in rows].index("rewards clipped to") if algorithm == "pqn" else None
    if clipped is not None:
        assert cells[clipped] == "yes"
        cells[clipped] = "[-1, 1]"
    assert stated == [value(cell.lower()) for cell in cells]


@pytest.mark.skipif(not PAPER, reason="the paper's text is not here")
def test_the_papers_scores_are_its_own() -> None:
    rows = [[task, value(r), value(t)] for task, _, r, _, t in table(SCORES)]
    theirs = printed("Per-task random and success-target scores")
    assert rows == [[task, value(random), value(target)] for task, random, target in theirs]


def test_all_that_has_no_runs_is_on_the_page() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.M)
    anchors = {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-"): text for text in headings}
    for place, words in paper.WITHOUT_RUNS.items():
        page, _, anchor = words.rpartition(": ")[2].partition("#")
        assert page == "docs/setting.md"
        assert f"The paper's {place}" in pages.section(PATH, anchors[anchor])
    assert len(anchors) == len(paper.WITHOUT_RUNS)


def test_pictures_are_small() -> None:
    pictures = re.findall(r"\]\((images/setting/\S+)\)", PAGE)
    assert len(pictures) == 3
    assert all((DOCS / name).stat().st_size < 200_000 for name in pictures)
