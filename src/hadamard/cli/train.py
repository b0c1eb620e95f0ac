"""`hadamard train`."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from hadamard.cli.algos import listing
from hadamard.cli.common import UserError, parse, plugin_field, value_of, with_fields
from hadamard.core import discover, remedies, settings
from hadamard.core.config import NetSpec, RunSpec, SeedsSpec
from hadamard.core.discover import ALGORITHMS, LAYERS, REMEDIES
from hadamard.core.identity import without_unused
from hadamard.core.run import Run
from hadamard.core.stopping import INTERRUPTED, Stopped, ignore_signals
from hadamard.text import duration, joined
from hadamard.training import fleet, start
from hadamard.training.outcomes import Interrupted

CHANGED_PLUGINS = "--changed-plugins"
CONFIG = "A file of settings (.yaml, .yml or .json), or a run's config.json; options override it."
OVERWRITE = "Remove a run that is in the folder already, and train anew."
NO_FLEET = "Train each run as a computation of its own: short for --train.fleet off."


def main(words: list[str]) -> int:
    """Run the command."""
    if not words or words[0] in ("-h", "--help"):
        return _train_help()
    if words[0] == "--resume" or words[0].startswith("--resume="):
        changed = CHANGED_PLUGINS in words
        kept = [word for word in words if word != CHANGED_PLUGINS]
        paths, numbers = _paths_and_numbers([kept[0].partition("=")[2], *kept[1:]])

        def go_on() -> list[dict[str, Any]]:
            return start.resume_together(paths, **numbers, changed_plugins=changed)

        return _run_training(go_on, paths, paths)
    algorithm, rest = words[0], words[1:]
    if algorithm.startswith("-"):
        algorithm, rest = _config_file(words).algorithm or "", words
    if not algorithm:
        raise UserError(
            "name the algorithm first: hadamard train ALGORITHM [options]; "
            f"the algorithms are {joined(discover.names(ALGORITHMS), 'and')}"
        )
    request, overwrite = _spec_of_kind(SeedsSpec, algorithm, rest)
    specs = request.runs()
    names = [spec.run_dir or start.default_run_dir(algorithm, spec) for spec in specs]
    new = [name for name in names if not Run(name).exists]

    def work() -> list[dict[str, Any]]:
        return start.train_together(algorithm, specs, overwrite=overwrite)

    return _run_training(work, names, new)


def _paths_and_numbers(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the run folders after --resume, and the numbers after --until and --train.steps."""
    usage = (
        "usage: hadamard train --resume RUN... [--until N] [--train.steps N] [--plugin FILE] "
        f"[{CHANGED_PLUGINS}] (a run keeps its other settings)"
    )
    paths: list[str] = []
    numbers: dict[str, Any] = {}
    rest = iter([word for word in words if word])
    for word in rest:
        name, equals, value = word.partition("=")
        if name in ("--until", "--train.steps"):
            number = value if equals else next(rest, "")
            try:
                numbers[name.rpartition(".")[2].strip("-")] = int(number.replace("_", ""))
            except ValueError:
                raise UserError(f"{name} must be a number of steps, got {number!r}") from None
        elif word.startswith("-"):
            raise UserError(usage)
        else:
            paths.append(word)
    if not paths:
        raise UserError(usage)
    return paths, numbers


def spec_from(algorithm: str, words: Sequence[str]) -> RunSpec[Any]:
    """Return a run's settings: those in the words, and defaults for its algorithm and suite."""
    spec, overwrite = _spec_of_kind(RunSpec, algorithm, words)
    if overwrite:
        raise UserError("--overwrite is an option of hadamard train alone")
    result: RunSpec[Any] = spec
    return result


def _config_file(words: Sequence[str]) -> settings.ConfigFile:
    """Read the file that --config names, if it is given."""
    if sum(word.partition("=")[0] == "--config" for word in words) > 1:
        raise UserError("--config is given twice: put all settings into one file")
    path = value_of("--config", words)
    return settings_of_file(path) if path is not None else settings.ConfigFile(None, {})


def settings_of_file(path: str | Path) -> settings.ConfigFile:
    """Read the file after --config."""
    try:
        return settings.read(path)
    except ValueError as error:
        raise UserError(f"--config: {error}") from None


def default_with_file(algorithm: str, words: Sequence[str]) -> RunSpec[Any]:
    """Return an algorithm's defaults for the environment, changed by the file after --config."""
    file = _config_file(words)
    algorithm = file.named(algorithm, value_of("--config", words) or "")
    if sum(word.partition("=")[0] == "--remedy" for word in words) > 1:
        raise UserError("--remedy is given twice: put commas between the names")
    remedy = value_of("--remedy", words) or file.settings.get("remedy", "none")
    env = value_of("--env", words) or file.settings.get("env")
    if env is not None and not isinstance(env, str):
        raise UserError(f"env must be a text, got {env!r}")
    changes = without_unused({**file.settings, "remedy": remedy})
    if env is not None:
        changes["env"] = env
    return settings.changed(start.default_spec(algorithm, env), changes)


def _spec_of_kind(kind: Any, algorithm: str, words: Sequence[str]) -> tuple[Any, bool]:
    """Return the settings, and whether an earlier run in the folder is to be replaced."""
    module = discover.find(ALGORITHMS, algorithm, "algorithm")
    default = default_with_file(algorithm, words)
    remedy = default.remedy
    configs = remedies.configs(remedy, default.remedies)
    _refuse_unused(words, configs)
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
    own = {name: dataclasses.asdict(getattr(parsed, name)) for name in configs}
    spec = kind(**{**values, "remedies": own})
    return spec if parsed.fleet else fleet.without(spec), parsed.overwrite


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
        ("config", Annotated[Path | None, tyro.conf.arg(help=CONFIG)], None),
        (
            "overwrite",
            Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help=OVERWRITE)],
            False,
        ),
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
        score, greedy, seconds = map(summary.get, ("score", "greedy_score", "seconds"))
        result = "no episode ended" if score is None else f"score {score:.2f} (last 100 episodes)"
        result += "" if greedy is None else f", greedy {greedy:.2f}"
        run = f"{name}: " if len(names) > 1 else ""
        result += "" if seconds is None else f", {duration(seconds)}"
        print(f"{run}done: {summary['steps']:,} steps, {result}")
    return 0


def _continue_with(names: Sequence[str]) -> str:
    return f"continue with: hadamard train --resume {shlex.join(names)}"


def _train_help() -> int:
    print(
        "usage: hadamard train ALGORITHM [options]\n"
        "       hadamard train ALGORITHM --seeds 5 [options]\n"
        "       hadamard train --config FILE [options]\n"
        "       hadamard train --resume RUN... [--until N] [--train.steps N] [--plugin FILE]\n"
        "           [--changed-plugins]\n"
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
    options = _with_remedies(SeedsSpec[Any], {})
    shared = dataclasses.make_dataclass("Shared", without_algorithm, bases=(options,), frozen=True)
    with contextlib.suppress(SystemExit):
        parse(shared, ["--help"], "hadamard train ALGORITHM", plugins=False, description="")
    return 0
