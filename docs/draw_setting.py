"""Draw the pictures of docs/setting.md: the layer, where HR goes, and the three domains.

    python docs/draw_setting.py                 # all of them, into docs/images/setting
    python docs/draw_setting.py layer where     # only these

The domains need the extras atari, humanoid and dmc, HumanoidBench's meshes (see
docs/training.md), and an OpenGL that works without a display.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle
from numpy.typing import NDArray
from torch import nn

from hadamard import HadamardConv2d, HadamardLinear, envs
from hadamard.core.config import overridden
from hadamard.core.identity import variant
from hadamard.core.types import EnvSpec
from hadamard.nets import mrq
from hadamard.nets.encoders import make_encoder
from hadamard.report.draw.figures import BLUE, GRAY, ORANGE, RED, VERMILLION, new_figure
from hadamard.training.start import default_spec

FOLDER = Path(__file__).parent / "images" / "setting"
INK, PALE, LIGHT_ORANGE = "#1d2129", "#eef1f4", "#fbe0ac"
SIGNED = LinearSegmentedColormap.from_list("signed", [BLUE, "white", VERMILLION])
"""Colors for -1 to 1."""
SHADOW = 0.06
"""How far a Hadamard layer's second branch looks out from behind the first, in inches."""


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a white figure with axes in inches, their origin at the lower left."""
    figure = new_figure(width, height, (0, 0, 0, 0), formulas=True)
    axes = figure.subplots()
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return figure, axes


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow."""
    style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)


def box(
    axes: Axes, left: float, bottom: float, width: float, height: float, fill: str, edge: str
) -> None:
    """Draw a box with round corners."""
    rounded = "round,pad=0,rounding_size=0.06"
    axes.add_patch(
        FancyBboxPatch(
            (left, bottom), width, height, boxstyle=rounded, facecolor=fill, edgecolor=edge, lw=1.2
        )
    )


def layer() -> Figure:
    """Draw one Hadamard layer with numbers in it."""
    pre = np.array([[0.4, 3.5, -1.2, 0.9, -0.3], [-0.8, -0.6, -0.5, 1.1, 0.7]])
    first, second = np.tanh(pre)
    figure, axes = canvas(8.8, 3.9)
    side, middle, rows = 0.3, 2.1, (2.95, 1.25)

    def column(left: float, center: float, values: NDArray[Any], color: bool = True) -> None:
        top = center + side * len(values) / 2
        for i, value in enumerate(values):
            corner = (left, top - side * (i + 1))
            fill = SIGNED(0.5 + 0.35 * value) if color else PALE
            width = 2 * side if color else side
            axes.add_patch(Rectangle(corner, width, side, facecolor=fill, edgecolor=INK, lw=0.8))
            if color:
                place = corner[0] + side, corner[1] + side / 2
                axes.text(*place, f"{value:+.2f}", ha="center", va="center", fontsize=9, color=INK)

    column(0.45, middle, np.zeros(6), color=False)
    axes.text(0.6, middle + 1.05, "input $x$", ha="center", fontsize=11, color=INK)
    for number, (values, center) in enumerate(zip((first, second), rows, strict=True), start=1):
        arrow(axes, (0.85, middle), (1.5, center))
        box(axes, 1.52, center - 0.3, 1.35, 0.6, PALE, GRAY)
        label = f"$A_{number}\\,x + b_{number}$"
        axes.text(2.195, center, label, ha="center", va="center", fontsize=11, color=INK)
        arrow(axes, (2.9, center), (3.3, center))
        box(axes, 3.32, center - 0.3, 0.75, 0.6, PALE, GRAY)
        axes.text(3.695, center, "$f$", ha="center", va="center", fontsize=12, color=INK)
        arrow(axes, (4.1, center), (4.5, center))
        column(4.52, center, values)
        axes.text(1.52, center + 0.4, f"branch {number}", fontsize=9, color="#555")
        arrow(axes, (5.15, center), (5.87, middle + (0.17 if number == 1 else -0.17)))
    axes.add_patch(Circle((6.05, middle), 0.22, facecolor=ORANGE, edgecolor=INK, lw=1.2))
    axes.text(6.05, middle - 0.01, "×", ha="center", va="center", fontsize=16, color=INK)
    arrow(axes, (6.28, middle), (6.7, middle))
    column(6.72, middle, first * second)
    axes.text(7.02, middle + 0.9, "layer's output $z$", ha="center", fontsize=11, color=INK)
    for left, center in ((4.52, rows[0]), (4.52, rows[1]), (6.72, middle)):
        corner = (left - 0.03, center + side / 2 - 0.03)
        axes.add_patch(
            Rectangle(corner, 2 * side + 0.06, side + 0.06, fill=False, edgecolor=RED, lw=2)
        )
    notes = ((5.2, rows[0], "saturated"), (7.42, middle, "branch 2 still\nmoves the product"))
    for left, center, note in notes:
        axes.text(left, center + side, note, va="center", fontsize=9, color=RED)
    formula = "$z = f(A_1\\,x + b_1)\\;\\odot\\; f(A_2\\,x + b_2)$      (here $f$ = tanh)"
    axes.text(4.3, 0.12, formula, ha="center", va="bottom", fontsize=11, color=INK)
    return figure


