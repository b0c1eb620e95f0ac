"""A training loop of one's own, with a Monitor that diagnoses the network while it learns.

    python examples/monitor_in_your_loop.py --steps 50000 --path health.jsonl

REINFORCE on CartPole, in plain PyTorch. Three lines are Hadamard's: the import, the `with` and
the call of `monitor.step`. Every line of the file it writes is one diagnosis, as JSON.
Needs: pip install hadamard-rl 'gymnasium>=1.1'
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gymnasium
import torch
from torch import Tensor, nn

from hadamard import Monitor


def play(game: gymnasium.Env, policy: nn.Module, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Play an episode; return its observations, log-probabilities of actions, and rewards."""
    observations, log_probabilities, rewards = [], [], []
    observation, _ = game.reset(seed=seed)
    ended = False
    while not ended:
        observations.append(torch.as_tensor(observation))
        choice = torch.distributions.Categorical(logits=policy(observations[-1]))
        action = choice.sample()
        log_probabilities.append(choice.log_prob(action))
        observation, reward, terminated, truncated, _ = game.step(int(action))
        rewards.append(float(reward))
        ended = terminated or truncated
    return torch.stack(observations), torch.stack(log_probabilities), torch.tensor(rewards)


def returns_of(rewards: Tensor, gamma: float) -> Tensor:
    """Return the discounted sum of rewards from each step on."""
    returns, later = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        later = float(rewards[t]) + gamma * later
        returns[t] = later
    return returns


def main() -> None:
    """Train a policy and watch its representation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=50_000, help="steps in the game")
    parser.add_argument("--every", type=int, default=20, help="updates between diagnoses")
    parser.add_argument("--path", type=Path, default=Path("health.jsonl"), help="where they go")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # a network this small gains nothing from more

    game = gymnasium.make("CartPole-v1")
    policy = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(),
        nn.Linear(64, 64), nn.Tanh(),
        nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    recent = torch.empty(0, 4)  # the newest observations, which the diagnosis runs on
    steps = episodes = 0
    with Monitor(policy, every=args.every, path=args.path) as monitor:
        while steps < args.steps:
            observations, log_probabilities, rewards = play(game, policy, args.seed + episodes)
            returns = returns_of(rewards, gamma=0.99)
            advantages = (returns - returns.mean()) / (returns.std() + 1e-8)
            loss = -(advantages * log_probabilities).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            steps, episodes = steps + len(rewards), episodes + 1
            recent = torch.cat([recent, observations])[-2_048:]
            report = monitor.step(recent)
            if report is not None:
                print(
                    f"step {steps:,}  episode {episodes}  return {rewards.sum():.0f}  "
                    f"dormant {report[-1].dormant_fraction:.0%}  "
                    f"effective rank {report[-1].effective_rank}/{report[-1].full_rank}"
                )
    game.close()


if __name__ == "__main__":
    main()
