"""Every layout of four trits a byte against an index formula written in the tests, element by element."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_layouts import CASES, Case
from refusals import refusal
from second_writing import layout_of, written
from trit_layouts import golden_matrix

from tritgold.errors import TritgoldWarning
from tritgold.formats.packings import packing

examples = settings(max_examples=15, deadline=None, derandomize=True)
every = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
with_scale = pytest.mark.parametrize(
    "case",
    [case for case in CASES.values() if case.trailer or case.block],
    ids=lambda case: f"{case.name} {case.options}",
)


@st.composite
def matrices(draw: st.DrawFn, case: Case) -> np.ndarray:
    """Trits of any shape the format holds."""
    rows, columns = (draw(st.integers(1, 9 if unit == 1 else 3)) * unit for unit in case.unit)
    if case.name == "i2_s" and draw(st.booleans()):
        columns = draw(st.integers(1, 40))  # blocks that straddle rows
        rows = case.unit[1] // math.gcd(columns, case.unit[1])
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(-1, 2, (rows, columns), np.int8)


@every
def test_bytes_and_trits_lie_where_the_formula_says(case: Case) -> None:
    layout = case.layout

    @examples
    @given(matrices(case))
    def check(trits: np.ndarray) -> None:
        before = trits.copy()
        packed = layout.pack(trits, 0.37)
        assert np.array_equal(case.decode(packed, trits.shape), trits)
        assert np.array_equal(layout.unpack(packed, trits.shape).trits, trits)
        assert len(packed) == layout.packed_size(trits.shape)
        assert np.array_equal(trits, before)

    check()


@every
def test_one_trit_changes_one_pair_of_bits(case: Case) -> None:
    layout, shape = case.layout, case.unit
    zeros = layout.pack(np.zeros(shape, np.int8))
    for row, column in np.ndindex(shape):
        for trit in (-1, 1):
            one_hot = np.zeros(shape, np.int8)
            one_hot[row, column] = trit
            changed = {i: a ^ b for i, (a, b) in enumerate(zip(layout.pack(one_hot), zeros, strict=True)) if a != b}
            byte, shift = case.place(row, column, shape)
            assert changed == {byte: (case.values[trit + 1] ^ case.values[1]) << shift}
            assert layout.byte_of(row, column, shape) == byte


@every
def test_byte_of_names_the_byte_in_matrices_of_several_units(case: Case) -> None:
    shape = (3 * case.unit[0], 2 * case.unit[1])
    for row, column in np.ndindex(shape):
        assert case.layout.byte_of(row, column, shape) == case.place(row, column, shape)[0]


@pytest.mark.parametrize(
    ("case", "size", "digest"),
    [
        ("i2_s", 32768, "1b6dfba077339edb"),
        ("i2_s 64", 32768, "7aa6c7e6de0200e6"),
        ("i2_s_4rows", 32768, "bb93087037a4df1f"),
        ("sglbitnt", 32768, "1b6dfba077339edb"),
        ("sequential lsb", 32768, "1a8b61257ed62e5a"),
        ("torchao", 32768, "b6478f4b6ebb62c3"),
        ("gpu_int2", 32768, "38aab4839d5e512d"),
        ("tq2_0", 33792, "dcffc26bdd35c9a9"),
        ("hf", 32768, "d0eb7f335da89ed6"),
    ],
)
def test_published_digests(case: str, size: int, digest: str) -> None:
    """I2_S and gpu_int2 were made with Microsoft's packers, hf with transformers, tq2_0 with gguf, the others with
    index formulas apart from ours."""
    packed = CASES[case].layout.pack(golden_matrix(256, 512), 1.0)
    payload = packed[: len(packed) - CASES[case].trailer]
    assert len(payload) == size
    assert hashlib.sha256(payload).hexdigest()[:16] == digest


@every
@pytest.mark.parametrize("scale", [0.37, 2.6])
def test_the_trailer_holds_the_scale_and_zeros(case: Case, scale: float) -> None:
    """B11: neither is 1, which an engine that takes its scale from somewhere else may have by chance."""
    packed = case.layout.pack(golden_matrix(256, 512), scale)
    if case.trailer:
        assert packed[-32:] == np.array(scale, "<f4").tobytes() + bytes(28)
    stored = packing(case.name, **case.options).scales(packed, (256, 512))
    exact = np.float16(scale) if case.block else np.float32(scale)
    assert (stored == (exact if case.trailer or case.block else 1)).all()


@every
def test_all_256_bytes_decode_and_the_check_counts_what_is_no_trit(case: Case) -> None:
    layout, shape = case.layout, (case.unit[0] * 4, math.lcm(case.unit[1], 256))
    packed = np.frombuffer(layout.pack(np.zeros(shape, np.int8)), np.uint8).copy()
    holders = sorted({case.place(*at, shape)[0] for at in np.ndindex(shape)})
    packed[holders] = np.resize(np.arange(256, dtype=np.uint8), len(holders))
    codes = layout.codes(packed, shape)
    invalid = 0
    first = None
    for row, column in np.ndindex(shape):
        byte, shift = case.place(row, column, shape)
        meaning = case.values.index(int(packed[byte]) >> shift & 3)
        invalid += meaning == 3
        if meaning == 3:
            first = first or (row, column, byte)
            assert codes[row, column] > 2
        else:
            assert codes[row, column] == meaning
    assert invalid
    assert first
    error = refusal(lambda: layout.check(packed, shape))
    assert error.kind == f"code-{case.values[3]}"
    assert f"code {case.values[3]} is not a trit" in str(error)
    assert f"occurs {invalid} times, first at [{first[0]}, {first[1]}], byte {first[2]}. " in str(error)


@every
def test_the_invalid_code_is_refused_in_every_place(case: Case) -> None:
    layout, shape = case.layout, case.unit
    clean = layout.pack(np.ones(shape, np.int8))
    layout.check(clean, shape)
    for row, column in np.ndindex(shape):
        byte, shift = case.place(row, column, shape)
        dirty = bytearray(clean)
        dirty[byte] = dirty[byte] & ~(3 << shift) | case.values[3] << shift
        for act in (layout.check, layout.unpack):
            message = str(refusal(lambda act=act, dirty=dirty: act(bytes(dirty), shape)))
            assert f"occurs 1 times, first at [{row}, {column}], byte {byte}" in message


@every
@pytest.mark.parametrize("change", [-1, 1, -18, 32])
def test_wrong_lengths_are_refused(case: Case, change: int) -> None:
    shape = (16 * 4, 256)
    data = case.layout.pack(golden_matrix(*shape)) + bytes(32)
    size = case.layout.packed_size(shape)
    error = refusal(lambda: case.layout.unpack(data[: size + change], shape))
    assert error.kind == "packed-length"
    assert f"found {size + change} bytes, expected {size} bytes" in str(error)


@pytest.mark.parametrize("case", ["i2_s", "i2_s 64", "i2_s_4rows"])
def test_a_payload_without_its_trailer_says_so(case: str) -> None:
    data = CASES[case].layout.pack(golden_matrix(4, 128))[:-32]
    error = refusal(lambda: CASES[case].layout.unpack(data, (4, 128)))
    assert error.kind == "trailer-missing"
    assert "found 128 bytes, expected 160 bytes, a 32-byte trailer included" in str(error)


@every
@pytest.mark.parametrize("columns", [1, 3, 15, 16, 17, 18, 31, 33, 127, 129, 160, 255, 257])
def test_no_tail_is_ever_dropped(case: Case, columns: int) -> None:
    """A row that does not fill the format's unit is held whole or refused, never cut to a multiple of 16."""
    ones = np.ones((16, columns), np.int8)
    holds = ones.size % case.unit[1] == 0 if case.name == "i2_s" else columns % case.unit[1] == 0
    if holds:
        packed = case.layout.pack(ones)
        assert case.layout.unpack(packed, ones.shape).trits.sum(axis=1).tolist() == [columns] * 16
        return
    for act in (lambda: case.layout.pack(ones), lambda: case.layout.unpack(bytes(1), ones.shape)):
        error = refusal(act)
        assert error.kind == "packing-shape"
        assert f"[16, {columns}]" in str(error)


