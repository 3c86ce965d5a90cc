"""IQ1_BN, IQ2_BN and IQ2_BN_R4 against a second writing, and against digests of ik_llama.cpp's own quantisers."""

from hashlib import sha256

import numpy as np
import pytest
from refusals import refusal
from second_writing import iq1_bn_place, iq2_bn_r4_place, written
from trit_layouts import golden_matrix

from tritgold.errors import TritgoldWarning
from tritgold.formats.packings import packing

NAMES = ("iq1_bn", "iq2_bn", "iq2_bn_r4")
HEAD = {"iq1_bn": 2, "iq2_bn": 4, "iq2_bn_r4": 16}
each = pytest.mark.parametrize("name", NAMES)

# SHA-256, first 16 digits, of what quantize_iq1_bn, quantize_iq2_bn and quantize_iq2_bn_r4 of ik_llama.cpp 8337e4c made
# of the golden matrix as float32; its dequantize_row functions gave the matrix back.
DIGESTS = {
    ("iq1_bn", 256, 512): (27136, "0dbc4b07c9b2240c"),
    ("iq2_bn", 256, 512): (33792, "98df0e26c99a356c"),
    ("iq2_bn_r4", 256, 512): (33792, "7ae104d8134cec6c"),
    ("iq1_bn", 128, 448): (11904, "5057955b93a0d363"),
    ("iq2_bn", 128, 448): (14848, "2ee5dd08f5340a47"),
    ("iq2_bn_r4", 128, 448): (14848, "54052a7d4db1f878"),
}


@pytest.mark.parametrize(("name", "rows", "columns"), DIGESTS)
def test_bytes_are_those_of_the_original_quantisers(name: str, rows: int, columns: int) -> None:
    packed = packing(name).pack(golden_matrix(rows, columns), 1.0)
    assert (len(packed), sha256(packed).hexdigest()[:16]) == DIGESTS[name, rows, columns]


@each
def test_rows_have_scales_of_their_own(name: str) -> None:
    trits, scales = golden_matrix(8, 192), np.linspace(0.25, 2, 8, dtype=np.float32).reshape(8, 1)
    packed = packing(name).pack(trits, scales)
    if name != "iq2_bn_r4":
        assert packed == b"".join(written(name, trits[i : i + 1], scales[i, 0]) for i in range(8))
    tensor = packing(name).unpack(packed, trits.shape)
    assert tensor.scale.tolist() == scales.tolist()
    assert np.array_equal(tensor.dense(), trits * scales)


@each
def test_byte_of_says_where_a_weight_lies(name: str) -> None:
    layout, shape = packing(name), (4, 128)
    zeros = layout.pack(np.zeros(shape, np.int8))
    for row, column in np.ndindex(shape):
        one = np.zeros(shape, np.int8)
        one[row, column] = 1
        changed = [i for i, (a, b) in enumerate(zip(layout.pack(one), zeros, strict=True)) if a != b]
        assert changed == [layout.byte_of(row, column, shape)]


def test_places_by_the_published_tables() -> None:
    first = {"iq1_bn": packing("iq1_bn"), "iq2_bn_r4": packing("iq2_bn_r4")}
    assert [first["iq1_bn"].byte_of(0, c, (1, 64)) for c in range(64)] == [2 + iq1_bn_place(c)[0] for c in range(64)]
    found = [first["iq2_bn_r4"].byte_of(r, c, (4, 64)) for r, c in np.ndindex(4, 64)]
    assert found == [16 + iq2_bn_r4_place(r, c)[0] for r, c in np.ndindex(4, 64)]


@each
def test_a_row_of_zeros_as_ik_llama_writes_it_reads_as_zeros(name: str) -> None:
    """Its quantisers write +1 under a scale of 0."""
    trits = golden_matrix(8, 64)
    trits[2] = 1
    scales = np.ones((8, 1), np.float32)
    scales[2] = 0
    packed = packing(name).pack(trits, scales)
    tensor = packing(name).unpack(packed, trits.shape)
    assert not tensor.trits[2].any()
    assert np.array_equal(np.delete(tensor.trits, 2, 0), np.delete(trits, 2, 0))
    assert tensor.with_one_scale().scale == 1


@pytest.mark.parametrize("name", ["iq2_bn", "iq2_bn_r4"])
def test_code_3_is_refused_with_its_place(name: str) -> None:
    layout, shape = packing(name), (8, 128)
    data = bytearray(layout.pack(golden_matrix(*shape)))
    data[layout.byte_of(5, 70, shape)] = 0xFF
    error = refusal(lambda: layout.unpack(bytes(data), shape))
    assert error.kind == "code-3"
    assert "it occurs 4 times" in str(error)
    assert f"byte {layout.byte_of(5, 70, shape)}" in str(error)


def test_every_byte_of_iq1_bn_decodes_and_the_odd_ones_are_counted() -> None:
    layout = packing("iq1_bn")
    row = np.frombuffer(layout.pack(np.zeros((1, 64), np.int8)), np.uint8)
    odd = []
    for at in (2, 14):  # a byte of five digits, and the last of a block, of four
        found = set()
        for byte in range(256):
            data = row.copy()
            data[at] = byte
            if layout.odd_bytes(data, (1, 64)):
                found.add(byte)
                with pytest.warns(TritgoldWarning, match="1 bytes that decode"):
                    layout.unpack(data, (1, 64))
        odd.append(found)
    assert odd[0] == {1, 20, 40, 60, 79, 99, 119, 138, 158, 178, 197, 217, 237}
    assert odd[1] == {byte for byte in odd[0] if byte < 86} | set(range(86, 256))


@each
@pytest.mark.parametrize("shape", [(4, 32), (4, 65), (2, 63)])
def test_rows_are_whole_blocks_of_64(name: str, shape: tuple[int, int]) -> None:
    assert refusal(lambda: packing(name).pack(np.zeros(shape, np.int8))).kind == "packing-shape"


def test_iq2_bn_r4_holds_four_rows_at_a_time() -> None:
    error = refusal(lambda: packing("iq2_bn_r4").pack(np.zeros((6, 64), np.int8)))
    assert "multiple of 4" in str(error)


@each
def test_scales_of_blocks_are_refused(name: str) -> None:
    error = refusal(lambda: packing(name).pack(golden_matrix(4, 128), np.ones((4, 2), np.float32)))
    assert error.kind == "scale-shape"


@each
@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_a_scale_that_is_not_finite_is_refused(name: str, scale: float) -> None:
    data = bytearray(packing(name).pack(golden_matrix(4, 64)))
    words = np.array(scale, "<f2" if name == "iq1_bn" else "<f4").tobytes()
    data[: len(words)] = words
    assert refusal(lambda: packing(name).unpack(bytes(data), (4, 64))).kind == "scale-non-finite"


@each
def test_the_payload_is_all_but_the_scales(name: str) -> None:
    layout, shape = packing(name), (4, 128)
    data = np.frombuffer(layout.pack(golden_matrix(*shape)), np.uint8)
    groups = 1 if name == "iq2_bn_r4" else 4
    assert layout.payload(data, shape).size == data.size - groups * HEAD[name]
