"""Packings against index formulas written here, trit by trit. A round trip alone is blind to any permutation."""

import hashlib
import math

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from trit_layouts import NAMES, ONE_BLOCK, golden_matrix, place

from tritgold.formats.packings import packing

examples = settings(max_examples=25, deadline=None, derandomize=True)


def decode(name: str, data: bytes, shape: tuple[int, int]) -> np.ndarray:
    trits = np.empty(shape, np.int8)
    for row, column in np.ndindex(shape):
        byte, shift = place(name, row, column, shape)
        trits[row, column] = (data[byte] >> shift & 3) - 1
    return trits


@st.composite
def matrices(draw: st.DrawFn, name: str) -> np.ndarray:
    """Trits of any shape the format holds: ragged rows for hf, rows that straddle blocks for i2_s."""
    columns = draw(st.integers(1, 40 if name != "tq2_0" else 2))
    rows = draw(st.integers(1, 11))
    if name == "i2_s":
        rows = 128 // math.gcd(columns, 128) * draw(st.integers(1, 2))
    if name == "tq2_0":
        columns *= 256
        rows = min(rows, 3)
    seed = draw(st.integers(0, 2**32 - 1))
    return np.random.default_rng(seed).integers(-1, 2, (rows, columns), np.int8)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_trits_lie_where_the_formula_says(name: str) -> None:
    layout = packing(name)

    @examples
    @given(matrices(name))
    def check(trits: np.ndarray) -> None:
        before = trits.copy()
        packed = layout.pack(trits, 0.37)
        assert np.array_equal(decode(name, packed, trits.shape), trits)
        unpacked = layout.unpack(packed, trits.shape)
        assert np.array_equal(unpacked.trits, trits)
        assert unpacked.trits.dtype == np.int8
        assert len(packed) == layout.packed_size(trits.shape)
        # The reference packer of transformers adds 1 to its argument in place.
        assert np.array_equal(trits, before)
        assert layout.pack(trits, 0.37) == packed

    check()


@pytest.mark.parametrize("name", NAMES)
def test_one_trit_changes_one_pair_of_bits(name: str) -> None:
    layout, shape = packing(name), ONE_BLOCK[name]
    zeros = layout.pack(np.zeros(shape, np.int8))
    for row, column in np.ndindex(shape):
        for trit in (-1, 1):
            one_hot = np.zeros(shape, np.int8)
            one_hot[row, column] = trit
            changed = {i: a ^ b for i, (a, b) in enumerate(zip(layout.pack(one_hot), zeros, strict=True)) if a != b}
            byte, shift = place(name, row, column, shape)
            assert changed == {byte: (0b01 ^ (trit + 1)) << shift}
            assert layout.byte_of(row, column, shape) == byte


@pytest.mark.parametrize("wrong", ["hf i::4", "i2_s 64/16", "i2_s sequential", "tq2_0 high pair first"])
def test_the_formula_check_sees_each_wrong_layout(wrong: str) -> None:
    name = wrong.split()[0]
    shape = {"hf": (16, 3), "i2_s": (2, 128), "tq2_0": (1, 256)}[name]
    trits = np.random.default_rng(1).integers(-1, 2, shape, np.int8)
    read = decode(wrong, packing(name).pack(trits), shape)
    assert not np.array_equal(read, trits)
    # What makes these faults dangerous: every histogram is as it should be.
    assert sorted(read.ravel()) == sorted(trits.ravel())


@pytest.mark.parametrize(
    ("name", "part", "size", "digest"),
    [
        (None, slice(None), 131072, "46b79ef8aa8a1af5"),
        ("hf", slice(None), 32768, "d0eb7f335da89ed6"),
        ("i2_s", slice(-32), 32768, "1b6dfba077339edb"),
        ("i2_s", slice(None), 32800, "bc162ad58b0457a6"),
        ("tq2_0", slice(None), 33792, "dcffc26bdd35c9a9"),
    ],
)
def test_digests_of_the_original_packers(name: str | None, part: slice, size: int, digest: str) -> None:
    """Made once with transformers, with bitnet.cpp's Python packer and with gguf-py; None is the matrix itself."""
    trits = golden_matrix(256, 512)
    data = (trits.tobytes() if name is None else packing(name).pack(trits, 1.0))[part]
    assert len(data) == size
    assert hashlib.sha256(data).hexdigest()[:16] == digest
    changed = bytes([data[0] ^ 1]) + data[1:]
    assert hashlib.sha256(changed).hexdigest()[:16] != digest


