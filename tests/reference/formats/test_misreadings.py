"""Each misreading made trit by trit from the formula that was published for it, and named."""

import numpy as np
import pytest
from trit_layouts import golden_matrix, place

from tritgold.formats.misreadings import name_misreading, name_scale_fault
from tritgold.formats.packings import packing

TRUTH = golden_matrix(64, 256)
SMALL = golden_matrix(32, 256)


def read_as(true: str, read: str) -> np.ndarray:
    """TRUTH packed in one layout and read in another, trit by trit from the places of trit_layouts."""
    data = np.zeros(TRUTH.size // 4, np.uint8)
    found = np.empty_like(TRUTH)
    for row, column in np.ndindex(TRUTH.shape):
        byte, shift = place(true, row, column, TRUTH.shape)
        data[byte] |= int(TRUTH[row, column] + 1) << shift
    for row, column in np.ndindex(TRUTH.shape):
        byte, shift = place(read, row, column, TRUTH.shape)
        found[row, column] = int(data[byte] >> shift & 3) - 1
    return found


@pytest.mark.parametrize(
    ("true", "read", "name"),
    [
        ("hf", "hf i::4", "rows unpacked as i::4, where the bytes hold quarters of the matrix"),
        ("hf i::4", "hf", "rows in quarters of the matrix, where the twin has every fourth row"),
        ("i2_s", "i2_s 64/16", "I2_S blocks of 128 read as 64: columns permuted inside every 128"),
        ("i2_s 64/16", "i2_s", "I2_S blocks of 64 read as 128: columns permuted inside every 128"),
        ("i2_s", "i2_s sequential", "I2_S read sequentially, least significant pair first"),
        ("i2_s sequential", "i2_s", "sequential bytes, least significant pair first, read as I2_S"),
    ],
)
def test_a_misreading_made_from_index_formulas_is_named(true: str, read: str, name: str) -> None:
    found = read_as(true, read)
    assert not np.array_equal(found, TRUTH)
    assert name_misreading(found, TRUTH) == name
    assert name_misreading(TRUTH, TRUTH) is None


def payload(name: str, **options: int | str) -> bytes:
    return packing(name, **options).pack(SMALL)[: SMALL.size // 4]


@pytest.mark.parametrize(
    ("true", "read", "name"),
    [
        (("i2_s", {}), ("sequential", {"order": "msb"}), "I2_S read sequentially, most significant pair first"),
        (("sequential", {"order": "msb"}), ("sglbitnt", {}),
         "sequential bytes, most significant pair first, read as I2_S"),
        (("i2_s_4rows", {}), ("sglbitnt", {}), "I2_S of four rows a byte read as blocks of 128"),
    ],
)  # fmt: skip
def test_a_misreading_made_by_two_packings_is_named(
    true: tuple[str, dict[str, str]], read: tuple[str, dict[str, str]], name: str
) -> None:
    codes = packing(read[0], **read[1]).codes(payload(true[0], **true[1]), SMALL.shape)
    assert name_misreading(codes.view(np.int8) - np.int8(1), SMALL) == name


def test_blocks_of_128_read_as_four_rows_a_byte() -> None:
    codes = packing("i2_s_4rows").codes(payload("i2_s") + bytes(32), SMALL.shape)
    found = codes.view(np.int8) - np.int8(1)
    assert name_misreading(found, SMALL) == "I2_S blocks of 128 read as four rows a byte"


def consecutive(order: str, i: int) -> tuple[int, int]:
    """(byte, shift) of a weight of TQ2_0 to whoever takes four neighbours to share a byte; 66 bytes for 256."""
    return 66 * (i // 256) + i % 256 // 4, 2 * (i % 4) if order == "lsb" else 6 - 2 * (i % 4)


@pytest.mark.parametrize(
    ("order", "there", "back"),
    [
        ("lsb",
         "TQ2_0 read as consecutive, least significant pair first, or I2_S, most significant pair first",
         "consecutive bytes, least significant pair first, read as TQ2_0, or most significant pair first, as I2_S"),
        ("msb",
         "TQ2_0 read as consecutive, most significant pair first, or I2_S, least significant pair first",
         "consecutive bytes, most significant pair first, read as TQ2_0, or least significant pair first, as I2_S"),
    ],
)  # fmt: skip
def test_tq2_0_read_as_consecutive_and_the_other_way_round(order: str, there: str, back: str) -> None:
    """B04. Trit by trit: the planes of TQ2_0 lie the other way round than those of I2_S, and the name says so."""
    places = {True: lambda i: place("tq2_0", 0, i, (1, TRUTH.size)), False: lambda i: consecutive(order, i)}
    for written, name in ((True, there), (False, back)):
        data = np.zeros(TRUTH.size // 256 * 66, np.uint8)
        for i, trit in enumerate(TRUTH.flat):
            byte, shift = places[written](i)
            data[byte] |= int(trit + 1) << shift
        found = np.empty_like(TRUTH)
        for i in range(TRUTH.size):
            byte, shift = places[not written](i)
            found.flat[i] = int(data[byte] >> shift & 3) - 1
        assert name_misreading(found, TRUTH, label="tq2_0") == name
        assert "I2_S" in str(name_misreading(found, TRUTH, label="i2_s block=128"))
        assert "TQ2_0" not in str(name_misreading(found, TRUTH, label="i2_s block=128"))


def test_the_numbers_of_b04() -> None:
    """+1 at 0, 32 and 255, -1 at 1 and 128: bytes 5a, 54, 54 (32) and 95 (63). Pairs from the low end of each byte:
    +1 +1 0 0, then -1 0 0 0, again -1 0 0 0, and 0 0 0 +1."""
    block = np.zeros((1, 256), np.int8)
    block[0, [0, 1, 32, 128, 255]] = 1, -1, 1, -1, 1
    data = packing("tq2_0").pack(block)
    found = packing("sequential", order="lsb").unpack(data[:64], (1, 256)).trits
    assert {i: int(found[0, i]) for i in np.flatnonzero(found[0])} == {0: 1, 1: 1, 4: -1, 128: -1, 255: 1}
    name = name_misreading(found, block, label="tq2_0")
    assert str(name).startswith("TQ2_0 read as consecutive, least significant pair first")


def test_other_misreadings_have_one_name_whatever_the_packing() -> None:
    found = packing("i2_s", block=64).unpack(packing("i2_s").pack(SMALL), SMALL.shape).trits
    for label in (None, "tq2_0", "hf", "i2_s block=64"):
        name = name_misreading(found, SMALL, label=label)
        assert name == "I2_S blocks of 128 read as 64: columns permuted inside every 128"
        assert name_misreading(-SMALL, SMALL, label=label) == "every sign turned round"


def test_reversed_quarters_signs_and_nothing() -> None:
    found = SMALL[:, [32 * (3 - c % 128 // 32) + c % 32 + 128 * (c // 128) for c in range(256)]]
    assert name_misreading(found, SMALL) == "quarters of every 128 columns reversed, as between I2_S and TQ2_0"
    assert name_misreading(-SMALL, SMALL) == "every sign turned round"
    assert name_misreading(np.roll(SMALL, 1, axis=0), SMALL) is None
    assert name_misreading(np.roll(SMALL, 1, axis=1), SMALL) is None


def test_rows_in_the_order_of_rope_are_named_where_heads_are_known() -> None:
    """Row i of a head's first half goes to 2i, of its second half to 2i + 1: heads of 8 here."""
    interleaved = np.empty_like(SMALL)
    for row in range(32):
        head, within = divmod(row, 8)
        interleaved[8 * head + (2 * within if within < 4 else 2 * (within - 4) + 1)] = SMALL[row]
    here, there = "rows in the order of interleaved RoPE", "rows in halves for RoPE"
    assert str(name_misreading(interleaved, SMALL, head_dim=8)).startswith(here)
    assert str(name_misreading(SMALL, interleaved, head_dim=8)).startswith(there)
    assert name_misreading(interleaved, SMALL) is None


def test_a_shape_without_whole_blocks_is_no_error() -> None:
    odd = golden_matrix(3, 5)
    assert name_misreading(np.roll(odd, 1), odd) is None


def test_the_numbers_of_b01_a_histogram_is_blind_to_the_permutation() -> None:
    """The example block: +1 at 0 and 32, -1 at 1 and 127. A reader of 64s finds the second +1 at 16."""
    block = np.zeros((1, 128), np.int8)
    block[0, [0, 1, 32, 127]] = 1, -1, 1, -1
    data = packing("i2_s").pack(block)
    found = packing("i2_s", block=64).unpack(data, (1, 128)).trits
    assert {i: int(found[0, i]) for i in np.flatnonzero(found[0])} == {0: 1, 1: -1, 16: 1, 127: -1}
    assert name_misreading(found, block) == "I2_S blocks of 128 read as 64: columns permuted inside every 128"


@pytest.mark.parametrize(
    ("order", "places", "name"),
    [
        ("lsb", [2, 3, 7, 124], "I2_S read sequentially, least significant pair first"),
        ("msb", [0, 1, 4, 127], "I2_S read sequentially, most significant pair first"),
    ],
)
def test_the_numbers_of_b02_four_consecutive_weights_a_byte(order: str, places: list[int], name: str) -> None:
    block = np.zeros((1, 128), np.int8)
    block[0, [0, 1, 32, 127]] = 1, -1, 1, -1
    found = packing("sequential", order=order).unpack(packing("i2_s").pack(block)[:32], (1, 128)).trits
    assert np.flatnonzero(found[0]).tolist() == places
    assert name_misreading(found, block) == name


@pytest.mark.parametrize(
    ("found", "truth", "fault"),
    [
        (1.2109375, 1.2109375, None),
        (1.2109375 * (1 + 2**-8), 1.2109375, None),  # rounded to bfloat16
        (1 / 1.2109375, 1.2109375, "inverted: the two scales multiply to 1"),
        (1.0, 1.2109375, "left out: 1 in its place"),
        (1.2109375**2, 1.2109375, "applied twice: the square of the scale"),
        (-1.2109375, 1.2109375, "of the other sign"),
        (2.421875, 1.2109375, "another scale: 2 times as large"),
        (0.5, 0.0, "another scale, where the twin has 0"),
    ],
)
def test_a_scale_fault_is_named(found: float, truth: float, fault: str | None) -> None:
    assert name_scale_fault(found, truth) == fault
