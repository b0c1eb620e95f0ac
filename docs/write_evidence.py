"""Write docs/evidence.md and its figures from the packed runs in results/: `make evidence`."""

from __future__ import annotations

from pathlib import Path

from surprises import section

from hadamard.experiments.evidence.page import write_evidence

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Write the page."""
    print(f"wrote {write_evidence(ROOT / 'results', ROOT / 'docs', section)}")


if __name__ == "__main__":
    main()
