"""Gymnasium's spaces as what learners take: vectors, images, and actions in [-1, 1] or 0..n-1.

| observation space | what the learner gets |
|---|---|
| Box of numbers | float32, flattened to a vector |
| Box of bytes with two or three dimensions | an image (channels, height, width) of bytes |
| Box of numbers with three dimensions | an image (channels, height, width) of float32 |
| Discrete, MultiDiscrete | float32, 1 at the value's place and 0 elsewhere |
| MultiBinary | float32, flattened |
| Dict, Tuple | the vectors of their parts in a row; bytes are divided by 255 |

The channels of an image are the shorter of its first and last dimensions. Anything else is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

MOST_CATEGORIES = 10_000
"""Values of a Discrete observation, each of which becomes a number of the vector."""
_OBSERVATIONS = "Box, Discrete, MultiDiscrete and MultiBinary, also inside of Dict and Tuple"
_ACTIONS = "Discrete, and Box of floating-point numbers with finite limits"


class Unsupported(ValueError):
    """A space that no learner here can take."""


class Observations(NamedTuple):
    """What a learner gets for a space, and how it is computed."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    full_range: bool
    """Whether pixels take values up to 255."""
    convert: Callable[[Any], NDArray[Any]]


class Actions(NamedTuple):
    """What a learner sends for a space, and how it is converted."""

    number: int
    """Number of discrete actions, or 0."""
    size: int
    """Length of a continuous action, or 0."""
    convert: Callable[[Any], Any]


def observations(task: str, space: Any) -> Observations:
    """Return what a learner gets for a task's observation space; refuse one that it cannot take."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box) and _is_image(space):
        return _image(task, space)
    size, convert = _vector(task, space)
    if size == 0:
        raise Unsupported(f"{task} has empty observations: {space}")
    return Observations((size,), torch.float32, False, convert)


def _is_image(space: Any) -> bool:
    return len(space.shape) == 3 or (len(space.shape) == 2 and space.dtype == np.uint8)


def _image(task: str, space: Any) -> Observations:
    height_first = len(space.shape) == 3 and space.shape[2] < space.shape[0]

    def convert(observation: Any) -> NDArray[Any]:
        array = np.asarray(observation)
        if array.shape != space.shape:
            return array  # the batch refuses it with its shape
        if array.ndim == 2:
            return array[None]
        return np.moveaxis(array, 2, 0) if height_first else array

    shape = convert(np.zeros(space.shape, np.uint8)).shape
    if min(shape) < 1 or min(shape[1:]) < 3:
        raise Unsupported(f"{task} has images of {shape[1]} x {shape[2]} pixels: 3 x 3 at least")
    if space.dtype != np.uint8:
        return Observations(
            shape, torch.float32, False, lambda obs: convert(obs).astype(np.float32)
        )
    return Observations(shape, torch.uint8, bool(space.high.max() > 1), convert)


def _vector(task: str, space: Any) -> tuple[int, Callable[[Any], NDArray[np.float32]]]:
    """Return the length of a space's vector, and the function that makes it."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        scale = np.float32(255 if space.dtype == np.uint8 and space.high.max() > 1 else 1)

        def flattened(value: Any) -> NDArray[np.float32]:
            array = np.asarray(value)
            if array.shape != space.shape:
                return array  # the batch refuses it with its shape
            return array.astype(np.float32).reshape(-1) / scale

        return math.prod(space.shape), flattened
    if isinstance(space, spaces.MultiBinary):
        return math.prod(space.shape), lambda value: np.asarray(value, np.float32).reshape(-1)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _one_hot(task, space)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner: Any = space.spaces
        named = inner.items() if isinstance(space, spaces.Dict) else enumerate(inner)
        parts = [(name, *_vector(task, part)) for name, part in named]

        def joined(value: Any) -> NDArray[np.float32]:
            return np.concatenate([convert(value[name]) for name, _, convert in parts])

        return sum(size for _, size, _ in parts), joined
    raise Unsupported(
        f"{task} observes {space}, which is not supported. Supported are {_OBSERVATIONS}: convert "
        "it in a gymnasium.ObservationWrapper, and register the wrapped task"
    )


def _one_hot(task: str, space: Any) -> tuple[int, Callable[[Any], NDArray[np.float32]]]:
    counts = np.atleast_1d(getattr(space, "nvec", getattr(space, "n", 0))).reshape(-1)
    starts = np.broadcast_to(np.asarray(space.start).reshape(-1), counts.shape)
    size = int(counts.sum())
    if size > MOST_CATEGORIES:
        raise Unsupported(
            f"{task} observes {space}: more than {MOST_CATEGORIES:,} values are not supported"
        )
    offsets = np.cumsum(counts) - counts - starts

    def convert(value: Any) -> NDArray[np.float32]:
        if not space.contains(np.asarray(value, space.dtype) if np.ndim(value) else int(value)):
            raise Unsupported(f"{task} observed {value}, which does not lie in {space}")
        vector = np.zeros(size, np.float32)
        vector[offsets + np.asarray(value).reshape(-1)] = 1
        return vector

    return size, convert


def actions(task: str, space: Any) -> Actions:
    """Return what a learner sends for a task's action space; refuse one that it cannot serve."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Actions(int(space.n), 0, lambda action: int(action) + start)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f" and space.is_bounded("both"):
        center, half_range = (space.high + space.low) / 2, (space.high - space.low) / 2

        def scaled(action: Any) -> NDArray[Any]:
            value: NDArray[Any] = center + half_range * action.reshape(space.shape)
            return value.astype(space.dtype)

        return Actions(0, math.prod(space.shape), scaled)
    raise Unsupported(
        f"{task} takes {space} as actions, which is not supported. Supported are {_ACTIONS}: "
        "convert it in a gymnasium.ActionWrapper, and register the wrapped task"
    )
