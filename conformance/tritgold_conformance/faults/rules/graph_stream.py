"""Faults of the graph: a residual lost, an all-zero head, another embedding, layers in another order."""

import math
from collections.abc import Mapping

import numpy as np

from tritgold.graph import operations
from tritgold.quantize import absmean_ternary
from tritgold.ternary import DenseMatrix
from tritgold_conformance.faults.fault import OPERATIONS, TRACE, Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import (
    Function,
    altered,
    output_from,
    reordered,
    with_arithmetic,
    with_head,
    wraps,
)

AREA = "graph"


@known_fault(OPERATIONS)
def attn_residual_dropped(s: Mutant) -> Mutant:
    """Attention's output replaces the stream.

    Looks like: babble"""
    return output_from(s, "attn_residual", "o.out")


@known_fault(OPERATIONS)
def ffn_residual_dropped(s: Mutant) -> Mutant:
    """The FFN's output replaces the stream.

    Looks like: babble"""
    return output_from(s, "ffn_residual", "down.out")


@known_fault(TRACE)
def residual_after_the_norm(s: Mutant) -> Mutant:
    """What is added to is the norm's output.

    Looks like: the stream stops growing from layer to layer

    The addition only sees the stream, so the norm remembers."""
    normed: dict[bytes, np.ndarray] = {}
    added = {o.name: o.reads for o in operations(s.config) if o.kind == "add"}

    def rms_norm(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
        normed[x.tobytes()] = found = s.arithmetic.rms_norm(x, gain, eps)
        return found

    def alter(name: str, _: np.ndarray, seen: Mapping[str, np.ndarray]) -> np.ndarray | None:
        if name not in added:
            return None
        stream, delta = seen.get(added[name]["a"]), seen.get(added[name]["b"])
        found = None if stream is None else normed.get(stream.tobytes())
        return None if found is None or delta is None else found + delta

    return with_arithmetic(altered(s, alter), rms_norm=rms_norm)


@known_fault(OPERATIONS)
def head_left_empty(s: Mutant) -> Mutant:
    """A tied head is taken for an untied one that is not there: zeros.

    Looks like: all logits are zero, the first token for ever
    Seen in: sgl-project/sglang #1508; vllm-project/vllm #53019"""
    return with_head(s, np.zeros_like)


@known_fault(OPERATIONS)
def head_ternarised(s: Mutant) -> Mutant:
    """The head is quantised like every other linear.

    Looks like: logits roughly right"""
    return with_head(s, lambda rows: absmean_ternary(rows).dense())


@known_fault(TRACE)
def head_before_final_norm(s: Mutant) -> Mutant:
    """Logits are made of the stream, without the final norm.

    Looks like: the likeliest tokens right, their probabilities not"""
    last = next(o.reads["x"] for o in operations(s.config) if o.name == "final_norm")
    return altered(s, lambda name, _, seen: seen.get(last) if name == "final_norm" else None)


@known_fault(OPERATIONS, wraps("embed"))
def embedding_scaled(right: Function, tokens: np.ndarray, embedding: DenseMatrix) -> np.ndarray:
    """The embedding is multiplied by the root of hidden.

    Looks like: babble from layer 0 on"""
    return (right(tokens, embedding) * np.float32(math.sqrt(embedding.shape[1]))).astype(np.float32)


@known_fault(OPERATIONS, wraps("embed"))
def embedding_of_the_next_id(right: Function, tokens: np.ndarray, embedding: DenseMatrix) -> np.ndarray:
    """Row id + 1 of the embedding: a special token was counted twice.

    Looks like: babble; the embedding of each token is another token's"""
    return right((tokens + 1) % embedding.shape[0], embedding)


@known_fault(OPERATIONS)
def layers_reversed(s: Mutant) -> Mutant | None:
    """Layers run from the last to the first.

    Looks like: babble"""
    return reordered(s, list(range(s.config.layers))[::-1])


@known_fault(Witness("operations", "deep"), invisible_on=("11-layers",))
def layers_in_order_of_name(s: Mutant) -> Mutant | None:
    """Layers run in the order of their names: 1, 10, 11, 2.

    Looks like: models of up to 10 layers are right"""
    return reordered(s, sorted(range(s.config.layers), key=str))
