"""Runs as tables: `load_runs`, and pandas frames of it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import gather
from hadamard.report.measures import NETWORK, RECORDED, SCORES

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


class Frames(NamedTuple):
    """Runs as three tidy frames; ``run`` is the path of a run in each of them."""

    runs: pd.DataFrame
    """One row for each run: what it is, how it ended, and every setting by its dotted name."""
    curves: pd.DataFrame
    """One row for each score over training, with its ``kind``; ``judged`` says whether the run is
    judged by this kind."""
    health: pd.DataFrame
    """One row for each layer of each diagnosis; measures of the whole network are in each."""


@dataclass(frozen=True, eq=False)
class Runs(Sequence[RunData]):
    """Runs as reports read them: a sequence that can be made into pandas frames."""

    runs: Sequence[RunData]
    troubles: Sequence[str]
    """What could not be read, and why."""

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> RunData: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[RunData]: ...

    def __getitem__(self, index: int | slice) -> RunData | Sequence[RunData]:
        return self.runs[index]

    def __iter__(self) -> Iterator[RunData]:
        return iter(self.runs)

    def __repr__(self) -> str:
        return f"Runs({len(self)}: {', '.join(sorted({run.label for run in self.runs}))})"

    def rows(self) -> list[Row]:
        """Return one row for each run: what it is, how it ended, and all of its settings."""
        return [_run_row(run) for run in self.runs]

    def curve_rows(self) -> list[Row]:
        """Return one row for each score over training."""
        return [row for run in self.runs for row in _curve_rows(run)]

    def health_rows(self) -> list[Row]:
        """Return one row for each layer of each diagnosis."""
        return [row for run in self.runs for row in _health_rows(run)]

    def to_pandas(self) -> Frames:
        """Return the runs, their curves and their health as tidy pandas frames.

        A packed run gives the frames of the folder it was made from, but for the path.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "to_pandas needs pandas: pip install pandas (rows(), curve_rows() and "
                "health_rows() give the same without it)"
            ) from error
        columns = (RUN_COLUMNS, CURVE_COLUMNS, HEALTH_COLUMNS)
        rows = (self.rows(), self.curve_rows(), self.health_rows())
        frames = (
            pd.DataFrame(table, columns=None if table else names)
            for table, names in zip(rows, columns, strict=True)
        )
        return Frames(*frames)


_PLACE = ("run", "algorithm", "env", "variant", "seed")
RUN_COLUMNS = [
    *_PLACE, "name", "finished", "reached", "score", *(f"{kind}_score" for kind in SCORES),
    *RECORDED, *NETWORK, "episodes", "seconds", "steps_per_second", "protocol", "commit", "machine",
]  # fmt: skip
"""The first columns of the frame of runs; the settings follow them."""
CURVE_COLUMNS = [*_PLACE, "step", "kind", "judged", "score"]
HEALTH_COLUMNS = [*_PLACE, "step", "layer", "representation", *RECORDED, *NETWORK]


def load_runs(*paths: str | os.PathLike[str]) -> Runs:
    """Read runs: run folders, packed runs, or folders with such in them, at any depth.

    Runs that are being trained are read as far as they are. What cannot be read is left out with
    a warning; nothing to read at all is an error.

    Examples:
        >>> runs = load_runs("results/fleet-check/alone")  # doctest: +SKIP
        >>> runs.to_pandas().runs.groupby("variant").score.mean()  # doctest: +SKIP
    """
    if not paths:
        raise TypeError("load_runs needs a folder with runs in it, such as load_runs('runs/')")
    gathered = gather(paths)
    troubles = [*gathered.troubles, *(text for run in gathered.runs for text in run.troubles)]
    for trouble in troubles:
        warnings.warn(trouble, stacklevel=2)
    return Runs(gathered.runs, troubles)


def _place(run: RunData) -> Row:
    values = (str(run.path), run.algorithm, run.env, run.label, run.seed)
    return dict(zip(_PLACE, values, strict=True))


def _run_row(run: RunData) -> Row:
    ends: Mapping[str, Any] = {
        "name": run.name,
        "finished": run.finished,
        "reached": run.reached,
        "score": run.final("score"),
        **{f"{kind}_score": run.final(f"{kind}_score") for kind in SCORES},
        **{measure: run.final(measure) for measure in (*RECORDED, *NETWORK)},
        "episodes": run.episodes,
        "seconds": run.seconds,
        "steps_per_second": run.steps_per_second,
        "protocol": run.protocol,
        "commit": run.commit,
        "machine": run.machine,
    }
    settings = {name: value for name, value in run.spec.items() if name not in ("env", "seed")}
    return {**_place(run), **ends, **settings}


def _curve_rows(run: RunData) -> Iterator[Row]:
    for kind, series in run.scores.items():
        shared = {**_place(run), "kind": kind, "judged": kind == run.score_kind}
        for step, score in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            yield {name: {**shared, "step": step, "score": score}[name] for name in CURVE_COLUMNS}


def _health_rows(run: RunData) -> Iterator[Row]:
    for layer, measures in run.layers.items():
        shared = {**_place(run), "layer": layer, "representation": layer == run.representation}
        for index, step in enumerate(run.health_steps.tolist()):
            values = {measure: float(measures[measure][index]) for measure in RECORDED}
            values |= {measure: float(run.network[measure][index]) for measure in NETWORK}
            yield {name: {**shared, "step": step, **values}[name] for name in HEALTH_COLUMNS}
