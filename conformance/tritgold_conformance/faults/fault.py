"""Fault: a small named change of the golden model, and Subject: the golden model, or what faults made of it.

No fault is a copy of the model. Each changes weights or configuration, or replaces one function of the arithmetic, or
one output by its name, or the KV cache, or a switch of the decode loop, or how a tokenizer is used. So two faults can
be had at once, and a repaired engine is the golden model with the fault that was found.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.config import ModelConfig
from tritgold.kv_cache.base import KvCache
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.ternary import DenseMatrix, LinearWeight, TernaryTensor
from tritgold.weights import LINEARS

Area = Literal["packing", "scale", "activation", "accumulator", "graph", "attention", "kv-cache", "decode", "tokenizer"]
AREAS: tuple[Area, ...] = (
    "packing", "scale", "activation", "accumulator", "graph", "attention", "kv-cache", "decode", "tokenizer",
)  # fmt: skip
# Where an engine can show a fault, from the surest sight to the weakest.
Level = Literal[
    "files", "operations", "vectors", "trace", "statistics", "logits", "continued", "steps", "generated", "text"
]
NewCache = Callable[[ModelConfig, int], KvCache]
# (format, bytes, (out, in)) -> float32 [out, in], trit x scale; None: as the format says.
Unpack = Callable[[str, bytes, tuple[int, int]], np.ndarray | None]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to be run: what a fault takes and what it gives back.

    new_cache: makes the KV cache of a sequence. unpack: how packed bytes are read; None, or None from it: rightly.
    decoding, text: the switches of ``decode`` and of ``tokenizer`` that are on. names: of the faults it has, in order.
    """

    checkpoint: Checkpoint
    arithmetic: Arithmetic = GOLDEN_ARITHMETIC
    new_cache: NewCache = Float32Cache
    unpack: Unpack | None = None
    decoding: Mapping[str, Any] = field(default_factory=dict)
    text: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    @property
    def config(self) -> ModelConfig:
        """Of the checkpoint."""
        return self.checkpoint.config


Change = Callable[[Subject], Subject | None]


@dataclass(frozen=True)
class Witness:
    """What shows a fault: the level at which an engine that has it differs, and the model on which it does.

    model: one of ``witnesses.MODELS``. tokens: of the input.
    """

    level: Level
    model: str = "kjv-ar"
    tokens: int = 40


@dataclass(frozen=True, eq=False)
class Fault:
    """A named fault.

    summary: what is wrong, in a sentence. looks_like: what an engine's developer sees. seen_in: public reports.
    shown_by: an input in CI that shows it. invisible_on: keys of ``INVISIBLE``, inputs on which it provably changes
    nothing. change: None where a model has no place for the fault (another activation, another shape).
    """

    name: str
    area: Area
    summary: str
    looks_like: str
    change: Change
    shown_by: Witness
    seen_in: tuple[str, ...] = ()
    invisible_on: tuple[str, ...] = ()

    def apply(self, subject: Subject) -> Subject | None:
        """The subject with this fault; None where it has no place for it."""
        changed = self.change(subject)
        return None if changed is None else replace(changed, names=(*subject.names, self.name))


INVISIBLE: dict[str, str] = {
    "position-0": "the first token, prefilled alone",
    "logits": "logits, and everything behind the norm that takes a constant factor out again",
    "free-running": "a model's own activations; only inputs made for it show it",
    "prefill": "one prefill from position 0; only pieces and steps show it",
    "33-tokens": "inputs of at most 32 tokens",
    "whole-blocks": "rows that are a multiple of the block",
    "bf16-scales": "weight scales that are bfloat16 numbers",
    "trits": "files whose codes are all 0, 1 or 2",
    "one-scale": "tensors whose blocks all have one scale",
    "small-sums": "accumulators within the range of int16",
    "11-layers": "models of at most 10 layers",
    "small-gates": "gates whose square times up stays below 65,504",
    "small-scores": "attention scores below 88",
    "whole-words": "texts whose tokens end with whole characters",
    "always": "every input: engines differ in it and all of them are right",
}


def arithmetic(**functions: Any) -> Change:
    """Functions of the arithmetic in the places of others."""
    return lambda s: replace(s, arithmetic=replace(s.arithmetic, **functions))


def arithmetic_of(make: Callable[[Subject], Mapping[str, Any] | None]) -> Change:
    """The same, made for the subject at hand: its functions are the ones to go on from. None: no place for it."""

    def change(s: Subject) -> Subject | None:
        functions = make(s)
        return None if functions is None else replace(s, arithmetic=replace(s.arithmetic, **functions))

    return change


Altering = Callable[[str, np.ndarray, Mapping[str, np.ndarray]], np.ndarray | None]


def output(make: Callable[[Subject], Altering | None]) -> Change:
    """One output, or some, by their trace names, behind what earlier faults alter. None from it leaves a value."""

    def change(s: Subject) -> Subject | None:
        before, here = s.arithmetic.alter, make(s)
        if here is None:
            return None
        ours = here

        def alter(name: str, value: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray:
            if before is not None:
                value = before(name, value, seen)
            altered = ours(name, value, seen)
            return value if altered is None else altered

        return replace(s, arithmetic=replace(s.arithmetic, alter=alter))

    return change


def config(**fields: Any) -> Change:
    """Fields of the configuration; no place for it where they are so already."""

    def change(s: Subject) -> Subject | None:
        changed = replace(s.config, **fields)
        return None if changed == s.config else with_checkpoint(s, config=changed)

    return change


def with_checkpoint(s: Subject, **fields: Any) -> Subject:
    """The subject with other fields of its checkpoint."""
    return replace(s, checkpoint=replace(s.checkpoint, **fields))


def with_weights(s: Subject, **fields: Any) -> Subject:
    """The subject with other weights."""
    return with_checkpoint(s, weights=replace(s.checkpoint.weights, **fields))


ChangeTensor = Callable[[str, TernaryTensor], TernaryTensor]


KEPT = 1 << 20  # elements of the largest changed tensor that is kept: 1 MB; beyond, memory is dearer than time


@dataclass(frozen=True, eq=False)
class ChangedWeight:
    """A LinearWeight that is another one with a fault, computed when it is asked for, and kept where it is small."""

    source: LinearWeight
    name: str
    change: ChangeTensor
    master: DenseMatrix | None = None
    _kept: list[TernaryTensor] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, int]:
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


def linears(change: ChangeTensor, fits: Callable[[tuple[int, int]], bool] = lambda shape: True) -> Change:
    """Every linear weight of a shape that fits, through ``change(name, tensor)``; no place for it where none fits."""

    def faulty(s: Subject) -> Subject | None:
        found = False
        layers = []
        for layer in s.checkpoint.weights.layers:
            names = [name for name in LINEARS if fits(layer.linear(name).shape)]
            found = found or bool(names)
            changed: dict[str, Any] = {name: ChangedWeight(layer.linear(name), name, change) for name in names}
            layers.append(replace(layer, **changed))
        return with_weights(s, layers=tuple(layers)) if found else None

    return faulty
