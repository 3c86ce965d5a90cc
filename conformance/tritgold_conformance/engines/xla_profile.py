"""The operations of a decode step of the XLA engine, each alone: the very functions of the pass, at its own sizes.

Each is run once a layer inside one compiled scan over the stacked weights, as in the pass itself, so that weights
come from memory and not from a cache, and starting a program costs nothing that counts. The carry of the scan passes
through every operation: nothing can be computed once and kept.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold_xla import attention, kv_cache, layers
from tritgold_xla.bit_linear import accumulate, apply_scales, quantize
from tritgold_xla.flags import jit

if TYPE_CHECKING:
    from tritgold_xla import XlaEngine

_WARM_UP = 1


class Timed(NamedTuple):
    """name: of the operation; calls: in one step; seconds: of all of them, one for each run; moved: bytes read."""

    name: str
    calls: int
    seconds: list[float]
    moved: int


def operations(engine: "XlaEngine", context: int, runs: int) -> list[Timed]:
    """Every operation of a step behind ``context`` positions, in execution order; equal ones together."""
    c, p = engine.config, engine._parameters
    rng = np.random.default_rng(158)
    count = c.layers

    def row(width: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal((1, width)), jnp.float32)

    found: list[Timed] = []

    def part(name: str, calls: int, step: Callable[[Any, Any], Any], carry: Any, weights: Any, moved: int) -> None:
        found.append(Timed(name, calls, _scanned(step, carry, weights, calls, runs), moved))

    norms, widths = p.layers.gains, c.norm_widths()
    for name, width in widths.items():
        gain = norms[name]
        part(name, count, lambda x, g: layers.rms_norm(x, g, c.norm_eps), row(width), gain, gain.nbytes)
    for name, width in {"attn_in": c.hidden, "o_in": c.q_width, "ffn_in": c.hidden, "down_in": c.inter}.items():
        part(f"{name} codes", count, _quantized, row(width), None, 0)
    for name, linear in p.layers.linears.items():
        codes = jnp.asarray(rng.integers(-127, 128, (1, c.linear_shape(name)[1])), jnp.int8)
        moved = sum(leaf.nbytes for leaf in jax.tree.leaves(linear))
        part(name, count, lambda x, w: _linear(x, w, c.scale_rule), codes, linear, moved)
    sin, cos = p.sin[context][None], p.cos[context][None]
    turned = row(c.q_width + c.kv_width).reshape(1, -1, c.head_dim)
    part("rope", count, lambda x, _: layers.rotate(x, sin, cos), turned, None, 0)
    part("attention", count, *_attention(engine, context, row(c.q_width)))
    both = row(c.inter)
    part(
        "activation", count, lambda x, _: layers.gated_activation(x, both, c.activation) * jnp.float32(0.5), both, None, 0
    )
    part("residual", 2 * count, lambda x, y: layers.add(x, y), row(c.hidden), jnp.zeros((2 * count, 1, c.hidden)), 0)
    final = p.final_norm[None]
    part("final_norm", 1, lambda x, g: layers.rms_norm(x, g, c.norm_eps), row(c.hidden), final, final.nbytes)
    head = jax.tree.leaves(p.head)
    found.append(Timed("head", 1, _head(engine, row(c.hidden), runs), sum(leaf.nbytes for leaf in head)))
    return found


def _scanned(step: Callable[[Any, Any], Any], carry: Any, weights: Any, length: int, runs: int) -> list[float]:
    """Seconds of ``length`` calls in a row, by run."""
    program = jit(lambda c, w: lax.scan(lambda c, w: (step(c, w), None), c, w, length=length)[0])
    return _seconds(lambda: program(carry, weights), runs)


def _seconds(run: Callable[[], Any], runs: int) -> list[float]:
    seconds = []
    for number in range(_WARM_UP + runs):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        if number >= _WARM_UP:
            seconds.append(time.perf_counter() - begin)
    return seconds


def _quantized(x: jax.Array, _: Any) -> jax.Array:
    codes, scale = quantize(x)
    return x + codes.astype(jnp.float32) * (scale[:, None] * jnp.float32(1e-12))


def _linear(codes: jax.Array, weight: Any, rule: Any) -> jax.Array:
    out = apply_scales(accumulate(codes, weight.planes), jnp.ones(1, jnp.float32), weight.scale, rule)
    return codes + (out.max() > 1e30).astype(jnp.int8)  # false, which the compiler cannot know


def _attention(engine: "XlaEngine", context: int, query: jax.Array) -> tuple[Callable[..., Any], Any, Any, int]:
    """Storing a token, reading the layer back, softmax weights and mix, over one layer after the other."""
    c, cache = engine.config, engine._new_cache()
    start, one = jnp.int32(context), jnp.int32(1)
    new = jnp.ones((1, c.kv_heads, c.head_dim), jnp.float32)

    def step(carry: Any, index: jax.Array) -> Any:
        x, stored = carry
        stored = kv_cache.append(stored, index, start, one, new, new)
        keys, values = kv_cache.read(stored, index, start + one)
        weights = attention.softmax_weights(x.reshape(1, c.heads, c.head_dim), keys, start, one)
        return attention.mix_values(weights, values, one), stored

    moved = sum(leaf.nbytes for leaf in jax.tree.leaves(cache)) // engine.capacity * (context + 1)
    return step, (query, cache), jnp.arange(c.layers), moved


def _head(engine: "XlaEngine", x: jax.Array, runs: int) -> list[float]:
    program = jit(layers.logits)
    return _seconds(lambda: program(x, engine._parameters.head), runs)
