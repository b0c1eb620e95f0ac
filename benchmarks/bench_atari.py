"""Training against the environments' own limit, HR against ReLU, seeds together, peers beside us.

    python benchmarks/bench_atari.py                           # PQN on atari/Breakout
    python benchmarks/bench_atari.py --env minatar/breakout --algorithm dqn --set train.compile=on
    python benchmarks/bench_atari.py --peer CleanRL "python benchmarks/peer.py --period 32 SCRIPT"
    python benchmarks/bench_atari.py --grow net.width=128 net.width=512 net.width=2048
    python benchmarks/bench_atari.py --compare train.greedy_envs=0 train.greedy_call=own \\
        train.greedy_call=joined                               # what greedy games cost

Everything takes turns in one run, and the middle of three turns is reported (``--turns``):

- the limit: environments alone with random actions, in one process, spread over several, and
  in the processes and groups of training;
- training: ReLU and tanh + HR end to end, as a share of the limit;
- where the time goes, in a turn of its own that waits for the device after learning;
- one update: milliseconds (captured on a GPU), with the settings of ``--set``; and of several
  seeds at once, each on a stream of its own (``hadamard train --seeds``);
- peers: any command that prints a last ``SPS: number``, run between our turns; ``peer.py`` lets
  other projects' scripts do so.

With ``--grow`` it measures instead how speed and the cost of an update change with a setting: one
row for each, several settings of a row joined by a +, as in
``algo.num_envs=512+algo.minibatches=128``. With ``--compare`` the settings take turns instead, and
each is shown beside the first.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.colors import TABLEAU_COLORS
from matplotlib.figure import Figure

from candidates import COMPARED, Alone, PeerFailure, Updates, measure_waiting, peer
from hadamard import envs
from hadamard.core.config import overridden
from hadamard.core.cores import usable_cores
from hadamard.experiments.bench import PARTS, VARIANTS, TimedTraining, Timing, variant_training
from hadamard.training.setup import make_agent
from timing import machine, print_kernels

Layout = tuple[int, torch.device, int | None, int, str]
"""What ``Alone`` takes after the environment's name."""


def draw(saved: dict[str, Any], path: str) -> None:
    """Draw where a step's time goes, beside the step of environments alone."""
    count = saved["count"]
    bars = {"environments alone": {"stepping": 1e3 * count / saved["limit"]}}
    for variant, numbers in saved["parted"].items():
        timing = Timing(**numbers)
        step = 1e3 * timing.seconds / timing.steps * count
        shares = {part: timing.parts.get(part, 0) / timing.seconds for part in PARTS}
        bars[variant] = {part: step * share for part, share in shares.items()}
        bars[variant]["rest"] = step - sum(bars[variant].values())
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.subplots()
    order = ("stepping", "acting", "learning", "greedy play", "health", "rest")
    names = [part for part in order if any(bar.get(part, 0) > 0.01 for bar in bars.values())]
    for place, bar in enumerate(bars.values()):
        left = 0.0
        for part, color in zip(names, TABLEAU_COLORS, strict=False):
            width = bar.get(part, 0.0)
            axes.barh(place, width, left=left, color=color, label=part if place == 1 else None)
            left += width
        axes.text(left, place, f" {left:.1f} ms", va="center")
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    batch = "one environment" if count == 1 else f"all {count} environments"
    axes.set_xlabel(f"milliseconds for a step of {batch}")
    figure.legend(loc="outside upper center", ncols=len(names), frameon=False)
    figure.savefig(path, dpi=160)


def grow(options: argparse.Namespace, changes: dict[str, Any]) -> None:
    """Print a row for each setting of ``--grow``; HR's update is timed on the same batches."""
    print(f"{'':<48}{'alone':>10}{'ReLU':>10}{'limit':>8}{'update':>12}{'with HR':>12}")
    for text in options.grow:
        settings = {**changes, **dict(_setting(part) for part in text.split("+"))}
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(_training(options, "ReLU", Path(folder) / "run", settings)) as training,
        ):
            trainer = training.trainer
            rate = statistics.median(
                training.measure(options.seconds).rate for _ in range(options.turns)
            )
            updates = Updates(training)
            spec = overridden(trainer.spec, VARIANTS["tanh + HR"])
            hadamard: Any = make_agent(options.algorithm, spec, trainer.envs, trainer.device)
            milliseconds = []
            for learn in (updates.learn, hadamard.learn):
                updates.seconds(2, [learn])  # captures the graph and warms up
                milliseconds.append(1e3 * updates.seconds(options.updates, [learn]))
            layout = _as_in_training(training)
        with closing(Alone(options.env, *layout)) as alone:
            limit = statistics.median(alone.rate(options.seconds) for _ in range(options.turns))
        row = f"{text:<48}{limit:>10,.0f}{rate:>10,.0f}{rate / limit:>8.0%}"
        print(row + "".join(f"{time:>9.3f} ms" for time in milliseconds), flush=True)


