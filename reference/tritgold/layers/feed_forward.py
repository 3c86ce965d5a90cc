"""The gated FFN's activation: f(gate) * up, f = ReLU squared (BitNet 2B-4T), SiLU (Llama style) or GELU (Gemma)."""

import math

import numpy as np
from jaxtyping import Float32

from tritgold.config import Activation
from tritgold.portable_math import exp

_GELU = 2 * math.sqrt(2 / math.pi)


def gated_activation(
    gate: Float32[np.ndarray, "tokens inter"], up: Float32[np.ndarray, "tokens inter"], activation: Activation
) -> Float32[np.ndarray, "tokens inter"]:
    """relu(gate)^2 * up, or gate / (1 + e^-gate) * up; ``gelu_tanh`` is GELU by its tanh formula.

    g (1 + tanh u) / 2 = g / (1 + e^-2u), with u = sqrt(2 / pi) (g + 0.044715 g^3). Source: arXiv 1606.08415.

    ReLU squared reaches 5e6 to 5e7 in real models, beyond float16's 65,504: an engine in float16 makes inf here.

    >>> gate, up = np.array([[-1, .5, 2]], np.float32), np.ones((1, 3), np.float32)
    >>> gated_activation(gate, up, "relu2")
    array([[0.  , 0.25, 4.  ]], dtype=float32)
    >>> gated_activation(gate, up, "silu").round(4)
    array([[-0.2689,  0.3112,  1.7616]], dtype=float32)
    """
    g = gate.astype(np.float64)
    if activation == "relu2":
        return (np.square(np.maximum(g, 0.0)) * up).astype(np.float32)
    slope = g if activation == "silu" else _GELU * (g + 0.044715 * g * g * g)
    return (g / (1.0 + exp(-slope)) * up).astype(np.float32)
