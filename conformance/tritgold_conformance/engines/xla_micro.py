"""Single operations of the XLA engine, for the benchmark's rows that need no model.

They are the engine's own functions, compiled with its options; if it has none, the plain form in ``jax.numpy``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold.config import ModelConfig
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.kv_scheme import kv_scheme
from tritgold_xla.layers import attention as layer
from tritgold_xla.runtime.flags import PRECISION, cpu_device, jit
from tritgold_xla.ternary_matmul import planes
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS
from tritgold_xla.ternary_matmul.planes import Planes

wait: Callable[[Any], Any] = jax.block_until_ready  # returns its argument; typed here, because JAX leaves it untyped


class Form(NamedTuple):
    """One formulation. run: does the work once, waits for it and returns the result. moved: bytes that it must read."""

    name: str
    why: str
    run: Callable[[], Any]
    moved: int | None = None


def _program(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """A compiled function. The arguments are passed at each call: the compiler would compute with constants."""
    compiled, on_device = jit(function), jax.tree.map(jnp.asarray, arguments)
    return lambda: wait(compiled(*on_device))


def unpack(trits: np.ndarray) -> list[Form]:
    """Bit planes -> int8 [in, out]; what fills the last words is cut off and the matrix turned over, untimed."""
    packed = jit(planes.pack)(trits)[0]
    run = _program(planes.unpack, packed)
    return [Form("bit planes", "eight shifts of each byte", lambda: Unpacked(run(), trits.shape[1]), packed.nbytes)]


class Unpacked(NamedTuple):
    """Trits [columns, out], of which ``in_`` columns are the matrix's; ``__array__`` is [out, in]."""

    columns: jax.Array
    in_: int

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.columns)[: self.in_].T


def fused(trits: list[np.ndarray], codes: np.ndarray) -> list[Form]:
    """Several matrices with the same input, one by one and joined, by the engine's products for that many tokens."""
    weights = [Planes(*jit(planes.pack)(t)) for t in trits]
    whole, found = Planes(*jit(planes.pack)(np.concatenate(trits))), []
    for name in ("select", "int8-dot") if len(codes) == 1 else ("int8-dot",):
        way = FORMULATIONS[name]

        def apart(codes: jax.Array, weights: Any, way: Any = way) -> jax.Array:
            prepared = way.prepare(codes)
            return jnp.concatenate([way.multiply(prepared, weight) for weight in weights], axis=1)

        found.append(Form(f"one by one, {name}", "codes prepared once", _program(apart, codes, weights)))
        found.append(Form(f"joined, {name}", "one matrix", _program(way.accumulate, codes, whole)))
    return found


def sparse_linear(trits: np.ndarray, dense: np.ndarray, kept: np.ndarray) -> list[Form]:
    """dense, kept: codes int8 [tokens, in], kept with zeros. Products of all columns, or of the non-zero ones."""
    weights = jnp.asarray(trits)
    columns = jnp.asarray(np.ascontiguousarray(trits.T))
    count = int((kept != 0).sum(axis=1).max())

    def product(codes: jax.Array, weights: jax.Array) -> jax.Array:
        return lax.dot_general(codes, weights, (((1,), (1,)), ((), ())), preferred_element_type=jnp.int32)

    def gathered(codes: jax.Array, columns: jax.Array) -> jax.Array:
        def one(row: jax.Array) -> jax.Array:
            at = jnp.nonzero(row, size=count, fill_value=0)[0]
            own = jnp.where(jnp.arange(count) < (row != 0).sum(), row[at], 0)
            return (own[:, None].astype(jnp.int32) * columns[at].astype(jnp.int32)).sum(axis=0)

        return lax.map(one, codes)

    return [
        Form("dense", "int8 product", _program(product, dense, weights)),
        Form("top-k, masked", "the same with zeros", _program(product, kept, weights)),
        Form("top-k, gathered", f"{count} columns a token", _program(gathered, kept, columns)),
    ]


