"""Compare and damage what was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def same(ours: Any, theirs: Any) -> bool:
    if type(ours) is not type(theirs):
        return False
    if isinstance(ours, Tensor):
        alike = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return alike and torch.equal(ours.nan_to_num(7), theirs.nan_to_num(7))
    if isinstance(ours, np.ndarray):
        alike = ours.dtype == theirs.dtype and ours.shape == theirs.shape
        return alike and np.array_equal(ours, theirs)
    if isinstance(ours, dict):
        return list(ours) == list(theirs) and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs or (ours != ours and theirs != theirs))


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
