"""Every figure and table of the paper that shows runs, with its numbers and its claims.

Numbers are the paper's where it states them. Where it leaves something open, the choice made here
is in the experiment's ``note``.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from hadamard.experiments.paper.model import Arm, Claim, Experiment, Panel, Plot, Stated
from hadamard.experiments.paper.tasks import (
    ATARI_8,
    ATARI_51,
    HUMANOID_14,
    VISUAL_28,
    VISUAL_HARD,
    VISUAL_HUMANOID,
)

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
_PQN = Panel("pqn", ATARI_51, 5, 10 * _M, "human_normalized", ("median", "median_of_runs"))
_IQM = ("iqm", "iqm_of_task_means")
_HEALTH_IQM = ("mean", "iqm_of_task_means")
_SIMBA = Panel("simbav2", HUMANOID_14, 3, _M // 2, "success_normalized", _IQM)
_SIMBA = dataclasses.replace(_SIMBA, health_aggregations=_HEALTH_IQM)
_MRQ = Panel("mrq", VISUAL_HARD, 5, _M // 2, "per_thousand", _IQM)
_MRQ = dataclasses.replace(_MRQ, health_aggregations=_HEALTH_IQM)

DQN_FIVE = _DQN.with_arms(RELU, TANH, TANH_NORM, TANH_HR, RELU_HR)
PPO_THREE = _PPO.with_arms(RELU, TANH, TANH_HR)
PQN_THREE = _PQN.with_arms(RELU, TANH, TANH_HR)
SIMBA_TWO = _SIMBA.with_arms(SIMBA, SIMBA_HR)
MRQ_TWO = _MRQ.with_arms(MRQ, MRQ_HR)

_HEALTH = ("score", "dormant_fraction", "effective_rank")

_NORMALIZED = "baseline-normalized"
_CHANGE = "% of the baseline"
_IQM_UNIT = "IQM, success-normalized"
_RELATIVE = "relative to the baseline"
_TABLE_2 = (
    Stated("dqn", RELU, 0.91, _NORMALIZED, "Table 2, Baseline"),
    Stated("dqn", TANH_HR, 1.03, _NORMALIZED, "Table 2, + HR"),
    Stated("dqn", TANH_HR, 13, _CHANGE, "Table 2, + HR", "change", RELU),
    Stated("dqn", WIDE, 0.49, _NORMALIZED, "Table 2, + Widen"),
    Stated("dqn", WIDE, -46, _CHANGE, "Table 2, + Widen", "change", RELU),
    Stated("dqn", TWO_HR, 1.01, _NORMALIZED, "Table 2, + 2HR"),
    Stated("dqn", TWO_HR, 12, _CHANGE, "Table 2, + 2HR", "change", RELU),
    Stated("simbav2", SIMBA, 0.71, _IQM_UNIT, "Table 2, Baseline"),
    Stated("simbav2", SIMBA_HR, 0.84, _IQM_UNIT, "Table 2, + HR"),
    Stated("simbav2", SIMBA_HR, 18, _CHANGE, "Table 2, + HR", "change", SIMBA),
    Stated("simbav2", SIMBA_WIDE, 0.76, _IQM_UNIT, "Table 2, + Widen"),
    Stated("simbav2", SIMBA_WIDE, 7, _CHANGE, "Table 2, + Widen", "change", SIMBA),
    # MR.Q's baseline is 1.00 by definition, so the number is no claim.
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
    "Scores: normalized by the lowest and highest score of all ReLU runs over training (means of "
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


def _healthier(algorithm: str) -> tuple[Claim, ...]:
    """What the conclusion says of every algorithm: HR lowers dormancy and raises the rank."""
    where = "Section 6"
    return (
        Claim("HR lowers tanh's dormancy", where, algorithm, "lower", TANH_HR, TANH, _DORMANT),
        Claim("HR raises tanh's effective rank", where, algorithm, "higher", TANH_HR, TANH, _RANK),
    )


def _predicts(activation: Literal["relu", "tanh"], rule: str, hr: Arm, plain: Arm) -> Claim:
    """The theory tracks the measured dormancy closely: within 5 percentage points."""
    text = f"the theory's {rule} is close to {hr.label}'s dormancy (5 points either way)"
    where = "Section 4.2"
    return Claim(text, where, "dqn", "equal", hr, plain, _DORMANT, by=5, theory=activation)


_PPO_CLAIMS = (
    Claim("tanh + HR is best: above ReLU", "Section 5.1", "ppo", "higher", TANH_HR, RELU),
    Claim("tanh + HR is best: above tanh", "Section 5.1", "ppo", "higher", TANH_HR, TANH),
    Claim("tanh and ReLU are comparable", "Section 5.1", "ppo", "equal", TANH, RELU, by=10),
    _IMPROVES[1],
    *_healthier("ppo"),
)
_PQN_CLAIMS = (
    Claim("HR adds more than 100 % to tanh", "Section 5.1", "pqn", "higher", TANH_HR, TANH, by=100),
    Claim("tanh + HR is above ReLU", "Figure 7", "pqn", "higher", TANH_HR, RELU),
    Claim("ReLU is above tanh", "Section 5.1", "pqn", "higher", RELU, TANH),
    Claim("HR keeps tanh's rank", "Section 5.1", "pqn", "equal", TANH_HR, TANH, _RANK, by=10),
    *_healthier("pqn"),
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
            _DQN.with_arms(RELU, TANH_HR),
            _PPO.with_arms(RELU, TANH_HR),
            _PQN.with_arms(RELU, TANH_HR),
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
                "ReLU's neurons become dormant: more at the end than at a tenth",
                "Introduction",
                "dqn",
                "higher",
                RELU,
                None,
                _DORMANT,
                since=0.1,
            ),
            Claim(
                "ReLU's rank collapses: lower at the end than at a tenth",
                "Introduction",
                "dqn",
                "lower",
                RELU,
                None,
                _RANK,
                since=0.1,
            ),
            Claim(
                "tanh's dormancy is comparable to ReLU's",
                "Figure 2",
                "dqn",
                "equal",
                TANH,
                RELU,
                _DORMANT,
                by=10,
            ),
            Claim(
                "the activation must be tanh: tanh + HR scores higher than ReLU + HR",
                "Section 4.2",
                "dqn",
                "higher",
                TANH_HR,
                RELU_HR,
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
        panels=(_DQN.with_arms(TANH, tasks=("atari/Breakout",), minatar=("minatar/breakout",)),),
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
        panels=(_DQN.with_arms(TANH, tasks=("atari/Seaquest",), minatar=("minatar/seaquest",)),),
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
        panels=(_DQN.with_arms(RELU, RELU_HR, TANH, TANH_HR),),
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
            _predicts("tanh", "p^2", TANH_HR, TANH),
            _predicts("relu", "2p - p^2", RELU_HR, RELU),
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
        shows="PQN on 51 games: HR in all hidden layers raises the median human-normalized score",
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
        panels=(
            MRQ_TWO.with_arms(MRQ, MRQ_HR, tasks=VISUAL_HUMANOID, steps=5 * _M // 2, stretch=5),
        ),
        columns=3,
        shading="error",
        claims=(
            Claim(
                "MR.Q + HR outperforms MR.Q with five times the budget",
                "Section 5.2",
                "mrq",
                "higher",
                MRQ_HR,
                MRQ,
            ),
        ),
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
            _DQN.with_arms(RELU, TANH_HR, WIDE, TWO_HR),
            _SIMBA.with_arms(SIMBA, SIMBA_HR, SIMBA_WIDE),
            _MRQ.with_arms(MRQ, MRQ_HR, MRQ_WIDE),
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
            Claim("2HR improves DQN", "Section 5.3", "dqn", "higher", TWO_HR, RELU),
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
        "normalization; '+ Widen' is tanh at 1024, as in Figure 11. 2HR is HR in the last two "
        "hidden layers (ours). DQN and SimbaV2 are in absolute units, MR.Q relative to its "
        f"baseline. {_ATARI_NOTE} SimbaV2: {_SIMBA_NOTE} MR.Q: {_MRQ_NOTE}",
    ),
    Experiment(
        name="fig-width-lr",
        place="Figure 11",
        anchor="fig:1024",
        shows="tanh 512 against 1024 wide, at several learning rates, and tanh + HR",
        composition="curves",
        panels=(_DQN.with_arms(TANH, WIDE, TANH_HR, *WIDE_RATES, yardstick=RELU),),
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
            Claim("widening lowers the score of tanh", "Figure 11", "dqn", "lower", WIDE, TANH),
            *(
                Claim(
                    f"a lower learning rate suits the wide layer: {arm.label} is above 0.0001",
                    "Figure 11",
                    "dqn",
                    "higher",
                    arm,
                    WIDE,
                )
                for arm in WIDE_RATES[:2]
            ),
            *(
                Claim(f"HR is above {arm.label}", "Figure 11", "dqn", "higher", TANH_HR, arm)
                for arm in (WIDE, *WIDE_RATES)
            ),
        ),
        note="The learning rates of the ablation are not stated: 2.5e-5, 5e-5, 1e-4 (the default) "
        "and 2e-4 here, with tanh + HR at its default drawn beside them. ReLU is run for the "
        f"normalization only. {_DQN_NOTE}",
    ),
    Experiment(
        name="fig-crelu-redo",
        place="Figure 12",
        anchor="fig:51_all",
        shows="PQN on 51 games: HR against CReLU and ReDo",
        composition="curves",
        panels=(_PQN.with_arms(RELU, TANH, TANH_HR, CRELU, REDO),),
        plots=(Plot("pqn", title="PQN"),),
        claims=tuple(
            Claim(f"HR is above {arm.label}", "Figure 12", "pqn", "higher", TANH_HR, arm)
            for arm in (RELU, CRELU, REDO)
        ),
        note="ReDo (tau = 0.025, stated) is on the ReLU baseline; how often it recycles is not "
        f"stated: every 1,000 updates. {_PQN_NOTE}",
    ),
    Experiment(
        name="fig-human-normalized",
        place="Figure 13",
        anchor="fig:human_normalized",
        shows="DQN and PPO on 8 games once more, human-normalized (VideoPinball dominates)",
        composition="curves",
        panels=(
            dataclasses.replace(DQN_FIVE, normalization="human_normalized"),
            dataclasses.replace(PPO_THREE, normalization="human_normalized"),
        ),
        plots=(Plot("dqn", title="DQN"), Plot("ppo", title="PPO")),
        columns=2,
        shading="deviation",
        note="Which arms are drawn is not stated: all of Figures 2 and 7. The shading is the "
        "standard deviation over seeds of the mean over games. MinAtar has no human scores: there "
        f"the normalization is by the baseline again. {_GAMES} {_TANH}",
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
        panels=(MRQ_TWO.with_arms(MRQ, MRQ_HR, tasks=VISUAL_28),),
        columns=7,
        shading="error",
        claims=(
            Claim("HR improves MR.Q on DMC-Visual", "Introduction", "mrq", "higher", MRQ_HR, MRQ),
            Claim(
                "HR raises the effective rank on DMC-Visual",
                "Section 6",
                "mrq",
                "higher",
                MRQ_HR,
                MRQ,
                _RANK,
            ),
        ),
        note=_MRQ_NOTE,
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""Every table and figure of the paper that shows runs, by name."""

WITHOUT_RUNS = {
    "Figure 5": "the layer, drawn: docs/setting.md#the-layer",
    "Figure 6": "pictures of the three domains: docs/setting.md#the-three-domains",
    "Figure 10": "where HR goes in each network, drawn: docs/setting.md#where-hr-goes",
    "Table 3": "DQN's hyperparameters: docs/setting.md#dqns-settings",
    "Table 4": "PPO's hyperparameters: docs/setting.md#ppos-settings",
    "Table 5": "PQN's hyperparameters: docs/setting.md#pqns-settings",
    "Table 6": "HumanoidBench's random and target scores: docs/setting.md#humanoidbenchs-scores",
}
"""The other figures and tables: the subject of each, and the docs page that shows it."""
