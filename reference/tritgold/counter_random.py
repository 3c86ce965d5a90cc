"""Random numbers from a counter, without state: a number depends only on its seed and its index.

SplitMix64 (Steele, Lea and Flood 2014) in integer arithmetic: the same bits on every machine and in every language,
in any order. NumPy does not guarantee this for its generators' distributions.
"""

import numpy as np

MAX_SEED = 2**64 - 1
_SEED_STEP = np.uint64(0xD1342543DE82EF95)  # odd, so every seed starts at a different state of the cycle of 2**64
_STEP = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64


def random_bits(seed: int, index: np.ndarray) -> np.ndarray:
    """uint64 of the shape of ``index``, each value uniform. seed: 0 to MAX_SEED. index: uint64.

    >>> random_bits(0, np.array([1, 2], np.uint64)) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    array([ True,  True])
    """
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is intended
        z = np.uint64(seed) * _SEED_STEP + index * _STEP
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(seed: int, index: np.ndarray) -> np.ndarray:
    """float64 in [0, 1) of the shape of ``index``: the upper 53 bits of ``random_bits``, so every value is exact.

    >>> uniform(0, np.array([1], np.uint64))[0] == (0xE220A8397B1DCDAF >> 11) / 2**53
    np.True_
    """
    return (random_bits(seed, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53
