"""Modules of the user's that may be imported: only those that he names himself.

A run folder may come from a stranger, so a module is never imported because a folder names it. The
user names one on the command line (``--env gym/module:id`` of a new run, ``--plugin module`` of any
command), or imports it himself in Python. Worker processes inherit the names.
"""

from __future__ import annotations

import importlib
import os
import re
import sys

VARIABLE = "HADAMARD_IMPORT"
"""Environment variable that holds the names, with commas between them."""
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class NotNamed(ValueError):
    """A module that the user did not name."""


def allow(module: str) -> None:
    """Allow a module that the user has named to be imported, here and in worker processes."""
    if not _NAME.fullmatch(module):
        raise ValueError(f"{module!r} is not the name of a module, such as my_tasks")
    names = _allowed()
    if module not in names:
        os.environ[VARIABLE] = ",".join([*names, module])


def _allowed() -> list[str]:
    return [name for name in os.environ.get(VARIABLE, "").split(",") if name]


def load(module: str, needed_by: str) -> None:
    """Import a module if the user has named it; one that is imported already is used as it is."""
    if module in sys.modules:
        return
    if module not in _allowed():
        raise NotNamed(
            f"{needed_by} is made by the module {module}, which is imported only if you name it: "
            f"add --plugin {module} to the command (in Python: import {module} before)"
        )
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ModuleNotFoundError(
            f"{needed_by}: there is no module {error.name}. Install it, or put its folder on the "
            f"path: PYTHONPATH=FOLDER hadamard ...",
            name=error.name,
        ) from None
