"""Recycling of single neurons: new incoming weights, outgoing weights of zero."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hadamard.compute.flat import moments
from hadamard.plasticity._layers import HiddenLayer, hidden_layers


@torch.no_grad()
def recycle(layer: HiddenLayer, neurons: Tensor, optimizer: torch.optim.Optimizer) -> int:
    """Recycle the neurons of a mask; return their number.

    A neuron's rows in every part are drawn anew, the columns of its outputs in the readers are set
    to zero, and so are the optimizer's moments of both.
    """
    count = len(neurons)
    number = int(neurons.sum())
    if not number:
        return 0
    for part, values in zip(layer.parts, layer.fresh_values(), strict=True):
        for name, parameter in part.named_parameters(recurse=False):
            rows = neurons.repeat(len(parameter) // count)
            parameter[rows] = values[name].to(parameter.device)[rows]
            for moment in moments(optimizer, parameter):
                moment[rows] = 0
    columns = neurons.repeat(layer.outputs // count)
    for reader in layer.readers:
        weight = reader.get_parameter("weight")
        for tensor in (weight, *moments(optimizer, weight)):
            by_output = columns_by_output(tensor, layer.outputs, channels_last=layer.channels_last)
            by_output.movedim(1, 0)[columns] = 0
    return number


def columns_by_output(weight: Tensor, outputs: int, *, channels_last: bool) -> Tensor:
    """Return a reader's weight as a view whose second dimension is the outputs that it reads.

    Examples:
        >>> columns_by_output(torch.zeros(3, 12), 4, channels_last=True).shape
        torch.Size([3, 4, 3])
    """
    if weight.dim() > 2:
        return weight
    if channels_last:  # flattened images: position by position, channel after channel
        return weight.view(len(weight), -1, outputs).transpose(1, 2)
    return weight.view(len(weight), outputs, -1)


@torch.no_grad()
def representations(
    network: nn.Module, obs: Tensor, function: Callable[[Tensor], Tensor]
) -> dict[HiddenLayer, Tensor]:
    """Run a network; return a function of each hidden layer's output."""
    results: dict[HiddenLayer, Tensor] = {}

    def hook(layer: HiddenLayer) -> Callable[..., None]:
        def record(_: nn.Module, __: object, output: Tensor) -> None:
            results[layer] = function(output)

        return record

    handles = [layer.output.register_forward_hook(hook(layer)) for layer in hidden_layers(network)]
    try:
        network(obs)
    finally:
        for handle in handles:
            handle.remove()
    return results


def mean_magnitudes(output: Tensor) -> Tensor:
    """Return each output's mean absolute value over batch and positions."""
    return output.abs().transpose(0, 1).flatten(1).mean(1)


def relative(magnitudes: Tensor) -> Tensor:
    """Return magnitudes over their layer's mean.

    Examples:
        >>> relative(torch.tensor([0.0, 1.0, 2.0]))
        tensor([0., 1., 2.])
    """
    return magnitudes / magnitudes.mean().clamp_min(1e-9)
