"""Packings: what is refused, with which words, and what loads with a warning."""

import warnings
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from refusals import refusal
from trit_layouts import NAMES, ONE_BLOCK, golden_matrix, place

from tritgold.errors import PackingError, TritgoldWarning
from tritgold.formats.packings import PACKINGS, packing
from tritgold.formats.packings.packing_base import Packing
from tritgold.ternary import TernaryTensor


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("bad", "kind", "says"),
    [
        (np.array([[0, 0], [2, 0]], np.int8), "not-a-trit", "[1, 0]: found 2"),
        (np.array([[0, -128]], np.int8), "not-a-trit", "[0, 1]: found -128"),
        (np.array([[1.6]]), "trits-dtype", "float64"),
        (np.array([[np.nan]], np.float32), "trits-dtype", "float32"),
        (np.array([[True, False]]), "trits-dtype", "bool"),
        (np.array([[1]], np.int64), "trits-dtype", "int64"),
        (np.array([[1]], np.uint8), "trits-dtype", "uint8"),
        (np.array([1], np.int8), "trits-shape", "(1,)"),
        (np.zeros((0, 256), np.int8), "trits-shape", "[0, 256]"),
        (np.zeros((4, 0), np.int8), "trits-shape", "[4, 0]"),
        ([[1, 0]], "trits-shape", "list"),
    ],
)
def test_what_is_no_trit_is_refused(name: str, bad: np.ndarray, kind: str, says: str) -> None:
    error = refusal(lambda: packing(name).pack(bad))
    assert isinstance(error, PackingError)
    assert isinstance(error, ValueError)
    assert error.kind == kind
    assert says in str(error)


@pytest.mark.parametrize("name", NAMES)
def test_code_3_is_refused_with_count_and_place(name: str) -> None:
    layout, shape = packing(name), (4, 512)
    data = bytearray(layout.pack(golden_matrix(*shape), 0.5))
    at = [(3, 500), (1, 300), (1, 301)]
    for row, column in at:
        byte, shift = place(name, row, column, shape)
        data[byte] |= 3 << shift
    for refuse in (layout.check, layout.unpack):
        error = refusal(lambda refuse=refuse: refuse(bytes(data), shape))
        assert error.kind == "code-3"
        assert f"3 times, first at [1, 300], byte {place(name, 1, 300, shape)[0]}" in str(error)
    assert layout.codes(bytes(data), shape)[1, 300] == 3


@pytest.mark.parametrize("name", NAMES)
def test_code_3_is_seen_in_every_place_of_a_byte(name: str) -> None:
    layout, shape = packing(name), ONE_BLOCK[name]
    clean = layout.pack(np.ones(shape, np.int8))
    layout.check(clean, shape)
    for row, column in np.ndindex(shape):
        byte, shift = place(name, row, column, shape)
        dirty = bytearray(clean)
        dirty[byte] |= 3 << shift
        assert refusal(lambda dirty=dirty: layout.check(bytes(dirty), shape)).kind == "code-3"


def test_refusing_code_3_needs_nothing_newer_than_numpy_1_26(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert "occurs 256 times" in str(refusal(lambda: packing("hf").check(b"\xff" * 64, (4, 64))))


def test_code_3_in_the_padding_of_hf_is_refused_too() -> None:
    assert "in the padding" in str(refusal(lambda: packing("hf").unpack(bytes([0b11_10_10_10, 0]), (5, 1))))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [-1, 1, -66, 64])
def test_wrong_lengths_are_refused(name: str, change: int) -> None:
    layout, shape = packing(name), (8, 256)
    data = layout.pack(golden_matrix(*shape)) + bytes(64)
    size = layout.packed_size(shape)
    error = refusal(lambda: layout.unpack(data[: size + change], shape))
    assert error.kind == "packed-length"
    assert f"found {size + change} bytes, expected {size} bytes" in str(error)


