"""The measurements agree with independent computations and with hand-worked numbers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.stats import gaussian_kde
from torch import Tensor, nn

from hadamard import HadamardConv2d, HadamardLinear
from hadamard.health import dormant, effective_rank, hidden_bias, kde, theory
from hadamard.health.samples import as_samples


def neurons(n: int) -> dict[str, Tensor]:
    """Neurons of every kind the rule must judge."""
    g = torch.Generator().manual_seed(n)

    def normal(scale: float) -> Tensor:
        return scale * torch.randn(n, generator=g)

    sign = (torch.rand(n, generator=g) < 0.5).float() * 2 - 1
    sparse = torch.where(torch.rand(n, generator=g) < 0.02, normal(1.0), torch.zeros(n))
    return {
        "constant": torch.ones(n),
        "constant far out": torch.full((n,), 1e6),
        "near-constant": -1 + normal(1e-4).abs(),
        "just dormant": normal(0.016),
        "just awake": normal(0.024),
        "bimodal at +-1": sign,
        "bimodal, unequal": torch.where(torch.rand(n, generator=g) < 0.1, -1.0, 1.0),
        "uniform": 2 * torch.rand(n, generator=g) - 1,
        "Gaussian": normal(1.0),
        "sparse": sparse,
        "one outlier": torch.cat([torch.ones(n - 1), torch.tensor([-1.0])]),
        "saturated": torch.tanh(4 + normal(0.5)),
        "two near-equal modes": sign * 0.7 + normal(0.01),
    }


def dense_scipy_peak(values: np.ndarray) -> float:
    """Peak of scipy's estimate on 30,000 points and 2,000 more around the highest."""
    density = gaussian_kde(values)
    grid = np.linspace(values.min(), values.max(), 30_000)
    # In pieces: the estimate takes grid x samples at once.
    heights = np.concatenate([density(part) for part in np.array_split(grid, 30)])
    top, step = grid[heights.argmax()], grid[1] - grid[0]
    return max(heights.max(), density(np.linspace(top - step, top + step, 2_000)).max())


@pytest.mark.parametrize("n", [40, 500])
def test_kde_peak_and_flag_agree_with_scipy_evaluated_densely(n: int) -> None:
    table = neurons(n)
    matrix = torch.stack(list(table.values()), dim=1)
    found = dormant(matrix, kind="tanh")
    jitter = kde.draw_jitter(matrix, None).numpy()
    for i, (name, values) in enumerate(table.items()):
        v = values.double().numpy()
        peak = dense_scipy_peak(v - v.mean() + jitter)
        assert float(found.peaks[i]) == pytest.approx(peak, rel=2e-5), name
        assert bool(found.mask[i]) == (peak >= 20), name
    flags = dict(zip(table, found.mask.tolist(), strict=True))
    assert flags["constant"]
    assert flags["constant far out"]
    assert flags["near-constant"]
    assert not flags["bimodal at +-1"]
    assert not flags["uniform"]
    assert not flags["Gaussian"]


def assert_peaks_are_those_of_the_sum(x: Tensor) -> None:
    """Compare with the paper's sum on 20,001 points across each neuron's range."""
    values = kde.jittered(x, kde.draw_jitter(x, None))
    peaks = dormant(x, "tanh").peaks
    for i, (v, bandwidth) in enumerate(zip(values, kde.bandwidths(values), strict=True)):
        grid = torch.linspace(float(v.min()), float(v.max()), 20_001, dtype=torch.float64)
        density = torch.exp(-0.5 * ((grid[:, None] - v) / bandwidth) ** 2).mean(1)
        density /= bandwidth * (2 * torch.pi) ** 0.5
        assert float(peaks[i]) == pytest.approx(float(density.max()), rel=2e-6)


def test_the_higher_of_two_near_equal_peaks_is_found() -> None:
    # Two clusters of one size: bins alone would often rank them wrongly.
    x = torch.randn(60, 60) * 0.02 + torch.tensor([-1.0, 1.0]).repeat(30)[:, None]
    assert_peaks_are_those_of_the_sum(x)


