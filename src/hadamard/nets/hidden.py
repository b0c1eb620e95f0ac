"""Hidden layers and other representations, marked so that the diagnosis finds them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from hadamard.layers import Recipe, build

Init = Literal["default", "orthogonal", "he", "xavier"]


class Hidden(nn.Module):
    """One layer of any variant; the diagnosis measures its output, after the product.

    ``readers`` are the next affine maps: they hold a neuron's outgoing weights. ``draw`` returns
    a freshly initialized copy of the layer, from which ReDo takes new incoming weights.
    """

    def __init__(self, variant: str, recipe: Recipe, init: Init) -> None:
        super().__init__()

        def draw() -> nn.Module:
            return initialize(build(variant, recipe), init)

        self.layer = draw()
        self.draw: Callable[[], nn.Module] = draw
        # A plain list, because the readers belong to other layers: not saved with this one.
        self.readers: list[nn.Module] = []

    @property
    def outputs(self) -> int:
        """Number of output features (channels)."""
        outputs: int = self.layer.outputs  # type: ignore[assignment]
        return outputs

    @property
    def dormancy_kind(self) -> str:
        """How the diagnosis decides that a neuron of the output is dormant."""
        for module in self.layer.modules():
            if hasattr(module, "dormancy_kind"):
                return str(module.dormancy_kind)
            if isinstance(module, nn.ReLU):
                return "relu"
        return "tanh"

    @property
    def affine(self) -> nn.Module:
        """The affine map whose rows are this layer's incoming weights, or the first of several."""
        return self.affines[0]

    @property
    def affines(self) -> list[nn.Module]:
        """The affine maps whose rows are incoming weights: one for all branches, or one each."""
        return [m for m in self.layer.modules() if isinstance(m, nn.Linear | nn.Conv2d)]

    def fresh_parameters(self) -> dict[str, Tensor]:
        """Return new random values of the parameters, by name."""
        return {f"layer.{name}": p.detach() for name, p in self.draw().named_parameters()}

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        out: Tensor = self.layer(x)
        return out


class Head(nn.Linear):
    """An output layer, which can be drawn anew."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.init: Init = "default"
        self.gain = 1.0

    def initialize(self, init: Init, gain: float = 1.0) -> None:
        """Draw the weights as ``initialize`` does, now and whenever they are drawn anew."""
        self.init, self.gain = init, gain
        initialize(self, init, gain)

    def fresh_parameters(self) -> dict[str, Tensor]:
        """Return new random values of the parameters, by name."""
        other = Head(self.in_features, self.out_features)
        other.initialize(self.init, self.gain)
        return {name: parameter.detach() for name, parameter in other.named_parameters()}


class Representation(nn.Module):
    """Marks a tensor as a representation, where it is not the output of a single layer."""

    def __init__(self, dormancy_kind: str = "auto") -> None:
        super().__init__()
        self.dormancy_kind = dormancy_kind

    def forward(self, x: Tensor) -> Tensor:
        """Return the tensor unchanged."""
        return x


def initialize(layer: nn.Module, init: Init, gain: float = math.sqrt(2)) -> nn.Module:
    """Draw a layer's affine weights, each branch independently, and set its biases to zero.

    ``orthogonal`` is PPO's initialization, ``he`` (truncated normal, fan-in) that of PQN's JAX
    release, ``xavier`` (uniform) MR.Q's; ``default`` keeps PyTorch's.
    """
    if init == "default":
        return layer
    branches = getattr(layer, "branch_count", 1)
    for module in layer.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            for weight in module.weight.data.chunk(branches):
                if init == "orthogonal":
                    nn.init.orthogonal_(weight, gain)
                elif init == "xavier":
                    nn.init.xavier_uniform_(weight, gain)
                else:
                    # 0.8796 is the deviation of a unit normal truncated at two deviations.
                    deviation = gain / math.sqrt(weight[0].numel()) / 0.87962566
                    nn.init.trunc_normal_(weight, 0.0, deviation, -2 * deviation, 2 * deviation)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return layer
