"""One decoder layer over one chunk: attention, then the gated FFN, each added to the residual stream."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tritgold.config import ModelConfig
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.kv_cache.base import KvCache
from tritgold_xla.layers import attention
from tritgold_xla.layers.feed_forward import add, gated_activation, scaled
from tritgold_xla.layers.of_layer import of_layer, window_begins
from tritgold_xla.layers.rms_norm import norm_heads, rms_norm
from tritgold_xla.layers.rotary import rotate
from tritgold_xla.parameters import LayerParameters
from tritgold_xla.sharding.split import OneDevice
from tritgold_xla.ternary_matmul.bit_linear import biased, bit_linears
from tritgold_xla.ternary_matmul.choose import Choices

# Where a layer quantises its activations, in execution order; the columns of ``Chunk.finite``.
QUANTIZED = ("attn_in", "o_in", "ffn_in", "down_in")

Arrays = dict[str, jax.Array]


class Options(NamedTuple):
    """What a program is compiled for, beside its shapes.

    scheme: of the KV cache. choices: of formulations. block: None for causal attention; else tokens see their own
    block of so many positions whole. batched: the tokens are the next ones of as many sequences. split: how the
    model is cut over devices.
    """

    scheme: str = "f32"
    choices: Choices = Choices()
    block: int | None = None
    batched: bool = False
    split: OneDevice = OneDevice()


class ChunkPosition(NamedTuple):
    """Where the chunk stands: its sequence, the position of each token, tokens that are not padding, positions filled.

    ends: how many positions each token sees; sin, cos: RoPE's rows for each token.
    """

    sequence: jax.Array
    positions: jax.Array
    tokens: jax.Array
    length: jax.Array
    ends: jax.Array
    sin: jax.Array
    cos: jax.Array


class DecoderLayer:
    """A layer while it is traced by JAX. index: int32 [], its number. traced: its activations are kept.

    arrays: the activations by their names within a layer, as in ``tritgold.graph``. finite: bool [] for each of
    QUANTIZED, whether what was quantised was, padding aside.
    """

    def __init__(
        self,
        config: ModelConfig,
        options: Options,
        place: ChunkPosition,
        index: jax.Array,
        weights: LayerParameters,
        traced: bool,
    ) -> None:
        self.config, self.options, self.place, self.index, self.weights = config, options, place, index, weights
        self.traced = traced
        self.arrays: Arrays = {}
        self.finite: list[jax.Array] = []

    def run(self, x: jax.Array, cache: KvCache) -> tuple[jax.Array, KvCache]:
        """The residual stream float32 [tokens, hidden] after the layer, and the cache with the chunk's keys in it."""
        c = self.config
        q, k, v = self._linears("attn_in", self._norm("attn_norm", x), "q", "k", "v")
        a, cache = self._attention(q, k, v, cache)
        if c.sub_norms:
            a = self._norm("attn_sub_norm", self.options.split.whole(a, "o"))
        (o,) = self._linears("o_in", a, "o", whole=c.sub_norms)
        if c.post_norms:
            o = self._norm("attn_post_norm", o)
        x = self._record("attn_residual", add(x, o, c.residual_scale))

        gate, up = self._linears("ffn_in", self._norm("ffn_norm", x), "gate", "up")
        f = self._record("ffn_act", gated_activation(gate, up, c.activation))
        if c.sub_norms:
            f = self._norm("ffn_sub_norm", self.options.split.whole(f, "down"))
        (down,) = self._linears("down_in", f, "down", whole=c.sub_norms)
        if c.post_norms:
            down = self._norm("ffn_post_norm", down)
        return self._record("ffn_residual", add(x, down, c.residual_scale)), cache

    def _record(self, name: str, array: jax.Array) -> jax.Array:
        if self.traced:
            self.arrays[name] = array
        return array

    def _norm(self, name: str, x: jax.Array) -> jax.Array:
        return self._record(name, rms_norm(x, self.weights.gains[name], self.config.norm_eps))

    def _heads(self, name: str, x: jax.Array) -> jax.Array:
        """q or k [tokens, width] as heads [tokens, any_heads, head_dim], normed where the model norms them."""
        if not self.config.qk_norms:
            return x.reshape(x.shape[0], -1, self.config.head_dim)
        return self._record(name, norm_heads(x, self.weights.gains[name], self.config.norm_eps))

    def _linears(self, source: str, x: jax.Array, *names: str, whole: bool = True) -> list[jax.Array]:
        """Quantise x once, then run each linear on the same codes. whole: x has the channels of every device."""
        padding, split = lax.iota(jnp.int32, x.shape[0]) >= self.place.tokens, self.options.split
        codes, scale, usable = split.quantize(x, whole)
        self.finite.append((usable | padding).all())
        self._record(f"{source}.codes", codes)
        self._record(f"{source}.scale", scale)
        weights = {name: self.weights.linears[name] for name in names}
        own = split.own(codes, names[0], whole)
        results = bit_linears(own, scale, weights, self.config.scale_rule, self.options.choices, split.total)
        for name, (acc, _) in results.items():
            self._record(f"{name}.acc", acc)
        biases = {name: self.weights.gains.get(f"{name}_bias") for name in names}
        return [self._record(f"{name}.out", biased(out, biases[name])) for name, (_, out) in results.items()]

    def _attention(self, q: jax.Array, k: jax.Array, v: jax.Array, cache: KvCache) -> tuple[jax.Array, KvCache]:
        """The mix float32 [tokens, heads * head_dim] of the values that each token sees, and the extended cache."""
        c, place, tokens = self.config, self.place, q.shape[0]
        q, k = self._heads("q_norm", q), self._heads("k_norm", k)
        sin, cos = of_layer(c, place.sin, self.index), of_layer(c, place.cos, self.index)
        q, k = self._record("q_rope", rotate(q, sin, cos)), self._record("k_rope", rotate(k, sin, cos))
        q = scaled(q, c.query_scale)
        begins = window_begins(c, place.positions, self.index)
        v = v.reshape(tokens, c.kv_heads, c.head_dim)
        at = self.options.scheme, self.index
        if self.options.batched:
            cache = kv_cache.append_each(cache, *at, place.positions, k, v)
            a = attention.attend_each(q, cache, *at, place.ends, c.kv_heads, begins)
        else:
            cache = kv_cache.append(cache, *at, place.positions[0], k, v, place.sequence)
            if self.traced:
                whole = jnp.int32(0), cache.positions
                keys, values = kv_cache.read(cache, *at, *whole, place.length, c.kv_heads, place.sequence)
                probs = self._record("probs", attention.softmax_weights(q, keys, place.ends, begins))
                a = attention.mix_values(probs, values)
            else:
                a = attention.attend(q, cache, *at, place.length, place.ends, c.kv_heads, place.sequence, begins)
        return self._record("attn_mix", a), cache
