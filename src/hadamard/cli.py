"""The command line: `hadamard train`, `demo`, `report`, `evaluate`, `analyse`, and smaller ones."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import tyro
except ImportError:
    sys.exit("the command line needs a few more packages: pip install 'hadamard-rl[train]'")

from hadamard.experiments.sweep import Options

if TYPE_CHECKING:
    from hadamard.core.config import RunSpec

#: Exit codes: the settings or the run folder were wrong; training was asked to stop and saved.
WRONG, INTERRUPTED = 2, 75

_COMMANDS = {
    "train": "train an agent, or go on with a run: hadamard train ALGORITHM ... | --resume RUN",
    "demo": "train tanh and tanh + HR side by side and write the page that compares them",
    "sweep": "train every variant on every environment with every seed, many runs at a time",
    "reproduce": "run the paper's experiments: hadamard reproduce NAME ... --scale SCALE | --list",
    "report": "write the page that compares finished or running runs",
    "evaluate": "play whole greedy episodes with a run's agent",
    "play": "film greedy episodes of a run's agent, as MP4 or GIF",
    "analyse": "diagnose the hidden layers of a run's agent",
    "envs": "list the environments, and what to install for those that are missing",
    "algos": "list the algorithms",
    "assets": "fetch the model files of an environment suite: hadamard assets humanoidbench",
    "bench": "measure training on this machine, split into acting, stepping, learning, health",
}


class UserError(Exception):
    """A message for the person at the terminal, without a traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] == "--version":
        from hadamard import __version__

        print(f"hadamard {__version__}")
        return 0
    command, rest = words[0], words[1:]
    if command not in _COMMANDS:
        from hadamard.core.discover import unknown

        return _fail(unknown("command", command, tuple(_COMMANDS)))
    warnings.showwarning = _show_warning
    try:
        return _HANDLERS[command](rest)
    except BrokenPipeError:
        # The reader (head, a pager) has seen enough; the interpreter must not flush into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, ValueError, ImportError, OSError, RuntimeError) as error:
        return _explain(error)
    except KeyboardInterrupt:
        return _fail("interrupted at once, without saving", code=130)


def _explain(error: Exception) -> int:
    """Tell what went wrong, if it is a kind of trouble that a person can mend."""
    import errno

    from hadamard.core.checkpoint import CheckpointError
    from hadamard.core.run import RunError
    from hadamard.envs.workers import EnvironmentFailure
    from hadamard.train import Diverged

    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" ({error.filename})" if error.filename else ""
        return _fail(
            f"no space left on the disk{where}: free some and go on with "
            "`hadamard train --resume RUN`; the last checkpoint is whole",
            code=1,
        )
    if isinstance(error, RunError | CheckpointError | UserError | ValueError | ImportError):
        return _fail(str(error))
    if isinstance(error, Diverged | EnvironmentFailure | OSError):
        return _fail(str(error), code=1)
    raise error


def _fail(message: str, code: int = WRONG) -> int:
    print(f"hadamard: {message}", file=sys.stderr)
    return code


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    print(f"hadamard: warning: {message}", file=sys.stderr)


