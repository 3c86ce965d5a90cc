"""Faults of the KV cache: right in one prefill, wrong in pieces and steps."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tritgold.config import ModelConfig
from tritgold.kv_cache.base import KvShape
from tritgold.kv_cache.float32 import Float32Cache
from tritgold_conformance.faults.fault import Change, Fault, Subject, Witness

Pair = tuple[np.ndarray, np.ndarray]


def _cache(made: Callable[[KvShape, int], Float32Cache]) -> Change:
    def new_cache(config: ModelConfig, capacity: int) -> Float32Cache:
        return made(config, capacity)

    def change(s: Subject) -> Subject:
        return replace(s, new_cache=new_cache)

    return change


class SlotOverwritten(Float32Cache):
    """The first key and value of a pass are written over the last ones of the pass before, too."""

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> Pair:
        """As the exact cache; then the slot."""
        keys, values = super().append(layer, k, v)
        if self.length:
            keys[self.length - 1], values[self.length - 1] = k[0], v[0]
        return keys, values


class OnePassLate(Float32Cache):
    """A pass of one token does not see its own key and value yet, but those of the token before."""

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> Pair:
        """As the exact cache; the newest row is returned one too old."""
        keys, values = super().append(layer, k, v)
        if self.length and len(k) == 1:
            keys, values = keys.copy(), values.copy()
            keys[-1], values[-1] = keys[-2], values[-2]
        return keys, values


class NewestScale(Float32Cache):
    """Rows are kept in units of their pass's largest magnitude, and all are read in that of the newest pass."""

    def __init__(self, config: KvShape, capacity: int) -> None:
        super().__init__(config, capacity)
        self._units = np.ones((2, config.layers, capacity), np.float32)

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> Pair:
        """As the exact cache, each old row times newest / own."""
        both = super().append(layer, k, v)
        end = self.length + len(k)
        for side, new in enumerate((k, v)):
            self._units[side, layer, self.length : end] = max(float(np.abs(new).max()), 1e-6)
        newest = self._units[:, layer, end - 1 : end] / self._units[:, layer, :end]
        return both[0] * newest[0][:, None, None], both[1] * newest[1][:, None, None]


class RingOf16(Float32Cache):
    """Room for 16 positions: what is older was overwritten by what is newer, and is read as if it were the old."""

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> Pair:
        """Position p lies in slot p mod 16."""
        keys, values = super().append(layer, k, v)
        if not self.length:
            return keys, values  # the pass itself reads what it has in hand
        last = len(keys) - 1
        at = np.array([last - (last - p) % 16 if p <= last - 16 else p for p in range(len(keys))])
        return keys[at], values[at]


class ValuesShifted(Float32Cache):
    """Values of earlier passes are one position too old: the read pointer of v was not moved."""

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> Pair:
        """As the exact cache; values before this pass shifted by one."""
        keys, values = super().append(layer, k, v)
        if self.length > 1:
            values = values.copy()
            values[1 : self.length] = self._values[layer, : self.length - 1]
        return keys, values


class LayersShareValues(Float32Cache):
    """Values of earlier passes are those of the first layer, in every layer."""

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> Pair:
        """As the exact cache; old values of layer 0."""
        keys, values = super().append(layer, k, v)
        if self.length and layer:
            values = values.copy()
            values[: self.length] = self._values[0, : self.length]
        return keys, values


_STEPS, _ONE_PREFILL = Witness("steps"), ("prefill",)

FAULTS = (
    Fault(
        "kv-slot-overwritten", "kv-cache", "A pass begins one slot too early and overwrites the last key and value.",
        "the first token is right, then the text drifts",
        _cache(SlotOverwritten), _STEPS, ("Nehanth/swarmllm #31",), _ONE_PREFILL,
    ),
    Fault(
        "kv-one-step-late", "kv-cache", "A step's own key and value come into the cache one step late.",
        "prompts right, generated text repeats itself",
        _cache(OnePassLate), _STEPS, (), _ONE_PREFILL,
    ),
    Fault(
        "kv-newest-scale", "kv-cache", "All rows of a quantised cache are read with the scale of the newest.",
        "prompts right, attention drifts with every step",
        _cache(NewestScale), _STEPS, ("WrinkleFree kv_cache",), _ONE_PREFILL,
    ),
    Fault(
        "kv-ring-of-16", "kv-cache", "The cache has 16 slots, and older rows are read from them all the same.",
        "repetition behind a certain length",
        _cache(RingOf16), _STEPS, ("Nehanth/swarmllm #31",), _ONE_PREFILL,
    ),
    Fault(
        "kv-values-shifted", "kv-cache", "Values of earlier passes are read one position off.",
        "prompts right, steps wrong, keys right",
        _cache(ValuesShifted), _STEPS, (), _ONE_PREFILL,
    ),
    Fault(
        "kv-values-of-layer-0", "kv-cache", "Values of earlier passes are those of layer 0 in every layer.",
        "prompts right, steps wrong from layer 1 on",
        _cache(LayersShareValues), _STEPS, (), _ONE_PREFILL,
    ),
)  # fmt: skip
