"""The exact KV cache: keys after RoPE and values as float32, nothing rounded."""

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import ContextError


class Float32Cache:
    """Room for ``capacity`` positions of every layer.

    length: positions stored so far, the same for all layers between two forward passes. A forward pass appends
    each layer once and then calls ``advance``; half a pass is never visible in ``length``.
    """

    def __init__(self, config: ModelConfig, capacity: int) -> None:
        shape = (config.layers, capacity, config.kv_heads, config.head_dim)
        self._keys, self._values = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.capacity = capacity
        self.length = 0

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store k and v, float32 [tokens, kv_heads, head_dim]; return all keys and values of the layer so far.

        Raises ContextError when they do not fit; nothing is overwritten then.
        """
        end = self.length + k.shape[0]
        if end > self.capacity:
            raise ContextError(
                "the KV cache is full", kind="cache-full", got=f"{end} positions", expected=f"at most {self.capacity}"
            )
        self._keys[layer, self.length : end] = k
        self._values[layer, self.length : end] = v
        return self._keys[layer, :end], self._values[layer, :end]

    def truncate(self, length: int) -> None:
        """Forget every position from ``length`` on, to go another way from there."""
        self.length = min(self.length, length)

    def advance(self, tokens: int) -> None:
        """Make the appended positions part of the past, after the last layer has appended them."""
        self.length += tokens
