"""Arithmetic: the functions that a forward pass consists of, as one value.

The golden model is ``GOLDEN_ARITHMETIC``; ``ARITHMETICS`` has every named one by its mode. Replacing one function gives
a model that differs only there: a deliberate fault, another arithmetic, or the golden model with an engine's codes
at rounding ties. So the graph need not be copied.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tritgold.layers.attention import mix_values, softmax_weights
from tritgold.layers.bit_linear import accumulate, apply_scales
from tritgold.layers.embedding import embed
from tritgold.layers.feed_forward import gated_activation
from tritgold.layers.lm_head import logits
from tritgold.layers.q8_k import accumulate_blocks, apply_block_scales, quantize_q8_k
from tritgold.layers.rms_norm import rms_norm
from tritgold.layers.rotary import rotate, rotation_table
from tritgold.modes import GOLDEN, LLAMA_CPP_Q8_K, ArithmeticMode
from tritgold.quantize import absmax_int8

Array = np.ndarray
# (trace name, output, earlier outputs of this pass by trace name) -> the output to use instead.
Alter = Callable[[str, Array, Mapping[str, Array]], Array]


@dataclass(frozen=True)
class Arithmetic:
    """The functions of a forward pass; signatures and shapes are those of the defaults.

    alter: called with every traced output, in execution order; the pass continues with its result, even if nothing is
    traced. So a fault can change a single operation by its name, which the functions do not know.
    place: (name of an operation, this arithmetic) -> the one that it is computed with; ``rotation_table``, which all
    layers share, and ``alter`` are this one's.
    """

    embed: Callable[..., Array] = embed
    rms_norm: Callable[..., Array] = rms_norm
    quantize: Callable[[Array], tuple[Array, Array]] = absmax_int8
    accumulate: Callable[..., Array] = accumulate
    apply_scales: Callable[..., Array] = apply_scales
    rotation_table: Callable[..., Any] = rotation_table
    rotate: Callable[..., Array] = rotate
    softmax_weights: Callable[..., Array] = softmax_weights
    mix_values: Callable[..., Array] = mix_values
    gated_activation: Callable[..., Array] = gated_activation
    logits: Callable[..., Array] = logits
    alter: Alter | None = None
    place: "Callable[[str, Arithmetic], Arithmetic] | None" = None

    def at(self, name: str) -> "Arithmetic":
        """What the operation of this name, one of ``graph``, is computed with."""
        return self if self.place is None else self.place(name, self)


GOLDEN_ARITHMETIC = Arithmetic()
Q8_K_ARITHMETIC = Arithmetic(
    quantize=quantize_q8_k, accumulate=accumulate_blocks, apply_scales=apply_block_scales
)  # llama.cpp on TQ1_0 and TQ2_0 weights
ARITHMETICS: dict[ArithmeticMode, Arithmetic] = {GOLDEN: GOLDEN_ARITHMETIC, LLAMA_CPP_Q8_K: Q8_K_ARITHMETIC}


def mode_id(arithmetic: Arithmetic) -> str:
    """The mode for a trace: the id of a named arithmetic, ``altered-golden/1`` for any other.

    >>> mode_id(Q8_K_ARITHMETIC), mode_id(Arithmetic(quantize=quantize_q8_k))
    ('llama-cpp-q8_k/1', 'altered-golden/1')
    """
    return next((mode.id for mode, named in ARITHMETICS.items() if named == arithmetic), f"altered-{GOLDEN.id}")
