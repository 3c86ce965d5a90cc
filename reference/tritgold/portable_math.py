"""float64 sums, exp, log, sin and cos made of single IEEE operations: the same bits on every machine.

Libm, BLAS and SIMD builds of NumPy differ in the last bit of a float64, and one in 10^9 of those differences
remains after rounding to float32, enough to change the hash of a long trace. Here every step is one elementwise
add, multiply, divide or rint, which IEEE 754 defines to the last bit, so golden files are equal by construction.

``rounded_products`` alone uses BLAS, and proves for each result that this changes no bit.

This module is slow and not for engines: the XLA engine has its own arithmetic on purpose.
"""

import math
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

_LN2_HIGH = float.fromhex("0x1.62e42fefa3800p-1")  # ln 2 with 11 zero bits at the end: k * _LN2_HIGH is exact
_LN2_LOW = float.fromhex("0x1.ef35793c76730p-45")  # ln 2 - _LN2_HIGH
_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_LOG_TERMS = tuple(1.0 / (2 * n + 1) for n in range(12))  # |z| <= 0.1716: the next term is below 1e-18
_EXP_TERMS = tuple(1.0 / math.factorial(n) for n in range(14))  # |r| <= ln2/2: the next term is below 1e-17

# pi/2 in three pieces of 33 bits (Cody and Waite): n * piece is exact for n < 2**20, angles up to 1.6 million.
_HALF_PI = (
    float.fromhex("0x1.921fb54400000p+0"),
    float.fromhex("0x1.0b4611a600000p-34"),
    float.fromhex("0x1.3198a2e037073p-69"),
)
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_SIN_TERMS = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(9))
_COS_TERMS = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(10))
MAX_ANGLE = 2.0**20


def pairwise_sum(terms: np.ndarray) -> np.ndarray:
    """Sum over the last axis in one fixed order: neighbouring pairs first, then pairs of their sums, and so on.

    terms: float64 [..., n]. Returns float64 [...]; n = 0 gives 0.

    The order depends only on the index, and appended zeros change no bit. So a softmax over 7 keys is the same whether
    33 more keys are absent or masked, and prefill equals decoding step by step.

    >>> pairwise_sum(np.array([1.0, 2.0, 3.0]))
    np.float64(6.0)
    """
    while (n := terms.shape[-1]) > 1:
        pairs = terms[..., 0 : n - 1 : 2] + terms[..., 1::2]
        terms = np.concatenate([pairs, terms[..., -1:]], axis=-1) if n % 2 else pairs
    total: np.ndarray = terms[..., 0] if terms.shape[-1] else np.zeros(terms.shape[:-1])
    return total + 0.0  # turns -0.0 into 0.0, as an appended zero would


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Inner product over the last axis of float32 arrays that broadcast: float64, fixed order.

    The product of two float32 numbers is exact in float64, so only the sum is rounded.
    """
    return pairwise_sum(np.multiply(a, b, dtype=np.float64))


def rounded_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The ``dot`` of each row of a and each row of b, rounded to float32: the same bits, mostly without its order.

    a: float32 [m, n]; b: float32 [k, n]. Returns float32 [m, k].

    In whatever order n float64 products are summed, with or without fused multiply-adds, the sum is at most
    n * 2**-53 * |a| * |b| from the exact one, and so is ``dot``. Where everything twice as far from the sum of BLAS
    rounds to one float32, ``dot`` rounds to it too; elsewhere, about once in 100,000 sums, ``dot`` is computed. The
    bound is taken twice more for its own roundings. Source: Higham, Accuracy and Stability, section 3.1.

    >>> rounded_products(np.array([[1, 2]], np.float32), np.array([[3, 4], [0, 1]], np.float32))
    array([[11.,  2.]], dtype=float32)
    """
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):  # what is infinite or NaN is not certain, and is summed by dot
        sums = wide_a @ wide_b.T
        lengths = np.sqrt((wide_a * wide_a).sum(axis=1))[:, None] * np.sqrt((wide_b * wide_b).sum(axis=1))
        away = 4 * a.shape[1] * 2.0**-53 * lengths
        rounded = (sums - away).astype(np.float32)
        certain = (rounded == (sums + away).astype(np.float32)) & ((rounded != 0) | (lengths == 0))
    rounded += 0.0  # a row of zeros gives 0.0, as in dot
    for row in np.flatnonzero(~certain.all(axis=1)):
        rounded[row, ~certain[row]] = dot(b[~certain[row]], a[row])
    return rounded


