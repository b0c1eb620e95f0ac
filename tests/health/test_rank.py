"""The effective rank equals the paper's function."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hadamard.health import effective_rank


def paper_rank(features: np.ndarray, delta: float = 0.01) -> int:
    values = np.linalg.svd(features, compute_uv=False)
    return len(values) - int(np.sum(np.cumsum(values) >= (1 - delta) * np.sum(values))) + 1


@pytest.mark.parametrize("shape", [(2048, 64), (300, 300), (40, 500), (64, 1)])
@pytest.mark.parametrize("decay", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("delta", [0.01, 0.2])
def test_effective_rank_equals_the_papers(
    shape: tuple[int, int], decay: float, delta: float
) -> None:
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        features = torch.randn(shape, generator=g, dtype=torch.float64)
        features = features * torch.exp(-decay * torch.arange(shape[1]))
        assert effective_rank(features, delta) == paper_rank(features.numpy(), delta)
        low = torch.randn(shape[0], 3, generator=g) @ torch.randn(3, shape[1], generator=g)
        assert effective_rank(low, delta) == paper_rank(low.double().numpy(), delta)


def test_effective_rank_at_the_threshold() -> None:
    # Of 99 + 1, the first value is exactly 99 %. If it is slightly smaller, two are needed.
    for first in (99.0, 99.0 * (1 - 1e-9), 99.0 * (1 + 1e-9)):
        features = torch.diag(torch.tensor([first, 1.0], dtype=torch.float64))
        assert effective_rank(features) == paper_rank(features.numpy())
    assert effective_rank(torch.diag(torch.tensor([98.9, 1.0]))) == 2
    assert effective_rank(torch.zeros(4, 3)) == paper_rank(np.zeros((4, 3))) == 1
    assert effective_rank(torch.ones(4, 3)) == 1
    assert effective_rank(torch.eye(5) * 1e-30) == 5
    for scale in (1e99, 1e-200):  # the square of the smaller one is 0
        assert effective_rank(torch.eye(5, dtype=torch.float64) * scale) == 5


@pytest.mark.parametrize("excess", [1e-11, -1e-11])
def test_effective_rank_where_the_gram_matrix_is_not_exact_enough(excess: float) -> None:
    # The first singular value is 99 % of the sum up to 1e-11, a difference that squaring loses.
    width = 200
    tail = 0.01 / 0.99 / (width - 1) * (1 + excess)
    spectrum = torch.full((width,), tail, dtype=torch.float64)
    spectrum[0] = 1
    for seed in range(5):
        g = torch.Generator().manual_seed(seed)
        left, right = (
            torch.linalg.qr(torch.randn(n, width, generator=g, dtype=torch.float64))[0]
            for n in (400, width)
        )
        assert effective_rank(left * spectrum @ right.T) == (2 if excess > 0 else 1)


def test_effective_rank_of_feature_maps_with_both_positions() -> None:
    maps = torch.randn(30, 4, 2, 2)
    by_channel = maps.movedim(1, -1).reshape(-1, 4)
    assert effective_rank(maps) == paper_rank(by_channel.numpy())
    flat = paper_rank(maps.flatten(1).numpy())
    assert effective_rank(maps, positions="neurons") == flat
