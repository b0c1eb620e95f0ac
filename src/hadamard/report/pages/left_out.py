"""What a page leaves out: it is written in any case, and says what is not on it and why."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence

from hadamard.report.draw.plain_text import escape, reason

MOST_FIGURES = 400
"""Figures on a page; of more it says how many it leaves out."""


class LeftOut(RuntimeWarning):
    """Making a part of a page failed, and the page goes on without it."""


class Omissions:
    """Collects sentences about what is not on a page."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    def note(self, sentence: str) -> str:
        """Record what is left out on purpose, and return the note for its place on the page."""
        self.sentences.append(sentence)
        return f'<p class="note">{escape(sentence)}</p>'

    def failed(self, part: str, why: str) -> str:
        """Record a part that could not be made, with a warning, and return the note for it."""
        sentence = f"{part} is left out, because making it failed ({why})."
        warnings.warn(sentence, LeftOut, stacklevel=3)
        return self.note(sentence)

    def attempt(self, part: str, make: Callable[[], str]) -> str:
        """Return the HTML of a part of a page, or the note that it could not be made."""
        try:
            return make()
        except ImportError:  # the user must install what is missing
            raise
        except Exception as error:
            return self.failed(part, reason(error))


def too_many_figures(further: int) -> str:
    """Return the sentence that so many figures beyond `MOST_FIGURES` are left out."""
    return (
        f"{further:,} further figures are left out: a page has at most {MOST_FIGURES}. Name fewer "
        "tasks or variants at a time."
    )


def listed(names: Iterable[str], most: int = 8) -> str:
    """Return names with commas, and of a long list the first ones and how many more there are.

    Examples:
        >>> listed("abc"), listed("abcdef", most=2)
        ('a, b, c', 'a, b and 4 more')
    """
    items: Sequence[str] = list(names)
    if len(items) <= most:
        return ", ".join(items)
    return f"{', '.join(items[:most])} and {len(items) - most:,} more"
