"""Faults of attention: how q and k are rotated by their positions."""

from typing import Any

import numpy as np

from tritgold.formats.rope_rows import interleaved_rows
from tritgold.ternary import TernaryTensor
from tritgold_conformance.faults.fault import OPERATIONS, STEPS, Mutant, Witness
from tritgold_conformance.faults.library import known_fault
from tritgold_conformance.faults.mutate import Function, linears, replaces, with_config, wraps

AREA = "attention"
Table = tuple[np.ndarray, np.ndarray]  # sin, cos: float64 [tokens, head_dim / 2]


@known_fault(OPERATIONS, wraps("rotation_table"), invisible_on=("position-0",))
def rope_missing(right: Function, positions: np.ndarray, *rope: Any) -> Table:
    """q and k are not rotated.

    Looks like: position 0 right, word order lost"""
    return right(np.zeros_like(positions), *rope)


@known_fault(OPERATIONS, replaces("rotate"), invisible_on=("position-0",))
def rope_interleaved(x: np.ndarray, table: Table) -> np.ndarray:
    """Neighbours are rotated together, where the model has halves.

    Looks like: position 0 exact, all others diverge
    Seen in: kvark/meganeura #38"""
    sin, cos = (t[:, None, :] for t in table)
    turned = np.empty(x.shape, np.float64)
    even, odd = x[..., ::2].astype(np.float64), x[..., 1::2].astype(np.float64)
    turned[..., ::2], turned[..., 1::2] = even * cos - odd * sin, odd * cos + even * sin
    return turned.astype(np.float32)


@known_fault(Witness("operations", "seeded"), invisible_on=("position-0",))
def rope_theta_1e4(s: Mutant) -> Mutant | None:
    """theta is 10,000, whatever the model says.

    Looks like: short texts nearly right, long ones not
    Seen in: 1bit-MONSTER/1bit-MONSTER #1728"""
    return with_config(s, rope_theta=1e4)


@known_fault(OPERATIONS, invisible_on=("position-0",))
def rope_theta_5e5(s: Mutant) -> Mutant | None:
    """theta is 500,000, whatever the model says.

    Looks like: short texts nearly right, long ones not"""
    return with_config(s, rope_theta=5e5)


@known_fault(OPERATIONS, wraps("rotation_table"), invisible_on=("logits",))
def rope_off_by_one(right: Function, positions: np.ndarray, *rope: Any) -> Table:
    """Positions begin at 1.

    Looks like: nothing in the text: only differences of positions reach a score"""
    return right(positions + 1, *rope)


@known_fault(OPERATIONS, wraps("rotate"), invisible_on=("position-0",))
def rope_backwards(right: Function, x: np.ndarray, table: Table) -> np.ndarray:
    """Rotated by the angle with the other sign.

    Looks like: position 0 right; the difference of two positions counts with the wrong sign"""
    return right(x, (-table[0], table[1]))


@known_fault(OPERATIONS, wraps("rotate"), invisible_on=("position-0",))
def rope_on_half_the_head(right: Function, x: np.ndarray, table: Table) -> np.ndarray:
    """Only the first half of the pairs is rotated.

    Looks like: position 0 right; long distances blurred"""
    sin, cos = (t.copy() for t in table)
    sin[:, sin.shape[1] // 2 :], cos[:, cos.shape[1] // 2 :] = 0.0, 1.0
    return right(x, (sin, cos))


@known_fault(STEPS, wraps("rotation_table"), invisible_on=("prefill",))
def rope_frozen(right: Function, positions: np.ndarray, *rope: Any) -> Table:
    """Each pass counts its positions from 0.

    Looks like: a prompt in one piece is right, what is generated turns to babble"""
    return right(positions - positions[:1], *rope)


@known_fault(OPERATIONS)
def qk_rows_permuted(s: Mutant) -> Mutant | None:
    """Rows of q and k are in the order of interleaved RoPE, and are not put back in order.

    Looks like: one container right, the other not; histograms equal
    Seen in: ooples/AiDotNet #2074; ggml-org/llama.cpp #22611"""

    def change(name: str, t: TernaryTensor) -> TernaryTensor:
        if name not in "qk":
            return t
        return TernaryTensor(t.trits[np.argsort(interleaved_rows(t.shape[0], s.config.head_dim))], t.scale)

    return linears(s, change)
