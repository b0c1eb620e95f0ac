"""Atari's episodes begin as those of CleanRL and envpool."""

from __future__ import annotations

from contextlib import closing
from itertools import cycle, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core.types import Envs, Step
from hadamard.envs import atari, atari_game, make
from hadamard.learning.replay import Indices, Replay

pytestmark = pytest.mark.skipif(bool(suites.missing("atari")), reason="needs the atari extra")

GAMES = (
    *("Asterix", "BeamRider", "Breakout", "MsPacman"),
    *("Qbert", "Seaquest", "SpaceInvaders", "VideoPinball"),
)
RESETS = pytest.mark.parametrize("atari_reset", atari.RESETS)

# Largest differences in gray values (0 to 255): mean over all frames, mean of one frame, one pixel.
# The wrappers take the brighter of two frames per color and turn it gray, we do it in reverse.
MEAN_BOUND, FRAME_BOUND, PIXEL_BOUND = 0.05, 2.0, 128


class Emulator:
    """Replaces ALEInterface: lives are lost at given acts, and the screen shows their number."""

    def __init__(self, *, fire: bool, lives: int = 3, lost_at: tuple[int, ...] = ()) -> None:
        from ale_py import Action

        self.actions = [Action.NOOP, *([Action.FIRE] if fire else []), Action.RIGHT, Action.LEFT]
        self.initial_lives, self.lost_at = lives, lost_at
        self.acts = 0
        self.lives_left = lives
        self.log: list[str] = []

    def getMinimalActionSet(self) -> list[Any]:
        return self.actions

    def getScreenDims(self) -> tuple[int, int]:
        return 210, 160

    def getScreenGrayscale(self, out: Any) -> None:
        out.fill(self.acts % 256)

    def reset_game(self) -> None:
        self.lives_left = self.initial_lives
        self.log.append("reset")

    def act(self, action: Any) -> int:
        """Play a frame; the reward is its number."""
        assert self.lives_left > 0, "acted on a game that is over"
        self.acts += 1
        self.lives_left -= self.acts in self.lost_at
        self.log.append(action.name)
        return self.acts

    def game_over(self, *, with_truncation: bool = True) -> bool:
        return self.lives_left == 0

    def game_truncated(self) -> bool:
        return False

    def lives(self) -> int:
        return self.lives_left


def scripted(
    emulator: Emulator, random_numbers: list[int], atari_reset: str, *, training: bool = True
) -> Envs:
    """Return environments of one emulator, with given random numbers."""
    game = atari_game.Game(emulator, 0, atari_reset, training=training)
    numbers = iter(random_numbers)
    game._random_number = lambda: next(numbers)  # type: ignore[method-assign]
    games = atari.AtariGames([game], training=training)
    return atari.assemble(games, atari_reset=atari_reset)


def frame_numbers(obs: torch.Tensor) -> list[int]:
    """Return the number that fills each of the four frames of the first stack."""
    assert (obs == obs[..., :1, :1]).all()
    return obs[0, :, 0, 0].tolist()


def play(envs: Envs, emulator: Emulator, index: int) -> tuple[Step, list[str]]:
    """Take a step; return it and the emulator's log."""
    emulator.log.clear()
    return envs.step(torch.tensor([index])), emulator.log


