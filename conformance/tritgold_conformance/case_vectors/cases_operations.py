"""L1: the operations of a ternary linear layer and what lies between: quantise, product, norm, gate.

Every x * s of the quantiser's inputs is exact in any sensible formula, so that its codes are the same in all of them.
"""

from collections.abc import Iterator

import numpy as np

from tritgold.config import Activation
from tritgold_conformance.case_vectors.draft import COLUMNS, Draft, Group, around, codes, floats, scale_of, trits
from tritgold_conformance.comparing.compare import Tolerance, Ulp
from tritgold_conformance.comparing.tolerance import activation_tolerance, norm_tolerance
from tritgold_conformance.questions.edge_inputs import gates, ties_zeros_tiny

_OUT = Ulp(4, "acc, s and w meet in two or three float32 operations")
_LINEAR: dict[str, Tolerance] = {"out": _OUT, "scale": Ulp(2, "one division, or the reciprocal of one")}
_QUANTIZED: dict[str, Tolerance] = {"scale": _LINEAR["scale"]}
# Tokens and rows around the tiles of kernels: a rule such as "fails where there are fewer than 8" shows over them.
TOKENS = (1, 2, 3, 4, 5, 8, 15, 16, 17, 18, 24, 31, 32, 33, 64)
OUT = (1, 2, 6, 7, 8, 9)


def groups() -> Iterator[Group]:
    """quantize, bit-linear, linear, rms-norm, ffn-activation, add."""
    for name, about, drafts in (
        ("quantize", "float32 activations -> int8 codes and a scale a token.", _quantized()),
        ("bit-linear", "Codes times trits: the integer sum, then the scales.", _products()),
        ("linear", "A whole BitLinear: quantise, product, scales.", _linears()),
        ("rms-norm", "RMSNorm with gains.", _norms()),
        ("ffn-activation", "The gate's function times up.", _gated()),
        ("add", "The residual: one addition.", _added()),
    ):
        yield Group(f"operations/{name}", "operations", about, [*drafts])


# ---- quantise ----------------------------------------------------------------------------------------------------


def exact_rows(seed: int, shape: tuple[int, int]) -> np.ndarray:
    """float32 [tokens, in] whose largest magnitudes are 127 over powers of two of their own: x * s is exact.

    Fractions of a code are 0, a quarter, and just short of a half: what rounds to 11 bits first rounds wrongly.
    """
    whole = np.clip(codes(seed, shape).astype(np.float32), -125, 125)
    fractions = np.array([0, 0.25, -0.25, 0.5 - 2**-10, -0.5 + 2**-10], np.float32)
    kinds = codes(seed + 1, shape).astype(np.int64) % len(fractions)
    x = whole + fractions[kinds]
    x[:, 0] = 127
    powers = np.array([1, 8, 1 / 32, 4, 0.5], np.float32)[np.arange(shape[0]) % 5]
    return (x * powers[:, None]).astype(np.float32)


def _quantize(name: str, why: str, x: object, seed: int | None = None) -> Draft:
    rows = np.atleast_2d(np.asarray(x, np.float32))
    return Draft(name, "quantize", why, {}, {"x": rows}, seed, _QUANTIZED)


