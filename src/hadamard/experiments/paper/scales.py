"""The scales of experiments: the tasks, seeds and budgets that replace the paper's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hadamard.experiments.paper.tasks import MINATAR_5

if TYPE_CHECKING:
    from hadamard.core.config import RunSpec
    from hadamard.experiments.paper.model import Panel


@dataclass(frozen=True)
class Setting:
    """The tasks, seeds and settings of an algorithm at a scale that is smaller than the paper's."""

    tasks: tuple[str, ...]
    seeds: int
    steps: int
    normalization: str
    overrides: Mapping[str, Any]


_TINY = {
    "train.threads": 1,
    "train.tensorboard": False,
    "train.health_samples": 64,
    "net.width": 16,
}
_SMOKE: dict[str, Setting] = {
    "dqn": Setting(
        ("minatar/breakout",),
        2,
        2_000,
        "baseline_min_max",
        {
            **_TINY,
            "algo.learning_starts": 200,
            "algo.epsilon_steps": 500,
            "train.log_every": 100,
            "train.health_every": 200,
            "train.checkpoint_every": 200,
        },
    ),
    "ppo": Setting(
        ("minatar/breakout",),
        2,
        2_048,
        "baseline_min_max",
        {
            **_TINY,
            "algo.rollout_steps": 16,
            "train.log_every": 128,
            "train.health_every": 256,
            "train.checkpoint_every": 256,
        },
    ),
    "pqn": Setting(
        ("minatar/breakout",),
        2,
        2_048,
        "baseline_min_max",
        {
            **_TINY,
            "train.compile": "off",
            "algo.num_envs": 8,
            "algo.rollout_steps": 16,
            "algo.minibatches": 4,
            "redo.period": 20,
            "train.greedy_envs": 2,
            "train.log_every": 128,
            "train.health_every": 256,
            "train.checkpoint_every": 256,
        },
    ),
    "simbav2": Setting(
        ("probe/track",),
        2,
        400,
        "raw",
        {
            **_TINY,
            "algo.actor_width": 16,
            "train.compile": "off",
            "algo.batch_size": 16,
            "algo.learning_starts": 100,
            "train.eval_every": 20,
            "train.eval_episodes": 2,
            "train.log_every": 40,
            "train.health_every": 80,
            "train.checkpoint_every": 80,
        },
    ),
    "mrq": Setting(
        ("probe/track84",),
        2,
        250,
        "raw",
        {
            **_TINY,
            "train.compile": "off",
            "algo.hidden_width": 16,
            "algo.batch_size": 4,
            "algo.random_steps": 100,
            "algo.target_period": 25,
            "train.eval_every": 10,
            "train.eval_episodes": 2,
            "train.log_every": 25,
            "train.health_every": 125,
            "train.checkpoint_every": 125,
        },
    ),
}

_SMALL = {"train.threads": 1, "train.tensorboard": False}
_MINATAR: dict[str, Setting] = {
    # Exploration falls over a tenth of the budget, as in CleanRL.
    "dqn": Setting(
        MINATAR_5,
        5,
        300_000,
        "baseline_min_max",
        {
            **_SMALL,
            "algo.epsilon_steps": 30_000,
            "train.log_every": 3_000,
            "train.health_every": 15_000,
            "train.checkpoint_every": 30_000,
        },
    ),
    "ppo": Setting(
        MINATAR_5,
        5,
        500_000,
        "baseline_min_max",
        {
            **_SMALL,
            "train.log_every": 5_000,
            "train.health_every": 25_000,
            "train.checkpoint_every": 50_000,
        },
    ),
    "pqn": Setting(
        MINATAR_5,
        5,
        1_000_000,
        "baseline_min_max",
        {
            **_SMALL,
            "train.log_every": 10_000,
            "train.health_every": 50_000,
            "train.checkpoint_every": 100_000,
        },
    ),
    # Narrow networks and small batches: tens of updates a second on one core.
    "simbav2": Setting(
        ("dmc-state/cartpole-swingup",),
        5,
        20_000,
        "per_thousand",
        {
            **_SMALL,
            "net.width": 128,
            "algo.actor_width": 64,
            "algo.batch_size": 64,
            "algo.learning_starts": 1_000,
            "train.eval_every": 1_000,
            "train.eval_episodes": 5,
            "train.eval_workers": 0,
            "train.log_every": 500,
            "train.health_every": 2_000,
            "train.health_samples": 1_024,
            "train.checkpoint_every": 2_000,
        },
    ),
    # From states, since a core trains at two steps a second from pixels.
    "mrq": Setting(
        ("dmc-state/cartpole-swingup",),
        5,
        20_000,
        "per_thousand",
        {
            **_SMALL,
            "net.width": 128,
            "algo.hidden_width": 128,
            "algo.batch_size": 64,
            "algo.random_steps": 1_000,
            "train.eval_every": 1_000,
            "train.eval_episodes": 5,
            "train.eval_workers": 0,
            "train.log_every": 500,
            "train.health_every": 2_000,
            "train.health_samples": 1_024,
            "train.checkpoint_every": 2_000,
        },
    ),
}

