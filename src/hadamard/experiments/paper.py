"""Every experiment of the paper, as data: what it shows, what is run for it, what the paper says.

An experiment has panels, one for each algorithm in it; a panel has arms (the variants it
compares), tasks, seeds and a budget. `jobs` makes runs of it at one of three scales. The folder of
a run follows from what the run is, not from the experiment that asked for it: Figure 1 and Table 2
are made of other experiments' runs, and find them.

Numbers are the paper's where it states them. Where it leaves something open, the choice made here
is in the experiment's ``note``. Nothing here imports torch before `jobs` is called.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hadamard.core.config import RunSpec
    from hadamard.experiments.grid import Job

FROM_FIGURE = "from figure, not stated"

ATARI_8 = tuple(
    f"atari/{game}"
    for game in (
        "Asterix",
        "BeamRider",
        "Breakout",
        "MsPacman",
        "Qbert",
        "Seaquest",
        "SpaceInvaders",
        "VideoPinball",
    )
)
"""DQN's and PPO's games. The paper names Breakout, Seaquest and VideoPinball; the rest is ours."""

_ATARI_51 = """
Alien Amidar Assault Asterix Asteroids Atlantis BankHeist BattleZone BeamRider Berzerk Bowling
Boxing Breakout Centipede ChopperCommand CrazyClimber Defender DemonAttack DoubleDunk Enduro
FishingDerby Freeway Frostbite Gopher Hero IceHockey Jamesbond Kangaroo Krull KungFuMaster MsPacman
NameThisGame Phoenix Pong Qbert Riverraid RoadRunner Robotank Seaquest Skiing SpaceInvaders
StarGunner Surround Tennis TimePilot Tutankham UpNDown VideoPinball WizardOfWor YarsRevenge Zaxxon
"""
ATARI_51 = tuple(f"atari/{game}" for game in _ATARI_51.split())
"""PQN's "non-exploration-driven" games: ours, the 57 without Gravitar, MontezumaRevenge, Pitfall,
PrivateEye, Solaris and Venture."""

_HUMANOID = """
balance-simple balance-hard crawl hurdle maze pole reach run sit-simple sit-hard slide stair stand
walk
"""
HUMANOID_14 = tuple(f"humanoid/h1-{task}" for task in _HUMANOID.split())
VISUAL_HUMANOID = tuple(f"dmc/humanoid-{task}" for task in ("run", "stand", "walk"))
VISUAL_HARD = tuple(f"dmc/dog-{task}" for task in ("run", "stand", "trot", "walk"))
VISUAL_HARD += VISUAL_HUMANOID
_VISUAL_EASY = """
acrobot-swingup ball-in-cup-catch cartpole-balance cartpole-balance-sparse cartpole-swingup
cartpole-swingup-sparse cheetah-run finger-spin finger-turn-easy finger-turn-hard fish-swim
hopper-hop hopper-stand pendulum-swingup quadruped-run quadruped-walk reacher-easy reacher-hard
walker-run walker-stand walker-walk
"""
VISUAL_28 = tuple(f"dmc/{task}" for task in _VISUAL_EASY.split()) + VISUAL_HARD

MINATAR_5 = tuple(
    f"minatar/{game}" for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
)


@dataclass(frozen=True)
class Stated:
    """A number the paper gives, or the mark that it only draws it."""

    of: str
    """What it is the value of: an arm's label and a measure, in words."""
    value: float | None
    """None: from figure, not stated."""
    unit: str
    where: str
    algorithm: str = ""
    """The panel it belongs to."""
    label: str = ""
    """The arm it belongs to."""
    measure: str = "score"

    @property
    def text(self) -> str:
        """The value in words, with its place in the paper."""
        if self.value is None:
            return f"{FROM_FIGURE} ({self.where})"
        return f"{self.value:g} {self.unit} ({self.where})"


@dataclass(frozen=True)
class Arm:
    """One of the variants that are compared."""

    label: str
    """As the paper calls it."""
    variant: str
    """Its name among `grid.VARIANTS`."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What it changes beyond its variant."""


