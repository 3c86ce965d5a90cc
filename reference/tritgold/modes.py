"""ArithmeticMode: the name and version of an arithmetic, so that it is always known how a number was computed.

Two engines that differ only in where they round are both right; they have different modes. A trace and a
report contain the mode's id, and traces of different modes are never compared as if they were equal.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ArithmeticMode:
    """A named arithmetic. ``rounds`` lists, in words, every place where it rounds."""

    name: str
    version: int
    rounds: tuple[str, ...]

    @property
    def id(self) -> str:
        """``name/version``: what traces and reports store."""
        return f"{self.name}/{self.version}"


def comparable(first: str, second: str) -> bool:
    """Whether two mode ids mean the same arithmetic up to float rounding, so that any other difference is a bug.

    An id is ``<arithmetic>[.<how its floats are rounded>]/<version of the arithmetic>``: codes and accumulators of
    ``golden.float32/1`` equal those of ``golden/1`` unless float noise changes a rounding tie.

    >>> comparable("golden/1", "golden.float32/1"), comparable("golden/1", "golden/2"), comparable("golden/1", "")
    (True, False, False)
    """

    def arithmetic(mode: str) -> tuple[str, str]:
        name, _, version = mode.partition("/")
        return name.partition(".")[0], version

    return arithmetic(first) == arithmetic(second)


GOLDEN = ArithmeticMode(
    name="golden",
    version=1,
    rounds=(
        "activations: s = f32(127 / max(absmax, 1e-5)), code = half-even(f32(x * s)), clamped to [-128, 127]",
        "linear: int32 accumulator, exact; output = f32(f32(acc) / s) then f32(. * w) or f32(. / w)",
        "norm, RoPE, softmax, attention mix, FFN activation, head: float64 from float32, rounded once to float32",
        "residual: one float32 addition",
    ),
)

# The name has no dot: the part after a dot says how floats are rounded (``comparable``).
LLAMA_CPP_Q8_K = ArithmeticMode(
    name="llama-cpp-q8_k",
    version=1,
    rounds=(
        "activations: i = f32(-127 / m), m the signed element of largest magnitude among 256 channels",
        "code = half-even(f32(x * i)), scale = f32(1 / i); both 0 where i is not finite",
        "linear: int32 accumulator of each block, exact; term = f32(f32(acc) * f32(scale * w)), w as in the TQ file",
        "output = float32 sum of the terms, first block first",
        "everything else: as golden; llama.cpp itself computes it in float32",
    ),
)
