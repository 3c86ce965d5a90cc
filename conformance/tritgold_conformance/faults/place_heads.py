"""Faults at one head: the wrong output, or the wrong rows of a matrix, at that head, and the right ones elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tritgold.config import ModelConfig
from tritgold.ternary import DenseMatrix, LinearWeight, TernaryTensor

OF_HEADS = ("q", "k", "v", "rope", "probs", "attn_mix")  # operations whose outputs have heads


def heads_of(
    function: str, right: Callable[..., Any], wrong: Callable[..., Any], head: int, config: ModelConfig
) -> Callable[..., Any] | None:
    """A function of the arithmetic that is the wrong one at a query head, or at the key head that it reads.

    None for functions whose outputs have no heads. ``rotate`` is given both tables.
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


@dataclass(frozen=True, eq=False)
class RowsOfHead:
    """A LinearWeight with some rows of another one."""

    right: LinearWeight
    wrong: LinearWeight
    rows: slice
    master: DenseMatrix | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        return self.right.shape

    def ternary(self) -> TernaryTensor:
        """Trits, and a scale for each row."""
        ours, theirs = (w.ternary().with_scales_of_rows() for w in (self.right, self.wrong))
        trits, scale = ours.trits.copy(), np.zeros((self.shape[0], 1), np.float32)
        scale[:] = ours.scale.reshape(-1, 1)
        trits[self.rows] = theirs.trits[self.rows]
        scale[self.rows] = np.broadcast_to(theirs.scale.reshape(-1, 1), scale.shape)[self.rows]
        return TernaryTensor(trits, scale)


def weights_of_head(
    name: str, right: LinearWeight, wrong: LinearWeight, head: int, config: ModelConfig
) -> LinearWeight | None:
    """q, k or v with the wrong rows at the head; None for other linears."""
    if name not in ("q", "k", "v"):
        return None
    at = head if name == "q" else head * config.kv_heads // config.heads
    return RowsOfHead(right, wrong, slice(at * config.head_dim, (at + 1) * config.head_dim))
