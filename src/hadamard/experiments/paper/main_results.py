"""The figures and tables of the paper's main text that show how HR scores."""

from __future__ import annotations

from hadamard.experiments.paper.arms import (
    DQN_PANEL,
    MILLION,
    MRQ,
    MRQ_HR,
    MRQ_PANEL,
    MRQ_TWO,
    MRQ_WIDE,
    PPO_PANEL,
    PPO_THREE,
    PQN_PANEL,
    PQN_THREE,
    RELU,
    SIMBA,
    SIMBA_HR,
    SIMBA_PANEL,
    SIMBA_TWO,
    SIMBA_WIDE,
    TANH_HR,
    TWO_HR,
    WIDE,
)
from hadamard.experiments.paper.model import Claim, Experiment, Stated
from hadamard.experiments.paper.shared import (
    ATARI_NOTE,
    CHANGE,
    IMPROVES,
    IQM_NOTE,
    MRQ_CLAIMS,
    MRQ_NOTE,
    MRQ_PLOTS,
    PPO_CLAIMS,
    PPO_PLOT,
    PQN_CLAIMS,
    PQN_NOTE,
    PQN_PLOT,
    SIMBA_CLAIMS,
    SIMBA_NOTE,
    SIMBA_PLOTS,
    TABLE_2,
    table_2,
)
from hadamard.experiments.paper.tasks import VISUAL_HUMANOID

IMPROVEMENTS = Experiment(
    name="fig-improvements",
    place="Figure 1",
    anchor="fig:first_plot",
    shows="HR improves on the baselines of five algorithms in three domains",
    composition="improvements",
    panels=(
        DQN_PANEL.with_arms(RELU, TANH_HR),
        PPO_PANEL.with_arms(RELU, TANH_HR),
        PQN_PANEL.with_arms(RELU, TANH_HR),
        SIMBA_TWO,
        MRQ_TWO,
    ),
    stated=(
        Stated("dqn", TANH_HR, 13, CHANGE, "Table 2, + HR", "change", RELU),
        Stated("simbav2", SIMBA_HR, 18, CHANGE, "Table 2, + HR", "change", SIMBA),
        Stated("mrq", MRQ_HR, 17, CHANGE, "Table 2, + HR", "change", MRQ),
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
    claims=IMPROVES,
    note="What the bars are relative to is not stated: ReLU for DQN, PPO and PQN. Of PPO and "
    "PQN no number is stated, the bars can only be read off.",
)

MAIN_RESULTS = (
    Experiment(
        name="fig-ppo",
        place="Figure 7, left",
        anchor="fig:ppo_pqn",
        shows="PPO on 8 games: tanh + HR is best, tanh and ReLU are alike",
        composition="curves",
        panels=(PPO_THREE,),
        plots=(PPO_PLOT,),
        claims=PPO_CLAIMS,
        note=ATARI_NOTE,
    ),
    Experiment(
        name="fig-pqn",
        place="Figure 7, right",
        anchor="fig:ppo_pqn",
        shows="PQN on 51 games: HR in all hidden layers raises the median human-normalized score",
        composition="curves",
        panels=(PQN_THREE,),
        plots=(PQN_PLOT,),
        claims=PQN_CLAIMS,
        note=PQN_NOTE,
    ),
    Experiment(
        name="fig-ppo-pqn",
        place="Figure 7",
        anchor="fig:ppo_pqn",
        shows="PPO on 8 games and PQN on 51, side by side",
        composition="curves",
        panels=(PPO_THREE, PQN_THREE),
        plots=(PPO_PLOT, PQN_PLOT),
        columns=2,
        claims=(*PPO_CLAIMS, *PQN_CLAIMS),
        note=f"PPO: {ATARI_NOTE} PQN: {PQN_NOTE}",
    ),
    Experiment(
        name="fig-simbav2",
        place="Figure 8, top",
        anchor="fig:cc",
        shows="SimbaV2 on 14 HumanoidBench tasks: hardly any dormancy, yet HR raises rank, score",
        composition="curves",
        panels=(SIMBA_TWO,),
        plots=SIMBA_PLOTS,
        stated=table_2("simbav2", SIMBA, SIMBA_HR),
        claims=SIMBA_CLAIMS,
        note=f"{IQM_NOTE} {SIMBA_NOTE}",
    ),
    Experiment(
        name="fig-mrq",
        place="Figure 8, bottom",
        anchor="fig:cc",
        shows="MR.Q on 7 hard tasks from pixels: hardly any dormancy, yet HR raises rank, score",
        composition="curves",
        panels=(MRQ_TWO,),
        plots=MRQ_PLOTS,
        stated=table_2("mrq", MRQ_HR),
        claims=MRQ_CLAIMS,
        note=f"{IQM_NOTE} {MRQ_NOTE}",
    ),
    Experiment(
        name="fig-control",
        place="Figure 8",
        anchor="fig:cc",
        shows="SimbaV2 on 14 HumanoidBench tasks and MR.Q on 7 from pixels, one above the other",
        composition="curves",
        panels=(SIMBA_TWO, MRQ_TWO),
        plots=(*SIMBA_PLOTS, *MRQ_PLOTS),
        stated=(*table_2("simbav2", SIMBA, SIMBA_HR), *table_2("mrq", MRQ_HR)),
        claims=(*SIMBA_CLAIMS, *MRQ_CLAIMS),
        note=f"{IQM_NOTE} SimbaV2: {SIMBA_NOTE} MR.Q: {MRQ_NOTE}",
    ),
    Experiment(
        name="fig-visual-humanoid",
        place="Figure 9",
        anchor="fig:humanoid",
        shows="MR.Q + HR on 3 visual humanoid tasks with 5 times the budget, beside DrQ-v2 and XQC",
        composition="tasks",
        panels=(
            MRQ_TWO.with_arms(
                MRQ, MRQ_HR, tasks=VISUAL_HUMANOID, steps=5 * MILLION // 2, stretch=5
            ),
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
        f"are supplied; no verdict is computed for curves that are not ours. {MRQ_NOTE}",
    ),
    Experiment(
        name="table-widening",
        place="Table 2",
        anchor="tab:hr_vs_widen",
        shows="HR against widening with as many parameters (DQN, SimbaV2, MR.Q) and 2HR (DQN)",
        composition="widening",
        panels=(
            DQN_PANEL.with_arms(RELU, TANH_HR, WIDE, TWO_HR),
            SIMBA_PANEL.with_arms(SIMBA, SIMBA_HR, SIMBA_WIDE),
            MRQ_PANEL.with_arms(MRQ, MRQ_HR, MRQ_WIDE),
        ),
        stated=TABLE_2,
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
        f"baseline. {ATARI_NOTE} SimbaV2: {SIMBA_NOTE} MR.Q: {MRQ_NOTE}",
    ),
)
"""In the order of the paper."""
