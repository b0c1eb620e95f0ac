"""Fixtures of the tests of compiling and capturing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo


@pytest.fixture(autouse=True)
def fresh_compiler() -> Iterator[None]:
    """Forget earlier compilations, and use one thread, as most runs do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)
