"""Scores of different tasks on one scale, so that they may be averaged.

Every normalization of the paper is linear: one score of a task becomes 0, another becomes 1, and
nothing is clipped. So a normalization is the two scores of each task that become 0 and 1; this file
holds them. Because it is linear, seeds may be averaged before or after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hadamard.report.data.series import FloatArray
from hadamard.text import unknown


class Scale(NamedTuple):
    """The two raw scores that become 0 and 1."""

    zero: float
    one: float

    def apply(self, scores: npt.ArrayLike) -> FloatArray:
        """Return the scores on this scale.

        Examples:
            >>> Scale(-10, 30).apply([-10, 0, 50]).tolist()
            [0.0, 0.25, 1.5]
        """
        raw = np.asarray(scores, dtype=np.float64)
        return np.asarray((raw - self.zero) / (self.one - self.zero))


# Game, a random policy's score, a human's score: the usual table of 57 games. The paper cites
# Kooi et al. 2025 (Hadamax) for its values and does not print them.
_ATARI = """
Alien 227.8 7127.7
Amidar 5.8 1719.5
Assault 222.4 742.0
Asterix 210.0 8503.3
Asteroids 719.1 47388.7
Atlantis 12850.0 29028.1
BankHeist 14.2 753.1
BattleZone 2360.0 37187.5
BeamRider 363.9 16926.5
Berzerk 123.7 2630.4
Bowling 23.1 160.7
Boxing 0.1 12.1
Breakout 1.7 30.5
Centipede 2090.9 12017.0
ChopperCommand 811.0 7387.8
CrazyClimber 10780.5 35829.4
Defender 2874.5 18688.9
DemonAttack 152.1 1971.0
DoubleDunk -18.6 -16.4
Enduro 0.0 860.5
FishingDerby -91.7 -38.7
Freeway 0.0 29.6
Frostbite 65.2 4334.7
Gopher 257.6 2412.5
Gravitar 173.0 3351.4
Hero 1027.0 30826.4
IceHockey -11.2 0.9
Jamesbond 29.0 302.8
Kangaroo 52.0 3035.0
Krull 1598.0 2665.5
KungFuMaster 258.5 22736.3
MontezumaRevenge 0.0 4753.3
MsPacman 307.3 6951.6
NameThisGame 2292.3 8049.0
Phoenix 761.4 7242.6
Pitfall -229.4 6463.7
Pong -20.7 14.6
PrivateEye 24.9 69571.3
Qbert 163.9 13455.0
Riverraid 1338.5 17118.0
RoadRunner 11.5 7845.0
Robotank 2.2 11.9
Seaquest 68.4 42054.7
Skiing -17098.1 -4336.9
Solaris 1236.3 12326.7
SpaceInvaders 148.0 1668.7
StarGunner 664.0 10250.0
Surround -10.0 6.5
Tennis -23.8 -8.3
TimePilot 3568.0 5229.2
Tutankham 11.4 167.6
UpNDown 533.4 11693.2
Venture 0.0 1187.5
VideoPinball 16256.9 17667.9
WizardOfWor 563.5 4756.5
YarsRevenge 3092.9 54576.9
Zaxxon 32.5 9173.3
"""
ATARI = {
    game: Scale(float(random), float(human))
    for game, random, human in (line.split() for line in _ATARI.strip().splitlines())
}
"""A random policy's score and a human's score in the 57 games."""

# The paper's table of random scores and success targets. Some of its random scores differ from
# those of a random policy on the public package (crawl 213, reach 85, sit-simple 7.7, for which the
# table repeats 9.39), but a normalized score only compares with the paper's if the paper's numbers
# are used.
HUMANOID = {
    "h1-balance-simple": Scale(9.39, 800),
    "h1-balance-hard": Scale(9.04, 800),
    "h1-crawl": Scale(272.66, 700),
    "h1-hurdle": Scale(2.21, 700),
    "h1-maze": Scale(106.44, 1200),
    "h1-pole": Scale(20.09, 700),
    "h1-reach": Scale(260.30, 12000),
    "h1-run": Scale(2.02, 700),
    "h1-sit-simple": Scale(9.39, 750),
    "h1-sit-hard": Scale(2.45, 750),
    "h1-slide": Scale(3.19, 700),
    "h1-stair": Scale(3.11, 700),
    "h1-stand": Scale(10.55, 800),
    "h1-walk": Scale(2.38, 700),
}
"""A random policy's score and the success target of the 14 HumanoidBench tasks."""

_DMC_SUITES = ("dmc", "dmc-state")

OWN_BASELINE = "baseline_min_max"
"""The normalization whose scale comes from runs of the baseline, not from a table."""
NORMALIZATIONS = {
    "raw": "score per episode",
    "human_normalized": "human-normalized score (0: random policy, 1: human)",
    "success_normalized": "success-normalized score (0: random policy, 1: success target)",
    "per_thousand": "score / 1000",
    OWN_BASELINE: "baseline-normalized score (0 and 1: the baseline's lowest and highest)",
}
"""The normalizations by name, each with the words for an axis."""


def normalize(
    scores: npt.ArrayLike,
    env: str,
    by: str,
    baselines: Mapping[str, Scale] | None = None,
) -> FloatArray:
    """Return the scores of one task, normalized by one of `NORMALIZATIONS`.

    ``baselines`` holds the `baseline_scale` of each task; only ``baseline_min_max`` needs it.

    Examples:
        >>> normalize([1.7, 30.5], "atari/Breakout", "human_normalized").tolist()
        [0.0, 1.0]
        >>> normalize(500, "dmc/dog-run", "per_thousand").tolist()
        0.5
    """
    if by == "raw":
        return np.array(scores, dtype=np.float64)
    if by == "human_normalized":
        return human_normalized(scores, env)
    if by == "success_normalized":
        return success_normalized(scores, env)
    if by == "per_thousand":
        return per_thousand(scores, env)
    if by == OWN_BASELINE:
        return baseline_min_max(scores, env, baselines or {})
    raise ValueError(unknown("normalization", by, NORMALIZATIONS))


