"""Convert the networks of Stable-Baselines3's PPO before training, and print what it does.

    pip install 'hadamard-rl[sb3,minatar,box2d]'
    python benchmarks/bench_conversion.py --folder runs/conversion --task cartpole --seeds 0-9
    python benchmarks/bench_conversion.py --folder runs/conversion --table

A way to convert is written as which layers, and how they start: `all near_one` is
`hadamardize(policy, where=<all hidden layers>, start="near_one")`. `plain` converts nothing. Each
result is a JSON file in the folder; those that are there are not measured again. Everything runs
on one thread.

Printed are the mean return of 20 episodes of the greedy policy after training and of the last 100
episodes of training, with 95 % intervals (Student's t) over the seeds, and the health of the last
hidden layer of the policy on the last rollout.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from scipy import stats
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from hadamard import diagnose, hadamardize

EPISODES = 20
Result = dict[str, Any]


class MinAtarNetwork(BaseFeaturesExtractor):
    """MinAtar's small network: a convolution and a linear layer."""

    def __init__(
        self, space: gymnasium.spaces.Box, activation: type[nn.Module], features_dim: int = 128
    ) -> None:
        super().__init__(space, features_dim)
        channels, height, width = space.shape
        self.hidden = nn.Sequential(
            nn.Conv2d(channels, 16, 3),
            activation(),
            nn.Flatten(),
            nn.Linear(16 * (height - 2) * (width - 2), features_dim),
            activation(),
        )

    def forward(self, observations: Tensor) -> Tensor:
        """Return the features."""
        hidden: Tensor = self.hidden(observations)
        return hidden


def minatar(game: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Return a function that makes a MinAtar game, its observations with channels first."""

    def make() -> gymnasium.Env[Any, Any]:
        from minatar.gym import BaseEnv

        # BaseEnv keeps what it is given; sticky actions and ramping are MinAtar's defaults.
        env = BaseEnv(game=game, use_minimal_action_set=True)
        height, width, channels = env.observation_space.shape
        space = gymnasium.spaces.Box(0.0, 1.0, (channels, height, width), np.float32)
        return gymnasium.wrappers.TransformObservation(
            env, lambda obs: obs.transpose(2, 0, 1).astype(np.float32), space
        )

    return make


class Task(NamedTuple):
    """An environment, PPO's settings on it and the ways to convert that are compared."""

    env: str | Callable[[], gymnasium.Env[Any, Any]]
    steps: int
    envs: int
    settings: dict[str, Any]
    hidden: tuple[str, ...]
    """The hidden layers, in order."""
    last: tuple[str, ...]
    """The last hidden layer of each network."""
    activation: str
    ways: tuple[str, ...]


_MLP = ("mlp_extractor.*",)
_MLP_LAST = ("mlp_extractor.policy_net.2", "mlp_extractor.value_net.2")
_CNN = ("features_extractor.hidden.0", "features_extractor.hidden.3")
_STARTS = ("paper", "scaled", "near_one")
_ALL_WAYS = ("plain", *(f"{where} {start}" for where in ("all", "last") for start in _STARTS))
_MINATAR_PPO = {"n_steps": 128, "batch_size": 256, "n_epochs": 4, "ent_coef": 0.01}


def _on_minatar(game: str, activation: str) -> Task:
    layer = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]
    network = {
        "features_extractor_class": MinAtarNetwork,
        "features_extractor_kwargs": {"activation": layer},
        "net_arch": [],
        "normalize_images": False,
    }
    settings = {**_MINATAR_PPO, "policy_kwargs": network}
    return Task(minatar(game), 100_000, 8, settings, _CNN, _CNN[1:], activation, _ALL_WAYS)


