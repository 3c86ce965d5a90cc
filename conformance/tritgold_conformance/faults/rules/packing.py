"""Faults of reading packed bytes: one layout taken for another, made by packing trits and reading the bytes wrongly."""

from typing import Any

import numpy as np

from tritgold.formats.packings import packing
from tritgold.formats.packings.tq1_0 import BYTES as TQ1_BYTES
from tritgold.formats.packings.tq1_0 import PARTS, to_digits
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.weights import LayerWeights
from tritgold_conformance.faults.fault import FILES, OPERATIONS, Mutant
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import Shape, linears, with_layers
from tritgold_conformance.faults.packing import FORMATS, reads, reads_as, reads_codes, values

LSB, MSB, FOUR_ROWS = packing("sequential"), packing("sequential", order="msb"), packing("i2_s_4rows")
OTHER_TL1, OTHER_TL2 = packing("tl1", BM=64, BK=128, bm=32), packing("tl2", BM=64, BK=96)


@known_fault(OPERATIONS, reads_as("i2_s", FORMATS["i2_s-64"]))
def i2s_128_as_64() -> None:
    """I2_S blocks of 128 weights in 32 bytes are read as 64 in 16.

    Looks like: one character repeated; row sums and histograms right
    Seen in: microsoft/BitNet #585, #586"""


@known_fault(OPERATIONS, reads_as("i2_s-64", FORMATS["i2_s"]))
def i2s_64_as_128() -> None:
    """I2_S blocks of 64 weights in 16 bytes are read as 128 in 32.

    Looks like: one character repeated; row sums and histograms right
    Seen in: microsoft/BitNet #470"""


@known_fault(OPERATIONS, reads_as("i2_s", LSB))
def i2s_in_order_lsb() -> None:
    """I2_S is read as four consecutive weights a byte, least significant first.

    Looks like: confident nonsense
    Seen in: chrishayuk/larql #156"""


@known_fault(OPERATIONS, reads_as("i2_s", MSB))
def i2s_in_order_msb() -> None:
    """I2_S is read as four consecutive weights a byte, most significant first.

    Looks like: confident nonsense
    Seen in: chrishayuk/larql #156"""


@known_fault(OPERATIONS, reads_as("i2_s", FOUR_ROWS))
def i2s_four_rows() -> None:
    """I2_S is read as one column of four rows a byte.

    Looks like: babble; row sums wrong too"""


@known_fault(OPERATIONS, reads("hf"))
def hf_rows_interleaved(data: bytes, shape: Shape) -> np.ndarray:
    """HF bytes are unpacked to rows 4r .. 4r + 3, where they hold quarters.

    Looks like: babble; every histogram and every row sum right"""
    codes = FORMATS["hf"].codes(data, shape)
    if shape[0] % 4:
        raise ValueError("no whole bytes")
    return np.ascontiguousarray(codes.reshape(4, -1, shape[1]).swapaxes(0, 1)).reshape(shape)


@known_fault(OPERATIONS, reads("hf"))
def hf_along_columns(data: bytes, shape: Shape) -> np.ndarray:
    """HF bytes are unpacked along the columns.

    Looks like: babble"""
    if shape[1] % 4 or shape[0] % 4:
        raise ValueError("no whole bytes")
    packed = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
    return np.concatenate([(packed >> shift) & 3 for shift in (0, 2, 4, 6)], axis=1)


@known_fault(FILES, reads_as("tq2_0", LSB))
def tq2_in_order_lsb() -> None:
    """TQ2_0 is read as four consecutive weights a byte, least significant first.

    Looks like: plausible and wrong; the same trits as I2_S in order, most significant first
    Seen in: ggml-org/llama.cpp #28769"""


@known_fault(FILES, reads_as("tq2_0", MSB))
def tq2_in_order_msb() -> None:
    """TQ2_0 is read as four consecutive weights a byte, most significant first.

    Looks like: plausible and wrong; the same trits as I2_S in order, least significant first
    Seen in: ggml-org/llama.cpp #28769"""


