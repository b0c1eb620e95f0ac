"""Draw the paper's figures and tables from the runs that exist."""

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
from hadamard.experiments.reproduce import Request
from hadamard.experiments.selection import select
from hadamard.report.compositions import Drawing
from hadamard.report.data.imported import ImportedCurve, read_curves
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import gather
from hadamard.report.pages.output import check_folder
from hadamard.report.pages.paper_page import Entry, write_index, write_page


@dataclass(frozen=True)
class DrawingOptions:
    """Sources, output folder and shading of the figures and tables."""

    draw: bool = False
    """Train nothing: draw from the runs that exist."""
    runs: tuple[Path, ...] = ()
    """More folders of runs, or packed runs, to draw from."""
    output: Path | None = None
    """Folder for the folders of the figures and tables; by default figures/ beside the runs."""
    shading: Literal["paper", "interval", "deviation", "error"] = "paper"
    """What the shaded band around a curve shows.
    paper: as in the paper; interval: the 95 % interval; deviation: the standard deviation;
    error: the standard error."""
    curves: Path | None = None
    """CSV file of other methods' curves to draw, with columns method, env, seed, step and score."""

    def check(self) -> None:
        """Raise ValueError for a path that is missing or of the wrong kind."""
        for path in self.runs:
            if not path.exists():
                raise ValueError(f"--runs {path}: there is no such file or folder")
        if self.output is not None:
            check_folder(self.output)
        if self.curves is not None:
            read_curves(self.curves)


def draw(request: Request, options: DrawingOptions) -> list[Path]:
    """Draw the requested experiments, and return the pages."""
    folders = [request.runs_folder, *options.runs]
    runs, problems = _read_runs([folder for folder in folders if folder.exists()])
    for problem in problems:
        print(f"hadamard: left out: {problem}", file=sys.stderr)
    curves = read_curves(options.curves) if options.curves is not None else []
    output = options.output or request.runs_folder / "figures"
    entries = [
        _draw_experiment(experiment, request, options, runs, curves, output)
        for experiment in request.experiments
    ]
    with_runs = [entry for entry in entries if entry.has_runs]
    if not with_runs:
        raise RunError(
            f"there are no runs of {', '.join(entry.name for entry in entries)} in "
            f"{', '.join(map(str, folders))}: train them with "
            f"`{_command(request, request.names)}`, or name other folders with --runs"
        )
    for entry in entries:
        if not entry.has_runs:
            command = _command(request, (entry.name,))
            print(f"{entry.name}: no runs yet; train them with `{command}`", file=sys.stderr)
    pages = [output / entry.name / "index.html" for entry in with_runs]
    if len(entries) > 1:
        pages.append(write_index(output, entries, request.scale_in_words))
    return pages


def _draw_experiment(
    experiment: Experiment,
    request: Request,
    options: DrawingOptions,
    runs: Sequence[RunData],
    curves: Sequence[ImportedCurve],
    output: Path,
) -> Entry:
    """Draw an experiment and write its page; without runs, do nothing."""
    panels = select(
        experiment,
        runs,
        request.scale,
        share=request.share,
        until=request.until,
        seeds=request.seeds,
        tasks=request.tasks or None,
    )
    # With --tasks, an algorithm may have no task left.
    panels = {name: data for name, data in panels.items() if data.panel.tasks}
    if not any(data.labels for data in panels.values()):
        return Entry(experiment.name, experiment.place, experiment.shows, Counter(), has_runs=False)
    tasks = [task for data in panels.values() for task in data.panel.tasks]
    shown_curves = [
        curve
        for curve in curves
        if curve.method in experiment.imported and any(same_task(curve.env, task) for task in tasks)
    ]
    shading = experiment.shading if options.shading == "paper" else options.shading
    drawing = Drawing(experiment, panels, shading, shown_curves)
    names = (experiment.name,)
    commands = [_command(request, names), _command(request, names, "--draw")]
    return write_page(output / experiment.name, drawing, request.scale_in_words, commands)


def _read_runs(paths: Sequence[Path]) -> tuple[list[RunData], list[str]]:
    """Return the runs in some folders, and a message for each that cannot be read."""
    runs: list[RunData] = []
    problems: list[str] = []
    if paths:
        try:
            runs, problems = gather(paths)
        except RunError as error:
            problems = [str(error)]
    return runs, problems + [trouble for run in runs for trouble in run.troubles]


def _command(request: Request, names: Sequence[str], *flags: str) -> str:
    """Return the command that trains or draws experiments as this request does."""
    words = ["hadamard", "reproduce", *names, "--scale", request.scale]
    if request.folder != Request(()).folder:
        words += ["--folder", str(request.folder)]
    if request.seeds is not None:
        words += ["--seeds", str(request.seeds)]
    if request.tasks:
        words += ["--tasks", ",".join(request.tasks)]
    if request.share != 1:
        words += ["--share", f"{request.share:g}"]
    if request.until:
        words += ["--until", str(request.until)]
    return shlex.join([*words, *flags])
