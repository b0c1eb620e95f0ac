"""Train on Gymnasium's small tasks beside Stable-Baselines3 and CleanRL, and print a table.

    pip install 'hadamard-rl[box2d]' stable-baselines3
    git clone https://github.com/vwxyzjn/cleanrl
    python benchmarks/bench_gym.py --cleanrl cleanrl --folder runs/bench_gym
    python benchmarks/bench_gym.py --folder runs/bench_gym --table

Ours are the default settings for the suite gym. Stable-Baselines3's DQN and PPO get the same
settings (networks, rollout, learning rate and its decay, normalization), and CleanRL's ``pqn.py``
keeps those of its file, from which ours differ in lambda. Each result is a JSON file in the folder;
those that are there are not measured again, so several processes may share the work with ``--only``
and ``--seeds``. Everything runs on one thread.

Printed are the mean return of the last 100 episodes of training, which explore, and of 20 episodes
of the greedy policy after it; mean and standard deviation over the seeds.
"""

from __future__ import annotations

import argparse
import json
import runpy
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import torch

from hadamard import envs
from hadamard.core.config import RunSpec, overridden
from hadamard.core.random import child_seed
from hadamard.training import start
from hadamard.training.evaluate import evaluate
from hadamard.training.load_agent import load_agent
from hadamard.training.progress import Progress

EPISODES = 20
LAST = 100


class Row(NamedTuple):
    """An algorithm on a task for a number of steps."""

    algorithm: str
    task: str
    steps: int

    @property
    def name(self) -> str:
        """What the row is called in files and on the command line."""
        return f"{self.algorithm}-{self.task}"


ROWS = (
    Row("ppo", "CartPole-v1", 100_000),
    Row("ppo", "Pendulum-v1", 200_000),
    Row("ppo", "LunarLander-v3", 300_000),
    Row("pqn", "CartPole-v1", 300_000),
    Row("dqn", "CartPole-v1", 50_000),
    Row("dqn", "LunarLander-v3", 100_000),
)
Result = dict[str, Any]


def settings(row: Row, seed: int, folder: Path) -> RunSpec[Any]:
    """Return our settings: the defaults, without what only takes time."""
    changes = {
        "train.steps": row.steps,
        "seed": seed,
        "device": "cpu",
        "run_dir": str(folder / "runs" / f"{row.name}-{seed}-{int(time.time())}"),
        "train.health_every": 0,
        "train.greedy_envs": 0,
        "train.checkpoint_every": 0,
        "train.tensorboard": False,
        "train.threads": 1,
    }
    spec: RunSpec[Any] = start.default_spec(row.algorithm, f"gym/{row.task}")
    changed: RunSpec[Any] = overridden(spec, changes)
    return changed


class Quiet(Progress):
    """Shows nothing."""

    def __init__(self, *_: Any) -> None:
        pass

    def update(self, step: int, facts: dict[str, Any]) -> None:
        """Show nothing."""

    def close(self) -> None:
        """End nothing."""


def train_ours(row: Row, seed: int, folder: Path) -> Result:
    """Train with this library."""
    spec = settings(row, seed, folder)
    summary = start.train(row.algorithm, spec, Quiet)
    assert spec.run_dir is not None
    agent, spec, _, device, _ = load_agent(spec.run_dir, "cpu")
    games = envs.make(spec.env, child_seed(seed, 20), EPISODES, device, training=False)
    scores = [episode.score for episode in evaluate(agent, games, EPISODES)]
    games.close()
    return {"training": summary["score"], "greedy": statistics.fmean(scores)}


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps the returns of the last episodes of all environments."""

    returns: ClassVar[deque[float]] = deque(maxlen=LAST)

    def reset(self, **options: Any) -> Any:
        """Start an episode."""
        self.total = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Take a step."""
        result = self.env.step(action)
        self.total += float(result[1])
        if result[2] or result[3]:
            self.returns.append(self.total)
        return result


def train_stable_baselines3(row: Row, seed: int, folder: Path) -> Result:
    """Train Stable-Baselines3's DQN or PPO with our settings."""
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

    spec = settings(row, seed, folder)
    c, width = spec.algo, spec.net.width
    activation = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[spec.net.activation]
    Recorder.returns.clear()
    games: VecEnv = DummyVecEnv([lambda: Recorder(gymnasium.make(row.task))] * c.num_envs)
    shared: dict[str, Any] = {
        "gamma": c.gamma,
        "seed": seed,
        "device": "cpu",
        "policy_kwargs": {"net_arch": [width, width], "activation_fn": activation},
    }
    model: Any
    if row.algorithm == "ppo":
        games = VecNormalize(games, gamma=c.gamma) if c.normalize else games
        model = PPO(
            "MlpPolicy",
            games,
            learning_rate=lambda remaining: c.learning_rate * remaining,
            n_steps=c.rollout_steps,
            batch_size=c.num_envs * c.rollout_steps // c.minibatches,
            n_epochs=c.epochs,
            gae_lambda=c.gae_lambda,
            clip_range=c.clip,
            ent_coef=c.entropy_coefficient,
            vf_coef=c.value_coefficient,
            max_grad_norm=c.max_grad_norm,
            **shared,
        )
    else:
        model = DQN(
            "MlpPolicy",
            games,
            learning_rate=c.learning_rate,
            buffer_size=c.replay_capacity,
            learning_starts=c.learning_starts,
            batch_size=c.batch_size,
            train_freq=c.update_period,
            gradient_steps=1,
            target_update_interval=c.target_period,
            exploration_fraction=c.epsilon_steps / row.steps,
            exploration_initial_eps=c.epsilon_initial,
            exploration_final_eps=c.epsilon_final,
            **shared,
        )
    model.learn(row.steps)
    training = statistics.fmean(Recorder.returns)
    if isinstance(games, VecNormalize):
        games.training, games.norm_reward = False, False
    greedy, _ = evaluate_policy(model, games, EPISODES, deterministic=True)
    return {"training": training, "greedy": float(np.mean(greedy))}


