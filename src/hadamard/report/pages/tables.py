"""Tables in two forms: HTML and LaTeX with rounded numbers, CSV with all digits."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadamard.core.files import write_atomically
from hadamard.report.measures import number
from hadamard.report.pages.document import columns_html
from hadamard.report.statistics.estimates import Estimate

_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "²": r"$^2$",
    "\n": " ",
}
_FORMULA_MARKS = ("=", "+", "-", "@", "\t", "\r")
_TEX_CODES = str.maketrans(_TEX)


@dataclass(frozen=True)
class Table:
    """A table with two sets of columns: rounded text, and exact data."""

    name: str
    """The name of its files."""
    caption: str
    text: Mapping[str, Sequence[str]]
    """Columns of text by their heads, for HTML and LaTeX."""
    data: Mapping[str, Sequence[Any]]
    """Columns of values by their names, for CSV."""

    def __len__(self) -> int:
        return len(next(iter(self.text.values()), ()))

    def write(self, folder: Path, formats: Sequence[str] = ("csv", "tex")) -> None:
        """Write the table into a folder, as CSV and as LaTeX."""
        for name in formats:
            content = self.csv() if name == "csv" else self.tex()
            data = content.encode("utf-8", "backslashreplace")
            write_atomically(folder / f"{self.name}.{name}", data)

    def html(self, css_class: str = "words") -> str:
        """Return the table for a page."""
        return columns_html(self.text, css_class)

    def csv(self) -> str:
        """Return the data as CSV; a missing value is an empty field."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.data)
        for row in zip(*self.data.values(), strict=True):
            writer.writerow(["" if _is_missing(cell) else csv_cell(cell) for cell in row])
        return buffer.getvalue()

    def tex(self) -> str:
        """Return the table as LaTeX that needs no package."""
        head = " & ".join(escape_tex(name) for name in self.text)
        lines = [
            " & ".join(escape_tex(cell) for cell in row) + r" \\"
            for row in zip(*self.text.values(), strict=True)
        ]
        alignment = "l" + "r" * (len(self.text) - 1)
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{escape_tex(self.caption)}}}",
                rf"\begin{{tabular}}{{{alignment}}}",
                r"\hline",
                rf"{head} \\",
                r"\hline",
                *lines,
                r"\hline",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )


def estimate_text(
    estimate: Estimate,
    write: Callable[[float], str] = number,
    *,
    unit: str = "",
    no_interval: str = "",
) -> str:
    """Return an estimate with its interval as text, – if it has no value.

    ``no_interval`` follows the value if there is no interval.

    Examples:
        >>> estimate_text(Estimate(12.0, 3.5, 20.25), unit=" %")
        '12 % (3.50 to 20.2)'
    """
    value, low, high = estimate
    if not math.isfinite(value):
        return "–"
    interval = f" ({write(low)} to {write(high)})" if estimate.has_interval else no_interval
    return f"{write(value)}{unit}{interval}"


def csv_cell(cell: Any) -> Any:
    """Return a cell for CSV; text that a spreadsheet would run as a formula gets a quote before it.

    Examples:
        >>> csv_cell("=1+1"), csv_cell(-1.0), csv_cell("tanh + HR")
        ("'=1+1", -1.0, 'tanh + HR')
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA_MARKS) else cell


def escape_tex(text: str) -> str:
    r"""Return text with LaTeX's special characters escaped.

    Examples:
        >>> escape_tex("50 % of a_b & {c}")
        '50 \\% of a\\_b \\& \\{c\\}'
    """
    return text.translate(_TEX_CODES)


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))
