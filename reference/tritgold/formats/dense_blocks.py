"""ggml's block types of embedding, head and layers that are not ternary, dequantised by the published formulas.

Each function takes uint8 [blocks, bytes of a block] and gives float32 [blocks, weights of a block], computed in
float32 in the order of ggml-quants.c's dequantize_row functions. An infinite or NaN scale gives infinities or NaN.
"""

from collections.abc import Callable

import numpy as np

from tritgold.formats.ggml_types import block_weights, tensor_bytes

Dequantise = Callable[[np.ndarray], np.ndarray]
_IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)


def _half(block: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte ``at`` of each block, float32 [blocks, 1]."""
    return np.ascontiguousarray(block[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """The low nibbles of all bytes, then the high nibbles: [blocks, 2 x bytes]."""
    return np.concatenate((raw & 15, raw >> 4), axis=1)


def _fifth_bits(raw: np.ndarray) -> np.ndarray:
    """Bit j of a little-endian uint32, as 0 or 16 for weight j: uint8 [blocks, 32]."""
    return np.unpackbits(raw, axis=1, bitorder="little") << 4


def _fields(raw: np.ndarray, chunk: int, bits: int) -> np.ndarray:
    """For each chunk of bytes: the lowest field of every byte, then the next field, ...: [blocks, bytes x 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    fields = raw.reshape(len(raw), -1, 1, chunk) >> shifts & np.uint8((1 << bits) - 1)
    return fields.reshape(len(raw), -1)


def _groups(values: np.ndarray, count: int) -> np.ndarray:
    return values.astype(np.float32).reshape(len(values), count, -1)


def _q8_0(block: np.ndarray) -> np.ndarray:
    """32 weights in 34 bytes: w = d * q.

    ::

        bytes 0, 1    d, float16
        byte 2 + i    q of weight i, int8
    """
    return _half(block, 0) * block[:, 2:].view(np.int8).astype(np.float32)


def _q4_0(block: np.ndarray) -> np.ndarray:
    """32 weights in 18 bytes: w = d * (q - 8).

    ::

        bytes 0, 1    d, float16
        byte 2 + i    low nibble q of weight i, high nibble that of weight 16 + i
    """
    return _half(block, 0) * (_nibbles(block[:, 2:]).astype(np.float32) - 8)


def _q4_1(block: np.ndarray) -> np.ndarray:
    """32 weights in 20 bytes: w = d * q + m.

    ::

        bytes 0, 1    d, float16
        bytes 2, 3    m, float16
        byte 4 + i    low nibble q of weight i, high nibble that of weight 16 + i
    """
    return _half(block, 0) * _nibbles(block[:, 4:]).astype(np.float32) + _half(block, 2)


def _q5_0(block: np.ndarray) -> np.ndarray:
    """32 weights in 22 bytes: w = d * (q - 16), with the fifth bit of each q elsewhere.

    ::

        bytes 0, 1    d, float16
        bytes 2 .. 5  uint32, bit i is bit 4 of weight i
        byte 6 + i    low nibble bits 0 to 3 of weight i, high nibble those of weight 16 + i
    """
    codes = _nibbles(block[:, 6:]) | _fifth_bits(block[:, 2:6])
    return _half(block, 0) * (codes.astype(np.float32) - 16)


def _q5_1(block: np.ndarray) -> np.ndarray:
    """32 weights in 24 bytes: w = d * q + m.

    ::

        bytes 0, 1    d, float16
        bytes 2, 3    m, float16
        bytes 4 .. 7  uint32, bit i is bit 4 of weight i
        byte 8 + i    low nibble bits 0 to 3 of weight i, high nibble those of weight 16 + i
    """
    codes = _nibbles(block[:, 8:]) | _fifth_bits(block[:, 4:8])
    return _half(block, 0) * codes.astype(np.float32) + _half(block, 2)


def _iq4_nl(block: np.ndarray) -> np.ndarray:
    """32 weights in 18 bytes: w = d * table[q], a table of 16 uneven steps from -127 to 113.

    ::

        bytes 0, 1    d, float16
        byte 2 + i    low nibble q of weight i, high nibble that of weight 16 + i
    """
    return _half(block, 0) * _IQ4_NL[_nibbles(block[:, 2:])]


def _q2_k(block: np.ndarray) -> np.ndarray:
    """256 weights in 84 bytes, in 16 groups of 16: w = d * scale * q - dmin * offset.

    ::

        byte g < 16     low nibble scale of group g, high nibble its offset
        byte 16 + 32 h + m, m < 32: bits 1 0, 3 2, 5 4, 7 6
                        q of weights 128 h + m, 32 + 128 h + m, 64 + 128 h + m, 96 + 128 h + m
        bytes 80, 81    d, float16
        bytes 82, 83    dmin, float16
    """
    scales, codes = block[:, :16], _groups(_fields(block[:, 16:80], 32, 2), 16)
    factor = _half(block, 80) * (scales & 15).astype(np.float32)
    offset = _half(block, 82) * (scales >> 4).astype(np.float32)
    return (factor[..., None] * codes - offset[..., None]).reshape(len(block), -1)


def _q3_k(block: np.ndarray) -> np.ndarray:
    """256 weights in 110 bytes, in 16 groups of 16: w = d * (scale - 32) * (q - 4), q of three bits.

    ::

        byte m < 32, bit b  bit 2 of weight 32 b + m
        byte 32 + 32 h + m: bits 1 0, 3 2, 5 4, 7 6
                            bits 1 0 of weights 128 h + m, 32 + 128 h + m, 64 + 128 h + m, 96 + 128 h + m
        bytes 96 .. 107     16 scales of six bits: low four bits in the nibbles of the first eight bytes,
                            high two in the last four, scale 4 p + m in bits 2 p + 1, 2 p of byte 104 + m
        bytes 108, 109      d, float16
    """
    low, high = _nibbles(block[:, 96:104]), _fields(block[:, 104:108], 4, 2)
    scales = (low | high << 4).astype(np.float32) - 32
    third = _fields(block[:, :32], 32, 1)  # a bit that is not set subtracts 4
    codes = _fields(block[:, 32:96], 32, 2).astype(np.float32) - 4 * (third == 0)
    factor = _half(block, 108) * scales
    return (factor[..., None] * _groups(codes, 16)).reshape(len(block), -1)


def _scales_of_six_bits(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and eight offsets of 6 bits from 12 bytes, as Q4_K and Q5_K pack them: two float32 [blocks, 8]."""
    first, second, third = raw[:, :4], raw[:, 4:8], raw[:, 8:12]
    scales = np.concatenate((first & 63, third & 15 | first >> 6 << 4), axis=1)
    offsets = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), axis=1)
    return scales.astype(np.float32), offsets.astype(np.float32)


def _scaled_and_shifted(block: np.ndarray, codes: np.ndarray) -> np.ndarray:
    scales, offsets = _scales_of_six_bits(block[:, 4:16])
    factor, offset = _half(block, 0) * scales, _half(block, 2) * offsets
    return (factor[..., None] * _groups(codes, 8) - offset[..., None]).reshape(len(block), -1)


def _q4_k(block: np.ndarray) -> np.ndarray:
    """256 weights in 144 bytes, in 8 groups of 32: w = d * scale * q - dmin * offset.

    ::

        bytes 0, 1          d, float16
        bytes 2, 3          dmin, float16
        bytes 4 .. 15       eight scales and eight offsets of six bits: those of groups 0 to 3 in the low bits of
                            the first and second four bytes; of groups 4 to 7 the low four bits in the nibbles of
                            the last four, the high two in bits 7 6 of the first eight
        byte 16 + 32 g + m  low nibble q of weight 64 g + m, high nibble that of weight 64 g + 32 + m
    """
    return _scaled_and_shifted(block, _fields(block[:, 16:], 32, 4))


def _q5_k(block: np.ndarray) -> np.ndarray:
    """256 weights in 176 bytes: as Q4_K, with a fifth bit.

    ::

        bytes 0 .. 15        d, dmin, scales and offsets as in Q4_K
        byte 16 + m, bit g   bit 4 of weight 32 g + m
        byte 48 + 32 g + m   low nibble bits 0 to 3 of weight 64 g + m, high nibble those of weight 64 g + 32 + m
    """
    return _scaled_and_shifted(block, _fields(block[:, 48:], 32, 4) | _fields(block[:, 16:48], 32, 1) << 4)


def _q6_k(block: np.ndarray) -> np.ndarray:
    """256 weights in 210 bytes, in 16 groups of 16: w = d * scale * (q - 32), q of six bits.

    ::

        byte 64 h + m, m < 64    low nibble bits 0 to 3 of weight 128 h + m, high nibble those of weight 128 h + 64 + m
        byte 128 + 32 h + m: bits 1 0, 3 2, 5 4, 7 6
                                 bits 5 4 of weights 128 h + m, 32 + 128 h + m, 64 + 128 h + m, 96 + 128 h + m
        byte 192 + g             scale of group g, int8
        bytes 208, 209           d, float16
    """
    codes = _fields(block[:, :128], 64, 4) | _fields(block[:, 128:192], 32, 2) << 4
    factor = _half(block, 208) * block[:, 192:208].view(np.int8).astype(np.float32)
    return (factor[..., None] * (_groups(codes, 16) - 32)).reshape(len(block), -1)


DENSE_BLOCKS: dict[str, Dequantise] = {
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
}


def dequantised(name: str, data: np.ndarray) -> np.ndarray:
    """Whole blocks of type ``name``, uint8 of any shape, as float32 [weights] in order."""
    size = tensor_bytes(name, (1, block_weights(name)))
    assert size is not None
    with np.errstate(invalid="ignore", over="ignore"):  # infinite and NaN scales are not an error here
        return DENSE_BLOCKS[name](np.ascontiguousarray(data).reshape(-1, size)).reshape(-1)
