"""ggml tensor types by number: name, weights a block, bytes a block; and the numbers that two forks share.

Facts from ggml.h and gguf-py's constants (numbers up to 41), from the bitnet.cpp fork (36-39) and from PrismML's
(42). A test compares the table with gguf-py.
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
# lies behind the payload: 32 bytes a tensor.
BITNET_FORK = {36: "I2_S", 37: "I8_S", 38: "TL1", 39: "TL2"}

# A container lists these by name; a checkpoint with one of them is refused by number.
FORK_TYPES_WITHOUT_READER = ("I8_S", "TL1", "TL2")

# Architectures whose files come from the bitnet.cpp fork: there 39 is TL2, everywhere else MXFP4.
FORK_ARCHITECTURES = ("bitnet-b1.58", "bitnet-25", "bitnet")


def type_name(type_id: int, architecture: str) -> str | None:
    """The name of a tensor type in a file of this architecture, or None for a number nobody defined.

    >>> type_name(36, "bitnet-b1.58"), type_name(39, "llama"), type_name(39, "bitnet-b1.58"), type_name(200, "llama")
    ('I2_S', 'MXFP4', 'TL2', None)
    """
    if type_id in BITNET_FORK and (type_id not in BLOCKS or architecture in FORK_ARCHITECTURES):
        return BITNET_FORK[type_id]
    return BLOCKS[type_id][0] if type_id in BLOCKS else None


def tensor_bytes(name: str, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor of the type called ``name``; None where its rows do not fill whole blocks.

    shape: rows first. I2_S and TL1 are n / 4 + 32 bytes, I8_S n + 32; TL2 has a formula of its own.

    >>> tensor_bytes("I2_S", (2560, 2560)), tensor_bytes("TQ2_0", (4, 256)), tensor_bytes("TQ2_0", (4, 200))
    (1638432, 264, None)
    """
    count = prod(shape)
    if name in ("I2_S", "TL1"):
        return count // 4 + 32 if count % 4 == 0 else None
    if name == "I8_S":
        return count + 32
    if name == "TL2":
        rows, columns = prod(shape[:-1]), shape[-1]
        payload = (columns - 256) * rows // 3 * 5 // 8 + 256 * rows // 2 * 4 // 8
        return -(-payload // 32) * 32 + 32
    block, size = next((b, s) for n, b, s in BLOCKS.values() if n == name)
    return count // block * size if shape[-1] % block == 0 else None