# Published budgets: the MinAtar paper's of DQN, PQN's public one for the others. Densities come at
# every tenth.
_MINATAR_FULL: dict[str, Setting] = {
    "dqn": Setting(
        MINATAR_5,
        10,
        5_000_000,
        "baseline_min_max",
        {
            **_SMALL,
            "train.log_every": 50_000,
            "train.health_every": 250_000,
            "train.checkpoint_every": 500_000,
        },
    ),
    **{
        algorithm: Setting(
            MINATAR_5,
            10,
            10_000_000,
            "baseline_min_max",
            {
                **_SMALL,
                "train.log_every": 100_000,
                "train.health_every": 500_000,
                "train.checkpoint_every": 1_000_000,
            },
        )
        for algorithm in ("ppo", "pqn")
    },
    **{name: dataclasses.replace(_MINATAR[name], seeds=10) for name in ("simbav2", "mrq")},
}

SCALES: dict[str, Mapping[str, Setting]] = {
    "smoke": _SMOKE,
    "minatar": _MINATAR,
    "minatar-full": _MINATAR_FULL,
    "paper": {},
}
"""By name: a test of everything in seconds a run; for a laptop; the laptop's games at published
budgets with ten seeds; as published."""


def at_scale(panel: Panel, scale: str) -> Panel:
    """Return a panel as it is run at a scale."""
    if scale == "paper":
        return panel
    setting = SCALES[scale][panel.algorithm]
    small = scale != "smoke"
    return dataclasses.replace(
        panel,
        tasks=(panel.minatar if small else ()) or setting.tasks,
        seeds=setting.seeds,
        # The smoke scale ignores longer budgets: it only tests that everything works.
        steps=setting.steps * (panel.stretch if small else 1),
        stretch=panel.stretch if small else 1,
        normalization=setting.normalization,
        overrides=setting.overrides,
    )


_IN_STEPS = (
    "algo.epsilon_steps",
    "algo.learning_starts",
    "algo.random_steps",
    "train.log_every",
    "train.health_every",
    "train.checkpoint_every",
    "train.keep_every",
    "train.eval_every",
)
"""Settings that shrink with the budget; the replay's size and target and ReDo periods do not."""


def shortened(spec: RunSpec[Any], share: float) -> RunSpec[Any]:
    """Return a run's settings with all schedules and intervals multiplied by a share.

    Diagnoses stay far enough apart that no two share observations.
    """
    from hadamard.core.config import flattened, overridden, to_dict

    values, changes = flattened(to_dict(spec)), {}
    for name in _IN_STEPS:
        if values.get(name):  # 0 is off
            minimum = spec.train.health_samples if name == "train.health_every" else 1
            changes[name] = max(minimum, round(values[name] * share))
    shortened: RunSpec[Any] = overridden(spec, changes)
    return shortened
