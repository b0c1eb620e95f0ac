"""The parameter-matched control: one branch, widened to the Hadamard layer's parameter count."""

from __future__ import annotations

from torch import nn

from hadamard.layers.branch import Recipe


def weight_count(recipe: Recipe) -> int:
    """Count a branch's weights, biases and norm parameters without allocating them."""
    branch = recipe.varied(device="meta").build()
    return sum(parameter.numel() for parameter in branch.parameters())


def matched_width(recipe: Recipe, following: Recipe | None = None, branches: int = 2) -> int:
    """Return the width at which one branch has as many weights as a Hadamard layer.

    Widening also gives the next layer more inputs. With ``following``, the next layer's recipe,
    its weights are counted too, so that the two networks match as a whole; without it the layer
    alone is matched, as the paper does for DQN (512 becomes 1024).

    Examples:
        >>> from hadamard.layers import LinearBranch
        >>> matched_width(LinearBranch(3136, 512))
        1024
        >>> matched_width(LinearBranch(512, 512), following=LinearBranch(512, 512))
        768
    """

    def weights(width: int, copies: int) -> int:
        total = copies * weight_count(recipe.varied(outputs=width))
        if following is not None:
            # A Flatten between the two turns one channel into many inputs.
            inputs = width * following.inputs // recipe.outputs
            total += weight_count(following.varied(inputs=inputs))
        return total

    target = weights(recipe.outputs, branches)
    low, high = 1, branches * recipe.outputs
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if weights(middle, 1) < target else (low, middle)
    return min(max(low - 1, 1), low, key=lambda width: abs(weights(width, 1) - target))


def build(recipe: Recipe) -> nn.Module:
    """Widened: one branch, widened until it has the Hadamard layer's weight count."""
    return recipe.varied(outputs=matched_width(recipe)).build()
