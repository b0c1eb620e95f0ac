"""`hadamard card`."""

from __future__ import annotations

import json
import math
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from hadamard import __version__, api
from hadamard.cli.common import UserError, parse
from hadamard.core import files, require
from hadamard.core.config import to_dict
from hadamard.core.run import Run
from hadamard.core.streams import STREAMS
from hadamard.report.data.run_data import RunData
from hadamard.report.data.runs import load
from hadamard.report.measures import percent
from hadamard.report.statistics.estimates import student_t
from hadamard.text import counted
from hadamard.training import film

RUN_FOLDER = "run"
_KEPT = ("config.json", "DONE", *(f"{name}.jsonl" for name in STREAMS))


@dataclass(frozen=True)
class _Card:
    """Write an agent's card: a folder that a model hub can take.

    The folder holds README.md (settings, scores with intervals, health, how to load), a film, and
    the run with its newest checkpoint. Nothing is uploaded. Look at run/config.json first: it
    names the folder that the run was trained in.
    """

    run: tyro.conf.Positional[str]
    """The run folder."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """The folder to write; it must not exist, or be empty."""
    episodes: int = 20
    """Greedy episodes that the scores are of."""
    seed: int = 0
    """Seed of the episodes, which differ from those of training."""
    film: bool = True
    """Film a greedy episode, into replay.mp4 (replay.gif without ffmpeg)."""
    max_steps: int = 1_000
    """Steps after which the film stops; 0 films the whole episode."""
    device: str = "auto"
    """cpu, cuda, ...; auto uses a GPU if there is one."""


def main(words: list[str]) -> int:
    """Run the command."""
    options = parse(_Card, words, "hadamard card")
    if options.episodes < 2:
        raise UserError(f"--episodes must be at least 2 for an interval, got {options.episodes}")
    if options.max_steps < 0:
        raise UserError("--max-steps must be 0 or more")
    require.not_negative(options, "seed", section="")
    folder = options.output
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder: choose another --output")
    run = Run.open(options.run)
    loaded = api.load_agent(run.path, device=options.device)
    played = api.evaluate(run.path, options.episodes, seed=options.seed, device=options.device)
    (recorded,) = load([run.path])
    folder.mkdir(parents=True, exist_ok=True)
    shown = _film(options, run.path, folder) if options.film else None
    _copy(run.path, folder / RUN_FOLDER, loaded.step)
    api.load_agent(folder / RUN_FOLDER, device=options.device)  # so that the card does not lie
    text = "\n".join(_lines(loaded, played, recorded, run.config, shown))
    (folder / "README.md").write_text(text + "\n", encoding="utf-8")
    print(f"wrote {folder}: {played.mean:.2f} over {counted(options.episodes, 'episode')}")
    return 0


def _film(options: _Card, run: Path, folder: Path) -> str | None:
    output = folder / f"replay{film.default_output(run).suffix}"
    try:
        api.record_video(
            run, output, seed=options.seed, max_steps=options.max_steps, device=options.device
        )
    except (ValueError, ImportError, RuntimeError) as error:
        raise UserError(f"no film ({error}); a card without one: --no-film") from error
    return output.name


def _copy(source: Path, target: Path, step: int) -> None:
    """Copy what loading and reporting need: not the replay buffer, nor what services wrote."""
    target.mkdir()
    for name in _KEPT:
        if files.is_file(source / name):
            shutil.copyfile(source / name, target / name, follow_symlinks=False)
    checkpoints = source / "checkpoints"
    newest = checkpoints / f"step-{step:012}"
    for folder in (checkpoints, newest):
        copied = target / folder.relative_to(source)
        copied.mkdir()
        for path in sorted(folder.iterdir()):
            if files.is_file(path):
                shutil.copyfile(path, copied / path.name, follow_symlinks=False)


def _lines(
    loaded: api.LoadedAgent,
    played: api.Evaluation,
    recorded: RunData,
    config: dict[str, Any],
    shown: str | None,
) -> Iterator[str]:
    spec, algorithm = loaded.spec, recorded.algorithm
    name = f"{algorithm} on {spec.env}"
    spread = statistics.stdev(played.scores)
    yield from _front_matter(name, algorithm, spec.env, played.mean, spread)
    yield f"# {name}\n"
    yield (
        f"An agent trained with Hadamard {__version__} (`pip install hadamard-rl`): "
        f"{recorded.label}, {loaded.step:,} of {spec.train.steps:,} steps, seed {spec.seed}.\n"
    )
    if shown and shown.endswith(".gif"):
        yield f"![A greedy episode]({shown})\n"
    elif shown:
        yield f"[A greedy episode]({shown})\n"
    half = interval(played.scores)
    yield "## Scores\n"
    yield "| what | score |\n|---|---|"
    count = len(played.scores)
    yield (
        f"| {count} greedy episodes, mean and 95 % interval over them | {played.mean:.2f} "
        f"({played.mean - half:.2f} to {played.mean + half:.2f}) |"
    )
    yield f"| their standard deviation | {spread:.2f} |"
    yield f"| lowest and highest | {min(played.scores):g} and {max(played.scores):g} |"
    training = recorded.final("training_score")
    if math.isfinite(training):
        yield f"| last training episodes, which explore | {training:.2f} |"
    yield "\nThe interval is over episodes of this one agent, not over training seeds.\n"
    yield from _health(recorded)
    yield "## Load it\n"
    yield f"```bash\npip install 'hadamard-rl[{_extra(spec.env)}]'\n```\n"
    yield (
        "```python\nimport hadamard\n\n"
        f'agent = hadamard.load_agent("{RUN_FOLDER}")\n'
        f'hadamard.evaluate("{RUN_FOLDER}", episodes={count}).mean\n```\n'
    )
    yield "## Settings\n"
    settings = {"algorithm": algorithm, **to_dict(spec)}
    settings.pop("run_dir", None)
    yield f"```json\n{json.dumps(settings, indent=2, default=str)}\n```\n"
    versions = ", ".join(f"{k} {v}" for k, v in (config.get("versions") or {}).items())
    yield f"Trained with {versions or 'unknown versions'}."


def _extra(env: str) -> str:
    """Return the extra that installs an environment's suite."""
    suite = env.partition("/")[0].removesuffix("_state")
    return suite if suite in ("atari", "minatar", "dmc", "gym", "humanoid") else "train"