def test_the_top_of_a_flat_summit_is_found() -> None:
    # A handful of samples melt into plateaus, where bins point almost anywhere.
    assert_peaks_are_those_of_the_sum(torch.randn(8, 150))
    assert_peaks_are_those_of_the_sum(torch.randn(20, 100) + (torch.rand(20, 100) < 0.5) * 2.2)


def test_the_estimate_is_the_papers_formula() -> None:
    values = torch.tensor([[0.1], [0.4], [-0.2], [0.3]])
    jitter = kde.draw_jitter(values, torch.Generator().manual_seed(5)).numpy()
    assert abs(kde.draw_jitter(torch.zeros(100_000, 1), None).var() - 1e-5) < 2e-7
    a = values[:, 0].double().numpy() + jitter
    bandwidth = 4 ** (-1 / 5) * a.std(ddof=1)
    x = np.linspace(-2, 2, 400_001)
    density = np.exp(-0.5 * ((x[:, None] - a) / bandwidth) ** 2).sum(1)
    density /= 4 * bandwidth * np.sqrt(2 * np.pi)
    peaks = dormant(values, "tanh", generator=torch.Generator().manual_seed(5)).peaks
    assert float(peaks) == pytest.approx(density.max(), rel=1e-6)
    places, curve = kde.density_curves(values, generator=torch.Generator().manual_seed(5))
    np.testing.assert_allclose(curve[0], np.interp(places[0], x, density), atol=1e-6)


def test_a_neurons_verdict_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.tanh(torch.randn(300, 40) * torch.logspace(-3, 0.5, 40))
    together = dormant(matrix, "tanh").peaks
    alone = torch.cat([dormant(matrix[:, i : i + 1], "tanh").peaks for i in range(40)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=0)
    monkeypatch.setitem(kde._WORKING_BYTES, "cpu", 1)
    torch.testing.assert_close(dormant(matrix, "tanh").peaks, alone, rtol=0, atol=0)


def test_jitter_follows_the_generator_and_leaves_the_global_state_alone() -> None:
    matrix = torch.full((100, 3), 0.5)
    state = torch.get_rng_state()
    default = dormant(matrix, "tanh").peaks
    assert torch.equal(default, dormant(matrix, "tanh").peaks)
    seeded = [
        dormant(matrix, "tanh", generator=torch.Generator().manual_seed(seed)).peaks
        for seed in (1, 1, 2)
    ]
    assert torch.equal(seeded[0], seeded[1])
    assert not torch.equal(seeded[0], seeded[2])
    assert torch.equal(torch.get_rng_state(), state)
    before = matrix.clone()
    dormant(matrix.double(), "tanh")
    assert torch.equal(matrix, before)


def test_relu_rule_is_exact_zeros() -> None:
    z = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1e-30, 1.0], [0.0, 0.0, 1.0]])
    found = dormant(z, "relu")
    assert found.mask.tolist() == [True, False, False]
    assert found.fraction == pytest.approx(1 / 3)
    assert found.peaks is None
    assert str(found) == "1 of 3 neurons dormant (33.3%)"
    assert dormant(z).kind == "relu"  # nothing negative, something zero
    assert dormant(z - 1e-3).kind == "tanh"
    assert dormant(torch.rand(8, 2) + 1).kind == "tanh"


