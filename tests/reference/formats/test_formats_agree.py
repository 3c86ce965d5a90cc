"""A matrix is the same in every format: any of them, read back, packs to the bytes that any other has for it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_layouts import CASES

from tritgold.formats.packing import packing
from tritgold.formats.packing_base import Packing

LAYOUTS: list[Packing] = [case.layout for case in CASES.values()] + [packing(name) for name in ("f32", "f16", "bf16")]


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(1, 2), st.integers(1, 2), st.integers(0, 2**32 - 1), st.integers(-20, 15), st.integers(128, 255))
def test_every_pair_of_formats_agrees(tiles: int, blocks: int, seed: int, exponent: int, fraction: int) -> None:
    """The scale has 8 significant bits in float16's normal range, so that all of them hold it."""
    trits = np.random.default_rng(seed).integers(-1, 2, (16 * tiles, 256 * blocks), np.int8)
    scale = np.float32(fraction * 2.0 ** (exponent - 7)) if exponent > -14 else np.float32(2.0**-14)
    packed = [layout.pack(trits, scale) for layout in LAYOUTS]
    for source, data in zip(LAYOUTS, packed, strict=True):
        tensor = source.unpack(data, trits.shape).with_one_scale()
        assert tensor.scale == (scale if source.stores_scale else 1)
        for target, expected in zip(LAYOUTS, packed, strict=True):
            assert target.pack(tensor.trits, scale) == expected


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_matrices_without_zeros_agree_with_one_bit_a_weight(rows: int, blocks: int, seed: int) -> None:
    trits = np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), (rows, 128 * blocks))
    one_bit = packing("q1_0").unpack(packing("q1_0").pack(trits, 0.375), trits.shape)
    two_bit = packing("q2_0").unpack(packing("q2_0").pack(trits, 0.375), trits.shape)
    assert np.array_equal(one_bit.trits, two_bit.trits)
    assert np.array_equal(one_bit.dense(), two_bit.dense())
