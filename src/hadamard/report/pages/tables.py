"""Tables, once for people and once for programs: HTML and LaTeX with words, CSV with all digits."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hadamard.report.pages.document import columns_html

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
_TEX_CODES = str.maketrans(_TEX)


@dataclass(frozen=True)
class Table:
    """A table under two sets of columns: as it is shown, and the numbers behind it."""

    name: str
    """Of its files."""
    caption: str
    shown: Mapping[str, Sequence[str]]
    data: Mapping[str, Sequence[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.shown.values()), ()))

    def write(self, folder: Path) -> None:
        """Write it into a folder, as CSV and as LaTeX."""
        (folder / f"{self.name}.csv").write_text(self.csv(), encoding="utf-8")
        (folder / f"{self.name}.tex").write_text(self.tex(), encoding="utf-8")

    def html(self, kind: str = "words") -> str:
        """Return it for the page."""
        return columns_html(self.shown, kind)

    def csv(self) -> str:
        """Return the numbers behind it; what is not known is an empty field."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.data)
        for row in zip(*self.data.values(), strict=True):
            writer.writerow(["" if _unknown(cell) else cell for cell in row])
        return buffer.getvalue()

    def tex(self) -> str:
        """Return it as LaTeX that needs no package."""
        head = " & ".join(escape_tex(name) for name in self.shown)
        lines = [
            " & ".join(escape_tex(cell) for cell in row) + r" \\"
            for row in zip(*self.shown.values(), strict=True)
        ]
        alignment = "l" + "r" * (len(self.shown) - 1)
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


def escape_tex(text: str) -> str:
    r"""Return text that LaTeX prints as it is.

    Examples:
        >>> escape_tex("50 % of a_b & {c}")
        '50 \\% of a\\_b \\& \\{c\\}'
    """
    return text.translate(_TEX_CODES)


def _unknown(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))
