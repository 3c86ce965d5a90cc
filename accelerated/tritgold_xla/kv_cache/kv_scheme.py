"""How the KV cache stores numbers: float32, bfloat16, float16, two 8-bit floats, or int8 with a scale per head.

The definitions are those of the golden ``tritgold.kv_cache``, implemented again: the same rows give the same bytes.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Float32, Shaped

from tritgold.errors import ConfigError
from tritgold_xla.runtime.ieee import divide, multiply, tree_max

_Rows = Float32[jax.Array, "*rows head_dim"]
_Stored = tuple[Shaped[jax.Array, "*rows head_dim"], Float32[jax.Array, "*rows scales"]]


class KvScheme(NamedTuple):
    """dtype: of the stored numbers; scales: float32 scales per row, 0 or 1; store, load: rows to these and back."""

    name: str
    dtype: jnp.dtype
    scales: int
    store: Callable[[jax.Array], tuple[jax.Array, jax.Array]]
    load: Callable[[jax.Array, jax.Array], jax.Array]

    def row_bytes(self, head_dim: int) -> int:
        """Bytes of one head of one token, keys or values."""
        return head_dim * self.dtype.itemsize + 4 * self.scales


def _no_scale(rows: jax.Array) -> jax.Array:
    return jnp.zeros((*rows.shape[:-1], 0), jnp.float32)


def _float(name: str, dtype: jnp.dtype, largest: float | None = None) -> KvScheme:
    """A narrower float, rounded half to even. largest: larger magnitudes, infinity included, are clipped to it."""

    def store(rows: _Rows) -> _Stored:
        bounded = rows if largest is None else jnp.clip(rows, -largest, largest)
        return bounded.astype(dtype), _no_scale(rows)

    return KvScheme(name, jnp.dtype(dtype), 0, store, lambda stored, _: stored.astype(jnp.float32))


def _bits(name: str, dtype: jnp.dtype, largest: float, left: int, factor: float) -> KvScheme:
    """An 8-bit float, stored as uint8 bits: with the float type itself XLA-CPU would convert the whole cache to write
    one row.

    Its exponent and mantissa, shifted left by ``left`` bits, are those of a float16 that is ``factor`` times smaller,
    also for subnormals, which the processor converts exactly. Codes above ``largest`` are NaN; infinities are clipped.
    """
    narrow, top = _float(name, dtype, largest), int(np.array(largest, dtype).view(np.uint8))

    def store(rows: _Rows) -> _Stored:
        stored, scales = narrow.store(rows)
        return lax.bitcast_convert_type(stored, jnp.uint8), scales

    def load(stored: jax.Array, _: jax.Array) -> jax.Array:
        bits = stored.astype(jnp.uint16)
        half = ((bits & 0x80) << 8) | ((bits & 0x7F) << left)
        numbers = lax.bitcast_convert_type(half, jnp.float16).astype(jnp.float32) * jnp.float32(factor)
        return jnp.where((bits & 0x7F) > top, jnp.nan, numbers)

    return KvScheme(name, jnp.dtype(jnp.uint8), 0, store, load)


def _store_int8(rows: _Rows) -> _Stored:
    """s = max|x| / 127, code = half_even(x / s); a head of zeros has scale 0 and codes 0."""
    scale = divide(tree_max(jnp.abs(rows))[..., None], jnp.float32(127))
    codes = lax.round(divide(rows, jnp.where(scale == 0, jnp.inf, scale)), lax.RoundingMethod.TO_NEAREST_EVEN)
    return jnp.clip(codes, -127, 127).astype(jnp.int8), scale


def _load_int8(stored: jax.Array, scale: jax.Array) -> jax.Array:
    return multiply(stored.astype(jnp.float32), scale)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        _float("f32", jnp.dtype(jnp.float32)),
        _float("bf16", jnp.dtype(jnp.bfloat16)),
        _float("f16", jnp.dtype(jnp.float16)),
        _bits("fp8_e4m3", jnp.dtype(jnp.float8_e4m3fn), 448.0, left=7, factor=256.0),
        _bits("fp8_e5m2", jnp.dtype(jnp.float8_e5m2), 57344.0, left=8, factor=1.0),
        KvScheme("int8", jnp.dtype(jnp.int8), 1, _store_int8, _load_int8),
    )
}


def kv_scheme(name: str) -> KvScheme:
    """The scheme of this name; ConfigError ``unknown-kv-scheme`` if there is none."""
    if name not in SCHEMES:
        raise ConfigError(
            "the XLA engine has no such KV-cache scheme",
            kind="unknown-kv-scheme",
            got=repr(name),
            expected=", ".join(SCHEMES),
        )
    return SCHEMES[name]
