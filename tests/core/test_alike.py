"""A saved state has the kinds of values that its part has itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hadamard.core.alike import require_alike
from hadamard.core.typed import WrongType

OWN: dict[Any, Any] = {
    "rate": 0.1,
    "updates": 3,
    "on": True,
    "name": "x",
    "weights": torch.zeros(2),
    "counts": np.zeros(2),
    "groups": [{"eps": 1e-8, "betas": (0.9, 0.99)}],
    "latest": None,
}


def test_what_a_part_may_save_later_is_accepted() -> None:
    require_alike(OWN, OWN, "part")
    later = {"rate": 1, "weights": torch.ones(5), "latest": {"loss": 2.0}, "more": "x"}
    require_alike(OWN | later, OWN, "part")
    require_alike({**OWN, "groups": []}, {**OWN, "groups": OWN["groups"] * 2}, "part")
    require_alike({0: torch.ones(1)}, {0: torch.zeros(1)}, "part")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": "0.1"}, "part.rate must be a number, got '0.1'"),
        ({"updates": {}}, "part.updates must be a number, got {}"),
        ({"updates": 10**30}, "part.updates must be a number, got a number of 100 bits"),
        ({"on": 1}, "part.on must be true or false, got 1"),
        ({"name": None}, "part.name must be a text, got None"),
        ({"weights": [0.0, 0.0]}, "part.weights must be a tensor"),
        ({"counts": torch.zeros(2)}, "part.counts must be a tensor"),
        ({"groups": {}}, "part.groups must be a list, got {}"),
        ({"groups": [{"eps": {}}]}, r"part.groups\[0\].eps must be a number, got {}"),
        ({"groups": [{"betas": (0.9, "x")}]}, r"betas\[1\] must be a number, got 'x'"),
    ],
)
def test_values_of_another_kind_are_refused_by_place(change: Any, message: str) -> None:
    with pytest.raises(WrongType, match=message):
        require_alike(OWN | change, OWN, "part")
    with pytest.raises(WrongType, match="part must be an object, got 5"):
        require_alike(5, OWN, "part")
