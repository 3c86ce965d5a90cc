"""A faster golden model: a diagnosis runs it more than a hundred times, once for each fault.

Same results to the last bit; only the unpacking of the weights is saved.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tritgold.checkpoint import Checkpoint
from tritgold.layers.arithmetic import GOLDEN_ARITHMETIC, Arithmetic
from tritgold.ternary import InMemoryTernary, TernaryTensor
from tritgold.weights import LINEARS, LayerWeights
from tritgold_conformance.faults.fault import Mutant

LARGEST = 1 << 26  # trits of a model that is kept unpacked: 64 MB


def quick(checkpoint: Checkpoint, arithmetic: Arithmetic = GOLDEN_ARITHMETIC) -> Mutant:
    """The golden model with unpacked weights in memory, up to LARGEST trits."""
    return Mutant(unpacked(checkpoint), arithmetic)


def unpacked(checkpoint: Checkpoint) -> Checkpoint:
    """The same model to the last bit, in memory and unpacked once, unless it is large."""
    w = checkpoint.weights
    trits = sum(int(np.prod(layer.linear(name).shape)) for layer in w.layers for name in LINEARS)
    return in_memory(checkpoint) if trits <= LARGEST else checkpoint


@dataclass(frozen=True, eq=False)
class Rows:
    """A DenseMatrix in memory, float32 [rows, columns]."""

    values: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.values.shape[0], self.values.shape[1]

    def rows(self, index: slice | np.ndarray) -> np.ndarray:
        """The rows of this index, float32."""
        return self.values[index]


def in_memory(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with every tensor in memory; its files are not needed any more."""
    w = checkpoint.weights
    layers = tuple(with_linears(layer, lambda name, t: t) for layer in w.layers)
    embedding = Rows(w.embedding.rows(slice(None)).copy())
    head = None if w.head is None else Rows(w.head.rows(slice(None)).copy())
    return replace(checkpoint, weights=replace(w, layers=layers, embedding=embedding, head=head))


def with_linears(
    layer: LayerWeights, change: Callable[[str, TernaryTensor], TernaryTensor], **others: Any
) -> LayerWeights:
    """The layer with every linear in memory, changed; others: its other fields."""
    made: dict[str, Any] = {n: InMemoryTernary(change(n, layer.linear(n).ternary())) for n in LINEARS}
    return replace(layer, **made, **others)
