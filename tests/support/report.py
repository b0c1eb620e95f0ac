"""The runs of a report with known scores, and its tables."""

from __future__ import annotations

import csv
import re
from pathlib import Path

TASKS = ("minatar/breakout", "minatar/asterix", "odd/<i>&_%")
VARIANTS = {"tanh": ("plain", "tanh"), "tanh + HR": ("hadamard", "tanh"), "ReLU": ("plain", "relu")}
SEEDS = (0, 1, 2, 3)


def score_of(task: int, variant: int, seed: int) -> float:
    return (task + 1) * (1.0 + variant) + 0.25 * seed


def table(report: Path, name: str) -> list[dict[str, str]]:
    with open(report / "tables" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def check_tex(text: str) -> None:
    """Check that LaTeX compiles it: groups, environments, columns, special characters."""
    bare = re.sub(r"\\[\\{}&%$#_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert re.findall(r"\\begin\{(\w+)\}", text) == ["table", "tabular"]
    assert re.findall(r"\\end\{(\w+)\}", text) == ["tabular", "table"]
    assert not re.search(r"(?<!\\)[%#_~]", text)
    assert bare.count("$") % 2 == 0
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)
    assert columns
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(lines) > 1
    for line in lines:
        assert len(re.findall(r"(?<!\\)&", line)) + 1 == len(columns.group(1))