def train_cleanrl(row: Row, seed: int, checkout: Path) -> Result:
    """Run CleanRL's script of this algorithm, with what newer versions of Gymnasium changed."""
    path = checkout / "cleanrl" / f"{row.algorithm}.py"
    text = path.read_text()
    pieces = {
        "env = gym.wrappers.RecordEpisodeStatistics(env)": "env = Recorder(env)",
        'if "final_info" in infos:': "if False:",
        "gym.vector.SyncVectorEnv(": "SyncVectorEnv(",
        'writer = SummaryWriter(f"runs/{run_name}")': "writer = Nothing()",
    }
    for old, new in pieces.items():
        if old not in text:
            raise SystemExit(f"{path} has no {old!r}: CleanRL has changed")
        text = text.replace(old, new)
    script = checkout / f"bench_gym_{row.algorithm}.py"
    script.write_text(text)
    Recorder.returns.clear()
    before, sys.argv = sys.argv, [str(script)]
    sys.argv += ["--env-id", row.task, "--seed", str(seed), "--total-timesteps", str(row.steps)]
    names = {"Recorder": Recorder, "SyncVectorEnv": _same_step, "Nothing": _Nothing}
    try:
        runpy.run_path(str(script), init_globals=names, run_name="__main__")
    finally:
        sys.argv = before
        script.unlink()
    return {"training": statistics.fmean(Recorder.returns), "greedy": None}


def _same_step(functions: Any) -> Any:
    """Make environments that start anew in the step that ends an episode, as CleanRL expects."""
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv(functions, autoreset_mode=mode)


class _Nothing:
    """Stands in for TensorBoard's writer."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def peer_of(row: Row) -> str:
    """Return the project that a row is compared with."""
    return "CleanRL" if row.algorithm == "pqn" else "Stable-Baselines3"


def measurements(options: argparse.Namespace) -> Iterator[tuple[Row, str, int, Path]]:
    """Yield what is to be measured, and the file of its result."""
    for seed in options.seeds:
        for row in ROWS:
            if options.only and row.name not in options.only:
                continue
            for who in ("Hadamard", peer_of(row)):
                yield row, who, seed, options.folder / f"{row.name}-{row.steps}-{who}-{seed}.json"


def measure(row: Row, who: str, seed: int, options: argparse.Namespace) -> Result:
    """Train and play."""
    torch.set_num_threads(1)
    start_time = time.process_time()
    if who == "Hadamard":
        result = train_ours(row, seed, options.folder)
    elif who == "CleanRL":
        result = train_cleanrl(row, seed, options.cleanrl)
    else:
        result = train_stable_baselines3(row, seed, options.folder)
    return {**result, "cpu_seconds": round(time.process_time() - start_time, 1)}


def table(options: argparse.Namespace) -> str:
    """Return the table of all results so far."""
    lines = ["| algorithm, task, steps | who | training | greedy | CPU s | seeds |"]
    lines.append("|---|---|---|---|---|---|")
    results: dict[tuple[Row, str], list[Result]] = {}
    for row, who, _, path in measurements(options):
        if path.is_file():
            results.setdefault((row, who), []).append(json.loads(path.read_text()))
    for (row, who), found in sorted(results.items(), key=lambda item: ROWS.index(item[0][0])):
        cells = [f"{row.algorithm}, {row.task}, {row.steps:,}", who]
        cells += [_spread([result[name] for result in found]) for name in ("training", "greedy")]
        cells.append(f"{statistics.fmean(result['cpu_seconds'] for result in found):.0f}")
        lines.append(f"| {' | '.join([*cells, str(len(found))])} |")
    return "\n".join(lines)


def _spread(values: list[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ""
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    return f"{statistics.fmean(numbers):.0f} ± {deviation:.0f}"


def main() -> None:
    """Measure what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/bench_gym"))
    parser.add_argument("--cleanrl", type=Path, help="a checkout of CleanRL, for PQN's peer")
    parser.add_argument("--only", nargs="*", help=f"of {', '.join(row.name for row in ROWS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--table", action="store_true", help="print the results there are")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for row, who, seed, path in measurements(options):
        if options.table or path.is_file() or (who == "CleanRL" and options.cleanrl is None):
            continue
        result = measure(row, who, seed, options)
        path.write_text(json.dumps(result))
        print(row.name, who, seed, result, flush=True)
    print(table(options))


if __name__ == "__main__":
    main()
