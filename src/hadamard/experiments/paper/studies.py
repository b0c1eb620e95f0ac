"""Experiments of our own, beyond the paper: what its readers ask next.

They are described, trained and drawn as those of the paper. The scale "paper" is their full size.
"""

from __future__ import annotations

from hadamard.core import discover
from hadamard.experiments.paper.model import Arm, Experiment, Panel
from hadamard.experiments.paper.tasks import MINATAR_5

_NETWORKS = {"relu": "ReLU", "tanh+hr": "tanh + HR"}
_EVERY_LAYER_NORMED = {"net.norm": "layer", "net.where": "all"}


def _remedy_arms(algorithm: str) -> tuple[Arm, ...]:
    """Return both networks without a remedy, then with each.

    NaP needs a norm in every hidden layer. PQN's networks have it; DQN's get it, and are trained
    with the norm alone as well.
    """
    arms = []
    for number, (variant, label) in enumerate(_NETWORKS.items()):
        arms.append(Arm(label, variant, style=number))
        if algorithm == "dqn":
            norm = f"{label} + LayerNorm"
            arms.append(Arm(norm, variant, _EVERY_LAYER_NORMED, number))
        for remedy in discover.names(discover.REMEDIES, installed=False):
            title = discover.title(discover.REMEDIES, remedy)
            normed = _EVERY_LAYER_NORMED if (algorithm, remedy) == ("dqn", "nap") else {}
            words = f"LayerNorm + {title}" if normed else title
            arms.append(Arm(f"{label} + {words}", f"{variant}+{remedy}", normed, number))
    return tuple(arms)


def _remedies(algorithm: str, steps: int) -> Panel:
    """Return a panel on MinAtar's games with twenty diagnoses of each run."""
    overrides = {
        "train.threads": 1,
        "train.tensorboard": False,
        "train.log_every": steps // 100,
        "train.health_every": steps // 20,
        "train.checkpoint_every": steps // 5,
        "train.keep_every": 2 * (steps // 5),
    }
    return Panel(
        algorithm,
        MINATAR_5,
        5,
        steps,
        "baseline_min_max",
        ("mean",),
        _remedy_arms(algorithm),
        overrides=overrides,
    )


_REMEDY_PANELS = (_remedies("pqn", 5_000_000), _remedies("dqn", 1_000_000))

STUDIES: dict[str, Experiment] = {
    study.name: study
    for study in (
        Experiment(
            name="remedies",
            place="Remedies",
            anchor="",
            shows="every remedy with ReLU and with tanh + HR: which of them helps?",
            composition="additions",
            panels=_REMEDY_PANELS,
            note="Every remedy has its default settings, which are not tuned for these games, and "
            "is compared with the same network without it. Scores: normalized by the lowest and "
            "highest score of all ReLU runs over training. NaP needs a norm in every hidden layer, "
            "which PQN's networks have; DQN's get it, so NaP is compared with that. Of so many "
            "comparisons about one in twenty shows a difference by chance.",
            ours=True,
        ),
        Experiment(
            name="measures",
            place="Measures",
            anchor="",
            shows="which measure of a network predicts what it learns afterwards?",
            composition="predictors",
            panels=_REMEDY_PANELS,
            note="The runs are those of remedies. The networks of their kept checkpoints are "
            "measured on observations of their own play, get a new last layer that is drawn alike "
            "for all, and are fine-tuned with Adam: on the sine of a random projection of these "
            "observations, and on the discounted returns of random play of another game, whose "
            "observations are padded with empty channels. The gradient's measures are those of a "
            "regression to targets one unit away in random directions; churn is that of one such "
            "step, a ten-thousandth of the weights' norm long. The update-to-weight ratio is that "
            "of training, where runs recorded it (--train.measures update). Thirteen measures are "
            "compared on two targets and two algorithms: of so many intervals one in twenty "
            "misses 0 by chance. Few games make the intervals too narrow rather than too wide.",
            ours=True,
            relearns=True,
        ),
    )
}
"""By name."""
