"""The rows of the evidence page: each claim of the paper, judged at every scale that has runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hadamard.experiments.evidence.backing import Backed, PaperClaim, claims
from hadamard.report.measures import MEASURES
from hadamard.report.pages.paper_page import our_text
from hadamard.report.statistics.claims import JudgedClaim, judge
from hadamard.report.statistics.estimates import Estimate
from hadamard.text import count_range

SUITES = {
    "atari": "Atari games",
    "minatar": "MinAtar games",
    "humanoid": "HumanoidBench tasks",
    "dmc": "visual DMC tasks",
    "dmc-state": "DMC tasks from states",
}
"""What the tasks of a suite are called."""
NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """A claim, and what the runs of one scale say of it; or that there are none."""

    algorithm: str
    claim: str
    paper: str
    """The paper's number, if it states one, and where."""
    runs: str
    ours: str
    verdict: str
    why: str
    """A sentence; of a claim that was not run, the arms whose runs it needs on the same tasks."""


def rows(entries: Sequence[Backed]) -> list[Row]:
    """Return the rows of all claims, given every figure and table at every scale with runs."""
    found = []
    for paper_claim in claims():
        judged = {
            entry.scale: judge(paper_claim.claim, entry.panels[paper_claim.claim.algorithm])
            for entry in entries
            if entry.experiment is paper_claim.experiment
        }
        measured = {scale: claim for scale, claim in judged.items() if claim.tasks}
        found += [_row(paper_claim, claim, scale) for scale, claim in measured.items()]
        if not measured:
            found.append(_without_runs(paper_claim, next(iter(judged.values()))))
    return found


def tasks_words(tasks: Sequence[str], of: int | None = None) -> str:
    """Return which tasks there are, if the paper has so many.

    Examples:
        >>> tasks_words(["atari/Pong", "atari/Qbert"], of=51), tasks_words(["minatar/breakout"])
        ('2 of 51 Atari games', 'minatar/breakout')
    """
    if len(tasks) == 1:
        return tasks[0]
    suite = tasks[0].partition("/")[0]
    count = f"{len(tasks)}" if of in (None, len(tasks)) else f"{len(tasks)} of {of}"
    return f"{count} {SUITES.get(suite, f'{suite} tasks')}"


def _row(paper_claim: PaperClaim, claim: JudgedClaim, scale: str) -> Row:
    on_papers_tasks = scale == "paper"
    of = len(paper_claim.panel.tasks) if on_papers_tasks else None
    runs = f"{tasks_words(claim.tasks, of)}, {count_range(claim.seeds, 'seed')}, {claim.budget}"
    why = claim.why
    if claim.measure == "time":
        why += " The runs may have shared their machine with others."
    elif claim.kind == "size" and not on_papers_tasks:
        why += " These are other tasks than the paper's."
    return Row(
        claim.algorithm, claim.text, _paper_words(paper_claim, claim), runs, _ours(claim),
        claim.verdict, why,
    )  # fmt: skip


def _without_runs(paper_claim: PaperClaim, claim: JudgedClaim) -> Row:
    arms = [arm.label for arm in (paper_claim.claim.arm, paper_claim.claim.against) if arm]
    paper = _paper_words(paper_claim, claim)
    return Row(claim.algorithm, claim.text, paper, "", "", NOT_RUN, "; ".join(arms))


def _paper_words(paper_claim: PaperClaim, claim: JudgedClaim) -> str:
    places = "; ".join(paper_claim.places)
    if claim.paper is None:
        return places
    unit = claim.unit.replace("of that without HR", "").strip()
    return f"{claim.paper:g} {unit} ({places})"


def _ours(claim: JudgedClaim) -> str:
    """Return our number; differences of shares are in percentage points."""
    if claim.unit == "percent":
        return _signed(claim.ours, "%", 0)
    if claim.unit != "points" or claim.measure not in MEASURES:
        return our_text(claim)
    measure = MEASURES[claim.measure]
    if measure.share:
        return _signed(Estimate(*(100 * bound for bound in claim.ours)), "points", 1)
    return _signed(claim.ours, measure.unit, 1)


def _signed(estimate: Estimate, unit: str, digits: int) -> str:
    value, low, high = (f"{bound:+.{digits}f}" for bound in estimate)
    return f"{value} {unit} ({low} to {high})" if estimate.has_interval else f"{value} {unit}"
