"""What the experiments of the paper compare: variants, and each algorithm's tasks and budget."""

from __future__ import annotations

import dataclasses

from hadamard.experiments.paper.model import Arm, Panel
from hadamard.experiments.paper.tasks import ATARI_8, ATARI_51, HUMANOID_14, VISUAL_HARD

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

MILLION = 1_000_000
DQN_PANEL = Panel("dqn", ATARI_8, 5, 10 * MILLION, "baseline_min_max", ("mean",))
PPO_PANEL = Panel("ppo", ATARI_8, 5, 10 * MILLION, "baseline_min_max", ("mean",))
PQN_PANEL = Panel(
    "pqn", ATARI_51, 5, 10 * MILLION, "human_normalized", ("median", "median_of_runs")
)
_IQM = ("iqm", "iqm_of_task_means")
_HEALTH_IQM = ("mean", "iqm_of_task_means")
SIMBA_PANEL = Panel("simbav2", HUMANOID_14, 3, MILLION // 2, "success_normalized", _IQM)
SIMBA_PANEL = dataclasses.replace(SIMBA_PANEL, health_aggregations=_HEALTH_IQM)
MRQ_PANEL = Panel("mrq", VISUAL_HARD, 5, MILLION // 2, "per_thousand", _IQM)
MRQ_PANEL = dataclasses.replace(MRQ_PANEL, health_aggregations=_HEALTH_IQM)

DQN_FIVE = DQN_PANEL.with_arms(RELU, TANH, TANH_NORM, TANH_HR, RELU_HR)
PPO_THREE = PPO_PANEL.with_arms(RELU, TANH, TANH_HR)
PQN_THREE = PQN_PANEL.with_arms(RELU, TANH, TANH_HR)
SIMBA_TWO = SIMBA_PANEL.with_arms(SIMBA, SIMBA_HR)
MRQ_TWO = MRQ_PANEL.with_arms(MRQ, MRQ_HR)
