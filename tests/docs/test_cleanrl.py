"""The lines of the page on CleanRL, put into CleanRL's own files, which then train.

The files are not part of this repository: HADAMARD_CLEANRL names a checkout.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hadamard.report.data.runs import load
from tests.support.pages import DOCS, blocks

DIFFS = [text for language, text in blocks(DOCS / "integrations/cleanrl.md") if language == "diff"]
FILES = {re.match(r"--- (\S+)\n", text)[1]: text for text in DIFFS}
OPTIONS = {
    "ppo.py": ["--total-timesteps", "6000"],
    "dqn.py": ["--total-timesteps", "12500", "--learning-starts", "10000"],
    "pqn.py": ["--total-timesteps", "6000"],
}


def changed(source: str, diff: str) -> str:
    """Put the new lines of a diff after the lines that it names."""
    for place, lines in re.findall(r"^ (.*)\n((?:\+.*\n)+)", diff, re.M):
        assert source.count(f"\n{place}\n") == 1, place
        added = "".join(line[1:] + "\n" for line in lines.splitlines())
        source = source.replace(f"\n{place}\n", f"\n{place}\n{added}")
    return source


def test_every_line_of_the_page_has_its_place() -> None:
    assert set(FILES) == set(OPTIONS)
    for text in DIFFS:
        new = [line for line in text.splitlines() if line.startswith("+")]
        page = "\n" + "\n".join(re.findall(r"^ (.*)$", text, re.M)) + "\n"
        after = changed(page.replace("\n", "\n\n"), text)
        assert all(line[1:] in after for line in new)
        compile("\n".join(line[1:].strip(" ") for line in new if "import" in line), "", "exec")


@pytest.mark.parametrize("name", FILES)
def test_the_lines_work_in_the_real_file(name: str, tmp_path: Path) -> None:
    checkout = os.environ.get("HADAMARD_CLEANRL")
    if not checkout:
        pytest.skip("HADAMARD_CLEANRL does not name a checkout of CleanRL")
    source = (Path(checkout) / "cleanrl" / name).read_text()
    (tmp_path / name).write_text(changed(source, FILES[name]))
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), checkout])
    done = subprocess.run(
        [sys.executable, name, "--no-cuda", *OPTIONS[name]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    (run,) = load([tmp_path / "runs"])
    assert run.algorithm == f"cleanrl-{name.removesuffix('.py')}"
    assert run.label.endswith("+ HR")
    assert len(run.health_steps) >= 1
    assert run.finished
