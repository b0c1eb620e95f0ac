"""Time several functions side by side, and say on what machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

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
    return begin.elapsed_time(end) / 20 / 1000


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
