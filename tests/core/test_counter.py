"""Random numbers as a function of seed, step and row."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hadamard.compute import draws
from hadamard.core.counter import normals, normals_from, permutations, philox, uniforms

# The known answers of Philox4x32-10 that Random123, its authors' library, publishes.
KNOWN = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
SEEDS = torch.tensor([0, 7, 2**31, 2**32 - 1])
STEPS = torch.tensor([0, 1, 2**32 - 1, 2**32, 2**40 + 3])


def integers(*values: int) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(value) for value in values)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_published_numbers(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    numbers = philox(integers(*counter), integers(*key))
    assert tuple(number.item() for number in numbers) == expected


def reference(seed: int, step: int, row: int, lane: int) -> float:
    """One uniform number, with Python's integers, which have no sign bit and no limit."""
    c0, c1, c2, c3 = step & 0xFFFFFFFF, step >> 32, row, lane // 4
    k0, k1 = seed, 0
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & 0xFFFFFFFF,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return ((c0, c1, c2, c3)[lane % 4] >> 8) / 2**24


def test_a_number_is_a_function_of_seed_step_row_and_lane() -> None:
    numbers = uniforms(SEEDS[:, None], STEPS, 3, 6)
    assert numbers.shape == (len(SEEDS), len(STEPS), 3, 6)
    assert numbers.dtype == torch.float32
    for index, seed in enumerate(SEEDS.tolist()):
        for place, step in enumerate(STEPS.tolist()):
            expected = [[reference(seed, step, row, lane) for lane in range(6)] for row in range(3)]
            assert numbers[index, place].tolist() == expected


def test_a_number_does_not_depend_on_what_else_is_drawn() -> None:
    together = uniforms(SEEDS[:, None], STEPS, 5, 9)
    for index, seed in enumerate(SEEDS):
        for place, step in enumerate(STEPS):
            assert torch.equal(together[index, place], uniforms(seed, step, 5, 9))
    # Fewer environments or fewer numbers for each are the first of more.
    assert torch.equal(together[..., :2, :3], uniforms(SEEDS[:, None], STEPS, 2, 3))
    # Seeds and steps one by one, as in a sampled batch.
    pairs = uniforms(SEEDS, STEPS[:4], 5, 9)
    assert torch.equal(pairs, together[range(4), range(4)])


def test_other_seeds_steps_rows_and_lanes_give_other_numbers() -> None:
    numbers = uniforms(SEEDS[:, None], STEPS, 20, 8)
    assert len(numbers.flatten().unique()) > 0.99 * numbers.numel()


def test_numbers_are_uniform() -> None:
    numbers = uniforms(torch.tensor([11]), torch.tensor([5]), 50_000, 8).double().flatten()
    assert 0 <= numbers.min() < 1e-4
    assert 1 - 1e-4 < numbers.max() < 1
    assert torch.equal((numbers * 2**24).round(), numbers * 2**24)
    count = len(numbers)
    assert abs(numbers.mean() - 0.5) < 4 / math.sqrt(12 * count)
    occupied = torch.histc(numbers, 100, 0, 1)
    chi_square = ((occupied - count / 100) ** 2 / (count / 100)).sum()
    assert 40 < chi_square < 180  # 99 degrees of freedom: mean 99, standard deviation 14


def test_the_kernels_form_is_the_same_on_a_cpu() -> None:
    assert torch.equal(draws.uniforms(SEEDS, STEPS[:4], 5, 9), uniforms(SEEDS, STEPS[:4], 5, 9))
    assert torch.equal(draws.normals(SEEDS, STEPS[:4], 5, 9), normals(SEEDS, STEPS[:4], 5, 9))


def test_numbers_are_normal() -> None:
    numbers = normals(torch.tensor([11]), torch.tensor([5]), 50_000, 8).double().flatten()
    count = len(numbers)
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        powers = numbers**power
        assert abs(powers.mean() - moment) < 4 * powers.std() / math.sqrt(count), power
    # Their places in the normal distribution are uniform.
    occupied = torch.histc(torch.special.ndtr(numbers), 100, 0, 1)
    chi_square = ((occupied - count / 100) ** 2 / (count / 100)).sum()
    assert 40 < chi_square < 180
    # The two numbers of a pair, and neighboring rows, are independent.
    grid = numbers.view(-1, 8)
    for first, second in ((grid[:, ::2], grid[:, 1::2]), (grid[1:], grid[:-1])):
        for f in (torch.abs, torch.clone):
            correlation = torch.corrcoef(torch.stack([f(first).flatten(), f(second).flatten()]))
            assert abs(correlation[0, 1]) < 4 / math.sqrt(first.numel())


def test_a_normal_number_is_a_function_of_seed_step_row_and_lane() -> None:
    numbers = normals(SEEDS[:, None], STEPS, 3, 5)
    assert numbers.shape == (len(SEEDS), len(STEPS), 3, 5)
    assert numbers.dtype == torch.float32
    assert torch.equal(numbers[..., :2, :3], normals(SEEDS[:, None], STEPS, 2, 3))
    first, second = reference(7, 2**32, 2, 2), reference(7, 2**32, 2, 3)
    length = math.sqrt(-2 * math.log(1 - first))
    expected = [length * f(2 * math.pi * second) for f in (math.cos, math.sin)]
    assert numbers[1, 3, 2, 2:4].tolist() == pytest.approx(expected, abs=1e-6)


def test_the_extreme_uniform_numbers_give_finite_normal_ones() -> None:
    last = 1 - 2.0**-24
    numbers = normals_from(torch.tensor([[0.0, 0.0], [last, 0.0], [last, last]]))
    assert numbers[0].tolist() == [0, 0]
    assert numbers[1, 0].item() == pytest.approx(math.sqrt(48 * math.log(2)))
    assert numbers.isfinite().all()


@pytest.mark.parametrize("length", [1, 7, 4_096])
def test_permutations_are_permutations(length: int) -> None:
    order = permutations(SEEDS, torch.full_like(SEEDS, 3), length)
    assert order.shape == (len(SEEDS), length)
    assert torch.equal(order.sort(1).values, torch.arange(length).expand(len(SEEDS), length))


def test_permutations_follow_from_seed_and_step() -> None:
    first, second = (permutations(SEEDS, torch.full_like(SEEDS, step), 64) for step in (3, 4))
    assert not (first == second).all(1).any()
    assert len(first.unique(dim=0)) == len(SEEDS)
    for index in range(len(SEEDS)):
        seed = SEEDS[index : index + 1]
        assert torch.equal(first[index], permutations(seed, torch.tensor([3]), 64)[0])


def test_every_order_of_three_is_equally_likely() -> None:
    count = 60_000
    order = permutations(torch.arange(count), torch.zeros(count, dtype=torch.int64), 3)
    _, counts = order.unique(dim=0, return_counts=True)
    assert len(counts) == 6
    deviation = math.sqrt(count * (1 / 6) * (5 / 6))
    assert ((counts - count / 6).abs() < 4 * deviation).all()