@pytest.mark.parametrize("training", [True, False])
def test_envpool_by_hand(training: bool) -> None:
    # Acts 1 to 3 begin the game, 4 to 7 and 8 to 11 are chosen: a life is lost at act 10.
    emulator = Emulator(fire=True, lost_at=(10, 20, 24, 25, 32, 33, 34))
    envs = scripted(emulator, [2, 1, 5, 0], "envpool", training=training)
    assert frame_numbers(envs.reset()) == [3, 3, 3, 3]
    assert emulator.log == ["reset", "NOOP", "NOOP", "FIRE"]

    step, log = play(envs, emulator, 2)
    assert log == ["RIGHT"] * 4
    assert frame_numbers(step.obs) == [3, 3, 3, 7]
    assert step.final_index is None

    # A lost life: one no-op and FIRE, and the stack continues over both frames.
    step, log = play(envs, emulator, 3)
    assert log == ["LEFT"] * 4 + ["NOOP", "FIRE"]
    assert frame_numbers(step.obs) == [3, 7, 11, 13]
    assert step.reward.tolist() == [1 if training else 8 + 9 + 10 + 11]
    assert step.terminated.tolist() == [training]
    assert not step.episodes
    if training:
        assert frame_numbers(step.next_obs) == [3, 3, 7, 11]
    else:
        assert step.final_index is None

    # Act 20 loses the second life; the third goes at act 24, the third of five no-ops, so the
    # other two and FIRE belong to a new game and the stack is filled with its first frame.
    step, log = play(envs, emulator, 0)
    assert log == ["NOOP"] * 4
    assert frame_numbers(step.obs) == [7, 11, 13, 17]
    step, log = play(envs, emulator, 0)
    assert log == ["NOOP"] * 4 + ["NOOP"] * 3 + ["reset"] + ["NOOP"] * 2 + ["FIRE"]
    assert frame_numbers(step.next_obs) == [11, 13, 17, 21]
    assert frame_numbers(step.obs) == [27, 27, 27, 27]
    assert step.terminated.tolist() == [True]
    # Rewards of forced actions do not count.
    assert step.episodes[0].score == sum(range(4, 12)) + sum(range(14, 22))
    assert step.episodes[0].length == 4

    # Act 25 took a life within the no-ops, which does not count. The other two go at 32 to 34.
    step, log = play(envs, emulator, 0)
    assert step.final_index is None
    step, log = play(envs, emulator, 0)
    assert log == ["NOOP"] * 2 + ["reset", "FIRE"]
    assert frame_numbers(step.next_obs) == [27, 27, 31, 33]
    assert frame_numbers(step.obs) == [34, 34, 34, 34]
    assert step.episodes[0].length == 2


def test_envpool_by_hand_without_fire() -> None:
    emulator = Emulator(fire=False, lost_at=(4,))
    envs = scripted(emulator, [0, 2], "envpool")
    assert frame_numbers(envs.reset()) == [1, 1, 1, 1]
    assert emulator.log == ["reset", "NOOP"]
    step, log = play(envs, emulator, 1)
    assert log == ["RIGHT"] * 4 + ["NOOP"] * 3
    assert frame_numbers(step.next_obs) == [1, 1, 1, 5]
    assert frame_numbers(step.obs) == [1, 1, 5, 8]


def test_envpool_truncates_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari_game, "MAX_STEPS", 3)
    emulator = Emulator(fire=True, lost_at=(8,))
    envs = scripted(emulator, [0, 0, 0, 0], "envpool")
    envs.reset()
    steps = [play(envs, emulator, 2)[0] for _ in range(6)]
    # A lost life (in the second step) does not restart the count.
    assert [step.terminated.item() for step in steps] == [False, True, False, False, False, False]
    assert [step.truncated.item() for step in steps] == [False, False, True, False, False, True]
    assert [step.any_truncated for step in steps] == [False, False, True, False, False, True]
    assert [len(step.episodes) for step in steps] == [0, 0, 1, 0, 0, 1]


def in_wrappers(game: Any, counts: list[int]) -> Any:
    """Return a game in Stable-Baselines3's wrappers, as in CleanRL, with given no-op counts."""
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    import gymnasium

    numbers = cycle(counts)

    class Noops(wrappers.NoopResetEnv):  # type: ignore[misc,name-defined]
        def reset(self, **options: Any) -> Any:
            self.override_num_noops = next(numbers)
            return super().reset(**options)

    env = Noops(gymnasium.wrappers.RecordEpisodeStatistics(game))
    env = wrappers.EpisodicLifeEnv(wrappers.MaxAndSkipEnv(env))
    if "FIRE" in game.unwrapped.get_action_meanings():
        env = wrappers.FireResetEnv(env)
    env = wrappers.ClipRewardEnv(wrappers.WarpFrame(env))
    return gymnasium.wrappers.FrameStackObservation(env, 4)