@pytest.mark.parametrize(("name", "shape"), [("i2_s", (3, 64)), ("tq2_0", (4, 200)), ("tq2_0", (2, 384))])
def test_shapes_that_do_not_fill_blocks_are_refused(name: str, shape: tuple[int, int]) -> None:
    layout = packing(name)
    for act in (lambda: layout.pack(np.zeros(shape, np.int8)), lambda: layout.unpack(bytes(64), shape)):
        error = refusal(act)
        assert error.kind == "packing-shape"
        assert str(list(shape)) in str(error)


@pytest.mark.parametrize("name", ["tq1_0", "tq2_0"])
@pytest.mark.parametrize(
    ("columns", "holds"), [(1536, True), (4096, True), (3200, False), (5460, False), (8640, False)]
)
def test_rows_of_the_published_models_that_tq_cannot_hold(name: str, columns: int, holds: bool) -> None:
    """B29: 3200 and 8640 are the 3B's, 5460 is the feed-forward of the 1.3B; of the 700M alone (1536, 4096) all fit.
    Two rows of 3200 are 25 whole blocks: they are not read on into the next row either."""
    layout, shape = packing(name), (2, columns)
    if holds:
        assert np.array_equal(layout.unpack(layout.pack(golden_matrix(*shape)), shape).trits, golden_matrix(*shape))
        return
    for act in (lambda: layout.pack(golden_matrix(*shape)), lambda: layout.packed_size(shape)):
        error = refusal(act)
        assert (type(error), error.kind) == (PackingError, "packing-shape")
        assert f"rows that are a multiple of 256; {columns} is not" in str(error)


def test_an_i2_s_payload_without_its_trailer_says_so() -> None:
    data = packing("i2_s").pack(np.zeros((2560, 64), np.int8))[:-32]
    error = refusal(lambda: packing("i2_s").unpack(data, (2560, 64)))
    assert error.kind == "trailer-missing"
    assert "found 40960 bytes, expected 40992 bytes, a 32-byte trailer included" in str(error)


def test_bytes_behind_the_i2_s_scale_mean_nothing() -> None:
    trits = golden_matrix(2, 128)
    data = packing("i2_s").pack(trits, 0.37)
    assert data[-28:] == bytes(28)
    dirty = packing("i2_s").unpack(data[:-28] + b"\xff" * 28, trits.shape)
    assert np.array_equal(dirty.trits, trits)
    assert dirty.scale == np.float32(0.37)


def with_scale(name: str, trits: np.ndarray, scale: float, block: int = 0) -> bytes:
    """Packed bytes whose scale the packer itself may refuse to write."""
    data = bytearray(packing(name).pack(trits, 0.5))
    if name == "i2_s":
        data[-32:-28] = np.float32(scale).tobytes()
    else:
        data[66 * block + 64 : 66 * block + 66] = np.float16(scale).tobytes()
    return bytes(data)


@pytest.mark.parametrize("name", ["i2_s", "tq2_0"])
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused(name: str, scale: float) -> None:
    trits = golden_matrix(2, 512)
    error = refusal(lambda: packing(name).unpack(with_scale(name, trits, scale, block=3), trits.shape))
    assert error.kind == "scale-non-finite"
    assert str(scale) in str(error)
    if name == "tq2_0":
        assert "[1, 1]" in str(error)
    assert refusal(lambda: packing(name).pack(trits, scale)).kind == "scale-non-finite"


@pytest.mark.parametrize("name", ["i2_s", "tq2_0"])
def test_odd_scales_load_with_a_warning(name: str) -> None:
    trits = np.ones((1, 256), np.int8)
    with pytest.warns(TritgoldWarning, match="negative scale -0.5"):
        tensor = packing(name).unpack(with_scale(name, trits, -0.5), trits.shape)
    assert (tensor.dense() == -0.5).all()
    with pytest.warns(TritgoldWarning, match="scale of 0"):
        packing(name).unpack(with_scale(name, trits, 0.0), trits.shape)


