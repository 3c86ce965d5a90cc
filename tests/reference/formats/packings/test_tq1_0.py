"""TQ1_0 against exact fractions written here, and bit for bit against gguf-py."""

from fractions import Fraction
from hashlib import sha256
from itertools import product

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal
from second_writing import tq1_0_byte as written
from second_writing import tq1_0_place as place
from trit_layouts import golden_matrix

from tritgold.errors import TritgoldWarning
from tritgold.formats.packings import packing
from tritgold.formats.packings.tq1_0 import TQ10

LAYOUT, SHAPE = TQ10(), (1, 256)
NEVER_WRITTEN = {1, 20, 40, 60, 79, 99, 119, 138, 158, 178, 197, 217, 237}


def read(byte: int, n: int) -> int:
    """Digit n after the point of byte / 256 in base 3."""
    return int(Fraction(byte, 256) * 3 ** (n + 1)) % 3


FIVE = {written(digits) for digits in product(range(3), repeat=5)}
FOUR = {written(digits) for digits in product(range(3), repeat=4)}


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_bytes_and_trits_lie_where_the_table_says(rows: int, blocks: int, seed: int) -> None:
    trits = np.random.default_rng(seed).integers(-1, 2, (rows, 256 * blocks), np.int8)
    packed = LAYOUT.pack(trits, 0.375)
    assert len(packed) == LAYOUT.packed_size(trits.shape) == 54 * rows * blocks
    for row, column in np.ndindex(trits.shape):
        byte, digit = place(column % 256)
        byte += 54 * (row * blocks + column // 256)
        assert read(packed[byte], digit) - 1 == trits[row, column]
        assert LAYOUT.byte_of(row, column, trits.shape) == byte
    unpacked = LAYOUT.unpack(packed, trits.shape)
    assert np.array_equal(unpacked.trits, trits)
    assert unpacked.trits.dtype == np.int8
    assert unpacked.scale.tolist() == [[0.375] * blocks] * rows
    assert LAYOUT.odd_bytes(packed, trits.shape) == 0


def test_one_trit_changes_one_byte_to_its_own() -> None:
    zeros = LAYOUT.pack(np.zeros(SHAPE, np.int8))
    assert zeros == bytes([0x80] * 48 + [0x7F] * 4) + b"\0\x3c"
    for element in range(256):
        byte, digit = place(element)
        for trit in (-1, 1):
            one_hot = np.zeros(SHAPE, np.int8)
            one_hot[0, element] = trit
            digits = [1] * (5 if byte < 48 else 4)
            digits[digit] += trit
            packed = LAYOUT.pack(one_hot)
            changed = {i: a for i, (a, b) in enumerate(zip(packed, zeros, strict=True)) if a != b}
            assert changed == {byte: written(tuple(digits))}


def test_digest_of_gguf() -> None:
    data = LAYOUT.pack(golden_matrix(256, 512), 1.0)
    assert len(data) == 27648
    assert sha256(data).hexdigest()[:16] == "09e0e6cbc93cb495"


@pytest.mark.parametrize("scale", [1.0, 0.375, 1.5546875])
def test_bytes_equal_gguf_on_ternary_data(scale: float) -> None:
    trits = golden_matrix(16, 512)
    theirs = quantize(trits.astype(np.float32) * np.float32(scale), GGMLQuantizationType.TQ1_0)
    assert LAYOUT.pack(trits, scale) == theirs.tobytes()


def test_codes_equal_gguf_for_every_value_of_every_byte() -> None:
    data = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 54, axis=1)
    data[:, 52:] = np.array([1.0], "<f2").view(np.uint8)
    theirs = dequantize(data, GGMLQuantizationType.TQ1_0)
    codes = LAYOUT.codes(data, (256, 256))
    assert np.array_equal(codes.astype(np.float32) - 1, theirs)
    assert codes.tolist() == [[read(byte, place(element)[1]) for element in range(256)] for byte in range(256)]


def test_codes_equal_gguf_on_random_bytes() -> None:
    data = np.random.default_rng(34).integers(0, 256, (64, 3, 54), np.uint8)
    data[:, :, 52:] = np.array([1.0], "<f2").view(np.uint8)
    data = data.reshape(64, -1)
    theirs = dequantize(data, GGMLQuantizationType.TQ1_0)
    assert np.array_equal(LAYOUT.codes(data, (64, 768)).astype(np.float32) - 1, theirs)


def test_scales_equal_gguf_for_every_finite_float16() -> None:
    patterns = np.arange(65536, dtype="<u2")
    patterns = patterns[np.isfinite(patterns.view("<f2"))]
    data = np.full((patterns.size, 54), 0xFF, np.uint8)  # all trits +1
    data[:, 52:] = patterns.view(np.uint8).reshape(-1, 2)
    theirs = dequantize(data, GGMLQuantizationType.TQ1_0)
    assert np.array_equal(LAYOUT.scales(data, (patterns.size, 256)), theirs[:, :1])