def _overview() -> str:
    width = max(map(len, _COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, text in _COMMANDS.items()]
    return "\n".join(
        [
            "usage: hadamard COMMAND ...",
            "",
            "Healthy representations in deep RL.",
            "",
            *lines,
            "",
            "hadamard COMMAND --help explains a command's options.",
        ]
    )


def _parse(kind: Any, words: Sequence[str], prog: str, **options: Any) -> Any:
    return tyro.cli(kind, args=list(words), prog=prog, **options)


def _value_of(flag: str, words: Sequence[str]) -> str | None:
    """Return the value of a flag, before the words are parsed."""
    for i, word in enumerate(words):
        if word == flag and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _train(words: list[str]) -> int:
    from hadamard import train

    if not words or words[0] in ("-h", "--help"):
        return _train_help()
    if words[0] == "--resume" or words[0].startswith("--resume="):
        path = _value_of("--resume", words)
        if path is None or len(words) > 2:
            raise UserError("usage: hadamard train --resume RUN (a run keeps its settings)")
        return _run_training(lambda: train.resume(path))
    algorithm, rest = words[0], words[1:]
    if algorithm.startswith("-"):
        raise UserError(
            "say which algorithm first: hadamard train ALGORITHM [options]; "
            f"there are: {', '.join(_algorithms())}"
        )
    return _run_training(lambda: train.train(algorithm, spec_from(algorithm, rest)))


def spec_from(algorithm: str, words: Sequence[str]) -> RunSpec[Any]:
    """Return the settings that flags ask for; the suite's own defaults fill the rest."""
    from hadamard import train
    from hadamard.core import discover
    from hadamard.core.config import RunSpec

    module = discover.find(train.ALGORITHMS, algorithm, "algorithm")
    default = train.default_spec(algorithm, _value_of("--env", words) or "minatar/breakout")
    spec: RunSpec[Any] = _parse(
        RunSpec[module.Config],  # type: ignore[name-defined]
        words,
        f"hadamard train {algorithm}",
        default=default,
        description=module.__doc__,
    )
    return spec


def _run_training(work: Callable[[], dict[str, Any]]) -> int:
    from hadamard.progress import duration
    from hadamard.train import Interrupted

    try:
        summary = work()
    except Interrupted as stopped:
        print(f"stopped and saved; go on with: hadamard train --resume {stopped}")
        return INTERRUPTED
    score, greedy = summary["score"], summary["greedy_score"]
    told = "no episode ended" if score is None else f"score {score:.2f} (last 100 episodes)"
    told += "" if greedy is None else f", greedy {greedy:.2f}"
    print(f"done: {summary['steps']:,} steps, {told}, {duration(summary['seconds'])}")
    return 0


def _algorithms() -> dict[str, str]:
    import importlib

    from hadamard.core import discover
    from hadamard.train import ALGORITHMS

    return {
        name: (importlib.import_module(f"{ALGORITHMS}.{name}").__doc__ or "").partition("\n")[0]
        for name in discover.names(ALGORITHMS)
    }


def _train_help() -> int:
    from hadamard.core.config import RunSpec

    print("usage: hadamard train ALGORITHM [options]\n       hadamard train --resume RUN\n")
    for name, text in _algorithms().items():
        print(f"  {name:<5} {text}")
    print(
        "\nhadamard train ALGORITHM --help also shows the algorithm's own options (--algo.*) and "
        "its\ndefaults. SIGTERM and SIGINT save and exit with code 75. Options of every "
        "algorithm:\n"
    )

    @dataclass(frozen=True)
    class Shared(RunSpec[None]):
        algo: tyro.conf.Suppress[None] = None

    with contextlib.suppress(SystemExit):
        _parse(Shared, ["--help"], "hadamard train ALGORITHM", description="")
    return 0


def _envs(words: list[str]) -> int:
    from hadamard import envs

    if words:
        print("usage: hadamard envs\n\nList the suites and their tasks.")
        return 0 if words[0] in ("-h", "--help") else WRONG
    for suite, text in envs.suites().items():
        print(f"{suite}: {text}")
        missing = envs.missing(suite)
        if missing:
            print(f"  not installed ({', '.join(missing)}): {envs.install_command(suite)}")
        names = [f"{suite}/{task}" for task in envs.tasks(suite)]
        print(_columns(names) + "\n")
    return 0


def _columns(names: Sequence[str], width: int = 96) -> str:
    widest = max(map(len, names)) + 2
    per_line = max(1, width // widest)
    lines = [names[i : i + per_line] for i in range(0, len(names), per_line)]
    return "\n".join("  " + "".join(f"{n:<{widest}}" for n in line).rstrip() for line in lines)


def _algos(words: list[str]) -> int:
    if words:
        print("usage: hadamard algos\n\nList the algorithms.")
        return 0 if words[0] in ("-h", "--help") else WRONG
    for name, text in _algorithms().items():
        print(f"{name:<5} {text}")
    return 0


@dataclass(frozen=True)
class _Assets:
    """Fetch the model files of an environment suite; without a name, list what there is."""

    name: tyro.conf.Positional[str] = ""
    """Which files: humanoidbench."""
    check: bool = False
    """Fetch nothing; verify the contents of the files that are here."""
    source: str = ""
    """Fetch from this address or folder, laid out as the public repository's assets folder."""


def _assets(words: list[str]) -> int:
    from hadamard.core.discover import unknown
    from hadamard.envs import humanoid_assets as assets

    asked = _parse(_Assets, words, "hadamard assets")
    files = assets.listed()
    size = f"{len(files)} files, {sum(file.size for file in files) / 1e6:.1f} MB"
    if not asked.name:
        troubles = assets.check()
        here = f"{len(troubles)} missing or damaged" if troubles else "all there"
        print(f"humanoidbench  models of the humanoid suite (MIT licence): {size}; {here}")
        print(f"  in {assets.folder()}")
        return 0
    if asked.name != "humanoidbench":
        raise UserError(unknown("set of files", asked.name, ("humanoidbench",)))
    if not asked.check:
        print(f"fetching {size} into {assets.folder()}", flush=True)
        assets.download(asked.source, _show_bytes)
    troubles = assets.check()
    if troubles:
        more = f", and {len(troubles) - 1} more files like it" if len(troubles) > 1 else ""
        raise assets.AssetsError(f"{troubles[0]}{more}. Fetch them with: {assets.COMMAND}")
    print(f"{size}, all verified, in {assets.folder()}")
    return 0


def _show_bytes(here: int, total: int) -> None:
    """Show on a terminal how much is here; logs are spared."""
    if sys.stdout.isatty():
        end = "\n" if here == total else ""
        print(f"\r{here / 1e6:.1f} of {total / 1e6:.1f} MB", end=end, flush=True)


@dataclass(frozen=True)
class _Evaluate:
    """Play whole greedy episodes with a run's agent, unclipped and on full games."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    episodes: int = 20
    """How many episodes."""
    seed: int = 0
    """Seed of the games, which are other ones than in training."""
    device: str = "auto"
    """cpu, cuda, ...; auto takes a GPU if there is one."""


def _evaluate(words: list[str]) -> int:
    import statistics

    from hadamard import envs
    from hadamard.core.random import child_seed
    from hadamard.evaluate import evaluate

    asked = _parse(_Evaluate, words, "hadamard evaluate")
    if asked.episodes < 1:
        raise UserError(f"--episodes must be at least 1, got {asked.episodes}")
    agent, spec, step, device = load_agent(asked.run, asked.device)
    parallel = max(n for n in range(1, 21) if asked.episodes % n == 0)
    played = envs.make(spec.env, child_seed(asked.seed, 20), parallel, device, training=False)
    try:
        scores = [episode.score for episode in evaluate(agent, played, asked.episodes)]
    finally:
        played.close()
    spread = f" ± {statistics.stdev(scores):.2f} (sd)" if len(scores) > 1 else ""
    print(
        f"{asked.run} at step {step:,}: {statistics.fmean(scores):.2f}{spread} over "
        f"{len(scores)} greedy episodes of {spec.env} "
        f"(min {min(scores):g}, median {statistics.median(scores):g}, max {max(scores):g})"
    )
    return 0


@dataclass(frozen=True)
class _Play:
    """Film greedy episodes of a run's agent, unclipped and on full games."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    output: Path | None = None
    """The film, .mp4 or .gif; by default play.mp4 in the run folder."""
    episodes: int = 1
    """How many episodes, one after another."""
    seed: int = 0
    """Seed of the games, which are other ones than in training."""
    max_steps: int = 0
    """Steps after which an episode is left; 0 plays to its end."""
    fps: float | None = None
    """Frames, each of one step, in a second; by default time passes as in the environment's world,
    or ten steps a second where its time has no unit."""
    device: str = "auto"
    """cpu, cuda, ...; auto takes a GPU if there is one."""


def _play(words: list[str]) -> int:
    from hadamard import envs, play, train
    from hadamard.core.random import child_seed

    asked = _parse(_Play, words, "hadamard play")
    if asked.episodes < 1 or asked.max_steps < 0 or (asked.fps is not None and asked.fps <= 0):
        raise UserError("--episodes and --fps must be positive, and --max-steps not negative")
    run, _, spec = train.open_run(asked.run)
    output = asked.output or play.default_output(run.path)
    play.check_output(output)
    envs.prepare_to_draw(spec.env)
    agent, spec, step, device = load_agent(asked.run, asked.device)
    # The strict form of a suite: only there an Atari screen is in colour.
    made = envs.make(spec.env, child_seed(asked.seed, 22), 1, device, training=False, exact=True)
    try:
        film = play.film(
            agent,
            made,
            output,
            episodes=asked.episodes,
            max_steps=asked.max_steps,
            fps=asked.fps,
            report=_show_frames,
        )
    finally:
        made.close()
        _show_frames(0)
    print(f"{asked.run} at step {step:,}, {spec.env}")
    for number, episode in enumerate(film.episodes, start=1):
        left = "" if film.finished or number < len(film.episodes) else ", not to its end"
        print(f"  episode {number}: score {episode.score:.2f}, {episode.length:,} steps{left}")
    print(f"wrote {film}")
    return 0


def _show_frames(frames: int) -> None:
    """Show on a terminal that the film grows; logs are spared."""
    if sys.stdout.isatty():
        print(f"\r{frames:,} frames" if frames else "\r\033[K", end="", flush=True)


@dataclass(frozen=True)
class _Analyse:
    """Diagnose all hidden layers of a run's agent on observations of its own play."""

    run: tyro.conf.Positional[str]
    """The run folder."""
    samples: int = 2_048
    """Observations to diagnose on."""
    output: Path | None = None
    """Also write the diagnosis as a page."""
    device: str = "auto"
    """cpu, cuda, ...; auto takes a GPU if there is one."""


def _analyse(words: list[str]) -> int:
    import torch

    from hadamard import diagnose, envs
    from hadamard.analyse import hidden_layers
    from hadamard.core.random import child_seed

    asked = _parse(_Analyse, words, "hadamard analyse")
    agent, spec, step, device = load_agent(asked.run, asked.device)
    played = envs.make(spec.env, child_seed(spec.seed, 21), agent.num_envs, device, training=True)
    try:
        obs, seen = played.reset(), []
        # Half of the steps only lead away from the first frames of the games.
        rounds = -(-asked.samples // agent.num_envs)
        for i in range(2 * rounds):
            seen += [obs] if i >= rounds else []
            action, _ = agent.act(obs)
            obs = played.step(action).obs
    finally:
        played.close()
    found = diagnose(
        agent.network, torch.cat(seen)[: asked.samples], hidden_layers(agent.network, "all")
    )
    print(f"{asked.run} at step {step:,}")
    print(found)
    if asked.output is not None:
        found.save_html(asked.output, title=f"{asked.run} at step {step:,}")
        print(f"wrote {asked.output}")
    return 0


def load_agent(path: str, device_name: str) -> tuple[Any, Any, int, Any]:
    """Return a run's agent as its last checkpoint has it."""
    from hadamard import envs, train
    from hadamard.core import checkpoint

    run, algorithm, spec = train.open_run(path)
    device = train.choose_device(device_name)
    made = envs.make(spec.env, 0, 1, device)
    try:
        agent = train.make_agent(algorithm, spec, made, device)
    finally:
        made.close()
    step, state = checkpoint.read(checkpoint.newest(run.path / "checkpoints"))
    for name in ("network", "random", "counters"):
        part: Any = agent.parts[name]
        part.load_state_dict(state[f"agent.{name}"])
    return agent, spec, step, device


@dataclass(frozen=True)
class _Report:
    """Compare runs: scores, dormancy, rank, hidden bias, with intervals, on one page.

    A name that ends in .html is the page. Any other is a folder, with the full report in
    index.html, every figure as SVG and PNG and every table as CSV and LaTeX.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that contain runs."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page, or the folder."""
    title: str = "Runs compared"
    """Its title."""
    figure: Path | None = None
    """Also draw score, dormancy, rank and hidden bias into this file (.png, .svg, .pdf)."""


def _report(words: list[str]) -> int:
    from hadamard.report.comparison import overview, write_comparison
    from hadamard.report.folder import write_report
    from hadamard.report.runs import gather

    asked = _parse(_Report, words, "hadamard report")
    runs, troubles = gather(asked.runs)
    if asked.output.suffix == ".html":
        page = asked.output
        write_comparison(page, runs, asked.title, _default_settings(), troubles)
    else:
        if asked.output.exists() and not asked.output.is_dir():
            raise UserError(f"{asked.output} is a file: name a page (.html) or a folder")
        page = write_report(asked.output, runs, asked.title, _default_settings(), troubles)
    print(f"wrote {page} from {len(runs)} run{'s' if len(runs) != 1 else ''}")
    if wrong := len(troubles) + sum(bool(run.troubles) for run in runs):
        told = f"{wrong} of the runs could not be read in full; the page says which"
        print(told, file=sys.stderr)
    if asked.figure is not None:
        overview(runs).savefig(asked.figure, dpi=130)
        print(f"wrote {asked.figure}")
    return 0


def _default_settings() -> Callable[[str, str], dict[str, Any]] | None:
    """Return what tells an algorithm's defaults, for shorter commands; None without torch."""
    try:
        from hadamard.core.config import to_dict
        from hadamard.train import default_spec
    except ImportError:
        return None
    return lambda algorithm, env: to_dict(default_spec(algorithm, env))


@dataclass(frozen=True)
class _Demo:
    """Train tanh and tanh + HR side by side and write the page that compares them."""

    output: Path = Path("demo_output")
    """Where the runs and the page go; runs that are finished there are not made again."""
    algorithm: str = "dqn"
    """The algorithm."""
    env: str = "minatar/breakout"
    """The environment."""
    steps: int = 120_000
    """Steps of each run."""
    seeds: int = 2
    """Seeds of each variant."""
    jobs: int = field(default_factory=lambda: _cores())
    """Runs at a time."""


def _demo(words: list[str]) -> int:
    from hadamard.experiments.demo import demo
    from hadamard.train import Interrupted

    asked = _parse(_Demo, words, "hadamard demo")
    try:
        page = demo(asked.output, asked.algorithm, asked.env, asked.steps, asked.seeds, asked.jobs)
    except Interrupted:
        print("stopped and saved; the same command goes on")
        return INTERRUPTED
    print(f"\nOpen {page} in a browser.")
    return 0


@dataclass(frozen=True)
class _Sweep:
    """Train every variant on every environment with every seed, many runs at a time.

    Finished runs are skipped, interrupted ones gone on with, failed ones tried again. What follows
    a lone -- goes to every run: hadamard sweep dqn --seeds 3 -- --train.steps 200000
    """

    algorithm: tyro.conf.Positional[str]
    """The algorithm."""
    options: Annotated[Options, tyro.conf.arg(name="")]
    envs: str = "minatar/breakout"
    """Environments, with commas between them."""
    variants: str = "relu,tanh,tanh+hr"
    """Of baseline, relu, tanh, tanh+layernorm, hr, tanh+hr, relu+hr, 2hr, widened, crelu, redo."""
    seeds: str = "5"
    """How many seeds (5), a range (5-9) or a list (3,7)."""
    folder: Path | None = None
    """Where the run folders go; by default runs/ALGORITHM."""
    dry_run: bool = False
    """Only print the grid and what state each run is in."""


def _sweep(words: list[str]) -> int:
    from hadamard import envs
    from hadamard.experiments import grid, sweep

    cut = words.index("--") if "--" in words else len(words)
    flags = words[cut + 1 :]
    asked = _parse(_Sweep, words[:cut], "hadamard sweep")
    variants = asked.variants.split(",")
    own = dict.fromkeys(("env", "seed", "run_dir"), "the sweep")
    own |= {field: f"the variant {name}" for name in variants for field in grid.variant(name)}
    for name, owner in own.items():
        flag = f"--{name.replace('_', '-')}"
        if any(word.partition("=")[0].replace("--redo.no-", "--redo.") == flag for word in flags):
            raise UserError(f"{flag} is what {owner} sets: leave it out after --")
    jobs = grid.grid(
        asked.algorithm,
        asked.envs.split(","),
        variants,
        grid.seeds_from(asked.seeds),
        asked.folder or Path("runs") / asked.algorithm,
        base=lambda env: spec_from(asked.algorithm, ["--env", env, *flags]),
    )
    if asked.dry_run:
        print("\n".join(f"{sweep.state(job):<12}{job.path}" for job in jobs))
        print(f"{len(jobs)} runs of {jobs[0].spec.train.steps:,} steps")
        return 0
    for env in asked.envs.split(","):
        envs.make(env, 0, 1).close()  # a name that is wrong is told now, not by every run
    summary = sweep.launch(jobs, asked.options)
    print(summary)
    return summary.code


@dataclass(frozen=True)
class _Reproduce:
    """Run the paper's experiments; runs that experiments share, or that are finished, once."""

    options: Annotated[Options, tyro.conf.arg(name="")]
    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Experiments, or all."""
    list: bool = False
    """Only list the experiments, one a line: name, place in the paper, what it shows."""
    scale: str = "smoke"
    """smoke: seconds a run, to see that everything works; minatar: a laptop; paper: as
    published."""
    folder: Path = Path("runs/paper")
    """Where the runs go, in a folder named after the scale."""
    seeds: int | None = None
    """How many seeds; by default as many as the scale has."""
    tasks: str = ""
    """Only these tasks, with commas between them."""
    share: float = 1.0
    """How much of the scale's steps a run is trained for; its logging, diagnoses and exploration
    shrink along where the scale sets them."""
    dry_run: bool = False
    """Only print the grid, how many runs are finished, and what the rest would take here."""


def _reproduce(words: list[str]) -> int:
    asked = _parse(_Reproduce, words, "hadamard reproduce")
    if asked.list:
        from hadamard.experiments.paper import listing

        print(listing())
        return 0
    from hadamard.experiments import reproduce

    tasks = tuple(asked.tasks.split(",")) if asked.tasks else ()
    wanted = reproduce.Asked(
        asked.names, asked.scale, asked.folder, asked.seeds, tasks, asked.share
    )
    if asked.dry_run:
        print(reproduce.dry_run(wanted, asked.options))
        return 0
    return reproduce.reproduce(wanted, asked.options)


def _cores() -> int:
    from hadamard.experiments.sweep import cores

    return cores()


def _bench(words: list[str]) -> int:
    from hadamard.experiments.bench import Bench, bench

    asked = _parse(Bench, words, "hadamard bench")
    print(bench(asked))
    return 0


_HANDLERS: dict[str, Callable[[list[str]], int]] = {
    "train": _train,
    "demo": _demo,
    "sweep": _sweep,
    "reproduce": _reproduce,
    "report": _report,
    "evaluate": _evaluate,
    "play": _play,
    "analyse": _analyse,
    "envs": _envs,
    "algos": _algos,
    "assets": _assets,
    "bench": _bench,
}


if __name__ == "__main__":
    sys.exit(main())
