"""Every figure and table of the paper, by name: those that show runs, and the others."""

from __future__ import annotations

from hadamard.experiments.paper.appendix import APPENDIX
from hadamard.experiments.paper.main_results import IMPROVEMENTS, MAIN_RESULTS
from hadamard.experiments.paper.mechanism import MECHANISM
from hadamard.experiments.paper.model import Experiment

_IN_ORDER = (IMPROVEMENTS, *MECHANISM, *MAIN_RESULTS, *APPENDIX)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _IN_ORDER}
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
