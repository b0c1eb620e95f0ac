"""Atari's episodes begin as those of CleanRL and of envpool do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import cycle, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from hadamard import envs as suites
from hadamard.core.replay import Draw, Replay
from hadamard.core.types import Envs, Step
from hadamard.envs import atari, make

pytestmark = pytest.mark.skipif(bool(suites.missing("atari")), reason="needs the atari extra")

GAMES = (
    *("Asterix", "BeamRider", "Breakout", "MsPacman"),
    *("Qbert", "Seaquest", "SpaceInvaders", "VideoPinball"),
)
RESETS = pytest.mark.parametrize("atari_reset", atari.RESETS)
# In grey values of 255: the mean difference of all frames, of one frame, and of a pixel. There the
# brighter of two frames is taken colour by colour and becomes grey afterwards, here the other way.
MEAN_BOUND, FRAME_BOUND, PIXEL_BOUND = 0.05, 2.0, 128


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Emulator:
    """Stands for ALEInterface: lives are lost at certain acts, and the screen counts the acts."""

    def __init__(self, *, fire: bool, lives: int = 3, lost_at: tuple[int, ...] = ()) -> None:
        from ale_py import Action

        self.actions = [Action.NOOP, *([Action.FIRE] if fire else []), Action.RIGHT, Action.LEFT]
        self.all_lives, self.lost_at = lives, lost_at
        self.acts = 0
        self.left = lives
        self.log: list[str] = []

    def getMinimalActionSet(self) -> list[Any]:
        return self.actions

    def getScreenDims(self) -> tuple[int, int]:
        return 210, 160

    def getScreenGrayscale(self, out: Any) -> None:
        out.fill(self.acts % 256)

    def reset_game(self) -> None:
        self.left = self.all_lives
        self.log.append("reset")

    def act(self, action: Any) -> int:
        """Play a frame; the reward tells which."""
        assert self.left > 0, "acted on a game that is over"
        self.acts += 1
        self.left -= self.acts in self.lost_at
        self.log.append(action.name)
        return self.acts

    def game_over(self, *, with_truncation: bool = True) -> bool:
        return self.left == 0

    def game_truncated(self) -> bool:
        return False

    def lives(self) -> int:
        return self.left


def scripted(
    emulator: Emulator, draws: list[int], atari_reset: str, *, training: bool = True
) -> Envs:
    """Environments of one scripted emulator, whose random numbers are given."""
    game = atari.Game(emulator, 0, atari_reset, training=training)
    numbers = iter(draws)
    game._draw = lambda: next(numbers)  # type: ignore[method-assign]
    games = atari.AtariGames([game], training=training)
    return atari.assemble(games, atari_reset=atari_reset)


def shown(obs: torch.Tensor) -> list[int]:
    """The four frames of the first stack, each by the number that fills it."""
    assert (obs == obs[..., :1, :1]).all()
    return obs[0, :, 0, 0].tolist()


def played(envs: Envs, emulator: Emulator, index: int) -> tuple[Step, list[str]]:
    emulator.log.clear()
    return envs.step(torch.tensor([index])), emulator.log


@pytest.mark.parametrize("training", [True, False])
def test_envpool_by_hand(training: bool) -> None:
    # Acts 1 to 3 begin the game, 4 to 7 and 8 to 11 are chosen: a life is lost at act 10.
    emulator = Emulator(fire=True, lost_at=(10, 20, 24, 25, 32, 33, 34))
    envs = scripted(emulator, [2, 1, 5, 0], "envpool", training=training)
    assert shown(envs.reset()) == [3, 3, 3, 3]
    assert emulator.log == ["reset", "NOOP", "NOOP", "FIRE"]

    step, log = played(envs, emulator, 2)
    assert log == ["RIGHT"] * 4
    assert shown(step.obs) == [3, 3, 3, 7]
    assert step.final_index is None

    # A lost life: one no-op and FIRE, and the stack goes on over both frames.
    step, log = played(envs, emulator, 3)
    assert log == ["LEFT"] * 4 + ["NOOP", "FIRE"]
    assert shown(step.obs) == [3, 7, 11, 13]
    assert step.reward.tolist() == [1 if training else 8 + 9 + 10 + 11]
    assert step.terminated.tolist() == [training]
    assert not step.episodes
    if training:
        assert shown(step.next_obs) == [3, 3, 7, 11]
    else:
        assert step.final_index is None

    # Act 20 loses the second life; the third goes at act 24, the third of five no-ops, so the
    # other two and FIRE belong to a new game and the stack is filled with its first frame.
    step, log = played(envs, emulator, 0)
    assert log == ["NOOP"] * 4
    assert shown(step.obs) == [7, 11, 13, 17]
    step, log = played(envs, emulator, 0)
    assert log == ["NOOP"] * 4 + ["NOOP"] * 3 + ["reset"] + ["NOOP"] * 2 + ["FIRE"]
    assert shown(step.next_obs) == [11, 13, 17, 21]
    assert shown(step.obs) == [27, 27, 27, 27]
    assert step.terminated.tolist() == [True]
    # What was earned between the lives is in no score.
    assert step.episodes[0].score == sum(range(4, 12)) + sum(range(14, 22))
    assert step.episodes[0].length == 4

    # Act 25 took a life within the no-ops: that is no lost life. Two are left, and three go.
    step, log = played(envs, emulator, 0)
    assert step.final_index is None
    step, log = played(envs, emulator, 0)
    assert log == ["NOOP"] * 2 + ["reset", "FIRE"]
    assert shown(step.next_obs) == [27, 27, 31, 33]
    assert shown(step.obs) == [34, 34, 34, 34]
    assert step.episodes[0].length == 2


def test_envpool_by_hand_without_fire() -> None:
    emulator = Emulator(fire=False, lost_at=(4,))
    envs = scripted(emulator, [0, 2], "envpool")
    assert shown(envs.reset()) == [1, 1, 1, 1]
    assert emulator.log == ["reset", "NOOP"]
    step, log = played(envs, emulator, 1)
    assert log == ["RIGHT"] * 4 + ["NOOP"] * 3
    assert shown(step.next_obs) == [1, 1, 1, 5]
    assert shown(step.obs) == [1, 1, 5, 8]


def test_envpool_truncates_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "MAX_STEPS", 3)
    emulator = Emulator(fire=True, lost_at=(8,))
    envs = scripted(emulator, [0, 0, 0, 0], "envpool")
    envs.reset()
    steps = [played(envs, emulator, 2)[0] for _ in range(6)]
    # A lost life (in the second step) does not begin the count anew.
    assert [step.terminated.item() for step in steps] == [False, True, False, False, False, False]
    assert [step.truncated.item() for step in steps] == [False, False, True, False, False, True]
    assert [step.any_truncated for step in steps] == [False, False, True, False, False, True]
    assert [len(step.episodes) for step in steps] == [0, 0, 1, 0, 0, 1]


def wrapped(game: Any, counts: list[int]) -> Any:
    """Stable-Baselines3's wrappers in CleanRL's order, whose no-op counts are given."""
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


def cleanrl_games(game: str, seed: int, counts: list[int]) -> atari.Game:
    one = atari.Game(
        atari.open_emulator(atari.rom(game), seed, "cleanrl"), seed, "cleanrl", training=True
    )
    numbers = cycle(counts)
    one._draw = lambda: next(numbers) - 1  # type: ignore[method-assign]
    return one


@pytest.mark.parametrize(
    ("game", "limit"),
    # Cut off wherever it falls, also between two frames of a forced step.
    [*((game, 108_000) for game in GAMES), ("Breakout", 327), ("SpaceInvaders", 601)],
)
def test_cleanrl_beside_stable_baselines3(
    game: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ale_py import AtariEnv

    monkeypatch.setattr(atari, "MAX_FRAMES", limit)
    counts, seed = [17, 1, 30, 8, 23, 4, 12], 6
    base = AtariEnv(
        atari.rom(game),
        frameskip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=limit,
    )
    base.ale.setInt("random_seed", seed >> 1)
    base.load_game()
    theirs = wrapped(base, counts)
    one = cleanrl_games(game, seed, counts)
    ours = atari.assemble(atari.AtariGames([one], training=True), atari_reset="cleanrl")
    assert ours.spec.num_actions == base.action_space.n
    means, worst = [], 0

    def compare(obs: torch.Tensor, their_obs: Any, *, start: bool) -> None:
        nonlocal worst
        assert one.emulator.lives() == base.ale.lives()
        assert np.array_equal(one.emulator.getRAM(), base.ale.getRAM())
        mine, other = obs[0].numpy().astype(int), np.asarray(their_obs)[..., 0].astype(int)
        if start:
            assert (mine == mine[:1]).all()
            assert (other == other[:1]).all()
        difference = np.abs(mine[-1] - other[-1])
        means.append(difference.mean())
        worst = max(worst, difference.max())

    compare(ours.reset(), theirs.reset()[0], start=True)
    random = np.random.default_rng(1)
    lost = ended = cut = 0
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
            ended += 1
        lost += terminated and "episode" not in info
        cut += truncated
        compare(step.obs, theirs.reset()[0] if done else obs, start=done)
    print(f"{game}: mean difference {np.mean(means):.2f}, worst frame {max(means):.2f}, {worst=}")
    assert ended or game == "VideoPinball"  # whose games are long
    assert lost or game == "BeamRider"
    assert bool(cut) == (limit < 108_000)
    assert np.mean(means) < MEAN_BOUND
    assert max(means) < FRAME_BOUND
    assert worst < PIXEL_BOUND


@pytest.mark.parametrize("fire", [True, False])
def test_cleanrl_beside_stable_baselines3_where_lives_are_lost_at_any_time(fire: bool) -> None:
    """Also within the forced actions, one of which is an odd case of its own."""
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

        def look(self) -> Any:
            return np.full((210, 160, 3), self.ale.acts % 256, dtype=np.uint8)

        def reset(self, **_: Any) -> Any:
            self.ale.reset_game()
            return self.look(), {}

        def step(self, action: int) -> Any:
            reward = self.ale.act(self.ale.actions[action])
            return self.look(), reward, self.ale.game_over(), False, {}

    counts = [3, 1, 7]
    theirs = wrapped(Base(), counts)
    numbers = cycle(counts)
    game = atari.Game(emulator, 0, "cleanrl", training=True)
    game._draw = lambda: next(numbers) - 1  # type: ignore[method-assign]
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
        assert emulator.left == theirs_emulator.left
        if "episode" in info:
            assert [episode.score for episode in step.episodes] == [info["episode"]["r"]]
        if terminated:
            assert len(set(shown(step.obs))) == 1
        # Where a game ends in the last forced step, their frame is whatever was shown before.
        if "reset" not in theirs_emulator.log[chosen + 4 :]:
            assert shown(step.obs)[-1] == np.asarray(obs)[-1, 0, 0, 0]


@RESETS
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("action", [0, 3])
def test_who_never_fires_plays_all_lives_of_breakout(
    atari_reset: str, training: bool, action: int
) -> None:
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
def test_every_stored_transition_was_seen_and_chosen(game: str, atari_reset: str) -> None:
    with closing(make(f"atari/{game}", 4, 2, atari_reset=atari_reset)) as envs:
        replay = Replay(envs.spec, 2, 8_000, torch.device("cpu"))
        obs = envs.reset()
        replay.begin(obs)
        random = torch.Generator().manual_seed(3)
        seen = []
        ends = games = 0
        for _ in range(700):
            action = torch.randint(envs.spec.num_actions, (2,), generator=random)
            step = envs.step(action)
            replay.add(action, step)
            seen.append((obs, action, step))
            obs = step.obs
            ends += int(step.terminated.sum())
            games += len(step.episodes)
        assert ends > games > 0
        for env in range(2):
            slots = replay.usable[env].nonzero().flatten()
            assert len(slots) == len(seen)
            for slot, (before, action, step) in zip(slots, seen, strict=True):
                stored = replay.observations(Draw(torch.tensor([env]), slot[None]), 0, 2)
                assert torch.equal(stored[0, 0], before[env])
                assert torch.equal(stored[0, 1], step.next_obs[env])
                assert replay.action[env, slot] == action[env]
                assert replay.reward[env, slot] == step.reward[env]
                assert replay.terminated[env, slot] == step.terminated[env]


@RESETS
@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders"])
def test_training_and_greedy_play_are_the_same_games(game: str, atari_reset: str) -> None:
    both = [
        make(f"atari/{game}", 7, 2, training=training, atari_reset=atari_reset)
        for training in (True, False)
    ]
    assert torch.equal(both[0].reset(), both[1].reset())
    random = torch.Generator().manual_seed(5)
    lives_lost = games = 0
    for _ in range(700):
        action = torch.randint(both[0].spec.num_actions, (2,), generator=random)
        learned, scored = (envs.step(action) for envs in both)
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
    for envs in both:
        envs.close()


def stream(envs: Envs, steps: int, seed: int) -> list[Any]:
    random = torch.Generator().manual_seed(seed)
    seen: list[Any] = []
    for _ in range(steps):
        action = torch.randint(envs.spec.num_actions, (envs.num_envs,), generator=random)
        step = envs.step(action)
        seen.append((step.obs, step.next_obs, step.reward, step.terminated, step.episodes))
    return seen


def assert_same(one: list[Any], two: list[Any]) -> None:
    for mine, other in zip(one, two, strict=True):
        assert mine[-1] == other[-1]
        assert all(torch.equal(a, b) for a, b in zip(mine[:-1], other[:-1], strict=True))


@pytest.mark.parametrize(("training", "atari_reset"), [(True, "cleanrl"), (False, "envpool")])
def test_games_are_the_same_in_any_number_of_processes_and_go_on_in_another(
    atari_reset: str, training: bool
) -> None:
    streams, states = [], []
    options: dict[str, Any] = {"training": training, "atari_reset": atari_reset}
    layouts = [(0, 1), (3, 1), (2, 2)]
    for workers, groups in layouts:
        with closing(
            make("atari/Breakout", 3, 4, workers=workers, groups=groups, **options)
        ) as envs:
            first = envs.reset()
            before = stream(envs, 100, 0)
            states.append(envs.state_dict())
            streams.append([(first, first, first, first, ()), *before, *stream(envs, 60, 1)])
    for one, two in pairwise(streams):
        assert_same(one, two)
    assert any(episodes for *_, episodes in streams[0])
    # Saved by none, continued by three; saved by three, continued by one; and by none.
    for saved, workers in ((0, 3), (1, 2), (1, 0)):
        with closing(make("atari/Breakout", 9, 4, workers=workers, **options)) as envs:
            envs.reset()
            assert torch.equal(envs.load_state_dict(states[saved]), streams[0][100][0])
            assert_same(stream(envs, 60, 1), streams[0][101:])


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
