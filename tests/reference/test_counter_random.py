"""Counter-based random numbers: somebody else's values of SplitMix64, and independence of who asks when."""

import numpy as np
import pytest

from tritgold.counter_random import MAX_SEED, random_bits, uniform

# SplitMix64 started at 1234567, as published with the generator's C code and used by many ports.
KNOWN = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]


def indices(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_the_values_are_those_of_splitmix64() -> None:
    """Its state starts at 1234567; ours at seed * 0xD1342543DE82EF95, which is undone here modulo 2**64."""
    seed = 1234567 * pow(0xD1342543DE82EF95, -1, 2**64) % 2**64
    assert random_bits(seed, indices(1, 2, 3, 4, 5)).tolist() == KNOWN
    assert uniform(seed, indices(1, 2)).tolist() == [(value >> 11) / 2**53 for value in KNOWN[:2]]


def test_a_number_depends_on_its_seed_and_index_alone() -> None:
    whole = random_bits(7, np.arange(100, dtype=np.uint64))
    assert random_bits(7, indices(41))[0] == whole[41]
    assert random_bits(7, np.arange(100, dtype=np.uint64)[::-1].reshape(4, 25))[0, 0] == whole[99]
    assert random_bits(8, indices(41))[0] != whole[41]


@pytest.mark.parametrize("seed", [0, 1, 2, MAX_SEED])
def test_uniform_numbers_fill_the_unit_interval_evenly(seed: int) -> None:
    """16 equal bins of 16,000 numbers: 1000 each, give or take five standard deviations (31)."""
    numbers = uniform(seed, np.arange(16_000, dtype=np.uint64))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert np.abs(np.bincount((numbers * 16).astype(int), minlength=16) - 1000).max() < 155
