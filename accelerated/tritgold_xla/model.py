"""The forward pass of one chunk as one compiled program. Its layers are a scan, so depth costs no compile time.

Read it beside ``tritgold.graph``, whose names it uses: ``layers.<n>.`` stands before each name of a layer.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold.config import ModelConfig
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.layers import attention, lm_head
from tritgold_xla.layers.embedding import embed
from tritgold_xla.layers.feed_forward import add, gated_activation
from tritgold_xla.layers.rms_norm import rms_norm
from tritgold_xla.layers.rotary import rotate
from tritgold_xla.parameters import LayerParameters, Parameters
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.bit_linear import bit_linears, quantize
from tritgold_xla.ternary_matmul.choose import Choices

# Where a layer quantises its activations, in execution order; the columns of ``Chunk.finite``.
QUANTIZED = ("attn_in", "o_in", "ffn_in", "down_in")

Arrays = dict[str, jax.Array]
# What a pass ends with: logits of every token, of the last one, its greedy token by the screened head, or nothing.
LogitsFor = Literal["all", "last", "greedy", "none"]


class Options(NamedTuple):
    """What a program is compiled for, beside its shapes.

    scheme: of the KV cache. choices: of formulations. block: None for causal attention; else tokens see their own
    block of so many positions whole. batched: the tokens are the next ones of as many sequences.
    """

    scheme: str = "f32"
    choices: Choices = Choices()
    block: int | None = None
    batched: bool = False


class Chunk(NamedTuple):
    """What a forward pass returns.

    result: by the ending float32 [tokens, vocab], [vocab], or int32 [2], the token and whether the screen sufficed
    (token -1: the logits are not finite).
    cache: the one that was given, extended. finite: bool [layers, 4], whether the activations of every token at each
    of QUANTIZED were finite; where not, everything after is meaningless. outer: embedding and final_norm; inner: a
    layer's arrays by their names in it, with a leading axis ``layers``. Both are empty unless traced. Rows of padding
    are to be cut off everywhere.
    """

    result: jax.Array
    cache: KvCache
    finite: jax.Array
    outer: Arrays
    inner: Arrays


class ChunkPosition(NamedTuple):
    """Where the chunk stands: its sequence, the position of each token, tokens that are no padding, positions filled.

    ends: how many positions each token sees; sin, cos: RoPE's rows for each token.
    """

    sequence: jax.Array
    positions: jax.Array
    tokens: jax.Array
    length: jax.Array
    ends: jax.Array
    sin: jax.Array
    cos: jax.Array


def _forward(
    parameters: Parameters,
    cache: KvCache,
    tokens: jax.Array,
    start: jax.Array,
    count: jax.Array,
    sequence: jax.Array,
    *,
    config: ModelConfig,
    options: Options,
    ending: LogitsFor,
    traced: bool = False,
) -> Chunk:
    """Run a padded chunk behind the first ``start`` positions of a sequence; or, batched, the next token of each.

    tokens: int32 [tokens], of which the first ``count`` are real. start, count, sequence: int32 []; start + count must
    not exceed the capacity. Batched, start is int32 [tokens], for each sequence, and nothing is padding. config,
    options, ending, traced: static. The cache is donated: only the returned one may be used again.
    """
    x, cache, finite, outer, inner = hidden_states(
        parameters, cache, tokens, start, count, sequence, config=config, options=options, traced=traced
    )
    return Chunk(_ended(parameters, x, count, ending), cache, finite, outer, inner)


forward = jit(_forward, static=("config", "options", "ending", "traced"), donate=("cache",))


def hidden_states(
    parameters: Parameters,
    cache: KvCache,
    tokens: jax.Array,
    start: jax.Array,
    count: jax.Array,
    sequence: jax.Array,
    *,
    config: ModelConfig,
    options: Options,
    traced: bool = False,
) -> tuple[jax.Array, KvCache, jax.Array, Arrays, Arrays]:
    """(final norm, cache, finite, outer, inner): everything of a pass but the head."""
    positions = start if options.batched else start + lax.iota(jnp.int32, tokens.shape[0])
    sin, cos = (jnp.take(table, positions, axis=0, mode="clip") for table in (parameters.sin, parameters.cos))
    length = start + count
    if options.batched:
        ends = positions + 1
    elif options.block is None:
        ends = jnp.minimum(positions + 1, length)
    else:
        ends = jnp.minimum((positions // options.block + 1) * options.block, length)
    place = ChunkPosition(sequence, positions, count, length, ends, sin, cos)

    def step(
        carry: tuple[jax.Array, KvCache], index: jax.Array
    ) -> tuple[tuple[jax.Array, KvCache], tuple[jax.Array, Arrays]]:
        x, cache = carry
        weights = parameters.layers.at(index)
        x, cache, finite, arrays = _layer(config, options, place, index, weights, x, cache, traced)
        return (x, cache), (finite, arrays)

    embedded = embed(tokens, parameters.embedding)
    indices = lax.iota(jnp.int32, config.layers)
    (x, cache), (finite, inner) = lax.scan(step, (embedded, cache), indices)
    x = rms_norm(x, parameters.final_norm, config.norm_eps)
    outer = {"embedding": embedded, "final_norm": x} if traced else {}
    return x, cache, finite, outer, inner


def _ended(parameters: Parameters, x: jax.Array, count: jax.Array, ending: LogitsFor) -> jax.Array:
    if ending == "all":
        return lm_head.logits(x, parameters.head)
    if ending == "none":
        return jnp.zeros((0,), jnp.float32)
    last = lax.dynamic_slice_in_dim(x, count - 1, 1)
    if ending == "last":
        return lm_head.logits(last, parameters.head)[0]
    assert parameters.screen is not None
    token, screened = lm_head.greedy(last[0], parameters.head, parameters.screen)
    return jnp.stack([token, screened.astype(jnp.int32)])


def _layer(
    config: ModelConfig,
    options: Options,
    place: ChunkPosition,
    index: jax.Array,
    weights: LayerParameters,
    x: jax.Array,
    cache: KvCache,
    traced: bool,
) -> tuple[jax.Array, KvCache, jax.Array, Arrays]:
    """One decoder layer: attention, then the gated FFN, each added to the residual stream x [tokens, hidden]."""
    c, tokens, gains = config, x.shape[0], weights.gains
    arrays: Arrays = {}
    finite: list[jax.Array] = []

    def record(name: str, array: jax.Array) -> jax.Array:
        if traced:
            arrays[name] = array
        return array

    def norm(name: str, x: jax.Array) -> jax.Array:
        return record(name, rms_norm(x, gains[name], c.norm_eps))

    def linears(source: str, x: jax.Array, *names: str) -> list[jax.Array]:
        """Quantise x once, then run each linear on the same codes."""
        padding = lax.iota(jnp.int32, tokens) >= place.tokens
        codes, scale, usable = quantize(x)
        finite.append((usable | padding).all())
        record(f"{source}.codes", codes)
        record(f"{source}.scale", scale)
        outputs = []
        results = bit_linears(codes, scale, {n: weights.linears[n] for n in names}, c.scale_rule, options.choices)
        for name, (acc, out) in results.items():
            record(f"{name}.acc", acc)
            outputs.append(record(f"{name}.out", out))
        return outputs

    n = norm("attn_norm", x)
    q, k, v = linears("attn_in", n, "q", "k", "v")
    q = record("q_rope", rotate(q.reshape(tokens, c.heads, c.head_dim), place.sin, place.cos))
    k = record("k_rope", rotate(k.reshape(tokens, c.kv_heads, c.head_dim), place.sin, place.cos))
    v = v.reshape(tokens, c.kv_heads, c.head_dim)
    if options.batched:
        cache = kv_cache.append_each(cache, options.scheme, index, place.positions, k, v)
        a = attention.attend_each(q, cache, options.scheme, index, place.ends, c.kv_heads)
    else:
        cache = kv_cache.append(cache, options.scheme, index, place.positions[0], k, v, place.sequence)
        at = options.scheme, index
        if traced:
            whole = jnp.int32(0), cache.positions
            keys, values = kv_cache.read(cache, *at, *whole, place.length, c.kv_heads, place.sequence)
            probs = record("probs", attention.softmax_weights(q, keys, place.ends))
            a = attention.mix_values(probs, values)
        else:
            a = attention.attend(q, cache, *at, place.length, place.ends, c.kv_heads, place.sequence)
    a = record("attn_mix", a)
    if c.sub_norms:
        a = norm("attn_sub_norm", a)
    (o,) = linears("o_in", a, "o")
    x = record("attn_residual", add(x, o))

    n = norm("ffn_norm", x)
    gate, up = linears("ffn_in", n, "gate", "up")
    f = record("ffn_act", gated_activation(gate, up, c.activation))
    if c.sub_norms:
        f = norm("ffn_sub_norm", f)
    (down,) = linears("down_in", f, "down")
    x = record("ffn_residual", add(x, down))
    return x, cache, jnp.stack(finite), arrays
