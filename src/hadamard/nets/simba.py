"""SimbaV2's networks: representations and every unit's weights lie on the unit sphere.

A block moves its input along the sphere towards the output of a small MLP. The MLP's wide hidden
layer is where the layer variant goes: one branch is a linear map with weights on the sphere, a
learned scale for every unit, and the activation.

Both critics are one network, and the first dimension of its weights is the critic: each layer is
one batched matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from hadamard.compute.sphere import EPSILON, on_sphere
from hadamard.core.config import NetSpec
from hadamard.core.types import EnvSpec
from hadamard.layers import Branch, build, matched_width
from hadamard.layers.activations import ActivationLike, make_activation
from hadamard.layers.product import branch_product
from hadamard.learning.normalize import ObservationNormalizer
from hadamard.nets.hidden import Representation

SHIFT = 3.0
"""Appended to every input, so that its length is kept, as an angle, when it is normalized."""
LOG_DEVIATION = (-10.0, 2.0)
"""Range of the logarithm of the policy's deviation."""


class HyperDense(nn.Module):
    """A linear map without bias whose units have weights of unit length; or ``copies`` of it.

    The weight is (inputs, outputs), so that its gradient needs no transposition.
    """

    def __init__(self, inputs: int, outputs: int, copies: int = 0, device: Any = None) -> None:
        super().__init__()
        self.outputs = outputs
        weight = torch.empty((*([copies] if copies else []), inputs, outputs), device=device)
        if not weight.is_meta:
            for matrix in weight.view(-1, inputs, outputs):
                nn.init.orthogonal_(matrix.T)
        self.weight = nn.Parameter(on_sphere(weight, dim=-2))

    def forward(self, x: Tensor) -> Tensor:
        """Map the last dimension."""
        return x @ self.weight


class Scaler(nn.Module):
    """A learned factor for every unit: starts at ``initial``, and learns in units of ``scale``."""

    def __init__(
        self, size: int, initial: float, scale: float, copies: int = 0, device: Any = None
    ) -> None:
        super().__init__()
        shape = (copies, 1, size) if copies else (size,)
        self.vector = nn.Parameter(torch.full(shape, scale, device=device))
        self.factor = initial / scale

    def forward(self, x: Tensor) -> Tensor:
        """Scale the last dimension."""
        return x * (self.vector * self.factor)


@dataclass(frozen=True)
class HyperBranch:
    """The recipe of a branch on ``HyperDense``, for any layer variant."""

    inputs: int
    outputs: int
    scale: float = 1.0
    activation: ActivationLike = "relu"
    copies: int = 0
    device: Any = None

    feature_dim: ClassVar[int] = -1

    def build(self) -> Branch:
        """Build one branch with newly drawn weights."""
        dense = HyperDense(self.inputs, self.outputs, self.copies, self.device)
        scaler = Scaler(self.outputs, self.scale, self.scale, self.copies, self.device)
        return _Branch(dense, scaler, make_activation(self.activation))

    def varied(self, **changes: Any) -> Self:
        """Return the recipe with some fields changed."""
        return replace(self, **changes)

    def following(self) -> Self:
        """Return the recipe of a layer on top that keeps the width."""
        return self.varied(inputs=self.outputs)


class _Branch(Branch):
    """A branch whose product with others of its kind is one matrix product."""

    @staticmethod
    def fuse(branches: Sequence[Branch]) -> nn.Module:
        return _FusedProduct(branches)


class _FusedProduct(nn.Module):
    """The product of branches, computed by one matrix product; their features are concatenated."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        super().__init__()
        first, self.count = branches[0], len(branches)
        dense, scaler = first.affine, first.norm
        assert isinstance(dense, HyperDense)
        assert isinstance(scaler, Scaler)
        self.outputs, self.affine, self.scaler = dense.outputs, dense, scaler
        with torch.no_grad():
            weights = [branch.get_parameter("affine.weight").detach() for branch in branches]
            vectors = [branch.get_parameter("norm.vector").detach() for branch in branches]
            dense.weight = nn.Parameter(torch.cat(weights, dim=-1))
            scaler.vector = nn.Parameter(torch.cat(vectors, dim=-1))
        self.activation = first.activation

    def forward(self, x: Tensor) -> Tensor:
        pre = self.scaler(self.affine(x))
        return branch_product(pre, self.count, -1, self.activation)


@dataclass(frozen=True)
class Shape:
    """How large a network is."""

    width: int
    blocks: int
    expansion: int
    """Width of a block's hidden layer, in widths of the block."""
    copies: int = 0
    """Number of networks computed together; 0 for one whose tensors have no such dimension."""


class Block(nn.Module):
    """Interpolate along the sphere between the input and an MLP's output."""

    def __init__(self, shape: Shape, net: NetSpec) -> None:
        super().__init__()
        width, copies = shape.width, shape.copies

        def branch(outputs: int) -> HyperBranch:
            scale = math.sqrt(2 / width) / math.sqrt(outputs / width)
            return HyperBranch(width, outputs, scale, net.activation, copies)

        variant, recipe = net.layer, branch(shape.expansion * width)
        if variant == "widened":
            # The whole block gets as many weights as with HR: the next layer grows as well.
            next_layer = HyperBranch(recipe.outputs, width, copies=copies)
            matched = matched_width(recipe, next_layer)
            # An odd width takes 1.5 times as long: 3,073 becomes 3,072.
            variant, recipe = "plain", branch(max(1, round(matched / 8)) * 8)
        self.hidden = build(variant, recipe)
        outputs: int = self.hidden.outputs  # type: ignore[assignment]
        kind = "relu" if net.activation == "relu" else "tanh"
        self.representations = nn.ModuleList(Representation(kind) for _ in range(max(copies, 1)))
        self.out = HyperDense(outputs, width, copies)
        self.alpha = Scaler(width, 1 / (shape.blocks + 1), 1 / math.sqrt(width), copies)

    def forward(self, x: Tensor) -> Tensor:
        """Move along the sphere."""
        hidden = self.hidden(x)
        # Mark the representation of each critic for the diagnosis.
        representations = hidden.unbind() if hidden.dim() == 3 else (hidden,)
        for mark, representation in zip(self.representations, representations, strict=True):
            mark(representation)
        # Epsilon, because a vector of zeros has no direction.
        proposed = on_sphere(self.out(hidden + EPSILON))
        return on_sphere(x + self.alpha(proposed - x))


