"""The forward pass of one chunk as one compiled program. Its layers are a scan, so depth costs no compile time.

Read it beside ``tritgold.graph``, whose names it uses: ``layers.<n>.`` stands before each name of a layer.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold.config import ModelConfig
from tritgold_xla.decoder_layer import Arrays, ChunkPosition, DecoderLayer, Options
from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.layers import lm_head
from tritgold_xla.layers.feed_forward import scaled
from tritgold_xla.layers.rms_norm import rms_norm
from tritgold_xla.parameters import Parameters
from tritgold_xla.runtime.flags import jit

# What a pass ends with: logits of every token, of the last one, its greedy token by the screened head, or nothing.
LogitsFor = Literal["all", "last", "greedy", "none"]


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
    """Run a padded chunk after the first ``start`` positions of a sequence; or, batched, the next token of each.

    tokens: int32 [tokens], of which the first ``count`` are real. start, count, sequence: int32 []; start + count must
    not exceed the capacity. Batched, start is int32 [tokens], for each sequence, and nothing is padding. config,
    options, ending, traced: static. The cache is donated: only the returned one may be used again.
    """
    x, cache, finite, outer, inner = hidden_states(
        parameters, cache, tokens, start, count, sequence, config=config, options=options, traced=traced
    )
    return Chunk(_ended(parameters, x, count, ending, options), cache, finite, outer, inner)


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
    end: jax.Array | None = None,
) -> tuple[jax.Array, KvCache, jax.Array, Arrays, Arrays]:
    """(what the head reads, cache, finite, outer, inner): everything of a pass but the head.

    end: int32 [], the position after the last that the tokens may see, where the cache holds more after them.
    """
    positions = start if options.batched else start + lax.iota(jnp.int32, tokens.shape[0])
    sin, cos = (jnp.take(table, positions, axis=-2, mode="clip") for table in (parameters.sin, parameters.cos))
    length = start + count if end is None else end
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
        layer = DecoderLayer(config, options, place, index, parameters.layers.at(index), traced)
        x, cache = layer.run(x, cache)
        return (x, cache), (jnp.stack(layer.finite), layer.arrays)

    embedded = scaled(options.split.embed(tokens, parameters.embedding), config.embedding_scale)
    indices = lax.iota(jnp.int32, config.layers)
    (x, cache), (finite, inner) = lax.scan(step, (embedded, cache), indices)
    x = rms_norm(x, parameters.final_norm, config.norm_eps)
    outer = {"embedding": embedded, "final_norm": x} if traced else {}
    return lm_head.divided(x, config.logit_divisor), cache, finite, outer, inner


def _ended(parameters: Parameters, x: jax.Array, count: jax.Array, ending: LogitsFor, options: Options) -> jax.Array:
    split, choices = options.split, options.choices
    if ending == "all":
        return split.logits(x, parameters.head, choices)
    if ending == "none":
        return jnp.zeros((0,), jnp.float32)
    last = lax.dynamic_slice_in_dim(x, count - 1, 1)
    if ending == "last":
        return split.logits(last, parameters.head, choices)[0]
    if parameters.screen is None:
        return jnp.stack([split.likeliest(last[0], parameters.head, choices), jnp.int32(0)])
    token, screened = lm_head.greedy(last[0], parameters.head, parameters.screen, choices)
    return jnp.stack([token, screened.astype(jnp.int32)])