@pytest.mark.parametrize("columns", [1, 3, 15, 16, 17, 31, 33, 127, 129, 160, 192, 255, 256, 257, 320, 384, 448, 512])
@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("tl1", {192, 256, 320, 384, 448, 512}),  # tiles of 64 columns
        ("tl2", {256, 320, 384, 448, 512}),  # tiles of 96, then pairs in 32s; 256 at least
        ("tq1_0", {256, 512}),
    ],
)
def test_no_tail_is_dropped_in_tiles_or_in_base_3(name: str, held: set[int], columns: int) -> None:
    layout, ones = layout_of(name), np.ones((32, columns), np.int8)
    if columns in held:
        packed = layout.pack(ones)
        assert packed == written(name, ones, np.float32(1))
        assert layout.unpack(packed, ones.shape).trits.sum(axis=1).tolist() == [columns] * 32
        return
    for act in (lambda: layout.pack(ones), lambda: layout.unpack(bytes(1), ones.shape)):
        error = refusal(act)
        assert error.kind == "packing-shape"
        assert f"[32, {columns}]" in str(error)


@pytest.mark.parametrize(
    ("case", "rows", "rule"), [("gpu_int2", 8, "out a multiple of 16"), ("i2_s_4rows", 6, "out a multiple of 4")]
)
def test_rows_that_do_not_fill_a_tile_are_refused(case: str, rows: int, rule: str) -> None:
    error = refusal(lambda: CASES[case].layout.pack(np.zeros((rows, 64), np.int8)))
    assert error.kind == "packing-shape"
    assert rule in str(error)


