"""Two Hadamard layers, one after the other."""

from torch import nn

from hadamard.layers import hadamard
from hadamard.layers.branch import Recipe


class Stack(nn.Sequential):
    """Layers in sequence, with the output width of the last."""

    @property
    def outputs(self) -> int:
        """Number of output features (channels)."""
        outputs: int = self[-1].outputs  # type: ignore[assignment]
        return outputs


def build(recipe: Recipe) -> nn.Module:
    """2HR: a Hadamard layer, and a second one of the same width on top."""
    return Stack(hadamard.build(recipe), hadamard.build(recipe.following()))
