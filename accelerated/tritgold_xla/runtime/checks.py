"""The checks of the engine, before it computes and before it returns a result."""

import numpy as np

from tritgold.errors import ContextError, EngineError, NonFiniteError
from tritgold.machine import available_memory
from tritgold.option_values import is_count


def check_capacity(capacity: int, most: int, whose: str = "the model") -> int:
    """The capacity of a cache; ContextError if it is not 1 to ``most``. whose: the owner of the limit, for messages."""
    if not is_count(capacity, 1, most):
        raise ContextError(
            "the cache cannot have this capacity",
            kind="capacity",
            got=capacity,
            expected=f"1 to {most}, the positions of {whose}",
        )
    return capacity


def check_room(ids: np.ndarray, past: int, capacity: int) -> np.ndarray:
    """The checked tokens as int32; ContextError ``cache-full`` if they do not fit after ``past`` positions."""
    end = past + ids.size
    if end > capacity:
        raise ContextError(
            "the KV cache is full", kind="cache-full", got=f"{end} positions", expected=f"at most {capacity}"
        )
    return ids.astype(np.int32)


def check_sequences(sequences: int) -> int:
    """The number of sequences of a cache; ContextError ``batch`` if it is not an integer from 1."""
    if type(sequences) is not int or sequences < 1:
        raise ContextError("cannot be", kind="batch", thing="sequences", got=sequences, expected="1 or more")
    return sequences


def check_block(block: int | None) -> None:
    """ContextError ``block`` if block is not an integer from 1 or None (no blocks)."""
    if block is not None and (type(block) is not int or block < 1):
        raise ContextError("cannot be", kind="block", thing="block", got=block, expected="1 or more positions")


def check_memory(needed: int) -> None:
    """EngineError ``memory`` if less than ``needed`` bytes are free; no check if that is unknown."""
    free = available_memory()
    if free is not None and free < needed:
        raise EngineError(
            "there is not enough memory for weights and KV cache",
            kind="memory",
            got=f"{free / 1e9:.2f} GB free",
            expected=f"{needed / 1e9:.2f} GB",
            hint="give the engine a smaller capacity, or its KV cache fewer bits",
        )


def non_finite(thing: str) -> NonFiniteError:
    """The error for activations that cannot be quantised to int8; thing: where."""
    return NonFiniteError(
        "activations are not finite",
        kind="activation-non-finite",
        thing=thing,
        hint="look for the first non-finite value upstream",
    )
