"""DQN on MinAtar in one file; --hadamard replaces its hidden layer by a Hadamard layer.

    python examples/cleanrl_style_dqn.py --steps 100000
    python examples/cleanrl_style_dqn.py --steps 100000 --hadamard

100,000 steps take a few minutes on a CPU. At the end the network is diagnosed on the states it
has played. Needs: pip install 'hadamard-rl[minatar]'
"""

from __future__ import annotations

import argparse
import random
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from minatar import Environment
from torch import Tensor, nn

from hadamard import HadamardLinear, diagnose


def parse() -> argparse.Namespace:
    """Read the settings; the defaults are those of `hadamard train dqn`, with a short warm-up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--game", default="breakout", help="one of MinAtar's five games")
    parser.add_argument("--hadamard", action="store_true", help="use a Hadamard layer")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    parser.add_argument("--steps", type=int, default=100_000, help="steps in the game")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="of Adam")
    parser.add_argument("--gamma", type=float, default=0.99, help="discount")
    parser.add_argument("--batch-size", type=int, default=32, help="transitions in an update")
    parser.add_argument("--update-period", type=int, default=4, help="steps between updates")
    parser.add_argument("--target-period", type=int, default=1_000, help="steps between copies")
    parser.add_argument("--learning-starts", type=int, default=1_000, help="steps before learning")
    parser.add_argument("--replay-capacity", type=int, default=100_000, help="transitions kept")
    parser.add_argument("--epsilon-final", type=float, default=0.1, help="random actions at last")
    parser.add_argument(
        "--epsilon-fraction", type=float, default=0.1, help="share of training to get there"
    )
    return parser.parse_args()


class QNetwork(nn.Module):
    """A convolution and a hidden layer, as in the MinAtar paper."""

    def __init__(self, channels: int, actions: int, hadamard: bool) -> None:
        super().__init__()
        self.convolution = nn.Sequential(nn.Conv2d(channels, 16, 3), nn.Tanh(), nn.Flatten())
        self.hidden: nn.Module = nn.Sequential(nn.Linear(16 * 8 * 8, 128), nn.Tanh())
        if hadamard:
            self.hidden = HadamardLinear(16 * 8 * 8, 128, activation="tanh")  # the whole change
        self.values = nn.Linear(128, actions)

    def forward(self, states: Tensor) -> Tensor:
        """Return the value of every action."""
        values: Tensor = self.values(self.hidden(self.convolution(states)))
        return values


class Replay:
    """The newest transitions, in arrays."""

    def __init__(self, capacity: int, shape: tuple[int, ...]) -> None:
        self.states = np.zeros((capacity, *shape), bool)
        self.next_states = np.zeros((capacity, *shape), bool)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.ended = np.zeros(capacity, np.float32)
        self.capacity, self.added = capacity, 0

    def add(self, *transition: np.ndarray | int | float) -> None:
        """Store a transition in place of the oldest."""
        row = self.added % self.capacity
        arrays: tuple[np.ndarray, ...] = (
            self.states, self.actions, self.rewards, self.next_states, self.ended,
        )  # fmt: skip
        for array, value in zip(arrays, transition, strict=True):
            array[row] = value
        self.added += 1

    def sample(self, count: int, rng: np.random.Generator) -> tuple[Tensor, ...]:
        """Return a random batch: states, actions, rewards, next states, ends."""
        rows = rng.integers(min(self.added, self.capacity), size=count)
        arrays: tuple[np.ndarray, ...] = (
            self.states, self.actions, self.rewards, self.next_states, self.ended,
        )  # fmt: skip
        return tuple(torch.from_numpy(array[rows]) for array in arrays)


def observed(game: Environment) -> np.ndarray:
    """Return the game's grid with its channels first."""
    return np.moveaxis(game.state(), -1, 0)


def main() -> None:
    """Play, learn, diagnose."""
    args = parse()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # a network this small gains nothing from more
    rng = np.random.default_rng(args.seed)

    game = Environment(args.game)
    game.seed(args.seed)
    game.reset()
    state = observed(game)
    actions = game.minimal_action_set()
    network = QNetwork(len(state), len(actions), args.hadamard)
    target = QNetwork(len(state), len(actions), args.hadamard)
    target.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=args.learning_rate, eps=1e-5)
    replay = Replay(args.replay_capacity, state.shape)
    scores: deque[float] = deque(maxlen=100)
    score = 0.0

    for step in range(1, args.steps + 1):
        # Act: at random at first, then more and more greedily.
        progress = min(1.0, step / (args.epsilon_fraction * args.steps))
        epsilon = 1.0 + progress * (args.epsilon_final - 1.0)
        if random.random() < epsilon:
            action = random.randrange(len(actions))
        else:
            with torch.no_grad():
                action = int(network(torch.from_numpy(state).float()[None]).argmax())

        # Step, and store.
        reward, ended = game.act(actions[action])
        next_state = observed(game)
        replay.add(state, action, reward, next_state, ended)
        score += reward
        state = next_state
        if ended:
            scores.append(score)
            score = 0.0
            game.reset()
            state = observed(game)

        # Learn.
        if step > args.learning_starts and step % args.update_period == 0:
            states, chosen, rewards, next_states, ends = replay.sample(args.batch_size, rng)
            with torch.no_grad():
                best = target(next_states.float()).amax(1)
                aims = rewards + args.gamma * (1 - ends) * best
            values = network(states.float()).gather(1, chosen[:, None]).squeeze(1)
            loss = F.mse_loss(values, aims)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % args.target_period == 0:
            target.load_state_dict(network.state_dict())
        if step % max(1, args.steps // 10) == 0 and scores:
            print(f"step {step:,}  score {np.mean(scores):.2f} (last {len(scores)} games)")

    states = replay.sample(min(2_048, replay.added), rng)[0]
    print(diagnose(network, states.float()))


if __name__ == "__main__":
    main()
