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
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from hadamard.core.config import RunSpec
    from hadamard.experiments.grid import Job

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
class Arm:
    """One of the variants that are compared."""

    label: str
    """As the paper calls it."""
    variant: str
    """Its name among `grid.VARIANTS`."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What it changes beyond its variant."""
    style: int = 0
    """Its colour and marker in every figure, see `draw.figures.variant_style`."""


@dataclass(frozen=True)
class Stated:
    """A number the paper states. It is also a claim: that the number is this large."""

    algorithm: str
    """The panel it belongs to."""
    arm: Arm
    value: float
    unit: str
    """In the paper's words, after the value."""
    where: str
    measure: str = "score"
    """Of `report.measures`, or "change" (of the score), "dormancy_change" or "time"."""
    against: Arm | None = None
    """What a change is measured against."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that runs can support or contradict."""

    text: str
    """What is claimed, in our words."""
    where: str
    algorithm: str
    kind: Literal["higher", "lower", "equal"]
    """Direction (of a difference) or equality."""
    arm: Arm
    against: Arm | None = None
    """What the arm is compared with; None: with nothing (an equality then is with 0)."""
    measure: str = "score"
    by: float = 0.0
    """Direction: by at least how much, in percent. Equality: the margin, in percent of what the
    arm is compared with (of measures that are shares and compared with nothing: in points).
    Chosen before any run was made."""
    since: float | None = None
    """Compare the arm at the end with itself after this share of its training instead."""


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
    """Of `estimates.AGGREGATES`, for scores: the first is drawn, all are in the table."""
    arms: tuple[Arm, ...] = ()
    yardstick: Arm | None = None
    """An arm that is not compared, but whose runs the normalisation needs."""
    stretch: int = 1
    """How many times the usual budget ``steps`` is."""
    minatar: tuple[str, ...] = ()
    """Tasks at the MinAtar scales, if not those of the algorithm's `Setting`."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What the scale changes in every run."""
    health_aggregations: tuple[str, ...] = ("mean",)
    """The same for dormancy and rank."""
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

    def of(self, *arms: Arm, **changes: Any) -> Panel:
        """Return the panel with these arms."""
        return dataclasses.replace(self, arms=arms, **changes)


Shading = Literal["interval", "deviation", "error"]
"""95 % interval, standard deviation over seeds, or standard error of their mean."""


