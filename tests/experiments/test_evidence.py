"""Which made-up runs back which claims, and the page that is written of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hadamard.core.run import RunError
from hadamard.experiments import paper
from hadamard.experiments.evidence.backing import Backed, backed, claims, every_entry, read
from hadamard.experiments.evidence.costs import Costs, kind, planned, read_costs, remaining
from hadamard.experiments.evidence.page import COSTS, write_evidence
from hadamard.experiments.evidence.rows import NOT_RUN, Row, rows
from hadamard.experiments.paper import EXPERIMENTS, find
from tests.support.paper_runs import Fake, write

GAMES = ("atari/Asterix", "atari/Breakout", "atari/Pong")
COST = Costs("a machine", "2026-01-01", busy=False, seconds={})


def write_runs(
    results: Path,
    name: str,
    scale: str = "smoke",
    seeds: int = 3,
    share: float = 1.0,
    keep: Callable[[Fake], bool] = lambda _: True,
    change: Callable[[dict[str, Any]], None] = lambda _: None,
) -> None:
    """Write an experiment's made-up runs into the folder of their scale."""
    folder = results / scale
    folder.mkdir(parents=True, exist_ok=True)
    for arm, job in paper.arms_and_jobs(name, scale, "runs", seeds, share=share):
        if keep(fake := Fake(job, arm.label)):
            record = fake.record()
            change(record)
            write(folder, job.path.name, record)


def entry(results: Path, name: str, scale: str = "smoke") -> Backed:
    return backed(find(name), scale, read(results)[scale])


def rows_of(results: Path, text: str) -> list[Row]:
    return [row for row in rows(every_entry(read(results))) if row.claim == text]


def test_every_claim_that_is_declared_is_there_once() -> None:
    every = claims()
    assert len({repr(each.claim) for each in every}) == len(every)
    for experiment in EXPERIMENTS.values():
        for claim in (*experiment.claims, *experiment.stated):
            same = [
                c for c in every
                if (c.claim.algorithm, c.claim.arm, c.claim.against, c.claim.measure)
                == (claim.algorithm, claim.arm, claim.against, claim.measure)
            ]  # fmt: skip
            assert any(claim.where in c.places for c in same), claim
    (above,) = [c for c in every if c.claim.algorithm == "pqn" and c.places[0] == "Introduction"]
    assert above.places == ("Introduction", "Figure 7", "Figure 12")


def test_the_budget_with_the_most_steps_is_shown(tmp_path: Path) -> None:
    write_runs(tmp_path, "fig-ppo", seeds=1)
    assert entry(tmp_path, "fig-ppo").panels["ppo"].budget_words == "2,048 steps"
    assert entry(tmp_path, "fig-ppo").commands() == [
        "hadamard reproduce fig-ppo --scale smoke --seeds 1"
    ]
    # Two seeds of three quarters are more than one of all.
    write_runs(tmp_path, "fig-ppo", seeds=2, share=0.75)
    shown = entry(tmp_path, "fig-ppo")
    assert shown.panels["ppo"].budget_words == "1,536 steps (75 % of 2,048)"
    assert shown.commands() == ["hadamard reproduce fig-ppo --scale smoke --share 0.75"]
    assert shown.scale_in_words == "smoke, PPO with 75 % of its budget"
    (row,) = rows_of(tmp_path, "tanh and ReLU are comparable")
    assert row.runs == "minatar/breakout, 2 seeds, 1,536 steps (75 % of 2,048)"
    assert row.verdict == "undecided"


def test_runs_that_stopped_early_are_shown_to_where_most_of_them_came(tmp_path: Path) -> None:
    def early(record: dict[str, Any]) -> None:
        end = 512 if record["spec"]["seed"] else 1024
        record["spec"]["train.until"] = record["reached"] = record["summary"]["steps"] = end

    write_runs(tmp_path, "fig-ppo", seeds=2, change=early)
    data = entry(tmp_path, "fig-ppo").panels["ppo"]
    assert data.budget_words == "to 1,024 of 2,048 steps"
    assert data.seeds() == (1, 1)
    assert "--until 1024" in entry(tmp_path, "fig-ppo").commands()[0]


