"""What comes due between two step counts."""

from __future__ import annotations

import itertools

import pytest

from hadamard.training.timetable import Due, Timetable


@pytest.mark.parametrize("stride", [1, 3, 7, 64])
def test_each_task_is_due_once_an_interval_whatever_the_stride(stride: int) -> None:
    timetable = Timetable(evaluation=64, checkpoint=100, diagnosis=70, log=1_000, film=640)
    steps = range(0, 64 * 7 * 100 + 1, stride)
    times = [0, 0, 0, 0, 0]
    for before, after in itertools.pairwise(steps):
        due = timetable.due(before, after)
        times = [count + task for count, task in zip(times, due, strict=True)]
    assert times == [steps[-1] // every for every in (64, 100, 70, 1_000, 640)]


def test_a_task_is_due_at_its_step_and_not_again_after_it() -> None:
    timetable = Timetable(evaluation=0, checkpoint=100, diagnosis=50, log=10)
    assert timetable.due(99, 100) == Due(False, True, True, True)
    assert timetable.due(100, 109) == Due(False, False, False, False)
    assert timetable.due(49, 51) == Due(False, False, True, True)
    assert timetable.due(40, 40) == Due(False, False, False, False)
