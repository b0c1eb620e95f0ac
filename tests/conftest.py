from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


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
