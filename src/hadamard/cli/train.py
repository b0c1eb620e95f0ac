"""`hadamard train`."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any

import tyro

from hadamard.cli.algos import listing
from hadamard.cli.common import UserError, parse, plugin_field, value_of, with_fields
from hadamard.core import discover, remedies
from hadamard.core.config import NetSpec, RunSpec, SeedsSpec
from hadamard.core.discover import ALGORITHMS, LAYERS, REMEDIES
from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED, Stopped, ignore_signals
from hadamard.text import duration, joined
from hadamard.training import fleet, start
from hadamard.training.trainer import Interrupted

CHANGED_PLUGINS = "--changed-plugins"
NO_FLEET = "Train each run as a computation of its own: short for --train.fleet off."


def main(words: list[str]) -> int:
    """Run the command."""
    if not words or words[0] in ("-h", "--help"):
        return _train_help()
    if words[0] == "--resume" or words[0].startswith("--resume="):
        changed = CHANGED_PLUGINS in words
        kept = [word for word in words if word != CHANGED_PLUGINS]
        paths, until = _paths_and_until([kept[0].partition("=")[2], *kept[1:]])
        return _run_training(
            lambda: start.resume_together(paths, until=until, changed_plugins=changed), paths, paths
        )
    algorithm, rest = words[0], words[1:]
    if algorithm.startswith("-"):
        raise UserError(
            "name the algorithm first: hadamard train ALGORITHM [options]; "
            f"the algorithms are {joined(discover.names(ALGORITHMS), 'and')}"
        )
    specs = _spec_of_kind(SeedsSpec, algorithm, rest).runs()
    names = [spec.run_dir or start.default_run_dir(algorithm, spec) for spec in specs]
    new = [name for name in names if not Run(name).exists]
    return _run_training(lambda: start.train_together(algorithm, specs), names, new)


def _paths_and_until(words: Sequence[str]) -> tuple[list[str], int | None]:
    """Return the run folders after --resume, and the number after --until."""
    usage = (
        "usage: hadamard train --resume RUN... [--until N] [--plugin FILE] "
        f"[{CHANGED_PLUGINS}] (a run keeps its other settings)"
    )
    paths: list[str] = []
    until: int | None = None
    rest = iter([word for word in words if word])
    for word in rest:
        name, equals, value = word.partition("=")
        if name == "--until":
            number = value if equals else next(rest, "")
            try:
                until = int(number.replace("_", ""))
            except ValueError:
                raise UserError(f"--until must be a number of steps, got {number!r}") from None
        elif word.startswith("-"):
            raise UserError(usage)
        else:
            paths.append(word)
    if not paths:
        raise UserError(usage)
    return paths, until


def spec_from(algorithm: str, words: Sequence[str]) -> RunSpec[Any]:
    """Return a run's settings: those in the words, and defaults for its algorithm and suite."""
    spec: RunSpec[Any] = _spec_of_kind(RunSpec, algorithm, words)
    return spec


def _spec_of_kind(kind: Any, algorithm: str, words: Sequence[str]) -> Any:
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    remedy = value_of("--remedy", words) or "none"
    configs = remedies.configs(remedy, {})
    _refuse_unused(words, configs)
    default = start.default_spec(algorithm, value_of("--env", words))
    defaults = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    options = _with_remedies(kind[module.Config], configs)
    net_options = dict(options.__annotations__)["net"]
    defaults["net"] = net_options(**dataclasses.asdict(default.net))
    parsed = parse(
        options,
        words,
        f"hadamard train {algorithm}",
        plugins=False,  # they are among the options
        default=options(**{**defaults, **configs, "remedy": remedy}),
        description=module.__doc__,
    )
    values = {field.name: getattr(parsed, field.name) for field in dataclasses.fields(kind)}
    values["net"] = NetSpec(**dataclasses.asdict(parsed.net))
    settings = {name: dataclasses.asdict(getattr(parsed, name)) for name in configs}
    spec = kind(**{**values, "remedies": settings})
    return spec if parsed.fleet else fleet.without(spec)


