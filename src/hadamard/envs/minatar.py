"""MinAtar: five small Atari-like games on a 10x10 grid.

The games are those of the PyPI package ``minatar``, with sticky actions (probability 0.1), no
difficulty ramping, each game's minimal action set and unclipped rewards. An episode is truncated
after 5,000 steps; the package itself has no limit. Freeway's limit of 2,500 frames is part of the
game and terminates it, as in the package.

The state is exact: it holds every game with its random generator, and play continues from it bit
for bit.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hadamard.core.types import Envs, EnvSpec, Episode, State, Step
from hadamard.envs import minatar_tensors
from hadamard.envs.common import (
    RunningEpisodes,
    check_actions,
    check_num_envs,
    check_saved,
    check_task,
    copy_to_device,
    environment_seeds,
)
from hadamard.envs.tensor_games import Rules, TensorGames
from hadamard.text import install

REQUIRES = ("minatar",)
EXTRA = "minatar"

STICKY_ACTION_PROBABILITY = 0.1
MAX_STEPS = 5_000
SIDE = 10
CELLS = SIDE * SIDE
PIXELS = 40
"""Width and height of a cell in a picture."""

# The background's color, then each channel's: neighboring ones of a game are easy to tell apart.
_COLORS = np.array(
    [
        (16, 18, 28),
        (240, 228, 66),
        (86, 180, 233),
        (125, 130, 145),
        (213, 94, 0),
        (255, 255, 255),
        (204, 121, 167),
        (0, 158, 115),
        (0, 114, 178),
        (230, 159, 0),
        (150, 220, 160),
    ],
    dtype=np.uint8,
)


def tasks() -> tuple[str, ...]:
    """Return the games."""
    return tuple(_RENDERERS)


def make(
    task: str,
    seed: int | Sequence[int],
    num_envs: int,
    device: torch.device | str = "cpu",
    *,
    training: bool = True,
    ramping: bool = False,
) -> Envs:
    """Make a batch of one game; training and evaluation do not differ."""
    del training
    return MinAtarEnvs(task, seed, num_envs, device, ramping=ramping)


def make_on_device(
    task: str, seed: int, num_envs: int, device: torch.device | str, *, training: bool = True
) -> TensorGames:
    """Make a batch of one game as tensors on a device; it draws other random numbers."""
    del training
    check_task("minatar", task, tasks())
    rules = Rules(minatar_tensors.game(task), STICKY_ACTION_PROBABILITY, MAX_STEPS)
    return TensorGames(rules, seed, num_envs, device)


def longest_rollout(task: str) -> int:
    """Return a number of steps in which no game on the device is truncated twice."""
    del task
    return MAX_STEPS


class MinAtarEnvs:
    """A batch of one MinAtar game; the games are stepped one after another in this process."""

    exact = True
    splittable = True

    def __init__(
        self,
        task: str,
        seed: int | Sequence[int],
        num_envs: int,
        device: torch.device | str = "cpu",
        *,
        ramping: bool = False,
    ) -> None:
        check_task("minatar", task, tasks())
        check_num_envs(num_envs)
        self.num_envs = num_envs
        self.device = torch.device(device)
        game_class = _game_class(task)
        self._games: list[Any] = []
        for game_seed in environment_seeds(seed, num_envs):
            game = game_class(ramping=ramping)
            game.random = np.random.RandomState(game_seed)
            # The constructor has drawn an episode without the seed: draw another.
            game.reset()
            self._games.append(game)
        self._last_actions = [0] * num_envs
        self._action_set: list[int] = self._games[0].minimal_action_set()
        channels = self._games[0].state_shape()[2]
        self.spec = EnvSpec((channels, SIDE, SIDE), torch.uint8, len(self._action_set))
        self._render = _RENDERERS[task]
        # Writing a byte to a bytearray takes half the time of writing it to an array.
        self._cells = bytearray(num_envs * channels * CELLS)
        self._batch = np.frombuffer(self._cells, dtype=np.uint8).reshape(num_envs, channels, CELLS)
        self._running = RunningEpisodes(num_envs)
        self._actions: list[int] | None = None

    def reset(self) -> Tensor:
        """Start new episodes everywhere; the generators are not reseeded."""
        for game in self._games:
            game.reset()
        self._running.clear()
        self._actions = None
        self._render_all()
        return self._observation()

    def send(self, action: Tensor) -> None:
        """Keep the actions; the games are played in ``receive``."""
        indices = check_actions(action, self.num_envs, self.spec)
        self._actions = [self._action_set[index] for index in indices.tolist()]

    def receive(self) -> Step:
        """Play one step of every game."""
        if self._actions is None:
            raise RuntimeError("receive() without send(): no step was started")
        results = []
        for index, (game, action) in enumerate(zip(self._games, self._actions, strict=True)):
            # As in the package, an action can also be repeated across a reset.
            if game.random.random_sample() < STICKY_ACTION_PROBABILITY:
                action = self._last_actions[index]
            self._last_actions[index] = action
            results.append(game.act(action))
        self._actions = None
        reward = np.array([result[0] for result in results], dtype=np.float32)
        terminated = np.array([result[1] for result in results], dtype=np.bool_)
        self._running.add(reward)
        truncated = (self._running.lengths >= MAX_STEPS) & ~terminated
        self._render_all()
        ended = np.flatnonzero(terminated | truncated)
        episodes: list[Episode] = []
        final_index = final_obs = None
        if ended.size:
            final_index = torch.from_numpy(ended)
            final_obs = copy_to_device(self._batch_of_grids()[ended], self.device)
            stride = self.spec.obs_shape[0] * CELLS
            for index in ended.tolist():
                episodes.append(self._running.finish(index))
                self._games[index].reset()
                self._batch[index] = 0
                self._render(self._games[index], self._cells, index * stride, self._batch[index])
        return Step(
            obs=self._observation(),
            reward=torch.from_numpy(reward),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            final_index=final_index,
            final_obs=final_obs,
            any_truncated=bool(truncated.any()),
            episodes=tuple(episodes),
        )

    def step(self, action: Tensor) -> Step:
        """Take one step: send, then receive."""
        self.send(action)
        return self.receive()

    def render(self) -> NDArray[np.uint8]:
        """Return the first game's grid with one color per channel."""
        channels = self._batch[0].reshape(-1, SIDE, SIDE)
        # If two channels share a cell the later one is shown, as in the package's own pictures.
        numbers = np.arange(1, len(channels) + 1, dtype=np.uint8)[:, None, None]
        grid: NDArray[np.uint8] = _COLORS[(channels * numbers).max(axis=0)]
        return grid.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)

    def close(self) -> None:
        """Nothing to free."""

    def state_dict(self) -> State:
        """Return every game, its random generator and sticky action, and the running scores."""
        return {
            "games": [_encode(game.__dict__) for game in self._games],
            "last_actions": list(self._last_actions),
            **self._running.state_dict(),
        }

    def load_state_dict(self, state: State) -> Tensor:
        """Load a state; return the observations to act on."""
        check_saved(len(state["games"]), self.num_envs)
        for game, saved in zip(self._games, state["games"], strict=True):
            game.__dict__.update(_decode(saved))
        self._last_actions = list(state["last_actions"])
        self._running.load_state_dict(state)
        self._actions = None
        self._render_all()
        return self._observation()

    def _render_all(self) -> None:
        self._batch.fill(0)
        render, cells, stride = self._render, self._cells, self.spec.obs_shape[0] * CELLS
        for index, (game, rows) in enumerate(zip(self._games, self._batch, strict=True)):
            render(game, cells, index * stride, rows)

    def _observation(self) -> Tensor:
        return copy_to_device(self._batch_of_grids(), self.device)

    def _batch_of_grids(self) -> NDArray[np.uint8]:
        return self._batch.reshape(-1, *self.spec.obs_shape)


