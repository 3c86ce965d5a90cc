"""Faults of the integer sum: what an int8 x trit dot product becomes on its way through a kernel."""

from collections.abc import Callable

import numpy as np

from tritgold_conformance.faults.fault import Fault, Subject, Witness, arithmetic, arithmetic_of

_INT16 = 1 << 15


def exact(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """The true sums, int64 [tokens, out]; codes may be floats where a fault did not quantise them."""
    if codes.dtype.kind == "f":
        return codes.astype(np.float64) @ trits.astype(np.float64).T
    return (codes.astype(np.float64) @ trits.astype(np.float64).T).astype(np.int64)


def _sums(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.int64).sum(axis=1, keepdims=True)


def _as_int32(total: np.ndarray) -> np.ndarray:
    return total.astype(np.float32) if total.dtype.kind == "f" else total.astype(np.int32)


def scale_floats(acc: np.ndarray, scale: np.ndarray, weight_scale: np.ndarray, rule: str) -> np.ndarray:
    """The reference's ``apply_scales`` for sums that are no integers any more."""
    rescaled = acc.astype(np.float32) / scale[:, None]
    return rescaled * weight_scale if rule == "multiply" else rescaled / weight_scale


def wrapped(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Modulo 2**16."""
    return _as_int32((exact(codes, trits).astype(np.int64) + _INT16) % (2 * _INT16) - _INT16)


def saturated(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Held within int16 by a saturating add after each group of 32 products."""
    total = np.zeros((len(codes), len(trits)), np.int64)
    for first in range(0, codes.shape[1], 32):
        part = slice(first, first + 32)
        total = np.clip(total + exact(codes[:, part], trits[:, part]).astype(np.int64), -_INT16, _INT16 - 1)
    return total.astype(np.int32)


def _offset(times: int) -> Callable[..., np.ndarray]:
    """Products with w + 1 less ``times`` the sum of the codes; once is right."""

    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        return _as_int32(exact(codes, trits) + (1 - times) * _sums(codes))

    return accumulate


def _float_offset(s: Subject) -> dict[str, object]:
    """The correction takes the sum of x * s where the products take that of the codes."""
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

    return {"quantize": quantize, "accumulate": accumulate, "apply_scales": scale_floats}


def _skipping(n: int) -> Callable[..., np.ndarray]:
    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        kept = np.arange(codes.shape[1]) % n != n - 1
        return _as_int32(exact(codes[:, kept], trits[:, kept]))

    return accumulate


def _without_tail(block: int) -> Callable[..., np.ndarray]:
    def accumulate(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
        whole = codes.shape[1] // block * block
        return _as_int32(exact(codes[:, :whole], trits[:, :whole]))

    return accumulate


def padding_of_minus_one(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Rows are padded with zero bytes, which are -1, and the activations behind the token are the next token's."""
    rest = -codes.shape[1] % 128
    behind = np.resize(np.append(codes.reshape(-1), 0), codes.size + codes.shape[1] + rest)
    starts = (np.arange(len(codes)) + 1) * codes.shape[1]
    read = np.array([behind[start : start + rest] for start in starts]).reshape(len(codes), rest)
    return _as_int32(exact(codes, trits) - _sums(read))


def half_sums(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    """Rounded to float16, 11 bits; beyond 65,504 infinite."""
    with np.errstate(over="ignore"):
        return exact(codes, trits).astype(np.float16).astype(np.float32)


def _from_row_32_on(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    total = exact(codes, trits)
    total[32:] = 0
    return _as_int32(total)


def _tail_rows(codes: np.ndarray, trits: np.ndarray) -> np.ndarray:
    total = exact(codes, trits)
    if len(codes) > 4:
        total[len(codes) // 4 * 4 :] = 0
    return _as_int32(total)


_OPERATIONS, _VECTORS = Witness("operations"), Witness("vectors")
_ODD = Witness("operations", "odd")

FAULTS = (
    Fault(
        "int16-wraps", "accumulator", "Sums are kept in int16 and wrap.",
        "right on random rows; same-sign rows come out with another sign, 4,096 of 127 as -4,096",
        arithmetic(accumulate=wrapped), _VECTORS, ("microsoft/BitNet #411, #459",), ("small-sums",),
    ),
    Fault(
        "int16-saturates", "accumulator", "Sums are kept in int16 by saturating additions of 32 products.",
        "right on random rows; rows of one sign stop at 32,767",
        arithmetic(accumulate=saturated), _VECTORS, ("microsoft/BitNet #411",), ("small-sums",),
    ),
    Fault(
        "offset-missing", "accumulator", "Products with w + 1, and the sum of the codes is never subtracted.",
        "all channels of a token shifted by one integer",
        arithmetic(accumulate=_offset(0)), _OPERATIONS, ("ikawrakow/ik_llama.cpp #168",),
    ),
    Fault(
        "offset-doubled", "accumulator", "The sum of the codes is subtracted twice.",
        "all channels of a token shifted by one integer, the other way",
        arithmetic(accumulate=_offset(2)), _OPERATIONS,
    ),
    Fault(
        "offset-from-float-sum", "accumulator", "The correction is the sum of the unquantised activations.",
        "accumulators that are no integers, off by less than the rounding of a row",
        arithmetic_of(_float_offset), Witness("trace"), ("ikawrakow/ik_llama.cpp #168",),
    ),
    Fault(
        "every-8th-skipped", "accumulator", "Every eighth product is left out.",
        "a dot-product test with a loose tolerance still passes",
        arithmetic(accumulate=_skipping(8)), _OPERATIONS,
    ),
    Fault(
        "every-32nd-skipped", "accumulator", "Every 32nd product is left out: a lane of a vector loop.",
        "small errors everywhere, cosine above 0.98",
        arithmetic(accumulate=_skipping(32)), _OPERATIONS,
    ),
    *(
        Fault(
            f"tail-of-{block}-dropped", "accumulator",
            f"What is left of a row behind its last whole block of {block} is not summed.",
            "right for the usual sizes, wrong for odd ones",
            arithmetic(accumulate=_without_tail(block)), _ODD,
            ("1bit-MONSTER/1bit-MONSTER #301",) if block == 16 else (), ("whole-blocks",),
        )
        for block in (16, 32, 128)
    ),
    Fault(
        "padding-is-minus-one", "accumulator", "Zero bytes that pad a row to 128 are read as -1, over the next token.",
        "right for rows that are whole blocks; a token depends on the one behind it",
        arithmetic(accumulate=padding_of_minus_one), _ODD, (), ("whole-blocks",),
    ),
    Fault(
        "float16-sums", "accumulator", "Sums are rounded to float16.",
        "sums beyond 2,048 lose their last bits, those beyond 65,504 are infinite",
        arithmetic(accumulate=half_sums, apply_scales=scale_floats), _OPERATIONS,
    ),
    Fault(
        "rows-from-32-on-zero", "accumulator", "The kernel for batches computes 32 tokens, the others stay zero.",
        "short prompts are right, long ones are not; fails iff there are 33 tokens or more",
        arithmetic(accumulate=_from_row_32_on), _OPERATIONS, ("microsoft/BitBLAS #157, #47",), ("33-tokens",),
    ),
    Fault(
        "tail-rows-zero", "accumulator", "Tokens behind the last whole group of four are not computed.",
        "right for batches of 1 to 4 and for multiples of four",
        arithmetic(accumulate=_tail_rows), Witness("operations", tokens=39), ("microsoft/BitBLAS #157",),
    ),
)  # fmt: skip
