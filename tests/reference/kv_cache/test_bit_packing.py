"""Codes in bits against an integer made of them, and KIVI's int32 words."""

import numpy as np
import pytest

from tritgold.kv_cache.bit_packing import pack_codes, packed_bytes, unpack_codes


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("count", [1, 3, 8, 32, 37])
def test_a_row_is_one_large_little_endian_integer(bits: int, count: int) -> None:
    codes = np.random.default_rng(count).integers(0, 1 << bits, (4, 2, count), np.uint8)
    packed = pack_codes(codes, bits)
    assert packed.shape == (4, 2, packed_bytes(count, bits))
    for at in np.ndindex(4, 2):
        number = sum(int(code) << bits * i for i, code in enumerate(codes[at]))
        assert packed[at].tobytes() == number.to_bytes(packed_bytes(count, bits), "little")
    assert np.array_equal(unpack_codes(packed, bits, count), codes)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_kivi_s_words_hold_the_first_code_in_their_low_bits(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, 64, np.uint8)
    words = pack_codes(codes, bits).view("<u4")
    per_word = 32 // bits
    assert all(words[i // per_word] >> bits * (i % per_word) & (1 << bits) - 1 == code for i, code in enumerate(codes))


def test_nothing_is_packed_into_nothing() -> None:
    assert pack_codes(np.zeros((0, 2, 8), np.uint8), 3).shape == (0, 2, 3)
    assert unpack_codes(np.zeros((0, 2, 3), np.uint8), 3, 8).shape == (0, 2, 8)
