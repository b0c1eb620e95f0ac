"""`hadamard bench`."""

from __future__ import annotations

from hadamard.cli.common import parse
from hadamard.experiments import bench, fleet_bench


def main(words: list[str]) -> int:
    """Run the command."""
    request = parse(bench.Bench, words, "hadamard bench")
    bench.check(request)
    print((fleet_bench if request.fleet else bench).bench(request))
    return 0
