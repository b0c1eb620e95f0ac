"""The settings every run shares. Frozen, typed, and every field explains itself in --help.

An explanation of several lines is shown in these lines.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

C = TypeVar("C")


@dataclass(frozen=True)
class NetSpec:
    """The network's hidden layers."""

    layer: str = "plain"
    """Layer variant: plain, hadamard (HR), hadamard2 (2HR), widened, crelu, layernorm."""
    activation: str = "relu"
    """Activation of the hidden layers: relu, tanh, elu, gelu, silu, sigmoid, ..."""
    norm: Literal["none", "layer", "layer_map"] = "none"
    """Normalisation between affine map and activation.
    layer: over the features (of images, over the channels at each position).
    layer_map: over channels, height and width."""
    width: int = 512
    """Width of the last hidden layer, the representation."""
    where: Literal["last", "all", "conv", "linear"] = "last"
    """Which hidden layers the variant and the norm apply to.
    hadamard2 always takes the last two, widened the last one.
    conv and linear are mrq's: one kind of layer of its state encoder.
    Its widened has the weight count of hadamard in the layers named here."""


@dataclass(frozen=True)
class TrainSpec:
    """The loop: how long, and what is written when."""

    steps: int = 10_000_000
    """Agent steps in all (an Atari step is 4 frames)."""
    until: int = 0
    """Stop after this many of them, with the schedules of all; 0 trains all.
    Such a run is carried on by: hadamard train --resume RUN --until N."""
    log_every: int = 10_000
    """Steps between rows of train.jsonl."""
    health_every: int = 100_000
    """Steps between diagnoses of the hidden representations; 0 turns them off.
    A shorter run has one at its end."""
    health_samples: int = 2_048
    """Recent observations a diagnosis runs on."""
    health_layers: Literal["last", "all"] = "last"
    """Diagnose the last hidden layer, or all of them (slow for large feature maps)."""
    checkpoint_every: int = 100_000
    """Steps between checkpoints; 0 saves only at the end and when interrupted."""
    greedy_envs: int = 0
    """Further environments in which the greedy policy plays along, into eval.jsonl."""
    greedy_call: Literal["auto", "joined", "own"] = "auto"
    """Act on them in one call together with those of training (pqn), or in a call of their own.
    auto: joined on a GPU, where every call costs the same, unless environments play in other
    processes: then there is time for a call of their own."""
    eval_every: int = 0
    """Steps between evaluations, the first before training; 0 makes none."""
    eval_episodes: int = 10
    """Whole greedy episodes of an evaluation, played at once, into eval.jsonl."""
    eval_workers: int | None = None
    """Processes to play an evaluation in, chosen as those of training; 0 plays it in this one."""
    atari_reset: Literal["cleanrl", "envpool"] = "cleanrl"
    """Atari only: how a game begins and how it goes on after a lost life.
    cleanrl: 1 to 30 no-ops in a new game, one no-op step after a lost life; then FIRE and the
    action after it for a step each, where the game has FIRE; a stack of the new first frame.
    envpool: 1 to 30 single frames of no-ops, the last of them FIRE, in both cases; after a lost
    life the stack goes on.
    The learner sees none of these actions."""
    threads: int = 0
    """CPU threads for torch; 0 takes one beside a GPU, and else leaves it to torch.
    With 1, runs that share a machine are fastest; a run that has it to itself may be with 2."""
    tf32: bool = True
    """On a GPU, multiply matrices in TF32: 10 bits of mantissa, several times faster."""
    conv_search: bool = True
    """On a GPU, let cuDNN time its convolutions at the start and take the fastest.
    Which those are may differ from run to run, and their rounding with them."""
    capture: bool = True
    """On a GPU, capture learning and acting as CUDA graphs: the same, launched at once."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Let torch.compile join the small operations of the losses, which takes time at first.
    auto: on a GPU, where it pays in every algorithm.
    on: on the CPU too, which needs a C++ compiler."""
    learn_ahead: bool = True
    """Where an update needs nothing of the newest step, make it while that step is played.
    The same results, sooner on a GPU (dqn; the other algorithms learn from every newest step)."""
    env_workers: int | None = None
    """Processes to step the environments in; 0 steps them in this one.
    By default two for each core for several Atari games, and none in the other suites, which are
    fast. Results do not depend on it."""
    env_groups: int = 1
    """Groups of environments, of which one is acted on while the others play.
    It pays where environments play in the background (pqn and ppo on Atari: 2)."""
    tensorboard: bool = True
    """Mirror the streams to TensorBoard, if it is installed."""
    wandb: str | None = None
    """Mirror the streams to this Weights & Biases project."""

    @property
    def horizon(self) -> int:
        """The steps after which training stops for now."""
        return self.until or self.steps