def human_normalized(scores: npt.ArrayLike, env: str) -> FloatArray:
    """Return an Atari game's scores with a random policy at 0 and a human at 1."""
    return _scale_of(env, "human_normalized", "atari", ATARI).apply(scores)


def success_normalized(scores: npt.ArrayLike, env: str) -> FloatArray:
    """Return a HumanoidBench task's scores with a random policy at 0 and success at 1."""
    return _scale_of(env, "success_normalized", "humanoid", HUMANOID).apply(scores)


def per_thousand(scores: npt.ArrayLike, env: str) -> FloatArray:
    """Return a DeepMind Control task's scores over 1000, the most an episode can give."""
    suite, _ = _parts(env)
    if suite not in _DMC_SUITES:
        raise ValueError(
            f"per_thousand is for the tasks of {' and '.join(_DMC_SUITES)}, whose episodes give "
            f"at most 1000; got {env!r}"
        )
    return Scale(0, 1000).apply(scores)


def baseline_min_max(scores: npt.ArrayLike, env: str, baselines: Mapping[str, Scale]) -> FloatArray:
    """Return a task's scores with the baseline's lowest at 0 and its highest at 1."""
    named = {"/".join(_parts(name)): scale for name, scale in baselines.items()}
    scale = named.get("/".join(_parts(env)))
    if scale is None:
        known = ", ".join(baselines) or "no task"
        raise ValueError(
            f"{OWN_BASELINE} needs the baseline's scores on {env!r}; it has scores on {known}"
        )
    return scale.apply(scores)


def baseline_scale(
    curves: Sequence[npt.ArrayLike] | FloatArray,
    env: str,
    over: Literal["every seed", "mean curve"] = "every seed",
) -> Scale:
    """Return the baseline's lowest and highest score on a task, for `baseline_min_max`.

    ``curves`` are the baseline's learning curves on that task, one for each seed, smoothed as
    scores are reported (`Series.smoothed`: the mean of the last 100 episodes). NaN, where a run
    has no value yet, is ignored.

    The paper takes "the lowest and highest scores recorded by the ReLU baseline", the lowest
    being "typically the random-policy score": so it means scores during training, not final ones.
    It does not say whether these are of every seed's curve or of the mean curve over seeds, nor
    whether scores are smoothed. Here:

    - ``"every seed"`` (the default, and the literal meaning): the extremes of all seeds' curves.
    - ``"mean curve"``: the extremes of the mean over seeds, where every seed has a value. Its
      range is narrower, so normalized scores lie further from the middle.

    Scores of single episodes are not an option: their extremes lie far outside those of any mean,
    and the baseline of the paper's Table 2 ends at 0.91.

    Examples:
        >>> baseline_scale([[1.0, 5.0, 9.0], [3.0, 7.0, 7.0]], "minatar/breakout")
        Scale(zero=1.0, one=9.0)
        >>> baseline_scale([[1.0, 5.0, 9.0], [3.0, 7.0, 7.0]], "minatar/breakout", "mean curve")
        Scale(zero=2.0, one=8.0)
    """
    seeds = [np.asarray(curve, dtype=np.float64) for curve in curves]
    if over == "every seed":
        values = np.concatenate([np.ravel(seed) for seed in seeds]) if seeds else np.array([])
    elif over == "mean curve":
        if len({seed.shape for seed in seeds}) > 1:
            raise ValueError(f"{env}: the mean of curves needs them at the same steps")
        values = np.mean(seeds, axis=0) if seeds else np.array([])
    else:
        raise ValueError(f"over must be 'every seed' or 'mean curve', got {over!r}")
    values = values[~np.isnan(values)]
    if not values.size:
        raise ValueError(f"{env}: the baseline has no scores to normalize by")
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError(f"{env}: a score of the baseline is infinite")
    if low == high:
        raise ValueError(
            f"{env}: the baseline always scored {low:g}, so scores cannot be normalized by its "
            "lowest and highest score"
        )
    return Scale(low, high)


def final_mean(
    steps: npt.ArrayLike, values: npt.ArrayLike, budget: float, share: float = 0.05
) -> float:
    """Return the mean of the values in the last ``share`` of training; NaN if there are none.

    HumanoidBench's normalization is of this score: the "mean evaluation return over the final 5 %
    of training".

    Examples:
        >>> final_mean([10, 90, 95, 100], [0.0, 1.0, 2.0, 4.0], budget=100)
        3.0
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}")
    last = np.asarray(values, dtype=np.float64)[np.asarray(steps) >= (1 - share) * budget]
    return float(last.mean()) if last.size else float("nan")


def _parts(env: str) -> tuple[str, str]:
    """Return suite and task in one spelling: lower case, hyphens instead of underscores."""
    suite, slash, task = env.lower().replace("_", "-").partition("/")
    if not slash or not suite or not task:
        raise ValueError(
            f"an environment is named 'suite/task', such as 'minatar/breakout'; got {env!r}"
        )
    return suite, task


def _scale_of(env: str, by: str, suite: str, scales: Mapping[str, Scale]) -> Scale:
    suite_of_env, task = _parts(env)
    if suite_of_env != suite:
        raise ValueError(f"{by} is for the tasks of {suite}, got {env!r}")
    scale = {name.lower(): scale for name, scale in scales.items()}.get(task)
    if scale is None:
        name = env.partition("/")[2]
        raise ValueError(f"{by}: {unknown(f'task of {suite}', name, scales)}")
    return scale
