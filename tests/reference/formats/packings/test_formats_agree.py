"""A matrix is the same in every format: any of them, read back, packs to the bytes that any other has for it.

The bytes that are read and expected are those of ``second_writing``, so that a layout which packs and unpacks with one
and the same fault agrees with nobody.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from second_writing import NAMES, layout_of, written

from tritgold.formats.packings import PACKINGS, packing
from tritgold.formats.packings.packing_base import Packing

LAYOUTS: dict[str, Packing] = {name: layout_of(name) for name in NAMES}


def test_no_packing_is_left_out() -> None:
    """q1_0 holds no zeros, and has a test of its own."""
    assert {layout.name for layout in LAYOUTS.values()} | {"q1_0"} == set(PACKINGS)


def check_agreement(trits: np.ndarray, scale: np.float32) -> None:
    expected = {name: written(name, trits, scale) for name in LAYOUTS}
    for source, layout in LAYOUTS.items():
        tensor = layout.unpack(expected[source], trits.shape).with_one_scale()
        assert np.array_equal(tensor.trits, trits), source
        assert tensor.scale == (scale if layout.stores_scale else 1), source
        for target, other in LAYOUTS.items():
            assert other.pack(tensor.trits, scale) == expected[target], (source, target)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(1, 2), st.integers(1, 2), st.integers(0, 2**32 - 1), st.integers(-20, 15), st.integers(128, 255))
def test_every_pair_of_formats_agrees(tiles: int, blocks: int, seed: int, exponent: int, fraction: int) -> None:
    """The scale has 8 significant bits in float16's normal range, so that all of them hold it."""
    trits = np.random.default_rng(seed).integers(-1, 2, (32 * tiles, 256 * blocks), np.int8)
    check_agreement(trits, np.float32(fraction * 2.0 ** (exponent - 7)) if exponent > -14 else np.float32(2.0**-14))


@pytest.mark.parametrize("name", NAMES)
def test_a_layout_that_permutes_on_both_sides_would_be_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It still agrees with itself, and packs to the same bytes what any other has read."""
    packed, codes = Packing.pack, Packing.codes
    layout = type(LAYOUTS[name])

    def pack(self: Packing, trits: np.ndarray, scale: float = 1.0) -> bytes:
        return packed(self, trits[::-1] if isinstance(self, layout) else trits, scale)

    def read(self: Packing, data: bytes, shape: tuple[int, int]) -> np.ndarray:
        found = codes(self, data, shape)
        return np.ascontiguousarray(found[::-1]) if isinstance(self, layout) else found

    monkeypatch.setattr(Packing, "pack", pack)
    monkeypatch.setattr(Packing, "codes", read)
    trits = np.random.default_rng(1).integers(-1, 2, (32, 256), np.int8)
    assert np.array_equal(LAYOUTS[name].unpack(LAYOUTS[name].pack(trits), trits.shape).trits, trits)
    with pytest.raises(AssertionError):
        check_agreement(trits, np.float32(0.5))


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_matrices_without_zeros_agree_with_one_bit_a_weight(rows: int, blocks: int, seed: int) -> None:
    trits = np.random.default_rng(seed).choice(np.array([-1, 1], np.int8), (rows, 128 * blocks))
    one_bit = packing("q1_0").unpack(packing("q1_0").pack(trits, 0.375), trits.shape)
    two_bit = packing("q2_0").unpack(packing("q2_0").pack(trits, 0.375), trits.shape)
    assert np.array_equal(one_bit.trits, two_bit.trits)
    assert np.array_equal(one_bit.dense(), two_bit.dense())
