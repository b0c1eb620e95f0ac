"""What several experiments of the paper share: numbers that it states, notes and claims."""

from __future__ import annotations

from typing import Literal

from hadamard.experiments.paper.arms import (
    MRQ,
    MRQ_HR,
    MRQ_WIDE,
    RELU,
    RELU_HR,
    SIMBA,
    SIMBA_HR,
    SIMBA_WIDE,
    TANH,
    TANH_HR,
    TWO_HR,
    WIDE,
)
from hadamard.experiments.paper.model import Arm, Claim, Plot, Stated

HEALTH = ("score", "dormant_fraction", "effective_rank")

NORMALIZED = "baseline-normalized"
CHANGE = "% of the baseline"
IQM_UNIT = "IQM, success-normalized"
RELATIVE = "relative to the baseline"
TABLE_2 = (
    Stated("dqn", RELU, 0.91, NORMALIZED, "Table 2, Baseline"),
    Stated("dqn", TANH_HR, 1.03, NORMALIZED, "Table 2, + HR"),
    Stated("dqn", TANH_HR, 13, CHANGE, "Table 2, + HR", "change", RELU),
    Stated("dqn", WIDE, 0.49, NORMALIZED, "Table 2, + Widen"),
    Stated("dqn", WIDE, -46, CHANGE, "Table 2, + Widen", "change", RELU),
    Stated("dqn", TWO_HR, 1.01, NORMALIZED, "Table 2, + 2HR"),
    Stated("dqn", TWO_HR, 12, CHANGE, "Table 2, + 2HR", "change", RELU),
    Stated("simbav2", SIMBA, 0.71, IQM_UNIT, "Table 2, Baseline"),
    Stated("simbav2", SIMBA_HR, 0.84, IQM_UNIT, "Table 2, + HR"),
    Stated("simbav2", SIMBA_HR, 18, CHANGE, "Table 2, + HR", "change", SIMBA),
    Stated("simbav2", SIMBA_WIDE, 0.76, IQM_UNIT, "Table 2, + Widen"),
    Stated("simbav2", SIMBA_WIDE, 7, CHANGE, "Table 2, + Widen", "change", SIMBA),
    # MR.Q's baseline is 1.00 by definition, so the number is no claim.
    Stated("mrq", MRQ_HR, 1.17, RELATIVE, "Table 2, + HR", "relative", MRQ),
    Stated("mrq", MRQ_HR, 17, CHANGE, "Table 2, + HR", "change", MRQ),
    Stated("mrq", MRQ_WIDE, 0.97, RELATIVE, "Table 2, + Widen", "relative", MRQ),
    Stated("mrq", MRQ_WIDE, -3, CHANGE, "Table 2, + Widen", "change", MRQ),
)


def table_2(algorithm: str, *arms: Arm) -> tuple[Stated, ...]:
    """Return what Table 2 states of some arms."""
    return tuple(s for s in TABLE_2 if s.algorithm == algorithm and s.arm in arms)


DORMANT = "dormant_fraction"
RANK = "effective_rank"
DORMANT_RELU_TANH = (
    Stated("dqn", RELU, 0.62, "of neurons", "Table 1", DORMANT),
    Stated("dqn", RELU_HR, 0.73, "of neurons", "Table 1", DORMANT),
    Stated("dqn", TANH, 0.39, "of neurons", "Table 1", DORMANT),
    Stated("dqn", TANH_HR, 0.30, "of neurons", "Table 1", DORMANT),
)

GAMES = (
    "Games: the paper names three of its eight (Breakout, Seaquest, VideoPinball); the other five "
    "are ours."
)
TANH_EVERYWHERE = (
    "tanh: in every hidden layer of the network; HR and LayerNorm in the last one only, LayerNorm "
    "between its linear map and its activation."
)
BASELINE_SCORES = (
    "Scores: normalized by the lowest and highest score of all ReLU runs over training (means of "
    "the last 100 episodes), so ReLU itself ends below 1."
)
DQN_HEALTH = (
    "Dormancy and rank: of the last hidden layer, on the last 2,048 observations that the agent "
    "saw (the paper does not say how many, or which). DQN plays one game, so they are consecutive "
    "and more alike than a batch from replay."
)
ATARI_NOTE = f"{GAMES} {TANH_EVERYWHERE} {BASELINE_SCORES}"
DQN_NOTE = f"{ATARI_NOTE} {DQN_HEALTH}"
PQN_NOTE = (
    "Games: the 51 are not listed; the 57 without the six of hard exploration. HR, LayerNorm, "
    "tanh and CReLU: in every hidden layer. Scores: of the greedy games that are played beside "
    "training, those that ended in its last 5 %, or further back until there are 16. The median "
    "is over games after averaging over seeds; the paper's text also allows the median of all "
    "games and seeds, which the table has too."
)
IQM_NOTE = (
    "IQM: the appendix cuts off 25 % of all (task, seed) scores, which is drawn; the experiments "
    "section averages over seeds first, which the table has too. Dormancy and rank are means of "
    "tasks; their IQM is in the table."
)
SIMBA_NOTE = (
    "HR: in the first hidden layer of every block, actor and critics. Dormancy and rank: of the "
    "last block of the second critic, on the last 2,048 observations."
)
MRQ_NOTE = (
    "Seeds: the paper has 3 to 5 a task, 5 here. HR: in all four convolutions and the linear layer "
    "of the state encoder, since the paper only says 'the encoder'; --net.where linear puts it in "
    "the linear layer alone. Dormancy and rank: of the encoder's output zs, on the last 2,048 "
    "observations."
)

