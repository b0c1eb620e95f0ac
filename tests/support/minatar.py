"""Games of the MinAtar package, played with draws that the tensor games can be given too."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hadamard.envs import minatar
from hadamard.envs.minatar_tensors import Game, State

Policy = Callable[[Any, np.random.Generator], int]


@dataclass(frozen=True)
class Player:
    """A policy, and how often it plays: with more lives, a game goes on after its end.

    So games reach levels that few reach in one life.
    """

    policy: Policy
    lives: int = 1


class ColumnRandom:
    """Stands in for a game's ``RandomState``: it returns the columns of one row of draws.

    The function of the game that asks says where its columns begin; it uses them in turn.
    """

    def __init__(self, first_columns: dict[str, int]) -> None:
        self._first = first_columns
        self._used: dict[str, int] = {}
        self._row: NDArray[np.float32] = np.zeros(0, np.float32)

    def load(self, row: NDArray[np.float32]) -> None:
        self._row = row
        self._used = {}

    def rand(self, *size: int) -> Any:
        numbers = self._take(sys._getframe(1).f_code.co_name, size[0] if size else 1)
        return numbers.astype(np.float64) if size else float(numbers[0])

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        numbers = self._take(sys._getframe(1).f_code.co_name, size or 1)
        low, high = (0, low) if high is None else (low, high)
        chosen = low + np.floor(numbers * np.float32(high - low)).astype(np.int64)
        return chosen if size else int(chosen[0])

    def _take(self, function: str, count: int) -> NDArray[np.float32]:
        start = self._first[function] + self._used.get(function, 0)
        self._used[function] = self._used.get(function, 0) + count
        numbers = self._row[start : start + count]
        assert len(numbers) == count, f"{function} uses more draws than the game has"
        return numbers


@dataclass
class Transitions:
    """What the package did: each list has one entry per step."""

    before: list[dict[str, Any]]
    action: list[int]
    draws: NDArray[np.float32]
    after: list[dict[str, Any]]
    reward: list[float]
    terminal: list[bool]
    observations: list[NDArray[np.uint8]]
    """After every tenth step."""
    starts: list[tuple[int, dict[str, Any]]]
    """The rows of ``draws`` that began an episode, and its first state."""


OBSERVED_EVERY = 10


def record(
    task: str,
    tensors: Game,
    players: list[Player],
    steps: int,
    *,
    first_columns: dict[str, int],
    ramping: bool,
    seed: int = 0,
) -> Transitions:
    """Play games of the package, each by the player who has played the fewest steps so far."""
    rng = np.random.default_rng(seed)
    draws = torch.rand(steps, tensors.DRAWS, generator=torch.Generator().manual_seed(seed)).numpy()
    played = Transitions([], [], draws, [], [], [], [], [])
    game = package_game(task, ramping)
    game.random = ColumnRandom(first_columns)
    row, player, lives, steps_of = None, 0, 1, [0] * len(players)
    for index in range(steps):
        if row is None:
            game.random.load(draws[index])
            game.reset()
            row = tensors.from_package(game)
            played.starts.append((index, row))
            player = steps_of.index(min(steps_of))
            lives = players[player].lives
        steps_of[player] += 1
        action = players[player].policy(game, rng)
        game.random.load(draws[index])
        reward, terminal = game.act(action)
        after = tensors.from_package(game)
        played.before.append(row)
        played.action.append(action)
        played.after.append(after)
        played.reward.append(float(reward))
        played.terminal.append(bool(terminal))
        if index % OBSERVED_EVERY == 0:
            played.observations.append(observation(game))
        lives -= terminal
        row = after if lives else None
        game.terminal = False
    return played


def assert_equal_to_tensors(played: Transitions, tensors: Game, *, ramping: bool) -> None:
    """The same states, actions and draws must lead to the same states, rewards and ends."""
    draws = torch.from_numpy(played.draws)
    expected = state_of(played.after)
    state, reward, terminal = tensors.step(
        state_of(played.before), torch.tensor(played.action), draws, ramping=ramping
    )
    assert_same_state(state, expected)
    assert reward.dtype == torch.float32
    assert terminal.dtype == torch.bool
    assert torch.equal(reward, torch.tensor(played.reward))
    assert torch.equal(terminal, torch.tensor(played.terminal))
    rows = [index for index, _ in played.starts]
    assert_same_state(
        tensors.new(draws[rows], ramping=ramping), state_of([row for _, row in played.starts])
    )
    seen = {name: values[::OBSERVED_EVERY] for name, values in state.items()}
    assert torch.equal(tensors.observe(seen), torch.from_numpy(np.stack(played.observations)))


def assert_same_state(state: State, expected: State) -> None:
    assert state.keys() == expected.keys()
    for name, values in expected.items():
        assert state[name].dtype == values.dtype, name
        different = (
            (state[name] != values).flatten(1) if values.dim() > 1 else state[name] != values
        )
        rows = different.any(1) if different.dim() > 1 else different
        assert not rows.any(), f"{name} differs in rows {rows.nonzero().flatten()[:5].tolist()}"


def state_of(rows: list[dict[str, Any]]) -> State:
    return {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}


def package_game(task: str, ramping: bool = False, seed: int = 0) -> Any:
    game = minatar._game_class(task)(ramping=ramping)
    game.random = np.random.RandomState(seed)
    game.reset()
    return game


def observation(game: Any) -> NDArray[np.uint8]:
    grid: NDArray[np.uint8] = game.state().transpose(2, 0, 1).astype(np.uint8)
    return grid


def random_policy(actions: tuple[int, ...]) -> Policy:
    return lambda game, rng: int(actions[rng.integers(len(actions))])


def mostly(policy: Policy, actions: tuple[int, ...], noise: float) -> Policy:
    """A policy that takes a random action now and then."""
    anything = random_policy(actions)
    return lambda game, rng: (anything if rng.random() < noise else policy)(game, rng)