@pytest.mark.parametrize(
    ("name", "trits", "expected"),
    [
        ("hf", {(0, 0): -1, (2, 0): 1, (3, 0): -1, (5, 0): 1, (6, 0): -1}, "1861"),
        ("i2_s", {(0, 0): 1, (0, 1): -1, (0, 32): 1, (0, 127): -1}, "a515" + "55" * 29 + "54"),
        (
            "tq2_0",
            {(0, 0): 1, (0, 1): -1, (0, 32): 1, (0, 128): -1, (0, 255): 1},
            "5a54" + "55" * 30 + "54" + "55" * 30 + "95" + "003c",
        ),
    ],
)
def test_example_blocks(name: str, trits: dict[tuple[int, int], int], expected: str) -> None:
    shape = {"hf": (8, 1), "i2_s": (1, 128), "tq2_0": (1, 256)}[name]
    matrix = np.zeros(shape, np.int8)
    for where, trit in trits.items():
        matrix[where] = trit
    assert packing(name).pack(matrix, 1.0).hex().startswith(expected)


def test_hf_column_of_four() -> None:
    assert packing("hf").pack(np.array([[1], [0], [-1], [1]], np.int8)).hex() == "86"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("byte", "trit"), [(0x55, 0), (0x00, -1), (0xAA, 1)])
def test_uniform_bytes(name: str, byte: int, trit: int) -> None:
    """Zero bytes are never zero weights: zero-filled padding or a short read gives rows of -1."""
    layout, shape = packing(name), (4, 256)
    data = bytearray([byte]) * layout.packed_size(shape)
    if name == "i2_s":
        data[-32:-28] = np.float32(0.5).tobytes()
    if name == "tq2_0":
        for end in range(66, len(data) + 1, 66):
            data[end - 2 : end] = np.float16(0.5).tobytes()
    assert (layout.unpack(bytes(data), shape).trits == trit).all()


def test_hf_rows_that_do_not_fill_a_byte_leave_code_0_behind() -> None:
    packed = packing("hf").pack(np.ones((5, 1), np.int8))
    # R = 2: byte 0 holds rows 0, 2, 4, -; byte 1 holds rows 1, 3, -, -.
    assert packed == bytes([0b00_10_10_10, 0b00_00_10_10])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("convert", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_any_kind_of_buffer_unpacks(name: str, convert: type) -> None:
    trits = golden_matrix(4, 256)
    data = convert(packing(name).pack(trits))
    assert np.array_equal(packing(name).unpack(data, trits.shape).trits, trits)


def test_non_contiguous_trits_pack_as_what_they_are() -> None:
    trits = golden_matrix(256, 8).T
    for name in NAMES:
        assert packing(name).pack(trits) == packing(name).pack(np.ascontiguousarray(trits))


def test_tq2_0_codes_equal_gguf_on_random_bytes() -> None:
    """All 256 byte values in every place, code 3 included, which gguf reads as +2."""
    rows, blocks = 64, 3
    data = np.random.default_rng(35).integers(0, 256, (rows, blocks, 66), np.uint8)
    data[:, :, 64:] = np.array([1.0], "<f2").view(np.uint8)
    data = data.reshape(rows, -1)
    theirs = dequantize(data, GGMLQuantizationType.TQ2_0)
    codes = packing("tq2_0").codes(data, (rows, blocks * 256))
    assert (codes == 3).any()
    assert np.array_equal(codes.astype(np.float32) - 1, theirs)


def test_tq2_0_scales_equal_gguf_for_every_finite_float16() -> None:
    patterns = np.arange(65536, dtype="<u2")
    patterns = patterns[np.isfinite(patterns.view("<f2"))]
    data = np.full((patterns.size, 66), 0xAA, np.uint8)  # all trits +1
    data[:, 64:] = patterns.view(np.uint8).reshape(-1, 2)
    theirs = dequantize(data, GGMLQuantizationType.TQ2_0)
    assert np.array_equal(packing("tq2_0").scales(data, (patterns.size, 256)), theirs[:, :1])


@pytest.mark.parametrize("scale", [1.0, 0.375, 1.5546875])
def test_tq2_0_bytes_equal_gguf_on_ternary_data(scale: float) -> None:
    trits = golden_matrix(16, 512)
    theirs = quantize(trits.astype(np.float32) * np.float32(scale), GGMLQuantizationType.TQ2_0)
    assert packing("tq2_0").pack(trits, scale) == theirs.tobytes()