def _with_remedies(kind: Any, configs: Mapping[str, Any]) -> Any:
    """Return a class of settings that also has each remedy's, such as ``--redo.tau``."""
    help_text = (
        "Interventions during training: none, or names with commas between them, from this list: "
        f"{', '.join(discover.names(REMEDIES))}. --remedy NAME --help shows the remedy's settings."
    )
    net = _net_options()
    fields: list[Any] = [
        ("remedy", Annotated[str, tyro.conf.arg(help=help_text)], "none"),
        ("remedies", Annotated[Any, tyro.conf.Suppress], dataclasses.field(default_factory=dict)),
        (
            "fleet",
            Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help=NO_FLEET)],
            True,
        ),
        ("net", net, dataclasses.field(default_factory=net)),
        plugin_field(),
    ]
    fields += [(name, type(config), config) for name, config in configs.items()]
    return with_fields(kind, fields)


def _net_options() -> Any:
    """Return the class of the network's settings, whose help lists all layer variants."""
    others = [name for name in discover.names(LAYERS) if name not in _LAYERS]
    help_text = f"Layer variant: {', '.join([*_LAYERS.values(), *others])}."
    layer = Annotated[str, tyro.conf.arg(help=help_text)]
    return with_fields(NetSpec, [("layer", layer, NetSpec.layer)])


_LAYERS = {"plain": "plain", "hadamard": "hadamard (HR)", "hadamard2": "hadamard2 (2HR)"}
"""How the help writes the layer variants that it lists first."""


def _refuse_unused(words: Sequence[str], chosen: Collection[str]) -> None:
    """Refuse settings of remedies that are not chosen."""
    for word in words:
        section, dot, setting = word.partition("=")[0].removeprefix("--").partition(".")
        section = section.replace("-", "_")
        if dot and section in discover.names(REMEDIES) and section not in chosen:
            raise UserError(remedies.not_chosen(section, setting))


def _run_training(
    work: Callable[[], list[dict[str, Any]]], names: Sequence[str], own: Sequence[str]
) -> int:
    """Train, and print how it ended; ``own`` are the folders of this command, to be continued."""
    try:
        summaries = work()
    except Interrupted as stopped:
        print(f"stopped and saved; {_continue_with(stopped.args)}")
        return INTERRUPTED
    except Stopped:
        runs = [name for name in own if Run(name).exists]
        if not runs:
            raise
        ignore_signals()
        finished = [summary for name in names if (summary := Run(name).done) is not None]
        if len(finished) < len(names):
            print(f"stopped: nothing new to save; {_continue_with(runs)}")
            return INTERRUPTED
        summaries = finished
    for name, summary in zip(names, summaries, strict=True):
        score, greedy = summary["score"], summary["greedy_score"]
        result = "no episode ended" if score is None else f"score {score:.2f} (last 100 episodes)"
        result += "" if greedy is None else f", greedy {greedy:.2f}"
        run = f"{name}: " if len(names) > 1 else ""
        print(f"{run}done: {summary['steps']:,} steps, {result}, {duration(summary['seconds'])}")
    return 0


def _continue_with(names: Sequence[str]) -> str:
    return f"continue with: hadamard train --resume {shlex.join(names)}"


def _train_help() -> int:
    print(
        "usage: hadamard train ALGORITHM [options]\n"
        "       hadamard train ALGORITHM --seeds 5 [options]\n"
        "       hadamard train --resume RUN... [--until N] [--plugin FILE] [--changed-plugins]\n"
    )
    print(textwrap.indent(listing(ALGORITHMS), "  "))
    print("\nRemedies (--remedy NAME; --remedy NAME --help shows a remedy's own options):\n")
    print(textwrap.indent(listing(REMEDIES), "  "))
    print("\nLayer variants (--net.layer NAME):\n")
    print(textwrap.indent(listing(LAYERS), "  "))
    print(
        "\nA resumed run needs the plugins that it was trained with. If one has changed since, "
        f"{CHANGED_PLUGINS}\nsays that it may; the run records both checksums."
        "\n\nhadamard train ALGORITHM --help also shows the algorithm's own options (--algo.*) and "
        f"its\ndefaults. SIGTERM, SIGINT and SIGHUP save and exit with code {INTERRUPTED}. Options "
        "of every algorithm:\n"
    )

    without_algorithm = [("algo", Annotated[Any, tyro.conf.Suppress], None)]
    settings = _with_remedies(SeedsSpec[Any], {})
    shared = dataclasses.make_dataclass("Shared", without_algorithm, bases=(settings,), frozen=True)
    with contextlib.suppress(SystemExit):
        parse(shared, ["--help"], "hadamard train ALGORITHM", plugins=False, description="")
    return 0
