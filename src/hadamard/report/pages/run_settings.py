"""The settings of runs, and the commands that repeat them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hadamard.core.config import flattened
from hadamard.core.identity import PLACE
from hadamard.core.plugin_records import described
from hadamard.report.data.run_data import RunData
from hadamard.report.data.sections import Section
from hadamard.report.draw.plain_text import escape
from hadamard.report.pages.document import columns_html, terms_html

# The settings of the training loop that change the results.
_TRAIN = (
    "train.steps", "train.until", "train.health_every", "train.health_samples",
    "train.greedy_envs", "train.eval_every",
)  # fmt: skip


DefaultOf = Callable[[str, str], Mapping[str, Any]]
"""Returns the default spec of an algorithm on an environment, as a run's config has it."""


def default_settings(
    default_of: DefaultOf | None, algorithm: str, env: str
) -> Mapping[str, Any] | None:
    """Return the default spec; None if there is none, as for an unknown algorithm."""
    try:
        return default_of(algorithm, env) if default_of else None
    except Exception:  # an unknown name may fail in any way; commands then have all settings
        return None


def settings_html(section: Section, default: Mapping[str, Any] | None) -> str:
    """Return a section's settings, and the commands that repeat its runs."""
    runs = section.runs
    facts = {
        "algorithm": section.algorithm,
        "environment": section.env,
        "budget": _joined(f"{run.steps:,}" for run in runs) + " steps",
        "versions": ", ".join(
            f"{name} {_joined(run.versions.get(name, 'none') for run in runs)}"
            for name in dict.fromkeys(name for run in runs for name in run.versions)
        ),
        "commit": _joined(run.commit or "not recorded" for run in runs),
    }
    if plugins := dict.fromkeys(text for run in runs for text in described(run.plugins)):
        facts["plugins"] = "; ".join(plugins)
    settings = dict.fromkeys(name for run in runs for name in run.spec)
    values = {
        name: [_joined(_setting(run.spec.get(name)) for run in v.runs) for v in section.variants]
        for name in settings
        if name not in PLACE
    }
    differing = {name: column for name, column in values.items() if len(set(column)) > 1}
    seeds = [", ".join(str(run.seed) for run in v.runs) for v in section.variants]
    labels = [variant.label for variant in section.variants]
    shared = "\n".join(f"{n} = {column[0]}" for n, column in values.items() if n not in differing)
    commands = ""
    for variant in section.variants:
        # What a monitor recorded was trained by another program.
        repeatable = [run for run in variant.runs if "recorded_by" not in run.spec]
        lines = escape("\n".join(command(run, default) for run in repeatable))
        commands += f"<p>{escape(variant.label)}</p><pre>{lines}</pre>" if repeatable else ""
    if commands:
        commands = f"<details><summary>Commands that repeat the runs</summary>{commands}</details>"
    return (
        f"<h3>What was run</h3>{terms_html(facts)}<p>Seeds, and the settings that differ:</p>"
        + columns_html({"variant": labels, "seeds": seeds, **differing}, "words")
        + f"<details><summary>Settings they share</summary><pre>{escape(shared)}</pre></details>"
        + commands
    )


def _joined(values: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(values))


def _setting(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def command(run: RunData, default: Mapping[str, Any] | None = None) -> str:
    """Return the command that repeats a run, with the settings that differ from the default.

    Without the default it has all settings that change the results.
    """
    defaults = flattened(default) if default is not None else {}
    words = ["hadamard", "train", run.algorithm, "--env", run.env, "--seed", str(run.seed)]
    for entry in run.plugins.values():
        words += [] if entry.get("package") else ["--plugin", entry["file"]]
    for name, value in run.spec.items():
        if name in (*PLACE, "extended") or (
            name in defaults and _setting(defaults[name]) == _setting(value)
        ):
            continue
        if default is None and name.startswith("train.") and name not in _TRAIN:
            continue
        section, _, option = name.rpartition(".")
        option = option.replace("_", "-")
        prefix = f"--{section.replace('_', '-')}." if section else "--"
        if isinstance(value, bool):
            words.append(f"{prefix}{'' if value else 'no-'}{option}")
        else:
            items = value if isinstance(value, list | tuple) else [value]
            words += [f"{prefix}{option}", *map(str, items)]
    extended = run.spec.get("extended")
    return shlex.join(words) + (f"  # and extended with --resume, {extended}" if extended else "")
