"""Parts of checkpoints, their comparison, and damage to their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hadamard.core import checkpoint


def same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        same_kind = left.dtype == right.dtype and left.shape == right.shape
        return same_kind and torch.equal(left.nan_to_num(7), right.nan_to_num(7))
    if isinstance(left, np.ndarray):
        same_kind = left.dtype == right.dtype and left.shape == right.shape
        return same_kind and np.array_equal(left, right)
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right or (left != left and right != right))


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


class Holder:
    """A part of a checkpoint that holds whatever it is given."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def three_saves(folder: Path) -> list[Path]:
    """Save at steps 1 to 3; return what is left, newest first."""
    for step in (1, 2, 3):
        state = {"step": step, "weight": torch.full((3,), float(step))}
        checkpoint.save(folder, step, {"part": Holder(state)})
    return sorted(folder.glob("step-*"), reverse=True)