@dataclass(frozen=True)
class RedoSpec:
    """ReDo: recycle dormant neurons while training (off unless asked for)."""

    enabled: bool = False
    """Recycle neurons whose share of the layer's mean activation is at most tau."""
    tau: float = 0.025
    """Threshold on a neuron's mean absolute activation relative to its layer's mean."""
    period: int = 1_000
    """Gradient updates between recyclings."""


@dataclass(frozen=True)
class RunSpec(Generic[C]):
    """Everything a run is made from."""

    algo: C
    """The algorithm's own settings."""
    env: str = "minatar/breakout"
    """Environment, as suite/task; `hadamard envs` lists them."""
    seed: int = 0
    """Seed of everything random in the run."""
    run_dir: str | None = None
    """Folder of the run; by default one under runs/ named after the settings."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."""
    net: NetSpec = field(default_factory=NetSpec)
    train: TrainSpec = field(default_factory=TrainSpec)
    redo: RedoSpec = field(default_factory=RedoSpec)

    def check(self) -> None:
        """Refuse settings no run can be made from; called before anything is built."""
        positive = {
            "train.steps": self.train.steps,
            "train.log-every": self.train.log_every,
            "train.eval-episodes": self.train.eval_episodes,
            "train.env-groups": self.train.env_groups,
            "net.width": self.net.width,
            "redo.period": self.redo.period,
        }
        for name, value in positive.items():
            if value < 1:
                raise ValueError(f"--{name} must be at least 1, got {value}")
        not_negative = {
            "seed": self.seed,
            "train.until": self.train.until,
            "train.health-every": self.train.health_every,
            "train.checkpoint-every": self.train.checkpoint_every,
            "train.greedy-envs": self.train.greedy_envs,
            "train.eval-every": self.train.eval_every,
            "train.eval-workers": self.train.eval_workers or 0,
            "train.threads": self.train.threads,
            "train.env-workers": self.train.env_workers or 0,
            "redo.tau": self.redo.tau,
        }
        for name, number in not_negative.items():
            if number < 0:
                raise ValueError(f"--{name} must not be negative, got {number}")
        if self.train.until > self.train.steps:
            raise ValueError(
                f"--train.until {self.train.until} is beyond --train.steps {self.train.steps}: "
                "lower the first, or leave it out to train all steps"
            )
        self._check_ranges()
        for name in ("learning_starts", "random_steps"):  # as the algorithm calls it
            first = getattr(self.algo, name, 0)
            if self.train.steps <= first:
                raise ValueError(
                    f"--train.steps {self.train.steps} ends before anything is learned: --algo."
                    f"{name.replace('_', '-')} is {first}. Raise the first or lower the second"
                )
        if self.train.eval_every and self.train.greedy_envs:
            raise ValueError(
                f"--train.eval-every {self.train.eval_every} and --train.greedy-envs "
                f"{self.train.greedy_envs} would both write the greedy scores: choose one, with 0 "
                "for the other"
            )
        if self.train.health_samples < 2:
            raise ValueError(
                f"--train.health-samples must be at least 2, got {self.train.health_samples}: "
                "a density needs samples"
            )
        if 0 < self.train.health_every < self.train.health_samples:
            raise ValueError(
                f"--train.health-every {self.train.health_every} leaves no room for "
                f"--train.health-samples {self.train.health_samples} new observations: raise the "
                "first, lower the second, or turn the diagnosis off with 0"
            )

    def _check_ranges(self) -> None:
        """Refuse numbers of the algorithm's that lie where they mean nothing."""
        for name in ("gamma", "lambda_", "gae_lambda", "tau", *_EPSILONS):
            value = getattr(self.algo, name, None)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"--algo.{_flag(name)} must lie in [0, 1], got {value:g}")
        for name in ("max_grad_norm", "clip"):
            size: float = getattr(self.algo, name, 1.0)
            if not size > 0:
                raise ValueError(f"--algo.{_flag(name)} must be above 0, got {size:g}")
        for name in ("learning_starts", "random_steps"):
            steps: int = getattr(self.algo, name, 0)
            if steps < 0:
                raise ValueError(f"--algo.{_flag(name)} must not be negative, got {steps}")


