"""Parts that suites share."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hadamard.envs.common import copy_to_device


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("shape", [(7, 6), (300, 1_000)])
def test_a_copied_array_may_be_overwritten(shape: tuple[int, int], device: str) -> None:
    array = np.arange(shape[0] * shape[1], dtype=np.uint8).reshape(shape)[:, ::2]  # with gaps
    expected = torch.tensor(array)
    copy = copy_to_device(array, torch.device(device))
    array.fill(1)
    assert copy.device.type == device
    assert torch.equal(copy.cpu(), expected)
