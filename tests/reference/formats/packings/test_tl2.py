"""TL2 against its order of bytes as nested loops, against the original packer's digests, and its refusals."""

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
from second_writing import tl2_nibbles, tl2_signs
from trit_layouts import golden_matrix

from tritgold.errors import TritgoldWarning
from tritgold.formats.ggml_types import tensor_bytes
from tritgold.formats.packings import packing
from tritgold.formats.packings.tl2 import TL2

# The smallest shape with two blocks across of triples and of pairs, and padding; then two tiles of two blocks down.
SMALL, SHAPE = TL2(BM=32, BK=96), (32, 256)
LARGE, LARGE_SHAPE = TL2(BM=64, BK=96), (128, 256)
A, B, C = 1024, 256, 512  # bytes of the regions of SHAPE


def nibble_places(layout: TL2, shape: tuple[int, int], region: str) -> Iterator[tuple[int, int]]:
    return tl2_nibbles(layout.BM, layout.BK, shape, region)


def sign_places(layout: TL2, shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    return tl2_signs(layout.BM, layout.BK, shape)


def decode(data: bytes, layout: TL2, shape: tuple[int, int]) -> np.ndarray:
    triples = shape[1] // layout.BK * layout.BK
    a, b = shape[0] * triples // 6, shape[0] * triples // 24
    trits = np.full(shape, 9, np.int8)
    bits = "".join(f"{word:016b}" for word in np.frombuffer(data[a : a + b], "<u2"))
    negative = {place: bit == "1" for place, bit in zip(sign_places(layout, shape), bits, strict=True)}
    for byte, (row, column) in zip(data[:a], nibble_places(layout, shape, "A"), strict=True):
        for magnitude, at in ((byte >> 4, column), (byte & 15, column + 3)):
            value = -magnitude if negative[row, at] else magnitude
            first = (value + 4) // 9
            second = (value - 9 * first + 1) // 3
            trits[row, at : at + 3] = first, second, value - 9 * first - 3 * second
    for byte, (row, column) in zip(data[a + b :], nibble_places(layout, shape, "C"), strict=False):
        for value, at in ((byte >> 4) - 4, column), ((byte & 15) - 4, column + 2):
            trits[row, at : at + 2] = (value + 1) // 3, value - 3 * ((value + 1) // 3)
    return trits


@st.composite
def tiles_and_trits(draw: st.DrawFn) -> tuple[TL2, np.ndarray]:
    tile_columns = 24 * draw(st.integers(1, 13))
    pairs = 32 * draw(st.integers(0, min(256, tile_columns - 1) // 32))
    least = max(0, -(-(256 - pairs) // tile_columns))
    layout = TL2(32 * draw(st.integers(1, 2)), tile_columns)
    shape = layout.BM * draw(st.integers(1, 2)), tile_columns * draw(st.integers(least, least + 1)) + pairs
    seed = draw(st.integers(0, 2**32 - 1))
    return layout, np.random.default_rng(seed).integers(-1, 2, shape, np.int8)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(tiles_and_trits())
def test_bytes_and_trits_lie_where_the_loops_say(case: tuple[TL2, np.ndarray]) -> None:
    layout, trits = case
    packed, shape = layout.pack(trits, 0.37), trits.shape
    assert len(packed) == layout.packed_size(shape) == tensor_bytes("TL2", shape)
    used = sum(layout.region_sizes(shape))
    assert used <= layout.fixed_size(shape)
    assert (used == layout.fixed_size(shape)) == (shape[1] % layout.BK == 256)
    assert np.array_equal(decode(packed[:used], layout, shape), trits)
    assert packed[used:-32] == bytes(len(packed) - 32 - used)
    unpacked = layout.unpack(packed, shape)
    assert np.array_equal(unpacked.trits, trits)
    assert unpacked.trits.dtype == np.int8
    assert unpacked.scale == np.float32(0.37)
    assert layout.odd_bytes(packed, shape) == 0


def changes(layout: TL2, shape: tuple[int, int], row: int, column: int, trit: int) -> dict[int, int]:
    """The bytes that a single trit changes from what they are in a matrix of zeros."""
    one_hot = np.zeros(shape, np.int8)
    one_hot[row, column] = trit
    packed = np.frombuffer(layout.pack(one_hot), np.uint8)
    a, b, c = layout.region_sizes(shape)
    zeros = np.repeat(np.array([0, 0x44, 0], np.uint8), [a + b, c, packed.size - 32 - a - b - c])
    return {int(i): int(packed[i]) for i in np.flatnonzero(packed[:-32] != zeros)}


@pytest.mark.parametrize(("layout", "shape", "every"), [(SMALL, SHAPE, 1), (LARGE, LARGE_SHAPE, 7)])
def test_one_trit_changes_one_nibble_and_its_sign(layout: TL2, shape: tuple[int, int], every: int) -> None:
    a, b, _ = layout.region_sizes(shape)
    signs = {place: divmod(i, 16) for i, place in enumerate(sign_places(layout, shape))}
    for byte, (row, column) in list(enumerate(nibble_places(layout, shape, "A")))[::every]:
        for offset in range(6):
            magnitude = (9, 3, 1)[offset % 3] << (4 if offset < 3 else 0)
            assert changes(layout, shape, row, column + offset, 1) == {byte: magnitude}
            word, bit = signs[row, column + offset // 3 * 3]
            sign = 1 << (15 - bit)
            expected = {byte: magnitude, a + 2 * word + (sign > 255): sign >> 8 or sign}
            assert changes(layout, shape, row, column + offset, -1) == expected
            assert layout.byte_of(row, column + offset, shape) == byte
    for byte, (row, column) in list(enumerate(nibble_places(layout, shape, "C"), a + b))[::every]:
        for offset, trit in product(range(4), (-1, 1)):
            nibble = 4 + trit * (3 if offset % 2 == 0 else 1)
            expected = {byte: nibble << 4 | 4 if offset < 2 else 4 << 4 | nibble}
            assert changes(layout, shape, row, column + offset, trit) == expected
            assert layout.byte_of(row, column + offset, shape) == byte


def test_byte_of_between_tiles() -> None:
    a, b, c = LARGE.region_sizes(LARGE_SHAPE)
    for region, start, size in (("A", 0, a), ("C", a + b, c)):
        found = [LARGE.byte_of(*place, LARGE_SHAPE) for place in nibble_places(LARGE, LARGE_SHAPE, region)]
        assert found == list(range(start, start + size))


@pytest.mark.parametrize(
    ("columns", "size", "digest"),
    [(448, 12288, "54efad35b011f9f6"), (448, 13312, "25168566180d740b"), (384, 11605, "51f041e5e0fcfece")],
)
def test_digests_of_the_original_packer(columns: int, size: int, digest: str) -> None:
    """Made once with bitnet.cpp's Python packer: the three regions alone, then with its zero padding."""
    shape = (128, columns)
    packed = LARGE.pack(golden_matrix(*shape), 1.0)
    assert size in (sum(LARGE.region_sizes(shape)), LARGE.fixed_size(shape))
    assert hashlib.sha256(packed[:size]).hexdigest()[:16] == digest


def test_sizes_of_the_regions_the_padding_and_the_trailer() -> None:
    assert LARGE.region_sizes((128, 448)) == (8192, 2048, 2048)
    assert LARGE.packed_size((128, 448)) == 13312 + 32
    assert sum(LARGE.region_sizes((128, 384))) == 10240
    assert LARGE.packed_size((128, 384)) == 11616 + 32  # 11605 up to a multiple of 32
    packed = LARGE.pack(golden_matrix(128, 384), 0.37)
    assert packed[10240:11616] == bytes(1376)
    assert packed[11616:] == np.float32(0.37).tobytes() + bytes(28)
    # The kernel_config.ini that bitnet.cpp ships, of bitnet_b1_58-3B: out, in, BM, BK.
    for rows, columns, BM, BK in ((3200, 8640, 160, 96), (3200, 3200, 320, 96), (8640, 3200, 320, 96)):  # noqa: N806
        assert TL2(BM, BK).packed_size((rows, columns)) == tensor_bytes("TL2", (rows, columns))


def test_no_padding_where_256_columns_are_pairs_and_no_triples_where_all_are() -> None:
    layout = TL2(BM=32, BK=288)
    assert (layout.region_sizes((32, 544)), layout.fixed_size((32, 544))) == ((1536, 384, 2048), 3968)
    assert layout.region_sizes((32, 256)) == (0, 0, 2048)
    packed = layout.pack(golden_matrix(32, 256))
    assert len(packed) == 2048 + 32
    assert np.array_equal(layout.unpack(packed, (32, 256)).trits, golden_matrix(32, 256))


@pytest.mark.parametrize(
    ("a", "b", "c", "triples", "pairs"),
    [(0, 0, 0x44, 0, 0), (0, 0, 0, 0, -1), (0xDD, 0, 0x88, 1, 1), (0xDD, 0xFF, 0, -1, -1)],
)
def test_uniform_bytes(a: int, b: int, c: int, triples: int, pairs: int) -> None:
    """Zero bytes are zero weights as triples, and -1 as pairs."""
    data = bytes([a]) * A + bytes([b]) * B + bytes([c]) * C + bytes(256) + np.float32(0.5).tobytes() + bytes(28)
    read = SMALL.unpack(data, SHAPE).trits
    assert (read[:, :192] == triples).all()
    assert (read[:, 192:] == pairs).all()


def test_every_triple_and_its_byte() -> None:
    """All 27, three of them by hand: 9 - 3 + 1 = 7; -9 + 3 + 0 = -6; -9 - 3 - 1 = -13."""
    trits = np.zeros(SHAPE, np.int8)
    trits[0, :81] = np.array(list(product((-1, 0, 1), repeat=3)), np.int8).reshape(-1)
    packed = SMALL.pack(trits)
    found = []
    for triple in range(27):
        byte = packed[SMALL.byte_of(0, 3 * triple, SHAPE)]
        found.append(byte >> 4 if triple % 2 == 0 else byte & 15)
    assert found == [*range(13, -1, -1), *range(1, 14)]
    bits = "".join(f"{int.from_bytes(packed[A + 32 * j :][:2], 'little'):016b}"[::2] for j in range(4))
    assert bits[:27] == "1" * 13 + "0" * 14  # row 0, 24 columns a word; the odd bits are row 16
    trits[0, :9] = [1, -1, 1, -1, 1, 0, -1, -1, -1]
    packed = SMALL.pack(trits)
    assert (packed[0], packed[32] >> 4, packed[A + 1] >> 2) == (0x76, 13, 0b00_10_10)


def test_a_sign_over_zero_reads_as_zero_and_is_counted() -> None:
    trits = np.random.default_rng(39).integers(-1, 2, SHAPE, np.int8)  # the golden matrix has no three zeros in a row
    clean = SMALL.pack(trits)
    signs = np.frombuffer(clean, "<u2", B // 2, A).copy()
    zeros = 0
    for i, (row, column) in enumerate(sign_places(SMALL, SHAPE)):
        if not trits[row, column : column + 3].any():
            zeros += 1
            one = signs.copy()
            one[i // 16] ^= 1 << (15 - i % 16)
            data = clean[:A] + one.tobytes() + clean[A + B :]
            assert SMALL.odd_bytes(data, SHAPE) == 1
            assert np.array_equal(SMALL.unpack(data, SHAPE, warn=False).trits, trits)
    assert zeros > 50
    with pytest.warns(TritgoldWarning, match=r"tl2: 1 byte"):
        SMALL.unpack(data, SHAPE)


def test_padding_means_nothing_yet_what_is_not_0_is_counted() -> None:
    trits = golden_matrix(*SHAPE)
    clean = SMALL.pack(trits)
    data = clean[: A + B + C] + b"\0\xff" * 128 + clean[-32:]
    assert SMALL.odd_bytes(data, SHAPE) == 128
    with pytest.warns(TritgoldWarning, match="tl2: 128 bytes"):
        assert np.array_equal(SMALL.unpack(data, SHAPE).trits, trits)
    assert SMALL.odd_bytes(clean[:-28] + b"\xff" * 28, SHAPE) == 0


@pytest.mark.parametrize("half", [0, 4])
@pytest.mark.parametrize(("region", "largest"), [("A", 13), ("C", 8)])
def test_nibbles_beyond_the_table_are_refused_everywhere(half: int, region: str, largest: int) -> None:
    clean, width = SMALL.pack(golden_matrix(*SHAPE)), 3 if region == "A" else 2
    for byte, (row, column) in enumerate(nibble_places(SMALL, SHAPE, region), 0 if region == "A" else A + B):
        for nibble in range(16) if byte % 32 == 9 else (largest, largest + 1):
            data = bytearray(clean)
            data[byte] = data[byte] & (0xF0 >> half) | nibble << half
            if nibble <= largest:
                SMALL.check(bytes(data), SHAPE)
                continue
            error = refusal(lambda data=data: SMALL.check(bytes(data), SHAPE))
            assert error.kind == "invalid-nibble"
            first = column if half else column + width
            assert f"occurs 1 times, first at [{row}, {first}], byte {byte}" in str(error)
            if byte % 32 == 9:
                bad = np.argwhere(SMALL.codes(bytes(data), SHAPE) > 2).tolist()
                assert bad == [[row, first + i] for i in range(width)]


def test_an_invalid_magnitude_is_one_whatever_its_sign() -> None:
    data = b"\xef" * A + b"\xff" * B + SMALL.pack(golden_matrix(*SHAPE))[A + B :]
    assert "occurs 2048 times, first at [0, 0], byte 0" in str(refusal(lambda: SMALL.unpack(data, SHAPE)))
    assert (SMALL.codes(data, SHAPE)[:, :192] == 3).all()


def test_other_tiles_read_most_trits_in_the_wrong_place() -> None:
    trits = golden_matrix(128, 384)
    packed = LARGE.pack(trits)
    for wrong in (TL2(BM=128, BK=96), TL2(BM=64, BK=192), TL2(BM=32, BK=384)):
        assert not np.array_equal(wrong.unpack(packed, trits.shape, warn=False).trits, trits)


@pytest.mark.parametrize("size", [0, 1, A, A + B, A + B + C, 2047, 2079, 2081, 2112, 4160])
def test_other_lengths_are_refused(size: int) -> None:
    data = SMALL.pack(golden_matrix(*SHAPE)) * 2
    error = refusal(lambda: SMALL.unpack(data[:size], SHAPE))
    assert error.kind == "packed-length"
    assert f"found {size} bytes, expected 2080 bytes" in str(error)


def test_a_missing_trailer_says_so() -> None:
    error = refusal(lambda: SMALL.unpack(SMALL.pack(golden_matrix(*SHAPE))[:-32], SHAPE))
    assert error.kind == "trailer-missing"
    assert "found 2048 bytes, expected 2080 bytes, a 32-byte trailer included" in str(error)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"BM": 0, "BK": 96}, "BM = 0, expected a positive integer"),
        ({"BM": 64, "BK": -96}, "BK = -96, expected a positive integer"),
        ({"BM": 64, "BK": 96.0}, "BK = 96.0, expected a positive integer"),
        ({"BM": "64", "BK": 96}, "BM = '64', expected a positive integer"),
        ({"BM": 48, "BK": 96}, "BM = 48, expected BM a multiple of bm = 32"),
        ({"BM": 64, "BK": 90}, "BK = 90, expected BK a multiple of 24"),
        # 6 columns fill a block of magnitudes, yet not the 24 of a uint16 of signs.
        ({"BM": 64, "BK": 6}, "BK = 6, expected BK a multiple of 24"),
        ({"BM": 256, "BK": 96, "bm": 64}, "bm: found 64, expected 32"),
        ({"BM": 64}, "'BK'"),
        ({"BM": 64, "BK": 96, "by": 6}, "'by'"),
    ],
)
def test_tiles_that_there_cannot_be(options: dict[str, Any], says: str) -> None:
    error = refusal(lambda: packing("tl2", **options))
    assert error.kind == "packing-option"
    assert says in str(error)


def test_the_bm_of_an_ini_may_be_given() -> None:
    assert packing("tl2", BM=64, BK=96, bm=32) == packing("tl2", BM=64, BK=96) == LARGE


@pytest.mark.parametrize(
    ("layout", "shape", "says"),
    [
        (LARGE, (32, 384), "out a multiple of BM = 64; 32 is not"),
        (LARGE, (96, 384), "out a multiple of BM = 64; 96 is not"),
        (LARGE, (64, 192), "in at least 256"),
        (LARGE, (64, 400), "in mod BK = 96 a multiple of 32; 16 is not"),
        (LARGE, (64, 383), "in mod BK = 96 a multiple of 32; 95 is not"),
        (TL2(BM=32, BK=384), (32, 384 + 288), "in mod BK = 384 at most 256; 288 is not"),
        (TL2(BM=32, BK=384), (32, 288), "in mod BK = 384 at most 256; 288 is not"),
    ],
)
def test_shapes_that_it_cannot_hold(layout: TL2, shape: tuple[int, int], says: str) -> None:
    for act in (lambda: layout.pack(np.zeros(shape, np.int8)), lambda: layout.unpack(bytes(2080), shape)):
        error = refusal(act)
        assert error.kind == "packing-shape"
        assert says in str(error)
        assert str(list(shape)) in str(error)


def with_scale(trits: np.ndarray, scale: float) -> bytes:
    """Packed bytes whose scale the packer itself may refuse to write."""
    return SMALL.pack(trits)[:-32] + np.float32(scale).tobytes() + bytes(28)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused(scale: float) -> None:
    trits = golden_matrix(*SHAPE)
    assert refusal(lambda: SMALL.unpack(with_scale(trits, scale), SHAPE)).kind == "scale-non-finite"
    assert refusal(lambda: SMALL.pack(trits, scale)).kind == "scale-non-finite"


def test_odd_scales_load_with_a_warning() -> None:
    trits = golden_matrix(*SHAPE)
    with pytest.warns(TritgoldWarning, match="tl2: negative scale -0.5"):
        assert SMALL.unpack(with_scale(trits, -0.5), SHAPE).scale == -0.5
    with pytest.warns(TritgoldWarning, match="tl2: a scale of 0"):
        SMALL.unpack(with_scale(trits, 0.0), SHAPE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SMALL.unpack(with_scale(np.zeros(SHAPE, np.int8), 0.0), SHAPE)


def test_there_is_one_scale() -> None:
    scales = np.ones((32, 1), np.float32)
    assert refusal(lambda: SMALL.pack(golden_matrix(*SHAPE), scales)).kind == "scale-shape"
