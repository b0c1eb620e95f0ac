"""The figures of the paper's appendix that show runs, noted as those of the main text."""

from __future__ import annotations

import dataclasses

from hadamard.experiments.paper.arms import (
    CRELU,
    DQN_FIVE,
    DQN_PANEL,
    MRQ,
    MRQ_HR,
    MRQ_TWO,
    PPO_THREE,
    PQN_PANEL,
    PQN_THREE,
    REDO,
    RELU,
    SIMBA_TWO,
    TANH,
    TANH_HR,
    WIDE,
    WIDE_RATES,
)
from hadamard.experiments.paper.model import Claim, Experiment, Plot
from hadamard.experiments.paper.shared import (
    DORMANT,
    DORMANT_RELU_TANH,
    DQN_NOTE,
    GAMES,
    MRQ_NOTE,
    PQN_NOTE,
    RANK,
    SIMBA_NOTE,
    TANH_EVERYWHERE,
    table_2,
)
from hadamard.experiments.paper.tasks import VISUAL_28

APPENDIX = (
    Experiment(
        name="fig-width-lr",
        place="Figure 11",
        anchor="fig:1024",
        shows="tanh 512 against 1024 wide, at several learning rates, and tanh + HR",
        composition="curves",
        panels=(DQN_PANEL.with_arms(TANH, WIDE, TANH_HR, *WIDE_RATES, yardstick=RELU),),
        plots=(
            Plot("dqn", "score", (TANH, WIDE, TANH_HR), "(a) Performance"),
            Plot("dqn", DORMANT, (TANH, WIDE, TANH_HR), "(b) Dormant neurons"),
            Plot("dqn", RANK, (TANH, WIDE, TANH_HR), "(c) Effective rank"),
            Plot("dqn", "score", (WIDE, *WIDE_RATES, TANH_HR), "(d) Learning rates, 1024 wide"),
        ),
        columns=2,
        stated=(
            *table_2("dqn", WIDE)[:1],
            *table_2("dqn", TANH_HR)[:1],
            *DORMANT_RELU_TANH[2:],
        ),
        claims=(
            Claim("widening raises the rank", "Figure 11", "dqn", "higher", WIDE, TANH, RANK),
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
        f"normalization only. {DQN_NOTE}",
    ),
    Experiment(
        name="fig-crelu-redo",
        place="Figure 12",
        anchor="fig:51_all",
        shows="PQN on 51 games: HR against CReLU and ReDo",
        composition="curves",
        panels=(PQN_PANEL.with_arms(RELU, TANH, TANH_HR, CRELU, REDO),),
        plots=(Plot("pqn", title="PQN"),),
        claims=tuple(
            Claim(f"HR is above {arm.label}", "Figure 12", "pqn", "higher", TANH_HR, arm)
            for arm in (RELU, CRELU, REDO)
        ),
        note="ReDo (tau = 0.025, stated) is on the ReLU baseline; how often it recycles is not "
        f"stated: every 1,000 updates. {PQN_NOTE}",
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
        f"the normalization is by the baseline again. {GAMES} {TANH_EVERYWHERE}",
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
        note=f"{GAMES} {TANH_EVERYWHERE}",
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
        note=f"{GAMES} {TANH_EVERYWHERE}",
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
        note=PQN_NOTE,
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
        note=SIMBA_NOTE,
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
                RANK,
            ),
        ),
        note=MRQ_NOTE,
    ),
)
"""In the order of the paper."""
