"""The tensor games as a suite plays them: sticky actions, ramping, exact state, random play."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from hadamard.core.types import Envs
from hadamard.envs import minatar, minatar_tensors
from hadamard.envs.tensor_games import Outcome, Rules, TensorGames, play
from tests.support.minatar import assert_same_state

TASKS = minatar_tensors.tasks()
RAMPING_TASKS = ("asterix", "seaquest", "space_invaders")


def make(
    task: str, num_envs: int, device: str = "cpu", *, max_steps: int = 5_000, ramping: bool = False
) -> TensorGames:
    rules = Rules(minatar_tensors.game(task), 0.1, max_steps, ramping)
    return TensorGames(rules, seed=3, num_envs=num_envs, device=device)


def random_actions(games: TensorGames, steps: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, games.num_envs)
    return torch.randint(games.spec.num_actions, shape, generator=generator)


def test_every_game_of_the_suite_is_a_tensor_program() -> None:
    assert minatar_tensors.tasks() == tuple(sorted(minatar.tasks()))


@pytest.mark.parametrize("task", TASKS)
def test_actions_are_sticky(task: str) -> None:
    """A tenth of the actions repeat the last one, also across the end of an episode."""
    games = make(task, 3_000, max_steps=30)
    game = games.rules.game
    actions = random_actions(games, 30)
    for action in actions[:-1]:
        games.step(action)
    draws = games.draws()
    repeats = draws[:, 0] < 0.1
    assert abs(repeats.float().mean() - 0.1) < 4 * math.sqrt(0.1 * 0.9 / 3_000)
    intended = torch.tensor(game.ACTIONS)[actions[-1]]
    played = torch.where(repeats, games.state["last_action"], intended)
    assert (played != intended).sum() > 100

    before = copy.deepcopy(games.state)
    after, outcome = play(games.rules, games.state, actions[-1], games.actions, draws)
    ended = outcome.terminated | outcome.truncated
    assert (ended & (played != intended)).any()
    assert torch.equal(after["last_action"], played)
    running = ("last_action", "score", "length")
    expected, reward, terminal = game.step(
        {name: value for name, value in before.items() if name not in running},
        played,
        draws[:, 1 : 1 + game.DRAWS],
    )
    assert torch.equal(outcome.reward, reward)
    assert torch.equal(outcome.terminated, terminal)
    assert_same_state(
        {name: after[name][~ended] for name in expected},
        {name: value[~ended] for name, value in expected.items()},
    )


@pytest.mark.parametrize("task", RAMPING_TASKS)
def test_games_become_harder_on_request(task: str) -> None:
    """The same actions, from the same states, raise the level only with ramping."""
    levels = []
    for ramping in (False, True):
        games = make(task, 4, ramping=ramping)
        games.reset()
        # One step before asterix becomes harder, before a full crew surfaces, before the last
        # alien is shot.
        state = games.state
        if task == "asterix":
            state["ramp_timer"].fill_(-1)
        elif task == "seaquest":
            state["rescued"].fill_(6)
            state["surfaced"].fill_(False)
        else:
            state["aliens"].zero_()[:, 0] = 1 << 7
            state["bullets"][:, 0] = 1 << 8
        games.step(torch.zeros(4, dtype=torch.int64))
        levels.append(games.state["ramp_index"].tolist())
    assert levels == [[0] * 4, [1] * 4]


@pytest.mark.parametrize("ramping", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_play_continues_exactly_from_a_saved_state(task: str, ramping: bool) -> None:
    games = make(task, 64, max_steps=50, ramping=ramping)
    actions = random_actions(games, 120)
    for action in actions[:60]:
        games.step(action)
    saved = copy.deepcopy(games.state_dict())
    first = [games.step(action) for action in actions[60:]]
    assert sum(len(step.episodes) for step in first) >= 64

    restored = make(task, 64, max_steps=50, ramping=ramping)
    obs = restored.load_state_dict(saved)
    assert torch.equal(obs, restored.observation())
    for action, expected in zip(actions[60:], first, strict=True):
        step = restored.step(action)
        assert torch.equal(step.obs, expected.obs)
        assert torch.equal(step.reward, expected.reward)
        assert torch.equal(step.terminated, expected.terminated)
        assert step.episodes == expected.episodes
    assert_same_state(restored.state, games.state)


def test_a_saved_state_of_another_game_or_size_is_refused() -> None:
    saved = make("breakout", 4).state_dict()
    with pytest.raises(ValueError, match="other fields: .*bricks"):
        make("seaquest", 4).load_state_dict(saved)
    with pytest.raises(ValueError, match="4"):
        make("breakout", 5).load_state_dict(saved)


@pytest.mark.parametrize("task", TASKS)
def test_a_step_can_be_captured(task: str) -> None:
    """Nothing is read back and no shape depends on data: tensors without data are enough."""
    games = make(task, 8)
    action = random_actions(games, 1)[0]
    _, outcome = play(games.rules, games.state, action, games.actions, games.draws())
    empty = make(task, 8, "meta")
    state, nothing = play(empty.rules, empty.state, action.to("meta"), empty.actions, empty.draws())
    assert {name: (value.shape, value.dtype) for name, value in state.items()} == {
        name: (value.shape, value.dtype) for name, value in games.state.items()
    }
    for field in Outcome._fields:
        expected, value = getattr(outcome, field), getattr(nothing, field)
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype), field


@pytest.mark.parametrize("task", TASKS)
def test_a_step_is_one_graph(task: str) -> None:
    """The compiler traces a step without a break; the graph leads to the same states."""
    games = make(task, 32)
    traced = torch.compile(play, backend="eager", fullgraph=True)
    for action in random_actions(games, 20):
        arguments = (games.rules, games.state, action, games.actions, games.draws())
        state, outcome = traced(*arguments)
        expected_state, expected = play(*arguments)
        assert_same_state(state, expected_state)
        for value, expected_value in zip(outcome, expected, strict=True):
            assert torch.equal(value, expected_value)
        games.step(action)


@pytest.mark.gpu
@pytest.mark.parametrize("task", TASKS)
def test_a_captured_graph_plays_the_same_games(task: str) -> None:
    """A CUDA graph of the step plays on as the CPU does, bit for bit."""
    games, captured = make(task, 256), make(task, 256, "cuda")
    actions = random_actions(games, 60)
    action = actions[0].to("cuda")
    draws = captured.draws()
    arguments = (captured.rules, captured.state, action, captured.actions, draws)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        play(*arguments)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state, outcome = play(*arguments)
    for step_actions in actions:
        action.copy_(step_actions)
        draws.copy_(captured.draws())
        graph.replay()
        captured.steps += 1
        for name, value in state.items():
            captured.state[name].copy_(value)
        step = games.step(step_actions)
        assert torch.equal(outcome.reward.cpu(), step.reward)
        assert torch.equal(outcome.terminated.cpu(), step.terminated)
    assert_same_state({name: value.cpu() for name, value in captured.state.items()}, games.state)


def first_episodes(envs: Envs | TensorGames, seed: int) -> Tensor:
    """Return score and length of every game's first episode of random play."""
    generator = torch.Generator().manual_seed(seed)
    envs.reset()
    episodes: dict[int, tuple[float, float]] = {}
    while len(episodes) < envs.num_envs:
        shape = (envs.num_envs,)
        step = envs.step(torch.randint(envs.spec.num_actions, shape, generator=generator))
        for episode in step.episodes:
            episodes.setdefault(episode.env, (episode.score, float(episode.length)))
    return torch.tensor(list(episodes.values()), dtype=torch.float64)


@pytest.mark.parametrize(
    ("task", "games", "max_steps"),
    [
        ("asterix", 600, 400),
        ("breakout", 3_000, 400),
        ("freeway", 300, 1_000),
        ("seaquest", 800, 400),
        ("space_invaders", 600, 400),
    ],
)
def test_random_play_has_the_statistics_of_the_cpu_form(
    task: str, games: int, max_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean score and length differ by less than four standard errors (Welch's test).

    If the two forms are equal, one comparison in 16,000 fails by chance; the seeds are fixed.
    """
    pytest.importorskip("minatar")
    monkeypatch.setattr(minatar, "MAX_STEPS", max_steps)
    samples = [
        first_episodes(minatar.make(task, 1, games), seed=2),
        first_episodes(minatar.make_on_device(task, 1, games, "cpu"), seed=4),
    ]
    for column, name in enumerate(("score", "length")):
        ours, theirs = (sample[:, column] for sample in samples)
        error = math.sqrt((ours.var() + theirs.var()) / games)
        assert abs(ours.mean() - theirs.mean()) <= 4 * error, name
    assert all(sample[:, 0].max() > 0 for sample in samples)
