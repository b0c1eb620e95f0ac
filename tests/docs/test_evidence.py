"""The evidence page and its figures are in step with the packed runs they are drawn from."""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hadamard.core.run import PROTOCOL
from hadamard.experiments.evidence.page import COSTS, FIGURES, PAGE, write_evidence
from hadamard.experiments.paper import SCALES
from hadamard.report.data.runs import gather
from tests.support.pages import DOCS
from tests.support.paths import ROOT

sys.path.insert(0, str(DOCS))
import surprises

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def test_all_packed_runs_are_whole_and_of_this_protocol() -> None:
    files = list((ROOT / "results").rglob("*.hrun"))
    assert files
    assert sum(file.stat().st_size for file in files) < 50e6
    for folder in {file.parent for file in files}:
        runs, troubles = gather([folder])
        assert not troubles
        assert all(run.finished for run in runs)
        assert {run.protocol for run in runs} == {PROTOCOL}
        assert len(list(folder.glob("*.hrun"))) == len(runs)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The docs folder of a page that was written now."""
    docs: Path = tmp_path_factory.mktemp("docs")
    (docs / COSTS).parent.mkdir()
    shutil.copy(DOCS / COSTS, docs / COSTS)
    write_evidence(ROOT / "results", docs, surprises.section)
    return docs


def files(docs: Path) -> Iterator[Path]:
    """What `make evidence` writes, from a docs folder on."""
    yield Path(PAGE)
    for scale in SCALES:
        for path in sorted((docs / FIGURES / scale).rglob("*")):
            if path.is_file():
                yield path.relative_to(docs)


def test_there_are_the_same_files(written: Path) -> None:
    kept = list(files(DOCS))
    assert kept == list(files(written)), "run `make evidence`"
    assert sum((DOCS / file).stat().st_size for file in kept) < 30e6


def test_the_numbers_of_the_tables_are_the_runs(written: Path) -> None:
    tables = [file for file in files(written) if file.suffix == ".csv"]
    assert tables
    for table in tables:
        drawn, shown = (
            list(csv.reader((docs / table).read_text().splitlines())) for docs in (written, DOCS)
        )
        assert len(drawn) == len(shown), table
        for ours, theirs in zip(drawn, shown, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                try:  # the last digits may be another machine's
                    assert float(one) == pytest.approx(float(other), rel=1e-6, abs=1e-9), table
                except ValueError:
                    assert one == other, table


def test_the_page_says_what_the_runs_say(written: Path) -> None:
    new, kept = ((docs / PAGE).read_text() for docs in (written, DOCS))
    assert NUMBER.sub("0", new) == NUMBER.sub("0", kept), "run `make evidence`"
    for ours, theirs in zip(NUMBER.findall(new), NUMBER.findall(kept), strict=True):
        one, other = (float(text.replace(",", "")) for text in (ours, theirs))
        last_digit = 10.0 ** -len(theirs.partition(".")[2])
        assert one == pytest.approx(other, abs=1.01 * last_digit)  # rounded on another machine


def claim(entry: str, text: str) -> list[str]:
    """A percentage and its interval, as captions write them."""
    path = DOCS / FIGURES / "minatar-full" / entry / "claims.csv"
    row = next(r for r in csv.DictReader(path.read_text().splitlines()) if r["claim"] == text)
    return [f"{float(row[name]):.0f}" for name in ("ours", "ours_low", "ours_high")]


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=lambda p: p.name)
def test_the_first_screens_numbers_are_the_runs(page: Path) -> None:
    text = " ".join(page.read_text().split())
    (relu, low, high), (crelu, crelu_low, crelu_high) = (
        claim("fig-crelu-redo", f"HR is above {arm}") for arm in ("ReLU", "CReLU")
    )
    assert (
        f"tanh + HR is {relu} % above ReLU (95 % interval {low} to {high}) and {crelu} % above "
        f"CReLU ({crelu_low} to {crelu_high})"
    ) in text
    if page.name == "README.md":
        assert f"PQN, 5 MinAtar games, 10 seeds | +{relu} % ({low} to {high}) |" in text
