"""Values that change over training."""


def linear(start: float, end: float, duration: float, step: float) -> float:
    """Return the value at a step: from ``start`` to ``end`` in ``duration`` steps, then ``end``.

    Examples:
        >>> [linear(1.0, 0.1, 100, step) for step in (0, 50, 100, 900)]
        [1.0, 0.55, 0.1, 0.1]
    """
    if duration <= 0 or step >= duration:
        return end
    return start + (end - start) * step / duration
