"""Faults of the integer sum: what an int8 x trit dot product becomes on its way through a kernel."""

import numpy as np

from tritgold_conformance.faults.fault import EDGE_INPUTS, OPERATIONS, TRACE, Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import replaces, with_arithmetic

INT16 = 1 << 15
ODD_SIZES = Witness("operations", "odd")


def exact(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """The true sums, int64 [tokens, out]; float64 where a fault did not quantise the codes."""
    total: np.ndarray = codes.astype(np.float64) @ trits.astype(np.float64).T
    return total if codes.dtype.kind == "f" else total.astype(np.int64)


def scale_floats(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: str) -> np.ndarray:
    """The reference's ``apply_scales`` for sums that are no longer integers."""
    rescaled = acc.astype(np.float32) / scale[:, None]
    return rescaled * weight_scale if rule == "multiply" else rescaled / weight_scale


def _sums(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.int64).sum(axis=1, keepdims=True)


def _as_int32(total: np.ndarray) -> np.ndarray:
    return total.astype(np.float32) if total.dtype.kind == "f" else total.astype(np.int32)


def _sums_of(columns: np.ndarray | slice, codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    return _as_int32(exact(codes[:, columns], trits[:, columns]))


@known_fault(EDGE_INPUTS, replaces("accumulate"), invisible_on=("small-sums",))
def int16_wraps(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Sums are kept in int16 and wrap.

    Looks like: right on random rows; same-sign rows come out with another sign, 4,096 of 127 as -4,096
    Seen in: microsoft/BitNet #411, #459"""
    return _as_int32((exact(codes, trits).astype(np.int64) + INT16) % (2 * INT16) - INT16)


@known_fault(EDGE_INPUTS, replaces("accumulate"), invisible_on=("small-sums",))
def int16_saturates(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Sums are kept in int16 by saturating additions of 32 products.

    Looks like: right on random rows; rows of one sign stop at 32,767
    Seen in: microsoft/BitNet #411"""
    total = np.zeros((len(codes), len(trits)), np.int64)
    for first in range(0, codes.shape[1], 32):
        part = slice(first, first + 32)
        total = np.clip(total + exact(codes[:, part], trits[:, part]).astype(np.int64), -INT16, INT16 - 1)
    return total.astype(np.int32)


@known_fault(OPERATIONS, replaces("accumulate"))
def offset_missing(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Products with w + 1, and the sum of the codes is never subtracted.

    Looks like: all channels of a token shifted by one integer
    Seen in: ikawrakow/ik_llama.cpp #168"""
    return _as_int32(exact(codes, trits) + _sums(codes))


@known_fault(OPERATIONS, replaces("accumulate"))
def offset_doubled(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """The sum of the codes is subtracted twice.

    Looks like: all channels of a token shifted by one integer, the other way"""
    return _as_int32(exact(codes, trits) - _sums(codes))


@known_fault(TRACE)
def offset_from_float_sum(s: Mutant) -> Mutant:
    """The correction is the sum of the unquantised activations.

    Looks like: accumulators that are not integers, off by less than the rounding of a row
    Seen in: ikawrakow/ik_llama.cpp #168

    That is, the sum of x * s, where the products take that of the codes."""
    newest = [np.zeros((0, 1))]  # of the activations quantised last; a linear is given codes and nothing else

    def quantize(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        codes, scale = s.arithmetic.quantize(x)
        newest[0] = (x.astype(np.float64) * scale.reshape(len(x), -1)[:, :1]).sum(axis=1, keepdims=True)
        return codes, scale

    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        total, sums = exact(codes, trits), _sums(codes)
        # Rounding moves a sum by half a channel at most: beyond that they are sums of something else.
        theirs = len(newest[0]) == len(codes) and bool((np.abs(newest[0] - sums) <= codes.shape[1] / 2).all())
        return (total + sums - newest[0] if theirs else total).astype(np.float32)

    return with_arithmetic(s, quantize=quantize, accumulate=accumulate, apply_scales=scale_floats)


@known_fault(OPERATIONS, replaces("accumulate"))
def linears_contribute_nothing(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Ternary layers give zeros: a kernel that never runs, or weights that are never read.

    Looks like: the text echoes its input, and the engine is faster than its memory"""
    return np.zeros((len(codes), len(trits)), np.int32)


@known_fault(OPERATIONS, replaces("accumulate"))
def every_8th_skipped(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Every eighth product is left out.

    Looks like: a dot-product test with a loose tolerance still passes"""
    return _sums_of(np.arange(codes.shape[1]) % 8 != 7, codes, trits)


@known_fault(OPERATIONS, replaces("accumulate"))
def every_32nd_skipped(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Every 32nd product is left out: a lane of a vector loop.

    Looks like: small errors everywhere, cosine above 0.98"""
    return _sums_of(np.arange(codes.shape[1]) % 32 != 31, codes, trits)


@known_fault(ODD_SIZES, replaces("accumulate"), invisible_on=("whole-blocks",))
def tail_of_16_dropped(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """What is left of a row after its last whole block of 16 is not summed.

    Looks like: right for the usual sizes, wrong for odd ones
    Seen in: 1bit-MONSTER/1bit-MONSTER #301"""
    return _sums_of(slice(codes.shape[1] // 16 * 16), codes, trits)


@known_fault(ODD_SIZES, replaces("accumulate"), invisible_on=("whole-blocks",))
def tail_of_32_dropped(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """What is left of a row after its last whole block of 32 is not summed.

    Looks like: right for the usual sizes, wrong for odd ones"""
    return _sums_of(slice(codes.shape[1] // 32 * 32), codes, trits)


@known_fault(ODD_SIZES, replaces("accumulate"), invisible_on=("whole-blocks",))
def tail_of_128_dropped(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """What is left of a row after its last whole block of 128 is not summed.

    Looks like: right for the usual sizes, wrong for odd ones"""
    return _sums_of(slice(codes.shape[1] // 128 * 128), codes, trits)


@known_fault(ODD_SIZES, replaces("accumulate"), invisible_on=("whole-blocks",))
def padding_is_minus_one(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Zero bytes that pad a row to 128 are read as -1, over the next token.

    Looks like: right for rows that are whole blocks; a token depends on the one after it"""
    rest = -codes.shape[1] % 128
    after = np.resize(np.append(codes.reshape(-1), 0), codes.size + codes.shape[1] + rest)
    starts = (np.arange(len(codes)) + 1) * codes.shape[1]
    read = np.array([after[start : start + rest] for start in starts]).reshape(len(codes), rest)
    return _as_int32(exact(codes, trits) - _sums(read))


@known_fault(OPERATIONS)
def float16_sums(s: Mutant) -> Mutant:
    """Sums are rounded to float16.

    Looks like: sums beyond 2,048 lose their last bits, those beyond 65,504 are infinite"""

    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return exact(codes, trits).astype(np.float16).astype(np.float32)

    return with_arithmetic(s, accumulate=accumulate, apply_scales=scale_floats)


@known_fault(OPERATIONS, replaces("accumulate"), invisible_on=("33-tokens",))
def rows_from_32_on_zero(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """The kernel for batches computes 32 tokens, the others stay zero.

    Looks like: short prompts are right, long ones are not; those of 33 tokens or more fail
    Seen in: microsoft/BitBLAS #157, #47"""
    total = exact(codes, trits)
    total[32:] = 0
    return _as_int32(total)


@known_fault(Witness("operations", tokens=39), replaces("accumulate"))
def tail_rows_zero(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Tokens after the last whole group of four are not computed.

    Looks like: right for batches of 1 to 4 and for multiples of four
    Seen in: microsoft/BitBLAS #157"""
    total = exact(codes, trits)
    if len(codes) > 4:
        total[len(codes) // 4 * 4 :] = 0
    return _as_int32(total)