def _cache(x: np.ndarray, scheme: str) -> Any:
    """An empty cache of one layer for rows [positions, kv_heads, head_dim]."""
    positions, kv_heads, head_dim = x.shape
    config = ModelConfig(
        vocab=8, hidden=kv_heads * head_dim, inter=8, layers=1, heads=kv_heads, kv_heads=kv_heads, head_dim=head_dim,
        context=positions, norm_eps=1e-5, rope_theta=1e4, activation="relu2", sub_norms=True, tied_head=True,
        scale_rule="multiply",
    )  # fmt: skip
    return kv_cache.new_cache(config, positions, cpu_device(), scheme)


def kv_update(x: np.ndarray, scheme: str, positions: int) -> list[Form]:
    """Store x float32 [tokens, kv_heads, head_dim] as keys and values, in place; the result reads the keys."""
    tokens, start = jnp.asarray(x), 100
    held = [_cache(np.zeros((positions, *x.shape[1:]), np.float32), scheme)]

    def put(cache: Any, x: jax.Array) -> Any:
        return kv_cache.append(cache, scheme, jnp.int32(0), jnp.int32(start), x, x)

    def read(cache: Any) -> jax.Array:
        heads = x.shape[1]
        keys, _ = kv_cache.read(cache, scheme, jnp.int32(0), jnp.int32(start), len(x), jnp.int32(1 << 20), heads)
        return keys.transpose(1, 0, 2)

    stored, shown = jit(put, donate=("cache",)), jit(read)

    def run() -> Any:
        held[0] = wait(stored(held[0], tokens))
        return lambda: shown(held[0])

    return [Form("append", "keys and values, in place", run)]


def kv_gather(x: np.ndarray, scheme: str, at: np.ndarray) -> list[Form]:
    """Read the rows at positions ``at``, in any order, converted to float32."""
    kind = kv_scheme(scheme)
    stored, scales = jax.tree.map(jnp.asarray, jit(kind.store)(x))

    def gathered(stored: jax.Array, scales: jax.Array, at: jax.Array) -> jax.Array:
        return kind.load(stored[at], scales[at])

    moved = len(at) * x.shape[1] * kind.row_bytes(x.shape[2])
    return [Form("gather", "one program", _program(gathered, stored, scales, at), moved)]


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scheme: str, moved: int) -> list[Form]:
    """Attention of one token over a cache, as in the engine's step."""
    context, kv_heads, _ = k.shape
    zero, length = jnp.int32(0), jnp.int32(context)
    cache = jit(lambda cache, k, v: kv_cache.append(cache, scheme, zero, zero, k, v))(_cache(k, scheme), k, v)

    def attend(q: jax.Array, cache: Any) -> jax.Array:
        return layer.attend(q, cache, scheme, zero, length, length[None], kv_heads)

    return [Form("attend", "in parts, with the cache's own numbers", _program(attend, q, cache), moved)]


def sparse_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, kept: int) -> list[Form]:
    """Queries that see all positions: with every weight, or with the ``kept`` largest of each, masked or gathered."""
    keys, values = k.transpose(1, 0, 2), v.transpose(1, 0, 2)
    queries, heads, _ = q.shape
    kv_heads, positions, _ = keys.shape
    ends = jnp.full(queries, positions)

    def dense(q: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
        return layer.mix_values(layer.softmax_weights(q, keys, ends), values)

    def largest(q: jax.Array, keys: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        weights = layer.softmax_weights(q, keys, ends)
        top, at = lax.top_k(weights, kept)
        return weights, top / top.sum(axis=2, keepdims=True), at

    def masked(q: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
        weights, top, at = largest(q, keys)
        rows, columns = jnp.arange(heads)[:, None, None], jnp.arange(queries)[None, :, None]
        return layer.mix_values(jnp.zeros_like(weights).at[rows, columns, at].set(top), values)

    def gathered(q: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
        _, top, at = largest(q, keys)
        grouped = at.reshape(kv_heads, -1, kept)
        own = jax.vmap(lambda head, where: head[where])(values, grouped)  # [kv_heads, rows, kept, head_dim]
        mixed = jnp.einsum("hrk,hrkd->hrd", top.reshape(grouped.shape), own, precision=PRECISION)
        return mixed.reshape(heads, queries, -1).transpose(1, 0, 2).reshape(queries, -1)

    named = {"dense": dense, "top-k, masked": masked, "top-k, gathered": gathered}
    why = f"{kept} of {positions}"
    return [Form(name, why if "top" in name else "all", _program(f, q, keys, values)) for name, f in named.items()]
