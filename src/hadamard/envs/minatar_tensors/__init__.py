"""MinAtar's games as tensor programs: thousands of games are stepped in one computation.

A game is a module of this folder. Its state is a dictionary of tensors with one row per game; a
step is a fixed sequence of elementwise operations and small reductions, so it can be compiled and
captured in a CUDA graph. The rules are those of the PyPI package ``minatar``, to the bit.

Sticky actions, time limits and new episodes are the caller's business. An ended game must be
replaced before its next step, with ``select(ended, new(draws), state)``; the package would stay
at its end, whereas ``step`` here would play on.

Randomness comes from outside, as uniform numbers. Each purpose has its own column of ``draws``, so
``new`` and ``step`` can be given the same numbers only if at most one of the results is used.

Examples:
    >>> breakout = game("breakout")
    >>> state = breakout.new(torch.zeros(2, breakout.DRAWS))
    >>> state, reward, terminal = breakout.step(
    ...     state, torch.tensor([1, 3]), torch.zeros(2, breakout.DRAWS)
    ... )
    >>> state["paddle"].tolist(), breakout.observe(state).shape
    ([3, 5], torch.Size([2, 4, 10, 10]))
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
from torch import Tensor

from hadamard.core import discover
from hadamard.envs.minatar_tensors._grid import State

__all__ = ["Game", "State", "game", "select", "tasks"]


class Game(Protocol):
    """What the module of a game defines."""

    ACTIONS: tuple[int, ...]
    """The package's minimal action set, in the package's numbers."""
    CHANNELS: int
    DRAWS: int
    """How many uniform numbers per game ``new`` and ``step`` are given; may be 0."""

    def new(self, draws: Tensor, *, ramping: bool = False) -> State:
        """Start games; ``draws`` is (games, DRAWS), float32 in [0, 1).

        No game starts differently with difficulty ramping.
        """

    def step(
        self, state: State, action: Tensor, draws: Tensor, *, ramping: bool = False
    ) -> tuple[State, Tensor, Tensor]:
        """Play one step; return the new state, the reward (float32) and whether the game ended.

        ``action`` holds the package's numbers 0 to 5, as int64.
        """

    def observe(self, state: State) -> Tensor:
        """Return the package's observation with channels first: (games, CHANNELS, 10, 10) uint8."""

    def from_package(self, game: Any) -> dict[str, Any]:
        """Return a game of the package as one row of a state: NumPy arrays and scalars."""


def tasks() -> tuple[str, ...]:
    """Return the games' names."""
    return discover.names(__name__)


def game(task: str) -> Game:
    """Return a game; an unknown name is an error that lists the nearest names."""
    return cast(Game, discover.find(__name__, task, "MinAtar game"))


def select(mask: Tensor, a: State, b: State) -> State:
    """Return a state whose rows are those of ``a`` where ``mask`` holds, and of ``b`` elsewhere.

    Examples:
        >>> select(torch.tensor([True, False]), {"x": torch.ones(2)}, {"x": torch.zeros(2)})
        {'x': tensor([1., 0.])}
    """
    return {
        name: torch.where(mask.view(-1, *[1] * (b[name].dim() - 1)), a[name], b[name]) for name in b
    }
