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
- one update: milliseconds, as the device allows (captured on a GPU), with --set as told; and of
  several seeds at once, each on a stream of its own (``hadamard train --seeds``);
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
import re
import shlex
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from hadamard import envs
from hadamard.core.config import overridden
from hadamard.envs.common import usable_cores
from hadamard.envs.groups import GroupedEnvs
from hadamard.experiments.bench import PARTS, VARIANTS, Lane, Timing
from hadamard.training.trainer import make_agent
from timing import machine, print_kernels

COMPARED = ("ReLU", "tanh + HR")


class Alone:
    """Environments with random actions and nobody who learns; groups of them play at once."""

    def __init__(
        self,
        env: str,
        count: int,
        device: torch.device,
        workers: int | None,
        groups: int = 1,
        atari_reset: str = "cleanrl",
    ) -> None:
        # On the learner's device: stacking frames on a CPU would count as the environments' time.
        self.envs = envs.make(
            env, 0, count, device, workers=workers, groups=groups, atari_reset=atari_reset
        )
        self.envs.reset()
        self.groups = self.envs.groups if isinstance(self.envs, GroupedEnvs) else [self.envs]
        actions = torch.randint(0, self.envs.spec.num_actions, (64, count))
        self.actions = [rows.split([g.num_envs for g in self.groups]) for rows in actions]

    def rate(self, seconds: float) -> float:
        """Return steps per second."""
        steps, start = 0, time.perf_counter()
        self.envs.send(torch.cat(self.actions[-1]))
        while time.perf_counter() - start < seconds:
            for group, action in zip(self.groups, self.actions[steps % 64], strict=True):
                group.receive()
                group.send(action)
            steps += 1
        self.envs.receive()
        return (steps + 1) * self.envs.num_envs / (time.perf_counter() - start)

    def close(self) -> None:
        """Stop the environments."""
        self.envs.close()


class PeerFailure(RuntimeError):
    """Another program did not tell its speed."""


def peer(command: str) -> float:
    """Run another program and return the last steps per second it told."""
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    told = re.findall(r"sps\W+([\d.]+)", done.stdout, flags=re.IGNORECASE)
    if done.returncode or not told:
        # The emulators' bindings list what was not freed, after the reason.
        said = [line for line in done.stderr.splitlines() if "leaked" not in line]
        words = "\n".join(said[-12:])
        raise PeerFailure(f"{command!r} ended with {done.returncode}:\n{words}")
    return float(told[-1])


def waiting(lane: Lane, seconds: float) -> Timing:
    """Train for a while, waiting for the device after learning: its time is counted there."""
    agent: Any = lane.trainer.agent
    observe = agent.observe

    def observe_and_wait(*arguments: Any) -> Any:
        metrics = observe(*arguments)
        if lane.trainer.device.type == "cuda":
            torch.cuda.synchronize()
        return metrics

    agent.observe = observe_and_wait
    timing = lane.measure(seconds)
    agent.observe = observe
    return timing


class Updates:
    """One algorithm's learning step on a batch of what it has seen, again and again."""

    def __init__(self, lane: Lane) -> None:
        agent: Any = lane.trainer.agent
        self.learn, self.device = agent.learn, lane.trainer.device
        self.batch: tuple[torch.Tensor, ...] = ()
        self.host_share = 1.0  # of the last timing: handing the work over, not waiting for it
        agent.learn = self._keep
        while not self.batch:
            lane.advance()
        agent.learn = self.learn

    def _keep(self, *batch: torch.Tensor) -> Any:
        self.batch = tuple(part.clone() for part in batch)
        return self.learn(*batch)

    def seconds(self, count: int, learners: Sequence[Any] = ()) -> float:
        """Time updates in a row; those of several learners, each on a stream of its own.

        As in training, one learner's are all handed to the device before the next one's.
        """
        each = learners or [self.learn]
        streams = [torch.cuda.Stream() if len(learners) > 1 else None for _ in each]
        start = time.perf_counter()
        for learn, stream in zip(each, streams, strict=True):
            with torch.cuda.stream(stream):  # of None: the usual one
                for _ in range(count):
                    learn(*self.batch)
        handed = time.perf_counter() - start
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        took = time.perf_counter() - start
        self.host_share = handed / took
        return took / count

    def of_seeds(self, lane: Lane, seeds: int, count: int, turns: int) -> tuple[float, float]:
        """Return how many times as long as one learner several take, and the host's share of it."""
        trainer = lane.trainer
        agents: list[Any] = [
            make_agent(trainer.algorithm, replace(trainer.spec, seed=i), trainer.envs, self.device)
            for i in range(seeds)
        ]
        learners = [agent.learn for agent in agents]
        for learn in learners:
            learn(*self.batch)
        torch.cuda.synchronize()
        ratios, shares = [], []
        for _ in range(turns):
            one, all_of_them = self.seconds(count, learners[:1]), self.seconds(count, learners)
            ratios.append(all_of_them / one)
            shares.append(self.host_share)
        return statistics.median(ratios), statistics.median(shares)


