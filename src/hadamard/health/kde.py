"""Kernel density of each neuron's activations, and its exact peak, for all neurons at once.

The estimate is the paper's: activations jittered by N(0, 1e-5 variance), Gaussian kernel,
bandwidth n^(-1/5) times the standard deviation of the jittered activations (Scott's rule, with
the n - 1 divisor that ``scipy.stats.gaussian_kde`` uses).

The peak is found in two steps. Counting samples in bins an eighth of a bandwidth wide and
smoothing the counts gives the density everywhere to better than 1 %, at a cost that does not
grow with samples x grid. From the highest places Newton's method climbs to the summits of the
exact density, so the value returned is that of the sum over all samples.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

JITTER_VARIANCE = 1e-5
_BINS_PER_BANDWIDTH = 8
_KERNEL_REACH = 5 * _BINS_PER_BANDWIDTH  # five bandwidths: what is left out is below 1e-5
_RIVALS = 4  # how many near-equal peaks are evaluated exactly
_RIVAL_MARGIN = 0.99  # binning errs by less than this
_STEP_DONE = 1e-3  # in bandwidths: so near a summit the height is right to one part in a million
_STEPS = 30
# How much is worked on at once: what fits into a CPU's cache, or fills a GPU.
_WORKING_BYTES = {"cpu": 16 * 2**20, "cuda": 192 * 2**20}


def jittered(samples: Tensor, jitter: Tensor) -> Tensor:
    """Return (neurons, samples) in float64, centred, with the jitter added.

    Centring first keeps the jitter from drowning in the rounding of large activations.
    """
    values = samples.T.contiguous().to(torch.float64)
    # Not in place: float64 input would be the caller's own memory.
    values = values - values.mean(dim=1, keepdim=True)
    return values.add_(jitter)


def draw_jitter(samples: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw one jitter per sample, used for every neuron.

    A neuron's verdict then depends on its own activations alone, not on which neurons are
    measured beside it. Without a generator the jitter is always the same, and the global random
    state is left alone.
    """
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    noise = torch.randn(
        samples.shape[0], generator=generator, device=generator.device, dtype=torch.float64
    )
    return noise.to(samples.device) * math.sqrt(JITTER_VARIANCE)


def bandwidths(values: Tensor) -> Tensor:
    """Scott's rule for each row."""
    bandwidth: Tensor = values.std(dim=1) * values.shape[1] ** -0.2
    return bandwidth


def density_peaks(samples: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return the highest density of each neuron, for a checked (samples, neurons) matrix."""
    if samples.device.type == "mps":  # has no float64
        return density_peaks(samples.cpu(), generator).float().to(samples.device)
    jitter = draw_jitter(samples, generator)
    # No sample lies further than sqrt(n) standard deviations out, which bounds the bins.
    n = samples.shape[0]
    bins = _BINS_PER_BANDWIDTH * math.sqrt(2 * n) * n**0.2 + 2 * _KERNEL_REACH
    working_bytes = _WORKING_BYTES.get(samples.device.type, 2**26)
    chunk = max(1, int(working_bytes / (40 * n + 24 * bins)))
    return torch.cat([_peaks(jittered(part, jitter)) for part in torch.split(samples, chunk, 1)])


def _peaks(values: Tensor) -> Tensor:
    """Return the highest density of each row of ``values``."""
    n = values.shape[1]
    bandwidth = bandwidths(values)
    # From here on in units of the bandwidth, from the smallest value up.
    values.sub_(values.amin(dim=1, keepdim=True)).div_(bandwidth[:, None])
    heights, places = _binned_peaks(values)
    best = torch.zeros_like(bandwidth)
    for rank in range(_RIVALS):
        rows = (heights[:, rank] >= _RIVAL_MARGIN * heights[:, 0]).nonzero().squeeze(1)
        if rows.numel() == 0:
            break
        exact = _climbed(values if len(rows) == len(values) else values[rows], places[rows, rank])
        best[rows] = torch.maximum(best[rows], exact)
    return best / (n * bandwidth * math.sqrt(2 * math.pi))


def _binned_peaks(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return height and place of each row's highest local maxima, by smoothed bin counts."""
    index = values.mul(_BINS_PER_BANDWIDTH).round_().to(torch.int64)
    counts = torch.zeros(
        len(values), int(index.max()) + 1 + 2 * _KERNEL_REACH, device=values.device
    )
    # Whole numbers: exact in any order, so a GPU gives the same counts each time.
    ones = torch.ones((), device=values.device).expand(index.shape)
    counts.scatter_add_(1, index.add_(_KERNEL_REACH), ones)
    smooth = _smoothed(counts)
    highest_around = F.max_pool1d(smooth[:, None], 3, stride=1, padding=1)[:, 0]
    summits = torch.where(smooth >= highest_around, smooth, 0.0)
    heights, bins = summits.topk(_RIVALS, dim=1)
    places = (bins - _KERNEL_REACH).to(torch.float64) / _BINS_PER_BANDWIDTH
    return heights, places


def _smoothed(counts: Tensor) -> Tensor:
    """Convolve bin counts with the kernel, by FFT: the bins may be many."""
    length = counts.shape[1]
    padded = 2 ** math.ceil(math.log2(length + _KERNEL_REACH))
    lag = torch.arange(padded, device=counts.device)
    lag = torch.minimum(lag, padded - lag) / _BINS_PER_BANDWIDTH
    kernel = torch.fft.rfft(torch.exp(-0.5 * lag.clamp(max=9) ** 2))
    smooth: Tensor = torch.fft.irfft(torch.fft.rfft(counts, padded) * kernel, padded)
    return smooth[:, :length]


def _distance(values: Tensor, place: Tensor) -> Tensor:
    # Beyond nine bandwidths the kernel is below 1e-17 of its height; the limit keeps its tail
    # out of the denormal numbers, which are slow.
    return (values - place[:, None]).float().clamp_(-9, 9)


def _climbed(values: Tensor, place: Tensor) -> Tensor:
    """Return the exact kernel sum at the summit near ``place``, by Newton's method."""
    best = torch.zeros_like(place)
    rows = torch.arange(len(values), device=values.device)
    for _ in range(_STEPS):
        here = values if len(rows) == len(values) else values[rows]
        distance = _distance(here, place[rows])
        square = distance.square()
        weight = square.mul(-0.5).exp_()
        height = weight.sum(dim=1)
        best[rows] = torch.maximum(best[rows], height.double())
        # Not as dot products: a GPU may be allowed to compute those in TF32.
        slope = (weight * distance).sum(dim=1)
        curvature = (weight * square).sum(dim=1) - height
        # Where the density is not concave, the mean-shift step, which always leads uphill.
        step = slope / torch.where(curvature < 0, -curvature, height)
        step = step.clamp_(-0.5, 0.5).double()
        place[rows] += step
        rows = rows[step.abs() > _STEP_DONE]
        if rows.numel() == 0:
            break
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
        distance = (places[i, :, None] - values[i]) / bandwidth[i]
        density[i] = torch.exp(-0.5 * distance**2).mean(dim=1)
    density /= bandwidth * math.sqrt(2 * math.pi)
    return places + samples.double().mean(dim=0)[:, None], density
