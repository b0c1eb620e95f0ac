"""Whole training of fleets beside processes that train one run each, on one GPU.

    python benchmarks/bench_fleet.py [--env minatar/breakout] [--seconds 4] [--processes 12]
        [--cases pqn:ReLU:32 dqn:ReLU:128 ...] [--purejaxql CHECKOUT]

All are set up first, side by side, each in a process of its own; then one after the other is
measured while the rest waits. Steps per second are those of all runs together: acting, games,
learning, records and diagnoses of the fleets; the single runs are measured without diagnoses. A
case is ALGORITHM:VARIANT:RUNS; the variants are those of ``hadamard bench``. With ``--purejaxql``
its PQN trains as many seeds beside every fleet of PQN with ReLU (see ``purejaxql.py``).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

from standby import Standby
from timing import machine

CASES = (
    *(f"pqn:ReLU:{runs}" for runs in (10, 32, 128)),
    "pqn:tanh + HR:32",
    "dqn:ReLU:128",
    "dqn:tanh + HR:128",
    "ppo:ReLU:32",
)

PEER_STEPS = 24_000_000
"""Of all seeds of purejaxql together: ten seconds and more of training."""


class Case(NamedTuple):
    """What one process measures."""

    algorithm: str
    variant: str
    runs: int
    """In one fleet; 0 for a single run without fleet."""

    @classmethod
    def parse(cls, text: str) -> Case:
        """Read a case as the command line gives it."""
        algorithm, variant, runs = text.split(":")
        return cls(algorithm, variant, int(runs))


class Timed:
    """A case, set up in a folder that is gone afterwards."""

    def __init__(self, case: Case, env: str, device: str) -> None:
        from hadamard.experiments.bench import TimedTraining, variant_training
        from hadamard.experiments.fleet_bench import TimedFleet

        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        setting = case.algorithm, env, case.variant
        self._timed: TimedFleet | TimedTraining = (
            TimedFleet(*setting, case.runs, device, folder)
            if case.runs
            else variant_training(*setting, device, folder / "run", {"train.fleet": "off"})
        )
        self.setup_seconds, self.measure = self._timed.setup_seconds, self._timed.measure

    def close(self) -> None:
        """Free it."""
        self._timed.close()
        self._folder.cleanup()


class Peer:
    """A process of purejaxql that trains as many seeds."""

    def __init__(self, checkout: Path, env: str, seeds: int) -> None:
        game = env.partition("/")[2].replace("_", " ").title().replace(" ", "")
        script = Path(__file__).with_name("purejaxql.py")
        words = [sys.executable, script, checkout, "--seeds", seeds, "--game", game, "--wait"]
        words += ["--steps", PEER_STEPS // seeds]
        self.process = subprocess.Popen(
            list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def number_after(self, word: str) -> float:
        """Wait for a line that begins with a word, and return the number that follows."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return float(line.removeprefix(word))
        sys.exit(f"purejaxql ended with exit code {self.process.wait()} and no {word}")

    def rate(self) -> float:
        """Measure, and return the steps per second of all seeds together."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.number_after("SPS:")


def main() -> None:
    """Set all cases up, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--processes", type=int, default=12, help="single runs; 0: none")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--purejaxql", type=Path, help="its checkout, to be measured beside")
    parser.add_argument("--cases", nargs="*", default=CASES, metavar="ALGORITHM:VARIANT:RUNS")
    options = parser.parse_args()
    cases = [Case.parse(text) for text in options.cases]
    setting = options.env, options.device
    groups = {case: [Standby(Timed, case, *setting)] for case in cases}
    if options.processes:
        for case in {case._replace(runs=0): None for case in cases if case.variant == "ReLU"}:
            groups[case] = [
                Standby(Timed, case, *setting, single_thread=True) for _ in range(options.processes)
            ]
    peers = {
        case: Peer(options.purejaxql, options.env, case.runs)
        for case in cases
        if options.purejaxql and (case.algorithm, case.variant) == ("pqn", "ReLU")
    }
    with ExitStack() as stack:
        for worker in (worker for workers in groups.values() for worker in workers):
            stack.enter_context(closing(worker))
        print_table(options, groups, peers)


def print_table(
    options: argparse.Namespace, groups: dict[Case, list[Standby]], peers: dict[Case, Peer]
) -> None:
    """Measure one after the other, and print a row for each."""
    setups = {case: [w.wait() for w in workers] for case, workers in groups.items()}
    peer_setups = {case: peer.number_after("READY") for case, peer in peers.items()}
    print(f"{options.env}, {machine()}, seeds from 0")
    print(f"{'':<26}{'steps/s':>12}{'to processes':>14}{'set-up':>8}   parts")
    baseline: dict[str, float] = {}
    for case, workers in sorted(groups.items(), key=lambda group: group[0].runs):
        ready = [setup for setup in setups[case] if setup is not None]
        if len(ready) < len(workers):
            print(f"{case.algorithm} {case.variant} {case.runs}: failed, see above")
            continue
        with ThreadPoolExecutor(len(workers)) as pool:  # single runs are measured together
            timings = list(pool.map(lambda worker: worker.measure(options.seconds), workers))
        rate = sum(timing.rate for timing in timings)
        if not case.runs:
            baseline[case.algorithm] = rate
        runs = f"{case.runs} runs" if case.runs else f"{len(workers)} processes"
        times = f"{rate / baseline[case.algorithm]:.1f}x" if case.algorithm in baseline else ""
        parts = timings[0].parts.items()
        shares = ", ".join(f"{name} {s / timings[0].seconds:.0%}" for name, s in parts)
        label = f"{case.algorithm} {case.variant}, {runs}"
        setup = max(seconds for seconds, _ in ready)
        print(f"{label:<26}{rate:>12,.0f}{times:>14}{setup:>7.0f}s   {shares}", flush=True)
        for worker in workers:
            worker.close()
        if case in peers:
            theirs = peers[case].rate()
            label = f"purejaxql, {case.runs} seeds"
            print(
                f"{label:<26}{theirs:>12,.0f}{'':>14}{peer_setups[case]:>7.0f}s   "
                f"the fleet is {rate / theirs:.2f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