def draw(saved: dict[str, Any], path: str) -> None:
    """Draw where a step's time goes, beside the step of environments alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    count = saved["count"]
    bars = {"environments alone": {"stepping": 1e3 * count / saved["limit"]}}
    for variant, numbers in saved["parted"].items():
        timing = Timing(**numbers)
        step = 1e3 * timing.seconds / timing.steps * count
        bars[variant] = {p: step * timing.parts.get(p, 0) / timing.seconds for p in PARTS}
        bars[variant]["rest"] = step - sum(bars[variant].values())
    figure, axes = pyplot.subplots(figsize=(8, 2.6), layout="constrained")
    names = ("stepping", "acting", "learning", "greedy play", "health", "rest")
    names = tuple(p for p in names if any(bar.get(p, 0) > 0.01 for bar in bars.values()))
    for place, bar in enumerate(bars.values()):
        left = 0.0
        for part, color in zip(names, pyplot.get_cmap("tab10").colors, strict=False):
            width = bar.get(part, 0.0)
            axes.barh(place, width, left=left, color=color, label=part if place == 1 else None)
            left += width
        axes.text(left, place, f" {left:.1f} ms", va="center")
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    stepped = "one environment" if count == 1 else f"all {count} environments"
    axes.set_xlabel(f"milliseconds for a step of {stepped}")
    figure.legend(loc="outside upper center", ncols=len(names), frameon=False)
    figure.savefig(path, dpi=160)


def grow(asked: argparse.Namespace, changes: dict[str, Any]) -> None:
    """Print a row for each of the settings asked for; HR's update is timed on the same batches."""
    print(f"{'':<48}{'alone':>10}{'ReLU':>10}{'limit':>8}{'update':>12}{'with HR':>12}")
    for text in asked.grow:
        settings = {**changes, **dict(_setting(part) for part in text.split("+"))}
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            place = Path(folder) / "run"
            lane = Lane(asked.algorithm, asked.env, "ReLU", asked.device, place, settings)
            stack.enter_context(closing(lane))
            trainer = lane.trainer
            count, workers = trainer.envs.num_envs, trainer.spec.train.env_workers
            groups, begun = len(trainer.groups), trainer.spec.train.atari_reset
            rate = statistics.median(lane.measure(asked.seconds).rate for _ in range(asked.turns))
            updates = Updates(lane)
            spec = overridden(trainer.spec, VARIANTS["tanh + HR"])
            rival: Any = make_agent(asked.algorithm, spec, trainer.envs, trainer.device)
            took = []
            for learn in (updates.learn, rival.learn):
                updates.seconds(2, [learn])  # captured, and warm
                took.append(updates.seconds(asked.updates, [learn]))
        with closing(Alone(asked.env, count, trainer.device, workers, groups, begun)) as alone:
            limit = statistics.median(alone.rate(asked.seconds) for _ in range(asked.turns))
        row = f"{text:<48}{limit:>10,.0f}{rate:>10,.0f}{rate / limit:>8.0%}"
        print(row + "".join(f"{seconds * 1e3:>9.3f} ms" for seconds in took), flush=True)


