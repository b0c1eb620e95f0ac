"""Whatever a state holds, a checkpoint gives it back, and damage to any byte is noticed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hadamard.core import checkpoint
from hadamard.core.checkpoint import CheckpointError
from tests.support.checkpoints import Holder, same

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"]
# Few letters, among them the slash, so that the names of tensors would collide if they could.
NAMES = st.text("ab/0'", max_size=3)
KEYS = NAMES | st.integers(-2, 2)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    count = int(np.prod(shape))
    numbers = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count))
    array = np.array(numbers, dtype=np.int64).reshape(shape).astype(draw(st.sampled_from(DTYPES)))
    return array.T if draw(st.booleans()) else array


def tensors(dtype: str) -> st.SearchStrategy[torch.Tensor]:
    return arrays().map(lambda array: torch.from_numpy(array.copy()).to(getattr(torch, dtype)))


VALUES = PLAIN | arrays() | st.sampled_from([*DTYPES, "bfloat16"]).flatmap(tensors)
STATES = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)
PARTS = st.dictionaries(NAMES, STATES, min_size=1, max_size=3)


@settings(max_examples=60)
@given(PARTS)
def test_any_state_comes_back_as_it_was(parts: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = checkpoint.save(
            Path(folder), 7, {name: Holder(state) for name, state in parts.items()}
        )
        loaded = {name: Holder() for name in parts}
        assert checkpoint.load(Path(folder), loaded) == (7, [])
        assert same({name: part.state for name, part in loaded.items()}, parts)
        assert checkpoint.newest(Path(folder)) == path


@settings(max_examples=30)
@given(st.sets(st.integers(0, 10**9), min_size=1, max_size=4).map(sorted), st.data())
def test_the_newest_two_are_kept_and_any_flipped_bit_leads_to_the_older(
    steps: list[int], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for step in steps:
            checkpoint.save(root, step, {"part": Holder({"step": step, "of": torch.tensor(step)})})
        kept = sorted(path.name for path in root.glob("step-*"))
        assert kept == [f"step-{step:012d}" for step in steps[-2:]]
        newest = root / kept[-1]
        file = newest / data.draw(st.sampled_from(sorted(path.name for path in newest.iterdir())))
        content = bytearray(file.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= 1 << data.draw(st.integers(0, 7))
        file.write_bytes(content)
        part = Holder()
        if len(steps) == 1:
            with pytest.raises(CheckpointError, match="nothing to resume from"):
                checkpoint.load(root, {"part": part})
            return
        step, skipped = checkpoint.load(root, {"part": part})
        assert (step, len(skipped)) == (steps[-2], 1)
        assert newest.name in skipped[0]
        assert same(part.state, {"step": step, "of": torch.tensor(step)})
