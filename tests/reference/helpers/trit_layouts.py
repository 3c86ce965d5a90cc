"""Where each trit of a packed matrix lies, written from the published layouts and from nothing of ours."""

import numpy as np

NAMES = ("hf", "i2_s", "tq2_0")
ONE_BLOCK = {"hf": (8, 3), "i2_s": (1, 128), "tq2_0": (1, 256)}


def place(name: str, row: int, column: int, shape: tuple[int, int]) -> tuple[int, int]:
    """(byte, shift) of a trit, from the published layouts. The last four are readings seen in the field, all wrong."""
    i = row * shape[1] + column
    quarter = -(-shape[0] // 4)
    return {
        "hf": lambda: (row % quarter * shape[1] + column, 2 * (row // quarter)),
        "i2_s": lambda: (32 * (i // 128) + i % 32, 6 - 2 * (i % 128 // 32)),
        "tq2_0": lambda: (66 * (i // 256) + 32 * (i % 256 // 128) + i % 32, 2 * (i % 128 // 32)),
        "hf i::4": lambda: (row // 4 * shape[1] + column, 2 * (row % 4)),
        "i2_s 64/16": lambda: (16 * (i // 64) + i % 16, 6 - 2 * (i % 64 // 16)),
        "i2_s sequential": lambda: (i // 4, 2 * (i % 4)),
        "tq2_0 high pair first": lambda: (66 * (i // 256) + 32 * (i % 256 // 128) + i % 32, 6 - 2 * (i % 128 // 32)),
    }[name]()


def golden_matrix(rows: int, columns: int) -> np.ndarray:
    """The deterministic matrix behind the digests of the original packers: exact integers, no generator."""
    r, c = np.ogrid[:rows, :columns]
    u = (r * 1000003 + 7 * c + 12345) % 2**31
    u = (u * 1103515245 + 12345) % 2**31
    return ((u >> 16) % 3 - 1).astype(np.int8)
