"""The table of tensor types, against gguf-py's."""

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from tritgold.formats.ggml_types import BITNET_FORK, BLOCKS, tensor_bytes, type_name


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
    ("type_id", "architecture", "name"),
    [
        (36, "bitnet-b1.58", "I2_S"),
        (36, "llama", "I2_S"),
        (39, "bitnet-b1.58", "TL2"),
        (39, "bitnet-25", "TL2"),
        (39, "bitnet", "TL2"),
        (39, "llama", "MXFP4"),
        (39, "", "MXFP4"),
        (142, "llama", None),
        (4, "llama", None),
        (2**32 - 1, "bitnet", None),
    ],
)
def test_one_number_may_mean_two_types(type_id: int, architecture: str, name: str | None) -> None:
    assert type_name(type_id, architecture) == name


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
    ],
)
def test_sizes(name: str, shape: tuple[int, ...], size: int | None) -> None:
    assert tensor_bytes(name, shape) == size