class Stage(NamedTuple):
    """A box of a network's drawing."""

    text: str
    hadamard: bool = False


class Network(NamedTuple):
    """A row of the drawing of where HR goes."""

    name: str
    task: str
    note: str
    stages: list[Stage]
    block: tuple[int, int, str] | None = None
    """First and last stage of what is repeated, and how often."""


PIXELS = EnvSpec((4, 84, 84), torch.uint8, 18, frames=4)
CAMERA = EnvSpec((9, 84, 84), torch.uint8, frames=3, action_size=6)


def stages(layers: nn.ModuleList) -> list[Stage]:
    """Read the hidden layers off a network."""
    read = []
    for module in layers:
        hidden: Any = getattr(module, "layer", module)
        affine = next(m for m in hidden.modules() if isinstance(m, nn.Linear | nn.Conv2d))
        text = f"dense\n{hidden.outputs}"
        if isinstance(affine, nn.Conv2d):
            text = f"conv {hidden.outputs}\n{affine.kernel_size[0]}×{affine.kernel_size[1]}"
            text += f", stride {affine.stride[0]}"
        read.append(Stage(text, isinstance(hidden, HadamardLinear | HadamardConv2d)))
    return read


def networks() -> list[Network]:
    """Return the five networks as they are built with HR."""
    rows = []
    games = {
        "dqn": ("DQN", "HR in the last hidden layer", ["action\nvalues"]),
        "ppo": ("PPO", "as DQN; policy and value read the same layer", ["policy,\nvalue"]),
        "pqn": ("PQN", "HR in every hidden layer; LayerNorm in each branch", ["action\nvalues"]),
    }
    for algorithm, (name, note, heads) in games.items():
        spec = overridden(default_spec(algorithm, "atari/Breakout"), variant("tanh+hr"))
        hidden = stages(make_encoder(PIXELS, spec.net, "default").hidden)
        chain = [Stage("4 frames\n84×84"), *hidden, *map(Stage, heads)]
        rows.append(Network(name, "Atari", note, chain))
    spec = overridden(default_spec("simbav2", "humanoid/h1-walk"), variant("hr"))
    width, config = spec.net.width, spec.algo
    simba = [
        Stage("state,\naction"),
        Stage(f"embedding\n{width}"),
        Stage(f"dense\n{config.expansion * width}", hadamard=True),
        Stage(f"dense\n{width}"),
        Stage("mix with\ninput"),
        Stage(f"{config.bins} bins\nof return"),
    ]
    note = (
        "one of two critics; the actor reads the state alone: its block "
        f"{times(config.actor_blocks)}, {config.expansion * config.actor_width} and "
        f"{config.actor_width} wide"
    )
    block = (2, 4, f"block, {times(config.critic_blocks)}")
    rows.append(Network("SimbaV2", "HumanoidBench", note, simba, block))
    spec = overridden(default_spec("mrq", "dmc/walker-walk"), variant("hr"))
    network = mrq.Network(CAMERA, spec.net, mrq.Widths.from_hidden(spec.algo.hidden_width))
    chain = [Stage("3 frames\n84×84 RGB"), *stages(network.encoder.state.layers)]
    chain[-1] = Stage(f"{chain[-1].text}: zs", chain[-1].hadamard)
    chain.append(Stage("policy,\nvalues"))
    note = "HR in the whole state encoder; what reads zs is unchanged"
    rows.append(Network("MR.Q", "DMC from pixels", note, chain))
    return rows