def compare(options: argparse.Namespace, changes: dict[str, Any]) -> None:
    """Print a row for each setting of ``--compare``; they take turns, ReLU alone."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        trainings: dict[str, TimedTraining] = {}
        for i, text in enumerate(options.compare):
            settings = {**changes, **dict(_setting(part) for part in text.split("+"))}
            training = _training(options, "ReLU", Path(folder) / str(i), settings)
            trainings[text] = stack.enter_context(closing(training))
        turns: dict[str, list[Timing]] = {text: [] for text in trainings}
        for _ in range(options.turns):
            for text, training in trainings.items():
                turns[text].append(training.measure(options.seconds))
        print(f"{'':<32}{'steps/s':>10}{'/ first':>9}" + "".join(f"{p:>13}" for p in PARTS))
        for text, timings in turns.items():
            median = sorted(timings, key=lambda timing: timing.rate)[options.turns // 2]
            # Beside the first in the same turn: a machine's speed drifts.
            ratio = statistics.median(
                timing.rate / first.rate
                for timing, first in zip(timings, turns[options.compare[0]], strict=True)
            )
            shares = "".join(f"{median.parts.get(p, 0) / median.seconds:>13.1%}" for p in PARTS)
            print(f"{text:<32}{median.rate:>10,.0f}{ratio:>9.3f}{shares}")


def side_by_side(options: argparse.Namespace, changes: dict[str, Any]) -> None:
    """Print the limit, training and peers, which take turns; then one update of each variant."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        trainings: dict[str, TimedTraining] = {}
        for variant in COMPARED:
            start = time.perf_counter()
            training = _training(options, variant, Path(folder) / variant, changes)
            trainings[variant] = stack.enter_context(closing(training))
            print(f"{variant}: ready in {time.perf_counter() - start:.0f} s", flush=True)
        layouts = {
            name: stack.enter_context(closing(Alone(options.env, *layout)))
            for name, layout in _layouts(options, trainings["ReLU"]).items()
        }
        limits: dict[str, list[float]] = {name: [] for name in layouts}
        turns: dict[str, list[Timing]] = {variant: [] for variant in trainings}
        peers: dict[str, list[float]] = {name: [] for name, _ in options.peer}
        for turn in range(options.turns):
            for name, alone in layouts.items():
                limits[name].append(alone.rate(options.seconds))
            for variant, training in trainings.items():
                turns[variant].append(training.measure(options.seconds))
            for name, command in options.peer:
                if name not in peers:
                    continue
                try:
                    peers[name].append(peer(command))
                except PeerFailure as trouble:  # the other measurements are not lost
                    print(f"{name} is left out: {trouble}")
                    del peers[name]
            newest = {f"alone, {name}": rates[-1] for name, rates in limits.items()}
            newest |= {variant: timings[-1].rate for variant, timings in turns.items()}
            newest |= {name: rates[-1] for name, rates in peers.items()}
            text = ", ".join(f"{name} {rate:,.0f}" for name, rate in newest.items())
            print(f"turn {turn + 1}, steps/s: {text}", flush=True)
        limit = max(statistics.median(rates) for rates in limits.values())
        count = trainings["ReLU"].trainer.envs.num_envs
        for name, rates in limits.items():
            print(f"{count} environments alone, {name}: {statistics.median(rates):,.0f} steps/s")
        waited = {
            variant: measure_waiting(training, options.seconds)
            for variant, training in trainings.items()
        }
        medians = {
            variant: sorted(timings, key=lambda timing: timing.rate)[options.turns // 2]
            for variant, timings in turns.items()
        }
        print_speeds(medians, waited, limit)
        for name, rates in peers.items():
            rate = statistics.median(rates)
            ratios = ", ".join(f"{v} {timing.rate / rate:.2f}x" for v, timing in medians.items())
            print(f"{name}: {rate:,.0f} steps/s; ours is {ratios}")
        if options.save:
            parts = {variant: asdict(timing) for variant, timing in waited.items()}
            numbers = {"limit": limit, "count": count, "parted": parts}
            Path(options.save).write_text(json.dumps(numbers, indent=1))
        print_updates(options, trainings)


def print_speeds(medians: dict[str, Timing], waited: dict[str, Timing], limit: float) -> None:
    """Print each variant's speed, and where the time went in the turn that waited."""
    print(f"{'':<12}{'steps/s':>10}{'limit':>8}{'/ ReLU':>8}" + "".join(f"{p:>13}" for p in PARTS))
    for variant, timing in medians.items():
        row = f"{variant:<12}{timing.rate:>10,.0f}{timing.rate / limit:>8.0%}"
        row += f"{timing.rate / medians['ReLU'].rate:>8.2f}"
        shares, seconds = waited[variant].parts, waited[variant].seconds
        print(row + "".join(f"{shares.get(p, 0) / seconds:>13.1%}" for p in PARTS))


def print_updates(options: argparse.Namespace, trainings: dict[str, TimedTraining]) -> None:
    """Print how long one update takes, and those of several seeds at once on a GPU."""
    updates = {variant: Updates(training) for variant, training in trainings.items()}
    times: dict[str, list[float]] = {variant: [] for variant in updates}
    for _ in range(options.turns + 2):
        for variant, update in updates.items():
            times[variant].append(update.seconds(options.updates))
    plain = statistics.median(times["ReLU"])
    for variant, seconds in times.items():
        median = statistics.median(seconds)
        print(f"one update, {variant}: {median * 1e3:.3f} ms ({median / plain:.2f}x)")
    if options.profile:
        for variant, update in updates.items():
            print_kernels(f"one update, {variant}", functools.partial(update.seconds, 1))
    if options.seeds and trainings["ReLU"].trainer.device.type == "cuda":
        for variant, update in updates.items():
            ratio, host = update.seeds_together(
                trainings[variant], options.seeds, options.updates, options.turns
            )
            text = f"{ratio:.2f}x one's, the host at work for {host:.0%} of the time"
            print(f"updates of {options.seeds} seeds at once, {variant}: {text}", flush=True)


def _training(
    options: argparse.Namespace, variant: str, folder: Path, settings: dict[str, Any]
) -> TimedTraining:
    return variant_training(
        options.algorithm, options.env, variant, options.device, folder, settings
    )


def _as_in_training(training: TimedTraining) -> Layout:
    trainer = training.trainer
    train, groups = trainer.spec.train, len(trainer.pipeline.groups)
    count, workers = trainer.envs.num_envs, train.env_workers
    return count, trainer.device, workers, groups, train.atari_reset


def _layouts(options: argparse.Namespace, training: TimedTraining) -> dict[str, Layout]:
    """Return the ways to step the environments alone, by name."""
    count, device, workers, groups, atari_reset = _as_in_training(training)
    layouts: dict[str, Layout] = {
        f"{number} processes" if number else "one process": (count, device, number, 1, atari_reset)
        for number in (options.layouts or (0, 2, 4, 8, 16))
        if number <= min(usable_cores(), count)
    }
    if groups > 1 or envs.automatic_workers(options.env, count):
        layouts["as in training"] = (count, device, workers, groups, atari_reset)
    return layouts


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", default="atari/Breakout")
    parser.add_argument("--algorithm", default="pqn", choices=["dqn", "ppo", "pqn"])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--turns", type=int, default=3, help="the middle one is reported")
    parser.add_argument("--seeds", type=int, default=5, help="learners at once on a GPU; 0: none")
    parser.add_argument("--layouts", nargs="*", type=int, help="processes to try for the limit")
    parser.add_argument("--profile", action="store_true", help="say where an update's time goes")
    parser.add_argument("--save", help="keep where the time goes in this file")
    parser.add_argument("--draw", nargs=2, help="only draw such a file: numbers.json picture.png")
    parser.add_argument("--updates", type=int, default=50, help="in a row, each turn")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], help="settings, as train.compile=on")
    parser.add_argument("--grow", nargs="+", help="rows of settings, as algo.num_envs=8")
    parser.add_argument("--compare", nargs="+", help="settings to take turns, as train.tf32=False")
    parser.add_argument("--peer", nargs=2, action="append", default=[], help="name and command")
    options = parser.parse_args()
    if options.draw:
        draw(json.loads(Path(options.draw[0]).read_text()), options.draw[1])
        return
    changes = dict(_setting(text) for text in options.set)
    print(f"{options.algorithm} on {options.env} {' '.join(options.set)}, {machine()}")
    if options.grow:
        grow(options, changes)
        return
    if options.compare:
        compare(options, changes)
        return
    side_by_side(options, changes)


if __name__ == "__main__":
    main()
