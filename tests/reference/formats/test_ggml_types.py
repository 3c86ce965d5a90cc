"""The table of tensor types, against gguf-py's."""

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from tritgold.formats.ggml_types import (
    BITNET_FORK,
    BLOCKS,
    IK_LLAMA,
    PRISM,
    RETIRED,
    ROW_SCALED,
    tensor_bytes,
    type_names,
    type_number,
)


def test_blocks_equal_those_of_gguf_py() -> None:
    theirs = {int(t): (t.name, *sizes) for t, sizes in GGML_QUANT_SIZES.items()}
    shared = theirs.keys() & BLOCKS.keys()
    assert {n: BLOCKS[n] for n in shared} == {n: theirs[n] for n in shared}
    assert len(shared) > 30
    # 42 is newer than gguf-py 0.19; nothing else of ours may be unknown to it, and nothing of its to us.
    assert BLOCKS.keys() - theirs.keys() <= {42}
    assert theirs.keys() <= BLOCKS.keys()


def test_the_fork_uses_numbers_that_ggml_retired_or_reused() -> None:
    known = {int(t) for t in GGMLQuantizationType}
    assert {36, 37, 38} & known == set()
    assert GGMLQuantizationType(39).name == "MXFP4"
    assert BITNET_FORK.keys() == {36, 37, 38, 39}


@pytest.mark.parametrize(
    ("type_id", "architecture", "names"),
    [
        (36, "bitnet-b1.58", ("I2_S", "IQ4_NL_4_4")),
        (36, "llama", ("I2_S", "IQ4_NL_4_4")),
        (37, "bitnet", ("I8_S", "IQ4_NL_4_8")),
        (38, "", ("TL1", "IQ4_NL_8_8")),
        (39, "bitnet-b1.58", ("TL2", "MXFP4")),
        (39, "bitnet-25", ("TL2", "MXFP4")),
        (39, "bitnet", ("TL2", "MXFP4")),
        (39, "llama", ("MXFP4", "TL2")),
        (39, "", ("MXFP4", "TL2")),
        (35, "bitnet", ("TQ2_0",)),
        (134, "bitnet", ("IQ1_BN",)),
        (135, "llama", ("IQ2_BN",)),
        (335, "bitnet-25", ("IQ2_BN_R4",)),
        (142, "llama", ()),
        (139, "llama", ()),
        (4, "llama", ()),
        (2**32 - 1, "bitnet", ()),
    ],
)
def test_one_number_may_mean_two_types(type_id: int, architecture: str, names: tuple[str, ...]) -> None:
    assert type_names(type_id, architecture) == names


@pytest.mark.parametrize("architecture", ["bitnet-b1.58", "bitnet-25", "bitnet", "llama", ""])
def test_a_type_is_written_under_the_number_that_reads_as_it(architecture: str) -> None:
    """Spelled out for the numbers that forks share; MSB writes Llama3-8B-1.58 as I2_S under architecture llama."""
    shared = {"I2_S": 36, "I8_S": 37, "TL1": 38, "TL2": 39, "MXFP4": 39}
    plain = {"F32": 0, "F16": 1, "BF16": 30, "TQ1_0": 34, "TQ2_0": 35, "Q1_0": 41, "Q2_0": 42}
    unknown = {"IQ4_NL_4_4": None, "U8": None, "": None}
    for name, number in {**shared, **plain, **unknown}.items():
        assert type_number(name, architecture) == number, name


def test_ik_llama_cpp_s_numbers_are_nobody_else_s() -> None:
    """gguf-py has none of them: a number alone says which type it is."""
    theirs = {int(t) for t in GGMLQuantizationType}
    numbers = [*ROW_SCALED, *IK_LLAMA]
    assert not theirs & set(numbers)
    assert len(numbers) == len({*numbers, *PRISM, *BLOCKS, *BITNET_FORK}) - len({*PRISM, *BLOCKS, *BITNET_FORK})
    assert {name: type_number(name, "llama") for name, *_ in ROW_SCALED.values()} == {
        "IQ1_BN": 134,
        "IQ2_BN": 135,
        "IQ2_BN_R4": 335,
    }


def test_the_retired_types_were_one_layout_of_4_5_bits() -> None:
    assert {n: sizes for n, (_, *sizes) in RETIRED.items()} == {n: [32, 18] for n in (36, 37, 38)}


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("I2_S", (2560, 2560), 1638432),
        ("I2_S", (3, 3), None),
        ("TL1", (256, 512), 32768 + 32),
        ("I8_S", (5, 3), 47),
        # formats.md 10.1: regions A + B + C with the packer's padding, then the trailer
        ("TL2", (128, 448), 13312 + 32),
        ("TL2", (128, 384), 11616 + 32),  # 11,605 rounded up to 32
        ("F32", (2, 3, 4), 96),
        ("Q2_0", (10, 128), 360),
        ("TQ1_0", (1, 255), None),
        # a row: 2 + 13 n / 64 bytes, or 4 + 16 n / 64
        ("IQ1_BN", (3, 192), 3 * (2 + 39)),
        ("IQ2_BN", (3, 192), 3 * (4 + 48)),
        ("IQ2_BN_R4", (4, 64), 80),
        ("IQ2_BN", (3, 96), None),
    ],
)
def test_sizes(name: str, shape: tuple[int, ...], size: int | None) -> None:
    assert tensor_bytes(name, shape) == size


def test_q2_0_has_two_block_sizes() -> None:
    """Bug case B15: 31,457,280 weights differ by 491,520 bytes."""
    shape = (6144, 5120)
    upstream, prism = tensor_bytes("Q2_0", shape), tensor_bytes("Q2_0", shape, 128)
    assert (upstream, prism) == (6144 * 80 * 18, 6144 * 40 * 34)
    assert 6144 * 80 * 18 - 6144 * 40 * 34 == 491_520
    assert (tensor_bytes("Q2_0", (2, 64)), tensor_bytes("Q2_0", (2, 64), 128)) == (36, None)