def _front_matter(name: str, algorithm: str, env: str, mean: float, spread: float) -> Iterator[str]:
    """Return what model hubs read; JSON's texts are YAML's."""
    metric = {"type": "mean_reward", "name": "mean_reward", "value": f"{mean:.2f} +/- {spread:.2f}"}
    result = {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": env, "type": env},
        "metrics": [{**metric, "verified": False}],
    }
    yield "---"
    yield "library_name: hadamard"
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "hadamard", algorithm, env]
    yield f"tags: {json.dumps(tags)}"
    yield f"model-index: {json.dumps([{'name': name, 'results': [result]}])}"
    yield "---\n"


def _health(recorded: RunData) -> Iterator[str]:
    yield "## Health\n"
    if not recorded.layers or not len(recorded.health_steps):
        yield "The run was not diagnosed.\n"
        return
    yield f"The last diagnosis, at step {recorded.health_steps[-1]:,}:\n"
    yield "| layer | dormant neurons | effective rank | hidden bias |\n|---|---|---|---|"
    for name, measures in recorded.layers.items():
        last = {key: values[-1] for key, values in measures.items()}
        dormant, bias = last.get("dormant_fraction", math.nan), last.get("hidden_bias_share")
        rank = f"{last.get('effective_rank', math.nan):.0f}"
        full = last.get("full_rank")
        rank += "" if full is None else f" of {full:.0f}"
        shown = "-" if bias is None or math.isnan(bias) else percent(bias)
        yield f"| `{name}` | {percent(dormant)} | {rank} | {shown} |"
    yield ""


def interval(scores: tuple[float, ...]) -> float:
    """Return half of the width of the mean's 95 % interval (Student's t).

    Examples:
        >>> round(interval((1.0, 2.0, 3.0)), 2)
        2.48
    """
    return student_t(len(scores) - 1) * statistics.stdev(scores) / math.sqrt(len(scores))