def test_positions_of_feature_maps_are_the_callers_choice() -> None:
    z = torch.randn(50, 2, 1, 2)
    z[:, 0, 0, 0] = 0.7  # constant at one position, awake at the other
    z[:, 1] = 0.2
    assert dormant(z, "tanh").mask.tolist() == [False, True]
    everywhere = dormant(z, "tanh", positions="neurons")
    assert everywhere.mask.tolist() == [True, False, True, True]
    tokens = torch.randn(50, 7, 3)
    tokens[..., 1] = 0
    assert dormant(tokens, "tanh").mask.tolist() == [False, True, False]
    first = dormant(tokens.movedim(-1, 1), "tanh", feature_dim=1)
    assert first.mask.tolist() == [False, True, False]
    assert as_samples(tokens).shape == (350, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_large_inputs_fit_in_a_gibibyte() -> None:
    script = (
        "import re, torch; from hadamard.health import dormant\n"
        "x = torch.empty(8192, 4096).normal_().tanh_()\n"
        "dormant(x[:64], 'tanh')\n"
        "status = lambda: open('/proc/self/status').read()\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s*(\\d+)', status())[1])\n"
        "before = peak(); dormant(x, 'tanh'); after = peak(); torch.ones(300 * 2**18)\n"
        "print((after - before) // 1024, (peak() - after) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    taken, check = map(int, done.stdout.split())
    assert taken < 1024 - 128, f"{taken} MiB beside the input's 128"
    assert 200 < check < 310  # what 300 MiB look like by this measure


def paper_rank(features: np.ndarray, delta: float = 0.01) -> int:
    values = np.linalg.svd(features, compute_uv=False)
    return len(values) - int(np.sum(np.cumsum(values) >= (1 - delta) * np.sum(values))) + 1


@pytest.mark.parametrize("shape", [(2048, 64), (300, 300), (40, 500), (64, 1)])
@pytest.mark.parametrize("decay", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("delta", [0.01, 0.2])
def test_effective_rank_is_the_papers_to_the_integer(
    shape: tuple[int, int], decay: float, delta: float
) -> None:
    for seed in range(3):
        g = torch.Generator().manual_seed(seed)
        features = torch.randn(shape, generator=g, dtype=torch.float64)
        features = features * torch.exp(-decay * torch.arange(shape[1]))
        assert effective_rank(features, delta) == paper_rank(features.numpy(), delta)
        low = torch.randn(shape[0], 3, generator=g) @ torch.randn(3, shape[1], generator=g)
        assert effective_rank(low, delta) == paper_rank(low.double().numpy(), delta)


def test_effective_rank_where_the_sum_meets_the_threshold() -> None:
    # 99 + 1: the first value holds exactly the 99 % asked for; a hair less, and it takes two.
    for first in (99.0, 99.0 * (1 - 1e-9), 99.0 * (1 + 1e-9)):
        features = torch.diag(torch.tensor([first, 1.0], dtype=torch.float64))
        assert effective_rank(features) == paper_rank(features.numpy())
    assert effective_rank(torch.diag(torch.tensor([98.9, 1.0]))) == 2
    assert effective_rank(torch.zeros(4, 3)) == paper_rank(np.zeros((4, 3))) == 1
    assert effective_rank(torch.ones(4, 3)) == 1
    assert effective_rank(torch.eye(5) * 1e-30) == 5
    assert effective_rank(torch.eye(5, dtype=torch.float64) * 1e99) == 5


@pytest.mark.parametrize("excess", [1e-11, -1e-11])
def test_effective_rank_where_the_gram_matrix_is_not_exact_enough(excess: float) -> None:
    # One singular value holds 99 % of the mass but for one part in 10^11, which squaring loses.
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


def test_effective_rank_reads_feature_maps_either_way() -> None:
    maps = torch.randn(30, 4, 2, 2)
    by_channel = maps.movedim(1, -1).reshape(-1, 4)
    assert effective_rank(maps) == paper_rank(by_channel.numpy())
    flat = paper_rank(maps.flatten(1).numpy())
    assert effective_rank(maps, positions="neurons") == flat


def test_hidden_bias_on_hand_worked_numbers() -> None:
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 4.0]]))
        layer.bias.copy_(torch.tensor([0.25, -0.5]))
    z = torch.tensor([[0.5, 1.0, -1.0], [-0.5, 1.0, -1.0]])
    split = hidden_bias(z, layer, torch.tensor([False, True, True]))
    # Live: 0.5 * 1 and 0.5 * 0.5. Dormant: 2 + 1 and 0 - 4, for every input.
    assert split.live_contribution.tolist() == [0.5, 0.25]
    assert split.dormant_contribution.tolist() == [3.0, 4.0]
    assert split.bias_contribution.tolist() == [0.25, 0.5]
    assert split.effective_bias.tolist() == [3.25, -4.5]
    assert split.share == pytest.approx(7 / (7 + 0.75 + 0.75))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 4), (9, 6)),
        (nn.Linear(6, 4, bias=False), (9, 5, 6)),
        (nn.Conv2d(6, 4, 3, padding=1, stride=2), (9, 6, 5, 5)),
        (nn.Conv1d(6, 4, 3), (9, 6, 5)),
        (nn.Linear(6 * 4, 3), (9, 6, 2, 2)),
        (HadamardLinear(6, 4), (9, 6)),
        (HadamardConv2d(6, 4, 3), (9, 6, 5, 5)),
    ],
    ids=["linear", "tokens", "conv2d", "conv1d", "flattened", "hadamard", "hadamard-conv"],
)
def test_the_three_parts_add_up(layer: nn.Module, shape: tuple[int, ...]) -> None:
    z = torch.randn(shape)
    features = shape[1] if len(shape) != 3 or isinstance(layer, nn.Conv1d) else shape[-1]
    if isinstance(layer, nn.Conv1d):
        mask = (torch.rand(shape[1:]) < 0.5).flatten()  # 3 dimensions: one entry per position
    else:
        mask = torch.arange(features) % 2 == 0
    split = hidden_bias(z, layer, mask)
    affine = getattr(layer, "affine", layer)
    true = affine(z.flatten(1) if isinstance(affine, nn.Linear) and len(shape) == 4 else z)
    torch.testing.assert_close(split.live + split.dormant + split.bias, true)
    assert 0 < split.share < 1
    assert len(split.effective_bias) == true.shape[split.output_dim]