IMPROVES = (
    Claim("HR improves DQN by over 10 %", "Introduction", "dqn", "higher", TANH_HR, RELU, by=10),
    Claim("HR improves PPO by over 10 %", "Introduction", "ppo", "higher", TANH_HR, RELU, by=10),
    Claim("HR improves PQN", "Introduction", "pqn", "higher", TANH_HR, RELU),
    Claim("HR improves SimbaV2", "Introduction", "simbav2", "higher", SIMBA_HR, SIMBA),
    Claim("HR improves MR.Q", "Introduction", "mrq", "higher", MRQ_HR, MRQ),
)


def healthier(algorithm: str) -> tuple[Claim, ...]:
    """What the conclusion says of every algorithm: HR lowers dormancy and raises the rank."""
    where = "Section 6"
    return (
        Claim("HR lowers tanh's dormancy", where, algorithm, "lower", TANH_HR, TANH, DORMANT),
        Claim("HR raises tanh's effective rank", where, algorithm, "higher", TANH_HR, TANH, RANK),
    )


def predicts(activation: Literal["relu", "tanh"], rule: str, hr: Arm, plain: Arm) -> Claim:
    """The theory tracks the measured dormancy closely: within 5 percentage points."""
    text = f"the theory's {rule} is close to {hr.label}'s dormancy (5 points either way)"
    where = "Section 4.2"
    return Claim(text, where, "dqn", "equal", hr, plain, DORMANT, by=5, theory=activation)


PPO_CLAIMS = (
    Claim("tanh + HR is best: above ReLU", "Section 5.1", "ppo", "higher", TANH_HR, RELU),
    Claim("tanh + HR is best: above tanh", "Section 5.1", "ppo", "higher", TANH_HR, TANH),
    Claim("tanh and ReLU are comparable", "Section 5.1", "ppo", "equal", TANH, RELU, by=10),
    IMPROVES[1],
    *healthier("ppo"),
)
PQN_CLAIMS = (
    Claim("HR adds more than 100 % to tanh", "Section 5.1", "pqn", "higher", TANH_HR, TANH, by=100),
    Claim("tanh + HR is above ReLU", "Figure 7", "pqn", "higher", TANH_HR, RELU),
    Claim("ReLU is above tanh", "Section 5.1", "pqn", "higher", RELU, TANH),
    Claim("HR keeps tanh's rank", "Section 5.1", "pqn", "equal", TANH_HR, TANH, RANK, by=10),
    *healthier("pqn"),
)


def control_claims(algorithm: str, plain: Arm, hr: Arm) -> tuple[Claim, ...]:
    """Return what Section 5.2 says of an algorithm for continuous control."""
    where = "Section 5.2"
    few = "hardly any neuron is dormant"
    return (
        Claim("HR raises the score", where, algorithm, "higher", hr, plain),
        Claim("HR raises the effective rank", where, algorithm, "higher", hr, plain, RANK),
        Claim(f"without HR {few}", where, algorithm, "equal", plain, None, DORMANT, by=5),
        Claim(f"with HR {few}", where, algorithm, "equal", hr, None, DORMANT, by=5),
    )


SIMBA_CLAIMS = control_claims("simbav2", SIMBA, SIMBA_HR)
MRQ_CLAIMS = control_claims("mrq", MRQ, MRQ_HR)
PPO_PLOT = Plot("ppo", title="PPO")
PQN_PLOT = Plot("pqn", title="PQN")
SIMBA_PLOTS = tuple(Plot("simbav2", measure) for measure in HEALTH)
MRQ_PLOTS = tuple(Plot("mrq", measure) for measure in HEALTH)
