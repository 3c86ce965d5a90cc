"""Tools for faults: small changes of a Mutant, and makers, which turn one wrong function into a change.

A function here takes a mutant first and returns the changed one, or None if the change does not apply to it. The
makers (``replaces``, ``wraps``, ``gate``, ``appends``; ``packing.reads``) are arguments of ``library.known_fault``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tritgold.kv_cache.base import KvShape
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.ternary import DenseMatrix, LinearWeight, TernaryTensor
from tritgold.trace_names import TraceName
from tritgold.weights import LINEARS, LayerWeights
from tritgold_conformance.faults.fault import Mutant, Mutation
from tritgold_conformance.faults.quick import Rows

# (trace name, value, earlier outputs of this pass by trace name) -> the new value; None: no change.
Altering = Callable[[str, np.ndarray, Mapping[str, np.ndarray]], np.ndarray | None]
TensorMutation = Callable[[str, TernaryTensor], TernaryTensor]
Shape = tuple[int, int]
Function = Callable[..., Any]  # of ``Arithmetic``, before the change
KEPT = 1 << 20  # elements of the largest changed tensor that is kept: 1 MB; larger ones are computed again


def replaces(operation: str) -> Callable[[Callable[..., Any]], Mutation]:
    """Maker for a function that replaces ``operation`` of ``Arithmetic``; it has the same signature."""
    return lambda function: lambda s: with_arithmetic(s, **{operation: function})


def wraps(operation: str) -> Callable[[Callable[..., Any]], Mutation]:
    """Maker for ``function(right, *arguments)``, which replaces ``operation`` of ``Arithmetic``, ``right``."""

    def made(function: Callable[..., Any]) -> Mutation:
        return lambda s: with_arithmetic(s, **{operation: partial(function, getattr(s.arithmetic, operation))})

    return made


def gate(unless: str = "") -> Callable[[Callable[[np.ndarray], np.ndarray]], Mutation]:
    """Maker for another activation of the gate, float64 [tokens, inter]. unless: for which it is right."""

    def made(function: Callable[[np.ndarray], np.ndarray]) -> Mutation:
        def gated_activation(gate: np.ndarray, up: np.ndarray, activation: str) -> np.ndarray:
            return (function(gate.astype(np.float64)) * up).astype(np.float32)

        def change(s: Mutant) -> Mutant | None:
            return None if s.config.activation == unless else with_arithmetic(s, gated_activation=gated_activation)

        return change

    return made


class FaultyCache(Float32Cache):
    """The exact cache, whose rows a fault changes when they are read.

    units: float32 [2, layers, capacity], initially 1: one number for each key row and each value row, for the fault.
    """

    def __init__(self, config: KvShape, capacity: int) -> None:
        super().__init__(config, capacity)
        self.units = np.ones((2, config.layers, capacity), np.float32)

    def stored_values(self, layer: int) -> np.ndarray:
        """Values of earlier passes, float32 [length, kv_heads, head_dim]."""
        return self._values[layer, : self.length]


def appends(function: Callable[..., tuple[np.ndarray, np.ndarray]]) -> Mutation:
    """Maker for ``function(cache, layer, keys, values, new)``, which returns the keys and values that a pass reads.

    It gets those of the exact cache; ``new`` is the number of rows of this pass. keys and values are the cache's
    memory, float32 [length + new, kv_heads, head_dim]: changes of them are kept.
    """

    class Cache(FaultyCache):
        def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            keys, values = super().append(layer, k, v)
            return function(self, layer, keys, values, len(k))

    return lambda s: replace(s, new_cache=Cache)


def with_arithmetic(s: Mutant, **functions: Any) -> Mutant:
    """The mutant with other functions of the arithmetic, by name; ``s.arithmetic`` has the earlier ones."""
    return replace(s, arithmetic=replace(s.arithmetic, **functions))


def altered(s: Mutant, alter: Altering) -> Mutant:
    """The mutant with outputs changed by ``alter``, after the changes of earlier faults."""
    before = s.arithmetic.alter

    def both(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        if before is not None:
            value = before(name, value, seen)
        found = alter(name, value, seen)
        return value if found is None else found

    return with_arithmetic(s, alter=both)


def from_layer(seen: Mapping[str, np.ndarray], name: str, other: str) -> np.ndarray | None:
    """Another output of the same layer: ``layers.3.o.out`` and ``attn_mix`` -> the array ``layers.3.attn_mix``."""
    return seen.get(TraceName.of(name).sibling(other))


def output_from(s: Mutant, output: str, source: str) -> Mutant:
    """An output of each layer replaced by an earlier output of the same layer."""
    return altered(
        s, lambda name, _, seen: from_layer(seen, name, source) if TraceName.of(name).inner == output else None
    )


def with_config(s: Mutant, **fields: Any) -> Mutant | None:
    """Other fields of the configuration; None if they already have these values."""
    changed = replace(s.config, **fields)
    return None if changed == s.config else with_checkpoint(s, config=changed)


def with_checkpoint(s: Mutant, **fields: Any) -> Mutant:
    """Other fields of the checkpoint."""
    return replace(s, checkpoint=replace(s.checkpoint, **fields))


def with_weights(s: Mutant, **fields: Any) -> Mutant:
    """Other weights of the model."""
    return with_checkpoint(s, weights=replace(s.checkpoint.weights, **fields))


def with_layers(s: Mutant, change: Callable[[LayerWeights], Mapping[str, Any]]) -> Mutant:
    """Other weights in every layer, by field."""
    return with_weights(s, layers=tuple(replace(layer, **change(layer)) for layer in s.checkpoint.weights.layers))


def reordered(s: Mutant, order: list[int]) -> Mutant | None:
    """The layers in another order; None if the order is the same."""
    layers = s.checkpoint.weights.layers
    return None if order == sorted(order) else with_weights(s, layers=tuple(layers[i] for i in order))


def with_head(s: Mutant, make: Callable[[np.ndarray], np.ndarray]) -> Mutant:
    """An untied head that ``make`` computes from the right one, float32 [vocab, hidden]."""
    made = with_weights(s, head=Rows(make(s.checkpoint.weights.head_or_embedding.rows(slice(None)))))
    return with_checkpoint(made, config=replace(s.config, tied_head=False))


@dataclass(frozen=True, eq=False)
class MutatedWeight:
    """A LinearWeight with a fault, computed from the right one when it is needed, and kept up to KEPT elements."""

    source: LinearWeight
    name: str
    change: TensorMutation
    master: DenseMatrix | None = None
    _kept: list[TernaryTensor] = field(default_factory=list)

    @property
    def shape(self) -> Shape:
        """(out, in)."""
        return self.source.shape

    def ternary(self) -> TernaryTensor:
        """The changed tensor."""
        if self._kept:
            return self._kept[0]
        made = self.change(self.name, self.source.ternary())
        if made.trits.size <= KEPT:
            self._kept.append(made)
        return made


def linears(s: Mutant, change: TensorMutation, fits: Callable[[Shape], bool] = lambda shape: True) -> Mutant | None:
    """Every linear weight whose shape fits, changed by ``change(name, tensor)``; None if no shape fits."""
    layers, found = [], False
    for layer in s.checkpoint.weights.layers:
        names = [name for name in LINEARS if fits(layer.linear(name).shape)]
        found = found or bool(names)
        changed: dict[str, Any] = {name: MutatedWeight(layer.linear(name), name, change) for name in names}
        layers.append(replace(layer, **changed))
    return with_weights(s, layers=tuple(layers)) if found else None


def with_scales(s: Mutant, change: Callable[[np.ndarray], np.ndarray], only: str = "") -> Mutant | None:
    """The scale of every linear changed; only: of this one in each layer."""

    def changed(name: str, t: TernaryTensor) -> TernaryTensor:
        return t if only not in ("", name) else TernaryTensor(t.trits, np.asarray(change(t.scale), np.float32))

    return linears(s, changed)


def with_scales_of(s: Mutant, sources: Mapping[str, str], layers_on: int = 0) -> Mutant:
    """Linears with the scales of others, by name: of the layer ``layers_on`` further on, cyclically (0: the same)."""
    layers = s.checkpoint.weights.layers

    def borrowing(layer: LayerWeights, lender: LayerWeights) -> LayerWeights:
        def change(name: str, t: TernaryTensor) -> TernaryTensor:
            return TernaryTensor(t.trits, lender.linear(sources[name]).ternary().scale)

        changed: dict[str, Any] = {name: MutatedWeight(layer.linear(name), name, change) for name in sources}
        return replace(layer, **changed)

    return with_weights(
        s, layers=tuple(borrowing(layer, layers[(n + layers_on) % len(layers)]) for n, layer in enumerate(layers))
    )


def with_largest_scale(s: Mutant, names: tuple[str, ...]) -> Mutant:
    """These linears of each layer, all with the largest of their scales (over all rows if rows have scales)."""

    def borrowing(layer: LayerWeights) -> dict[str, Any]:
        largest = max(layer.linear(name).ternary().scale.max() for name in names)

        def change(_: str, t: TernaryTensor) -> TernaryTensor:
            return TernaryTensor(t.trits, np.full_like(t.scale, largest))

        return {name: MutatedWeight(layer.linear(name), name, change) for name in names}

    return with_layers(s, borrowing)


def decoding(s: Mutant, **switches: Any) -> Mutant:
    """Switches of ``generating``. Sets of defects are added to those that are already on."""
    joined: dict[str, Any] = dict(s.decoding)
    for name, value in switches.items():
        before = joined.get(name)
        joined[name] = before | value if isinstance(before, frozenset | Mapping) else value
    return replace(s, decoding=joined)


def text(s: Mutant, **switches: Any) -> Mutant:
    """Switches of ``tokenizer``."""
    return replace(s, text={**s.text, **switches})
