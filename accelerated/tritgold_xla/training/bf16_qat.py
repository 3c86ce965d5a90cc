"""The network of ``qat`` with the products of its linears made of bf16: several times as fast where there is AMX.

Codes and trits are exact in bf16, and sums are float32, so the forward pass is that of ``qat`` to the rounding of
float32 sums; of the gradients, those of the outputs of linears are rounded to bf16. States stand as columns,
[features, batch * tokens]: then no product needs a large matrix transposed, which took longer than the products (XLA
for CPUs transposes element by element, and computes all that is fused with it again for each).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold_xla.training.qat import Parameters, bf16, rms_norm, trits_and_scale
from tritgold_xla.training.recipe import Recipe


def product(a: jax.Array, b: jax.Array, contracted: tuple[int, int]) -> jax.Array:
    """[., .]: sums in float32 over one axis of each, of numbers rounded to bf16."""
    axes = (((contracted[0],), (contracted[1],)), ((), ()))
    return lax.dot_general(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), axes, preferred_element_type=jnp.float32)


def turned(a: jax.Array) -> jax.Array:
    """The transpose, by halves: XLA would take a whole one into the product, and then make that in float32."""
    half = a.shape[0] // 2
    return jnp.concatenate([a[:half].T, a[half:].T], axis=1)


@jax.custom_vjp
def bit_linear(x: jax.Array, master: jax.Array) -> jax.Array:
    """``qat.ternary(master) @ qat.codes(x)``, codes by column. x: [in, columns]."""
    return _bit_linear(x, master)[0]


def _bit_linear(x: jax.Array, master: jax.Array) -> tuple[jax.Array, Any]:
    trits, scale = trits_and_scale(master)
    stretch = 127 / jnp.maximum(jnp.abs(x).max(axis=0), 1e-5)
    codes = jnp.clip(jnp.round(x * stretch), -128, 127).astype(jnp.bfloat16)
    trits = trits.astype(jnp.bfloat16)
    return product(trits, codes, (1, 0)) * (scale / stretch), (codes, stretch, trits, scale)


def _bit_linear_back(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    codes, stretch, trits, scale = kept
    return product(turned(trits), gradient, (1, 0)) * scale, product(gradient / stretch, codes, (1, 1))


bit_linear.defvjp(_bit_linear, _bit_linear_back)


@jax.custom_vjp
def float_linear(x: jax.Array, master: jax.Array) -> jax.Array:
    """``master @ x`` of both rounded to bf16."""
    return product(master, x, (1, 0))


def _float_linear_back(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, master = kept
    return product(turned(master), gradient, (1, 0)), product(gradient, x, (1, 1))


float_linear.defvjp(lambda x, master: (product(master, x, (1, 0)), (x, master)), _float_linear_back)


def hidden_states(
    parameters: Parameters, tokens: jax.Array, recipe: Recipe, positions: np.ndarray, mask: np.ndarray | jax.Array
) -> jax.Array:
    """As ``qat.hidden_states``."""
    c = recipe.config()
    linear: Callable[[jax.Array, jax.Array], jax.Array] = bit_linear if recipe.ternary else float_linear
    batch, length = tokens.shape

    def norm(x: jax.Array, gain: jax.Array) -> jax.Array:
        return x * lax.rsqrt((x * x).mean(axis=0) + c.norm_eps) * bf16(gain)[:, None]

    def layer(x: jax.Array, w: Parameters) -> tuple[jax.Array, None]:
        n = norm(x, w["attn_norm"])
        q, k, v = (linear(n, w[name]).reshape(-1, c.head_dim, batch, length) for name in ("q", "k", "v"))
        q, k = _rotate(q, positions, c.rope_theta), _rotate(k, positions, c.rope_theta)
        mix = _attention(q, k, v, mask).reshape(-1, batch * length)
        x = x + linear(norm(mix, w["attn_sub_norm"]), w["o"])
        n = norm(x, w["ffn_norm"])
        act = jnp.square(jax.nn.relu(linear(n, w["gate"]))) * linear(n, w["up"])
        return x + linear(norm(act, w["ffn_sub_norm"]), w["down"]), None

    x = bf16(parameters["embedding"])[tokens].reshape(batch * length, -1).T
    x, _ = lax.scan(layer, x, parameters["layers"], unroll=True)
    return rms_norm(x.T.reshape(batch, length, -1), parameters["final_norm"], c.norm_eps)


def _rotate(x: jax.Array, positions: np.ndarray, theta: float) -> jax.Array:
    """RoPE with half rotation; x [heads, head_dim, batch, tokens]."""
    half = x.shape[1] // 2
    angle = theta ** (-np.arange(half) / half)[:, None] * positions
    sin, cos = (jnp.asarray(f(angle)[:, None, :], jnp.float32) for f in (np.sin, np.cos))
    first, second = x[:, :half], x[:, half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=1)


def _attention(q: jax.Array, k: jax.Array, v: jax.Array, mask: np.ndarray | jax.Array) -> jax.Array:
    """Mix [heads, head_dim, batch, tokens] of q [heads, ..], k, v [kv_heads, ..]; mask as ``qat.attention`` has it."""
    heads, width, batch, length = q.shape
    kv_heads, group = k.shape[0], heads // k.shape[0]
    rows = q.reshape(kv_heads, group, width, batch, length).transpose(3, 0, 1, 4, 2)
    rows = rows.reshape(batch, kv_heads, group * length, width)
    scores = (rows @ k.transpose(2, 0, 1, 3)) / np.sqrt(width).astype(np.float32)
    weights = jax.nn.softmax(jnp.where(jnp.tile(mask, (group, 1)), scores, -1e30), axis=-1)
    mix = (weights @ v.transpose(2, 0, 3, 1)).reshape(batch, kv_heads, group, length, width)
    return mix.transpose(1, 2, 4, 0, 3).reshape(heads, width, batch, length)
