"""MinAtar: the same games as in the package."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hadamard.envs import minatar
from hadamard.envs.common import environment_seeds


@pytest.mark.filterwarnings("ignore")  # the package imports seaborn
@pytest.mark.parametrize("game", minatar.tasks())
@pytest.mark.parametrize("ramping", [False, True])
def test_games_equal_the_packages(
    game: str, ramping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = pytest.importorskip("minatar")
    monkeypatch.setattr(minatar, "MAX_STEPS", 300)
    ours = minatar.make(game, 5, 4, ramping=ramping)
    theirs = []
    for seed in environment_seeds(5, 4):
        env = package.Environment(game, sticky_action_prob=0.1, difficulty_ramping=ramping)
        env.seed(seed)
        env.reset()
        env.reset()  # once when ours are made, once by reset()
        theirs.append(env)
    actions = theirs[0].minimal_action_set()
    assert ours.spec.num_actions == len(actions)
    lengths = [0] * 4

    def states() -> torch.Tensor:
        grids = np.stack([env.state().transpose(2, 0, 1) for env in theirs])
        return torch.from_numpy(grids.astype(np.uint8))

    assert torch.equal(ours.reset(), states())
    random = np.random.default_rng(0)
    truncations = terminations = 0
    for _ in range(700):
        action = random.integers(len(actions), size=4)
        step = ours.step(torch.from_numpy(action))
        results = [env.act(actions[a]) for env, a in zip(theirs, action, strict=True)]
        assert step.reward.tolist() == [float(reward) for reward, _ in results]
        assert step.terminated.tolist() == [terminal for _, terminal in results]
        assert torch.equal(step.next_obs, states())
        for env in range(4):
            lengths[env] += 1
            terminal = results[env][1]
            truncated = lengths[env] == 300 and not terminal
            assert bool(step.truncated[env]) == truncated
            if terminal or truncated:
                theirs[env].reset()
                lengths[env] = 0
                truncations += truncated
                terminations += terminal
        assert torch.equal(step.obs, states())
    assert truncations if game == "freeway" else terminations
