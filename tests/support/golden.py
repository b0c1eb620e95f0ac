"""The recorded numbers in ``tests/data/golden``, whose README says what they are."""

from __future__ import annotations

import functools
import io
import json
import lzma
from typing import Any

import numpy as np

from tests.support.paths import ROOT

_FOLDER = ROOT / "tests" / "data" / "golden"


def arrays(name: str) -> dict[str, np.ndarray]:
    """Return the arrays of ``NAME.npz.xz``."""
    with np.load(io.BytesIO(_content(f"{name}.npz.xz"))) as stored:
        return dict(stored)


def document(name: str) -> Any:
    """Return the content of ``NAME.json.xz``."""
    return json.loads(_content(f"{name}.json.xz"))


@functools.cache
def _content(name: str) -> bytes:
    return lzma.decompress((_FOLDER / name).read_bytes())
