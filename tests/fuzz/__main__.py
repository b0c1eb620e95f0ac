"""Try hostile values in every option of every command and in every field of a run's files.

    python -m tests.fuzz --count 5000 --seed 1
    python -m tests.fuzz --all --minutes 60

Each half of the cases is one of options, the other one of fields; ``--all`` tries every option and
then the fields, in the order of the seed, until it is done or the time is over. A case that ends
badly is shown, and the exit code is 1: a traceback, a hang, a lost process, an undocumented exit
code, a refusal that names neither the value nor its place, a folder that a refusal has changed.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import chain
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # a process with more threads cannot be forked

from tests.fuzz import fields, isolated, judge, options, runs


def main() -> int:
    """Run the cases and print how they ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=5_000, help="cases of options and of fields")
    parser.add_argument("--seed", type=int, default=1, help="seed of the choice of cases")
    parser.add_argument("--all", action="store_true", help="every case, which takes a day")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after this time")
    request = parser.parse_args()
    ends = time.monotonic() + 60 * request.minutes
    codes: Counter[int] = Counter()
    faults, seconds = 0, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained = runs.write_all(folder)
        commands = options.cases(trained / "dqn")
        if request.all:
            cases = chain(commands, fields.cases(trained, request.seed))
        else:
            half = min(request.count // 2, len(commands))
            chosen = random.Random(request.seed).sample(commands, half)
            rest = fields.sample(trained, request.count - half, request.seed)
            cases = chain(chosen, rest)
        for number, (case, end) in enumerate(isolated.run(cases, folder), 1):
            if request.all and number == len(commands):
                print(f"all {number} cases of options, {faults} ended badly", flush=True)
            codes[end.code] += 1
            seconds += end.seconds
            if (fault := judge.fault(case, end)) is not None:
                faults += 1
                print(f"{case.name}: {fault}\n  {judge.plain(end.err)[-500:]}", flush=True)
            if time.monotonic() > ends:
                break
    counts = ", ".join(f"{count} with {code}" for code, count in sorted(codes.items()))
    print(f"{codes.total()} cases, {seconds:.0f} s of CPU time: {faults} ended badly; {counts}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