def compare(asked: argparse.Namespace, changes: dict[str, Any]) -> None:
    """Print a row for each of the settings asked for; they take turns, ReLU alone."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lanes, turns = {}, dict[str, list[Timing]]()
        for i, text in enumerate(asked.compare):
            settings = {**changes, **dict(_setting(part) for part in text.split("+"))}
            place = Path(folder) / str(i)
            lane = Lane(asked.algorithm, asked.env, "ReLU", asked.device, place, settings)
            lanes[text] = stack.enter_context(closing(lane))
        for _ in range(asked.turns):
            for text, lane in lanes.items():
                turns.setdefault(text, []).append(lane.measure(asked.seconds))
        print(f"{'':<32}{'steps/s':>10}{'/ first':>9}" + "".join(f"{p:>13}" for p in PARTS))
        for text, timings in turns.items():
            middle = sorted(timings, key=lambda timing: timing.rate)[asked.turns // 2]
            # Beside the first in the same turn: a machine's speed drifts.
            beside = statistics.median(
                mine.rate / first.rate
                for mine, first in zip(timings, turns[asked.compare[0]], strict=True)
            )
            shares = "".join(f"{middle.parts.get(p, 0) / middle.seconds:>13.1%}" for p in PARTS)
            print(f"{text:<32}{middle.rate:>10,.0f}{beside:>9.3f}{shares}")


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def main() -> None:
    """Measure everything and print it."""
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
    asked = parser.parse_args()
    if asked.draw:
        draw(json.loads(Path(asked.draw[0]).read_text()), asked.draw[1])
        return
    changes = dict(_setting(text) for text in asked.set)
    print(f"{asked.algorithm} on {asked.env} {' '.join(asked.set)}, {machine()}")
    if asked.grow:
        grow(asked, changes)
        return
    if asked.compare:
        compare(asked, changes)
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        lanes = {}
        for variant in COMPARED:
            start = time.perf_counter()
            lane = Lane(
                asked.algorithm, asked.env, variant, asked.device, Path(folder) / variant, changes
            )
            lanes[variant] = stack.enter_context(closing(lane))
            print(f"{variant}: ready in {time.perf_counter() - start:.0f} s", flush=True)
        trainer = lanes["ReLU"].trainer
        count = trainer.envs.num_envs
        begun, groups = trainer.spec.train.atari_reset, len(trainer.groups)
        ways: dict[str, tuple[int | None, int]] = {
            f"{workers} processes" if workers else "one process": (workers, 1)
            for workers in (asked.layouts or (0, 2, 4, 8, 16))
            if workers <= min(usable_cores(), count)
        }
        if groups > 1 or envs.automatic_workers(asked.env, count):
            ways["as in training"] = (trainer.spec.train.env_workers, groups)
        layouts = {
            name: stack.enter_context(closing(Alone(asked.env, count, trainer.device, *way, begun)))
            for name, way in ways.items()
        }
        limits: dict[str, list[float]] = {name: [] for name in layouts}
        turns: dict[str, list[Timing]] = {variant: [] for variant in lanes}
        peers: dict[str, list[float]] = {name: [] for name, _ in asked.peer}
        for turn in range(asked.turns):
            for name, alone in layouts.items():
                limits[name].append(alone.rate(asked.seconds))
            for variant, lane in lanes.items():
                turns[variant].append(lane.measure(asked.seconds))
            for name, command in asked.peer:
                if name not in peers:
                    continue
                try:
                    peers[name].append(peer(command))
                except PeerFailure as trouble:  # what else was measured is not lost
                    print(f"{name} is left out: {trouble}")
                    del peers[name]
            rates = {f"alone, {name}": found[-1] for name, found in limits.items()}
            rates |= {variant: timings[-1].rate for variant, timings in turns.items()}
            rates |= {name: found[-1] for name, found in peers.items()}
            told = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
            print(f"turn {turn + 1}, steps/s: {told}", flush=True)
        limit = max(statistics.median(rates) for rates in limits.values())
        for name, found in limits.items():
            print(f"{count} environments alone, {name}: {statistics.median(found):,.0f} steps/s")
        parted = {variant: waiting(lane, asked.seconds) for variant, lane in lanes.items()}
        print(
            f"{'':<12}{'steps/s':>10}{'limit':>8}{'/ ReLU':>8}" + "".join(f"{p:>13}" for p in PARTS)
        )
        middle = {
            name: sorted(ts, key=lambda t: t.rate)[asked.turns // 2] for name, ts in turns.items()
        }
        for variant, timing in middle.items():
            row = f"{variant:<12}{timing.rate:>10,.0f}{timing.rate / limit:>8.0%}"
            row += f"{timing.rate / middle['ReLU'].rate:>8.2f}"
            shares = parted[variant].parts
            whole = parted[variant].seconds
            print(row + "".join(f"{shares.get(p, 0) / whole:>13.1%}" for p in PARTS))
        for name, found in peers.items():
            rate = statistics.median(found)
            ratios = ", ".join(f"{v} {t.rate / rate:.2f}x" for v, t in middle.items())
            print(f"{name}: {rate:,.0f} steps/s; ours is {ratios}")
        if asked.save:
            told = {variant: asdict(timing) for variant, timing in parted.items()}
            saved = {"limit": limit, "count": count, "parted": told}
            Path(asked.save).write_text(json.dumps(saved, indent=1))
        updates = {variant: Updates(lane) for variant, lane in lanes.items()}
        times: dict[str, list[float]] = {variant: [] for variant in updates}
        for _ in range(asked.turns + 2):
            for variant, update in updates.items():
                times[variant].append(update.seconds(asked.updates))
        plain = statistics.median(times["ReLU"])
        for variant, spent in times.items():
            took = statistics.median(spent)
            print(f"one update, {variant}: {took * 1e3:.3f} ms ({took / plain:.2f}x)")
        if asked.profile:
            for variant, update in updates.items():
                print_kernels(f"one update, {variant}", functools.partial(update.seconds, 1))
        if asked.seeds and trainer.device.type == "cuda":
            for variant, update in updates.items():
                ratio, host = update.of_seeds(
                    lanes[variant], asked.seeds, asked.updates, asked.turns
                )
                told = f"{ratio:.2f}x one's, the host at work for {host:.0%} of the time"
                print(f"updates of {asked.seeds} seeds at once, {variant}: {told}", flush=True)


if __name__ == "__main__":
    main()
