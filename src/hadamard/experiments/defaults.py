"""What a suite changes in an algorithm's defaults, which are the paper's for Atari."""

from __future__ import annotations

from typing import Any

OVERRIDES: dict[tuple[str, str], dict[str, Any]] = {
    # A network for a 10 x 10 grid has work for two threads at most, and runs share a machine.
    ("*", "minatar"): {"train.threads": 1},
    # The greedy environments are PQN's running evaluation.
    ("pqn", "*"): {"train.greedy_envs": 8},
    # While one half of the emulators play, the other half is acted on.
    # PQN's public code plays envpool's games.
    ("pqn", "atari"): {"train.env_groups": 2, "train.atari_reset": "envpool"},
    ("ppo", "atari"): {"train.env_groups": 2},
    # PQN's public MinAtar settings.
    ("pqn", "minatar"): {
        "net.width": 128,
        "algo.learning_rate": 5e-4,
        "algo.epsilon_final": 0.05,
    },
    # Exploration, replay and warm-up of the MinAtar paper's DQN; the rest as for Atari.
    ("dqn", "minatar"): {
        "net.width": 128,
        "algo.learning_starts": 5_000,
        "algo.epsilon_steps": 100_000,
        "algo.replay_capacity": 100_000,
        "train.steps": 5_000_000,
    },
    ("ppo", "minatar"): {"net.width": 128},
    # SimbaV2's protocol: a million control steps are half a million actions.
    ("simbav2", "*"): {
        "train.steps": 500_000,
        "train.eval_every": 50_000,
        "train.health_every": 50_000,
        "train.health_layers": "all",
        "train.checkpoint_every": 50_000,
        "train.log_every": 5_000,
    },
    ("simbav2", "humanoid"): {"train.eval_workers": 5},
    # Episodes only end by the clock: a single critic.
    ("simbav2", "dmc-state"): {"algo.double_critic": False, "train.eval_workers": 5},
    ("simbav2", "probe"): {"train.eval_every": 0, "train.health_every": 5_000},
    # MR.Q's protocol: a million frames of the DeepMind Control Suite are half a million actions.
    ("mrq", "*"): {
        "train.steps": 500_000,
        "train.eval_every": 5_000,
        "train.health_every": 25_000,
        "train.health_layers": "all",
        "train.checkpoint_every": 50_000,
        "train.log_every": 5_000,
    },
    ("mrq", "dmc"): {"train.eval_workers": 5},
    ("mrq", "dmc-state"): {"train.eval_workers": 5},
    ("mrq", "probe"): {
        "algo.hidden_width": 64,
        "algo.batch_size": 64,
        "algo.random_steps": 500,
        "algo.target_period": 50,
        "algo.learning_rate": 3e-3,
        "algo.encoder_learning_rate": 3e-3,
        "train.steps": 5_000,
        "train.eval_every": 0,
        "train.health_every": 5_000,
    },
    ("dqn", "probe"): {"algo.learning_starts": 1_000, "algo.epsilon_steps": 5_000},
    # Toy tasks need neither a large network nor long logs.
    ("*", "probe"): {
        "net.width": 64,
        "train.steps": 20_000,
        "train.log_every": 1_000,
        "train.threads": 1,
    },
}


def overrides(algorithm: str, env: str) -> dict[str, Any]:
    """Return the settings to change for an algorithm on an environment's suite."""
    suite = env.partition("/")[0]
    changes: dict[str, Any] = {}
    for of_algorithm, of_suite in ((algorithm, "*"), ("*", suite), (algorithm, suite)):
        changes.update(OVERRIDES.get((of_algorithm, of_suite), {}))
    return changes
