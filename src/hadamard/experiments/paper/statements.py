"""What the paper states beyond what runs can decide: theory, conditions, other methods' curves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """A sentence of the paper that no verdict is computed for."""

    text: str
    """In our words."""
    where: str
    instead: str
    """What stands in a verdict's place: why there is none, and what was done about it."""
    tests: tuple[str, ...] = ()
    """Files of the tests that hold it, from the repository's root."""


STATEMENTS = (
    Statement(
        "dormant neurons that are stuck at a nonzero value act as a bias of the next layer",
        "Theorem 4.1",
        "Algebra. The parts of a layer's output add up in the tests; how large the hidden bias "
        "becomes in training is claimed by Figure 4.",
        ("tests/health/test_bias.py",),
    ),
    Statement(
        "a dormant ReLU contributes nothing",
        "Section 4.1",
        "Follows from the definition.",
        ("tests/health/test_bias.py",),
    ),
    Statement(
        "with independent branches a tanh product is dormant with p^2, a ReLU product with "
        "2p - p^2",
        "Section 4.2",
        "Probability, simulated in the tests. Whether trained branches are independent is claimed "
        "by Table 1.",
        ("tests/test_theory.py",),
    ),
    Statement(
        "HR has a richer function class at the same width",
        "Section 4.2",
        "A statement about functions; its effect is claimed as a higher effective rank.",
    ),
    Statement(
        "saturation resistance decides where dormancy is high, expressiveness where it is low",
        "Section 4.2",
        "A reading of all results together; the rows above are what it rests on.",
    ),
    Statement(
        "dormancy is high in DQN and PPO on Atari",
        "Section 4.2",
        "DQN's is stated in Table 1 and judged above; of PPO's no number is stated.",
    ),
    Statement(
        "no hyperparameter is tuned for HR",
        "Section 5",
        "True of the runs here by construction: at the paper's scale arms differ in their variant "
        "alone.",
        ("tests/experiments/test_paper.py",),
    ),
    Statement(
        "on the three visual humanoid tasks the usual budget is too short to tell methods apart",
        "Section 5.2",
        "The reason that the paper gives for five times the budget (Figure 9); no claim is judged.",
    ),
    Statement(
        "MR.Q + HR is on a par with XQC, and DrQ-v2 does not learn",
        "Section 5.2, Figure 9",
        "Nothing was run: their curves are other work's. `hadamard reproduce fig-visual-humanoid "
        "--curves FILE` draws them beside ours.",
    ),
    Statement(
        "VideoPinball dominates the human-normalized score of the eight games",
        "Appendix, Figure 13",
        "A property of the table of human scores (16,257 for a random policy, 17,668 for a human).",
    ),
)
"""In the order of the paper."""
