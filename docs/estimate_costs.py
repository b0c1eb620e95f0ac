"""Measure what a run of each kind takes at the paper's scale, on this machine.

python docs/estimate_costs.py   # 5 to 20 minutes; writes docs/evidence/costs.json
make evidence                   # puts the estimates into docs/evidence.md
"""

from __future__ import annotations

from pathlib import Path

from hadamard.experiments.evidence.costs import measure_costs
from hadamard.experiments.evidence.page import COSTS


def main() -> None:
    """Write the file."""
    costs = measure_costs()
    costs.write(Path(__file__).parent / COSTS)
    print(f"{len(costs.seconds)} kinds of runs, {costs.machine}")


if __name__ == "__main__":
    main()