def exp(x: np.ndarray) -> np.ndarray:
    """e**x in float64, within 2 ulp. -inf and anything below -745 give 0, above 709.78 inf; NaN stays NaN.

    >>> exp(np.array([0.0, 1.0, -np.inf]))
    array([1.        , 2.71828183, 0.        ])
    """
    x = np.asarray(x, np.float64)
    inside = np.clip(x, -746.0, 710.0)  # beyond these the result is 0 or inf anyway
    k = np.rint(inside * _LOG2_E)
    r = (inside - k * _LN2_HIGH) - k * _LN2_LOW
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return np.ldexp(_polynomial(r, _EXP_TERMS), np.nan_to_num(k).astype(np.int32))


def log(x: np.ndarray) -> np.ndarray:
    """Natural logarithm in float64, within 2 ulp. 0 gives -inf, inf gives inf; NaN and negative numbers give NaN.

    x = m * 2**e with sqrt(1/2) <= m < sqrt(2), and ln m = 2 atanh(z) with z = (m - 1) / (m + 1).

    >>> log(np.array([1.0, 2.0, 0.25]))
    array([ 0.        ,  0.69314718, -1.38629436])
    """
    x = np.asarray(x, np.float64)
    usual = (x > 0) & (x < np.inf)
    m, e = np.frexp(np.where(usual, x, 1.0))
    low = m < _SQRT_HALF
    m, e = np.where(low, 2.0 * m, m), np.where(low, e - 1, e)
    z = (m - 1.0) / (m + 1.0)
    # The small parts are summed first and then added to the large part with a single rounding.
    logarithm = e * _LN2_HIGH + (e * _LN2_LOW + 2.0 * z * _polynomial(z * z, _LOG_TERMS))
    return np.where(usual, logarithm, np.where(x == 0, -np.inf, np.where(x > 0, np.inf, np.nan)))


def sin_cos(angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sin, cos) of float64 angles in radians, absolute error below 2e-16. ValueError for |angle| > MAX_ANGLE or NaN.

    >>> [float(v) for v in sin_cos(np.array(0.0))]
    [0.0, 1.0]
    """
    angle = np.asarray(angle, np.float64)
    if not (np.abs(angle) <= MAX_ANGLE).all():
        raise ValueError(f"angles must be within +-{MAX_ANGLE:.0f} rad, found {np.abs(angle).max()}")
    n = np.rint(angle * _TWO_OVER_PI)
    r = ((angle - n * _HALF_PI[0]) - n * _HALF_PI[1]) - n * _HALF_PI[2]
    sin_r = r * _polynomial(r * r, _SIN_TERMS)
    cos_r = _polynomial(r * r, _COS_TERMS)
    quadrant = n.astype(np.int64) & 3
    swap = (quadrant & 1).astype(bool)
    sin = np.where(swap, cos_r, sin_r) * np.where(quadrant & 2, -1.0, 1.0)
    cos = np.where(swap, sin_r, cos_r) * np.where((quadrant + 1) & 2, -1.0, 1.0)
    return sin, cos


@lru_cache(maxsize=32)  # every forward pass asks for the same few
def inverse_powers(base: float, exponents: tuple[float, ...]) -> np.ndarray:
    """base ** -e for each e, correctly rounded to float64 (computed with 40 decimal digits), read-only. base > 0."""
    with localcontext() as context:
        context.prec = 40
        log_base = Decimal(base).ln()
        powers = np.array([float((-Decimal(e) * log_base).exp()) for e in exponents])
    powers.flags.writeable = False
    return powers


def _polynomial(x: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    """The polynomial in x by Horner's rule; coefficients: the constant first."""
    result = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = result * x + c
    return result
