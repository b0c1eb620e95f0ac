"""`hadamard sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from hadamard import envs
from hadamard.cli.common import UserError, parse, with_fields
from hadamard.cli.train import settings_of_file, spec_from
from hadamard.core import discover, settings
from hadamard.core.config import RunSpec, flattened, overridden
from hadamard.core.identity import VARIANTS, parts, variant
from hadamard.core.remedies import chosen as remedy_names
from hadamard.experiments import grid
from hadamard.experiments.grid import Job
from hadamard.experiments.sweep import Options, fleets, launch, queue
from hadamard.experiments.sweep.launchers import checked_jobs
from hadamard.experiments.sweep.status import run_state


@dataclass(frozen=True)
class _Sweep:
    """Train every variant on every environment with every seed, several runs at a time.

    Finished runs are skipped, interrupted ones resumed, failed ones tried again. Options after a
    lone -- go to every run: hadamard sweep dqn --seeds 3 -- --train.steps 200000

    Before it a setting may have several values, each of which is tried with every variant:
    hadamard sweep dqn --algo.learning-rate 1e-3,3e-4 --algo.batch-size 32,64
    """

    algorithm: tyro.conf.Positional[str]
    """The algorithm."""
    options: Annotated[Options, tyro.conf.arg(name=""), tyro.conf.FlagCreatePairsOff]
    envs: str | None = None
    """Environments, with commas between them; by default that of --config, or minatar/breakout."""
    config: Path | None = None
    """A file of settings of every run (.yaml, .yml or .json), or a run's config.json.
    Variants change them; the variant baseline is the file as it is."""
    variants: str = "relu,tanh,tanh+hr"
    """Variants, with commas between them."""
    seeds: str = "5"
    """A number of seeds (5), a range (5-9) or a list (3,7)."""
    folder: Path | None = None
    """Folder for the run folders; by default runs/ALGORITHM."""
    dry_run: bool = False
    """Only print the grid and the state of each run."""


def main(words: list[str]) -> int:
    """Run the command."""
    cut = words.index("--") if "--" in words else len(words)
    flags = words[cut + 1 :]
    own, axes = _without_axes(words[:cut])
    request = parse(_with_variants(), own, "hadamard sweep")
    variants = {name: variant(name) for name in request.variants.split(",")}
    file = settings_of_file(request.config) if request.config else settings.ConfigFile(None, {})
    environments = str(request.envs or file.settings.get("env", "minatar/breakout")).split(",")
    _refuse_conflicts(flags, variants, file.settings, axes)
    if request.config:
        flags = ["--config", str(request.config), *flags]
    # The variants' remedies are chosen here, so that the flags may contain their settings.
    chosen = [name for v in variants.values() for name in remedy_names(v.get("remedy", "none"))]
    remedies = ",".join(dict.fromkeys(chosen))
    remedy_flags = ["--remedy", remedies] if remedies else []

    def spec_on(env: str) -> RunSpec[Any]:
        return spec_from(request.algorithm, ["--env", env, *remedy_flags, *flags])

    def without_remedies(env: str) -> RunSpec[Any]:
        spec: RunSpec[Any] = overridden(spec_on(env), {"remedy": "none"})
        return spec

    jobs = grid.grid(
        request.algorithm,
        environments,
        request.variants.split(","),
        grid.seeds_from(request.seeds),
        request.folder or Path("runs") / request.algorithm,
        overrides=flattened(spec_on(environments[0]).remedies) if remedies else None,
        base=without_remedies if remedies else spec_on,
        axes=axes,
    )
    for env in environments:
        envs.make(env, 0, 1).close()  # a wrong name is an error here, not in every run
    if request.dry_run:
        checked = checked_jobs(jobs, request.options)
        print("\n".join(f"{run_state(job):<12}{job.path}" for job in jobs))
        print(f"{len(jobs)} runs of {jobs[0].spec.train.horizon:,} steps")
        print(_fleets(checked, request.options), end="")
        return 0
    summary = launch(jobs, request.options)
    print(summary)
    return summary.exit_code


def _with_variants() -> Any:
    """Return the class of the options, whose help lists all variants."""
    words = ", ".join(name for name in parts() if name not in VARIANTS)
    help_text = (
        f"Some of {', '.join(VARIANTS)}; or what you join with +, such as an activation and a "
        f"layer, from these: {words}."
    )
    field = Annotated[str, tyro.conf.arg(help=help_text)]
    kind = with_fields(_Sweep, [("variants", field, _Sweep.variants)])
    kind.__doc__ = _Sweep.__doc__
    return kind


def _fleets(jobs: Sequence[Job], options: Options) -> str:
    """Return a line on the fleets that the unfinished runs are trained in on this machine."""
    unfinished = [job for job in jobs if not job.finished]
    if options.launcher != "local" or not unfinished:
        return ""
    count = len(queue.slots(unfinished, options))
    text = fleets.in_words(queue.groups(unfinished, options, count))
    return text and f"{text}\n"


def _without_axes(words: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Separate settings, which may have several values, from the sweep's own options."""
    sections = ("algo", "net", "train", *discover.names(discover.REMEDIES))
    own: list[str] = []
    axes: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        section, dot, _ = flag.removeprefix("--").partition(".")
        if not (flag.startswith("--") and dot and section.replace("-", "_") in sections):
            own.append(word)
            continue
        value = value if equals else next(rest, "")
        if not value or value.startswith("--"):
            raise UserError(f"{flag} needs a value, or several with commas between them")
        name = flag[2:].replace("-", "_")
        if name in axes:
            raise UserError(f"{flag} is given twice: put commas between its values")
        axes[name] = value.split(",")
    return own, axes


def _refuse_conflicts(
    flags: Sequence[str],
    variants: Mapping[str, Mapping[str, Any]],
    file: Mapping[str, Any],
    axes: Mapping[str, Sequence[str]],
) -> None:
    """Refuse flags for settings that the sweep or one of its variants sets."""
    owners = {f"{name}": f"--{name.replace('_', '-')} before the --" for name in axes}
    owners |= dict.fromkeys(("env", "seed", "run_dir", "config"), "the sweep")
    if file.get("remedy", "none") != "none":
        for name, changes in variants.items():
            if "remedy" in changes:
                raise UserError(
                    f"the remedy of --config is {file['remedy']}, and the variant {name} sets "
                    "another: leave one of them out"
                )
    owners |= {field: f"the variant {name}" for name in variants for field in variants[name]}
    names = {flag.partition("=")[0] for flag in flags}
    for field, owner in owners.items():
        flag = f"--{field.replace('_', '-')}"
        if flag in names:
            raise UserError(f"{flag} is set by {owner}: leave it out after --")