@known_fault(OPERATIONS, reads("tq1_0"))
def tq1_digits_low_to_high(data: bytes, shape: Shape) -> np.ndarray:
    """The base-3 digits of TQ1_0 are read from the least significant on.

    Looks like: babble; row sums right"""
    blocks = np.frombuffer(data, np.uint8).reshape(-1, TQ1_BYTES)
    parts = [to_digits(blocks[:, at : at + size], n)[:, ::-1].reshape(len(blocks), -1) for _, at, n, size in PARTS]
    return np.concatenate(parts, axis=1).reshape(shape)


@known_fault(OPERATIONS, reads_codes("hf", 0, 2, 1, 3))
def bit_pairs_reversed() -> None:
    """The two bits of a code are read the wrong way round: 0 and +1 change places.

    Looks like: too many +1"""


@known_fault(FILES, reads_codes("i2_s", 0, 1, 2, 3), invisible_on=("trits",))
def code_3_is_plus_2() -> None:
    """Code 3, which is not a trit, is read as +2.

    Looks like: files with dirty padding differ between backends
    Seen in: 1bit-MONSTER/1bit-MONSTER #131"""


@known_fault(FILES, reads_codes("i2_s", 0, 1, 2, 1), invisible_on=("trits",))
def code_3_is_0() -> None:
    """Code 3, which is not a trit, is read as 0.

    Looks like: files with dirty padding differ between backends
    Seen in: 1bit-MONSTER/1bit-MONSTER #131"""


@known_fault(OPERATIONS, reads_codes("hf", 1, 2, 0, 1))
def codes_off_by_one() -> None:
    """Codes 0, 1, 2 are taken for 0, +1, -1.

    Looks like: all sums wrong, nothing overflows
    Seen in: chrishayuk/larql #156"""


@known_fault(OPERATIONS, reads_codes("hf", 2, 1, 0, 3))
def sign_flipped() -> None:
    """Codes 0, 1, 2 are taken for +1, 0, -1.

    Looks like: every sum negated"""


def _joined(s: Mutant, *names: str) -> Mutant | None:
    """HF: the bytes of several linears are laid one after the other and unpacked as one matrix."""

    def joined(layer: LayerWeights) -> dict[str, Any]:
        tensors = [layer.linear(name).ternary() for name in names]
        rows = [t.shape[0] for t in tensors]
        data = b"".join(FORMATS["hf"].pack(t.trits) for t in tensors)
        parts = np.split(values(FORMATS["hf"].codes(data, (sum(rows), tensors[0].shape[1]))), np.cumsum(rows)[:-1])
        split = zip(names, parts, tensors, strict=True)
        return {name: InMemoryTernary(TernaryTensor(part, t.scale)) for name, part, t in split}

    layers = s.checkpoint.weights.layers
    if any(layer.linear(name).shape[0] % 4 for layer in layers for name in names):
        return None
    return with_layers(s, joined)


@known_fault(OPERATIONS)
def qkv_joined_before_unpacking(s: Mutant) -> Mutant | None:
    """The bytes of q, k and v are joined, then unpacked as one matrix.

    Looks like: babble; rows of q among those of k and v"""
    return _joined(s, "q", "k", "v")


@known_fault(OPERATIONS)
def gate_up_joined_before_unpacking(s: Mutant) -> Mutant | None:
    """The bytes of gate and up are joined, then unpacked as one.

    Looks like: attention right, FFN babble"""
    return _joined(s, "gate", "up")


@known_fault(OPERATIONS, reads_as("tl1", OTHER_TL1))
def tl1_tiles_of_another_model() -> None:
    """TL1 is read with the tile sizes of another model.

    Looks like: garbage
    Seen in: microsoft/BitNet #550, #268"""


@known_fault(OPERATIONS, reads_as("tl2", OTHER_TL2))
def tl2_tiles_of_another_model() -> None:
    """TL2 is read with the tile sizes of another model.

    Looks like: garbage
    Seen in: microsoft/BitNet #550, #268"""


@known_fault(OPERATIONS)
def square_weights_transposed(s: Mutant) -> Mutant | None:
    """Square matrices are used transposed.

    Looks like: o, and q where it is square, are wrong; the shapes of the others show such a mistake"""
    return linears(s, lambda _, t: TernaryTensor(t.trits.T.copy(), t.scale), lambda shape: shape[0] == shape[1])
