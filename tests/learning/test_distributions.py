"""The squashed Gaussian, projections on bins, and two-hot codes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hadamard.learning.distributions import TwoHot, project_on_bins, sample_squashed_gaussian
from tests.support.arrays import split_between_bins


@pytest.mark.parametrize("raw", [-30.0, -10.0, -1.0, 0.0, 0.3, 8.0, 30.0])
@pytest.mark.parametrize("deviation", [math.exp(-10), 0.5, math.exp(2)])
def test_the_squashed_gaussian_is_exact_in_the_tails(raw: float, deviation: float) -> None:
    mean, noise = raw - 1.5 * deviation, 1.5
    action, log_probability = sample_squashed_gaussian(
        torch.tensor([[mean]], dtype=torch.float64),
        torch.tensor([[deviation]], dtype=torch.float64),
        torch.tensor([[noise]], dtype=torch.float64),
    )
    # 1 - tanh(x)^2 = 4 e^(-2|x|) / (1 + e^(-2|x|))^2
    e = math.exp(-2 * abs(raw))
    volume = math.log(4) - 2 * abs(raw) - 2 * math.log1p(e)
    gaussian = -0.5 * noise**2 - math.log(deviation) - 0.5 * math.log(2 * math.pi)
    assert log_probability.item() == pytest.approx(gaussian - volume, rel=1e-9)
    assert action.item() == pytest.approx(math.tanh(raw))
    single = sample_squashed_gaussian(*(torch.tensor([[x]]) for x in (mean, deviation, noise)))[1]
    assert single.item() == pytest.approx(gaussian - volume, rel=1e-4)


def test_the_squashed_gaussian_is_a_density() -> None:
    mean, deviation = 0.7, 0.9
    raw = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    noise = ((raw - mean) / deviation)[:, None]
    full = torch.full_like(noise, 1.0)
    action, log_probability = sample_squashed_gaussian(mean * full, deviation * full, noise)
    area = torch.trapezoid(log_probability.exp(), action[:, 0])
    assert area.item() == pytest.approx(1.0, abs=1e-6)


def test_the_projection_on_bins_at_and_beyond_the_edges() -> None:
    bins = np.linspace(-5, 5, 101)
    rng = np.random.default_rng(0)
    probability = rng.dirichlet(np.ones(101), size=6)
    values = rng.normal(scale=4, size=(6, 101))
    values[1] = 7.0  # all above
    values[2] = -99.0  # all below
    values[3] = bins  # exactly on the bins
    values[4] = 5.0  # exactly on the edge
    values[5] = bins + 0.05  # in the middle
    projected = project_on_bins(*(torch.from_numpy(x) for x in (probability, values, bins))).numpy()
    np.testing.assert_allclose(projected, split_between_bins(probability, values, bins), atol=1e-9)
    np.testing.assert_allclose(projected.sum(1), 1, atol=1e-9)
    assert projected[1, -1] == pytest.approx(1)
    assert projected[2, 0] == pytest.approx(1)
    np.testing.assert_allclose(projected[3], probability[3], atol=1e-9)
    # The mean equals that of the clipped values.
    clipped = np.clip(values, -5, 5)
    np.testing.assert_allclose((projected * bins).sum(1), (probability * clipped).sum(1), atol=1e-9)


def test_two_hot_by_hand() -> None:
    two_hot = TwoHot(count=5, largest=2.0)
    edges = [math.e**2 - 1, math.e - 1]
    assert two_hot.bins.tolist() == pytest.approx([-edges[0], -edges[1], 0, edges[1], edges[0]])
    middle = (edges[0] + edges[1]) / 2
    expected = {
        0.0: [0, 0, 1, 0, 0],
        edges[1] / 4: [0, 0, 0.75, 0.25, 0],
        -edges[1] / 4: [0, 0.25, 0.75, 0, 0],
        middle: [0, 0, 0, 0.5, 0.5],
        edges[0]: [0, 0, 0, 0, 1],
        -edges[0]: [1, 0, 0, 0, 0],
        1e9: [0, 0, 0, 0, 1],
        -1e9: [1, 0, 0, 0, 0],
        math.inf: [0, 0, 0, 0, 1],
    }
    encoded = two_hot.encode(torch.tensor(list(expected)))
    torch.testing.assert_close(encoded, torch.tensor(list(expected.values())).float())
    assert two_hot.decode(torch.tensor([0.0, 0.25, 0.5, 0.0, 0.25])).item() == pytest.approx(
        0.25 * (edges[0] - edges[1])
    )


def test_decoding_inverts_encoding() -> None:
    two_hot = TwoHot(65)
    values = torch.cat([torch.linspace(-30, 30, 1001), torch.tensor([-2e4, 3e3, 2.2e4])])
    encoded = two_hot.encode(values.view(4, 251))
    assert encoded.shape == (4, 251, 65)
    assert (encoded >= 0).all()
    assert ((encoded > 0).sum(-1) <= 2).all()
    torch.testing.assert_close(encoded.sum(-1), torch.ones(4, 251))
    torch.testing.assert_close(two_hot.decode(encoded).flatten(), values, rtol=1e-4, atol=1e-5)
    outermost = two_hot.bins[-1].item()
    clipped = two_hot.decode(two_hot.encode(torch.tensor([1e6, -1e6])))
    assert clipped.tolist() == pytest.approx([outermost, -outermost])