@dataclass(frozen=True)
class Panel:
    """The arms of one algorithm, and the protocol they are run under."""

    algorithm: str
    tasks: tuple[str, ...]
    seeds: int
    steps: int
    """Agent steps of a run (on Atari 4 frames each, in continuous control 2 environment steps)."""
    normalisation: str
    """One of `report.scores.NORMALISATIONS`."""
    aggregations: tuple[str, ...]
    """Of `report.stats.AGGREGATES`: the one to show first, then other readings of the paper."""
    arms: tuple[Arm, ...] = ()
    yardstick: Arm | None = None
    """An arm that is not compared, but whose runs the normalisation needs."""
    stretch: int = 1
    """How many times the usual budget ``steps`` is."""
    minatar: tuple[str, ...] = ()
    """Tasks at the MinAtar scales, if not those of the algorithm's `Setting`."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What the scale changes in every run."""
    share: float = 1.0
    """How much of the scale's budget ``steps`` is."""
    until: int = 0
    """Steps after which every run stops for now; 0 trains them to their end."""

    @property
    def baseline(self) -> Arm:
        """The arm the others are compared with: the first."""
        return self.arms[0]

    @property
    def trained(self) -> tuple[Arm, ...]:
        """All arms there must be runs of."""
        return self.arms if self.yardstick is None else (*self.arms, self.yardstick)

    @property
    def runs(self) -> int:
        """How many runs it is made of."""
        return len(self.trained) * len(self.tasks) * self.seeds

    def of(self, *arms: Arm, **changes: Any) -> Panel:
        """Return the panel with these arms."""
        return dataclasses.replace(self, arms=arms, **changes)


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper."""

    name: str
    place: str
    """Figure or table, as they are numbered in the order of the source."""
    anchor: str
    """Words of the paper's source by which it is found: a label or a caption's beginning."""
    shows: str
    panels: tuple[Panel, ...]
    measures: tuple[str, ...] = ("score",)
    """What is read from the runs: score, dormant_fraction, effective_rank, kde,
    live_contribution, dormant_contribution (of the Q-values), steps_per_second."""
    kde_at: tuple[float, ...] = ()
    """When densities are shown, as shares of the budget."""
    per_task: bool = False
    """Whether curves are shown task by task."""
    stated: tuple[Stated, ...] = ()
    imported: tuple[str, ...] = ()
    """Methods whose curves the paper took from elsewhere; `hadamard report --curves` draws them."""
    note: str = ""
    """What the paper leaves open, and how it is settled here."""

    def at(self, scale: str, share: float = 1.0, until: int | None = None) -> tuple[Panel, ...]:
        """Return the panels as they are run at a scale.

        Args:
            scale: One of `SCALES`.
            share: Of the scale's budget, which all schedules follow.
            until: Steps after which every run stops, with its full-length schedules; runs that
                are no longer than that are trained to their end.
        """
        if scale not in SCALES:
            raise ValueError(f"unknown scale {scale!r}; there are: {', '.join(SCALES)}")
        if not 0 < share <= 1:
            raise ValueError(f"--share must be above 0 and at most 1, got {share:g}")
        if until is not None and until < 0:
            raise ValueError(f"--until must not be negative, got {until}")
        panels = []
        for panel in self.panels:
            scaled = _scaled(panel, scale)
            steps = max(1, round(scaled.steps * share))
            stop = until if until and until < steps else 0
            panels.append(dataclasses.replace(scaled, steps=steps, share=share, until=stop))
        return tuple(panels)


@dataclass(frozen=True)
class Setting:
    """What replaces an algorithm's protocol at a scale that is smaller than the paper's."""

    tasks: tuple[str, ...]
    seeds: int
    steps: int
    normalisation: str
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
    # Narrow networks and small batches: what a core can update some tens of times a second.
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
    # From state: from pixels a core makes two steps a second.
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
"""By name: seconds a run, to see that everything works; a laptop; its games at published budgets
and with ten seeds; as published."""


def _scaled(panel: Panel, scale: str) -> Panel:
    if scale == "paper":
        return panel
    setting = SCALES[scale][panel.algorithm]
    small = scale != "smoke"
    return dataclasses.replace(
        panel,
        tasks=(panel.minatar if small else ()) or setting.tasks,
        seeds=setting.seeds,
        # In the smoke scale a longer budget would only be waited for.
        steps=setting.steps * (panel.stretch if small else 1),
        stretch=panel.stretch if small else 1,
        normalisation=setting.normalisation,
        overrides=setting.overrides,
    )


_IN_STEPS = (
    "algo.epsilon_steps",
    "algo.learning_starts",
    "algo.random_steps",
    "train.log_every",
    "train.health_every",
    "train.checkpoint_every",
    "train.eval_every",
)
"""What shrinks with a share of the budget; replay size and target and ReDo periods never do."""


def _shortened(spec: RunSpec[Any], share: float) -> RunSpec[Any]:
    """Return a run's settings with all that belongs to its budget shortened along with it.

    Diagnoses stay so far apart that each has observations of its own.
    """
    from hadamard.core.config import flattened, overridden, to_dict

    values, changes = flattened(to_dict(spec)), {}
    for name in _IN_STEPS:
        if values.get(name):  # 0 is off
            least = spec.train.health_samples if name == "train.health_every" else 1
            changes[name] = max(least, round(values[name] * share))
    shortened: RunSpec[Any] = overridden(spec, changes)
    return shortened


RELU = Arm("ReLU", "relu")
TANH = Arm("tanh", "tanh")
TANH_NORM = Arm("tanh + LayerNorm", "tanh+layernorm")
TANH_HR = Arm("tanh + HR", "tanh+hr")
RELU_HR = Arm("ReLU + HR", "relu+hr")
TWO_HR = Arm("tanh + 2HR", "2hr")
WIDE = Arm("tanh, widened", "widened")
CRELU = Arm("CReLU", "crelu")
REDO = Arm("ReDo", "redo")
SIMBA = Arm("SimbaV2", "baseline")
SIMBA_HR = Arm("SimbaV2 + HR", "hr")
SIMBA_WIDE = Arm("SimbaV2, widened", "baseline", {"net.layer": "widened"})
MRQ = Arm("MR.Q", "baseline")
MRQ_HR = Arm("MR.Q + HR", "hr")
MRQ_WIDE = Arm("MR.Q, widened", "baseline", {"net.layer": "widened"})
WIDE_RATES = tuple(
    Arm(f"tanh, widened, learning rate {rate:g}", "widened", {"algo.learning_rate": rate})
    for rate in (2.5e-5, 5e-5, 2e-4)
)

_M = 1_000_000
_DQN = Panel("dqn", ATARI_8, 5, 10 * _M, "baseline_min_max", ("mean",))
_PPO = Panel("ppo", ATARI_8, 5, 10 * _M, "baseline_min_max", ("mean",))
_PQN = Panel("pqn", ATARI_51, 5, 10 * _M, "human_normalised", ("median", "median_of_runs"))
_IQM = ("iqm", "iqm_of_task_means")
_SIMBA = Panel("simbav2", HUMANOID_14, 3, _M // 2, "success_normalised", _IQM)
_MRQ = Panel("mrq", VISUAL_HARD, 5, _M // 2, "per_thousand", _IQM)

DQN_FIVE = _DQN.of(RELU, TANH, TANH_NORM, TANH_HR, RELU_HR)
PPO_THREE = _PPO.of(RELU, TANH, TANH_HR)
PQN_THREE = _PQN.of(RELU, TANH, TANH_HR)
SIMBA_TWO = _SIMBA.of(SIMBA, SIMBA_HR)
MRQ_TWO = _MRQ.of(MRQ, MRQ_HR)

_HEALTH = ("score", "dormant_fraction", "effective_rank")


def _drawn(algorithm: str, where: str, *arms: Arm, measure: str = "score") -> tuple[Stated, ...]:
    """Mark what the paper only draws."""
    return tuple(
        Stated(f"{arm.label}: {measure}", None, "", where, algorithm, arm.label, measure)
        for arm in arms
    )


def _said(
    algorithm: str,
    arm: Arm,
    value: float,
    unit: str,
    where: str,
    measure: str = "score",
) -> Stated:
    return Stated(f"{arm.label}: {measure}", value, unit, where, algorithm, arm.label, measure)


_BASELINE_NORMALISED = "baseline-normalised"
_CHANGE = "% of the baseline"
_TABLE_2 = (
    _said("dqn", RELU, 0.91, _BASELINE_NORMALISED, "Table 2, Baseline"),
    _said("dqn", TANH_HR, 1.03, _BASELINE_NORMALISED, "Table 2, + HR"),
    _said("dqn", TANH_HR, 13, _CHANGE, "Table 2, + HR", "change"),
    _said("dqn", WIDE, 0.49, _BASELINE_NORMALISED, "Table 2, + Widen"),
    _said("dqn", WIDE, -46, _CHANGE, "Table 2, + Widen", "change"),
    _said("dqn", TWO_HR, 1.01, _BASELINE_NORMALISED, "Table 2, + 2HR"),
    _said("dqn", TWO_HR, 12, _CHANGE, "Table 2, + 2HR", "change"),
    _said("simbav2", SIMBA, 0.71, "IQM, success-normalised", "Table 2, Baseline"),
    _said("simbav2", SIMBA_HR, 0.84, "IQM, success-normalised", "Table 2, + HR"),
    _said("simbav2", SIMBA_HR, 18, _CHANGE, "Table 2, + HR", "change"),
    _said("simbav2", SIMBA_WIDE, 0.76, "IQM, success-normalised", "Table 2, + Widen"),
    _said("simbav2", SIMBA_WIDE, 7, _CHANGE, "Table 2, + Widen", "change"),
    _said("mrq", MRQ, 1.00, "relative to the baseline", "Table 2, Baseline"),
    _said("mrq", MRQ_HR, 1.17, "relative to the baseline", "Table 2, + HR"),
    _said("mrq", MRQ_HR, 17, _CHANGE, "Table 2, + HR", "change"),
    _said("mrq", MRQ_WIDE, 0.97, "relative to the baseline", "Table 2, + Widen"),
    _said("mrq", MRQ_WIDE, -3, _CHANGE, "Table 2, + Widen", "change"),
)


def _table_2(algorithm: str, *arms: Arm) -> tuple[Stated, ...]:
    labels = [arm.label for arm in arms]
    return tuple(s for s in _TABLE_2 if s.algorithm == algorithm and s.label in labels)


_EIGHT_GAMES = (
    "The paper names three of its eight games; the other five are ours. Baseline-normalised "
    "scores are by the ReLU runs' lowest and highest score, so ReLU itself ends below 1."
)
_MRQ_SEEDS = "The paper has 3 to 5 seeds a task: 5 here."
_IQM_READINGS = (
    "The experiments section averages over seeds before the IQM, the appendix cuts off 25 % of all "
    "(task, seed) scores: both are shown, beside the paper the second."
)

_ALL = (
    Experiment(
        name="fig-improvements",
        place="Figure 1",
        anchor="fig:first_plot",
        shows="HR improves on the baselines of five algorithms in three domains",
        panels=(
            _DQN.of(RELU, TANH_HR),
            _PPO.of(RELU, TANH_HR),
            _PQN.of(RELU, TANH, TANH_HR),
            SIMBA_TWO,
            MRQ_TWO,
        ),
        measures=("score", "steps_per_second"),
        stated=(
            _said("dqn", TANH_HR, 10, "%, over", "Introduction", "change"),
            _said("ppo", TANH_HR, 10, "%, over", "Introduction", "change"),
            *_table_2("dqn", RELU, TANH_HR),
            *_table_2("simbav2", SIMBA, SIMBA_HR),
            *_table_2("mrq", MRQ, MRQ_HR),
            *_drawn("ppo", "Figure 1", TANH_HR),
            *_drawn("pqn", "Figure 1", TANH_HR),
            Stated(
                "HR: time of training",
                1.2,
                "times the baseline's, roughly",
                "Appendix, Training Details",
                "dqn",
                TANH_HR.label,
                measure="time",
            ),
        ),
        note="What the bars are relative to is not stated: ReLU here (for PQN tanh is run too).",
    ),
    Experiment(
        name="fig-dqn",
        place="Figure 2",
        anchor="fig:dead_rank_dqn",
        shows="DQN on 8 games: tanh + HR has fewer dormant neurons, a higher rank, a better score",
        panels=(DQN_FIVE,),
        measures=_HEALTH,
        stated=(
            *_table_2("dqn", RELU, TANH_HR),
            *_drawn("dqn", "Figure 2", TANH, TANH_NORM, RELU_HR),
            _said("dqn", RELU, 0.60, "of neurons, around", "Observation 1", "dormant_fraction"),
            _said("dqn", TANH, 0.40, "of neurons, about", "Observation 2", "dormant_fraction"),
            _said("dqn", TANH_HR, 0.30, "of neurons", "Table 1", "dormant_fraction"),
            _said("dqn", RELU_HR, 0.73, "of neurons", "Table 1", "dormant_fraction"),
            *_drawn("dqn", "Figure 2", TANH_NORM, measure="dormant_fraction"),
            *_drawn("dqn", "Figure 2", *DQN_FIVE.arms, measure="effective_rank"),
        ),
        note=_EIGHT_GAMES,
    ),
    Experiment(
        name="fig-kde",
        place="Figure 3",
        anchor="fig:kde_tanh_final",
        shows="densities of 16 tanh neurons of DQN on Breakout, at 1 M steps and saturated at 10 M",
        panels=(_DQN.of(TANH, tasks=("atari/Breakout",), minatar=("minatar/breakout",)),),
        measures=("kde", "dormant_fraction"),
        kde_at=(0.1, 1.0),
        stated=_drawn("dqn", "Figure 3", TANH, measure="kde"),
        note="Which seed and which 16 neurons is not stated: all seeds are kept, neurons drawn.",
    ),
    Experiment(
        name="fig-hidden-bias",
        place="Figure 4",
        anchor="fig:hiddenbias",
        shows="dormant tanh neurons come to give as much to the Q-values as live ones (Seaquest)",
        panels=(_DQN.of(TANH, tasks=("atari/Seaquest",), minatar=("minatar/seaquest",)),),
        measures=("live_contribution", "dormant_contribution"),
        stated=(
            *_drawn("dqn", "Figure 4", TANH, measure="live_contribution"),
            *_drawn("dqn", "Figure 4", TANH, measure="dormant_contribution"),
        ),
    ),
    Experiment(
        name="table-dormancy",
        place="Table 1",
        anchor="tab:dying_neurons",
        shows="HR lowers dormancy for tanh and raises it for ReLU, against p^2 and 2p - p^2",
        panels=(_DQN.of(RELU, RELU_HR, TANH, TANH_HR),),
        measures=("dormant_fraction",),
        stated=(
            _said("dqn", TANH, 0.39, "of neurons", "Table 1", "dormant_fraction"),
            _said("dqn", TANH_HR, 0.30, "of neurons", "Table 1", "dormant_fraction"),
            _said("dqn", TANH_HR, -23, "% of that without HR", "Table 1", "change"),
            _said("dqn", RELU, 0.62, "of neurons", "Table 1", "dormant_fraction"),
            _said("dqn", RELU_HR, 0.73, "of neurons", "Table 1", "dormant_fraction"),
            _said("dqn", RELU_HR, 18, "% of that without HR", "Table 1", "change"),
        ),
        note="The measured changes are relative (0.39 to 0.30 is -23 %), the predicted ones, "
        "-(p - p^2) and +(p - p^2), absolute: for p = 0.39, p^2 is 0.15 and not 0.30; for p = 0.62 "
        "2p - p^2 is 0.86 and not 0.73. When in training p is taken is not stated: at the end.",
    ),
    Experiment(
        name="fig-ppo",
        place="Figure 7, left",
        anchor="fig:ppo_pqn",
        shows="PPO on 8 games: tanh + HR is best, tanh and ReLU are alike",
        panels=(PPO_THREE,),
        measures=_HEALTH,
        stated=(
            _said("ppo", TANH_HR, 10, "%, over", "Introduction", "change"),
            *_drawn("ppo", "Figure 7", *PPO_THREE.arms),
        ),
        note=_EIGHT_GAMES,
    ),
    Experiment(
        name="fig-pqn",
        place="Figure 7, right",
        anchor="fig:ppo_pqn",
        shows="PQN on 51 games: HR in all hidden layers raises the median human-normalised score",
        panels=(PQN_THREE,),
        measures=_HEALTH,
        stated=(
            _said("pqn", TANH_HR, 100, "% over tanh, more than", "Section 5.1", "change"),
            *_drawn("pqn", "Figure 7", *PQN_THREE.arms),
        ),
        note="Which 51 games is not listed: the 57 without the six of hard exploration. Both "
        "readings of the aggregate are shown. A score is of training episodes (with epsilon 0.001 "
        "in the end); the greedy games, by which the paper scores, have a column of their own.",
    ),
    Experiment(
        name="fig-simbav2",
        place="Figure 8, top",
        anchor="fig:cc",
        shows="SimbaV2 on 14 HumanoidBench tasks: hardly any dormancy, yet HR raises rank, score",
        panels=(SIMBA_TWO,),
        measures=_HEALTH,
        stated=(
            *_table_2("simbav2", SIMBA, SIMBA_HR),
            *_drawn("simbav2", "Figure 8", SIMBA, SIMBA_HR, measure="dormant_fraction"),
            *_drawn("simbav2", "Figure 8", SIMBA, SIMBA_HR, measure="effective_rank"),
        ),
        note=_IQM_READINGS,
    ),
    Experiment(
        name="fig-mrq",
        place="Figure 8, bottom",
        anchor="fig:cc",
        shows="MR.Q on 7 hard tasks from pixels: hardly any dormancy, yet HR raises rank, score",
        panels=(MRQ_TWO,),
        measures=_HEALTH,
        stated=(
            *_table_2("mrq", MRQ, MRQ_HR),
            *_drawn("mrq", "Figure 8", MRQ, MRQ_HR, measure="dormant_fraction"),
            *_drawn("mrq", "Figure 8", MRQ, MRQ_HR, measure="effective_rank"),
        ),
        note=f"{_MRQ_SEEDS} HR is in every layer of the state encoder: the paper says only "
        f"'the encoder'. Table 2 gives its scores relative to the baseline's. {_IQM_READINGS}",
    ),
    Experiment(
        name="fig-visual-humanoid",
        place="Figure 9",
        anchor="fig:humanoid",
        shows="MR.Q + HR on 3 visual humanoid tasks with 5 times the budget, beside DrQ-v2 and XQC",
        panels=(MRQ_TWO.of(MRQ, MRQ_HR, tasks=VISUAL_HUMANOID, steps=5 * _M // 2, stretch=5),),
        per_task=True,
        stated=_drawn("mrq", "Figure 9", MRQ, MRQ_HR),
        imported=("DrQ-v2", "XQC"),
        note=f"{_MRQ_SEEDS} The 5 M steps of the text are environment steps, 2.5 M actions. DrQ-v2 "
        "and XQC are published curves of the XQC paper, drawn if supplied.",
    ),
    Experiment(
        name="table-widening",
        place="Table 2",
        anchor="tab:hr_vs_widen",
        shows="HR against widening with as many parameters (DQN, SimbaV2, MR.Q) and 2HR (DQN)",
        panels=(
            _DQN.of(RELU, TANH_HR, WIDE, TWO_HR),
            _SIMBA.of(SIMBA, SIMBA_HR, SIMBA_WIDE),
            _MRQ.of(MRQ, MRQ_HR, MRQ_WIDE),
        ),
        stated=_TABLE_2,
        note="DQN's 'Baseline' is taken to be ReLU, the original network and the yardstick of the "
        "normalisation; '+ Widen' is tanh at 1024, as in Figure 11. 2HR is HR in the last two "
        f"hidden layers (ours). {_MRQ_SEEDS}",
    ),
    Experiment(
        name="fig-width-lr",
        place="Figure 11",
        anchor="fig:1024",
        shows="tanh 512 against 1024 wide, at several learning rates, and tanh + HR",
        panels=(_DQN.of(TANH, WIDE, TANH_HR, *WIDE_RATES, yardstick=RELU),),
        measures=_HEALTH,
        stated=(
            _said("dqn", WIDE, 0.49, _BASELINE_NORMALISED, "Table 2, + Widen"),
            _said("dqn", TANH_HR, 1.03, _BASELINE_NORMALISED, "Table 2, + HR"),
            _said("dqn", TANH, 0.39, "of neurons", "Table 1", "dormant_fraction"),
            _said("dqn", TANH_HR, 0.30, "of neurons", "Table 1", "dormant_fraction"),
            *_drawn("dqn", "Figure 11", TANH, *WIDE_RATES),
            *_drawn("dqn", "Figure 11", WIDE, measure="dormant_fraction"),
            *_drawn("dqn", "Figure 11", TANH, WIDE, TANH_HR, measure="effective_rank"),
        ),
        note="The learning rates of the ablation are not stated: 2.5e-5, 5e-5, 1e-4 (the default) "
        "and 2e-4 here. Nor are its games: the eight. ReLU is run for the normalisation only.",
    ),
    Experiment(
        name="fig-crelu-redo",
        place="Figure 12",
        anchor="fig:51_all",
        shows="PQN on 51 games: HR against CReLU and ReDo",
        panels=(_PQN.of(RELU, TANH, TANH_HR, CRELU, REDO),),
        measures=_HEALTH,
        stated=_drawn("pqn", "Figure 12", RELU, TANH_HR, CRELU, REDO),
        note="ReDo (tau = 0.025, stated) is on the ReLU baseline; how often it recycles is not "
        "stated: every 1,000 updates. CReLU is in every hidden layer, like HR.",
    ),
    Experiment(
        name="fig-human-normalised",
        place="Figure 13",
        anchor="fig:human_normalized",
        shows="DQN and PPO on 8 games once more, human-normalised (VideoPinball dominates)",
        panels=(
            dataclasses.replace(DQN_FIVE, normalisation="human_normalised"),
            dataclasses.replace(PPO_THREE, normalisation="human_normalised"),
        ),
        stated=(
            *_drawn("dqn", "Figure 13", *DQN_FIVE.arms),
            *_drawn("ppo", "Figure 13", *PPO_THREE.arms),
        ),
        note="Which arms are drawn is not stated: all of Figures 2 and 7. MinAtar has no human "
        "scores: there the normalisation is by the baseline again.",
    ),
    Experiment(
        name="fig-dqn-games",
        place="Figure 14",
        anchor="DQN per-environment performance",
        shows="DQN's learning curves game by game",
        panels=(DQN_FIVE,),
        per_task=True,
        stated=_drawn("dqn", "Figure 14", *DQN_FIVE.arms),
        note=_EIGHT_GAMES,
    ),
    Experiment(
        name="fig-ppo-games",
        place="Figure 15",
        anchor="fig:ppo_indiviudal1",
        shows="PPO's learning curves game by game",
        panels=(PPO_THREE,),
        per_task=True,
        stated=_drawn("ppo", "Figure 15", *PPO_THREE.arms),
        note=_EIGHT_GAMES,
    ),
    Experiment(
        name="fig-pqn-games",
        place="Figure 16",
        anchor="fig:pqn_individual_all",
        shows="PQN's learning curves game by game",
        panels=(PQN_THREE,),
        per_task=True,
        stated=_drawn("pqn", "Figure 16", *PQN_THREE.arms),
    ),
    Experiment(
        name="fig-simbav2-tasks",
        place="Figure 17",
        anchor="fig:simbav2_all",
        shows="SimbaV2's learning curves on 14 HumanoidBench tasks",
        panels=(SIMBA_TWO,),
        per_task=True,
        stated=_drawn("simbav2", "Figure 17", SIMBA, SIMBA_HR),
    ),
    Experiment(
        name="fig-dmc-visual",
        place="Figure 18",
        anchor="fig:all_dmc_visual",
        shows="MR.Q's learning curves on all 28 tasks from pixels",
        panels=(MRQ_TWO.of(MRQ, MRQ_HR, tasks=VISUAL_28),),
        per_task=True,
        stated=_drawn("mrq", "Figure 18", MRQ, MRQ_HR),
        note=_MRQ_SEEDS,
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""Every table and figure of the paper that is made of runs, by name."""