def times(count: int) -> str:
    """Return a count in words: once, twice, 3 times."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def where() -> Figure:
    """Draw the five networks with the HR layers filled in."""
    rows = networks()
    pitch, width, height, step = 1.14, 0.98, 0.5, 1.18
    figure, axes = canvas(9.75, pitch * len(rows) + 0.38)
    for i, network in enumerate(rows):
        y = 0.28 + pitch * (len(rows) - 1 - i)
        axes.text(0.12, y + 0.31, network.name, fontsize=12, fontweight="bold", color=INK)
        axes.text(0.12, y + 0.1, network.task, fontsize=8.5, color="#555")
        if network.block is not None:
            first, last, repeated = network.block
            left, bottom = 1.5 + step * first - 0.07, y - 0.07
            span = step * (last - first) + width + 0.14
            dashed = Rectangle((left, bottom), span, height + 0.36, fill=False, ls="--", ec=GRAY)
            axes.add_patch(dashed)
            right = left + span - 0.06
            axes.text(right, y + height + 0.09, repeated, fontsize=8.5, color="#555", ha="right")
        for j, stage in enumerate(network.stages):
            left = 1.5 + step * j
            if j:
                shadow = SHADOW if network.stages[j - 1].hadamard else 0.0
                start = left - step + width + shadow, y + height / 2
                arrow(axes, start, (left, y + height / 2))
            inner = 0 < j < len(network.stages) - 1
            draw_stage(axes, stage, left, y, width, height, plain=PALE if inner else "white")
        axes.text(1.5, y - 0.12, network.note, fontsize=8.5, color="#555", va="top")
    top = 0.28 + pitch * len(rows) - 0.15
    legend = (
        (1.5, "HR: the product of two branches", True),
        (4.7, "a single branch", False),
    )
    for left, text, hadamard in legend:
        draw_stage(axes, Stage("", hadamard), left, top, 0.3, 0.15, PALE)
        axes.text(left + 0.45, top + 0.08, text, fontsize=9, va="center", color=INK)
    return figure


def draw_stage(
    axes: Axes, stage: Stage, left: float, bottom: float, width: float, height: float, plain: str
) -> None:
    """Draw one box; a Hadamard layer is two, one behind the other."""
    if stage.hadamard:
        box(axes, left + SHADOW, bottom + SHADOW, width, height, ORANGE, INK)
    fill, edge = (LIGHT_ORANGE, INK) if stage.hadamard else (plain, GRAY)
    box(axes, left, bottom, width, height, fill, edge)
    center = left + width / 2, bottom + height / 2
    axes.text(*center, stage.text, ha="center", va="center", fontsize=8.5, color=INK)


def domains() -> Figure:
    """Show a task of each domain after some random steps."""
    shown = (
        ("atari/Breakout", 10, "Atari", "4 gray frames of 84×84 ⟶ one of {} actions"),
        ("humanoid/h1-walk", 4, "HumanoidBench", "{} numbers ⟶ {} joints"),
        ("dmc/walker-walk", 4, "DMC-Visual", "3 color frames of 84×84 ⟶ {} joints"),
    )
    figure = new_figure(8.6, 3.45)
    for axes, (env, steps, domain, task) in zip(figure.subplots(1, 3), shown, strict=True):
        picture, spec = after_random_steps(env, steps)
        if env.startswith("humanoid/"):
            picture = around_the_robot(picture)
        # Atari's whole screen is pressed into a square, as it is for the network.
        wide = not env.startswith("atari/")
        axes.imshow(middle_square(picture) if wide else picture, aspect="auto")
        axes.set_box_aspect(1)
        axes.set_title(domain, fontsize=11, fontweight="bold", color=INK)
        sizes = [spec.num_actions or spec.action_size]
        sizes = [*spec.obs_shape, *sizes] if len(spec.obs_shape) == 1 else sizes
        axes.set_xlabel(f"{env}\n{task.format(*sizes)}", fontsize=8.5, color=INK)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(GRAY)
    return figure


def after_random_steps(env: str, steps: int) -> tuple[NDArray[np.uint8], EnvSpec]:
    """Return a picture of an environment, and its specification."""
    environment = envs.make(env, seed=0, num_envs=1)
    environment.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        if environment.spec.num_actions:
            action = torch.randint(environment.spec.num_actions, (1,), generator=generator)
        else:
            action = 2 * torch.rand(1, environment.spec.action_size, generator=generator) - 1
        environment.step(action)
    picture = environment.render()
    environment.close()
    return picture, environment.spec


def middle_square(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Cut both sides off a wide picture."""
    height, width = picture.shape[:2]
    left = (width - height) // 2
    return picture[:, left : left + height]


def around_the_robot(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Cut off the empty floor: the camera keeps the robot in the middle."""
    height, width = picture.shape[:2]
    return picture[height // 5 : height - height // 8, width // 5 : width - width // 5]


DRAWINGS: dict[str, tuple[Callable[[], Figure], tuple[str, ...]]] = {
    "layer": (layer, ("svg", "png")),
    "where": (where, ("svg", "png")),
    "domains": (domains, ("png",)),
}


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/setting.md.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(DRAWINGS)}")
    names = parser.parse_args().names or list(DRAWINGS)
    unknown = set(names) - set(DRAWINGS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(DRAWINGS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names:
        draw, endings = DRAWINGS[name]
        # The same bytes each time, so that a commit shows only real changes.
        with rc_context({"svg.hashsalt": name}):
            figure = draw()
            for ending in endings:
                path = FOLDER / f"{name}.{ending}"
                metadata: dict[str, Any] = {"Date": None} if ending == "svg" else {}
                figure.savefig(path, dpi=130, metadata=metadata)
                print(f"{path.relative_to(FOLDER.parents[2])}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
