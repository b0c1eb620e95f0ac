"""Kernel density of each neuron's activations and its exact peak, for many neurons together.

The estimate is the paper's: activations jittered by N(0, 1e-5 variance), Gaussian kernel,
bandwidth n^(-1/5) times the standard deviation of the jittered activations (Scott's rule, with
the n - 1 divisor that ``scipy.stats.gaussian_kde`` uses).

The peak is found in two steps. First, samples are counted in bins an eighth of a bandwidth wide
(finer for few samples), and the smoothed counts give the density to better than 1 %, at a cost
that does not grow with samples x grid. Then Newton's method starts from the highest bins and finds
the maxima of the exact density, so the returned value is the sum over all samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

JITTER_VARIANCE = 1e-5
_KERNEL_REACH = 5  # beyond five bandwidths the kernel is below 1e-5
_CANDIDATES = 4  # how many of the highest bins are evaluated exactly
_CANDIDATE_MARGIN = 0.99  # relative to the highest bin; the error of binning is below 1 %
_STEP_TOLERANCE = 1e-3  # in bandwidths: this close to a maximum, its height is right to 1e-6
_MAX_STEPS = 30
# A check of which neurons are done makes the host wait for a GPU; until then they stay in place.
_STEPS_BETWEEN_CHECKS = {"cpu": 1, "cuda": 3}
# Memory for the neurons of one pass: what fits into a CPU's cache, or occupies a GPU.
_WORKING_BYTES = {"cpu": 16 * 2**20, "cuda": 640 * 2**20}


def jittered(samples: Tensor, jitter: Tensor) -> Tensor:
    """Return (..., neurons, samples) in float64, centered, with the jitter added.

    ``samples`` are (..., samples, neurons), ``jitter`` is (..., samples). Without centering, the
    rounding of large activations would be larger than the jitter.
    """
    values = samples.mT.contiguous().to(torch.float64)
    # Not in place, because float64 samples may share the caller's memory.
    values = values - values.mean(dim=-1, keepdim=True)
    return values.add_(jitter.unsqueeze(-2))


def draw_jitter(samples: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw one jitter per sample, used for every neuron.

    A neuron's result then depends on its own activations only, not on which other neurons are
    measured. Without a generator the jitter is always the same. The global random state is not
    used.
    """
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    noise = torch.randn(
        samples.shape[0], generator=generator, device=generator.device, dtype=torch.float64
    )
    return noise.to(samples.device) * math.sqrt(JITTER_VARIANCE)


def bandwidths(values: Tensor) -> Tensor:
    """Return the bandwidth of each row, by Scott's rule."""
    bandwidth: Tensor = values.std(dim=1) * values.shape[1] ** -0.2
    return bandwidth


def _bins_per_bandwidth(samples: int) -> int:
    # A sample moves by up to half a bin. Of few samples these errors do not average out.
    return 8 if samples >= 100 else 32


