"""The network in training: float32 masters, and a forward pass with the values that will be stored.

Weights become trits times one scale, which is rounded to bf16 as in the file; activations become int8 codes with one
scale per token; embedding and gains are rounded to bf16. Gradients pass straight through every rounding. So the packed
model is exactly the trained one: exporting loses nothing.

Source: arXiv 2402.17764, and the straight-through estimator of arXiv 1308.3432.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tritgold_xla.training.recipe import Recipe

Parameters = dict[str, Any]


def initial_parameters(recipe: Recipe) -> Parameters:
    """Masters, layers stacked: matrices normal with standard deviation 1 / sqrt(in), embedding with 0.02, gains 1."""
    c = recipe.config()
    rng = np.random.Generator(np.random.Philox(key=recipe.seed))

    def normal(shape: tuple[int, ...], std: float) -> np.ndarray:
        return (rng.standard_normal(shape) * std).astype(np.float32)

    linears = {
        name: normal((c.layers, *c.linear_shape(name)), c.linear_shape(name)[1] ** -0.5)
        for name in ("q", "k", "v", "o", "gate", "up", "down")
    }
    gains = {name: np.ones((c.layers, width), np.float32) for name, width in c.vector_widths().items()}
    return {
        "embedding": normal((c.vocab, c.hidden), 0.02),
        "layers": {**linears, **gains},
        "final_norm": np.ones(c.hidden, np.float32),
    }


def through(x: jax.Array, rounded: jax.Array) -> jax.Array:
    """The value of ``rounded`` with the gradient of x (straight-through estimator)."""
    return x + lax.stop_gradient(rounded - x)


def bf16(x: jax.Array) -> jax.Array:
    """x rounded to bf16, as float32; the gradient passes through."""
    return through(x, x.astype(jnp.bfloat16).astype(jnp.float32))


def trits_and_scale(master: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(trits float32 of the master's shape, scale float32 []): absmean over the whole matrix; scale rounded to bf16."""
    absmean = jnp.maximum(jnp.abs(master).mean(), jnp.float32(1e-5))
    scale = absmean.astype(jnp.bfloat16).astype(jnp.float32)
    return jnp.clip(jnp.round(master / absmean), -1, 1), scale


def ternary(master: jax.Array) -> jax.Array:
    """trits * scale, the weight of the packed model; the gradient passes through."""
    trits, scale = trits_and_scale(master)
    return through(master, trits * scale)


def codes(x: jax.Array) -> jax.Array:
    """int8 codes / scale, as float32: absmax per token, half to even; the gradient passes through."""
    scale = 127 / jnp.maximum(jnp.abs(x).max(axis=-1, keepdims=True), 1e-5)
    return through(x, jnp.clip(jnp.round(x * scale), -128, 127) / scale)


def rms_norm(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    """x / rms(x) * gain, gain rounded to bf16."""
    return x * lax.rsqrt((x * x).mean(axis=-1, keepdims=True) + eps) * bf16(gain)


def rotate(x: jax.Array, positions: np.ndarray, theta: float) -> jax.Array:
    """RoPE with half rotation; x [batch, tokens, heads, head_dim]."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * theta ** (-np.arange(half) / half)
    sin, cos = (jnp.asarray(f(angle)[:, None, :], jnp.float32) for f in (np.sin, np.cos))
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention(q: jax.Array, k: jax.Array, v: jax.Array, mask: np.ndarray | jax.Array) -> jax.Array:
    """Attention output [batch, tokens, heads, head_dim]. k, v: [.., kv_heads, ..].

    mask: bool [tokens, tokens], or one for each sequence: [batch, 1, tokens, tokens].

    The query heads of a group are concatenated along the rows, so that each product is one plain matrix product
    (measured: forward and backward a fifth faster than with the group as an axis).
    """
    batch, length, heads, width = q.shape
    kv_heads, group = k.shape[2], heads // k.shape[2]
    rows = q.reshape(batch, length, kv_heads, group, width).transpose(0, 2, 3, 1, 4)
    rows = rows.reshape(batch, kv_heads, group * length, width)
    scores = (rows @ k.transpose(0, 2, 3, 1)) / np.sqrt(width).astype(np.float32)
    weights = jax.nn.softmax(jnp.where(jnp.tile(mask, (group, 1)), scores, -1e30), axis=-1)
    mix = (weights @ v.transpose(0, 2, 1, 3)).reshape(batch, kv_heads, group, length, width)
    return mix.transpose(0, 3, 1, 2, 4).reshape(batch, length, heads, width)


def hidden_states(
    parameters: Parameters, tokens: jax.Array, recipe: Recipe, positions: np.ndarray, mask: np.ndarray | jax.Array
) -> jax.Array:
    """Final hidden states [batch, tokens, hidden].

    tokens: int [batch, tokens]. positions: [tokens]. mask: bool [tokens, tokens], which keys a query sees, or
    [batch, 1, tokens, tokens].
    """
    c = recipe.config()
    weight = ternary if recipe.ternary else (lambda w: w)
    quantised = codes if recipe.ternary else (lambda x: x)
    batch, length = tokens.shape

    def layer(x: jax.Array, w: Parameters) -> tuple[jax.Array, None]:
        n = quantised(rms_norm(x, w["attn_norm"], c.norm_eps))
        q, k, v = ((n @ weight(w[name]).T).reshape(batch, length, -1, c.head_dim) for name in ("q", "k", "v"))
        q, k = rotate(q, positions, c.rope_theta), rotate(k, positions, c.rope_theta)
        mix = attention(q, k, v, mask).reshape(batch, length, -1)
        x = x + quantised(rms_norm(mix, w["attn_sub_norm"], c.norm_eps)) @ weight(w["o"]).T
        n = quantised(rms_norm(x, w["ffn_norm"], c.norm_eps))
        act = jnp.square(jax.nn.relu(n @ weight(w["gate"]).T)) * (n @ weight(w["up"]).T)
        return x + quantised(rms_norm(act, w["ffn_sub_norm"], c.norm_eps)) @ weight(w["down"]).T, None

    x = bf16(parameters["embedding"])[tokens]
    x, _ = lax.scan(layer, x, parameters["layers"])
    return rms_norm(x, parameters["final_norm"], c.norm_eps)


def logits(parameters: Parameters, states: jax.Array) -> jax.Array:
    """Logits [..., vocab]; the head is tied to the embedding."""
    return states @ bf16(parameters["embedding"]).T
