"""TL1 against its order of bytes as nested loops, against the original packer's digests, and its refusals."""

import hashlib
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refusal
from second_writing import tl1_places
from trit_layouts import golden_matrix

from tritgold.errors import PackingError, TritgoldWarning
from tritgold.formats.ggml_types import tensor_bytes
from tritgold.formats.packings import packing
from tritgold.formats.packings.tl1 import TL1

SHAPE, SMALL = (64, 16), TL1(BM=64, BK=8, bm=32)  # one tile row, two tile columns, two blocks down and one across
TILES = [(TL1(BM=32, BK=16, bm=32), (64, 16)), (SMALL, SHAPE), (TL1(BM=128, BK=8, bm=64), (128, 16))]


def places(layout: TL1, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    return tl1_places(layout.BM, layout.BK, layout.bm, shape)


def decode(data: bytes, layout: TL1, shape: tuple[int, int]) -> np.ndarray:
    trits = np.full(shape, 9, np.int8)
    for byte, (row, column) in zip(data, places(layout, shape), strict=False):
        for nibble, at in ((byte >> 4, column), (byte & 15, column + 2)):
            first = (nibble - 4 + 1) // 3
            trits[row, at : at + 2] = first, nibble - 4 - 3 * first
    return trits


@st.composite
def tiles_and_trits(draw: st.DrawFn) -> tuple[TL1, np.ndarray]:
    bm = draw(st.sampled_from((32, 64)))
    tile_rows, tile_columns = bm * draw(st.integers(1, 3)), 256 // bm * draw(st.integers(1, 5))
    shape = tile_rows * draw(st.integers(1, 2)), tile_columns * draw(st.integers(1, 3))
    seed = draw(st.integers(0, 2**32 - 1))
    return TL1(tile_rows, tile_columns, bm), np.random.default_rng(seed).integers(-1, 2, shape, np.int8)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(tiles_and_trits())
def test_bytes_and_trits_lie_where_the_loops_say(case: tuple[TL1, np.ndarray]) -> None:
    layout, trits = case
    packed = layout.pack(trits, 0.37)
    assert len(packed) == layout.packed_size(trits.shape) == tensor_bytes("TL1", trits.shape)
    assert np.array_equal(decode(packed[:-32], layout, trits.shape), trits)
    unpacked = layout.unpack(packed, trits.shape)
    assert np.array_equal(unpacked.trits, trits)
    assert unpacked.trits.dtype == np.int8
    assert unpacked.scale == np.float32(0.37)


@pytest.mark.parametrize(("layout", "shape"), TILES)
def test_one_trit_changes_one_nibble(layout: TL1, shape: tuple[int, int]) -> None:
    zeros = np.frombuffer(layout.pack(np.zeros(shape, np.int8)), np.uint8)
    assert (zeros[:-32] == 0x44).all()
    for byte, (row, column) in enumerate(places(layout, shape)):
        for offset, trit in product(range(4), (-1, 1)):
            one_hot = np.zeros(shape, np.int8)
            one_hot[row, column + offset] = trit
            packed = np.frombuffer(layout.pack(one_hot), np.uint8)
            assert np.flatnonzero(packed != zeros).tolist() == [byte]
            nibble = 4 + trit * (3 if offset % 2 == 0 else 1)
            assert packed[byte] == (nibble << 4 | 4 if offset < 2 else 4 << 4 | nibble)
            assert layout.byte_of(row, column + offset, shape) == byte


def test_byte_of_between_tiles() -> None:
    layout, shape = TL1(BM=64, BK=16, bm=32), (128, 32)
    assert [layout.byte_of(*place, shape) for place in places(layout, shape)] == list(range(1024))


@pytest.mark.parametrize(
    ("layout", "digest"),
    [(TL1(BM=256, BK=128, bm=32), "03e7f24b40a97dfa"), (TL1(BM=128, BK=64, bm=64), "229f83a7bde38256")],
)
def test_digests_of_the_original_packer(layout: TL1, digest: str) -> None:
    payload = layout.pack(golden_matrix(256, 512))[:-32]
    assert len(payload) == 32768
    assert hashlib.sha256(payload).hexdigest()[:16] == digest


@pytest.mark.parametrize(("byte", "trit"), [(0x44, 0), (0x00, -1), (0x88, 1)])
def test_uniform_bytes(byte: int, trit: int) -> None:
    """Zero bytes are never zero weights: zero-filled padding or a short read gives rows of -1."""
    data = bytes([byte]) * 256 + np.float32(0.5).tobytes() + bytes(28)
    assert (SMALL.unpack(data, SHAPE).trits == trit).all()


@pytest.mark.parametrize("wrong", [TL1(BM=128, BK=32, bm=32), TL1(BM=64, BK=64, bm=32), TL1(BM=128, BK=64, bm=64)])
def test_other_tiles_read_trits_in_the_wrong_places(wrong: TL1) -> None:
    trits = golden_matrix(256, 128)
    read = wrong.unpack(TL1(BM=128, BK=64, bm=32).pack(trits), trits.shape).trits
    assert not np.array_equal(read, trits)
    # What makes it dangerous: nothing is out of range, and every histogram is as it should be.
    assert np.array_equal(np.sort(read, axis=None), np.sort(trits, axis=None))


@pytest.mark.parametrize("half", [0, 4])
@pytest.mark.parametrize("nibble", range(16))
def test_nibbles_beyond_8_are_refused_everywhere(half: int, nibble: int) -> None:
    clean = SMALL.pack(golden_matrix(*SHAPE))
    for byte, (row, column) in enumerate(places(SMALL, SHAPE)):
        data = bytearray(clean)
        data[byte] = data[byte] & (0xF0 >> half) | nibble << half
        if nibble <= 8:
            SMALL.check(bytes(data), SHAPE)
            continue
        error = refusal(lambda data=data: SMALL.check(bytes(data), SHAPE))
        assert error.kind == "invalid-nibble"
        first = column if half else column + 2
        assert f"occurs 1 times, first at [{row}, {first}], byte {byte}" in str(error)
        bad = np.argwhere(SMALL.codes(bytes(data), SHAPE) > 2).tolist()
        assert bad == [[row, first], [row, first + 1]]


def test_the_number_of_invalid_nibbles_is_said_and_unpack_refuses_too() -> None:
    data = b"\xf9\x9f" + SMALL.pack(golden_matrix(*SHAPE))[2:]
    error = refusal(lambda: SMALL.unpack(data, SHAPE))
    assert isinstance(error, PackingError)
    assert "occurs 4 times, first at [0, 0], byte 0" in str(error)


def test_every_other_length_is_refused() -> None:
    data = SMALL.pack(golden_matrix(*SHAPE)) + bytes(64)
    for size in {*range(len(data))} - {288, 256}:
        error = refusal(lambda size=size: SMALL.unpack(data[:size], SHAPE))
        assert error.kind == "packed-length"
        assert f"found {size} bytes, expected 288 bytes" in str(error)
    error = refusal(lambda: SMALL.unpack(data[:256], SHAPE))
    assert error.kind == "trailer-missing"
    assert "found 256 bytes, expected 288 bytes, a 32-byte trailer included" in str(error)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"BM": 0, "BK": 128, "bm": 32}, "BM = 0, expected a positive integer"),
        ({"BM": 256, "BK": -8, "bm": 32}, "BK = -8, expected a positive integer"),
        ({"BM": 256, "BK": 128, "bm": 0}, "bm: found 0, expected 32 or 64"),
        ({"BM": 256, "BK": 128, "bm": 16}, "bm: found 16, expected 32 or 64"),
        ({"BM": 256, "BK": 128, "bm": 128}, "bm: found 128, expected 32 or 64"),
        ({"BM": 48, "BK": 128, "bm": 32}, "BM = 48, expected BM a multiple of bm = 32"),
        ({"BM": 96, "BK": 128, "bm": 64}, "BM = 96, expected BM a multiple of bm = 64"),
        ({"BM": 256, "BK": 100, "bm": 32}, "BK = 100, expected BK a multiple of 256 / bm = 8"),
        ({"BM": 256, "BK": 126, "bm": 64}, "BK = 126, expected BK a multiple of 256 / bm = 4"),
        ({"BM": 256.0, "BK": 128, "bm": 32}, "BM = 256.0, expected a positive integer"),
        ({"BM": "256", "BK": 128, "bm": 32}, "BM = '256', expected a positive integer"),
        ({"BM": True, "BK": 128, "bm": 32}, "BM = True, expected a positive integer"),
        ({"BM": 256, "BK": 128}, "'bm'"),
        ({}, "'BM'"),
        ({"BM": 256, "BK": 128, "bm": 32, "by": 8}, "'by'"),
    ],
)
def test_tiles_that_there_cannot_be(options: dict[str, Any], says: str) -> None:
    error = refusal(lambda: packing("tl1", **options))
    assert error.kind == "packing-option"
    assert says in str(error)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((32, 16), "out a multiple of BM = 64; 32 is not"),
        ((96, 16), "out a multiple of BM = 64; 96 is not"),
        ((64, 20), "in a multiple of BK = 8; 20 is not"),
        ((64, 4), "in a multiple of BK = 8; 4 is not"),
    ],
)
def test_shapes_that_do_not_fill_tiles(shape: tuple[int, int], says: str) -> None:
    for act in (lambda: SMALL.pack(np.zeros(shape, np.int8)), lambda: SMALL.unpack(bytes(288), shape)):
        error = refusal(act)
        assert error.kind == "packing-shape"
        assert says in str(error)
        assert str(list(shape)) in str(error)


