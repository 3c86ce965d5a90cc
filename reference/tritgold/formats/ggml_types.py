"""ggml tensor types by number: name, weights per block, bytes per block; and the numbers that two forks share.

Facts from ggml.h and gguf-py's constants (numbers up to 41), from the bitnet.cpp fork (36-39), from PrismML's
(42) and from ik_llama.cpp (134, 135, 335). A test compares the table with gguf-py.
"""

from math import prod

BLOCKS: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}

# The bitnet.cpp fork's types, by the number they share with types that ggml has retired or reused. Their scale
# lies after the payload: 32 bytes a tensor.
BITNET_FORK = {36: "I2_S", 37: "I8_S", 38: "TL1", 39: "TL2"}

# ggml's types with the same numbers until it retired them: name, weights per block, bytes per block.
RETIRED = {36: ("IQ4_NL_4_4", 32, 18), 37: ("IQ4_NL_4_8", 32, 18), 38: ("IQ4_NL_8_8", 32, 18)}

# Architectures whose files come from the bitnet.cpp fork: there 39 is TL2 rather than MXFP4.
FORK_ARCHITECTURES = ("bitnet-b1.58", "bitnet-25", "bitnet")

# Type 42 is Q2_0 with 64 weights a block in ggml, and had 128 in PrismML's files before ggml took the number.
Q2_0, Q2_0_BYTES = 42, {64: 18, 128: 34}

# ik_llama.cpp's ternary types: name, weights a block, bytes a block, and bytes of the scale before each row's blocks.
ROW_SCALED: dict[int, tuple[str, int, int, int]] = {
    134: ("IQ1_BN", 64, 13, 2),
    135: ("IQ2_BN", 64, 16, 4),
    335: ("IQ2_BN_R4", 64, 16, 4),
}

# ik_llama.cpp's other types from 97 on, which no other program uses: their names are for error messages. It has
# retired numbers 142 and 143, which PrismML uses now.
IK_LLAMA = {
    **{97: "Q8_0_X4", 98: "Q8_1_X4", 99: "Q8_2_X4", 133: "Q6_0", 136: "Q8_K64", 137: "IQ2_K", 138: "IQ3_K"},
    **{139: "IQ4_K", 140: "IQ5_K", 141: "IQ6_K", 144: "IQ4_KS", 145: "IQ2_KS", 146: "IQ4_KSS", 147: "Q8_K16"},
    148: "Q8_K32",
    **{149: "Q8_KR8", 150: "Q8_K128", 151: "Q8_KV", 152: "IQ5_KS", 153: "IQ2_KT", 154: "IQ3_KT", 155: "IQ4_KT"},
    **{156: "IQ3_KS", 157: "IQ2_KL", 158: "IQ1_KT", 202: "Q4_0_R8", 206: "Q5_0_R4", 208: "Q8_0_R8", 210: "Q2_K_R4"},
    **{211: "Q3_K_R4", 212: "Q4_K_R4", 213: "Q5_K_R4", 214: "Q6_K_R4", 216: "IQ2_XXS_R4", 217: "IQ2_XS_R4"},
    **{218: "IQ3_XXS_R4", 219: "IQ1_S_R4", 220: "IQ4_NL_R4", 221: "IQ3_S_R4", 222: "IQ2_S_R4", 223: "IQ4_XS_R8"},
    **{229: "IQ1_M_R4", 230: "BF16_R16", 233: "Q6_0_R4", 337: "IQ2_K_R4", 338: "IQ3_K_R4", 339: "IQ4_K_R4"},
    **{340: "IQ5_K_R4", 344: "IQ4_KS_R4", 352: "IQ5_KS_R4", 353: "MXFP4_R8", 397: "Q8_K_R16", 398: "Q8_KV_R8"},
    399: "Q8_K_R8",
}

# PrismML's later types. Their models also need a transform of the activations, which the file may not specify.
PRISM = {142: "PQ2_0", 143: "PTQ1_0"}

_SIZES = {name: (block, size) for name, block, size in [*BLOCKS.values(), *RETIRED.values()]}
_ROWS = {name: (block, size, head) for name, block, size, head in ROW_SCALED.values()}


def type_names(type_id: int, architecture: str) -> tuple[str, ...]:
    """The types that a number may mean in a file of this architecture, most likely first; empty if it is undefined.

    >>> type_names(36, "llama"), type_names(39, "llama"), type_names(39, "bitnet-b1.58"), type_names(200, "llama")
    (('I2_S', 'IQ4_NL_4_4'), ('MXFP4', 'TL2'), ('TL2', 'MXFP4'), ())
    """
    names = [types[type_id][0] for types in (BLOCKS, RETIRED) if type_id in types]
    if type_id in ROW_SCALED:
        return (ROW_SCALED[type_id][0],)
    if type_id in BITNET_FORK:
        first = type_id in RETIRED or architecture in FORK_ARCHITECTURES
        names.insert(0 if first else 1, BITNET_FORK[type_id])
    return tuple(names)


def type_number(name: str, architecture: str) -> int | None:
    """The number of a type in a file of this architecture; None for an undefined or retired name.

    Types that share a number differ in size, so a reader can tell them apart: bitnet.cpp writes I2_S, TL1 and TL2
    into ``llama`` files too.

    >>> type_number("I2_S", "llama"), type_number("TL2", "llama"), type_number("IQ4_NL_4_4", "llama")
    (36, 39, None)
    """
    retired = [name for name, _, _ in RETIRED.values()]
    numbers = (n for n in (*BLOCKS, *BITNET_FORK, *ROW_SCALED) if name in type_names(n, architecture))
    return None if name in retired else next(numbers, None)


def tensor_bytes(name: str, shape: tuple[int, ...], q2_0_block: int = 64) -> int | None:
    """Bytes of a tensor of the type called ``name``; None if its rows are not whole blocks.

    shape: rows first. I2_S and TL1 take n / 4 + 32 bytes for n weights, I8_S n + 32; TL2 has its own formula;
    ROW_SCALED types have a scale before each row. A tensor of no weights has no bytes. q2_0_block: weights in a block
    of Q2_0, 64 or 128.

    >>> tensor_bytes("I2_S", (2560, 2560)), tensor_bytes("TQ2_0", (4, 256)), tensor_bytes("TQ2_0", (4, 200))
    (1638432, 264, None)
    """
    count = prod(shape)
    if count == 0:
        return 0
    if name in ("I2_S", "TL1"):
        return count // 4 + 32 if count % 4 == 0 else None
    if name == "I8_S":
        return count + 32
    if name == "TL2":
        rows, columns = prod(shape[:-1]), shape[-1]
        payload = (columns - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8
        return -(-payload // 32) * 32 + 32
    if name in _ROWS:
        block, size, head = _ROWS[name]
        return count // shape[-1] * (head + shape[-1] // block * size) if shape[-1] % block == 0 else None
    block, size = (q2_0_block, Q2_0_BYTES[q2_0_block]) if name == "Q2_0" else _SIZES[name]
    return count // block * size if shape[-1] % block == 0 else None


def block_weights(name: str, q2_0_block: int = 64) -> int:
    """The number of weights that a row must be a multiple of; for bitnet.cpp's types, that the whole tensor must be."""
    if name == "Q2_0":
        return q2_0_block
    return 4 if name in BITNET_FORK.values() else (_ROWS.get(name) or _SIZES[name])[0]
