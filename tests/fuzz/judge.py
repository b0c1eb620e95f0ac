"""Whether a case ended well."""

from __future__ import annotations

import re

from hadamard.core.stopping import INTERRUPTED
from tests.fuzz.isolated import DIED, HUNG, STARTED, TRACEBACK, Case, End

REFUSED = (1, 2)
"""Exit codes of a refusal: 2 for settings and folders, 1 for what went wrong."""
WELL = (0, INTERRUPTED, 143, STARTED)
"""Ends of a case that was accepted; 75 and 143 are those of long work, which was stopped."""
DIVERGED = " diverged: "
"""What a run says that ends because a loss or a weight is not finite."""
BROKEN = {HUNG: "hangs", DIED: "kills its process", TRACEBACK: "ends with a traceback"}


def fault(case: Case, end: End) -> str | None:
    """Say what is wrong with the end of a case; None if nothing is."""
    if end.code in BROKEN:
        return BROKEN[end.code]
    if "Traceback" in end.out + end.err:
        return "prints a traceback"
    if end.code in WELL:
        return None
    if end.code not in REFUSED:
        return f"exit code {end.code}, which is not documented"
    if end.changed and end.code == 2:
        return "is refused, and has changed the folder"
    if end.code == 1 and DIVERGED in end.err:
        return None  # the value was accepted, and the run ended as it must
    if not end.err.strip():
        return "is refused without a word"
    said = plain(end.err)
    for words in case.names:
        if not any(_says(said, word) for word in words):
            return f"the refusal names none of: {', '.join(words)[:200]}"
    return None


def plain(text: str) -> str:
    """Return messages without the frames and line breaks around them."""
    return " ".join(re.sub(r"[│╭╮╰╯─|]", " ", text).split())


def _says(text: str, word: str) -> bool:
    """Tell whether a text has a word that is not a part of another; of long ones the beginning."""
    word = plain(word)
    end = r"(?!\w)" if len(word) <= _COMPARED else ""
    return bool(word) and re.search(rf"(?<!\w){re.escape(word[:_COMPARED])}{end}", text) is not None


_COMPARED = 40
"""Characters of a word that are looked for."""