def with_scale(trits: np.ndarray, scale: float) -> bytes:
    """Packed bytes whose scale the packer itself may refuse to write."""
    return SMALL.pack(trits)[:-32] + np.float32(scale).tobytes() + bytes(28)


def test_the_scale_is_a_float32_behind_the_payload() -> None:
    packed = SMALL.pack(golden_matrix(*SHAPE), 0.37)
    assert packed[256:260] == np.float32(0.37).tobytes()
    assert packed[260:] == bytes(28)
    dirty = SMALL.unpack(packed[:260] + b"\xff" * 28, SHAPE)
    assert dirty.scale == np.float32(0.37)
    assert np.array_equal(dirty.trits, golden_matrix(*SHAPE))


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused(scale: float) -> None:
    trits = golden_matrix(*SHAPE)
    assert refusal(lambda: SMALL.unpack(with_scale(trits, scale), SHAPE)).kind == "scale-non-finite"
    assert refusal(lambda: SMALL.pack(trits, scale)).kind == "scale-non-finite"


def test_odd_scales_load_with_a_warning() -> None:
    trits = golden_matrix(*SHAPE)
    with pytest.warns(TritgoldWarning, match="tl1: negative scale -0.5"):
        assert SMALL.unpack(with_scale(trits, -0.5), SHAPE).scale == -0.5
    with pytest.warns(TritgoldWarning, match="tl1: a scale of 0"):
        SMALL.unpack(with_scale(trits, 0.0), SHAPE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SMALL.unpack(with_scale(np.zeros(SHAPE, np.int8), 0.0), SHAPE)


def test_there_is_one_scale_and_it_is_a_float32() -> None:
    trits = golden_matrix(*SHAPE)
    assert refusal(lambda: SMALL.pack(trits, np.ones((64, 1), np.float32))).kind == "scale-shape"
    assert refusal(lambda: SMALL.pack(trits, 1e300)).kind == "scale-non-finite"


@pytest.mark.parametrize("convert", [bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_any_kind_of_buffer_unpacks(convert: type) -> None:
    trits = golden_matrix(*SHAPE)
    assert np.array_equal(SMALL.unpack(convert(SMALL.pack(trits)), SHAPE).trits, trits)
    assert SMALL.pack(np.asfortranarray(trits)) == SMALL.pack(trits)
