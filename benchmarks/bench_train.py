"""Steps per second of training, split into acting, stepping, learning and health.

    python benchmarks/bench_train.py [--env minatar/breakout] [--seconds 5]

The three variants take turns in one process; the middle of three turns is reported. The same
table is printed by ``hadamard bench``.
"""

from __future__ import annotations

import sys

from hadamard.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