def test_dead_relus_contribute_nothing() -> None:
    z = torch.relu(torch.randn(20, 8))
    z[:, :3] = 0
    split = hidden_bias(z, nn.Linear(8, 2), dormant(z, "relu").mask)
    assert split.share == 0
    assert not split.dormant.any()
    nothing = hidden_bias(torch.zeros(4, 8), nn.Linear(8, 2, bias=False), torch.ones(8).bool())
    assert nothing.share == 0


def test_theory_is_the_papers_table_1() -> None:
    tanh = theory.Comparison("tanh", without=0.39, measured=0.30)
    relu = theory.Comparison("relu", without=0.62, measured=0.73)
    assert tanh.predicted == pytest.approx(0.39**2)
    assert relu.predicted == pytest.approx(2 * 0.62 - 0.62**2)
    assert round(100 * tanh.measured_change) == -23
    assert round(100 * relu.measured_change) == 18
    # The predicted change is -(p - p^2) and +(p - p^2), relative to p.
    assert tanh.predicted_change == pytest.approx(-(0.39 - 0.39**2) / 0.39)
    assert relu.predicted_change == pytest.approx((0.62 - 0.62**2) / 0.62)
    assert "predicted 0.15 (-61%), measured 0.30 (-23%)" in str(tanh)
    assert theory.Comparison("tanh", 0.0, 0.1).measured_change is None
    assert "n/a" in str(theory.Comparison("tanh", 0.0, 0.1))


def test_independent_branches_die_as_the_theory_says() -> None:
    p, n = 0.4, 40_000
    first, second = (torch.rand(n) < p for _ in range(2))
    measured = {"tanh": (first & second), "relu": (first | second)}
    for activation, stuck in measured.items():
        expected = theory.predicted_dormant(p, activation)
        assert float(stuck.float().mean()) == pytest.approx(expected, abs=0.01)


