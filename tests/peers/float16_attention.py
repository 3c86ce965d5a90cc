"""llama.cpp's attention with its default KV cache, as two arithmetics: what a server that was started so computes.

K and V are float16, and so is what they are multiplied with. Source: llama.cpp, ggml/src/ggml-cpu,
``ggml_compute_forward_mul_mat`` and ``ggml_compute_forward_flash_attn_ext``.
"""

from dataclasses import replace

import numpy as np

from tritgold.layers.arithmetic import Arithmetic
from tritgold.layers.attention import mix_values, softmax_weights


def _f16(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float32)


def without_flash(base: Arithmetic) -> Arithmetic:
    """q, k, the softmax's weights and v are rounded to float16 before they are multiplied; sums are not."""

    def weights(q: np.ndarray, k: np.ndarray, *more: int) -> np.ndarray:
        return softmax_weights(_f16(q), _f16(k), *more)

    def mix(p: np.ndarray, v: np.ndarray) -> np.ndarray:
        return mix_values(_f16(p), _f16(v))

    return replace(base, softmax_weights=weights, mix_values=mix)


def with_flash(base: Arithmetic) -> Arithmetic:
    """q, k and v are rounded to float16, and so is the running sum of weighted values, after each key.

    The sum is of exp(score - largest so far), and is scaled when a larger one comes.
    """

    def weights(q: np.ndarray, k: np.ndarray, *more: int) -> np.ndarray:
        return softmax_weights(_f16(q), _f16(k), *more)

    def mix(p: np.ndarray, v: np.ndarray) -> np.ndarray:
        heads, tokens, keys = p.shape
        values = np.repeat(_f16(v), heads // v.shape[1], axis=1)  # [keys, heads, head_dim]
        mixed = np.empty((tokens, heads, v.shape[2]), np.float32)
        with np.errstate(divide="ignore"):
            scores = np.log(p.astype(np.float64))
        for t in range(tokens):
            largest, total = np.full(heads, -np.inf), np.zeros(heads)
            sums = np.zeros((heads, v.shape[2]), np.float32)
            for key in range(keys - tokens + t + 1):
                higher = np.maximum(largest, scores[:, t, key])
                shrunk, weight = np.exp(largest - higher), np.exp(scores[:, t, key] - higher)
                sums = _f16(np.where(shrunk[:, None] < 1, sums * shrunk[:, None].astype(np.float32), sums))
                sums = _f16(sums + values[key] * weight[:, None].astype(np.float32))
                total, largest = total * shrunk + weight, higher
            mixed[t] = sums / total[:, None].astype(np.float32)
        return mixed.reshape(tokens, -1)

    return replace(base, softmax_weights=weights, mix_values=mix)
