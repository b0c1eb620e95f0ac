"""The gallery of docs/reproduce.md: every figure of a folder that `hadamard reproduce all` drew.

hadamard reproduce all --scale smoke
python docs/draw_gallery.py runs/paper/smoke/figures docs/images/gallery.png
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.image import imread

from hadamard.experiments.paper import EXPERIMENTS

COLUMNS = 4


def main() -> None:
    """Put the thumbnails on one picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("figures", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    rows = math.ceil(len(EXPERIMENTS) / COLUMNS)
    figure = Figure(figsize=(12, 2.15 * rows), layout="constrained")
    grid = figure.subplots(rows, COLUMNS)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, (name, experiment) in zip(grid.flat, EXPERIMENTS.items(), strict=False):
        axes.imshow(imread(options.figures / name / "figure.png"), interpolation="antialiased")
        axes.set_title(f"{experiment.place} · {name}", fontsize=9)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.picture, dpi=100)


if __name__ == "__main__":
    main()
