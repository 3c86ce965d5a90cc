"""Faults of the KV cache: right in one prefill, wrong in pieces and steps."""

import numpy as np

from tritgold_conformance.faults.fault import STEPS
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import FaultyCache, appends

Pair = tuple[np.ndarray, np.ndarray]


@known_fault(STEPS, appends, invisible_on=("prefill",))
def kv_slot_overwritten(cache: FaultyCache, layer: int, keys: np.ndarray, values: np.ndarray, new: int) -> Pair:
    """A pass begins one slot too early and overwrites the last key and value.

    Looks like: the first token is right, then the text drifts
    Seen in: Nehanth/swarmllm #31"""
    if cache.length:
        keys[cache.length - 1], values[cache.length - 1] = keys[cache.length], values[cache.length]
    return keys, values


@known_fault(STEPS, appends, invisible_on=("prefill",))
def kv_one_step_late(cache: FaultyCache, layer: int, keys: np.ndarray, values: np.ndarray, new: int) -> Pair:
    """A step's own key and value come into the cache one step late.

    Looks like: prompts right, generated text repeats itself"""
    if cache.length and new == 1:
        keys, values = keys.copy(), values.copy()
        keys[-1], values[-1] = keys[-2], values[-2]
    return keys, values


@known_fault(STEPS, appends, invisible_on=("prefill",))
def kv_newest_scale(cache: FaultyCache, layer: int, keys: np.ndarray, values: np.ndarray, new: int) -> Pair:
    """All rows of a quantised cache are read with the scale of the newest.

    Looks like: prompts right, attention drifts with every step
    Seen in: WrinkleFree kv_cache

    A row is kept in units of its pass's largest magnitude."""
    end = len(keys)
    for units, rows in zip(cache.units, (keys, values), strict=True):
        units[layer, end - new : end] = max(float(np.abs(rows[end - new :]).max()), 1e-6)
    newest = cache.units[:, layer, end - 1 : end] / cache.units[:, layer, :end]
    return keys * newest[0][:, None, None], values * newest[1][:, None, None]


@known_fault(STEPS, appends, invisible_on=("prefill",))
def kv_ring_of_16(cache: FaultyCache, layer: int, keys: np.ndarray, values: np.ndarray, new: int) -> Pair:
    """The cache has 16 slots, and older rows are read from them all the same.

    Looks like: repetition after a certain length
    Seen in: Nehanth/swarmllm #31"""
    if not cache.length:
        return keys, values  # the pass itself reads what it has in hand
    last = len(keys) - 1
    at = np.array([last - (last - p) % 16 if p <= last - 16 else p for p in range(len(keys))])
    return keys[at], values[at]


@known_fault(STEPS, appends, invisible_on=("prefill",))
def kv_values_shifted(cache: FaultyCache, layer: int, keys: np.ndarray, values: np.ndarray, new: int) -> Pair:
    """Values of earlier passes are read one position off.

    Looks like: prompts right, steps wrong, keys right"""
    if cache.length > 1:
        values = values.copy()
        values[1 : cache.length] = cache.stored_values(layer)[:-1]
    return keys, values


@known_fault(STEPS, appends, invisible_on=("prefill",))
def kv_values_of_layer_0(cache: FaultyCache, layer: int, keys: np.ndarray, values: np.ndarray, new: int) -> Pair:
    """Values of earlier passes are those of layer 0 in every layer.

    Looks like: prompts right, steps wrong from layer 1 on"""
    if cache.length and layer:
        values = values.copy()
        values[: cache.length] = cache.stored_values(0)
    return keys, values
