"""Attention in float16, as in llama.cpp on a CPU with its default KV cache, with and without flash attention.

K and V are float16, and so are the numbers that they are multiplied with. Source: llama.cpp, ggml/src/ggml-cpu,
``ggml_compute_forward_mul_mat`` and ``ggml_compute_forward_flash_attn_ext``.
"""

from dataclasses import replace

import numpy as np

from tritgold.layers.arithmetic import Arithmetic
from tritgold_conformance.policies.roundings import f16


def without_flash(base: Arithmetic) -> Arithmetic:
    """q, k, the softmax's weights and v are rounded to float16 before they are multiplied; sums are not."""

    def weights(q: np.ndarray, k: np.ndarray, *more: int, **named: int) -> np.ndarray:
        return base.softmax_weights(f16(q), f16(k), *more, **named)

    def mix(p: np.ndarray, v: np.ndarray) -> np.ndarray:
        return base.mix_values(f16(p), f16(v))

    return replace(base, softmax_weights=weights, mix_values=mix)


def with_flash(base: Arithmetic) -> Arithmetic:
    """q, k and v are rounded to float16, and after each key the running sum of weighted values too.

    The weights are exp(score - largest score so far); the sum is rescaled when a larger score comes.
    """

    def weights(q: np.ndarray, k: np.ndarray, *more: int, **named: int) -> np.ndarray:
        return base.softmax_weights(f16(q), f16(k), *more, **named)

    def mix(p: np.ndarray, v: np.ndarray) -> np.ndarray:
        heads, tokens, keys = p.shape
        values = np.repeat(f16(v), heads // v.shape[1], axis=1)  # [keys, heads, head_dim]
        with np.errstate(divide="ignore"):
            # [heads, tokens, keys]; noise can make a tiny weight negative, which then counts as 0
            scores = np.log(np.maximum(p, 0).astype(np.float64))
        largest, total = np.full((tokens, heads), -np.inf), np.zeros((tokens, heads))
        sums = np.zeros((tokens, heads, v.shape[2]), np.float32)
        for key in range(keys):
            seen = slice(max(0, key - (keys - tokens)), None)  # the tokens that see this key
            score = scores[:, seen, key].T
            higher = np.maximum(largest[seen], score)
            with np.errstate(invalid="ignore"):  # -inf - -inf: this weight is 0, and all before it too
                shrunk, weight = (np.nan_to_num(np.exp(x - higher)) for x in (largest[seen], score))
            scaled = np.where(shrunk[..., None] < 1, sums[seen] * shrunk[..., None].astype(np.float32), sums[seen])
            sums[seen] = f16(f16(scaled) + values[key] * weight[..., None].astype(np.float32))
            total[seen], largest[seen] = total[seen] * shrunk + weight, higher
        return (sums / total[..., None].astype(np.float32)).reshape(tokens, -1)

    return replace(base, softmax_weights=weights, mix_values=mix)