def cleanrl_game(game: str, seed: int, counts: list[int]) -> atari_game.Game:
    new_game = atari_game.Game(
        atari_game.open_emulator(atari.rom(game), seed, "cleanrl"), seed, "cleanrl", training=True
    )
    numbers = cycle(counts)
    new_game._random_number = lambda: next(numbers) - 1  # type: ignore[method-assign]
    return new_game


@pytest.mark.parametrize(
    ("game", "limit"),
    # The limit may also fall between two frames of a forced step.
    [*((game, 108_000) for game in GAMES), ("Breakout", 327), ("SpaceInvaders", 601)],
)
def test_cleanrl_equals_stable_baselines3(
    game: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ale_py import AtariEnv

    monkeypatch.setattr(atari_game, "MAX_FRAMES", limit)
    counts, seed = [17, 1, 30, 8, 23, 4, 12], 6
    base = AtariEnv(
        atari.rom(game),
        frameskip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=limit,
    )
    base.ale.setInt("random_seed", seed >> 1)
    base.load_game()
    theirs = in_wrappers(base, counts)
    our_game = cleanrl_game(game, seed, counts)
    ours = atari.assemble(atari.AtariGames([our_game], training=True), atari_reset="cleanrl")
    assert ours.spec.num_actions == base.action_space.n
    means, worst = [], 0

    def compare(obs: torch.Tensor, their_obs: Any, *, start: bool) -> None:
        nonlocal worst
        assert our_game.emulator.lives() == base.ale.lives()
        assert np.array_equal(our_game.emulator.getRAM(), base.ale.getRAM())
        mine, other = obs[0].numpy().astype(int), np.asarray(their_obs)[..., 0].astype(int)
        if start:
            assert (mine == mine[:1]).all()
            assert (other == other[:1]).all()
        difference = np.abs(mine[-1] - other[-1])
        means.append(difference.mean())
        worst = max(worst, difference.max())

    compare(ours.reset(), theirs.reset()[0], start=True)
    random = np.random.default_rng(1)
    lives_lost = games_ended = games_truncated = 0
    for action in random.integers(ours.spec.num_actions, size=2_000).tolist():
        step = ours.step(torch.tensor([action]))
        obs, reward, terminated, truncated, info = theirs.step(action)
        assert step.reward.item() == reward
        assert step.terminated.item() == terminated
        assert step.truncated.item() == (truncated and not terminated)
        done = terminated or truncated
        assert (step.final_index is not None) == done
        if "episode" in info:  # a game that ended in a chosen action
            assert [episode.score for episode in step.episodes] == [info["episode"]["r"]]
            games_ended += 1
        lives_lost += terminated and "episode" not in info
        games_truncated += truncated
        compare(step.obs, theirs.reset()[0] if done else obs, start=done)
    print(f"{game}: mean difference {np.mean(means):.2f}, worst frame {max(means):.2f}, {worst=}")
    assert games_ended or game == "VideoPinball"  # whose games are long
    assert lives_lost or game == "BeamRider"
    assert bool(games_truncated) == (limit < 108_000)
    assert np.mean(means) < MEAN_BOUND
    assert max(means) < FRAME_BOUND
    assert worst < PIXEL_BOUND


@pytest.mark.parametrize("fire", [True, False])
def test_cleanrl_equals_stable_baselines3_when_lives_are_lost_at_any_time(fire: bool) -> None:
    """Also during forced actions, where the wrappers have a special case."""
    import gymnasium

    random = np.random.default_rng(4)
    lost_at = tuple(np.flatnonzero(random.random(30_000) < 0.08).tolist())
    emulator, theirs_emulator = (Emulator(fire=fire, lost_at=lost_at) for _ in range(2))

    class Base(gymnasium.Env):  # type: ignore[type-arg]
        action_space = gymnasium.spaces.Discrete(len(emulator.actions))
        observation_space = gymnasium.spaces.Box(0, 255, (210, 160, 3), np.uint8)
        ale = theirs_emulator
        spec = None

        def get_action_meanings(self) -> list[str]:
            return [action.name for action in self.ale.actions]

        def screen(self) -> Any:
            return np.full((210, 160, 3), self.ale.acts % 256, dtype=np.uint8)

        def reset(self, **_: Any) -> Any:
            self.ale.reset_game()
            return self.screen(), {}

        def step(self, action: int) -> Any:
            reward = self.ale.act(self.ale.actions[action])
            return self.screen(), reward, self.ale.game_over(), False, {}

    counts = [3, 1, 7]
    theirs = in_wrappers(Base(), counts)
    numbers = cycle(counts)
    game = atari_game.Game(emulator, 0, "cleanrl", training=True)
    game._random_number = lambda: next(numbers) - 1  # type: ignore[method-assign]
    ours = atari.assemble(atari.AtariGames([game], training=True), atari_reset="cleanrl")
    ours.reset()
    theirs.reset()
    for _ in range(1_000):
        emulator.log.clear()
        theirs_emulator.log.clear()
        action = int(random.integers(len(emulator.actions)))
        step = ours.step(torch.tensor([action]))
        obs, reward, terminated, _, info = theirs.step(action)
        assert (step.reward.item(), step.terminated.item()) == (reward, terminated)
        chosen = len(theirs_emulator.log)
        if terminated:
            obs, _ = theirs.reset()
        assert emulator.log == theirs_emulator.log
        assert emulator.lives_left == theirs_emulator.lives_left
        if "episode" in info:
            assert [episode.score for episode in step.episodes] == [info["episode"]["r"]]
        if terminated:
            assert len(set(frame_numbers(step.obs))) == 1
        # If a game ends in the last forced step, the wrappers return the frame before it.
        if "reset" not in theirs_emulator.log[chosen + 4 :]:
            assert frame_numbers(step.obs)[-1] == np.asarray(obs)[-1, 0, 0, 0]


@RESETS
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("action", [0, 3])
def test_breakout_can_be_played_without_fire(atari_reset: str, training: bool, action: int) -> None:
    with closing(make("atari/Breakout", 2, 1, training=training, atari_reset=atari_reset)) as envs:
        envs.reset()
        ends = 0
        for _ in range(2_000):
            step = envs.step(torch.tensor([action]))
            ends += int(step.terminated)
            if step.episodes:
                break
        assert step.episodes
        assert ends == (5 if training else 1)


@RESETS
@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders"])
def test_replay_holds_only_chosen_actions(game: str, atari_reset: str) -> None:
    with closing(make(f"atari/{game}", 4, 2, atari_reset=atari_reset)) as envs:
        replay = Replay(envs.spec, 2, 8_000, torch.device("cpu"))
        obs = envs.reset()
        replay.begin(obs)
        random = torch.Generator().manual_seed(3)
        expected = []
        ends = games = 0
        for _ in range(700):
            action = torch.randint(envs.spec.num_actions, (2,), generator=random)
            step = envs.step(action)
            replay.add(action, step)
            expected.append((obs, action, step))
            obs = step.obs
            ends += int(step.terminated.sum())
            games += len(step.episodes)
        assert ends > games > 0
        for env in range(2):
            slots = replay.usable[env].nonzero().flatten()
            assert len(slots) == len(expected)
            for slot, (before, action, step) in zip(slots, expected, strict=True):
                stored = replay.observations(Indices(torch.tensor([env]), slot[None]), 0, 2)
                assert torch.equal(stored[0, 0], before[env])
                assert torch.equal(stored[0, 1], step.next_obs[env])
                assert replay.action[env, slot] == action[env]
                assert replay.reward[env, slot] == step.reward[env]
                assert replay.terminated[env, slot] == step.terminated[env]


@RESETS
@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders"])
def test_training_and_greedy_play_see_the_same_games(game: str, atari_reset: str) -> None:
    train_envs, greedy_envs = (
        make(f"atari/{game}", 7, 2, training=training, atari_reset=atari_reset)
        for training in (True, False)
    )
    assert torch.equal(train_envs.reset(), greedy_envs.reset())
    random = torch.Generator().manual_seed(5)
    lives_lost = games = 0
    for _ in range(700):
        action = torch.randint(train_envs.spec.num_actions, (2,), generator=random)
        learned, scored = train_envs.step(action), greedy_envs.step(action)
        assert torch.equal(learned.obs, scored.obs)
        assert torch.equal(learned.reward, scored.reward.sign())
        assert learned.episodes == scored.episodes
        ended = {episode.env for episode in scored.episodes}
        assert set(scored.terminated.nonzero().flatten().tolist()) == ended
        assert (set() if scored.final_index is None else set(scored.final_index.tolist())) == ended
        lost = set(learned.terminated.nonzero().flatten().tolist())
        assert lost >= ended
        assert (set() if learned.final_index is None else set(learned.final_index.tolist())) == lost
        lives_lost += len(lost - ended)
        games += len(ended)
    assert lives_lost > games > 0
    train_envs.close()
    greedy_envs.close()


def play_randomly(envs: Envs, steps: int, seed: int) -> list[Any]:
    random = torch.Generator().manual_seed(seed)
    outcomes: list[Any] = []
    for _ in range(steps):
        action = torch.randint(envs.spec.num_actions, (envs.num_envs,), generator=random)
        step = envs.step(action)
        outcomes.append((step.obs, step.next_obs, step.reward, step.terminated, step.episodes))
    return outcomes


def assert_same(first: list[Any], second: list[Any]) -> None:
    for mine, other in zip(first, second, strict=True):
        assert mine[-1] == other[-1]
        assert all(torch.equal(a, b) for a, b in zip(mine[:-1], other[:-1], strict=True))


@pytest.mark.parametrize(("training", "atari_reset"), [(True, "cleanrl"), (False, "envpool")])
def test_games_do_not_depend_on_the_number_of_processes(atari_reset: str, training: bool) -> None:
    streams, states = [], []
    options: dict[str, Any] = {"training": training, "atari_reset": atari_reset}
    layouts = [(0, 1), (3, 1), (2, 2)]
    for workers, groups in layouts:
        with closing(
            make("atari/Breakout", 3, 4, workers=workers, groups=groups, **options)
        ) as envs:
            first = envs.reset()
            before = play_randomly(envs, 100, 0)
            states.append(envs.state_dict())
            streams.append([(first, first, first, first, ()), *before, *play_randomly(envs, 60, 1)])
    for first, second in pairwise(streams):
        assert_same(first, second)
    assert any(episodes for *_, episodes in streams[0])
    # Saved without workers, continued by three; saved by three, continued by two and without any.
    for saved, workers in ((0, 3), (1, 2), (1, 0)):
        with closing(make("atari/Breakout", 9, 4, workers=workers, **options)) as envs:
            envs.reset()
            assert torch.equal(envs.load_state_dict(states[saved]), streams[0][100][0])
            assert_same(play_randomly(envs, 60, 1), streams[0][101:])


def test_no_op_counts_vary_between_games_and_environments() -> None:
    with closing(make("atari/Freeway", 0, 8)) as envs:
        frames = {frame.numpy().tobytes() for _ in range(2) for frame in envs.reset()[:, 0]}
    assert len(frames) > 4


def test_automatic_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "usable_cores", lambda: 2)
    assert suites.automatic_workers("atari/Pong", 1) == 0
    assert suites.automatic_workers("atari/Pong", 3) == 3
    assert suites.automatic_workers("atari/Pong", 128) == 4
    assert suites.automatic_workers("probe/constant", 128) == 0


def test_an_unknown_reset_is_refused() -> None:
    with pytest.raises(ValueError, match="--train.atari-reset.*cleanrl or envpool, got 'dopamine'"):
        make("atari/Pong", 0, 1, atari_reset="dopamine")


def test_games_of_an_earlier_version_are_refused() -> None:
    with (
        closing(make("atari/Pong", 0, 1)) as envs,
        pytest.raises(ValueError, match="earlier version"),
    ):
        envs.load_state_dict({"exact": True, "emulators": {}, "obs": torch.zeros(1)})
