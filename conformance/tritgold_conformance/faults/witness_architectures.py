"""Witnesses with the parts of further architectures: small seeded models to which vectors and factors are added.

Each part differs from what leaves it out: a window shorter than the text, a period that is not every layer, scalings of
RoPE with frequencies in their smooth band, biases and gains that are not alike.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.config import ModelConfig
from tritgold.counter_random import random_bits
from tritgold.formats.rope_formulas import rope_scaling
from tritgold.rope_scaling import RopeScaling
from tritgold.weights import LayerWeights
from tritgold_conformance.faults.quick import with_linears

WINDOW, CONTEXT = 7, 64
_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": CONTEXT}
_PLAIN = {"attn_sub_norm": None, "ffn_sub_norm": None}


def qwen(made: Checkpoint) -> Checkpoint:
    """Biases of q, k and v, yarn, and a window in all layers but the first."""
    scaling = rope_scaling("yarn", {"factor": 4.0, "original_max_position_embeddings": CONTEXT}, 16, 2e4)
    changed = replace(_plain(made), qkv_bias=True, rope_theta=2e4, rope_scaling=scaling)
    config = replace(changed, window=WINDOW, full_layers=(0,))

    def parts(index: int) -> dict[str, np.ndarray]:
        widths = {"q_bias": config.q_width, "k_bias": config.kv_width, "v_bias": config.kv_width}
        return {name: _drawn(index, n, width, 0.0, 0.5) for n, (name, width) in enumerate(widths.items())}

    return _with(made, config, parts)


def gemma(made: Checkpoint) -> Checkpoint:
    """Norms of heads and before the residuals, windows with a theta of their own, a scaled embedding."""
    config = replace(
        _plain(made), activation="gelu_tanh", qk_norms=True, post_norms=True, rope_theta=1e6, local_rope_theta=1e4,
        rope_scaling=RopeScaling((8.0,) * (made.config.head_dim // 2)), window=WINDOW, full_layers=(2,),
        embedding_scale=made.config.hidden**0.5,
    )  # fmt: skip

    def parts(index: int) -> dict[str, np.ndarray]:
        centres = {"q_norm": 1.4, "k_norm": 1.2, "attn_post_norm": 0.6, "ffn_post_norm": 0.8}
        widths = config.vector_widths()
        return {name: _drawn(index, n, widths[name], c, 0.3 * c) for n, (name, c) in enumerate(centres.items())}

    return _with(made, config, parts)


def granite(made: Checkpoint) -> Checkpoint:
    """Constant factors, and the scaling of Llama 3."""
    factors: dict[str, Any] = {"embedding_scale": 12.0, "residual_scale": 0.22, "logit_divisor": 3.0}
    config = replace(_plain(made), rope_scaling=rope_scaling("llama3", _LLAMA3, 16, made.config.rope_theta), **factors)
    return _with(made, config, lambda _: {})


def _plain(made: Checkpoint) -> ModelConfig:
    return replace(made.config, activation="silu", sub_norms=False)


def _with(made: Checkpoint, config: ModelConfig, parts: Callable[[int], dict[str, np.ndarray]]) -> Checkpoint:
    def changed(index: int, layer: LayerWeights) -> LayerWeights:
        return with_linears(layer, lambda _, t: t, **_PLAIN, **parts(index))

    layers = tuple(changed(n, layer) for n, layer in enumerate(made.weights.layers))
    return replace(made, config=config, weights=replace(made.weights, layers=layers))


def _drawn(layer: int, part: int, width: int, centre: float, spread: float) -> np.ndarray:
    """float32 [width], evenly about the centre."""
    bits = random_bits(100 * layer + part, np.arange(1, width + 1, dtype=np.uint64)) >> np.uint64(40)
    return (centre + spread * (bits.astype(np.float64) * 2.0**-23 - 1)).astype(np.float32)