def test_arms_on_few_games_are_compared_on_those(tmp_path: Path) -> None:
    """A third of the games have CReLU and ReDo: each claim has all the games of its own arms."""

    def keep(fake: Fake) -> bool:
        return fake.task in (GAMES[:2] if fake.arm in ("CReLU", "ReDo") else GAMES + MORE)

    write_runs(tmp_path, "fig-crelu-redo", "paper", seeds=1, keep=keep)
    redo = entry(tmp_path, "fig-crelu-redo", "paper")
    assert redo.panels["pqn"].shown_labels == ["ReLU", "tanh", "tanh + HR", "CReLU", "ReDo"]
    assert redo.panels["pqn"].tasks == list(GAMES[:2])
    assert "--tasks atari/Asterix,atari/Breakout --seeds 1" in redo.commands()[0]
    assert len(entry(tmp_path, "fig-pqn", "paper").panels["pqn"].tasks) == 7
    runs = {
        row.claim: row.runs for row in rows(every_entry(read(tmp_path))) if row.algorithm == "pqn"
    }
    assert runs["HR is above ReDo"] == "2 of 51 Atari games, 1 seed, 10 M steps"
    assert runs["HR improves PQN"] == "7 of 51 Atari games, 1 seed, 10 M steps"


MORE = ("atari/Qbert", "atari/Seaquest", "atari/Enduro", "atari/Boxing")


def test_a_claim_without_runs_says_so(tmp_path: Path) -> None:
    write_runs(tmp_path, "fig-ppo")
    (row,) = rows_of(tmp_path, "tanh has a higher rank than ReLU")
    assert (row.verdict, row.ours, row.runs) == (NOT_RUN, "", "")
    assert row.why == "tanh; ReLU"
    with pytest.raises(RunError, match="no folder of a scale"):
        read(tmp_path / "smoke")


def test_what_is_left_at_the_papers_scale(tmp_path: Path) -> None:
    figure = find("fig-visual-humanoid")
    every = planned(figure)
    costs = Costs("a machine", "2026-01-01", busy=True, seconds={kind(every[0]): 100.0})
    left = remaining(figure, [], costs)
    assert (left.runs, left.unfinished, left.unknown) == (30, 30, 15)
    assert left.seconds == 1500

    def half(record: dict[str, Any]) -> None:
        record["spec"]["train.until"] = record["reached"] = record["summary"]["steps"] = 1_250_000

    def keep(fake: Fake) -> bool:
        return fake.arm == "MR.Q" and fake.task == "dmc/humanoid-run" and fake.seed == 0

    write_runs(tmp_path, "fig-visual-humanoid", "paper", seeds=1, keep=keep, change=half)
    left = remaining(figure, read(tmp_path)["paper"], costs)
    assert (left.unfinished, left.seconds) == (30, 1450)
    costs.write(tmp_path / "costs.json")
    assert read_costs(tmp_path / "costs.json") == costs


def test_the_page_has_what_is_backed_and_nothing_else(tmp_path: Path) -> None:
    results, docs = tmp_path / "results", tmp_path / "docs"
    write_runs(results, "fig-kde", seeds=2)
    (docs / COSTS).parent.mkdir(parents=True)
    COST.write(docs / COSTS)
    stale = docs / "evidence" / "smoke" / "fig-ppo"
    stale.mkdir(parents=True)
    text = write_evidence(results, docs, lambda runs: f"## Odd\n\n{len(runs['smoke'])}").read_text()
    assert not stale.exists()
    drawn = {path.name for path in (docs / "evidence" / "smoke").iterdir()}
    assert drawn == {"fig-kde", "fig-hidden-bias"}  # which share their runs at this scale
    assert {path.name for path in (docs / "evidence" / "smoke" / "fig-kde").iterdir()} == {
        "index.html", "figure.png", "numbers.csv", "claims.csv"
    }  # fmt: skip
    assert "(evidence/smoke/fig-kde/figure.png)" in text
    assert "## Odd\n\n2\n" in text
    assert "minatar/breakout, 2 seeds, 2 k steps" in text
    assert "| Figure 9 | nothing | 0 of 30 | 30 runs of unknown cost |" in text