WITHOUT_RUNS = {
    "Figure 5": "the layer, drawn",
    "Figure 6": "pictures of the three domains (`hadamard play` films an agent)",
    "Figure 10": "where HR goes in each network, drawn",
    "Table 3": "DQN's hyperparameters: the defaults of algos/dqn.py",
    "Table 4": "PPO's hyperparameters: the defaults of algos/ppo.py",
    "Table 5": "PQN's hyperparameters: the defaults of algos/pqn.py",
    "Table 6": "random and target scores of HumanoidBench: report/scores.py",
}
"""The others, and what they are."""


def find(name: str) -> Experiment:
    """Return the experiment of a name, or say which there are and which is nearest."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    near = difflib.get_close_matches(name.lower(), EXPERIMENTS, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise ValueError(
        f"unknown experiment {name!r}{hint} There are: {', '.join(EXPERIMENTS)} "
        "(`hadamard reproduce --list` says what each shows)"
    )


def listing() -> str:
    """Return one line for each experiment: name, place in the paper, what it shows."""
    name = max(map(len, EXPERIMENTS))
    place = max(len(experiment.place) for experiment in _ALL)
    return "\n".join(f"{e.name:<{name}}  {e.place:<{place}}  {e.shows}" for e in _ALL)


def jobs(
    experiment: Experiment | str,
    scale: str,
    folder: str | Path,
    seeds: int | None = None,
    tasks: Sequence[str] | None = None,
    share: float = 1.0,
    until: int | None = None,
) -> list[Job]:
    """Return the runs of an experiment at a scale, task by task, seed by seed, arm by arm.

    Args:
        experiment: The experiment or its name.
        scale: One of `SCALES`.
        folder: Where runs go, under ``folder/scale``.
        seeds: How many seeds, if not as many as the scale has.
        tasks: Only these of its tasks, as ``suite/task`` or ``task``.
        share: How much of the scale's steps a run is trained for.
        until: Steps after which every run stops for now; its folder is the same whatever they are.
    """
    return [job for _, job in arms_and_jobs(experiment, scale, folder, seeds, tasks, share, until)]


def arms_and_jobs(
    experiment: Experiment | str,
    scale: str,
    folder: str | Path,
    seeds: int | None = None,
    tasks: Sequence[str] | None = None,
    share: float = 1.0,
    until: int | None = None,
) -> list[tuple[Arm, Job]]:
    """Return the runs as `jobs` does, each with its arm."""
    asked = find(experiment) if isinstance(experiment, str) else experiment
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    return [
        (arm, _job(panel, arm, task, seed, Path(folder) / scale))
        for panel in asked.at(scale, share, until)
        for task in chosen(panel.tasks, tasks)
        for seed in range(panel.seeds if seeds is None else seeds)
        for arm in panel.trained
    ]


def chosen(known: Iterable[str], asked: Sequence[str] | None) -> list[str]:
    """Return those of the tasks that are asked for; all, if none is named."""
    if asked is None:
        return list(known)
    return [task for task in known if any(same_task(task, name) for name in asked)]


def same_task(task: str, name: str) -> bool:
    """Tell whether a name, with or without its suite, means a task.

    Examples:
        >>> same_task("minatar/space_invaders", "Space-Invaders")
        True
    """
    plain, asked = (word.lower().replace("_", "-") for word in (task, name))
    return asked in (plain, plain.partition("/")[2])


def _job(panel: Panel, arm: Arm, task: str, seed: int, folder: Path) -> Job:
    from hadamard.core.config import overridden
    from hadamard.experiments.grid import Job, variant
    from hadamard.train import default_spec

    changes = {**panel.overrides, **variant(arm.variant), **arm.overrides}
    spec = _shortened(overridden(default_spec(panel.algorithm, task), changes), panel.share)
    place = {
        "train.steps": panel.steps,
        "train.until": panel.until,
        "seed": seed,
        "run_dir": str(folder / run_name(panel, arm, task, seed)),
    }
    return Job(panel.algorithm, overridden(spec, place))


def run_name(panel: Panel, arm: Arm, task: str, seed: int) -> str:
    """Name a run after what it is, so that experiments that share it find it.

    Examples:
        >>> run_name(_DQN, WIDE_RATES[0], "atari/Qbert", 3)
        'dqn_atari-Qbert_widened_learning-rate-2.5e-05_10M_seed3'
    """
    parts = [panel.algorithm, task.replace("/", "-"), arm.variant]
    for name, value in arm.overrides.items():
        parts.append(f"{name.rpartition('.')[2].replace('_', '-')}-{value}")
    return "_".join([*parts, _short(panel.steps), f"seed{seed}"])


def _short(steps: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= size and steps * 10 % size == 0:
            return f"{steps / size:g}{letter}"
    return str(steps)
