"""The settings of a run: frozen, typed dataclasses whose fields are explained in --help.

The text below a field is its help on the command line, with the same line breaks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from hadamard.core import discover, remedies, renamed, require, typed
from hadamard.text import unknown

C = TypeVar("C")


@dataclass(frozen=True)
class NetSpec:
    """The network's hidden layers."""

    layer: str = "plain"
    """Layer variant: plain, hadamard (HR), hadamard2 (2HR), widened, crelu, layernorm, glu,
    fourier (Deep Fourier features), hadamax (max-pooled Hadamard convolutions)."""
    activation: str = "relu"
    """Activation of the hidden layers: relu, tanh, elu, gelu, silu, sigmoid, rational (PAU), ...
    fourier and hadamax have their own."""
    norm: Literal["none", "layer", "layer_map"] = "none"
    """Normalization between affine map and activation.
    layer: over the features (of images, over the channels at each position).
    layer_map: over channels, height and width."""
    width: int = 512
    """Width of the last hidden layer, the representation."""
    where: Literal["last", "all", "conv", "linear"] = "last"
    """Hidden layers that the variant and the norm apply to.
    hadamard2 always takes the last two, widened the last one, hadamax all.
    conv and linear: one kind of layer, in algorithms whose encoder distinguishes them; there
    widened matches the parameter count of hadamard in these layers."""


@dataclass(frozen=True)
class TrainSpec:
    """The training loop: how long it is, and what it writes when."""

    steps: int = 10_000_000
    """Agent steps of the whole run (an Atari step is 4 frames)."""
    until: int = 0
    """Stop after this many steps, with the schedules of the whole run; 0 trains all steps.
    Train such a run further with: hadamard train --resume RUN --until N."""
    log_every: int = 10_000
    """Steps between rows of train.jsonl."""
    health_every: int = 100_000
    """Steps between diagnoses of the hidden representations; 0 turns them off.
    A run shorter than this is diagnosed once, at its end."""
    health_samples: int = 2_048
    """Recent observations that a diagnosis uses."""
    health_layers: Literal["last", "all"] = "last"
    """Diagnose the last hidden layer, or all of them (slow for large feature maps)."""
    measures: str = "none"
    """More measures in a diagnosis, names with commas between them or all (see docs/measures.md):
    gradient (norm, gradient-dormant neurons), update (update-to-weight ratio), churn (of policy and
    values), ntk (rank of the tangent kernel). They cost up to a few diagnoses more."""
    checkpoint_every: int = 100_000
    """Steps between checkpoints; 0 saves only at the end and when interrupted."""
    keep_every: int = 0
    """Keep the first checkpoint of every so many steps; 0 keeps the newest two only."""
    greedy_envs: int = 0
    """Additional environments in which the greedy policy plays during training, into eval.jsonl."""
    greedy_call: Literal["auto", "joined", "own"] = "auto"
    """Choose the greedy actions in the same network call as the training actions (joined, which
    not every algorithm can) or in a call of their own.
    auto: joined on a GPU, where every call costs the same, unless environments play in other
    processes, which leave time for a second call."""
    eval_every: int = 0
    """Steps between evaluations, the first before training; 0 turns them off."""
    eval_episodes: int = 10
    """Whole greedy episodes per evaluation, played side by side, into eval.jsonl."""
    eval_workers: int | None = None
    """Processes that play an evaluation, by default as many as in training; 0 uses this one."""
    film_every: int = 0
    """Steps between films of a greedy episode, into the run's films folder; 0 turns them off."""
    atari_reset: Literal["cleanrl", "envpool"] = "cleanrl"
    """Atari only: how a game starts, and how it continues after a lost life.
    cleanrl: 1 to 30 no-ops in a new game, one no-op step after a lost life; then FIRE and the
    action after it for a step each, in games that have FIRE; all stacked frames are the new one.
    envpool: 1 to 30 single frames of no-ops, the last of them FIRE, in both cases; after a lost
    life the stack of frames is kept.
    The learner sees none of these actions."""
    threads: int = 0
    """CPU threads of torch; 0 uses one beside a GPU, and torch's own choice without a GPU.
    1 is fastest if several runs share a machine; a run on its own may be faster with 2."""
    tf32: bool = True
    """On a GPU, multiply matrices in TF32: 10 bits of mantissa, several times faster."""
    conv_search: bool = True
    """On a GPU, let cuDNN time its convolutions at the start and use the fastest.
    Which ones these are, hence rounding, may differ from run to run."""
    capture: bool = True
    """On a GPU, capture learning and acting as CUDA graphs: equal results, fewer launches."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Let torch.compile fuse the small operations of the losses, which takes time at the start.
    auto: on a GPU, where every algorithm gains from it.
    on: on the CPU too, which needs a C++ compiler."""
    learn_ahead: bool = True
    """Make updates that do not need the newest step while that step is played, in algorithms that
    can. Equal results, sooner on a GPU."""
    env_workers: int | None = None
    """Processes that step the environments; 0 steps them in this one.
    By default two per core for several Atari games, and none in the other suites, which are
    fast. Results do not depend on it."""
    emulators: Literal["auto", "cpu", "gpu"] = "auto"
    """Atari only: where its emulators play, with equal observations, rewards and ends.
    auto: on the GPU, if the runs that are trained together can be a fleet there and have many
    environments; else on the CPU. A run keeps what it began with."""
    env_groups: int = 1
    """Groups of environments, one of which is acted on while the others play.
    It pays for on-policy algorithms on Atari, whose environments play in other processes."""
    fleet: Literal["auto", "on", "off"] = "auto"
    """Train runs of one shape as one computation, where the algorithm can (others: off). Their
    games are played on the device, where the suite has such games, or else by processes of the
    fleet. A run keeps the form it began with.
    auto: on a GPU; if processes play, only where several runs are trained together."""
    tensorboard: bool = True
    """Mirror the streams to TensorBoard, if it is installed."""
    wandb: str | None = None
    """Mirror the streams to this Weights & Biases project."""
    trackio: str | None = None
    """Mirror the streams to this Trackio project."""
    mlflow: str | None = None
    """Mirror the streams to this MLflow experiment, at the address MLFLOW_TRACKING_URI."""

    @property
    def horizon(self) -> int:
        """The number of steps after which training stops for now."""
        return self.until or self.steps


