"""Two configurations side by side: which settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hadamard.core.typed import shortened


def listed(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the settings in which two configurations differ, one line each."""
    lines = []
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += listed(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(line(f"{prefix}{key}", before, after))
    return lines


def line(name: str, before: Any, now: Any) -> str:
    """Return the line of one setting."""
    return f"  {name}: {shortened(before)} there, {shortened(now)} here"
