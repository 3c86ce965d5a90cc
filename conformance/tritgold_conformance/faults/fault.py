"""Fault: a small named change of the golden model, and Mutant: the golden model, or what faults made of it.

No fault is a copy of the model. Each changes weights or configuration, or replaces one function of the arithmetic, or
one output by its name, or the KV cache, or a switch of the decode loop, or how a tokenizer is used. So a model can have
two faults at once, and a repaired engine is the golden model with the fault that was found.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.config import ModelConfig
from tritgold.kv_cache.base import KvCache
from tritgold.kv_cache.float32 import Float32Cache
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic

# "architecture" is last: measurements of the diagnosis draw noise by the place of a fault among those before it.
Area = Literal[
    "packing", "scale", "activation", "accumulator", "graph", "attention", "kv-cache", "decode", "tokenizer",
    "architecture",
]  # fmt: skip
AREAS: tuple[Area, ...] = get_args(Area)
# Where an engine can show a fault, from the surest sight to the weakest.
Level = Literal[
    "files", "operations", "vectors", "trace", "statistics", "logits", "continued", "steps", "generated", "text"
]
NewCache = Callable[[ModelConfig, int], KvCache]
# (format, bytes, (out, in)) -> float32 [out, in], trit x scale; None: as the format says.
Unpack = Callable[[str, bytes, tuple[int, int]], np.ndarray | None]


@dataclass(frozen=True, eq=False)
class Mutant:
    """A model to be run: what a fault takes and what it gives back.

    new_cache: makes the KV cache of a sequence. unpack: how packed bytes are read; None, or None from it: rightly.
    decoding, text: the switches of ``generating`` and of ``tokenizer`` that are on. names: of its faults, in order.
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
        """The configuration of the checkpoint."""
        return self.checkpoint.config


Mutation = Callable[[Mutant], Mutant | None]


@dataclass(frozen=True)
class Witness:
    """What shows a fault: the level at which an engine that has it differs, and the model on which it does.

    model: one of ``witnesses.MODELS``. tokens: of the input.
    """

    level: Level
    model: str = "kjv-ar"
    tokens: int = 40


FILES, OPERATIONS, EDGE_INPUTS = Witness("files"), Witness("operations"), Witness("vectors")
TRACE, STEPS = Witness("trace"), Witness("steps")
GENERATED, TEXT = Witness("generated", "diffusing"), Witness("text", "diffusing")


@dataclass(frozen=True, eq=False)
class Fault:
    """A named fault; ``library.known_fault`` makes it of a function and its docstring.

    summary: what is wrong, in a sentence. looks_like: what an engine's developer sees. seen_in: public reports.
    shown_by: an input in CI that shows it. invisible_on: keys of ``INVISIBLE``, inputs on which it provably changes
    nothing. change: None where a model has no place for the fault (another activation, another shape). function: as it
    is written, docstring and all. harmless: engines differ in it, and all of them are right.
    """

    name: str
    area: Area
    summary: str
    looks_like: str
    change: Mutation
    shown_by: Witness
    function: Callable[..., Any]
    seen_in: tuple[str, ...] = ()
    invisible_on: tuple[str, ...] = ()
    harmless: bool = False

    def apply(self, mutant: Mutant) -> Mutant | None:
        """The mutant with this fault; None where it has no place for it."""
        changed = self.change(mutant)
        return None if changed is None else replace(changed, names=(*mutant.names, self.name))


INVISIBLE: dict[str, str] = {
    "position-0": "the first token, prefilled alone",
    "logits": "logits, and everything after the norm that takes a constant factor out again",
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