@dataclass(frozen=True)
class RunSpec(Generic[C]):
    """All settings of a run."""

    algo: C
    """The algorithm's own settings."""
    env: str = "minatar/breakout"
    """Environment, as suite/task; `hadamard envs` lists them."""
    seed: int = 0
    """Seed of all random numbers of the run."""
    run_dir: str | None = None
    """Folder of the run; by default one under runs/ named after the settings."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto uses a GPU if there is one."""
    init_from: str | None = None
    """Run whose newest weights the networks start from; all else starts anew."""
    net: NetSpec = field(default_factory=NetSpec)
    train: TrainSpec = field(default_factory=TrainSpec)
    remedy: str = "none"
    """Interventions during training: none, or names with commas between them."""
    remedies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    """Settings of the chosen remedies by remedy and name; defaults may be left out."""

    def check(self) -> None:
        """Refuse settings that cannot be trained with; called before anything is built."""
        train = self.train
        require.representable(self)
        require.positive(
            train, "steps", "log_every", "eval_episodes", "env_groups", section="train"
        )
        require.positive(self.net, "width", section="net")
        require.not_negative(self, "seed", section="")
        require.not_negative(
            train,
            "until",
            "health_every",
            "checkpoint_every",
            "keep_every",
            "film_every",
            "greedy_envs",
            "eval_every",
            "eval_workers",
            "threads",
            "env_workers",
            section="train",
        )
        require.at_most(train, 1_024, "threads", section="train")
        for config in remedies.configs(self.remedy, self.remedies).values():
            config.check()
        remedies.check_together(remedies.chosen(self.remedy))
        if train.until > train.steps:
            raise ValueError(
                f"--train.until {train.until} is more than --train.steps {train.steps}: lower "
                "the first, or leave it out to train all steps"
            )
        if hasattr(self.algo, "check"):
            require.positive(self.algo, "num_envs")
            self.algo.check(train)
        if train.eval_every and train.greedy_envs:
            raise ValueError(
                f"--train.eval-every {train.eval_every} and --train.greedy-envs "
                f"{train.greedy_envs} would both write the greedy scores: choose one, with 0 for "
                "the other"
            )
        if train.keep_every and not train.checkpoint_every:
            raise ValueError(
                f"--train.keep-every {train.keep_every} keeps checkpoints, and --train.checkpoint-"
                "every 0 writes none before the end: raise the second, or leave the first out"
            )
        if train.health_samples < 2:
            raise ValueError(
                f"--train.health-samples must be at least 2, got {train.health_samples}: "
                "a density needs samples"
            )
        if 0 < train.health_every < train.health_samples:
            raise ValueError(
                f"--train.health-every {train.health_every} is fewer steps than the "
                f"--train.health-samples {train.health_samples} new observations of a diagnosis: "
                "raise the first, lower the second, or turn the diagnosis off with 0"
            )


