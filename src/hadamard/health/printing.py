"""Diagnoses as text: the table and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hadamard.text import counted

if TYPE_CHECKING:
    from hadamard.health.diagnosis import Diagnosis
    from hadamard.health.layer import LayerHealth

_HEADER = (
    "layer",
    "neurons",
    "dormant",
    "dead",
    "saturated",
    "constant",
    "eff. rank",
    "hidden bias",
)


def summary(diagnosis: Diagnosis) -> str:
    """Return a title, the table of layers and the verdict."""
    rows = [_HEADER] + [_row(layer) for layer in diagnosis]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "-" * max(map(len, lines)))
    title = f"{diagnosis.model}: {counted(len(diagnosis), 'hidden layer')}"
    return "\n".join([title, *lines, verdict(diagnosis)])


def _row(layer: LayerHealth) -> tuple[str, ...]:
    share = layer.hidden_bias_share
    return (
        layer.name,
        str(layer.neurons),
        f"{layer.dormant_fraction:.1%}",
        str(layer.dead),
        str(layer.saturated),
        str(layer.constant),
        f"{layer.effective_rank}/{layer.full_rank}",
        "-" if share is None else f"{share:.1%}",
    )


def verdict(layers: Sequence[LayerHealth]) -> str:
    """Return a sentence for each unhealthy layer, most dormant neurons first."""
    sentences = []
    for layer in sorted(layers, key=lambda layer: -layer.dormant_fraction):
        problems = _problems(layer)
        if problems:
            sentences.append(f"{layer.name}: {', '.join(problems)}.")
    if not sentences:
        return "Healthy: no layer has 10 % dormant neurons, 5 % hidden bias or a rank below 10 %."
    return "\n".join(sentences)


def _problems(layer: LayerHealth) -> list[str]:
    problems = []
    if layer.dormant_fraction >= 0.1:
        problem = f"{layer.dormant_fraction:.0%} of its neurons hardly respond"
        if layer.dead + layer.saturated + layer.constant == 0:
            # The density rule depends on scale: it also flags activations that are merely small.
            problem += " (none dead or saturated: their activations are small)"
        problems.append(problem)
    share = layer.hidden_bias_share
    if share is not None and share >= 0.05:
        problems.append(f"{share:.0%} of the next layer's output is hidden bias")
    if layer.effective_rank < 0.1 * layer.full_rank:
        problems.append(f"its effective rank is {layer.effective_rank} of {layer.full_rank}")
    return problems
