"""Drawing the paper's figures and tables from whatever runs are there."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hadamard.core.run import RunError
from hadamard.experiments.paper import Experiment, same_task
from hadamard.experiments.reproduce import Asked
from hadamard.experiments.selection import select
from hadamard.report.compositions import Drawing
from hadamard.report.data.imported import ImportedCurve, read_curves
from hadamard.report.data.runs import RunData, gather
from hadamard.report.pages.paper_page import Entry, write_index, write_page


@dataclass(frozen=True)
class Options:
    """What figures are drawn from, and where they go."""

    draw: bool = False
    """Train nothing: draw at once, from whatever runs are there."""
    runs: tuple[Path, ...] = ()
    """Further folders of runs, or packed runs, to draw from."""
    output: Path | None = None
    """Where the folder of each figure goes; by default figures/ beside the runs."""
    shading: Literal["paper", "interval", "deviation", "error"] = "paper"
    """What is shaded around curves: as in the paper, or the 95 % interval, the standard deviation
    or the standard error everywhere."""
    curves: Path | None = None
    """Published curves of other methods: CSV with method, env, seed, step and score."""

    def check(self) -> None:
        """Refuse what nothing can be drawn from, before any run is made."""
        for path in self.runs:
            if not path.exists():
                raise ValueError(f"--runs {path}: there is no such file or folder")
        if self.output is not None and self.output.exists() and not self.output.is_dir():
            raise ValueError(f"--output {self.output} is a file: name a folder")
        if self.curves is not None:
            read_curves(self.curves)


def draw(asked: Asked, options: Options) -> list[Path]:
    """Draw every experiment that was asked for; return the pages."""
    runs, troubles = _gathered(asked, options)
    for trouble in troubles:
        print(f"hadamard: left out: {trouble}", file=sys.stderr)
    curves = read_curves(options.curves) if options.curves is not None else []
    folder = options.output or asked.runs_folder / "figures"
    entries = [_draw(experiment, asked, options, runs, curves, folder)
               for experiment in asked.experiments]  # fmt: skip
    drawn = [entry for entry in entries if entry.drawn]
    if not drawn:
        raise RunError(
            f"there are no runs of {', '.join(e.name for e in entries)} in "
            f"{', '.join(map(str, _places(asked, options)))}: make them with "
            f"`{_command(asked, asked.names)}`, or name other folders with --runs"
        )
    for entry in entries:
        if not entry.drawn:
            command = _command(asked, (entry.name,))
            print(f"{entry.name}: no runs yet; make them with `{command}`", file=sys.stderr)
    pages = [folder / entry.name / "index.html" for entry in drawn]
    if len(entries) > 1:
        pages.append(write_index(folder, entries, asked.scale_words))
    return pages


def _draw(
    experiment: Experiment,
    asked: Asked,
    options: Options,
    runs: Sequence[RunData],
    curves: Sequence[ImportedCurve],
    folder: Path,
) -> Entry:
    panels = select(
        experiment, runs, asked.scale, share=asked.share, until=asked.until, seeds=asked.seeds,
        tasks=asked.tasks or None,
    )  # fmt: skip
    # With --tasks, whole algorithms may have none.
    panels = {name: data for name, data in panels.items() if data.panel.tasks}
    if not any(data.labels for data in panels.values()):
        return Entry(experiment.name, experiment.place, experiment.shows, Counter(), drawn=False)
    chosen = [
        curve
        for curve in curves
        if curve.method in experiment.imported
        and any(same_task(curve.env, t) for data in panels.values() for t in data.panel.tasks)
    ]
    shading = experiment.shading if options.shading == "paper" else options.shading
    drawing = Drawing(experiment, panels, shading, chosen)
    make, again = _command(asked, (experiment.name,)), _command(asked, (experiment.name,), "--draw")
    return write_page(folder / experiment.name, drawing, asked.scale_words, [make, again])


def _places(asked: Asked, options: Options) -> list[Path]:
    return [asked.runs_folder, *options.runs]


def _gathered(asked: Asked, options: Options) -> tuple[list[RunData], list[str]]:
    """Read the runs that are there; none at all is no error yet."""
    runs: list[RunData] = []
    troubles: list[str] = []
    there = [path for path in _places(asked, options) if path.exists()]
    if there:
        try:
            runs, troubles = gather(there)
        except RunError as error:
            troubles = [str(error)]
    return runs, troubles + [trouble for run in runs for trouble in run.troubles]


def _command(asked: Asked, names: Sequence[str], *more: str) -> str:
    """Return the command that makes or draws experiments as asked."""
    words = ["hadamard", "reproduce", *names, "--scale", asked.scale]
    if asked.folder != Asked(()).folder:
        words += ["--folder", str(asked.folder)]
    if asked.seeds is not None:
        words += ["--seeds", str(asked.seeds)]
    if asked.tasks:
        words += ["--tasks", ",".join(asked.tasks)]
    if asked.share != 1:
        words += ["--share", f"{asked.share:g}"]
    if asked.until:
        words += ["--until", str(asked.until)]
    return shlex.join([*words, *more])
