"""The constant factors of MiniCPM, Granite and Gemma: of the embedding, of what is added, of the logits."""

import numpy as np
from jaxtyping import Float32


def scaled(x: Float32[np.ndarray, "tokens ..."], factor: float) -> Float32[np.ndarray, "tokens ..."]:
    """x * factor, one float32 product; x itself where the factor is 1."""
    return x if factor == 1 else x * np.float32(factor)


def divided(x: Float32[np.ndarray, "tokens width"], divisor: float) -> Float32[np.ndarray, "tokens width"]:
    """x / divisor, one float32 division; x itself where the divisor is 1."""
    return x if divisor == 1 else x / np.float32(divisor)


def added(
    stream: Float32[np.ndarray, "tokens hidden"], branch: Float32[np.ndarray, "tokens hidden"], factor: float
) -> Float32[np.ndarray, "tokens hidden"]:
    """The residual connection: stream + branch * factor, the product rounded before it is added."""
    return stream + scaled(branch, factor)
