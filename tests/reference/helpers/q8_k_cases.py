"""Blocks that tell one Q8_K from another, and Q8_K written a second time, scalar by scalar as ggml's C has it."""

import numpy as np

BLOCK = 256
NAMES = (
    "noise",
    "ties",
    "ties, largest negative",
    "+m before -m",
    "-m before +m",
    "zeros",
    "tiny",
    "subnormal",
    "huge",
)


def integers(count: int, seed: int) -> np.ndarray:
    """int64 below 2**24, the same on every machine: a linear congruential sequence."""
    state, drawn = seed, np.empty(count, np.int64)
    for index in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        drawn[index] = state >> 7
    return drawn


def activations() -> np.ndarray:
    """float32 [9, 256], a row for each of NAMES; exact sums and products of integers and powers of two, no decimals."""
    noise = (integers(BLOCK, 1) - 2**23).astype(np.float32) * np.float32(2**-22)
    ties = (integers(BLOCK, 2) % 253 - 126).astype(np.float32) / 2  # |x| <= 63, every second one a half
    ties[100] = 127
    pair = np.zeros(BLOCK, np.float32)
    pair[[10, 20, 30]] = 3, -3, 1.5
    tiny = noise * np.float32(2**-126)  # the largest is about 2**-125, of which -127 / m is infinite
    return np.stack([
        noise, ties, -ties, pair, -pair, 0 * noise, tiny, noise * np.float32(2**-148), noise * np.float32(2**100)
    ])  # fmt: skip


def trits(rows: int, columns: int) -> np.ndarray:
    """int8 [rows, columns]."""
    return (integers(rows * columns, 3) % 3 - 1).astype(np.int8).reshape(rows, columns)


def scalar_q8_k(block: np.ndarray) -> tuple[list[int], np.float32]:
    """Codes and scale of 256 floats, one at a time, rounded by adding 1.5 * 2**23 as ggml's nearest_int does."""
    largest = magnitude = np.float32(0)
    for value in block:
        if abs(value) > magnitude:
            largest, magnitude = value, abs(value)
    if magnitude == 0:
        return [0] * BLOCK, np.float32(0)
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = np.float32(-127) / largest
        shifted = [np.float32(inverse * value) + np.float32(12582912) for value in block]
    codes = [(int(number.view(np.int32)) & 0x7FFFFF) - 0x400000 for number in shifted]
    return [int(np.int32(min(127, code)).astype(np.int8)) for code in codes], np.float32(1) / inverse


def scalar_dot(codes: np.ndarray, row: np.ndarray, scales: np.ndarray, weight_scale: np.float32) -> np.float32:
    """One output of the linear layer: codes and trits [in], scales [blocks]."""
    total = np.float32(0)
    for block, scale in enumerate(scales):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        exact = sum(int(c) * int(t) for c, t in zip(codes[part], row[part], strict=True))
        total = total + np.float32(exact) * (scale * weight_scale)
    return total
