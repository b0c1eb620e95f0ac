from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# The tensors of tests are small, and threads that wait for each other make a busy machine crawl.
# Before torch is imported; programs that tests start take it over.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

# Model files that lie beside the repository; elsewhere those in the user's cache are used.
_MODELS = Path(__file__).parents[2] / "shared" / "humanoidbench_assets"
if _MODELS.is_dir():
    os.environ.setdefault("HADAMARD_HUMANOIDBENCH_ASSETS", str(_MODELS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="needs a CUDA device")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)