TASKS = {
    # Stable-Baselines3's own settings.
    "cartpole": Task("CartPole-v1", 10_000, 1, {}, _MLP, _MLP_LAST, "tanh", _ALL_WAYS),
    # Those of its zoo, with fewer environments for the smaller budget.
    "lunarlander": Task(
        "LunarLander-v3",
        100_000,
        8,
        {"n_steps": 256, "batch_size": 128, "n_epochs": 4, "gamma": 0.999, "gae_lambda": 0.98},
        _MLP,
        _MLP_LAST,
        "tanh",
        _ALL_WAYS,
    ),
    "breakout-tanh": _on_minatar("breakout", "tanh"),
    "breakout-relu": _on_minatar("breakout", "relu"),
    "asterix-tanh": _on_minatar("asterix", "tanh"),
    "asterix-relu": _on_minatar("asterix", "relu"),
}


def measured(name: str, way: str, seed: int, steps: int | None = None) -> Result:
    """Train once; return the scores and the health of the policy's last hidden layer."""
    task, started = TASKS[name], time.perf_counter()
    env = make_vec_env(task.env, n_envs=task.envs, seed=seed)
    policy = "MlpPolicy"
    model = PPO(policy, env, seed=seed, device="cpu", verbose=0, **task.settings)
    torch.manual_seed(seed + 1_000)
    if way != "plain":
        which, start = way.split()
        where = task.hidden if which == "all" else task.last
        hadamardize(model.policy, where=where, start=start)  # type: ignore[arg-type]
    model.learn(steps or task.steps)
    episodes = [episode["r"] for episode in model.ep_info_buffer or ()]
    shape = model.observation_space.shape or ()
    observations = torch.as_tensor(model.rollout_buffer.observations).reshape(-1, *shape)[-2_048:]
    layers = diagnose(model.policy, observations, forward=model.policy.get_distribution)
    played = make_vec_env(task.env, n_envs=1, seed=seed + 10_000)
    greedy, _ = evaluate_policy(model, played, n_eval_episodes=EPISODES)
    return {
        "task": name,
        "way": way,
        "seed": seed,
        "steps": model.num_timesteps,
        "greedy": greedy,
        "training": statistics.fmean(episodes) if episodes else None,
        "dormant": layers[-1].dormant_fraction,
        "effective_rank": layers[-1].effective_rank,
        "width": layers[-1].neurons,
        "seconds": round(time.perf_counter() - started, 1),
    }


def interval(values: list[float]) -> str:
    """Write a mean with its 95 % interval."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.4g}"
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.4g} ± {half:.2g}"


def print_table(results: list[Result]) -> None:
    """Print all results, task by task."""
    print("| task | layers, start | seeds | greedy return | training return | dormant | rank |")
    print("|---|---|---|---|---|---|---|")
    for name, task in TASKS.items():
        for way in task.ways:
            rows = [row for row in results if (row["task"], row["way"]) == (name, way)]
            if rows:
                training = [row["training"] for row in rows if row["training"] is not None]
                cells = [name, way, str(len(rows)), interval([row["greedy"] for row in rows])]
                cells.append(interval(training) if training else "-")
                cells.append(f"{statistics.fmean(row['dormant'] for row in rows):.0%}")
                rank = statistics.fmean(row["effective_rank"] for row in rows)
                cells.append(f"{rank:.0f}/{rows[0]['width']}")
                print("|", " | ".join(cells), "|")


def main() -> None:
    """Measure what is missing, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True, help="where the results are")
    parser.add_argument("--task", nargs="*", default=[], choices=TASKS, help="what to train on")
    parser.add_argument("--ways", nargs="*", help="ways to convert, by default all")
    parser.add_argument("--seeds", default="0-4", help="the first and the last seed")
    parser.add_argument("--steps", type=int, help="another budget, for a trial")
    parser.add_argument("--table", action="store_true", help="print what is there")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    first, last = map(int, args.seeds.split("-"))
    for seed in range(first, last + 1):
        for name in args.task:
            for way in args.ways or TASKS[name].ways:
                path = args.folder / f"{name}-{way.replace(' ', '-')}-{seed}.json"
                if not path.exists():
                    result = measured(name, way, seed, args.steps)
                    path.write_text(json.dumps(result) + "\n")
                    print(json.dumps(result), flush=True)
    if args.table:
        print_table([json.loads(path.read_text()) for path in sorted(args.folder.glob("*.json"))])


if __name__ == "__main__":
    main()
