"""Words that messages, tables and pages share. Needs only the standard library."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


def did_you_mean(name: str, known: Iterable[str], count: int = 3) -> str:
    """Return a hint that names the known names closest to an unknown one, or "" if none is close.

    Case is ignored.

    Examples:
        >>> did_you_mean("Breakot", ["breakout", "freeway"])
        "; did you mean 'breakout'?"
        >>> did_you_mean("chess", ["breakout", "freeway"])
        ''
    """
    by_lower: Mapping[str, str] = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=count, cutoff=0.6)
    return (
        f"; did you mean {joined([repr(by_lower[match]) for match in matches], 'or')}?"
        if matches
        else ""
    )


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the error message for an unknown name: the closest names, and all known ones.

    Examples:
        >>> unknown("algorithm", "dqnn", ["dqn", "ppo"])
        "unknown algorithm 'dqnn'; did you mean 'dqn'? Known: dqn, ppo"
    """
    known = list(known)
    hint = did_you_mean(name, known) or "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(known)}"


def install(extra: str) -> str:
    """Return the commands that install an extra, from an index and from a checkout.

    Examples:
        >>> install("report")
        "pip install 'hadamard-rl[report]' (from a checkout: pip install '.[report]')"
    """
    return f"pip install 'hadamard-rl[{extra}]' (from a checkout: pip install '.[{extra}]')"


def joined(words: Iterable[str], last: str) -> str:
    """Return words with commas between them, and a conjunction before the last one.

    Examples:
        >>> joined(["dqn", "ppo", "pqn"], "or"), joined(["dqn", "ppo"], "and")
        ('dqn, ppo or pqn', 'dqn and ppo')
    """
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the singular or the plural.

    Examples:
        >>> counted(1, "run"), counted(2_000, "run")
        ('1 run', '2,000 runs')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def data_size(count: float) -> str:
    """Return a number of bytes.

    Examples:
        >>> data_size(2_500_000), data_size(7.06e9), data_size(4e12)
        ('2.5 MB', '7.1 GB', '4,000.0 GB')
    """
    return f"{count / 1e9:,.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def duration(seconds: float) -> str:
    """Return a time span.

    Examples:
        >>> duration(5), duration(75), duration(4000)
        ('5 s', '1 min 15 s', '1 h 06 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def count_range(counts: Iterable[int], noun: str) -> str:
    """Return the range of some counts with their noun.

    Examples:
        >>> count_range([1, 1], "seed"), count_range([5, 3, 4], "seed")
        ('1 seed', '3 to 5 seeds')
    """
    numbers = sorted(counts)
    low, high = numbers[0], numbers[-1]
    return counted(high, noun) if low == high else f"{low:,} to {high:,} {noun}s"


def steps_words(steps: float) -> str:
    """Write a number of steps.

    Examples:
        >>> steps_words(2_500_000), steps_words(300_000), steps_words(2_048), steps_words(250)
        ('2.5 M', '300 k', '2,048', '250')
    """
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= size and 100 * steps % size == 0:
            return f"{steps / size:g} {letter}"
    return f"{steps:,.0f}"
