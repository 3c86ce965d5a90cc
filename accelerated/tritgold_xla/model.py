"""The forward pass of one chunk as one compiled program. Its layers are a scan, so depth costs no compile time.

Read it beside ``tritgold.graph``, whose names it uses: ``layers.<n>.`` stands before each name of a layer.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold.config import ModelConfig
from tritgold_xla import attention, kv_cache, layers
from tritgold_xla.bit_linear import bit_linear, finite_tokens, quantize
from tritgold_xla.flags import jit
from tritgold_xla.kv_cache import KvCache
from tritgold_xla.parameters import LayerParameters, Parameters

# Where a layer quantises its activations, in execution order; the columns of ``Chunk.finite``.
QUANTIZED = ("attn_in", "o_in", "ffn_in", "down_in")

Arrays = dict[str, jax.Array]


class Chunk(NamedTuple):
    """What a forward pass returns.

    logits: float32 [tokens, vocab]. cache: the one that was given, extended. finite: bool [layers, 4], whether the
    activations of every token at each of QUANTIZED were finite; where not, everything after is meaningless.
    outer: embedding and final_norm; inner: a layer's arrays by their names in it, with a leading axis ``layers``.
    Both are empty unless traced. Rows of padding are to be cut off everywhere.
    """

    logits: jax.Array
    cache: KvCache
    finite: jax.Array
    outer: Arrays
    inner: Arrays


class _Place(NamedTuple):
    """Where the chunk stands: position of its first token, tokens that are no padding, RoPE's rows for each token."""

    start: jax.Array
    tokens: jax.Array
    sin: jax.Array
    cos: jax.Array


def _forward(
    parameters: Parameters,
    cache: KvCache,
    tokens: jax.Array,
    start: jax.Array,
    count: jax.Array,
    *,
    config: ModelConfig,
    traced: bool,
) -> Chunk:
    """Run a padded chunk behind the first ``start`` positions of the cache.

    tokens: int32 [tokens], of which the first ``count`` are real. start, count: int32 []; start + count must not
    exceed the capacity. config, traced: static. The cache is donated: only the returned one may be used again.
    """
    positions = start + lax.iota(jnp.int32, tokens.shape[0])
    sin, cos = (jnp.take(table, positions, axis=0, mode="clip") for table in (parameters.sin, parameters.cos))
    place = _Place(start, count, sin, cos)

    def step(
        carry: tuple[jax.Array, KvCache], index: jax.Array
    ) -> tuple[tuple[jax.Array, KvCache], tuple[jax.Array, Arrays]]:
        x, cache = carry
        x, cache, finite, arrays = _layer(config, place, index, parameters.layers.at(index), x, cache)
        return (x, cache), (finite, arrays if traced else {})

    embedded = layers.embed(tokens, parameters.embedding)
    indices = lax.iota(jnp.int32, config.layers)
    (x, cache), (finite, inner) = lax.scan(step, (embedded, cache), indices)
    x = layers.rms_norm(x, parameters.final_norm, config.norm_eps)
    outer = {"embedding": embedded, "final_norm": x} if traced else {}
    return Chunk(layers.logits(x, parameters.head), cache, finite, outer, inner)


forward = jit(_forward, static=("config", "traced"), donate=("cache",))


def _layer(
    config: ModelConfig, place: _Place, index: jax.Array, weights: LayerParameters, x: jax.Array, cache: KvCache
) -> tuple[jax.Array, KvCache, jax.Array, Arrays]:
    """One decoder layer: attention, then the gated FFN, each added to the residual stream x [tokens, hidden]."""
    c, tokens, gains = config, x.shape[0], weights.gains
    arrays: Arrays = {}
    finite: list[jax.Array] = []

    def record(name: str, array: jax.Array) -> jax.Array:
        arrays[name] = array
        return array

    def norm(name: str, x: jax.Array) -> jax.Array:
        return record(name, layers.rms_norm(x, gains[name], c.norm_eps))

    def linears(source: str, x: jax.Array, *names: str) -> list[jax.Array]:
        """Quantise x once, then run each linear on the same codes."""
        padding = lax.iota(jnp.int32, tokens) >= place.tokens
        codes, scale = quantize(x)
        finite.append((finite_tokens(x) | padding).all())
        record(f"{source}.codes", codes)
        record(f"{source}.scale", scale)
        outputs = []
        for name in names:
            acc, out = bit_linear(codes, scale, weights.linears[name], c.scale_rule)
            record(f"{name}.acc", acc)
            outputs.append(record(f"{name}.out", out))
        return outputs

    n = norm("attn_norm", x)
    q, k, v = linears("attn_in", n, "q", "k", "v")
    q = record("q_rope", layers.rotate(q.reshape(tokens, c.heads, c.head_dim), place.sin, place.cos))
    k = record("k_rope", layers.rotate(k.reshape(tokens, c.kv_heads, c.head_dim), place.sin, place.cos))
    v = v.reshape(tokens, c.kv_heads, c.head_dim)
    cache = kv_cache.append(cache, index, place.start, place.tokens, k, v)
    keys, values = kv_cache.read(cache, index, place.start + place.tokens)
    probs = record("probs", attention.softmax_weights(q, keys, place.start, place.tokens))
    a = record("attn_mix", attention.mix_values(probs, values, place.tokens))
    if c.sub_norms:
        a = norm("attn_sub_norm", a)
    (o,) = linears("o_in", a, "o")
    x = record("attn_residual", layers.add(x, o))

    n = norm("ffn_norm", x)
    gate, up = linears("ffn_in", n, "gate", "up")
    f = record("ffn_act", layers.gated_activation(gate, up, c.activation))
    if c.sub_norms:
        f = norm("ffn_sub_norm", f)
    (down,) = linears("down_in", f, "down")
    x = record("ffn_residual", layers.add(x, down))
    return x, cache, jnp.stack(finite), arrays
