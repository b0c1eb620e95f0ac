"""Kinds of PyTorch's modules, which the conversion and the diagnosis both tell apart."""

from __future__ import annotations

import torch
from torch import nn

AFFINE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NOT_HIDDEN = (nn.MultiheadAttention, nn.Softmax, nn.Softmax2d, nn.Softmin, nn.LogSoftmax)
"""Modules that PyTorch lists among the activations, but whose outputs are no hidden units."""


def refuse_torchscript(network: nn.Module, verb: str) -> None:
    """Raise an error that names a TorchScript module: its modules are not Python's.

    Examples:
        >>> refuse_torchscript(nn.Linear(2, 2), "convert")
    """
    for name, module in network.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(
                f"{repr(name) if name else 'the model'} is a TorchScript module, whose layers "
                f"cannot be reached: {verb} the network before torch.jit.script or torch.jit.trace"
            )


def refuse_wrapped(network: nn.Module, verb: str) -> None:
    """Raise an error that names a module around the network, which holds on to its parameters.

    Examples:
        >>> refuse_wrapped(nn.Linear(2, 2), "convert")
    """
    for name, module in network.named_modules():
        classes = [cls for cls in type(module).__mro__ if cls.__module__.startswith("torch.")]
        if any(cls.__name__ in _WRAPPERS for cls in classes):
            place = repr(name) if name else "the model"
            raise TypeError(
                f"{place} is wrapped for distributed training ({type(module).__name__}), which "
                f"holds on to its present parameters: {verb} the network first, on every process "
                "from the same seed, and wrap it then"
            )


_WRAPPERS = {
    "DistributedDataParallel",
    "DataParallel",
    "FullyShardedDataParallel",
    "FSDPModule",  # what fully_shard makes of a module
}
"""By name, because importing them loads what an ordinary network does not need."""
