"""The paper's figures and tables on what goes wrong without HR, and why HR helps: all of DQN.

Numbers are the paper's where it states them. Where it leaves something open, the choice made here
is in the experiment's ``note``. So it is in `main_results` and `appendix`.
"""

from __future__ import annotations

from hadamard.experiments.paper.arms import (
    DQN_FIVE,
    DQN_PANEL,
    RELU,
    RELU_HR,
    TANH,
    TANH_HR,
    TANH_NORM,
)
from hadamard.experiments.paper.model import Claim, Experiment, Plot, Stated
from hadamard.experiments.paper.shared import (
    DORMANT,
    DORMANT_RELU_TANH,
    DQN_HEALTH,
    DQN_NOTE,
    GAMES,
    HEALTH,
    RANK,
    TANH_EVERYWHERE,
    predicts,
    table_2,
)

MECHANISM = (
    Experiment(
        name="fig-dqn",
        place="Figure 2",
        anchor="fig:dead_rank_dqn",
        shows="DQN on 8 games: tanh + HR has fewer dormant neurons, a higher rank, a better score",
        composition="curves",
        panels=(DQN_FIVE,),
        plots=tuple(Plot("dqn", measure) for measure in HEALTH),
        stated=(
            *table_2("dqn", RELU, TANH_HR),
            *DORMANT_RELU_TANH,
            Stated("dqn", RELU, 0.60, "of neurons, around", "Observation 1", DORMANT),
            Stated("dqn", TANH, 0.40, "of neurons, about", "Observation 2", DORMANT),
        ),
        claims=(
            Claim(
                "tanh has fewer dormant neurons than ReLU",
                "Observation 2",
                "dqn",
                "lower",
                TANH,
                RELU,
                DORMANT,
            ),
            Claim(
                "tanh has a higher rank than ReLU",
                "Observation 2",
                "dqn",
                "higher",
                TANH,
                RELU,
                RANK,
            ),
            Claim("tanh scores lower than ReLU", "Observation 2", "dqn", "lower", TANH, RELU),
            Claim(
                "HR makes fewer tanh neurons dormant",
                "Figure 2",
                "dqn",
                "lower",
                TANH_HR,
                TANH,
                DORMANT,
            ),
            Claim("HR raises the rank of tanh", "Figure 2", "dqn", "higher", TANH_HR, TANH, RANK),
            Claim(
                "HR makes more ReLU neurons dormant",
                "Section 4.2",
                "dqn",
                "higher",
                RELU_HR,
                RELU,
                DORMANT,
            ),
            Claim(
                "LayerNorm makes fewer tanh neurons dormant than HR does",
                "Section 4.2",
                "dqn",
                "lower",
                TANH_NORM,
                TANH_HR,
                DORMANT,
            ),
            Claim(
                "ReLU's neurons become dormant: more at the end than at a tenth",
                "Introduction",
                "dqn",
                "higher",
                RELU,
                None,
                DORMANT,
                since=0.1,
            ),
            Claim(
                "ReLU's rank collapses: lower at the end than at a tenth",
                "Introduction",
                "dqn",
                "lower",
                RELU,
                None,
                RANK,
                since=0.1,
            ),
            Claim(
                "tanh's dormancy is comparable to ReLU's",
                "Figure 2",
                "dqn",
                "equal",
                TANH,
                RELU,
                DORMANT,
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
        note=DQN_NOTE,
    ),
    Experiment(
        name="fig-kde",
        place="Figure 3",
        anchor="fig:kde_tanh_final",
        shows="densities of 16 tanh neurons of DQN on Breakout, at a tenth of training and its end",
        composition="densities",
        panels=(
            DQN_PANEL.with_arms(TANH, tasks=("atari/Breakout",), minatar=("minatar/breakout",)),
        ),
        kde_at=(0.1, 1.0),
        claims=(
            Claim(
                "tanh neurons saturate over training: more are dormant at the end than at a tenth",
                "Figure 3",
                "dqn",
                "higher",
                TANH,
                None,
                DORMANT,
                since=0.1,
            ),
        ),
        note="Which seed and which 16 neurons is not stated: the first seed's, evenly spread over "
        f"the layer. {TANH_EVERYWHERE} {DQN_HEALTH}",
    ),
    Experiment(
        name="fig-hidden-bias",
        place="Figure 4",
        anchor="fig:hiddenbias",
        shows="dormant tanh neurons come to give as much to the Q-values as live ones (Seaquest)",
        composition="contributions",
        panels=(
            DQN_PANEL.with_arms(TANH, tasks=("atari/Seaquest",), minatar=("minatar/seaquest",)),
        ),
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
        f"the absolute sum of activation times outgoing weight. {TANH_EVERYWHERE} {DQN_HEALTH}",
    ),
    Experiment(
        name="table-dormancy",
        place="Table 1",
        anchor="tab:dying_neurons",
        shows="HR lowers dormancy for tanh and raises it for ReLU, against p^2 and 2p - p^2",
        composition="dormancy",
        panels=(DQN_PANEL.with_arms(RELU, RELU_HR, TANH, TANH_HR),),
        stated=(
            *DORMANT_RELU_TANH,
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
                DORMANT,
            ),
            Claim(
                "HR makes more ReLU neurons dormant",
                "Table 1",
                "dqn",
                "higher",
                RELU_HR,
                RELU,
                DORMANT,
            ),
            predicts("tanh", "p^2", TANH_HR, TANH),
            predicts("relu", "2p - p^2", RELU_HR, RELU),
        ),
        note="The measured changes are relative (0.39 to 0.30 is -23 %), the predicted ones, "
        "-(p - p^2) and +(p - p^2), absolute: for p = 0.39, p^2 is 0.15 and not 0.30; for p = 0.62 "
        "2p - p^2 is 0.86 and not 0.73. When in training p is taken is not stated: at the end. "
        f"{GAMES} {TANH_EVERYWHERE} {DQN_HEALTH}",
    ),
)
"""In the order of the paper."""
