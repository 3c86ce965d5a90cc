"""A model for block diffusion: keys and values are stored by position and can be replaced in place."""

from collections.abc import Callable

import numpy as np

from tritgold.config import ModelConfig
from tritgold.decode.diffusion_options import Diffusion
from tritgold.errors import ConfigError
from tritgold.kv_cache.base import KvCache
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.kv_cache.token_rows import TokenCache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.model import forward
from tritgold.weights import ModelWeights

# (tokens, start, end, rows) -> float [len(rows), vocab]. The tokens have the positions from ``start`` on; their
# keys and values replace those stored there. They see the stored positions below ``end`` and one another, as far as
# the attention allows. ``rows``: indices of the tokens, from 0, whose logits are returned; may be empty.
# Padding of the vocabulary is cut off by the caller.
BlockModel = Callable[[list[int], int, int, list[int]], np.ndarray]


class RowCache(KvCache):
    """A cache in which a pass may replace stored positions, and sees the stored positions after it, up to ``end``."""

    def __init__(self, rows: KvCache) -> None:
        if not isinstance(rows, TokenCache | Float32Cache):
            hint = "its tokens share scales with others; schemes that keep each token by itself can"
            raise ConfigError("cannot be replaced in place", kind="kv-in-place", thing=rows.scheme, hint=hint)
        super().__init__(rows.scheme, rows.shape, rows.capacity)
        self._rows, self.end = rows, 0

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Replace the rows from position ``length`` on; returns all keys and values below ``end``."""
        self._rows.truncate(self.length)
        self._rows.length = self.length
        found = self._rows.append(layer, k, v)
        if self.end == self.length + k.shape[0]:
            return found
        self._rows.length = self.end  # rows after the pass still exist: append nothing, to read them
        return self._rows.append(layer, k[:0], v[:0])


def reference_block_model(
    weights: ModelWeights,
    config: ModelConfig,
    options: Diffusion,
    capacity: int,
    cache: KvCache | None = None,
    arithmetic: Arithmetic = GOLDEN_ARITHMETIC,
) -> BlockModel:
    """The golden model with its own cache.

    options: give its attention and block. capacity: positions of prompt and output together; the cache has one block
    more, but not more than the context. cache: an empty cache to use instead; its scheme must store each token
    separately, else ConfigError (``kv-in-place``). arithmetic: to use instead of the golden one.
    """
    block = options.block or config.block or 1  # if neither is given, ``resolve`` refuses before this model is used
    sees = {"block": block, "causal": 1, "full": config.context}.get(options.attention, 1)
    rows_cache = RowCache(cache or Float32Cache(config, min(capacity + block, config.context)))

    def block_model(tokens: list[int], start: int, end: int, rows: list[int]) -> np.ndarray:
        rows_cache.length, rows_cache.end = start, end
        return forward(tokens, weights, config, rows_cache, arithmetic=arithmetic, block=sees, rows=rows)

    return block_model