@every
@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        (np.array([[2, 0, 0, 0, 0]], np.int8), "not-a-trit", "[0, 0]: found 2"),
        (np.array([[1.6]]), "trits-dtype", "float64"),
        (np.array([[np.nan]]), "trits-dtype", "float64"),
        (np.array([[True]]), "trits-dtype", "bool"),
    ],
)
def test_what_is_no_trit_is_refused(case: Case, bad: np.ndarray, kind: str, says: str) -> None:
    error = refusal(lambda: case.layout.pack(bad))
    assert error.kind == kind
    assert says in str(error)
    assert isinstance(error, ValueError)


@with_scale
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused(case: Case, scale: float) -> None:
    trits = golden_matrix(16, 512)
    packed = case.layout.pack(trits, 0.5)
    error = refusal(lambda: case.layout.unpack(case.with_scale(packed, scale, block=5), trits.shape))
    assert error.kind == "scale-non-finite"
    if case.block:
        per_row = 512 // (case.block[0] - 2) // 4
        assert f"at [{5 // per_row}, {5 % per_row}]" in str(error)
    assert refusal(lambda: case.layout.pack(trits, scale)).kind == "scale-non-finite"


@with_scale
def test_odd_scales_load_with_a_warning_and_zero_weights_do_not(case: Case) -> None:
    ones, zeros = np.ones((16, 256), np.int8), np.zeros((16, 256), np.int8)
    with pytest.warns(TritgoldWarning, match="negative scale -0.5"):
        case.layout.unpack(case.with_scale(case.layout.pack(ones), -0.5), ones.shape)
    with pytest.warns(TritgoldWarning, match="scale of 0"):
        case.layout.unpack(case.with_scale(case.layout.pack(ones), 0.0), ones.shape)
    for scale in (0.0, 0.5):
        assert not case.layout.unpack(case.layout.pack(zeros, scale), zeros.shape).dense().any()


@every
def test_views_of_any_kind_pack_and_unpack(case: Case) -> None:
    trits = golden_matrix(256, 64).T[:, ::-1]
    packed = case.layout.pack(trits, np.array(0.5, ">f8"))
    assert packed == case.layout.pack(np.ascontiguousarray(trits), 0.5)
    spread = np.zeros(2 * len(packed), np.uint8)
    spread[::2] = np.frombuffer(packed, np.uint8)
    as_words = np.frombuffer(packed, ">u2") if len(packed) % 2 == 0 else spread[::2]
    for data in (bytearray(packed), memoryview(packed), spread[::2], as_words):
        assert np.array_equal(case.layout.unpack(data, trits.shape).trits, trits)


@every
def test_a_scale_that_lies_elsewhere_changes_no_byte(case: Case) -> None:
    trits = golden_matrix(16, 256)
    same = case.layout.pack(trits, 0.5) == case.layout.pack(trits, 0.25)
    assert same == (not case.layout.stores_scale) == (not case.trailer and not case.block)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("i2_s", {"block": 32}),
        ("i2_s", {"block": "128"}),
        ("i2_s", {"block": True}),
        ("q2_0", {"block": 256}),
        ("sequential", {"order": "big"}),
        ("sequential", {"order": 4}),
        ("torchao", {"order": "lsb"}),
        ("gpu_int2", {"block": 16}),
    ],
)
def test_options_are_checked(name: str, options: dict[str, int | str]) -> None:
    assert refusal(lambda: packing(name, **options)).kind == "packing-option"


def test_codes_in_the_surplus_rows_of_hf_are_counted() -> None:
    """Rows 5 to 7 of 8 that 5 rows are rounded up to: transformers writes code 0 there."""
    layout, shape = packing("hf"), (5, 3)
    data = bytearray(layout.pack(np.zeros(shape, np.int8)))
    assert layout.odd_bytes(data, shape) == 0
    data[1 * 3 + 2] |= 0b01_00_00_00  # row 7, column 2
    data[1 * 3 + 0] |= 0b10_00_00_00  # row 7, column 0
    assert layout.odd_bytes(data, shape) == 2
    with pytest.warns(TritgoldWarning, match="2 bytes that decode, yet that no encoder writes"):
        layout.unpack(data, shape)
    assert layout.odd_bytes(layout.pack(np.ones((8, 3), np.int8)), (8, 3)) == 0