def _quantized() -> Iterator[Draft]:
    for width in COLUMNS:
        seed = 2000 + width
        why = f"rows of {width}, tokens of several sizes, fractions just short of a half"
        yield _quantize(f"random-{width}", why, exact_rows(seed, (3, width)), seed)
    ties = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]
    yield _quantize("ties", "exact ties at s = 1: half to even gives 0 2 2, cutting off 0 1 2, half away 1 2 3", ties)
    yield _quantize("ties-zeros-tiny", "ties; a zero token; one below the floor; one outlier", ties_zeros_tiny(24))
    yield _quantize("tiny", "the floor of 1e-5 acts: codes 13 and -25; without one they are 64 and -127", [1e-6, -2e-6])
    yield _quantize("zero", "a token of zeros: codes 0, s = 1.27e7, nothing divided by 0", np.zeros((2, 5)))
    near = [2e-5, -0.9e-5]
    yield _quantize("near-the-floor", "absmax of 2e-5: a floor that is added to it shrinks s by a third", near)
    yield _quantize("one-outlier", "one channel holds the whole range, the others vanish or are 1",
                    [0.25, -1000, 4, 3.9, -3.9, 8])  # fmt: skip
    yield _quantize("negative", "one sign: the largest magnitude is a negative number", [-1, -2, -4, -127, -63.25])
    yield _quantize("large", "beyond float16: 1e30", np.array([127, -64, 0.25, 63.75], np.float32) * np.float32(2**93))
    mixed = exact_rows(2900, (5, 8)) * np.float32(4) ** np.arange(-2, 3, dtype=np.float32)[:, None]
    yield _quantize("each-token-its-own", "tokens 256 times as large as others keep their own scale", mixed, 2900)
    blocks = exact_rows(2901, (2, 512))
    blocks[:, 256:] *= np.float32(1 / 64)
    yield _quantize("two-blocks-of-256", "the second half of the channels is 64 times smaller: one scale for both",
                    blocks, 2901)  # fmt: skip


# ---- product -----------------------------------------------------------------------------------------------------


def _product(name: str, why: str, c: np.ndarray, t: np.ndarray, number: int, rule: str = "multiply") -> Draft:
    scale = around(number + 7, (len(c),), 40.0)
    inputs = {"codes": c, "scale": scale, "trits": t, "weight_scale": np.asarray(scale_of(number))}
    return Draft(name, "bit_linear", why, {"scale_rule": rule}, inputs, number, _LINEAR, ("acc",))


def _products() -> Iterator[Draft]:
    for width in COLUMNS:
        c, t = codes(3000 + width, (3, width)), trits(3300 + width, (7, width))
        yield _product(f"random-{width}", f"rows of {width}: no kernel's block", c, t, 3000 + width)
    c, t = codes(3600, (3, 33)), trits(3601, (7, 33))
    yield _product("divided", "the same with a scale that divides", c, t, 3600, "divide")
    ones = np.ones((1, 18), np.int8)
    yield _product("tail-of-18", "18 products of 1: 16 where what comes after 16 is dropped", ones, ones, 3602)
    for tokens in TOKENS:
        c, t = codes(3700 + tokens, (tokens, 20)), trits(3800 + tokens, (4, 20))
        yield _product(f"tokens-{tokens}", f"{tokens} tokens", c, t, 3700 + tokens)
    for out in OUT:
        c, t = codes(3900 + out, (2, 20)), trits(3950 + out, (out, 20))
        yield _product(f"out-{out}", f"{out} rows of weights", c, t, 3900 + out)
    yield from _extreme()


def _extreme() -> Iterator[Draft]:
    for width in (128, 259, 4096, 6912):  # the last: of the FFN of 2B models; 32 lanes of int16 hold 4096 of a sign
        c = np.full((2, width), 127, np.int8)
        c[1] = -127
        t = np.ones((2, width), np.int8)
        t[1] = -1
        why = f"all of one sign: sums of {127 * width}, and int16 ends at 32767"
        yield _product(f"same-sign-{width}", why, c, t, 4000 + width)
    c, t = codes(4100, (2, 40)), np.zeros((3, 40), np.int8)
    yield _product("zero-weights", "all trits zero: sums of 0 whatever the codes; an offset left in shows", c, t, 4100)
    c, t = np.zeros((2, 40), np.int8), trits(4101, (3, 40))
    yield _product("zero-token", "all codes zero: 0 in every row", c, t, 4101)
    c, t = np.full((1, 640), 127, np.int8), np.ones((1, 640), np.int8)
    t[0, 1::2], c[0, ::2] = 0, 119
    why = "a sum of 38080, which float16 rounds, and whose alternate terms are 0"
    yield _product("beyond-11-bits", why, c, t, 4102)


# ---- BitLinear ---------------------------------------------------------------------------------------------------


def _linear(name: str, why: str, x: np.ndarray, t: np.ndarray, number: int) -> Draft:
    inputs = {"x": x, "trits": t, "weight_scale": np.asarray(scale_of(number))}
    optional = ("codes", "scale", "acc")
    return Draft(name, "linear", why, {"scale_rule": "multiply"}, inputs, number, _LINEAR, optional)


