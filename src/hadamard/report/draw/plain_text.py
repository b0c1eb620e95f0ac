"""Text of run folders, made safe to show: bounded, in one line, without invisible characters.

Whoever shares a run chooses its names. A name may hold line breaks, marks that reverse the text
after it, parts of a surrogate pair, which no file can hold, or 10,000 characters.
"""

from __future__ import annotations

import hashlib
import html
import re

LONGEST = 120
"""Characters of a name on a page."""
LONGEST_IN_FIGURE = 60
"""Characters of a name in a figure."""
_LONGEST_REASON = 300

# Control characters, marks of direction, line separators, surrogates and what XML forbids.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return text with its invisible characters as Python writes them; line breaks stay.

    Examples:
        >>> visible("abc\u202etxt.exe\x00")
        'abc\\u202etxt.exe\\x00'
    """
    return _INVISIBLE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def escape(text: str) -> str:
    """Return text for HTML, also between quotes; invisible characters are spelled out."""
    return html.escape(visible(text))


def plain(text: str, longest: int = LONGEST) -> str:
    r"""Return a name in one line of at most so many characters, without invisible ones.

    What is cut is replaced by a few digits that differ for different names.

    Examples:
        >>> plain("two\nlines")
        'two\\nlines'
        >>> plain("a" * 10_000, 40)
        'aaaaaaaaaaaaaaaaaaaaaaaaaaaa… (27dd1f61)'
    """
    line = visible(text).replace("\n", r"\n").replace("\t", r"\t")
    if len(line) <= longest:
        return line
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{line[: longest - 12]}… ({digest})"


def reason(error: Exception) -> str:
    r"""Return an error in a few words.

    Examples:
        >>> reason(ValueError("no\nsuch thing")), reason(MemoryError())
        ('ValueError: no such thing', 'MemoryError')
    """
    text = visible(" ".join(str(error).split()))
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]}…"
