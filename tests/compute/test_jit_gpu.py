"""Captured graphs do not depend on each other. Needs a CUDA device."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import Tensor

from hadamard.compute.jit import Captured

pytestmark = pytest.mark.gpu


def test_a_graph_works_after_another_is_deleted() -> None:
    weight = torch.randn(512, 512, device="cuda")

    def product(x: Tensor) -> dict[str, Tensor]:
        return {"out": x @ weight}

    inputs = torch.randn(8, 512, device="cuda")
    first, second = (Captured(product, torch.device("cuda"), []) for _ in range(2))
    expected = first(inputs)["out"]
    assert torch.equal(second(inputs)["out"], expected)
    assert first.stream != second.stream
    assert first(inputs[:4])["out"].shape == (4, 512)  # a new shape gets a new graph
    del first
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.equal(second(inputs)["out"], expected)