class Trunk(nn.Module):
    """Embedding on the sphere and a row of blocks."""

    def __init__(self, inputs: int, shape: Shape, net: NetSpec) -> None:
        super().__init__()
        scale = math.sqrt(2 / shape.width)
        self.embedding = HyperDense(inputs + 1, shape.width, shape.copies)
        self.scaler = Scaler(shape.width, scale, scale, shape.copies)
        self.blocks = nn.Sequential(*[Block(shape, net) for _ in range(shape.blocks)])

    def forward(self, x: Tensor) -> Tensor:
        """Return the representation, (batch, width) or (copies, batch, width)."""
        x = on_sphere(torch.cat([x, x.new_full((*x.shape[:-1], 1), SHIFT)], dim=-1))
        out: Tensor = self.blocks(on_sphere(self.scaler(self.embedding(x))))
        return out


class Head(nn.Module):
    """Two linear maps on the sphere with a learned scale between them, and a bias."""

    def __init__(self, width: int, outputs: int, copies: int = 0) -> None:
        super().__init__()
        self.inner = HyperDense(width, width, copies)
        self.scaler = Scaler(width, 1.0, 1.0, copies)
        self.outer = HyperDense(width, outputs, copies)
        self.bias = nn.Parameter(torch.zeros((copies, 1, outputs) if copies else (outputs,)))

    def forward(self, x: Tensor) -> Tensor:
        """Map the representation to outputs."""
        out: Tensor = self.outer(self.scaler(self.inner(x))) + self.bias
        return out


class Actor(nn.Module):
    """Mean and deviation of a Gaussian that tanh squashes into the actions."""

    def __init__(self, inputs: int, actions: int, shape: Shape, net: NetSpec) -> None:
        super().__init__()
        self.trunk = Trunk(inputs, shape, net)
        self.mean, self.deviation = Head(shape.width, actions), Head(shape.width, actions)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation for normalized observations."""
        z = self.trunk(obs)
        low, high = LOG_DEVIATION
        log_deviation = low + (high - low) * 0.5 * (1 + torch.tanh(self.deviation(z)))
        return self.mean(z), log_deviation.exp()


class Critic(nn.Module):
    """Distributions over return bins, one for each critic."""

    bins: Tensor

    def __init__(self, inputs: int, shape: Shape, net: NetSpec, bins: int, limit: float) -> None:
        super().__init__()
        if bins < 2 or limit <= 0:
            raise ValueError(
                f"a distribution needs --algo.bins of at least 2 (got {bins}) and a positive "
                f"--algo.return-limit (got {limit:g})"
            )
        self.trunk = Trunk(inputs, shape, net)
        self.head = Head(shape.width, bins, shape.copies)
        self.register_buffer("bins", torch.linspace(-limit, limit, bins), persistent=False)

    def forward(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return log-probabilities of the bins, (critics, batch, bins)."""
        return torch.log_softmax(self.head(self.trunk(torch.cat([obs, action], dim=-1))), dim=-1)

    def value(self, log_probability: Tensor) -> Tensor:
        """Return the distributions' means."""
        return (log_probability.exp() * self.bins).sum(-1)


class ActorCritic(nn.Module):
    """Actor, critics and the normalizer of their observations."""

    def __init__(
        self, env: EnvSpec, net: NetSpec, actor: Shape, critic: Shape, bins: int, limit: float
    ) -> None:
        super().__init__()
        if len(env.obs_shape) != 1:
            raise ValueError(
                f"simbav2 reads vectors, and these observations have shape {env.obs_shape}: "
                "train mrq on them"
            )
        if net.norm != "none":
            raise ValueError(
                f"simbav2 normalizes on the sphere: --net.norm must be none, got {net.norm}"
            )
        if net.layer == "layernorm" or net.where in ("conv", "linear"):
            raise ValueError(
                f"simbav2 has one hidden layer per block and normalizes on the sphere: --net.layer "
                f"{net.layer} with --net.where {net.where} is not possible; layers are plain, "
                "hadamard, hadamard2 (two in a row), widened and crelu, the same in all blocks"
            )
        size, actions = env.obs_shape[0], env.action_size
        self.normalizer = ObservationNormalizer((size,))
        self.actor = Actor(size, actions, actor, net)
        self.critic = Critic(size + actions, critic, net, bins, limit)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the greedy actions for raw observations, and their values."""
        x = self.normalizer(obs)
        action = torch.tanh(self.actor(x)[0])
        return action, self.critic.value(self.critic(x, action)).amin(0)


class Temperature(nn.Module):
    """The weight of the entropy; always positive."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(initial).log())

    def forward(self) -> Tensor:
        """Return the weight."""
        return self.log.exp()


def sphere_weights(network: nn.Module) -> list[nn.Parameter]:
    """Return the weights that belong on the sphere."""
    return [module.weight for module in network.modules() if isinstance(module, HyperDense)]
