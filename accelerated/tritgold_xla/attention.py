"""Causal grouped-query attention on a preallocated cache: softmax weights, then the mix of the values.

Tokens are taken one at a time, in a loop whose length is known only at run time. So every token's dot products have
the same shape in every chunk, and a prompt, its chunks and its single steps give the same bits; and padding is not
computed at all. The price is that a long chunk makes no use of matrix products here.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Float32, Int32

from tritgold_xla.flags import PRECISION
from tritgold_xla.ieee import divide, multiply, rounded, tree_sum


def softmax_weights(
    q: Float32[jax.Array, "tokens heads head_dim"],
    keys: Float32[jax.Array, "kv_heads capacity head_dim"],
    start: Int32[jax.Array, ""],
    count: Int32[jax.Array, ""],
) -> Float32[jax.Array, "heads tokens capacity"]:
    """softmax(q k / sqrt(head_dim)) over the positions at or before each token; exactly 0 behind it.

    start: position of the first token. count: how many tokens are no padding; the rows of the others are 0. Query
    head h reads key head h // (heads / kv_heads).
    """
    tokens, heads, head_dim = q.shape
    kv_heads, capacity, _ = keys.shape
    positions = lax.iota(jnp.int32, capacity)

    def weights(token: jax.Array) -> jax.Array:
        query = lax.dynamic_index_in_dim(q, token, axis=0, keepdims=False).reshape(kv_heads, -1, head_dim)
        scores = lax.dot_general(query, keys, (((2,), (2,)), ((0,), (0,))), precision=PRECISION)
        scores = multiply(scores, jnp.float32(1 / math.sqrt(head_dim)))
        scores = jnp.where(positions <= start + token, scores, -jnp.inf)
        powers = rounded(jnp.exp(scores - scores.max(axis=2, keepdims=True)))
        return divide(powers, tree_sum(powers)[:, :, None]).reshape(heads, capacity)

    return _each_token(weights, count, jnp.zeros((heads, tokens, capacity), jnp.float32), axis=1)


def mix_values(
    weights: Float32[jax.Array, "heads tokens capacity"],
    values: Float32[jax.Array, "kv_heads capacity head_dim"],
    count: Int32[jax.Array, ""],
) -> Float32[jax.Array, "tokens width"]:
    """Weighted sum of the values, heads side by side: width = heads * head_dim. Values nobody sees must be finite."""
    heads, tokens, capacity = weights.shape
    kv_heads, _, head_dim = values.shape

    def mix(token: jax.Array) -> jax.Array:
        row = lax.dynamic_index_in_dim(weights, token, axis=1, keepdims=False).reshape(kv_heads, -1, capacity)
        mixed = lax.dot_general(row, values, (((2,), (1,)), ((0,), (0,))), precision=PRECISION)
        return mixed.reshape(heads * head_dim)

    return _each_token(mix, count, jnp.zeros((tokens, heads * head_dim), jnp.float32), axis=0)


def _each_token(
    function: Callable[[jax.Array], jax.Array], count: jax.Array, results: jax.Array, axis: int
) -> jax.Array:
    """``results`` with function(token) written at index ``token`` of ``axis``, for tokens 0 to count - 1."""
    return lax.fori_loop(
        jnp.int32(0),
        count,
        lambda token, filled: lax.dynamic_update_index_in_dim(filled, function(token), token, axis),
        results,
    )
