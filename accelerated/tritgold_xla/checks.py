"""What the engine refuses, before it computes or before it shows a result."""

from collections.abc import Sequence

import numpy as np

from tritgold.config import ModelConfig
from tritgold.errors import ContextError, NonFiniteError


def check_capacity(capacity: int, config: ModelConfig) -> int:
    """The capacity of a cache, or a ContextError: at least one position, at most what the model has."""
    if not 1 <= capacity <= config.context:
        raise ContextError(
            "the cache cannot have this capacity",
            kind="capacity",
            got=capacity,
            expected=f"1 to {config.context}, the positions of the model",
        )
    return capacity


def check_tokens(tokens: Sequence[int] | np.ndarray, config: ModelConfig, past: int, capacity: int) -> np.ndarray:
    """The tokens as int32 [tokens], or a ContextError saying what is wrong with them.

    past: positions filled before them. Kinds: ``no-tokens``, ``token-id``, ``context-length`` where the model has no
    more positions, ``cache-full`` where only this cache has none.
    """
    ids = np.asarray(tokens)
    if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise ContextError(
            "tokens are a list of at least one integer id", kind="no-tokens", got=f"{ids.dtype} {list(ids.shape)}"
        )
    outside = np.flatnonzero((ids < 0) | (ids >= config.vocab))
    if outside.size:
        raise ContextError(
            f"token {outside[0]} is outside the vocabulary",
            kind="token-id",
            got=int(ids[outside[0]]),
            expected=f"0 to {config.vocab - 1}",
        )
    end = past + ids.size
    if end > capacity:
        whole = capacity == config.context
        raise ContextError(
            "more tokens than the model has positions" if whole else "the KV cache is full",
            kind="context-length" if whole or end > config.context else "cache-full",
            got=f"{end} positions",
            expected=f"at most {capacity}",
            hint="shorten the prompt; nothing is cut off silently",
        )
    return ids.astype(np.int32)


def non_finite(thing: str) -> NonFiniteError:
    """The error for activations that have no int8 codes; thing: where they were to be quantised."""
    return NonFiniteError(
        "activations are not finite",
        kind="activation-non-finite",
        thing=thing,
        hint="look for the first non-finite value upstream",
    )
