"""A diagnosis in one thread leaves the network to another thread, which trains it meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from hadamard import Monitor, diagnose
from hadamard.health import Diagnosis, capture

LIMIT = 60.0  # seconds; only a deadlock takes as long


class Pausing(nn.Module):
    """A network that stops inside its forward, in every thread but the one that made it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout())
        self.head = nn.Linear(16, 2)
        self.trainer = threading.get_ident()
        self.entered, self.resume = threading.Event(), threading.Event()

    def forward(self, x: Tensor) -> Tensor:
        if threading.get_ident() != self.trainer:
            self.entered.set()
            assert self.resume.wait(LIMIT)
        out: Tensor = self.head(self.body(x))
        return out


@contextmanager
def paused(net: Pausing, examine: Callable[[], Diagnosis]) -> Iterator[list[Diagnosis]]:
    """Run a diagnosis in another thread up to the middle of its forward, and finish it at exit."""
    results: list[Diagnosis] = []
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(examine)
        try:
            assert net.entered.wait(LIMIT)
            yield results
        finally:
            net.resume.set()
            results.append(future.result(LIMIT))


def examinations(net: Pausing, x: Tensor) -> dict[str, Callable[[], Diagnosis]]:
    monitor = Monitor(net, every=1, path=None)
    return {"diagnose": lambda: diagnose(net, x), "monitor": lambda: monitor.step(x)}


@pytest.mark.parametrize("way", ["diagnose", "monitor"])
def test_training_goes_on_in_training_mode(way: str) -> None:
    net, x = Pausing(), torch.randn(50, 6)
    expected = diagnose(net, x).to_dict()
    modes: list[bool] = []
    net.body.register_forward_hook(lambda module, *_: modes.append(module.training))
    with paused(net, examinations(net, x)[way]) as results:
        assert all(module.training for module in net.modules())
        assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules()) == 1
        output = net(x)
        assert modes == [True]
        assert output.requires_grad
        assert int(net.body[1].num_batches_tracked) == 1
        net.body[1].reset_running_stats()
    assert modes == [True, False]
    assert results[0].to_dict() == expected


def test_the_random_numbers_of_training_are_not_repeated() -> None:
    net, x = Pausing(), torch.randn(50, 6)
    torch.manual_seed(3)
    expected = torch.rand(6)
    torch.manual_seed(3)
    with paused(net, lambda: diagnose(net, x)):
        first = torch.rand(3)
    assert torch.equal(torch.cat([first, torch.rand(3)]), expected)


def test_one_network_runs_at_a_time() -> None:
    # The stance of torch.compile is one for all threads: overlapping changes cannot be undone.
    net = Pausing()
    with paused(net, lambda: diagnose(net, torch.randn(50, 6))):
        assert not capture._ONE_AT_A_TIME.acquire(blocking=False)
    assert capture._ONE_AT_A_TIME.acquire(blocking=False)
    capture._ONE_AT_A_TIME.release()