BAD_ACTIVATIONS = {
    "empty batch": (torch.zeros(0, 4), ValueError, "batch of at least 2 observations, got 0"),
    "batch of 1": (torch.zeros(1, 4), ValueError, "batch of at least 2 observations, got 1"),
    "no neurons": (torch.zeros(4, 0), ValueError, r"empty: shape \(4, 0\)"),
    "integers": (torch.zeros(4, 4).int(), TypeError, r"got torch.int32; convert with .float\(\)"),
    "wrong rank": (torch.zeros(4), ValueError, r"at least 2 dimensions .* got shape \(4,\)"),
    "numpy": (np.zeros((4, 4)), TypeError, "torch.Tensor, got ndarray"),
    "nan": (
        torch.tensor([[0.0, 1.0], [0.0, float("nan")]]),
        ValueError,
        r"1 NaN or infinite values .*the first in neuron 1 at sample 1 \(nan\)",
    ),
    "beyond float64's squares": (
        torch.full((3, 2), 1e200, dtype=torch.float64),
        ValueError,
        r"beyond 1e\+100\), the first in neuron 0",
    ),
    "inf": (torch.full((3, 2), float("inf")), ValueError, "6 NaN or infinite values"),
}


@pytest.mark.parametrize("case", BAD_ACTIVATIONS)
@pytest.mark.parametrize("measure", [dormant, effective_rank])
def test_bad_activations_are_refused_by_name(case: str, measure) -> None:
    activations, error, message = BAD_ACTIVATIONS[case]
    with pytest.raises(error, match=message):
        measure(activations)


def test_other_bad_arguments() -> None:
    z = torch.randn(8, 4)
    with pytest.raises(ValueError, match="kind must be 'relu', 'tanh' or 'auto', got 'elu'"):
        dormant(z, "elu")
    with pytest.raises(ValueError, match="threshold must be positive, got 0"):
        dormant(z, threshold=0)
    with pytest.raises(ValueError, match="delta must lie between 0 and 1, got 1.5"):
        effective_rank(z, delta=1.5)
    with pytest.raises(ValueError, match="positions must be 'samples' or 'neurons', got 'mean'"):
        dormant(z, positions="mean")
    with pytest.raises(ValueError, match=r"feature_dim 3 does not fit"):
        dormant(z, feature_dim=3)
    with pytest.raises(TypeError, match="linear or convolutional, got ReLU"):
        hidden_bias(z, nn.ReLU(), torch.zeros(4).bool())
    with pytest.raises(TypeError, match="mask must be boolean"):
        hidden_bias(z, nn.Linear(4, 2), torch.zeros(4))
    with pytest.raises(ValueError, match="mask has 3 entries"):
        hidden_bias(z, nn.Linear(4, 2), torch.zeros(3).bool())
    with pytest.raises(ValueError, match="p is a fraction between 0 and 1, got 1.2"):
        theory.predicted_dormant(1.2, "tanh")
    with pytest.raises(ValueError, match="covers 'tanh' and 'relu', got 'elu'"):
        theory.predicted_dormant(0.2, "elu")
    with pytest.raises(ValueError, match="measured is a fraction"):
        theory.Comparison("tanh", 0.2, -1)


@pytest.mark.parametrize("case", BAD_ACTIVATIONS)
def test_hidden_bias_never_returns_nan(case: str) -> None:
    activations, error, message = BAD_ACTIVATIONS[case]
    width = activations.shape[-1]
    with pytest.raises(error, match=message):
        hidden_bias(activations, nn.Linear(max(width, 1), 2), torch.ones(width).bool())


def test_hidden_bias_refuses_a_layer_with_broken_weights() -> None:
    layer = nn.Linear(3, 2)
    layer.weight.data[0, 0] = float("nan")
    with pytest.raises(ValueError, match="Linear makes NaN or infinite values of finite"):
        hidden_bias(torch.randn(4, 3), layer, torch.ones(3).bool())


def test_huge_finite_values_are_not_mistaken_for_infinite() -> None:
    z = torch.full((4, 3), 3e38)
    assert dormant(z, "tanh").count == 3
