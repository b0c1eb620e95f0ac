"""Time several functions side by side, and say on what machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from hadamard.core.machine import describe


def machine() -> str:
    """Name the machine, as the tables in docs/performance.md do."""
    if torch.cuda.is_available():
        name = describe(torch.device("cuda"))
        return f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}"
    name = describe(torch.device("cpu"))
    return f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def side_by_side(
    runs: dict[str, Callable[[], object]], seconds: float, device: str = "cpu", least: int = 5
) -> dict[str, float]:
    """Return the median seconds of each function.

    The functions take turns, so that a noisy or throttled moment hits them all alike.
    """
    for run in runs.values():
        for _ in range(3):
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[next(iter(runs))]) < least:
        for name, run in runs.items():
            times[name].append(_once(run, device))
    return {name: statistics.median(values) for name, values in times.items()}


def _once(run: Callable[[], object], device: str) -> float:
    if device == "cpu":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(20):
        run()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 20 / 1000


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """Return the function as a CUDA graph: what the device does, without launch overhead."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()

    def replay() -> object:
        graph.replay()
        return run  # keeps alive the tensors whose addresses the graph holds

    return replay


def seconds_of(call: Callable[[], object], count: int, device: torch.device) -> float:
    """Time calls in a row, the device's work included."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def in_turns(
    calls: dict[str, Callable[[], object]], count: int, turns: int, device: torch.device
) -> dict[str, float]:
    """Return the median seconds of a call of each, taking turns."""
    for call in calls.values():
        seconds_of(call, max(1, count // 10), device)  # capturing and compiling too
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            times[name].append(seconds_of(call, count, device))
    return {name: statistics.median(values) for name, values in times.items()}


def print_kernels(name: str, call: Callable[[], object], count: int = 5, shown: int = 20) -> None:
    """Print what the device spends its time on in a call, the longest first."""
    cuda = torch.cuda.is_available()
    activity = ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        for _ in range(count):
            call()
        if cuda:
            torch.cuda.synchronize()
    rows = [
        ((row.self_device_time_total if cuda else row.self_cpu_time_total) / count, row)
        for row in profiler.key_averages()
    ]
    kernels = sum(row.count for _, row in rows) / count
    print(f"{name}: {sum(spent for spent, _ in rows):,.0f} us in {kernels:.0f} operations")
    for spent, row in sorted(rows, key=lambda pair: -pair[0])[:shown]:
        print(f"{spent:>10.1f} us {row.count / count:>6.1f}x  {row.key[:100]}")
