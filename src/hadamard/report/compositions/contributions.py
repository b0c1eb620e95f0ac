"""What live and dormant neurons give to the Q-values over training: Figure 4."""

from __future__ import annotations

from functools import partial

from hadamard.report.compositions import SHADED, Composed, Drawing, line, numbers_table
from hadamard.report.draw import charts
from hadamard.report.draw.charts import Chart
from hadamard.report.draw.figures import variant_style

_PARTS = {"live_contribution": ("live neurons", 0), "dormant_contribution": ("dormant neurons", 1)}


def compose(drawing: Drawing) -> Composed:
    """Draw the average absolute contribution of both kinds of neurons."""
    ((algorithm, data),) = drawing.panels.items()
    labels, styles = data.shown_labels, {}
    lines = []
    for measure, (name, style) in _PARTS.items():
        styles[name] = variant_style(style)
        steps, bands = data.band(measure, labels, drawing.shading)
        lines += [line(name, styles[name], steps, band) for band in bands.values()]
    tasks = ", ".join(task.partition("/")[2] for task in data.tasks) or "no runs"
    title = f"{', '.join(labels)} on {tasks}"
    if data.end < data.panel.steps:
        title += f"\n{data.budget_words}"
    chart = Chart("contributions", title, "average absolute contribution", lines, from_zero=True)
    footer = f"{drawing.footer(list(_PARTS))} Shaded: {SHADED[drawing.shading]}."
    return Composed(
        partial(charts.small_multiples, [chart], styles, 1, (4.2, 2.9), footer),
        "What the live and the dormant neurons of the last hidden layer give to the Q-values: "
        "average over observations and actions of the absolute contribution, mean over seeds; "
        f"shaded: {SHADED[drawing.shading]}.",
        [numbers_table(drawing, {algorithm: list(_PARTS)})],
        [chart],
        list(_PARTS),
    )