@dataclass(frozen=True)
class SeedsSpec(RunSpec[C]):
    """The settings of several runs that differ in their seed only."""

    seeds: int = 1
    """Number of runs to train side by side in this process: --seed and those after it.
    On a GPU their work overlaps; on CPU cores `hadamard sweep` is faster."""

    def runs(self) -> list[RunSpec[C]]:
        """Return each run's settings; several runs get a folder each inside ``run_dir``."""
        require.seeds(self.seeds)
        shared = {f.name: getattr(self, f.name) for f in dataclasses.fields(RunSpec)}
        runs = []
        for seed in range(self.seed, self.seed + self.seeds):
            folder = self.run_dir
            if folder is not None and self.seeds > 1:
                folder = f"{folder}/seed{seed}"
            runs.append(RunSpec[C](**{**shared, "seed": seed, "run_dir": folder}))
        return runs


def to_dict(spec: Any) -> dict[str, Any]:
    """Return a spec as plain values, ready for JSON."""
    return dataclasses.asdict(spec)


def flattened(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested settings by their dotted names, as the command line spells them.

    Examples:
        >>> flattened({"seed": 3, "net": {"width": 128}, "remedies": {"redo": {"tau": 0.1}}})
        {'seed': 3, 'net.width': 128, 'redo.tau': 0.1}
    """
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, "" if name == "remedies" else f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = value
    return flat


def overridden(spec: Any, changes: Mapping[str, Any]) -> Any:
    """Return the spec with dotted fields changed.

    Every name and type is checked; text is read as on the command line.

    Examples:
        >>> overridden(RunSpec(algo=None), {"net.width": 128}).net.width
        128
        >>> overridden(RunSpec(algo=None), {"remedy": "redo", "redo.tau": 0.1}).remedies
        {'redo': {'tau': 0.1, 'period': 1000}}
    """
    if isinstance(spec, RunSpec):
        changes = renamed.settings(changes, warn=True)
        if "remedy" in changes:  # before its settings
            spec = _with_remedies(dataclasses.replace(spec, remedy=changes["remedy"]))
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        if isinstance(spec, RunSpec) and head in spec.remedies:
            value = remedies.checked(head, rest, value)
            settings = {**spec.remedies[head], rest: value}
            spec = dataclasses.replace(spec, remedies={**spec.remedies, head: settings})
            continue
        if isinstance(spec, RunSpec) and head in discover.names(discover.REMEDIES):
            raise ValueError(remedies.not_chosen(head, rest))
        spec = _with_field(spec, name, value, name)
    return spec


def _with_field(spec: Any, name: str, value: Any, place: str) -> Any:
    """Return a dataclass with one dotted field changed; ``place`` is the setting's full name."""
    head, _, rest = name.partition(".")
    kind: Any = type(spec)
    hints = typed.fields(kind)
    section = place.removesuffix(name)
    if head not in hints or (rest and not dataclasses.is_dataclass(getattr(spec, head))):
        known = flattened(to_dict(spec), section)
        raise ValueError(unknown("setting", place, known or [section + field for field in hints]))
    if rest:
        inner = _with_field(getattr(spec, head), rest, value, place)
    elif dataclasses.is_dataclass(getattr(spec, head)) and not dataclasses.is_dataclass(value):
        raise ValueError(
            f"{place} is a section: set its fields, such as {place}.{_first(spec, head)}"
        )
    else:
        inner = typed.setting(value, hints[head], place)
    return dataclasses.replace(spec, **{head: inner})


def _first(spec: Any, section: str) -> str:
    return dataclasses.fields(getattr(spec, section))[0].name


def with_remedy_defaults(spec: RunSpec[C]) -> RunSpec[C]:
    """Return the spec with every setting of its remedies, as a run's config.json has them."""
    filled = remedies.filled(spec.remedy, spec.remedies)
    return spec if filled == spec.remedies else dataclasses.replace(spec, remedies=filled)


def _with_remedies(spec: RunSpec[C]) -> RunSpec[C]:
    """Return the spec with the settings of its remedies alone, the defaults filled in."""
    names = remedies.chosen(spec.remedy)
    kept = {name: values for name, values in spec.remedies.items() if name in names}
    return with_remedy_defaults(dataclasses.replace(spec, remedies=kept))


def from_dict(kind: Any, values: Mapping[str, Any], where: str = "config") -> Any:
    """Rebuild a frozen dataclass from ``to_dict``; unknown fields are errors.

    A missing field has been added since, and its default is how things were before.
    """
    hints = typed.fields(kind)
    values = typed.checked(values, dict[str, Any], where)
    required = {
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    if unknown := sorted(set(values) - set(hints)):
        raise ValueError(f"{where} has fields this version does not know: {', '.join(unknown)}")
    if missing := sorted(required - set(values)):
        raise ValueError(f"{where} lacks {', '.join(missing)}: was it written by another version?")
    built = {}
    for name, value in values.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            built[name] = from_dict(hint, value, f"{where}.{name}")
        else:
            built[name] = typed.checked(value, hint, f"{where}.{name}")
    return kind(**built)


__getattr__ = renamed.names_of(__name__)