def test_what_an_encoder_writes() -> None:
    assert set(range(256)) - FIVE == NEVER_WRITTEN
    assert len(FOUR) == 81
    assert FOUR < FIVE
    # All 243, five digits at a time down one byte: element 0, 32, 64 ... of block i holds digit 0, 1, 2 ... of i.
    trits = np.zeros((243, 256), np.int8)
    trits[:, 0:160:32] = np.array(list(product((-1, 0, 1), repeat=5)), np.int8)
    packed = np.frombuffer(LAYOUT.pack(trits), np.uint8).reshape(243, 54)
    assert packed[:, 0].tolist() == sorted(FIVE)
    assert (packed[:, 1:48] == 0x80).all()


@pytest.mark.parametrize(("byte", "canonical"), [(0, FIVE), (31, FIVE), (32, FIVE), (47, FIVE), (48, FOUR), (51, FOUR)])
def test_odd_bytes_are_those_that_no_encoder_writes(byte: int, canonical: set[int]) -> None:
    zeros = LAYOUT.pack(np.zeros(SHAPE, np.int8))
    for value in range(256):
        data = bytearray(zeros)
        data[byte] = value
        assert LAYOUT.odd_bytes(bytes(data), SHAPE) == (value not in canonical)


def test_odd_bytes_decode_with_a_warning_that_counts_them() -> None:
    data = bytes([20] * 3 + [0] * 45 + [1] * 2 + [0] * 2) + np.float16(0.5).tobytes()
    LAYOUT.check(data, SHAPE)
    with pytest.warns(TritgoldWarning, match="tq1_0: 5 bytes"):
        trits = LAYOUT.unpack(data, SHAPE).trits
    # 19 is written for 00200 and 21 for 00201; 20 decodes as the lower one.
    assert trits[0, 0:160:32].tolist() == [read(20, n) - 1 for n in range(5)] == [-1, -1, 1, -1, -1]


@pytest.mark.parametrize(("byte", "trit"), [(0x00, -1), (0xFF, 1)])
def test_uniform_bytes(byte: int, trit: int) -> None:
    """Zero bytes are never zero weights: zero-filled padding or a short read gives rows of -1."""
    data = bytes([byte] * 52) + np.float16(0.5).tobytes()
    assert (LAYOUT.unpack(data, SHAPE, warn=False).trits == trit).all()


def test_packing_a_2_is_refused_before_it_carries_into_its_neighbour() -> None:
    bad = np.zeros(SHAPE, np.int8)
    bad[0, 7] = 2
    error = refusal(lambda: LAYOUT.pack(bad))
    assert error.kind == "not-a-trit"
    assert "[0, 7]: found 2" in str(error)


@pytest.mark.parametrize("shape", [(4, 200), (2, 384), (256, 1)])
def test_rows_that_do_not_fill_blocks_are_refused(shape: tuple[int, int]) -> None:
    for act in (lambda: LAYOUT.pack(np.zeros(shape, np.int8)), lambda: LAYOUT.unpack(bytes(54), shape)):
        error = refusal(act)
        assert error.kind == "packing-shape"
        assert str(list(shape)) in str(error)


def test_every_other_length_is_refused() -> None:
    data = LAYOUT.pack(golden_matrix(2, 256)) * 2
    for size in {*range(len(data))} - {108}:
        error = refusal(lambda size=size: LAYOUT.unpack(data[:size], (2, 256)))
        assert error.kind == "packed-length"
        assert f"found {size} bytes, expected 108 bytes" in str(error)


def with_scale(trits: np.ndarray, scale: float, block: int = 0) -> bytes:
    """Packed bytes whose scale the packer itself may refuse to write."""
    data = bytearray(LAYOUT.pack(trits, 0.5))
    data[54 * block + 52 : 54 * block + 54] = np.float16(scale).tobytes()
    return bytes(data)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused(scale: float) -> None:
    trits = golden_matrix(2, 512)
    error = refusal(lambda: LAYOUT.unpack(with_scale(trits, scale, block=3), trits.shape))
    assert error.kind == "scale-non-finite"
    assert "[1, 1]" in str(error)
    assert refusal(lambda: LAYOUT.pack(trits, scale)).kind == "scale-non-finite"


def test_odd_scales_load_with_a_warning() -> None:
    trits = np.ones(SHAPE, np.int8)
    with pytest.warns(TritgoldWarning, match="tq1_0: negative scale -0.5"):
        assert (LAYOUT.unpack(with_scale(trits, -0.5), SHAPE).dense() == -0.5).all()
    with pytest.warns(TritgoldWarning, match="tq1_0: a scale of 0"):
        LAYOUT.unpack(with_scale(trits, 0.0), SHAPE)


def test_scales_that_float16_cannot_hold() -> None:
    trits = golden_matrix(*SHAPE)
    assert LAYOUT.unpack(LAYOUT.pack(trits, 65504.0), SHAPE).scale == 65504
    for scale in (1e5, -1e5, 65520.0):
        assert refusal(lambda scale=scale: LAYOUT.pack(trits, scale)).kind == "scale-overflow"
    assert refusal(lambda: LAYOUT.pack(trits, 1e-9)).kind == "scale-underflow"
    LAYOUT.pack(trits, 0.0)


def test_a_scale_for_every_block() -> None:
    trits, scales = golden_matrix(2, 512), np.array([[0.5, 0.25], [2.0, 1.0]], np.float32)
    assert np.array_equal(LAYOUT.unpack(LAYOUT.pack(trits, scales), trits.shape).scale, scales)


def test_the_registry_knows_it() -> None:
    assert packing("tq1_0").packed_size((4, 256)) == 216