_EPSILONS = ("epsilon_initial", "epsilon_final", "epsilon_fraction")


def _flag(name: str) -> str:
    return name if name.endswith("_") else name.replace("_", "-")  # as the command line has them


@dataclass(frozen=True)
class SeedsSpec(RunSpec[C]):
    """Everything that several runs are made from which differ in their seed alone."""

    seeds: int = 1
    """How many runs to train side by side in this process: --seed and those after it.
    On a GPU their work overlaps; on CPU cores `hadamard sweep` is faster."""

    def runs(self) -> list[RunSpec[C]]:
        """Return the runs; where a folder is named, each of several has its own inside."""
        if self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}")
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(RunSpec)}
        runs = []
        for seed in range(self.seed, self.seed + self.seeds):
            folder = self.run_dir
            if folder is not None and self.seeds > 1:
                folder = f"{folder}/seed{seed}"
            runs.append(RunSpec[C](**{**shared, "seed": seed, "run_dir": folder}))
        return runs


def require_positive(config: Any, *names: str) -> None:
    """Refuse an algorithm's settings that must be at least 1 and are not."""
    for name in names:
        value = getattr(config, name)
        if value < 1:
            flag = name.replace("_", "-")
            raise ValueError(f"--algo.{flag} must be at least 1, got {value}")


def to_dict(spec: Any) -> dict[str, Any]:
    """Return a spec as plain values, ready for JSON."""
    return dataclasses.asdict(spec)


def flattened(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted names.

    Examples:
        >>> flattened({"seed": 3, "net": {"width": 128}})
        {'seed': 3, 'net.width': 128}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        inner = flattened(value, f"{before}{name}.") if isinstance(value, Mapping) else None
        found |= {f"{before}{name}": value} if inner is None else inner
    return found


def overridden(spec: Any, changes: Mapping[str, Any]) -> Any:
    """Return the spec with dotted fields changed.

    Examples:
        >>> overridden(RunSpec(algo=None), {"net.width": 128}).net.width
        128
    """
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        if not hasattr(spec, head):
            known = ", ".join(f.name for f in dataclasses.fields(spec))
            raise ValueError(f"{type(spec).__name__} has no field {head!r}; it has: {known}")
        inner = overridden(getattr(spec, head), {rest: value}) if rest else value
        spec = dataclasses.replace(spec, **{head: inner})
    return spec


RETIRED: dict[str, frozenset[str]] = {
    # Every Atari run resumes exactly now.
    "TrainSpec": frozenset({"exact_resume"}),
}
"""Settings of earlier versions, by the class that held them, that may be left out of a run's."""


def from_dict(kind: Any, values: Mapping[str, Any], where: str = "config") -> Any:
    """Rebuild a frozen dataclass from ``to_dict``; unknown fields are errors.

    A field that is missing was added since, and its default is how things were before. Fields
    that are ``RETIRED`` are left out.
    """
    retired = RETIRED.get(kind.__name__, frozenset())
    values = {name: value for name, value in values.items() if name not in retired}
    hints = typing.get_type_hints(kind)
    names = {f.name for f in dataclasses.fields(kind)}
    needed = {
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    if unknown := sorted(set(values) - names):
        raise ValueError(f"{where} has fields this version does not know: {', '.join(unknown)}")
    if absent := sorted(needed - set(values)):
        raise ValueError(f"{where} lacks {', '.join(absent)}: was it written by another version?")
    built = {}
    for name, value in values.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            value = from_dict(hint, value, f"{where}.{name}")
        elif typing.get_origin(hint) is tuple and isinstance(value, list):
            value = tuple(value)
        built[name] = value
    return kind(**built)