def _linears() -> Iterator[Draft]:
    for width in COLUMNS:
        x, t = exact_rows(4500 + width, (2, width)), trits(4700 + width, (5, width))
        yield _linear(f"random-{width}", f"rows of {width}", x, t, 4500 + width)
    x = np.array([[127, 0.4, 0.4, 0.4, 0.4], [0, 0, 0, 0, 0]], np.float32)
    zero = np.zeros((2, 5), np.int8)
    why = "weights of 0 give 0; an offset corrected by the sum of x, not of the codes, leaves -1.6"
    yield _linear("offset", why, x, zero, 4900)
    x = exact_rows(4901, (3, 16))
    x[1] = 0
    yield _linear("zero-among-others", "a token of zeros gives 0 in every row, and changes no other token", x,
                  trits(4902, (4, 16)), 4901)  # fmt: skip
    x = exact_rows(4903, (3, 24)) * np.array([[1], [1024], [1 / 1024]], np.float32)
    yield _linear("sizes-of-tokens", "tokens a million times apart", x, trits(4904, (4, 24)), 4903)


# ---- norm, gate, residual ----------------------------------------------------------------------------------------


def _norm(name: str, why: str, x: np.ndarray, seed: int, eps: float = 1e-5) -> Draft:
    inputs = {"x": x, "gain": around(seed + 50, x.shape[1:])}
    return Draft(name, "rms_norm", why, {"eps": eps}, inputs, seed, {"x": norm_tolerance(x.shape[1])})


def _norms() -> Iterator[Draft]:
    for width in COLUMNS:
        x = floats(5000 + width, (3, width), 2.0) + np.float32(0.5)
        yield _norm(f"random-{width}", f"rows of {width} whose mean is not 0", x, 5000 + width)
    outlier = np.zeros((1, 33), np.float32)
    outlier[0, 7] = -3000
    yield _norm("tiny", "tokens of 1e-3: eps is larger than the mean square", floats(5400, (2, 24), 1e-3), 5400)
    yield _norm("eps-1e-6", "the eps of another family", floats(5401, (2, 24), 1e-3), 5401, 1e-6)
    yield _norm("zero", "a token of zeros stays one", np.zeros((2, 7), np.float32), 5402)
    yield _norm("one-outlier", "one channel alone: its square is beyond float16", outlier, 5403)
    yield _norm("large", "squares beyond float16", floats(5404, (2, 24), 3e4), 5404)


def _gate(name: str, why: str, gate: np.ndarray, up: np.ndarray, activation: Activation, seed: int | None) -> Draft:
    allowed = {"x": activation_tolerance(gate, up, activation)}
    return Draft(f"{activation}-{name}", "ffn_activation", why, {"activation": activation},
                 {"gate": gate, "up": up}, seed, allowed)  # fmt: skip


def _gated() -> Iterator[Draft]:
    hand = np.array([[-1, 0.5, 2]], np.float32)
    activations: tuple[Activation, Activation] = ("relu2", "silu")
    for activation in activations:
        right = "0, 0.25, 4" if activation == "relu2" else "-0.2689, 0.3112, 1.7616"
        yield _gate("by-hand", f"gates -1, 0.5, 2 and up 1: {right}", hand, np.ones_like(hand), activation, None)
        telling = gates(24)
        yield _gate("signs-and-300", "both signs, 0, and 300, whose square is beyond float16", telling["gate"],
                    telling["up"], activation, None)  # fmt: skip
        for width in (17, 160):
            gate, up = floats(5500 + width, (3, width), 4.0), floats(5700 + width, (3, width), 2.0)
            yield _gate(f"random-{width}", f"rows of {width}", gate, up, activation, 5500 + width)


def _added() -> Iterator[Draft]:
    a, b = floats(5800, (3, 33), 200.0), floats(5801, (3, 33), 0.01)
    yield Draft("random-33", "add", "a large stream and a small addition", {}, {"a": a, "b": b}, 5800,
                {"x": Ulp(1, "one float32 addition")})  # fmt: skip
