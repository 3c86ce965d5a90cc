"""The operations of a decode step of the XLA engine, each alone: the same functions as in the pass, at the same sizes.

Each operation runs once per layer in one compiled scan over the stacked weights, as in the pass, so that weights
are read from memory and not from a cache, and the start of a program takes a negligible time. The carry of the scan
passes through every operation, so the compiler cannot compute a result once and reuse it.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold_conformance.engines.xla_micro import wait
from tritgold_xla.kv_cache import base as kv_cache
from tritgold_xla.layers import attention, lm_head
from tritgold_xla.layers.feed_forward import add, gated_activation
from tritgold_xla.layers.rms_norm import rms_norm
from tritgold_xla.layers.rotary import rotate
from tritgold_xla.runtime.flags import jit
from tritgold_xla.ternary_matmul.bit_linear import apply_scales, quantize
from tritgold_xla.ternary_matmul.kernels import FORMULATIONS

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine

# Inputs that are quantised, and the linears that share the codes.
_READERS = {"attn_in": ("q", "k", "v"), "o_in": ("o",), "ffn_in": ("gate", "up"), "down_in": ("down",)}


class Part(NamedTuple):
    """name: of the operation; calls: per step; moved: bytes that all calls read; run: executes all calls and waits."""

    name: str
    calls: int
    moved: int
    run: Callable[[], object]

    def seconds(self) -> float:
        """Seconds of all calls together."""
        begin = time.perf_counter()
        self.run()
        return time.perf_counter() - begin


def operations(engine: "XlaEngine", context: int) -> list[Part]:
    """Every operation of a step after ``context`` positions; each has already run once."""
    found = [*_float_operations(engine, context), *_linears(engine), *_attention(engine, context), _head(engine)]
    for part in found:
        part.run()
    return found


def _part(name: str, calls: int, step: Callable[[Any, Any], Any], carry: Any, stacked: Any) -> Part:
    """step: (carry, weights of one layer) -> carry. stacked: the weights of all calls, None without weights."""
    program = jit(lambda carry, stacked: lax.scan(lambda c, w: (step(c, w), None), carry, stacked, length=calls)[0])
    return Part(name, calls, _bytes(stacked), lambda: wait(program(carry, stacked)))


def _float_operations(engine: "XlaEngine", context: int) -> list[Part]:
    c, p = engine.config, engine._parameters
    found = []
    for name, width in c.vector_widths().items():
        gains = p.layers.gains[name]
        found.append(_part(name, c.layers, lambda x, gain: rms_norm(x, gain, c.norm_eps), _row(width), gains))
    sin, cos = p.sin[context][None], p.cos[context][None]
    turned, both = _row(c.q_width + c.kv_width).reshape(1, -1, c.head_dim), _row(c.inter)

    def activated(x: jax.Array, _: Any) -> jax.Array:
        return gated_activation(x, both, c.activation) * jnp.float32(0.5)

    added = jnp.zeros((2 * c.layers, 1, c.hidden), jnp.float32)
    found.append(_part("rope", c.layers, lambda x, _: rotate(x, sin, cos), turned, None))
    found.append(_part("activation", c.layers, activated, both, None))
    found.append(_part("residual", 2 * c.layers, add, _row(c.hidden), added)._replace(moved=0))
    final = p.final_norm[None]
    found.append(_part("final_norm", 1, lambda x, g: rms_norm(x, g, c.norm_eps), _row(c.hidden), final))
    return found


def _linears(engine: "XlaEngine") -> list[Part]:
    """Codes; their preparation by a formulation, once for all linears that share it; each linear with its scales."""
    c, linears = engine.config, engine._parameters.layers.linears
    found = []
    choices = engine._options.choices
    for source, readers in _READERS.items():
        width = c.linear_shape(readers[0])[1]
        found.append(_part(f"{source} codes", c.layers, _quantized, _row(width), None))
        codes = jnp.asarray(np.random.default_rng(158).integers(-127, 128, (1, width)), jnp.int8)
        for way in {choices.of(c.linear_shape(name), 1): None for name in readers}:

            def prepared(x: jax.Array, _: Any, prepare: Any = FORMULATIONS[way].prepare) -> jax.Array:
                return _again(x, prepare(x))

            found.append(_part(f"{source} {way}", c.layers, prepared, codes, None))
        for name in readers:
            formulation = FORMULATIONS[choices.of(c.linear_shape(name), 1)]

            def multiply(x: jax.Array, weight: Any, way: Any = formulation) -> jax.Array:
                acc = way.multiply(x, weight.planes)
                return _again(x, apply_scales(acc, jnp.ones(1, jnp.float32), weight.scale, c.scale_rule))

            found.append(_part(name, c.layers, multiply, formulation.prepare(codes), linears[name]))
    return found


def _quantized(x: jax.Array, _: Any) -> jax.Array:
    codes, scale, *_ = quantize(x)
    return x + codes.astype(jnp.float32) * (scale[:, None] * jnp.float32(1e-12))


def _again(x: jax.Array, result: jax.Array) -> jax.Array:
    """x, made to depend on the result: its value does not change, but the compiler cannot know this."""
    bits = result if result.dtype == jnp.float32 else result.astype(jnp.float32)
    return x + (bits.max() > jnp.float32(1e30)).astype(x.dtype)


def _attention(engine: "XlaEngine", context: int) -> list[Part]:
    """Storing one token, and attention over all positions so far, in all layers."""
    c, cache, scheme = engine.config, engine._new_cache(1), engine._options.scheme
    start, length = jnp.int32(context), jnp.int32(context + 1)
    new = jnp.ones((1, c.kv_heads, c.head_dim), jnp.float32)

    def step(carry: Any, layer: jax.Array) -> Any:
        x, stored = carry
        stored = kv_cache.append(stored, scheme, layer, start, new, new)
        query = x.reshape(1, c.heads, c.head_dim)
        return attention.attend(query, stored, scheme, layer, length, length[None], c.kv_heads), stored

    def steps(x: jax.Array, stored: Any) -> Any:
        return lax.scan(lambda carry, layer: (step(carry, layer), None), (x, stored), jnp.arange(c.layers))[0]

    program = jit(steps, donate=("stored",))  # as in the pass, which writes the cache in place
    query = _row(c.q_width)
    held = [cache]

    def run() -> None:
        held[0] = program(query, held[0])[1]
        wait(held[0])

    moved = _bytes(cache) // cache.positions * (context + 1)
    return [Part("attention", c.layers, moved, run)]


def _head(engine: "XlaEngine") -> Part:
    program, x, rows = jit(lm_head.logits), _row(engine.config.hidden), engine._parameters.head
    return Part("head", 1, rows.nbytes, lambda: wait(program(x, rows)))


def _row(width: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(158).standard_normal((1, width)), jnp.float32)


def _bytes(arrays: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(arrays))
