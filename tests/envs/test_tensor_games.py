"""Tensor games keep the protocol of environments, alone and in a stack of several runs' games."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hadamard import envs as suites
from hadamard.core.counter import uniforms
from hadamard.envs import minatar, minatar_tensors
from hadamard.envs.tensor_games import Rules, StackedGames, TensorGames
from tests.support.environments import assert_plain
from tests.support.minatar import assert_same_state

TASKS = minatar_tensors.tasks()
LIMIT = 15


def make(task: str, seed: int, num_envs: int, max_steps: int = LIMIT) -> TensorGames:
    return TensorGames(Rules(minatar_tensors.game(task), 0.1, max_steps), seed, num_envs)


def actions_for(games: TensorGames, steps: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(games.spec.num_actions, (steps, games.num_envs), generator=generator)


def test_the_suites_games_are_made_with_its_rules() -> None:
    games = suites.make_on_device("MinAtar/space-invaders", 5, 3, "cpu")
    assert games.rules == Rules(minatar_tensors.game("space_invaders"), 0.1, minatar.MAX_STEPS)
    assert games.num_envs == 3
    assert games.exact
    assert games.observation().shape == (3, *games.spec.obs_shape)
    games.close()


@pytest.mark.parametrize("task", TASKS)
def test_the_description_is_that_of_the_suites_other_games(task: str) -> None:
    pytest.importorskip("minatar")
    ours, theirs = make(task, 0, 1).spec, minatar.make(task, 0, 1).spec
    assert (ours.on_device, theirs.on_device) == (True, False)
    assert replace(ours, on_device=False) == theirs


@pytest.mark.parametrize("task", TASKS)
def test_episodes_end_and_begin_as_a_step_says(task: str) -> None:
    games = make(task, 1, 5)
    obs = games.reset()
    assert obs.dtype == games.spec.obs_dtype == torch.uint8
    length, score = torch.zeros(5, dtype=torch.int64), torch.zeros(5)
    truncations = 0
    for action in actions_for(games, 3 * LIMIT):
        games.send(action)
        step = games.receive()
        length += 1
        score += step.reward
        ended = step.terminated | step.truncated
        assert not (step.terminated & step.truncated).any()
        assert torch.equal(step.truncated, (length == LIMIT) & ~step.terminated)
        assert step.any_truncated == bool(step.truncated.any())
        indices = ended.nonzero().flatten()
        assert [episode.env for episode in step.episodes] == indices.tolist()
        assert (step.final_index is None) == (step.final_obs is None) == (not ended.any())
        if step.final_index is not None and step.final_obs is not None:
            assert torch.equal(step.final_index, indices)
            assert step.final_obs.shape == (len(indices), *games.spec.obs_shape)
            assert torch.equal(step.next_obs[ended], step.final_obs)
        for episode in step.episodes:
            assert (episode.score, episode.length) == (score[episode.env], length[episode.env])
        assert torch.equal(step.next_obs[~ended], step.obs[~ended])
        assert torch.equal(step.obs, games.observation())
        score[ended], length[ended] = 0.0, 0
        assert torch.equal(games.state["length"], length)
        truncations += int(step.truncated.sum())
    assert truncations


def test_the_final_observation_is_of_the_ended_game_and_the_next_of_a_new_one() -> None:
    games = make("breakout", 1, 64)
    bricks = games.state["bricks"][0].clone()  # of a new game
    moved = 0
    for action in actions_for(games, LIMIT):
        step = games.step(action)
        if step.final_obs is None:
            continue
        assert step.final_index is not None
        assert (games.state["bricks"][step.final_index] == bricks).all()
        moved += int((step.final_obs != step.obs[step.final_index]).flatten(1).any(1).sum())
    assert moved >= 64


def test_a_reset_drops_the_running_episodes_and_draws_new_games() -> None:
    games = make("breakout", 1, 64)
    first = games.observation()
    for action in actions_for(games, 5):
        games.step(action)
    second = games.reset()
    assert not games.state["length"].any()
    assert not games.state["score"].any()
    assert not torch.equal(first, second)
    again = make("breakout", 1, 64)
    assert torch.equal(again.observation(), first)
    assert not torch.equal(make("breakout", 2, 64).observation(), first)


def test_a_game_does_not_depend_on_those_beside_it() -> None:
    few, many = make("asterix", 9, 2), make("asterix", 9, 7)
    for action in actions_for(many, 100):
        expected, step = many.step(action), few.step(action[:2])
        assert torch.equal(step.obs, expected.obs[:2])
        assert torch.equal(step.reward, expected.reward[:2])


@pytest.mark.parametrize("task", TASKS)
def test_a_state_is_saved_and_loaded_at_its_place(task: str) -> None:
    games = make(task, 1, 4)
    actions = actions_for(games, 2 * LIMIT)
    for action in actions[:LIMIT]:
        games.step(action)
    saved = games.state_dict()
    assert_plain(saved)
    saved = copy.deepcopy(saved)
    expected = [games.step(action) for action in actions[LIMIT:]]
    other = make(task, 1, 4)
    places = {name: value.data_ptr() for name, value in other.state.items()}
    assert torch.equal(other.load_state_dict(saved), other.observation())
    for action, step in zip(actions[LIMIT:], expected, strict=True):
        continued = other.step(action)
        assert torch.equal(continued.obs, step.obs)
        assert torch.equal(continued.reward, step.reward)
        assert continued.episodes == step.episodes
    assert_same_state(other.state, games.state)
    assert torch.equal(other.steps, games.steps)
    # In a fleet this memory is a part of a stack.
    assert {name: value.data_ptr() for name, value in other.state.items()} == places


def test_what_cannot_be_is_refused() -> None:
    games = make("breakout", 0, 3)
    action = torch.zeros(3, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="on the CPU"):
        games.render()
    with pytest.raises(RuntimeError, match="without send"):
        games.receive()
    with pytest.raises(ValueError, match=r"shape \(3,.*got \(2,"):
        games.step(action[:2])
    with pytest.raises(ValueError, match=r"0\.\.2, got 3"):
        games.step(action + 3)
    with pytest.raises(ValueError, match=r"0\.\.2, got -1"):
        games.step(action - 1)
    with pytest.raises(ValueError, match="integers"):
        games.step(action.float())
    with pytest.raises(RuntimeError, match="without send"):
        games.receive()
    with pytest.raises(ValueError, match="at least 1, got 0"):
        make("breakout", 0, 0)
    with pytest.raises(ValueError, match="other fields: wind"):
        games.load_state_dict({"games": {**games.state, "wind": action}, "steps": games.steps})
    games.step(action)


@pytest.mark.parametrize("task", TASKS)
def test_stacked_games_are_each_runs_own(task: str) -> None:
    """Three runs, each with games of training and games that another policy plays."""
    sizes = 2, 1
    runs, alone = (
        [[make(task, 10 * run + part, size) for part, size in enumerate(sizes)] for run in range(3)]
        for _ in range(2)
    )
    for run, parts in enumerate(runs):  # runs that have played before, one longer than others
        for games, same in zip(parts, alone[run], strict=True):
            for action in actions_for(games, 5 * run):
                games.step(action)
                same.step(action)
    stack = StackedGames(runs)
    assert stack.sizes == [2, 1]
    assert stack.count == 3
    lanes = stack.rules.lanes
    assert torch.equal(
        stack.observation(),
        torch.stack([torch.cat([part.observation() for part in parts]) for parts in alone]),
    )
    episodes = 0
    for number in range(2 * LIMIT):
        generator = torch.Generator().manual_seed(number)
        action = torch.randint(stack.spec.num_actions, (3, 3), generator=generator)
        draws = torch.cat(
            [
                uniforms(stack.seed[:, part], stack.steps[:, part], size, lanes)
                for part, size in enumerate(sizes)
            ],
            1,
        )
        for run, parts in enumerate(alone):
            assert torch.equal(draws[run], torch.cat([part.draws() for part in parts]))
        obs, outcome = stack.step(action, draws)
        assert torch.equal(obs, stack.observation())
        for run, parts in enumerate(alone):
            begin = 0
            for part, games in enumerate(parts):
                place = slice(begin, begin + games.num_envs)
                begin += games.num_envs
                step = games.step(action[run, place])
                assert torch.equal(obs[run, place], step.obs)
                assert torch.equal(outcome.obs[run, place], step.next_obs)
                assert torch.equal(outcome.reward[run, place], step.reward)
                assert torch.equal(outcome.terminated[run, place], step.terminated)
                assert torch.equal(outcome.truncated[run, place], step.truncated)
                for episode in step.episodes:
                    where = run, place.start + episode.env
                    assert outcome.score[where] == episode.score
                    assert outcome.length[where] == episode.length
                    episodes += 1
                # Each run's own games hold the rows of the stack.
                assert_same_state(runs[run][part].state, games.state)
                assert torch.equal(runs[run][part].steps, games.steps)
    assert episodes >= 9
    # A run goes on alone where the stack left it, and the stack where the run left it.
    action = actions_for(alone[1][0], 1)[0]
    assert torch.equal(runs[1][0].step(action).obs, alone[1][0].step(action).obs)
    assert torch.equal(stack.observation()[1, :2], alone[1][0].observation())
