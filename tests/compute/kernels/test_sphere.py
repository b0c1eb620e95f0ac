"""The kernel of ``SphereAdam`` on a CPU, in Triton's interpreter. Needs Triton."""

from __future__ import annotations

import functools
import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.sphere import assert_equal_steps, learner

pytest.importorskip("triton")
sphere_triton: Any = importlib.import_module("hadamard.compute.kernels.sphere_triton")
pytestmark = pytest.mark.own_process  # in which Triton interprets kernels
SHAPES: list[tuple[int, ...]] = [(2, 13, 50), (2, 1, 9), (35, 7), (2, 4, 3), (5,), (0, 3), ()]
SMALL: dict[str, Any] = {
    "warps": 1,
    "per_read": 2,
    "registers": 8,
    "preloaded": 4,
    "warps_twice": 1,
    "per_read_twice": 2,
    "programs": 1,
}


@pytest.mark.parametrize("with_targets", [True, False])
@pytest.mark.parametrize(
    ("changes", "read_twice"),
    [
        ({}, {2}),
        ({"narrowest": 32}, {0, 2}),
        ({"registers": 4, "columns_twice": 16}, {0, 2}),
        ({"narrowest": 32, "columns_twice": 64, "tensors": 1}, {0, 2}),
        ({"narrowest": 1, "registers": 32}, set()),
    ],
)
def test_the_kernel_takes_the_plain_step(
    changes: dict[str, Any], read_twice: set[int], with_targets: bool
) -> None:
    tiling = sphere_triton.Tiling(**{**SMALL, **changes})
    fast, plain = (learner(SHAPES, "cpu", with_targets=with_targets) for _ in range(2))
    shapes = {
        index: sphere_triton._matrices(weight.shape, fast.project[index], len(fast.steps))
        for index, weight in enumerate(fast.weights)
        if weight.numel()
    }
    tiles, _ = sphere_triton.plan(shapes, tiling)
    assert {index for index, tile in tiles.items() if not tile.held} == read_twice
    kernels = SimpleNamespace(step=functools.partial(sphere_triton.step, tiling=tiling))
    assert_equal_steps(fast, plain, kernels, count=2)


def test_simbav2s_weights_have_enough_programs() -> None:
    for runs in (1, 4, 8, 16):
        wide, tall = (2 * runs, 512, 2048), (2 * runs, 2048, 512)
        tiles, programs = sphere_triton.plan({0: wide, 1: tall}, sphere_triton.TILING)
        assert tiles[0].held
        assert tiles[1].held == (runs < 8)  # narrow columns, where wide ones are too few
        assert min(programs.values()) >= min(128 * runs, sphere_triton.TILING.programs)
