"""Seeds and random generators: independent, saved and restored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hadamard.core import checkpoint
from hadamard.core.random import Counters, Random, child_seed, seeded


def test_generators_and_counters_are_restored(tmp_path: Path) -> None:
    random, counters = Random(4), Counters(steps=3, updates=0)
    torch.rand(5, generator=random.generator)
    checkpoint.save(tmp_path, 1, {"random": random, "counters": counters})
    expected = torch.rand(5, generator=random.generator)
    counters["updates"] += 9
    restored, numbers = Random(5), Counters(steps=0, updates=1)
    checkpoint.load(tmp_path, {"random": restored, "counters": numbers})
    assert torch.equal(torch.rand(5, generator=restored.generator), expected)
    assert numbers.values == {"steps": 3, "updates": 0}


def test_seeds_of_different_purposes_differ() -> None:
    seeds = {child_seed(seed, *purpose) for seed in range(20) for purpose in ((0,), (1,), (3, 7))}
    assert len(seeds) == 60
    state = torch.get_rng_state()
    with seeded(1):
        first = torch.rand(3)
    with seeded(1):
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_state_of_another_kind_of_device_is_used_as_a_seed() -> None:
    draws = []
    for filling in (0, 0, 1):
        ours = Random(0)
        with pytest.warns(UserWarning, match="another kind of device"):
            ours.load_state_dict({"generator": torch.full((16,), filling, dtype=torch.uint8)})
        draws.append(torch.rand(4, generator=ours.generator))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_seeding_does_not_seed_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("seeded a GPU"))
    with seeded(3):
        first = torch.rand(2)
    with seeded(3):
        assert torch.equal(torch.rand(2), first)
