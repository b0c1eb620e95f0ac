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


def test_garbage_graphs_do_not_disturb_a_capture() -> None:
    device, inputs = torch.device("cuda"), torch.randn(8, 512, device="cuda")

    def doubled(x: Tensor) -> dict[str, Tensor]:
        containers = [[i] for i in range(100)]  # enough for the garbage collector to start
        return {"out": x * len(containers) / 50}

    earlier = Captured(doubled, device, [])
    earlier(inputs)
    earlier.itself = earlier  # type: ignore[attr-defined]  # only the garbage collector frees it
    del earlier
    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        assert torch.allclose(Captured(doubled, device, [])(inputs)["out"], 2 * inputs)
    finally:
        gc.set_threshold(*thresholds)
    assert gc.isenabled()