@pytest.mark.parametrize("name", ["i2_s", "tq2_0"])
@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_zero_weights_load_silently_whatever_the_scale(name: str, scale: float) -> None:
    zeros = np.zeros((1, 256), np.int8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not packing(name).unpack(with_scale(name, zeros, scale), zeros.shape).dense().any()


def test_i2_s_has_one_scale() -> None:
    scales = np.ones((2, 1), np.float32)
    assert refusal(lambda: packing("i2_s").pack(golden_matrix(2, 128), scales)).kind == "scale-shape"


@pytest.mark.parametrize("scale", [1e5, -1e5, 65520.0])
def test_tq2_0_refuses_a_scale_beyond_float16(scale: float) -> None:
    error = refusal(lambda: packing("tq2_0").pack(golden_matrix(1, 256), scale))
    assert error.kind == "scale-overflow"
    assert f"{scale:g}" in str(error) or str(scale) in str(error)


def test_tq2_0_holds_the_largest_float16() -> None:
    trits = golden_matrix(1, 256)
    assert packing("tq2_0").unpack(packing("tq2_0").pack(trits, 65504.0), trits.shape).scale == 65504


def test_tq2_0_refuses_a_scale_that_float16_makes_zero() -> None:
    """A packer that writes d = 0 over real trits has deleted the tensor."""
    assert refusal(lambda: packing("tq2_0").pack(golden_matrix(1, 256), 1e-9)).kind == "scale-underflow"
    packing("tq2_0").pack(golden_matrix(1, 256), 0.0)


@pytest.mark.parametrize("name", NAMES)
def test_a_scale_too_large_for_float32_is_refused(name: str) -> None:
    assert refusal(lambda: packing(name).pack(golden_matrix(1, 256), 1e300)).kind == "scale-non-finite"


def test_blocks_with_different_scales_are_no_bitnet_tensor() -> None:
    trits = golden_matrix(2, 512)
    scales = np.array([[0.5, 0.5], [0.5, 0.25]], np.float32)
    tensor = packing("tq2_0").unpack(packing("tq2_0").pack(trits, scales), trits.shape)
    assert np.array_equal(tensor.scale, scales)
    error = refusal(tensor.with_one_scale)
    assert error.kind == "block-scales"
    assert "2 scales from 0.25 to 0.5" in str(error)


def test_a_silent_block_has_no_say_in_the_scale() -> None:
    """Encoders write d = 0 for a block of zeros; that is not a second scale."""
    trits = golden_matrix(2, 512)
    trits[1, 256:] = 0
    theirs = quantize(trits.astype(np.float32) * np.float32(0.75), GGMLQuantizationType.TQ2_0)
    one = packing("tq2_0").unpack(theirs, trits.shape).with_one_scale()
    assert one.scale.shape == ()
    assert one.scale == 0.75
    zeros = TernaryTensor(np.zeros_like(trits), np.zeros((2, 2), np.float32)).with_one_scale()
    assert zeros.scale == 0


@pytest.mark.parametrize(
    "name", [*NAMES, "i2_s_4rows", "sequential", "gpu_int2", "torchao", "q2_0", "q1_0", "f32", "bf16"]
)
@pytest.mark.parametrize("shape", [(0, 256), (16, 0), (-16, -256)])
def test_matrices_without_a_weight_are_refused(name: str, shape: tuple[int, int]) -> None:
    layout = packing(name)
    for act in (layout.unpack, layout.check, layout.codes, layout.scales):
        if not (act == layout.scales and not layout.stores_scale):
            assert refusal(lambda act=act: act(b"", shape)).kind == "packing-shape"


def test_an_unknown_packing_is_refused_with_the_known_ones() -> None:
    error = refusal(lambda: packing("iq2_tn"))
    assert error.kind == "unknown-packing"
    assert "hf, i2_s, " in str(error)
    assert "tq2_0, " in str(error)


# ---- what a caller may hand over ---------------------------------------------------------------------------------

SHAPES = {
    "i2_s": (4, 128), "tl1": (64, 32), "tl2": (32, 256), "gpu_int2": (16, 32), "i2_s_4rows": (4, 128),
}  # fmt: skip
OPTIONS = {"tl1": {"BM": 64, "BK": 32, "bm": 32}, "tl2": {"BM": 32, "BK": 96}}
EVERY = sorted(PACKINGS)
HUGE = 10**5000  # Python refuses to print it


def made(name: str) -> tuple[Packing, np.ndarray]:
    """A packing and trits that it holds, without zeros, which q1_0 has not."""
    shape = SHAPES.get(name, (4, 256))
    return packing(name, **OPTIONS.get(name, {})), np.random.default_rng(0).choice(np.array([-1, 1], np.int8), shape)


@pytest.mark.parametrize("name", EVERY)
def test_bytes_that_do_not_lie_behind_each_other_read_as_those_that_do(name: str) -> None:
    layout, trits = made(name)
    data = layout.pack(trits, 0.5)
    apart = np.repeat(np.frombuffer(data, np.uint8), 2)[::2]
    assert not apart.flags.c_contiguous
    for spelled in (apart, memoryview(apart), memoryview(bytes(apart.repeat(2)))[::2], bytearray(data)):
        tensor = layout.unpack(spelled, trits.shape)
        assert np.array_equal(tensor.trits, trits)
        assert np.array_equal(layout.scales(spelled, trits.shape), layout.scales(data, trits.shape))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("data", [None, "text", 5, [1, 2], np.array([None])])
def test_what_is_no_bytes_is_refused(name: str, data: Any) -> None:
    layout, trits = made(name)
    assert refusal(lambda: layout.unpack(data, trits.shape)).kind == "packed-dtype"


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("scale", "kind"),
    [
        ("x", "scale-dtype"),
        ("0.5", "scale-dtype"),
        (b"1", "scale-dtype"),
        (1j, "scale-dtype"),
        (np.complex64(1), "scale-dtype"),
        ({}, "scale-dtype"),
        ([[1.0], [1.0, 2.0]], "scale-dtype"),
        (10**400, "scale-non-finite"),
        (HUGE, "scale-non-finite"),
        (1e300, "scale-non-finite"),
        (None, "scale-non-finite"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_scales_that_are_no_numbers(name: str, scale: Any, kind: str) -> None:
    layout, trits = made(name)
    assert refusal(lambda: layout.pack(trits, scale)).kind == kind


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    "shape",
    [
        *((256,), (), (4, 4, 4), 256, 4.0, (4.0, 256.0), "44", ("4", "256"), None, (None, 4)),
        *((0, 128), (128, 0), (-1, -128), (-128, 128), (2**63, 128), (HUGE, 128)),
    ],
    ids=lambda shape: type(shape).__name__,
)
def test_what_is_no_shape_is_refused(name: str, shape: Any) -> None:
    layout, trits = made(name)
    data = layout.pack(trits)
    acts = [layout.unpack, layout.check, layout.codes, layout.payload, *[layout.scales] * layout.stores_scale]
    for act in (layout.packed_size, *(lambda s, act=act: act(data, s) for act in acts)):
        error = refusal(lambda act=act: act(shape))
        assert (type(error), error.kind) == (PackingError, "packing-shape")


@pytest.mark.parametrize("name", EVERY)
def test_sizes_of_numpy_do_not_wrap(name: str) -> None:
    layout, _ = made(name)
    if name == "tl2":
        layout = packing("tl2", BM=32, BK=192)  # 65536 = 341 * 192 + 64
    size = layout.packed_size((np.int32(65536),) * 2)
    assert size == layout.packed_size((65536, 65536)) > 2**29 - 1
    assert type(size) is int


@pytest.mark.parametrize("name", [[], None, 5, ("i2_s",), "\x1b[2J"])
def test_names_that_are_none(name: Any) -> None:
    assert refusal(lambda: packing(name)).kind == "unknown-packing"


def test_options_are_named_in_the_words_of_the_user() -> None:
    assert str(refusal(lambda: packing("tl1", BM=64, BK=64))) == (
        "tl1 needs the option 'bm': found BM, BK, expected BM, BK, bm [packing-option]"
    )
    assert str(refusal(lambda: packing("hf", block=64))) == (
        "hf has no option 'block': found block, expected none [packing-option]"
    )
    assert "tl2 needs the option 'BM', 'BK': found none" in str(refusal(lambda: packing("tl2")))
