"""Faults at one head: the wrong output, or wrong rows of a matrix, only for that head."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.ternary import LinearWeight, TernaryTensor
from tritgold_conformance.faults.mutate import MutatedWeight

OF_HEADS = ("q", "k", "v", "rope", "probs", "attn_mix")  # operations whose outputs have heads


def heads_of(
    function: str, right: Callable[..., Any], wrong: Callable[..., Any], head: int, config: ModelConfig
) -> Callable[..., Any] | None:
    """The function ``right`` of the arithmetic, but ``wrong`` at one query head, or at the key head that it reads.

    None for functions whose outputs have no heads. ``rotate`` gets both tables, the right one first.
    """
    key_head, size = head * config.kv_heads // config.heads, config.head_dim

    def columns(width: int) -> slice:
        at = (head if width == config.heads * size else key_head) * size
        return slice(at, at + size)

    def softmax(*given: Any, **named: Any) -> np.ndarray:
        found = np.array(right(*given, **named))
        found[head] = wrong(*given, **named)[head]
        return found

    def of_columns(*given: Any, **named: Any) -> np.ndarray:
        found, other = np.array(right(*given, **named)), wrong(*given, **named)
        at = columns(found.shape[1])
        found[:, at] = other[:, at]
        return found

    def rotate(x: np.ndarray, tables: tuple[Any, Any]) -> np.ndarray:
        found = np.array(right(x, tables[0]))
        at = head if x.shape[1] == config.heads else key_head
        found[:, at] = wrong(x, tables[1])[:, at]
        return found

    return {"softmax_weights": softmax, "mix_values": of_columns, "apply_scales": of_columns, "rotate": rotate}.get(
        function
    )


def weights_of_head(
    name: str, right: LinearWeight, wrong: LinearWeight, head: int, config: ModelConfig
) -> LinearWeight | None:
    """q, k or v with the wrong rows at the head, and a scale for each row; None for other linears."""
    if name not in ("q", "k", "v"):
        return None
    at = (head if name == "q" else head * config.kv_heads // config.heads) * config.head_dim
    rows = slice(at, at + config.head_dim)

    def mixed(_: str, tensor: TernaryTensor) -> TernaryTensor:
        ours, theirs = (t.with_scales_of_rows() for t in (tensor, wrong.ternary()))
        trits, scale = ours.trits.copy(), np.zeros((len(ours.trits), 1), np.float32)
        scale[:] = ours.scale.reshape(-1, 1)
        trits[rows] = theirs.trits[rows]
        scale[rows] = np.broadcast_to(theirs.scale.reshape(-1, 1), scale.shape)[rows]
        return TernaryTensor(trits, scale)

    return MutatedWeight(right, name, mixed)
