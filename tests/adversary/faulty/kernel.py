"""Integer products that are wrong: accumulators, tails, lanes, codes."""

from collections.abc import Callable

import numpy as np
from base_engine import Engine, F
from full_engine import FullEngine
from registry import faulty, made

KIND = "kernel"
Product = Callable[[Engine, str, np.ndarray], np.ndarray]


def _wrap16(a: np.ndarray) -> np.ndarray:
    return a.astype(np.int64).astype(np.int16).astype(F)


def _saturating_pairs(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    """maddubs: u8 x i8 pairs, sums held to int16, with weights as codes 0..2 and one subtraction at the end."""
    w = self.trits[name] + 1
    acc = np.zeros((len(codes), len(w)), F)
    for at in range(0, codes.shape[1], 512):
        part = codes[:, at : at + 512] @ w[:, at : at + 512].T
        acc += np.clip(part, -32768, 32767)
    return acc - codes.sum(1, keepdims=True)


def _lanes(steps: int) -> Product:
    """Sums of so many products in 16-bit lanes of 32, as codes 0..2."""

    def product(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
        w = self.trits[name] + 1
        acc = np.zeros((len(codes), len(w)), F)
        for start in range(0, codes.shape[1], 32 * steps):
            for lane in range(32):
                at = slice(start + lane, min(start + 32 * steps, codes.shape[1]), 32)
                acc += _wrap16(codes[:, at] @ w[:, at].T)
        return acc - codes.sum(1, keepdims=True)

    return product


def _int16(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    return _wrap16(Engine.accumulate(self, name, codes))


def _saturated16(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    return np.clip(Engine.accumulate(self, name, codes), -32768, 32767)


def _half(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return Engine.accumulate(self, name, codes).astype(np.float16).astype(F)


def _no_tail(width: int) -> Product:
    def product(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
        k = codes.shape[1] // width * width
        return codes[:, :k] @ self.trits[name][:, :k].T

    return product


def _last_row_of_weights(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    acc = Engine.accumulate(self, name, codes)
    acc[:, -1] = acc[:, -2]
    return acc


def _no_offset(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    return codes @ (self.trits[name] + 1).T


def _offset_once(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    return codes @ (self.trits[name] + 1).T - codes[:1].sum(1, keepdims=True)


def _minus_128(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    return Engine.accumulate(self, name, np.where(codes == -127, 127, codes))


def _skip_zero_blocks(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    """A block of 64 whose first code is zero is taken for empty."""
    kept = codes.reshape(len(codes), -1, 64).copy()
    kept[kept[:, :, 0] == 0] = 0
    return Engine.accumulate(self, name, kept.reshape(codes.shape))


def _row_tile(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    acc = Engine.accumulate(self, name, codes)
    if len(self.trits[name]) % 256:
        acc[:, -1] += 1
    return acc


def _narrow_matrix(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    acc = Engine.accumulate(self, name, codes)
    return np.roll(acc, 1, 1) if len(self.trits[name]) < codes.shape[1] else acc


def _seventh_bit(self: Engine, name: str, codes: np.ndarray) -> np.ndarray:
    return Engine.accumulate(self, name, np.where(np.abs(codes) > 120, np.sign(codes) * 120, codes))


CASES: list[tuple[str, str, Product]] = [
    ("HalfAccumulator", "the accumulator is float16", _half),
    ("NoTailOf512", "inputs beyond a multiple of 512 are left out", _no_tail(512)),
    ("LastRowRepeated", "the last row of each matrix repeats the one before", _last_row_of_weights),
    ("NoOffset", "codes 0..2 are used as weights, without the offset", _no_offset),
    ("OffsetOfFirstRow", "the offset of the first token is taken from all", _offset_once),
    ("MinusBecomesPlus", "the code -127 is read as 127", _minus_128),
    ("ZeroBlocksSkipped", "blocks of 64 that begin with a zero code are skipped", _skip_zero_blocks),
    ("RowTileOf256", "matrices whose rows are no multiple of 256 have one too much in the last", _row_tile),
    ("NarrowMatrix", "matrices with fewer rows than columns are rotated by a row", _narrow_matrix),
    ("CodesTo120", "codes beyond 120 are held to 120", _seventh_bit),
]
for _name, _what, _product in CASES:
    faulty(KIND, _what)(made(_name, Engine, accumulate=_product))
faulty(
    KIND,
    "32 lanes of int16, 128 steps each: wraps for codes of 129 and more alike in a lane",
    unseen="a lane sums at most 24 products here (K = 768), at most 6,096: it cannot wrap before K = 4,128, and the "
    "judge must run the engine on the matrices of the model that it is given",
)(made("LanesOf128Steps", Engine, accumulate=_lanes(128)))
NATURAL = (
    "sums of a text's activations stay far below 2^15 in these models (K is 256 and 768), and an engine without "
    "operations cannot be given extremes"
)
for _name, _what, _product in [
    ("Int16Accumulator", "the accumulator is int16 and wraps, logits alone", _int16),
    ("Saturated16", "the accumulator is held to int16, logits alone", _saturated16),
    ("SaturatingPairs", "sums of 512 products are held to int16, logits alone", _saturating_pairs),
]:
    faulty(KIND, _what, unseen=NATURAL)(made(_name, Engine, accumulate=_product))
for _name, _what, _product in [
    ("Saturated16Shown", "the accumulator is held to int16, with operations", _saturated16),
    ("Int16Shown", "the accumulator is int16 and wraps, with operations", _int16),
    ("PairsShown", "sums of 512 products are held to int16, with operations", _saturating_pairs),
]:
    faulty(KIND, _what)(made(_name, FullEngine, accumulate=_product))


@faulty(KIND, "all matrices are read with the sign turned")
class SignTurned(Engine):
    def unpack_weight(self, name: str, packed: np.ndarray) -> np.ndarray:
        return -Engine.unpack_weight(self, name, packed)


@faulty(KIND, "four consecutive rows of a byte instead of a quarter of the matrix apart")
class RowsConsecutive(Engine):
    def unpack_weight(self, name: str, packed: np.ndarray) -> np.ndarray:
        w = Engine.unpack_weight(self, name, packed)
        return w.reshape(4, -1, w.shape[1]).swapaxes(0, 1).reshape(w.shape)


@faulty(KIND, "columns of every 128 permuted as by I2_S read in blocks of 64")
class ColumnsAs64(Engine):
    def unpack_weight(self, name: str, packed: np.ndarray) -> np.ndarray:
        w = Engine.unpack_weight(self, name, packed)
        tiles = w.reshape(len(w), -1, 4, 2, 16).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(tiles.reshape(w.shape))