@dataclass(frozen=True)
class Plot:
    """One drawing of a figure: a measure over training, aggregated over a panel's tasks."""

    algorithm: str
    measure: str = "score"
    arms: tuple[Arm, ...] = ()
    """Which arms it shows; none named: all of the panel's."""
    title: str = ""
    """By default the measure's name."""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper."""

    name: str
    place: str
    """Figure or table, as they are numbered in the order of the source."""
    anchor: str
    """Words of the paper's source by which it is found: a label or a caption's beginning."""
    shows: str
    composition: str
    """How it is drawn: a module of `report.compositions`."""
    panels: tuple[Panel, ...]
    plots: tuple[Plot, ...] = ()
    """Of the composition "curves": its drawings, row by row."""
    columns: int = 3
    """Drawings in a row."""
    kde_at: tuple[float, ...] = ()
    """When densities are shown, as shares of the budget."""
    shading: Shading = "interval"
    """What is shaded around curves."""
    stated: tuple[Stated, ...] = ()
    claims: tuple[Claim, ...] = ()
    imported: tuple[str, ...] = ()
    """Methods whose curves the paper took from elsewhere: drawn if supplied with --curves."""
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
TANH_HR = Arm("tanh + HR", "tanh+hr", style=1)
TANH = Arm("tanh", "tanh", style=2)
TANH_NORM = Arm("tanh + LayerNorm", "tanh+layernorm", style=3)
RELU_HR = Arm("ReLU + HR", "relu+hr", style=4)
TWO_HR = Arm("tanh + 2HR", "2hr", style=5)
WIDE = Arm("tanh, widened", "widened", style=6)
CRELU = Arm("CReLU", "crelu", style=3)
REDO = Arm("ReDo", "redo", style=4)
SIMBA = Arm("SimbaV2", "baseline")
SIMBA_HR = Arm("SimbaV2 + HR", "hr", style=1)
SIMBA_WIDE = Arm("SimbaV2, widened", "baseline", {"net.layer": "widened"}, style=6)
MRQ = Arm("MR.Q", "baseline")
MRQ_HR = Arm("MR.Q + HR", "hr", style=1)
MRQ_WIDE = Arm("MR.Q, widened", "baseline", {"net.layer": "widened"}, style=6)
WIDE_RATES = tuple(
    Arm(
        f"tanh, widened, learning rate {rate:g}",
        "widened",
        {"algo.learning_rate": rate},
        style=style,
    )
    for style, rate in ((3, 2.5e-5), (4, 5e-5), (5, 2e-4))
)

_M = 1_000_000
_DQN = Panel("dqn", ATARI_8, 5, 10 * _M, "baseline_min_max", ("mean",))
_PPO = Panel("ppo", ATARI_8, 5, 10 * _M, "baseline_min_max", ("mean",))
_PQN = Panel("pqn", ATARI_51, 5, 10 * _M, "human_normalised", ("median", "median_of_runs"))
_IQM = ("iqm", "iqm_of_task_means")
_HEALTH_IQM = ("mean", "iqm_of_task_means")
_SIMBA = Panel("simbav2", HUMANOID_14, 3, _M // 2, "success_normalised", _IQM)
_SIMBA = dataclasses.replace(_SIMBA, health_aggregations=_HEALTH_IQM)
_MRQ = Panel("mrq", VISUAL_HARD, 5, _M // 2, "per_thousand", _IQM)
_MRQ = dataclasses.replace(_MRQ, health_aggregations=_HEALTH_IQM)

DQN_FIVE = _DQN.of(RELU, TANH, TANH_NORM, TANH_HR, RELU_HR)
PPO_THREE = _PPO.of(RELU, TANH, TANH_HR)
PQN_THREE = _PQN.of(RELU, TANH, TANH_HR)
SIMBA_TWO = _SIMBA.of(SIMBA, SIMBA_HR)
MRQ_TWO = _MRQ.of(MRQ, MRQ_HR)

_HEALTH = ("score", "dormant_fraction", "effective_rank")

_NORMALISED = "baseline-normalised"
_CHANGE = "% of the baseline"
_IQM_UNIT = "IQM, success-normalised"
_RELATIVE = "relative to the baseline"
_TABLE_2 = (
    Stated("dqn", RELU, 0.91, _NORMALISED, "Table 2, Baseline"),
    Stated("dqn", TANH_HR, 1.03, _NORMALISED, "Table 2, + HR"),
    Stated("dqn", TANH_HR, 13, _CHANGE, "Table 2, + HR", "change", RELU),
    Stated("dqn", WIDE, 0.49, _NORMALISED, "Table 2, + Widen"),
    Stated("dqn", WIDE, -46, _CHANGE, "Table 2, + Widen", "change", RELU),
    Stated("dqn", TWO_HR, 1.01, _NORMALISED, "Table 2, + 2HR"),
    Stated("dqn", TWO_HR, 12, _CHANGE, "Table 2, + 2HR", "change", RELU),
    Stated("simbav2", SIMBA, 0.71, _IQM_UNIT, "Table 2, Baseline"),
    Stated("simbav2", SIMBA_HR, 0.84, _IQM_UNIT, "Table 2, + HR"),
    Stated("simbav2", SIMBA_HR, 18, _CHANGE, "Table 2, + HR", "change", SIMBA),
    Stated("simbav2", SIMBA_WIDE, 0.76, _IQM_UNIT, "Table 2, + Widen"),
    Stated("simbav2", SIMBA_WIDE, 7, _CHANGE, "Table 2, + Widen", "change", SIMBA),
    # MR.Q's baseline is 1.00 by definition of the unit, so it is no claim.
    Stated("mrq", MRQ_HR, 1.17, _RELATIVE, "Table 2, + HR", "relative", MRQ),
    Stated("mrq", MRQ_HR, 17, _CHANGE, "Table 2, + HR", "change", MRQ),
    Stated("mrq", MRQ_WIDE, 0.97, _RELATIVE, "Table 2, + Widen", "relative", MRQ),
    Stated("mrq", MRQ_WIDE, -3, _CHANGE, "Table 2, + Widen", "change", MRQ),
)


def _table_2(algorithm: str, *arms: Arm) -> tuple[Stated, ...]:
    return tuple(s for s in _TABLE_2 if s.algorithm == algorithm and s.arm in arms)


_DORMANT, _RANK = "dormant_fraction", "effective_rank"
_DORMANT_RELU_TANH = (
    Stated("dqn", RELU, 0.62, "of neurons", "Table 1", _DORMANT),
    Stated("dqn", RELU_HR, 0.73, "of neurons", "Table 1", _DORMANT),
    Stated("dqn", TANH, 0.39, "of neurons", "Table 1", _DORMANT),
    Stated("dqn", TANH_HR, 0.30, "of neurons", "Table 1", _DORMANT),
)

_GAMES = (
    "Games: the paper names three of its eight (Breakout, Seaquest, VideoPinball); the other five "
    "are ours."
)
_TANH = (
    "tanh: in every hidden layer of the network; HR and LayerNorm in the last one only, LayerNorm "
    "between its linear map and its activation."
)
_BASELINE = (
    "Scores: normalised by the lowest and highest score of all ReLU runs over training (means of "
    "the last 100 episodes), so ReLU itself ends below 1."
)
_DQN_HEALTH = (
    "Dormancy and rank: of the last hidden layer, on the last 2,048 observations that the agent "
    "saw (the paper does not say how many, or which). DQN plays one game, so they are consecutive "
    "and more alike than a batch from replay."
)
_ATARI_NOTE = f"{_GAMES} {_TANH} {_BASELINE}"
_DQN_NOTE = f"{_ATARI_NOTE} {_DQN_HEALTH}"
_PQN_NOTE = (
    "Games: the 51 are not listed; the 57 without the six of hard exploration. HR, LayerNorm, "
    "tanh and CReLU: in every hidden layer. Scores: of the greedy games that are played beside "
    "training, those that ended in its last 5 %, or further back until there are 16. The median "
    "is over games after averaging over seeds; the paper's text also allows the median of all "
    "games and seeds, which the table has too."
)
_IQM_NOTE = (
    "IQM: the appendix cuts off 25 % of all (task, seed) scores, which is drawn; the experiments "
    "section averages over seeds first, which the table has too. Dormancy and rank are means of "
    "tasks; their IQM is in the table."
)
_SIMBA_NOTE = (
    "HR: in the first hidden layer of every block, actor and critics. Dormancy and rank: of the "
    "last block of the second critic, on the last 2,048 observations."
)
_MRQ_NOTE = (
    "Seeds: the paper has 3 to 5 a task, 5 here. HR: in all four convolutions and the linear layer "
    "of the state encoder, since the paper only says 'the encoder'; --net.where linear puts it in "
    "the linear layer alone. Dormancy and rank: of the encoder's output zs, on the last 2,048 "
    "observations."
)

_IMPROVES = (
    Claim("HR improves DQN by over 10 %", "Introduction", "dqn", "higher", TANH_HR, RELU, by=10),
    Claim("HR improves PPO by over 10 %", "Introduction", "ppo", "higher", TANH_HR, RELU, by=10),
    Claim("HR improves PQN", "Introduction", "pqn", "higher", TANH_HR, RELU),
    Claim("HR improves SimbaV2", "Introduction", "simbav2", "higher", SIMBA_HR, SIMBA),
    Claim("HR improves MR.Q", "Introduction", "mrq", "higher", MRQ_HR, MRQ),
)
_PPO_CLAIMS = (
    Claim("tanh + HR is best: above ReLU", "Section 5.1", "ppo", "higher", TANH_HR, RELU),
    Claim("tanh + HR is best: above tanh", "Section 5.1", "ppo", "higher", TANH_HR, TANH),
    Claim("tanh and ReLU are comparable", "Section 5.1", "ppo", "equal", TANH, RELU, by=10),
    _IMPROVES[1],
)
_PQN_CLAIMS = (
    Claim("HR adds more than 100 % to tanh", "Section 5.1", "pqn", "higher", TANH_HR, TANH, by=100),
    Claim("tanh + HR is above ReLU", "Figure 7", "pqn", "higher", TANH_HR, RELU),
    Claim("ReLU is above tanh", "Section 5.1", "pqn", "higher", RELU, TANH),
)


def _control_claims(algorithm: str, plain: Arm, hr: Arm) -> tuple[Claim, ...]:
    where = "Section 5.2"
    few = "hardly any neuron is dormant"
    return (
        Claim("HR raises the score", where, algorithm, "higher", hr, plain),
        Claim("HR raises the effective rank", where, algorithm, "higher", hr, plain, _RANK),
        Claim(f"without HR {few}", where, algorithm, "equal", plain, None, _DORMANT, by=5),
        Claim(f"with HR {few}", where, algorithm, "equal", hr, None, _DORMANT, by=5),
    )


_SIMBA_CLAIMS = _control_claims("simbav2", SIMBA, SIMBA_HR)
_MRQ_CLAIMS = _control_claims("mrq", MRQ, MRQ_HR)
_PPO_PLOT = Plot("ppo", title="PPO")
_PQN_PLOT = Plot("pqn", title="PQN")
_SIMBA_PLOTS = tuple(Plot("simbav2", measure) for measure in _HEALTH)
_MRQ_PLOTS = tuple(Plot("mrq", measure) for measure in _HEALTH)

_ALL = (
    Experiment(
        name="fig-improvements",
        place="Figure 1",
        anchor="fig:first_plot",
        shows="HR improves on the baselines of five algorithms in three domains",
        composition="improvements",
        panels=(
            _DQN.of(RELU, TANH_HR),
            _PPO.of(RELU, TANH_HR),
            _PQN.of(RELU, TANH_HR),
            SIMBA_TWO,
            MRQ_TWO,
        ),
        stated=(
            Stated("dqn", TANH_HR, 13, _CHANGE, "Table 2, + HR", "change", RELU),
            Stated("simbav2", SIMBA_HR, 18, _CHANGE, "Table 2, + HR", "change", SIMBA),
            Stated("mrq", MRQ_HR, 17, _CHANGE, "Table 2, + HR", "change", MRQ),
            Stated(
                "dqn",
                TANH_HR,
                1.2,
                "times the baseline's, roughly",
                "Appendix, Training Details",
                "time",
                RELU,
            ),
        ),
        claims=_IMPROVES,
        note="What the bars are relative to is not stated: ReLU for DQN, PPO and PQN. Of PPO and "
        "PQN no number is stated, the bars can only be read off.",
    ),
    Experiment(
        name="fig-dqn",
        place="Figure 2",
        anchor="fig:dead_rank_dqn",
        shows="DQN on 8 games: tanh + HR has fewer dormant neurons, a higher rank, a better score",
        composition="curves",
        panels=(DQN_FIVE,),
        plots=tuple(Plot("dqn", measure) for measure in _HEALTH),
        stated=(
            *_table_2("dqn", RELU, TANH_HR),
            *_DORMANT_RELU_TANH,
            Stated("dqn", RELU, 0.60, "of neurons, around", "Observation 1", _DORMANT),
            Stated("dqn", TANH, 0.40, "of neurons, about", "Observation 2", _DORMANT),
        ),
        claims=(
            Claim(
                "tanh has fewer dormant neurons than ReLU",
                "Observation 2",
                "dqn",
                "lower",
                TANH,
                RELU,
                _DORMANT,
            ),
            Claim(
                "tanh has a higher rank than ReLU",
                "Observation 2",
                "dqn",
                "higher",
                TANH,
                RELU,
                _RANK,
            ),
            Claim("tanh scores lower than ReLU", "Observation 2", "dqn", "lower", TANH, RELU),
            Claim(
                "HR makes fewer tanh neurons dormant",
                "Figure 2",
                "dqn",
                "lower",
                TANH_HR,
                TANH,
                _DORMANT,
            ),
            Claim("HR raises the rank of tanh", "Figure 2", "dqn", "higher", TANH_HR, TANH, _RANK),
            Claim(
                "HR makes more ReLU neurons dormant",
                "Section 4.2",
                "dqn",
                "higher",
                RELU_HR,
                RELU,
                _DORMANT,
            ),
            Claim(
                "LayerNorm makes fewer tanh neurons dormant than HR does",
                "Section 4.2",
                "dqn",
                "lower",
                TANH_NORM,
                TANH_HR,
                _DORMANT,
            ),
            Claim(
                "tanh + HR scores higher than ReLU", "Section 5.1", "dqn", "higher", TANH_HR, RELU
            ),
            Claim(
                "tanh + HR scores higher than tanh", "Section 5.1", "dqn", "higher", TANH_HR, TANH
            ),
        ),
        note=_DQN_NOTE,
    ),
    Experiment(
        name="fig-kde",
        place="Figure 3",
        anchor="fig:kde_tanh_final",
        shows="densities of 16 tanh neurons of DQN on Breakout, at a tenth of training and its end",
        composition="densities",
        panels=(_DQN.of(TANH, tasks=("atari/Breakout",), minatar=("minatar/breakout",)),),
        kde_at=(0.1, 1.0),
        claims=(
            Claim(
                "tanh neurons saturate over training: more are dormant at the end than at a tenth",
                "Figure 3",
                "dqn",
                "higher",
                TANH,
                None,
                _DORMANT,
                since=0.1,
            ),
        ),
        note="Which seed and which 16 neurons is not stated: the first seed's, evenly spread over "
        f"the layer. {_TANH} {_DQN_HEALTH}",
    ),
    Experiment(
        name="fig-hidden-bias",
        place="Figure 4",
        anchor="fig:hiddenbias",
        shows="dormant tanh neurons come to give as much to the Q-values as live ones (Seaquest)",
        composition="contributions",
        panels=(_DQN.of(TANH, tasks=("atari/Seaquest",), minatar=("minatar/seaquest",)),),
        claims=(
            Claim(
                "what dormant neurons give to the Q-values grows over training",
                "Figure 4",
                "dqn",
                "higher",
                TANH,
                None,
                "dormant_contribution",
                since=0.1,
            ),
            Claim(
                "in the end it is comparable to what live neurons give (half to one and a half)",
                "Section 4.1",
                "dqn",
                "equal",
                TANH,
                None,
                "dormant_excess",
                by=50,
            ),
        ),
        note="The contribution of a group of neurons: the mean over observations and actions of "
        f"the absolute sum of activation times outgoing weight. {_TANH} {_DQN_HEALTH}",
    ),
    Experiment(
        name="table-dormancy",
        place="Table 1",
        anchor="tab:dying_neurons",
        shows="HR lowers dormancy for tanh and raises it for ReLU, against p^2 and 2p - p^2",
        composition="dormancy",
        panels=(_DQN.of(RELU, RELU_HR, TANH, TANH_HR),),
        stated=(
            *_DORMANT_RELU_TANH,
            Stated("dqn", TANH_HR, -23, "% of that without HR", "Table 1", "dormancy_change", TANH),
            Stated("dqn", RELU_HR, 18, "% of that without HR", "Table 1", "dormancy_change", RELU),
        ),
        claims=(
            Claim(
                "HR makes fewer tanh neurons dormant",
                "Table 1",
                "dqn",
                "lower",
                TANH_HR,
                TANH,
                _DORMANT,
            ),
            Claim(
                "HR makes more ReLU neurons dormant",
                "Table 1",
                "dqn",
                "higher",
                RELU_HR,
                RELU,
                _DORMANT,
            ),
        ),
        note="The measured changes are relative (0.39 to 0.30 is -23 %), the predicted ones, "
        "-(p - p^2) and +(p - p^2), absolute: for p = 0.39, p^2 is 0.15 and not 0.30; for p = 0.62 "
        "2p - p^2 is 0.86 and not 0.73. When in training p is taken is not stated: at the end. "
        f"{_GAMES} {_TANH} {_DQN_HEALTH}",
    ),
    Experiment(
        name="fig-ppo",
        place="Figure 7, left",
        anchor="fig:ppo_pqn",
        shows="PPO on 8 games: tanh + HR is best, tanh and ReLU are alike",
        composition="curves",
        panels=(PPO_THREE,),
        plots=(_PPO_PLOT,),
        claims=_PPO_CLAIMS,
        note=_ATARI_NOTE,
    ),
    Experiment(
        name="fig-pqn",
        place="Figure 7, right",
        anchor="fig:ppo_pqn",
        shows="PQN on 51 games: HR in all hidden layers raises the median human-normalised score",
        composition="curves",
        panels=(PQN_THREE,),
        plots=(_PQN_PLOT,),
        claims=_PQN_CLAIMS,
        note=_PQN_NOTE,
    ),
    Experiment(
        name="fig-ppo-pqn",
        place="Figure 7",
        anchor="fig:ppo_pqn",
        shows="PPO on 8 games and PQN on 51, side by side",
        composition="curves",
        panels=(PPO_THREE, PQN_THREE),
        plots=(_PPO_PLOT, _PQN_PLOT),
        columns=2,
        claims=(*_PPO_CLAIMS, *_PQN_CLAIMS),
        note=f"PPO: {_ATARI_NOTE} PQN: {_PQN_NOTE}",
    ),
    Experiment(
        name="fig-simbav2",
        place="Figure 8, top",
        anchor="fig:cc",
        shows="SimbaV2 on 14 HumanoidBench tasks: hardly any dormancy, yet HR raises rank, score",
        composition="curves",
        panels=(SIMBA_TWO,),
        plots=_SIMBA_PLOTS,
        stated=_table_2("simbav2", SIMBA, SIMBA_HR),
        claims=_SIMBA_CLAIMS,
        note=f"{_IQM_NOTE} {_SIMBA_NOTE}",
    ),
    Experiment(
        name="fig-mrq",
        place="Figure 8, bottom",
        anchor="fig:cc",
        shows="MR.Q on 7 hard tasks from pixels: hardly any dormancy, yet HR raises rank, score",
        composition="curves",
        panels=(MRQ_TWO,),
        plots=_MRQ_PLOTS,
        stated=_table_2("mrq", MRQ_HR),
        claims=_MRQ_CLAIMS,
        note=f"{_IQM_NOTE} {_MRQ_NOTE}",
    ),
    Experiment(
        name="fig-control",
        place="Figure 8",
        anchor="fig:cc",
        shows="SimbaV2 on 14 HumanoidBench tasks and MR.Q on 7 from pixels, one above the other",
        composition="curves",
        panels=(SIMBA_TWO, MRQ_TWO),
        plots=(*_SIMBA_PLOTS, *_MRQ_PLOTS),
        stated=(*_table_2("simbav2", SIMBA, SIMBA_HR), *_table_2("mrq", MRQ_HR)),
        claims=(*_SIMBA_CLAIMS, *_MRQ_CLAIMS),
        note=f"{_IQM_NOTE} SimbaV2: {_SIMBA_NOTE} MR.Q: {_MRQ_NOTE}",
    ),
    Experiment(
        name="fig-visual-humanoid",
        place="Figure 9",
        anchor="fig:humanoid",
        shows="MR.Q + HR on 3 visual humanoid tasks with 5 times the budget, beside DrQ-v2 and XQC",
        composition="tasks",
        panels=(MRQ_TWO.of(MRQ, MRQ_HR, tasks=VISUAL_HUMANOID, steps=5 * _M // 2, stretch=5),),
        columns=3,
        shading="error",
        claims=(Claim("MR.Q + HR outperforms MR.Q", "Section 5.2", "mrq", "higher", MRQ_HR, MRQ),),
        imported=("DrQ-v2", "XQC"),
        note="The 5 M steps of the text are environment steps, 2.5 M actions. That MR.Q + HR is on "
        "a par with XQC, and that DrQ-v2 does not learn, can be seen where their published curves "
        f"are supplied; no verdict is computed for curves that are not ours. {_MRQ_NOTE}",
    ),
    Experiment(
        name="table-widening",
        place="Table 2",
        anchor="tab:hr_vs_widen",
        shows="HR against widening with as many parameters (DQN, SimbaV2, MR.Q) and 2HR (DQN)",
        composition="widening",
        panels=(
            _DQN.of(RELU, TANH_HR, WIDE, TWO_HR),
            _SIMBA.of(SIMBA, SIMBA_HR, SIMBA_WIDE),
            _MRQ.of(MRQ, MRQ_HR, MRQ_WIDE),
        ),
        stated=_TABLE_2,
        claims=(
            *(
                Claim(f"HR improves {name}", "Table 2", algorithm, "higher", hr, plain)
                for name, algorithm, hr, plain in (
                    ("DQN", "dqn", TANH_HR, RELU),
                    ("SimbaV2", "simbav2", SIMBA_HR, SIMBA),
                    ("MR.Q", "mrq", MRQ_HR, MRQ),
                )
            ),
            *(
                Claim(
                    f"HR is above widening in {name}", "Section 5.3", algorithm, "higher", hr, wide
                )
                for name, algorithm, hr, wide in (
                    ("DQN", "dqn", TANH_HR, WIDE),
                    ("SimbaV2", "simbav2", SIMBA_HR, SIMBA_WIDE),
                    ("MR.Q", "mrq", MRQ_HR, MRQ_WIDE),
                )
            ),
            Claim("widening degrades DQN", "Section 5.3", "dqn", "lower", WIDE, RELU),
            Claim(
                "2HR performs comparably to HR",
                "Section 5.3",
                "dqn",
                "equal",
                TWO_HR,
                TANH_HR,
                by=10,
            ),
        ),
        note="DQN's 'Baseline' is taken to be ReLU, the original network and the yardstick of the "
        "normalisation; '+ Widen' is tanh at 1024, as in Figure 11. 2HR is HR in the last two "
        "hidden layers (ours). DQN and SimbaV2 are in absolute units, MR.Q relative to its "
        f"baseline. {_ATARI_NOTE} SimbaV2: {_SIMBA_NOTE} MR.Q: {_MRQ_NOTE}",
    ),
    Experiment(
        name="fig-width-lr",
        place="Figure 11",
        anchor="fig:1024",
        shows="tanh 512 against 1024 wide, at several learning rates, and tanh + HR",
        composition="curves",
        panels=(_DQN.of(TANH, WIDE, TANH_HR, *WIDE_RATES, yardstick=RELU),),
        plots=(
            Plot("dqn", "score", (TANH, WIDE, TANH_HR), "(a) Performance"),
            Plot("dqn", _DORMANT, (TANH, WIDE, TANH_HR), "(b) Dormant neurons"),
            Plot("dqn", _RANK, (TANH, WIDE, TANH_HR), "(c) Effective rank"),
            Plot("dqn", "score", (WIDE, *WIDE_RATES, TANH_HR), "(d) Learning rates, 1024 wide"),
        ),
        columns=2,
        stated=(
            *_table_2("dqn", WIDE)[:1],
            *_table_2("dqn", TANH_HR)[:1],
            *_DORMANT_RELU_TANH[2:],
        ),
        claims=(
            Claim("widening raises the rank", "Figure 11", "dqn", "higher", WIDE, TANH, _RANK),
            *(
                Claim(f"HR is above {arm.label}", "Figure 11", "dqn", "higher", TANH_HR, arm)
                for arm in (WIDE, *WIDE_RATES)
            ),
        ),
        note="The learning rates of the ablation are not stated: 2.5e-5, 5e-5, 1e-4 (the default) "
        "and 2e-4 here, with tanh + HR at its default drawn beside them. ReLU is run for the "
        f"normalisation only. {_DQN_NOTE}",
    ),
    Experiment(
        name="fig-crelu-redo",
        place="Figure 12",
        anchor="fig:51_all",
        shows="PQN on 51 games: HR against CReLU and ReDo",
        composition="curves",
        panels=(_PQN.of(RELU, TANH, TANH_HR, CRELU, REDO),),
        plots=(Plot("pqn", title="PQN"),),
        claims=tuple(
            Claim(f"HR is above {arm.label}", "Figure 12", "pqn", "higher", TANH_HR, arm)
            for arm in (RELU, CRELU, REDO)
        ),
        note="ReDo (tau = 0.025, stated) is on the ReLU baseline; how often it recycles is not "
        f"stated: every 1,000 updates. {_PQN_NOTE}",
    ),
    Experiment(
        name="fig-human-normalised",
        place="Figure 13",
        anchor="fig:human_normalized",
        shows="DQN and PPO on 8 games once more, human-normalised (VideoPinball dominates)",
        composition="curves",
        panels=(
            dataclasses.replace(DQN_FIVE, normalisation="human_normalised"),
            dataclasses.replace(PPO_THREE, normalisation="human_normalised"),
        ),
        plots=(Plot("dqn", title="DQN"), Plot("ppo", title="PPO")),
        columns=2,
        shading="deviation",
        note="Which arms are drawn is not stated: all of Figures 2 and 7. The shading is the "
        "standard deviation over seeds of the mean over games. MinAtar has no human scores: there "
        f"the normalisation is by the baseline again. {_GAMES} {_TANH}",
    ),
    Experiment(
        name="fig-dqn-games",
        place="Figure 14",
        anchor="DQN per-environment performance",
        shows="DQN's learning curves game by game",
        composition="tasks",
        panels=(DQN_FIVE,),
        columns=3,
        shading="deviation",
        note=f"{_GAMES} {_TANH}",
    ),
    Experiment(
        name="fig-ppo-games",
        place="Figure 15",
        anchor="fig:ppo_indiviudal1",
        shows="PPO's learning curves game by game",
        composition="tasks",
        panels=(PPO_THREE,),
        columns=3,
        shading="deviation",
        note=f"{_GAMES} {_TANH}",
    ),
    Experiment(
        name="fig-pqn-games",
        place="Figure 16",
        anchor="fig:pqn_individual_all",
        shows="PQN's learning curves game by game",
        composition="tasks",
        panels=(PQN_THREE,),
        columns=6,
        shading="deviation",
        note=_PQN_NOTE,
    ),
    Experiment(
        name="fig-simbav2-tasks",
        place="Figure 17",
        anchor="fig:simbav2_all",
        shows="SimbaV2's learning curves on 14 HumanoidBench tasks",
        composition="tasks",
        panels=(SIMBA_TWO,),
        columns=5,
        shading="error",
        note=_SIMBA_NOTE,
    ),
    Experiment(
        name="fig-dmc-visual",
        place="Figure 18",
        anchor="fig:all_dmc_visual",
        shows="MR.Q's learning curves on all 28 tasks from pixels",
        composition="tasks",
        panels=(MRQ_TWO.of(MRQ, MRQ_HR, tasks=VISUAL_28),),
        columns=7,
        shading="error",
        note=_MRQ_NOTE,
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""Every table and figure of the paper that is made of runs, by name."""

WITHOUT_RUNS = {
    "Figure 5": "the layer, drawn: docs/setting.md#the-layer",
    "Figure 6": "pictures of the three domains: docs/setting.md#the-three-domains",
    "Figure 10": "where HR goes in each network, drawn: docs/setting.md#where-hr-goes",
    "Table 3": "DQN's hyperparameters: docs/setting.md#dqns-settings",
    "Table 4": "PPO's hyperparameters: docs/setting.md#ppos-settings",
    "Table 5": "PQN's hyperparameters: docs/setting.md#pqns-settings",
    "Table 6": "HumanoidBench's random and target scores: docs/setting.md#humanoidbenchs-scores",
}
"""The others: what each is, and where the docs show it."""


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