def density_peaks(samples: Tensor, generators: Sequence[torch.Generator | None]) -> Tensor:
    """Return the highest density of each neuron, (networks, neurons).

    ``samples`` are checked activations (networks, samples, neurons); each network has its own
    generator of jitter.
    """
    if samples.device.type == "mps":  # has no float64
        return density_peaks(samples.cpu(), generators).float().to(samples.device)
    jitter = torch.stack(
        [draw_jitter(own, generator) for own, generator in zip(samples, generators, strict=True)]
    )
    # No sample is more than sqrt(n) standard deviations from the mean, which limits the bins.
    n, width = samples.shape[1:]
    bins = _bins_per_bandwidth(n) * (math.sqrt(2 * n) * n**0.2 + 2 * _KERNEL_REACH)
    working_bytes = _WORKING_BYTES.get(samples.device.type, 2**26)
    chunk = max(1, int(working_bytes / (40 * n + 24 * bins)))
    networks = max(1, chunk // width)
    peaks = []
    for some, their_jitter in zip(samples.split(networks), jitter.split(networks), strict=True):
        parts = [
            _peaks(jittered(part, their_jitter).flatten(0, 1)).view(len(some), -1)
            for part in some.split(chunk, 2)  # one part, if the chunk holds whole networks
        ]
        peaks.append(torch.cat(parts, 1))
    return torch.cat(peaks)


def _peaks(values: Tensor) -> Tensor:
    """Return the highest density of each row of ``values``."""
    n = values.shape[1]
    bandwidth = bandwidths(values)
    # From here on, values are in units of the bandwidth, and the smallest is 0.
    values.sub_(values.amin(dim=1, keepdim=True)).div_(bandwidth[:, None])
    heights, positions = _binned_peaks(values)
    best = _exact_heights(values, positions[:, 0])
    others = heights[:, 1:] >= _CANDIDATE_MARGIN * heights[:, :1]
    rows, ranks = others.nonzero(as_tuple=True)
    if rows.numel():
        exact = _exact_heights(values[rows], positions[rows, ranks + 1])
        best.scatter_reduce_(0, rows, exact, "amax")
    return best / (n * bandwidth * math.sqrt(2 * math.pi))


def _binned_peaks(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return heights and positions of each row's highest local maxima, from smoothed counts."""
    per_bandwidth = _bins_per_bandwidth(values.shape[1])
    reach = _KERNEL_REACH * per_bandwidth
    index = values.mul(per_bandwidth).round_().to(torch.int64)
    counts = torch.zeros(len(values), int(index.max()) + 1 + 2 * reach, device=values.device)
    # Integers are added exactly in any order, so a GPU returns the same counts every time.
    ones = torch.ones((), device=values.device).expand(index.shape)
    counts.scatter_add_(1, index.add_(reach), ones)
    smooth = _smoothed(counts, per_bandwidth)
    highest_around = F.max_pool1d(smooth[:, None], 3, stride=1, padding=1)[:, 0]
    maxima = torch.where(smooth >= highest_around, smooth, 0.0)
    heights, bins = maxima.topk(_CANDIDATES, dim=1)
    positions = (bins - reach).to(torch.float64) / per_bandwidth
    return heights, positions


def _smoothed(counts: Tensor, per_bandwidth: int) -> Tensor:
    """Convolve bin counts with the kernel. There may be many bins, so this uses an FFT."""
    length = counts.shape[1]
    padded = 2 ** math.ceil(math.log2(length + _KERNEL_REACH * per_bandwidth))
    lag = torch.arange(padded, device=counts.device)
    lag = torch.minimum(lag, padded - lag) / per_bandwidth
    kernel = torch.fft.rfft(torch.exp(-0.5 * lag.clamp(max=9) ** 2))
    smooth: Tensor = torch.fft.irfft(torch.fft.rfft(counts, padded) * kernel, padded)
    return smooth[:, :length]


def _distance(values: Tensor, position: Tensor) -> Tensor:
    # Beyond nine bandwidths the kernel is below 1e-17 of its height. The limit avoids denormal
    # numbers, which are slow.
    return (values - position[:, None]).float().clamp_(-9, 9)


def _exact_heights(values: Tensor, position: Tensor) -> Tensor:
    """Return the exact kernel sum at the maximum near ``position``, by Newton's method."""
    best = torch.zeros_like(position)
    rows = torch.arange(len(values), device=values.device)
    moving = torch.ones_like(rows, dtype=torch.bool)
    between_checks = _STEPS_BETWEEN_CHECKS.get(values.device.type, 1)
    for step_number in range(1, _MAX_STEPS + 1):
        distance = _distance(values, position)
        square = distance.square()
        weight = square.mul(-0.5).exp_()
        height = weight.sum(dim=1)
        best[rows] = torch.maximum(best[rows], torch.where(moving, height, 0.0).double())
        # Not as dot products, which a GPU may compute in TF32.
        slope = (weight * distance).sum(dim=1)
        curvature = (weight * square).sum(dim=1) - height
        # Where the density is not concave, a mean-shift step, which always increases it.
        step = slope / torch.where(curvature < 0, -curvature, height)
        step = torch.where(moving, step.clamp_(-0.5, 0.5), 0.0)
        position = position + step.double()
        moving = step.abs() > _STEP_TOLERANCE
        if step_number % between_checks:
            continue
        still = moving.nonzero().squeeze(1)
        if still.numel() == 0:
            break
        if still.numel() < len(rows):
            rows, position, moving = rows[still], position[still], moving[still]
            values = values[still]
    return best


def density_curves(
    samples: Tensor, points: int = 200, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Return places and densities, each (neurons, points), for drawing."""
    jitter = draw_jitter(samples, generator).cpu()
    samples = samples.cpu()
    values = jittered(samples, jitter)
    bandwidth = bandwidths(values)[:, None]
    low = values.amin(dim=1, keepdim=True) - 3 * bandwidth
    high = values.amax(dim=1, keepdim=True) + 3 * bandwidth
    places = low + (high - low) * torch.linspace(0, 1, points, dtype=torch.float64)
    density = torch.empty_like(places)
    for i in range(len(values)):
        distance = places[i, :, None] - values[i]
        # In place, because memory of this size is slow to get.
        kernel = distance.div_(bandwidth[i]).square_().mul_(-0.5).exp_()
        density[i] = kernel.mean(dim=1)
    density /= bandwidth * math.sqrt(2 * math.pi)
    return places + samples.double().mean(dim=0)[:, None], density
