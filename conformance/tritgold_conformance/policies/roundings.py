"""The roundings of policies, as functions of float32 arrays, and random noise in place of an engine's own roundings."""

from collections.abc import Callable

import numpy as np

from tritgold.counter_random import random_bits
from tritgold.kv_cache.base import Side, Sizes
from tritgold.kv_cache.kv_scheme import kv_scheme
from tritgold.kv_cache.token_rows import TokenScheme
from tritgold.rounding import bf16_to_f32, f32_to_bf16

Rounding = Callable[[np.ndarray], np.ndarray]
_LARGEST_F16 = 65504.0


def bf16(x: np.ndarray) -> np.ndarray:
    """Nearest bfloat16, half to even, as float32 of the same shape; infinity and NaN stay."""
    return bf16_to_f32(f32_to_bf16(x))


def f16(x: np.ndarray) -> np.ndarray:
    """Nearest float16, as float32. Values too large for float16 stay, because a right engine does not round them."""
    with np.errstate(over="ignore"):
        return np.where(np.abs(x) > _LARGEST_F16, x, x.astype(np.float16).astype(np.float32))


def stored(scheme: str, side: Side) -> Rounding:
    """Keys or values [tokens, kv_heads, head_dim] as a KV cache of this scheme returns them.

    Raises ConfigError if the scheme does not support the heads' size, NonFiniteError for values that overflow it.
    """
    codec = kv_scheme(scheme)
    assert isinstance(codec, TokenScheme)

    def rounded(x: np.ndarray) -> np.ndarray:
        shape = Sizes(1, x.shape[1], x.shape[2])
        codec.row_bytes(shape, side)  # raises for heads that are not whole blocks
        return codec.load(codec.store(np.ascontiguousarray(x), 0, side), shape, 0, side)

    return rounded


class Noise:
    """Random numbers from -1 to 1, a new array at each call; the same for the same run, on every machine."""

    def __init__(self, run: int) -> None:
        self._run, self._calls = run, 0

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        """float64 of this shape."""
        self._calls += 1
        index = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64) + np.uint64(self._calls << 36)
        bits = random_bits(1_000_003 + self._run, index) >> np.uint64(40)
        return (bits.astype(np.float64) * 2.0**-23 - 1.0).reshape(shape)
