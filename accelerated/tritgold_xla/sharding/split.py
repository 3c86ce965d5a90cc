"""Communication with the other devices, at the few places of the graph that need it; on one device there is none.

Every step is exact: sums and maxima over devices are of integers, and floats are only concatenated. A float sum that
needs all channels (the mean square of the sub-norms) is computed on every device, over all channels, in the same order.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from tritgold_xla.layers import lm_head
from tritgold_xla.layers.embedding import embed
from tritgold_xla.sharding.partition import AXES, Plan, cut_of
from tritgold_xla.ternary_matmul.bit_linear import Quantized, absmax, quantize, quantize_to
from tritgold_xla.ternary_matmul.choose import RULE, Choices

AXIS = "devices"  # of the mesh


@dataclass(frozen=True)
class OneDevice:
    """The whole model on one device. A static argument of programs, so equal objects must compare equal."""

    def whole(self, x: jax.Array, linear: str) -> jax.Array:
        """Activations [tokens, channels] of all devices together. linear: the name of the linear that reads them."""
        del linear
        return x

    def quantize(self, x: jax.Array, whole: bool) -> Quantized:
        """``quantize`` over all channels. whole: x has all channels; otherwise x and the codes are of this device."""
        del whole
        return quantize(x)

    def own(self, codes: jax.Array, linear: str, whole: bool) -> jax.Array:
        """The channels of the codes that this device's part of the linear reads."""
        del linear, whole
        return codes

    def total(self, linear: str, acc: jax.Array) -> jax.Array:
        """Accumulators int32 [tokens, out], summed over the devices that have a part of each row."""
        del linear
        return acc

    def embed(self, tokens: jax.Array, table: jax.Array) -> jax.Array:
        """``embed``."""
        return embed(tokens, table)

    def logits(self, x: jax.Array, head: jax.Array, choices: Choices = RULE) -> jax.Array:
        """``lm_head.logits`` of the whole vocabulary, float32 [tokens, vocab]."""
        return lm_head.logits(x, head, choices)

    def likeliest(self, x: jax.Array, head: jax.Array, choices: Choices = RULE) -> jax.Array:
        """int32 []: the token of the largest logit of x, float32 [hidden]; the lowest of equal ones.

        -1 if a logit is infinite or NaN.
        """
        scores = self.logits(x[None], head, choices)[0]
        return jnp.where(jnp.isfinite(scores).all(), jnp.argmax(scores).astype(jnp.int32), -1)


# Typed here, because JAX leaves them untyped.
psum: Callable[..., jax.Array] = lax.psum
_pmax: Callable[..., jax.Array] = lax.pmax


@dataclass(frozen=True)
class Split(OneDevice):
    """One part of a model that is cut by ``plan``, in a program that runs on every device of the axis AXIS."""

    plan: Plan

    def whole(self, x: jax.Array, linear: str) -> jax.Array:
        """Gathered from all devices: bits are moved, nothing is added."""
        unit = cut_of(linear).unit
        return x if unit is None else lax.all_gather(x, AXIS, axis=1, tiled=True)[:, : self.plan.full(unit)]

    def quantize(self, x: jax.Array, whole: bool) -> Quantized:
        """With the absmax of all devices, compared as bits: same order as the numbers, and NaN is above infinity."""
        if whole:
            return quantize(x)
        bits = lax.bitcast_convert_type(absmax(x), jnp.int32) & jnp.int32(0x7FFFFFFF)
        return quantize_to(x, lax.bitcast_convert_type(_pmax(bits, AXIS), jnp.float32))

    def own(self, codes: jax.Array, linear: str, whole: bool) -> jax.Array:
        """A slice of the codes; zeros for padding."""
        cut = cut_of(linear)
        if cut.along == "out" or not whole or cut.unit is None:
            return codes
        width = self.plan.width(cut.unit)
        filled = jnp.pad(codes, ((0, 0), (0, self.plan.devices * width - codes.shape[1])))
        return lax.dynamic_slice_in_dim(filled, lax.axis_index(AXIS) * width, width, axis=1)

    def total(self, linear: str, acc: jax.Array) -> jax.Array:
        """The sum over devices; of integers, so the order does not matter."""
        return psum(acc, AXIS) if cut_of(linear).along == "in" else acc

    def embed(self, tokens: jax.Array, table: jax.Array) -> jax.Array:
        """The sum, over devices, of the bits of a token's row: all devices but the one that has the row give zeros."""
        if self.plan.whole_embedding:
            return embed(tokens, table)
        local = tokens - lax.axis_index(AXIS) * self.plan.rows
        mine = (local >= 0) & (local < self.plan.rows)
        rows = lax.bitcast_convert_type(embed(jnp.where(mine, local, 0), table), jnp.int32)
        return lax.bitcast_convert_type(psum(jnp.where(mine[:, None], rows, 0), AXIS), jnp.float32)

    def logits(self, x: jax.Array, head: jax.Array, choices: Choices = RULE) -> jax.Array:
        """Each device's rows, gathered."""
        scores = lm_head.logits(x, head, choices)
        if self.plan.whole_head:
            return scores
        return lax.all_gather(scores, AXIS, axis=1, tiled=True)[:, : self.plan.config.vocab]

    def likeliest(self, x: jax.Array, head: jax.Array, choices: Choices = RULE) -> jax.Array:
        """Gathers one pair per device, the largest logit and its token, instead of all logits."""
        if self.plan.whole_head:
            return super().likeliest(x, head, choices)
        scores = lm_head.logits(x[None], head, choices)[0]
        first = lax.axis_index(AXIS) * self.plan.rows
        real = first + lax.iota(jnp.int32, scores.shape[0]) < self.plan.config.vocab
        finite = (jnp.isfinite(scores) | ~real).all()
        scores = jnp.where(real, scores, -jnp.inf)
        own = scores.max(), first + jnp.argmax(scores).astype(jnp.int32), finite
        largest, tokens, usable = (lax.all_gather(each, AXIS) for each in own)
        return jnp.where(usable.all(), tokens[jnp.argmax(largest)], -1)

    def whole_trace(self, name: str, array: jax.Array, axes: tuple[str, ...]) -> jax.Array:
        """A traced array of all layers with all its channels. axes: its axes after ``layers`` (``tritgold.graph``)."""
        for place, axis in enumerate(axes, 1):
            if axis in AXES and not self._is_whole(name):
                gathered = lax.all_gather(array, AXIS, axis=place, tiled=True)
                return lax.slice_in_dim(gathered, 0, getattr(self.plan.config, axis), axis=place)
        return array

    def _is_whole(self, name: str) -> bool:
        """Whether every device has all channels of it: the output of a sub-norm, or the codes of that output."""
        return self.plan.config.sub_norms and name in ("attn_sub_norm", "ffn_sub_norm", "o_in.codes", "down_in.codes")