def _game_class(task: str) -> Any:
    """Load a game's file alone: its package takes seconds to import pandas and plotting."""
    package = importlib.util.find_spec("minatar")
    if package is None or not package.submodule_search_locations:
        raise ImportError(f"minatar is not installed: {install('minatar')}")
    path = Path(package.submodule_search_locations[0], "environments", f"{task}.py")
    spec = importlib.util.spec_from_file_location(f"minatar_game_{task}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Env


def _encode(value: Any) -> Any:
    """Turn a game's attributes into plain values and arrays."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, np.random.RandomState):
        return {"random_state": _encode(value.get_state(legacy=False))}
    raise TypeError(f"cannot save a MinAtar game that holds a {type(value).__name__}")


def _decode(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.numpy(force=True).copy()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {"random_state"}:
            random = np.random.RandomState()
            random.set_state(_decode(value["random_state"]))
            return random
        return {key: _decode(item) for key, item in value.items()}
    return value


# Each renderer sets the cells that the game's own state() sets, channels first, without building an
# array per game: cell (channel, y, x) is byte start + 100 channel + 10 y + x of ``cells``.
# ``rows`` is the same memory as an array of (channel, cell), for games that store whole grids.


def _asterix(game: Any, cells: bytearray, start: int, _rows: NDArray[np.uint8]) -> None:
    cells[start + 10 * game.player_y + game.player_x] = 1
    for entity in game.entities:
        if entity is not None:
            x, y, to_right, is_gold = entity
            row = start + 10 * y
            cells[row + x + (300 if is_gold else 100)] = 1
            trail = x - 1 if to_right else x + 1
            if 0 <= trail <= 9:
                cells[row + trail + 200] = 1


def _breakout(game: Any, cells: bytearray, start: int, rows: NDArray[np.uint8]) -> None:
    cells[start + 90 + game.pos] = 1
    cells[start + 100 + 10 * game.ball_y + game.ball_x] = 1
    cells[start + 200 + 10 * game.last_y + game.last_x] = 1
    rows[3] = game.brick_map.ravel()


def _freeway(game: Any, cells: bytearray, start: int, _rows: NDArray[np.uint8]) -> None:
    cells[start + 10 * game.pos + 4] = 1
    if type(game.cars[0][3]) is not int:
        # New cars hold NumPy integers. The game computes faster with Python's, of equal value.
        game.cars = [[int(number) for number in car] for car in game.cars]
    for x, y, _timer, velocity in game.cars:
        row = start + 10 * y
        cells[row + x + 100] = 1
        if velocity > 0:
            cells[row + (x - 1) % 10 + 100 + 100 * velocity] = 1
        else:
            cells[row + (x + 1) % 10 + 100 - 100 * velocity] = 1


def _seaquest(game: Any, cells: bytearray, start: int, _rows: NDArray[np.uint8]) -> None:
    row = start + 10 * game.sub_y
    cells[row + game.sub_x] = 1
    cells[row + game.sub_x + (-1 if game.sub_or else 1) + 100] = 1
    for x, y, _to_right in game.f_bullets:
        cells[start + 10 * y + x + 200] = 1
    for x, y, _to_right in game.e_bullets:
        cells[start + 10 * y + x + 400] = 1
    for channel, swimmers in ((500, game.e_fish), (600, game.e_subs), (900, game.divers)):
        for swimmer in swimmers:
            x, y, to_right = swimmer[:3]
            row = start + 10 * y
            cells[row + x + channel] = 1
            trail = x - 1 if to_right else x + 1
            if 0 <= trail <= 9:
                cells[row + trail + 300] = 1
    # 20 units of oxygen set one cell; the gauge of divers fills from the right.
    oxygen = max(0, game.oxygen) // 20
    divers = max(0, game.diver_count)
    cells[start + 790 : start + 790 + oxygen] = b"\1" * oxygen
    cells[start + 899 - divers : start + 899] = b"\1" * divers


def _space_invaders(game: Any, cells: bytearray, start: int, rows: NDArray[np.uint8]) -> None:
    cells[start + 90 + game.pos] = 1
    rows[1] = rows[2 if game.alien_dir < 0 else 3] = game.alien_map.ravel()
    rows[4] = game.f_bullet_map.ravel()
    rows[5] = game.e_bullet_map.ravel()


_Renderer = Callable[[Any, bytearray, int, NDArray[np.uint8]], None]
_RENDERERS: dict[str, _Renderer] = {
    "asterix": _asterix,
    "breakout": _breakout,
    "freeway": _freeway,
    "seaquest": _seaquest,
    "space_invaders": _space_invaders,
}
