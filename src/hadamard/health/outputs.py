"""The tensors in what a module returns, each with a name; and the inputs a network is run on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

RECURRENT = (nn.RNNBase, nn.RNNCellBase)
"""Layers whose output is a hidden representation, though no activation module follows them."""


def named_outputs(module: nn.Module, output: Any) -> dict[str, Tensor]:
    """Return the tensors that a module returned, by name; one tensor has the name "".

    Of a recurrent layer these are ``output``, ``hidden`` and ``cell``, the last two with the batch
    first; of attention ``output`` and ``weights``. Other tensors are named as their dict, dataclass
    or named tuple names them, or numbered.
    """
    if isinstance(output, Tensor):
        return {"": output}
    if isinstance(module, nn.RNNBase):
        sequence, state = output
        hidden, cell = state if isinstance(state, tuple) else (state, None)
        data = sequence.data if isinstance(sequence, PackedSequence) else sequence
        parts = {"output": data, "hidden": _batch_first(hidden)}
        return parts if cell is None else {**parts, "cell": _batch_first(cell)}
    if isinstance(module, nn.LSTMCell):
        return dict(zip(("hidden", "cell"), output, strict=True))
    if isinstance(module, nn.MultiheadAttention):
        names: Any = dict(zip(("output", "weights"), output, strict=True))
    elif isinstance(output, Mapping):
        names = {str(name): value for name, value in output.items()}
    elif dataclasses.is_dataclass(output):
        names = vars(output)
    elif isinstance(output, tuple | list):
        fields = getattr(output, "_fields", map(str, range(len(output))))
        names = dict(zip(fields, output, strict=True))
    else:
        names = {}
    return {
        name: value
        for name, value in names.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2
    }


def _batch_first(state: Tensor) -> Tensor:
    """Return a state (layers, batch, features) as (batch, layers * features)."""
    return state.movedim(1, 0).flatten(1) if state.dim() == 3 else state


def tensors(inputs: Any, network: nn.Module) -> Any:
    """Return inputs with NumPy's arrays as tensors on the network's device.

    Arrays of floating-point numbers get the precision of the network's weights. Tensors stay as
    they are.
    """
    if isinstance(inputs, np.ndarray | np.generic):
        if inputs.dtype.hasobject or inputs.dtype.kind not in "biufc":
            raise TypeError(f"an array of {inputs.dtype} is no observation: pass arrays of numbers")
        weight = next((p for p in network.parameters() if p.is_floating_point()), None)
        array = torch.as_tensor(np.ascontiguousarray(inputs))
        if weight is None:
            return array
        dtype = weight.dtype if array.is_floating_point() else array.dtype
        return array.to(weight.device, dtype)
    if isinstance(inputs, Mapping):
        return {name: tensors(value, network) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        values = [tensors(value, network) for value in inputs]
        return type(inputs)(*values) if hasattr(inputs, "_fields") else type(inputs)(values)
    return inputs
