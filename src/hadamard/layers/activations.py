"""Activations by name, class, function or module."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from hadamard.layers.rational import Rational
from hadamard.text import unknown

ActivationLike = str | Callable[[Tensor], Tensor] | type[nn.Module] | nn.Module

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
    "softplus": nn.Softplus,
    "mish": nn.Mish,
    "rational": Rational,
    "identity": nn.Identity,
}
_NAMES = {cls: name for name, cls in ACTIVATIONS.items()}
_DEFAULT_SETTINGS: dict[str, tuple[tuple[str, object], ...]] = {
    "elu": (("alpha", 1.0),),
    "gelu": (("approximate", "none"),),
    "leaky_relu": (("negative_slope", 0.01),),
    "softplus": (("beta", 1.0), ("threshold", 20.0)),
}


class Function(nn.Module):
    """A plain function as a module, so that hooks see its output."""

    #: Tells the diagnosis that the output is a hidden representation.
    dormancy_kind = "auto"

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(x)

    def extra_repr(self) -> str:
        """Show the function's name."""
        return getattr(self.function, "__name__", repr(self.function))


def make_activation(activation: ActivationLike) -> nn.Module:
    """Return the activation as a module; a module is returned unchanged.

    Examples:
        >>> make_activation("tanh")
        Tanh()
    """
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            message = unknown("activation", activation, ACTIVATIONS)
            raise ValueError(f"{message}. Any callable on tensors works too.")
        return ACTIVATIONS[activation]()
    if isinstance(activation, nn.Module):
        return activation
    if isinstance(activation, type):
        if issubclass(activation, nn.Module):
            return activation()
    elif callable(activation):
        return Function(activation)
    raise TypeError(
        f"activation must be a name, a callable or a module, got {type(activation).__name__}: "
        f"{activation!r}"
    )


def activation_name(module: nn.Module) -> str | None:
    """Return the name of a standard activation with default settings, None for any other module.

    ``ELU(alpha=0.5)``, for example, has no name, nor has an activation with parameters.
    """
    name = _NAMES.get(type(module))
    if name is None or any(True for _ in module.parameters()):
        return None
    settings = _DEFAULT_SETTINGS.get(name, ())
    return name if all(getattr(module, key) == value for key, value in settings) else None
