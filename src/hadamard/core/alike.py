"""Whether a saved state has the kinds of values that the part it belongs to has itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from hadamard.core.typed import WrongType, checked, shortened


def require_alike(saved: Any, own: Any, place: str) -> None:
    """Refuse a state whose values are of other kinds than those that a part has itself.

    What a part does not have yet is left to its own ``load_state_dict``, and so are sizes.
    """
    if isinstance(own, Mapping):
        checked(saved, dict[str, Any] if all(isinstance(k, str) for k in own) else Mapping, place)
        for name in own.keys() & saved.keys():
            require_alike(saved[name], own[name], f"{place}.{name}")
    elif isinstance(own, list | tuple):
        checked(saved, type(own), place)
        for number, (item, mine) in enumerate(zip(saved, own, strict=False)):
            require_alike(item, mine, f"{place}[{number}]")
    elif isinstance(own, Tensor | np.ndarray):
        if not isinstance(saved, Tensor if isinstance(own, Tensor) else np.ndarray):
            raise WrongType(f"{place} must be a tensor, got {shortened(saved)}")
    elif isinstance(own, bool | str):
        checked(saved, type(own), place)
    elif isinstance(own, int | float) and saved is not None:
        checked(saved, float, place)
